"""Staged tiles of D on the GPU: every way of writing them, chunks with rows to spare, blocks of eight, alpha."""

from __future__ import annotations

from functools import cache

import pytest

from gett.hw.archs import arch_facts
from gett.runtime.device import require_cupy
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import DENSE, Case
from tests.gpu.support import Problem, gemm_plan, needs_hopper, run_case, schedules

CASES = (
    Case("turned-slabs", "cabk,kj->cjba", {"c": 5, "a": 96, "b": 7, "k": 96, "j": 24}),
    Case("blocks", "akbc,jk->cjba", {"c": 96, "a": 64, "b": 3, "k": 40, "j": 24}),
    Case("blocks-ragged", "akbc,jk->cjba", {"c": 40, "a": 48, "b": 3, "k": 56, "j": 24}),
    Case("spare-rows", "cabkd,kj->dcjba", {"c": 3, "a": 48, "b": 5, "k": 36, "d": 48, "j": 24}),
    Case("columns", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 4, "i": 24, "c": 5, "b": 12, "k": 6}),
    Case("rows-cut", "bmji,cakm->kjicba", {"b": 20, "m": 24, "j": 4, "i": 24, "c": 5, "a": 24, "k": 3}),
    Case("rows", "ap,srqp->srqa", {"a": 96, "p": 96, "s": 4, "r": 9, "q": 84}),
)


@cache
def found(case: Case) -> list[Schedule]:
    """Schedules of a case that store boxes, one of each way."""
    picked: dict[object, Schedule] = {}
    for s in sm90_candidates(gemm_plan(Problem(case, "float16")), arch_facts("sm_90a"), 12):
        if s.roles is not None and s.roles.d is not None:
            stage = s.roles.stage
            key = (stage.put, stage.chunk, stage.span, s.roles.a.run, s.roles.b.run, s.roles.m_blocks, s.roles.cluster)
            picked.setdefault(key, s)
    return list(picked.values())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_staged_tiles_arrive_in_d(case: Case) -> None:
    cp = require_cupy()
    needs_hopper()
    assert found(case)
    for schedule in found(case):
        run_case(cp, Problem(case, "float16"), schedule)
        run_case(cp, Problem(case, "float16"), schedule, alpha=2)


RUNS = (
    Case("runs-whole", "ap,sqp->sqa", {"a": 95, "p": 47, "s": 5, "q": 83}),
    Case("runs-turned", "cabk,kj->cjba", {"c": 3, "a": 95, "b": 7, "k": 33, "j": 23}),
    Case("runs-ragged", "ik,kj->ij", {"i": 137, "j": 333, "k": 43}),
    Case("runs-batched", "lik,lkj->lij", {"l": 3, "i": 65, "j": 131, "k": 37}),
)


@pytest.mark.parametrize("case", RUNS, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("with_c", [False, True])
def test_runs_that_start_anywhere(case: Case, dtype: str, with_c: bool) -> None:
    cp = require_cupy()
    problem = Problem(case, dtype, "ieee", DENSE if with_c else None)
    found = schedules(problem, 4)
    assert any(s.vector_d * (1 if dtype == "int8" else 2) <= 4 for s in found)
    for schedule in found:
        run_case(cp, problem, schedule, **({"alpha": 2, "beta": 3} if with_c else {}))
