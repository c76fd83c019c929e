"""Operands that stay in shared memory, on the GPU: exact results from blocks of many tiles, alone and in clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cases import DENSE, Case
from tests.clusters import clustered
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, run_case
from tests.resident import CASES, LINES, ONE_LINES, lined, one_lined, resident


def problem(case: Case, dtype: str = "float16") -> Problem:
    needs_hopper()
    return Problem(case, dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_tile_meets_the_operand_that_stays(cupy: Any, case: Case) -> None:
    found = resident(gemm_plan(problem(case)), device_facts().planning)
    assert found
    for schedule in found:
        run_case(cupy, problem(case), schedule)
        run_case(cupy, problem(case), schedule, alpha=2)


@pytest.mark.parametrize("case", CASES[:3], ids=lambda c: c.name)
def test_blocks_of_a_cluster_keep_their_own(cupy: Any, case: Case) -> None:
    for schedule in resident(gemm_plan(problem(case)), device_facts().planning)[:3]:
        for shape in ((2, 1), (1, 2)):
            run_case(cupy, problem(case), clustered(schedule, shape))


def test_with_an_added_operand(cupy: Any) -> None:
    added = Problem(problem(CASES[0]).case, "float16", c=DENSE)
    found = resident(gemm_plan(added), device_facts().planning)
    assert found
    for schedule in found:
        run_case(cupy, added, schedule, alpha=2, beta=3)


@pytest.mark.parametrize("case", LINES, ids=lambda c: c.name)
def test_rows_of_a_line_stay_for_its_tiles(cupy: Any, case: Case) -> None:
    found = lined(gemm_plan(problem(case)), device_facts().planning)
    assert found
    for schedule in found[:8]:
        run_case(cupy, problem(case), schedule)
        run_case(cupy, problem(case), schedule, alpha=2)
        run_case(cupy, problem(case), replace(schedule, blocks=7))


def test_lines_with_an_added_operand(cupy: Any) -> None:
    added = Problem(problem(LINES[2]).case, "float16", c=DENSE)
    found = lined(gemm_plan(added), device_facts().planning)
    assert found
    for schedule in found[:4]:
        run_case(cupy, added, schedule, alpha=2, beta=3)


@pytest.mark.parametrize("case", ONE_LINES, ids=lambda c: c.name)
def test_blocks_keep_to_one_line(cupy: Any, case: Case) -> None:
    found = one_lined(gemm_plan(problem(case)), device_facts().planning)
    assert found
    for schedule in found[:8]:
        run_case(cupy, problem(case), schedule)
        run_case(cupy, problem(case), schedule, alpha=2)
        run_case(cupy, problem(case), replace(schedule, blocks=7))  # some blocks have no line


def test_one_line_with_an_added_operand(cupy: Any) -> None:
    added = Problem(problem(ONE_LINES[0]).case, "float16", c=DENSE)
    found = one_lined(gemm_plan(added), device_facts().planning)
    assert found
    for schedule in found[:4]:
        run_case(cupy, added, schedule, alpha=2, beta=3)
