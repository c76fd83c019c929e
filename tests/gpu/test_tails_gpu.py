"""K tails on the GPU: exact whatever was in shared memory before, and what is no number stays in its own results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel
from gett.runtime.executable import build_executable
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import ALIGNED, DENSE, Case, to_host
from tests.clusters import SHAPES, clustered
from tests.gpu.support import Problem, describe, device_facts, gemm_plan, needs_hopper, run_case
from tests.tails import CASES, kind, tailed

PROBLEMS = [Problem(c, "float16") for c in CASES]
PROBLEMS += [Problem(CASES[i], "float16", c=DENSE) for i in (0, 5)]
DIRTY = Case("dirty", "mk,kn->mn", {"m": 8192, "n": 2048, "k": 256})


def chosen(problem: Problem) -> list[Schedule]:
    """One schedule of every kind."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in tailed(gemm_plan(problem), device_facts().planning):
        kinds.setdefault(kind(s), s)
    return list(kinds.values())[:6]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    needs_hopper()
    jobs = [(p, s) for p in PROBLEMS for s in chosen(p)]
    jobs += [(p, clustered(s, shape)) for p in PROBLEMS for s in chosen(p)[:1] for shape in SHAPES]
    with ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(lambda j: compile_kernel(render_kernel(gemm_plan(j[0]), j[1]).source, "sm_90a"), j)
                    for j in jobs]:  # fmt: skip
            job.exception()  # the test that needs the kernel shows it


@pytest.fixture
def dirty(cupy: Any) -> Any:
    """Fills the shared memory of all multiprocessors with what is no number; kernels do not clean up."""
    plan = make_gemm_plan(DIRTY.contraction("float16", address=ALIGNED))
    run = build_executable(plan, None, sm90_candidates(plan, device_facts().planning)[0])
    a, b = (cupy.full(DIRTY.shape(x), np.nan, "float16") for x in DIRTY.labels[:2])
    d = cupy.empty(DIRTY.shape(DIRTY.labels[2]), "float16")
    return lambda: run(a, b, None, d)


@pytest.mark.parametrize("problem", PROBLEMS, ids=repr)
def test_tails_are_exact(cupy: Any, dirty: Any, problem: Problem) -> None:
    found = chosen(problem)
    assert found
    scalars = {"alpha": 2, "beta": 3} if problem.c is not None else {}
    for schedule in (*found, *(clustered(found[0], shape) for shape in SHAPES)):
        dirty()
        run_case(cupy, problem, schedule, **scalars)


@pytest.mark.parametrize("problem", PROBLEMS[: len(CASES)], ids=repr)
def test_what_is_no_number_stays_where_it_belongs(cupy: Any, dirty: Any, problem: Problem) -> None:
    """An infinity in A reaches the results that depend on it and no others, whatever lies beside it in a stage."""
    case = problem.case
    for schedule in chosen(problem):
        a, b = case.operands(np, "float16")
        a.reshape(-1)[[0, a.size // 3, a.size - 1]] = np.inf
        b = np.abs(b) + np.float16(1)  # no 0 * Inf of its own
        hit = np.isinf(a).astype(np.float64)
        wanted = np.einsum(case.subscripts, hit, np.ones(b.shape), optimize=True) > 0
        calm = np.einsum(
            case.subscripts, np.where(hit > 0, 0, a).astype(np.float64), b.astype(np.float64), optimize=True
        )
        d, _ = case.result(cupy, "float16")
        dirty()
        build_executable(gemm_plan(problem), None, schedule)(cupy.asarray(a), cupy.asarray(b), None, d)
        got = to_host(d)
        assert np.isposinf(got[wanted]).all(), describe(schedule)
        np.testing.assert_array_equal(got[~wanted], calm[~wanted].astype("float16"), err_msg=describe(schedule))
