"""The general door of the Hopper family on the GPU: exact with every candidate, and nothing leaks out of paddings."""

from __future__ import annotations

from typing import Any

import pytest

from gett.hw.archs import arch_facts
from gett.schedule.gather import gather_candidates
from gett.schedule.records import Schedule
from tests.cases import DENSE, Case
from tests.gpu.support import NANS, Problem, check_nans_stay, gemm_plan, needs_hopper, run_case

CASES = (
    Case("k-mn", "ik,kj->ij", {"i": 137, "j": 241, "k": 143}),
    Case("mn-mn", "ki,kj->ij", {"i": 237, "j": 141, "k": 99}),
    Case("k-k", "ik,jk->ij", {"i": 301, "j": 77, "k": 299}),
    Case("short-unit", "kil,jkl->ij", {"i": 83, "j": 93, "k": 17, "l": 11}),
    Case("one-aligned", "ik,kj->ij", {"i": 256, "j": 191, "k": 128}),
    Case("split", "lki,kjl->ji", {"i": 45, "j": 91, "k": 81, "l": 97}),
    Case("two-ragged", "imk,jmk->ij", {"i": 101, "j": 105, "k": 23, "m": 15}),
    Case("batched", "lik,lkj->lij", {"l": 3, "i": 131, "j": 67, "k": 45}),
    Case("few-columns", "ik,jk->ij", {"i": 333, "j": 23, "k": 199}),
    Case("many-modes", "aibk,bkcj->caji", {"a": 5, "i": 23, "b": 3, "k": 19, "c": 7, "j": 11}),
    # D leaves by tensor maps, which end where its rows and columns do.
    Case("boxed", "ik,jk->ij", {"i": 200, "j": 136, "k": 99}),
    Case("boxed-together", "aik,bjk->ijab", {"i": 23, "j": 21, "a": 24, "b": 40, "k": 99}),
)


def schedules(problem: Problem) -> list[Schedule]:
    needs_hopper()
    found = gather_candidates(gemm_plan(problem), arch_facts("sm_90a"), 24)
    assert found, f"nothing for {problem}"
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in found:
        assert s.roles is not None
        kinds.setdefault((s.block, s.exchanged, s.split_k > 1, s.roles.ping_pong), s)
    return list(kinds.values())[:8]


@pytest.mark.parametrize("dtype", ["float16"])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_kind_of_candidate_is_exact(cupy: Any, case: Case, dtype: str) -> None:
    problem = Problem(case, dtype)
    for s in schedules(problem):
        run_case(cupy, problem, s)


@pytest.mark.parametrize("case", [CASES[0], CASES[5], CASES[7]], ids=repr)
def test_c_is_added(cupy: Any, case: Case) -> None:
    problem = Problem(case, "float16", "ieee", DENSE)
    for s in schedules(problem)[:2]:
        run_case(cupy, problem, s, alpha=2, beta=3)


@pytest.mark.parametrize(("rows", "columns"), NANS, ids=["one", "every-other"])
@pytest.mark.parametrize("case", [*CASES[:3], *CASES[-2:]], ids=repr)
def test_nans_stay_in_their_rows_and_columns(cupy: Any, case: Case, rows: slice, columns: slice) -> None:
    """They end where others' pieces and chunks begin; paddings, which read a tile's first piece, do not show."""
    problem = Problem(case, "float16")
    check_nans_stay(cupy, problem, schedules(problem)[:3], rows, columns)
