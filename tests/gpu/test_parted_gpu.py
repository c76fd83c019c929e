"""Tiles of D that are made in parts, on the GPU: exact results from blocks of many tiles, alone and in clusters."""

from __future__ import annotations

from typing import Any

import pytest

from gett.runtime.executable import build_executable
from tests.cases import Case, to_host
from tests.clusters import clustered
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, run_case
from tests.parted import CASES, parted


def problem(case: Case) -> Problem:
    needs_hopper()
    return Problem(case, "float16")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_parts_arrive_in_d(cupy: Any, case: Case) -> None:
    found = parted(gemm_plan(problem(case)), device_facts().planning)
    assert found
    for schedule in found:
        run_case(cupy, problem(case), schedule)
        run_case(cupy, problem(case), schedule, alpha=2)


@pytest.mark.parametrize("case", CASES[:3], ids=lambda c: c.name)
def test_parts_in_clusters(cupy: Any, case: Case) -> None:
    for schedule in parted(gemm_plan(problem(case)), device_facts().planning)[:3]:
        for shape in ((2, 1), (1, 2)):
            run_case(cupy, problem(case), clustered(schedule, shape))


def test_the_same_bits_again(cupy: Any) -> None:
    """A tile's first part must not overwrite a tile that is still being stored."""
    case = CASES[2]
    rng = cupy.random.default_rng(5)
    a, b = (rng.standard_normal(case.shape(x)).astype("float16") for x in case.labels[:2])
    run = build_executable(gemm_plan(problem(case)), None, parted(gemm_plan(problem(case)), device_facts().planning)[0])
    results = set()
    for _ in range(10):
        d, _ = case.result(cupy, "float16")
        run(a, b, None, d)
        results.add(to_host(d).tobytes())
    assert len(results) == 1
