"""Blocks of one tile, staged where the stages were, on the GPU: exact results, alone and in clusters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.alone import CASES, alone
from tests.cases import Case
from tests.gpu.support import Problem, compiles_well, device_facts, gemm_plan, needs_hopper, run_case


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_tile_replaces_its_stages(cupy: Any, case: Case) -> None:
    needs_hopper()
    problem = Problem(case, "float16")
    found = alone(gemm_plan(problem), device_facts().planning)
    assert found
    for schedule in (s for s in found if compiles_well(problem, s)):
        run_case(cupy, problem, schedule)
        run_case(cupy, problem, schedule, alpha=2)
