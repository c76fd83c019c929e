"""How multistage kernels bring and multiply k-tiles: on integers the same bits in every way, by stream-K too."""

from __future__ import annotations

from typing import Any

import pytest

from gett.ir.gemm import make_gemm_plan
from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from gett.runtime.device import device_facts
from gett.schedule.search.select import candidates
from gett.tune.measure import Bench
from tests.by_hand import streamed
from tests.cases import Case
from tests.k_tiles import CASES, by_way

LONG = [
    Case("long rows", "mk,nk->mn", {"m": 260, "n": 136, "k": 4001}),
    Case("long columns", "km,kn->mn", {"m": 520, "n": 328, "k": 2000}),
    Case("few columns", "mk,kn->mn", {"m": 3000, "n": 10, "k": 1234}),
]
NUMBERS = ("float16", "float32", "float32 tf32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("case", [*CASES, *LONG], ids=lambda x: x.name)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_every_way_gives_the_same_bits(cupy: Any, case: Case, numbers: str) -> None:
    dtype, _, precision = numbers.partition(" ")
    plan, facts = make_gemm_plan(case.contraction(dtype, precision=precision or "ieee")), device_facts().planning
    found = by_way(plan, facts)
    assert found
    other = next(
        (s for s in candidates(plan, facts.arch, facts) if s.packing is None and s.kind not in ("simt", "mma.sync")),
        None,
    )
    ready = [*([other] if other else []), *found.values()]
    divided = (streamed(s, plan, facts) for way, s in found.items() if way[0] == "ahead")
    ready += [s for s in divided if s is not None][:1]
    bench = Bench(cupy, plan, facts.l2_bytes)
    runs = [load_executable(plan, compile_schedule(plan, s, facts=facts, allow_spills=True)) for s in ready]
    assert bench.agreeing(runs) == [*range(len(runs))]
