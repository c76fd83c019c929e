"""Blocks that trade halves of their tiles, on the GPU: exact results, also at the edges of D."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import Case
from tests.gpu.support import Problem, compiles_well, device_facts, gemm_plan, needs_hopper, run_case
from tests.traded import CASES, traded


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_halves_are_traded(cupy: Any, case: Case) -> None:
    needs_hopper()
    problem = Problem(case, "float16")
    found = [s for s in traded(gemm_plan(problem), device_facts().planning) if compiles_well(problem, s)]
    assert found
    for schedule in found:
        run_case(cupy, problem, schedule)
        run_case(cupy, problem, schedule, alpha=2)
