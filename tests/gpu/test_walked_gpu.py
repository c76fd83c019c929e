"""K walked along either operand's memory: the same bits on integers as in the order of the search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gett.ir.gemm import A, B, make_gemm_plan
from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from gett.runtime.device import device_facts
from gett.schedule.legality import can_implement
from gett.schedule.lower import lower_plan
from gett.schedule.search.select import candidates
from gett.tune.measure import Bench
from tests.cases import Case

CASES = [
    Case("two leads", "mcd,ndc->mn", {"m": 200, "n": 40, "c": 64, "d": 24}),
    Case("ragged", "mcxd,ndxc->mn", {"m": 130, "n": 24, "c": 31, "d": 12, "x": 3}),
    Case("pieces", "abcde,bfgda->gfce", {"a": 8, "b": 64, "c": 2, "d": 5, "e": 5, "f": 31, "g": 13}),
]
TYPES = [
    ("float16", "ieee"), ("float32", "ieee"), ("float32", "tf32"), ("float64", "ieee"), ("complex64", "ieee"),
    ("complex128", "ieee"),
]  # fmt: skip


# Of ragged modes wgmma takes 16-bit numbers in the order of the search alone.
PAIRS = [(case, *t) for case in CASES for t in TYPES if (case.name, t[0]) != ("ragged", "float16")]


@pytest.mark.parametrize(("case", "dtype", "precision"), PAIRS, ids=lambda x: x.name if isinstance(x, Case) else x)
def test_the_order_of_k_tiles_changes_no_integer_sum(cupy: Any, case: Case, dtype: str, precision: str) -> None:
    plan, facts = make_gemm_plan(case.contraction(dtype, precision=precision)), device_facts().planning
    found, tried = dict[Any, None](), dict[str, int]()
    for s in candidates(plan, facts.arch, facts):
        if s.packing is not None or tried.setdefault(s.kind, 0) == 2:
            continue
        lowered = lower_plan(plan, s.tiling, s.precision)
        strides = ([x.strides[t] for x in lowered.k] for t in (A, B))
        boxes = dict.fromkeys(s.tiling.k.walked(x, tiled=tiled) for x in strides for tiled in (False, True))
        walked = [replace(s, tiling=replace(s.tiling, k=box)) for box in boxes if box != s.tiling.k]
        legal = [x for x in walked if can_implement(x, plan, facts) is None]
        tried[s.kind] += bool(legal)
        found |= dict.fromkeys((s, *legal) if legal else ())
    assert len(found) >= 2
    bench = Bench(cupy, plan, 0)
    runs = [load_executable(plan, compile_schedule(plan, s, allow_spills=True, facts=facts)) for s in found]
    assert bench.agreeing(runs) == [*range(len(runs))]
