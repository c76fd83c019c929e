"""Misaligned operands whose units are crossed, and D that leaves row by row: every shape, exactly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gett.hw.archs import arch_facts
from gett.schedule.gather import gather_candidates
from gett.schedule.records import Schedule
from tests import odd
from tests.cases import DENSE, Case, Layout
from tests.gpu.support import NANS, Problem, check_nans_stay, compiles_well, gemm_plan, needs_hopper, run_case

TURNED = (
    *odd.TURNED,
    Case("turned-many", "lnim,kmjn->lkji", {"i": 71, "j": 41, "k": 29, "l": 27, "m": 41, "n": 55}),
)
ROWS = (
    *odd.ROWS,
    Case("rows-gaps", "ik,kj->ij", {"i": 131, "j": 211, "k": 99}, d=Layout(steps=(2, 1), offset=3)),
)


def ways(problem: Problem) -> list[Schedule]:
    """A schedule of each shape of the k-tile, length of rows, roles and depth of the pipeline."""
    needs_hopper()
    found: dict[tuple[object, ...], Schedule] = {}
    for s in gather_candidates(gemm_plan(problem), arch_facts("sm_90a"), 60):
        r = s.roles
        assert r is not None
        assert r.gather_a is not None
        key = (r.gather_a.wide, r.gather_a.run if r.gather_a.wide else 0, r.rows, s.exchanged, s.num_stages == 1)
        found.setdefault((*key, s.split_k > 1, r.ping_pong), s)
    return list(found.values())[:10]


@pytest.mark.parametrize("case", [*TURNED, *ROWS], ids=repr)
def test_every_way_is_exact(cupy: Any, case: Case) -> None:
    problem, added = Problem(case, "float16"), Problem(case, "float16", "ieee", DENSE)
    jobs = [*((problem, s) for s in ways(problem)), *((added, s) for s in ways(added)[:2])]
    assert any(s.roles.gather_a.wide for _, s in jobs if s.roles and s.roles.gather_a) == (case in TURNED)
    assert case in TURNED or {bool(s.roles.rows) for _, s in jobs if s.roles} == {True, False}
    with ThreadPoolExecutor() as pool:
        good = [
            job for job, compiles in zip(jobs, pool.map(lambda j: compiles_well(*j), jobs), strict=True) if compiles
        ]
    assert len(good) >= len(jobs) - 3
    for p, s in good:
        run_case(cupy, p, s, **({"alpha": 2, "beta": 3} if p is added else {}))


@pytest.mark.parametrize(("rows", "columns"), NANS, ids=["one", "every-other"])
@pytest.mark.parametrize("case", [TURNED[0], TURNED[2], ROWS[0]], ids=repr)
def test_nans_stay_in_their_rows_and_columns(cupy: Any, case: Case, rows: slice, columns: slice) -> None:
    """They end where others' pieces and chunks begin; paddings, which read a tile's first piece, do not show."""
    problem = Problem(case, "float16")
    check_nans_stay(cupy, problem, [s for s in ways(problem)[:6] if compiles_well(problem, s)], rows, columns)
