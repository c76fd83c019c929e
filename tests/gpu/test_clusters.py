"""Clusters on the GPU: exact results where blocks share operands, surplus blocks included, and the same bits again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gett.codegen.render import render_kernel
from gett.jit import compile_kernel
from gett.runtime.executable import build_executable
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import DENSE, to_host
from tests.clusters import CASES, SHAPES, clustered, kind
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, run_case

PROBLEMS = [*(Problem(c, "float16") for c in CASES), Problem(CASES[0], "float16", c=DENSE)]


def chosen(problem: Problem) -> list[Schedule]:
    """One candidate of every kind."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in sm90_candidates(gemm_plan(problem), device_facts().planning, 24):
        kinds.setdefault(kind(s), s)
    return list(kinds.values())[:6]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    needs_hopper()
    kernels = [
        render_kernel(gemm_plan(p), clustered(s, shape)) for p in PROBLEMS for s in chosen(p) for shape in SHAPES
    ]
    with ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(compile_kernel, k.source, k.arch) for k in kernels]:
            job.exception()  # the test that needs the kernel shows it


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_shared_operands_give_exact_results(cupy: Any, problem: Problem, shape: tuple[int, int]) -> None:
    found = chosen(problem)
    assert found
    scalars = {"alpha": 2, "beta": 3} if problem.c is not None else {}
    for schedule in found:
        run_case(cupy, problem, clustered(schedule, shape), **scalars)


def test_the_same_bits_again(cupy: Any) -> None:
    problem = PROBLEMS[0]
    case = problem.case
    rng = cupy.random.default_rng(5)
    a, b = (rng.standard_normal(case.shape(x)).astype("float16") for x in case.labels[:2])
    results = set()
    for shape in ((2, 1), (1, 2)):
        run = build_executable(gemm_plan(problem), None, clustered(chosen(problem)[0], shape))
        for _ in range(5):
            d, _ = case.result(cupy, "float16")
            run(a, b, None, d)
            results.add(to_host(d).tobytes())
    assert len(results) == 1
