"""Orders of copies and of batches, tensor cores and not: on integers the same bits as kernels that go row by row."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from gett.ir.gemm import A, B, make_gemm_plan
from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from gett.runtime.device import device_facts
from gett.schedule.search.select import candidates
from gett.tune.measure import Bench
from tests.access_orders import batches_differ, from_row_to_row, in_memory_order, schedules
from tests.cases import Case

CASES = [
    Case("batches", "mkl,nkl->lmn", {"m": 33, "n": 50, "k": 61, "l": 8}),
    Case("many batches", "mkl,nkl->lmn", {"m": 20, "n": 18, "k": 32, "l": 48}),
    Case("memory", "akb,nk->abn", {"a": 130, "k": 96, "b": 2, "n": 40}),
    Case("ragged", "akb,nkc->abnc", {"a": 70, "k": 45, "b": 2, "n": 17, "c": 3}),
    Case("padded", "abcde,cfadg->gbef", {"a": 16, "b": 16, "c": 7, "d": 3, "e": 2, "f": 4, "g": 8}),
]
ORDERS = (batches_differ, in_memory_order, from_row_to_row)
BATCHED = ("float32 tf32", "float64", "complex64", "complex128")
COPIED = ("float16", "float32", "float32 tf32", "float64")
BY_ROW = {("ragged", "float64"), *(("padded", x) for x in COPIED[1:])}  # are copied row by row
PAIRS = [(case, x) for case in CASES for x in (BATCHED if "batches" in case.name else COPIED)]
PAIRS = [(case, x) for case, x in PAIRS if (case.name, x) not in BY_ROW]


@pytest.mark.parametrize(("case", "numbers"), PAIRS, ids=lambda x: x.name if isinstance(x, Case) else x)
def test_every_order_gives_the_same_bits(cupy: Any, case: Case, numbers: str) -> None:
    dtype, _, precision = numbers.partition(" ")
    plan, facts = make_gemm_plan(case.contraction(dtype, precision=precision or "ieee")), device_facts().planning
    found = [s for asked in ORDERS for s in islice(schedules(plan, asked, facts.arch), 2)]
    assert found
    plain = (s for s in candidates(plan, facts.arch, facts) if s.packing is None and not any(
        asked(plan, s, t) for asked in ORDERS for t in (A, B) if s.kind in ("simt", "mma.sync")))  # fmt: skip
    ready = [next(plain), *found]
    bench = Bench(cupy, plan, facts.l2_bytes)
    runs = [load_executable(plan, compile_schedule(plan, s, facts=facts)) for s in ready]
    assert bench.agreeing(runs) == [*range(len(runs))]
