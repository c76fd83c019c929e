"""C through tensor maps on the GPU: every way of writing D, every kind of kernel around it, exact; D itself as C."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett
from gett.ir.gemm import make_gemm_plan
from gett.runtime.executable import build_executable
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.added import CASES, VECTORS, added
from tests.cases import ALIGNED, DENSE, Case, Layout, to_host
from tests.clusters import can_share, clustered
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, run_case, schedules

LARGE = Case("large", "mk,kn->mn", {"m": 1960, "k": 264, "n": 2072})
IDS = [case.name for case, _ in CASES]


def found(case: Case, layout: Layout = DENSE) -> tuple[Problem, list[Schedule]]:
    """The case as a problem, and its schedules for few multiprocessors: blocks make many tiles in one buffer."""
    needs_hopper()
    problem = Problem(case, "float16", c=layout)
    return problem, added(gemm_plan(problem), device_facts().planning)


def by_map(problem: Problem) -> list[Schedule]:
    """Schedules for this GPU whose C comes by tensor map."""
    needs_hopper()
    every = sm90_candidates(gemm_plan(problem), device_facts().planning)
    return [s for s in every if s.roles is not None and s.roles.c is not None]


@pytest.mark.parametrize(("case", "layout"), CASES, ids=IDS)
def test_c_is_added_where_d_is_staged(cupy: Any, case: Case, layout: Layout) -> None:
    problem, every = found(case, layout)
    assert every
    for schedule in every:
        run_case(cupy, problem, schedule, alpha=2, beta=3)


@pytest.mark.parametrize(("case", "layout"), CASES, ids=IDS)
def test_factors_of_one_and_none(cupy: Any, case: Case, layout: Layout) -> None:
    problem, every = found(case, layout)
    for alpha, beta in ((1, 1), (0, 1), (-1, -2), (2, 0)):
        run_case(cupy, problem, every[0], alpha=alpha, beta=beta)


@pytest.mark.parametrize(("case", "layout"), CASES, ids=IDS)
def test_beta_zero_reads_nothing_of_c(cupy: Any, case: Case, layout: Layout) -> None:
    problem, every = found(case, layout)
    a, b = case.operands(cupy, "float16")
    wanted = case.reference(*case.operands(np, "float16"), "float16").astype("float16")
    c = case.added(cupy, "float16", layout)
    c[...] = np.nan
    for schedule in every[:3]:
        d, _ = case.result(cupy, "float16")
        build_executable(gemm_plan(problem), None, schedule)(a, b, c, d, 1, 0)
        np.testing.assert_array_equal(to_host(d), wanted)


@pytest.mark.parametrize("case", [case for case, layout in CASES if layout == DENSE], ids=lambda c: c.name)
def test_d_itself_may_be_c(cupy: Any, case: Case) -> None:
    problem, every = found(case)
    for schedule in every[:6]:
        run_case(cupy, problem, schedule, alpha=2, beta=3, in_place=True)


@pytest.mark.parametrize(("case", "layout"), CASES, ids=IDS)
def test_blocks_of_a_cluster_bring_their_own(cupy: Any, case: Case, layout: Layout) -> None:
    problem, every = found(case, layout)
    alike = [s for s in every if s.roles is not None and can_share(s.roles) and not s.roles.line]
    for schedule, shape in itertools.product(alike[:3], ((2, 1), (1, 2))):
        run_case(cupy, problem, clustered(replace(schedule, blocks=8), shape), alpha=2, beta=3)


@pytest.mark.parametrize(
    ("layout", "in_place"), [(DENSE, False), (DENSE, True), (Layout((), (2, 1)), False)], ids=["as-d", "d", "padded"]
)
def test_many_tiles_on_all_multiprocessors(cupy: Any, layout: Layout, in_place: bool) -> None:
    problem = Problem(LARGE, "float16", c=layout)
    every = by_map(problem)
    assert {s.roles.ping_pong for s in every if s.roles is not None} == {True, False}
    for schedule in every:
        run_case(cupy, problem, schedule, alpha=1, beta=-2, in_place=in_place)


@pytest.mark.parametrize(("case", "layout"), VECTORS, ids=lambda x: str(x))
def test_c_that_no_map_can_bring_is_added_as_ever(cupy: Any, case: Case, layout: Layout) -> None:
    needs_hopper()
    problem = Problem(case, "float16", c=layout)
    for schedule in schedules(problem, 3):
        assert schedule.roles is None or schedule.roles.c is None
        run_case(cupy, problem, schedule, alpha=2, beta=3)


def test_a_call_again_finds_another_c(cupy: Any) -> None:
    """The map is pointed elsewhere at each call."""
    problem, every = found(CASES[0][0])
    case = problem.case
    run = build_executable(gemm_plan(problem), None, every[0])
    a, b = case.operands(cupy, "float16")
    exact = case.reference(*case.operands(np, "float16"), "float16")
    for value in (1, 5, -3):
        d, _ = case.result(cupy, "float16")
        run(a, b, cupy.full(d.shape, value, "float16"), d, 1, 2)
        np.testing.assert_array_equal(to_host(d), (exact + 2 * value).astype("float16"))


def test_results_are_accumulated_in_place_through_the_public_function(cupy: Any) -> None:
    needs_hopper()
    a, b = LARGE.operands(cupy, "float16")
    c = LARGE.added(cupy, "float16")
    wanted = LARGE.reference(*LARGE.operands(np, "float16"), "float16") + to_host(c).astype("float64")
    assert gett.contract(LARGE.subscripts, a, b, c, beta=1, out=c) is c
    np.testing.assert_array_equal(to_host(c), wanted.astype("float16"))
    assert "by tensor map to where D is staged" in str(gett.plan(LARGE.subscripts, a, b, c=c, out=c))


@pytest.mark.parametrize(("case", "layout"), CASES, ids=IDS)
def test_bfloat16(case: Case, layout: Layout) -> None:
    """NumPy has no such type, so the operands are PyTorch's."""
    torch = pytest.importorskip("torch")
    needs_hopper()
    plan = make_gemm_plan(case.contraction("bfloat16", with_c=layout, address=ALIGNED))
    every = added(plan, device_facts().planning)
    assert every
    host = case.operands(np, "float32")
    a, b = (torch.from_numpy(np.ascontiguousarray(x)).to("cuda", torch.bfloat16) for x in host)
    shape = case.shape(case.labels[2])
    strides, start, size = layout.place(shape)
    c = torch.randint(-2, 3, (size,), device="cuda").to(torch.bfloat16).as_strided(layout.shape(shape), strides, start)
    exact = 2.0 * case.reference(*host, "float32") + 3.0 * c.float().cpu().numpy()
    wanted = torch.from_numpy(np.ascontiguousarray(exact, np.float32)).to(torch.bfloat16)
    for schedule in every[:6]:
        d = torch.full(shape, float("nan"), dtype=torch.bfloat16, device="cuda")
        run = build_executable(plan, None, schedule)
        stream = torch.cuda.current_stream().cuda_stream
        run.run_at(a.data_ptr(), b.data_ptr(), c.data_ptr(), d.data_ptr(), stream, 0, 2, 3)
        assert torch.equal(d.cpu(), wanted)
