"""Staged tiles of D on the GPU: every way of writing them, chunks with rows to spare, blocks of eight, alpha."""

from __future__ import annotations

from functools import cache

import pytest

from gett.runtime.device import require_cupy
from gett.schedule.archs import arch_facts
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import Case
from tests.gpu.support import Problem, device_facts, gemm_plan, run_case

CASES = (
    Case("turned-slabs", "cabk,kj->cjba", {"c": 5, "a": 96, "b": 7, "k": 96, "j": 24}),
    Case("blocks", "akbc,jk->cjba", {"c": 96, "a": 64, "b": 3, "k": 40, "j": 24}),
    Case("blocks-ragged", "akbc,jk->cjba", {"c": 40, "a": 48, "b": 3, "k": 33, "j": 24}),
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
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_staged_tiles_arrive_in_d(case: Case, dtype: str) -> None:
    cp = require_cupy()
    if device_facts().arch != "sm_90a":
        pytest.skip("tensor maps and wgmma are Hopper's")
    assert found(case)
    for schedule in found(case) if dtype == "float16" else found(case)[:1]:
        run_case(cp, Problem(case, dtype), schedule)
        run_case(cp, Problem(case, dtype), schedule, alpha=2)
