"""Crossed units on the GPU: every way of the Hopper kernel, exactly, whichever the model would take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from gett.hw.archs import arch_facts
from gett.runtime.device import device_facts
from gett.schedule.crossed import crossed_candidates
from gett.schedule.records import Schedule
from tests.cases import DENSE, Case
from tests.gpu.support import Problem, compiles_well, gemm_plan, needs_hopper, run_case

CASES = (
    # One long sum, split; ragged k1 and k2 in tiles that hang over; batches; several tiles a block, many k-tiles.
    Case("crossed-long", "lik,jkl->ji", {"i": 120, "j": 96, "k": 64, "l": 384}),
    Case("crossed-wider", "lik,jkl->ji", {"i": 200, "j": 96, "k": 64, "l": 384}),
    Case("crossed-ragged", "lnim,kmjn->lkji", {"i": 24, "j": 10, "k": 9, "l": 7, "m": 40, "n": 56}),
    Case("crossed-batched", "bmkl,bnlk->bmn", {"b": 3, "m": 72, "n": 48, "k": 32, "l": 32}),
    Case("crossed-gaps", "lnim,kmjn->lkji", {"i": 64, "j": 42, "k": 12, "l": 9, "m": 40, "n": 32}),
    Case("crossed-many", "lnim,kmjn->lkji", {"i": 96, "j": 36, "k": 40, "l": 48, "m": 48, "n": 64}),
)


def ways(problem: Problem) -> list[Schedule]:
    """The first schedule of each shape of the k-tile, width, way of storing and assignment of roles."""
    found: dict[tuple[object, ...], Schedule] = {}
    for s in crossed_candidates(gemm_plan(problem), arch_facts(device_facts().arch), 800):
        assert s.roles is not None
        way = (s.block[2], s.roles.a.map.span, s.block[1], s.box_m.size, s.split_k > 1, s.roles.d is None, s.exchanged)
        found.setdefault((*way, kind(s), s.roles.cluster), s)
    return list(found.values())


def kind(s: Schedule) -> bool:
    """Whether each warpgroup has its own rows of A."""
    assert s.roles is not None
    assert s.roles.crossed is not None
    return s.roles.crossed.apart


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_way_is_exact(cupy: Any, case: Case) -> None:
    needs_hopper()
    problem, added = Problem(case, "float16"), Problem(case, "float16", "ieee", DENSE)
    schedules = ways(problem)
    if case.name in ("crossed-wider", "crossed-many"):
        sharing = {s.roles.cluster for s in schedules if s.roles is not None}
        assert sharing == {(1, 1), (2, 1), *([(1, 2)] if case.name == "crossed-wider" else [])}
    assert len({s.roles.a.map.span for s in schedules if s.roles is not None}) == 2
    if case.name in ("crossed-wider", "crossed-many"):  # tiles of 128 rows
        assert {kind(s) for s in schedules} == {True, False}
    if case.name == "crossed-gaps":  # shares of 63 rows
        assert any(s.box_m.size == 126 and kind(s) for s in schedules)
    kinds = sorted({(kind(s), s.roles.cluster) for s in schedules if s.roles is not None})
    tried = [s for k in kinds for s in [x for x in schedules if (kind(x), x.roles.cluster) == k][:8]]
    jobs = [*((problem, s) for s in tried), *((added, s) for s in ways(added)[:3])]
    with ThreadPoolExecutor() as pool:
        well = list(pool.map(lambda job: compiles_well(*job), jobs))
    assert sum(well) >= len(jobs) - 3
    jobs = [job for job, good in zip(jobs, well, strict=True) if good]
    for p, s in jobs:
        run_case(cupy, p, s, **({"alpha": 2, "beta": 3} if p is added else {}))


@pytest.mark.parametrize("split", [5, 9, 11, 15, 23, 47])
def test_what_is_left_over_is_divided(cupy: Any, split: int) -> None:
    """Forty-eight k-tiles: the rest goes to slices whole, in halves or in quarters."""
    needs_hopper()
    problem = Problem(CASES[1], "float16")
    shared = [s for s in ways(problem) if s.roles is not None and s.roles.cluster == (1, 2)]
    assert shared
    assert shared[0].box_k.tiles == 48
    for s in shared[:3]:
        workspace = s.workspace_bytes // s.split_k * split
        run_case(cupy, problem, replace(s, split_k=split, workspace_bytes=workspace))
