"""C through tensor maps on the GPU: factors, D itself as C, other tensors at each call, bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gett
from gett.runtime.build import build_executable
from gett.schedule.spec.epilogue import TmaSource
from tests.by_hand import by_hand
from tests.cases import DENSE, Case, Layout, to_host
from tests.gpu.catalogue import good, kernels, problem_of, run_spec
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, run_case, schedules
from tests.spec_cases import TMA_SOURCE, VECTOR_SOURCE
from tests.specs import FAMILIES, Spec, ss_schedules

LARGE = Case("large", "mk,kn->mn", {"m": 1960, "k": 264, "n": 2072})
IDS = [case.name for case, _ in TMA_SOURCE]


def of(case: Case, layout: Layout, dtype: str = "") -> list[Spec]:
    """The kernels of a case for few multiprocessors: blocks make many tiles in one buffer."""
    found = [spec for spec in kernels("tma_source", dtype) if spec.case == case and spec.c == layout]
    return good(found[:10])


@pytest.mark.parametrize(("case", "layout"), TMA_SOURCE, ids=IDS)
def test_factors_of_one_and_none(cupy: Any, case: Case, layout: Layout) -> None:
    spec = of(case, layout)[0]
    for alpha, beta in ((1, 1), (0, 1), (-1, -2), (2, 0)):
        run_spec(cupy, spec, alpha=alpha, beta=beta)


@pytest.mark.parametrize(("case", "layout"), TMA_SOURCE, ids=IDS)
def test_beta_zero_reads_nothing_of_c(cupy: Any, case: Case, layout: Layout) -> None:
    a, b = case.operands(cupy, "float16")
    wanted = case.reference(*case.operands(np, "float16"), "float16").astype("float16")
    c = case.added(cupy, "float16", layout)
    c[...] = np.nan
    for spec in of(case, layout)[:3]:
        d, _ = case.result(cupy, "float16")
        build_executable(gemm_plan(problem_of(spec)), None, spec.schedule)(a, b, c, d, 1, 0)
        np.testing.assert_array_equal(to_host(d), wanted)


@pytest.mark.parametrize("case", [case for case, layout in TMA_SOURCE if layout == DENSE], ids=repr)
def test_d_itself_may_be_c(cupy: Any, case: Case) -> None:
    for spec in of(case, DENSE):
        run_spec(cupy, spec, in_place=True)


@pytest.mark.parametrize(
    ("layout", "in_place"), [(DENSE, False), (DENSE, True), (Layout((), (2, 1)), False)], ids=["as-d", "d", "padded"]
)
def test_many_tiles_on_all_multiprocessors(cupy: Any, layout: Layout, in_place: bool) -> None:
    needs_hopper()
    problem = Problem(LARGE, "float16", c=layout)
    found = ss_schedules(gemm_plan(problem), device_facts().planning)
    by_map = [s for s in found if isinstance(s.epilogue.source, TmaSource)]
    assert {s.hopper.ping_pong for s in by_map} == {True, False}
    for schedule in by_map:
        run_case(cupy, problem, schedule, alpha=1, beta=-2, in_place=in_place)


@pytest.mark.parametrize(("case", "layout"), VECTOR_SOURCE, ids=lambda x: str(x))
def test_c_that_no_map_can_bring_is_added_from_vectors(cupy: Any, case: Case, layout: Layout) -> None:
    needs_hopper()
    problem = Problem(case, "float16", c=layout)
    for schedule in schedules(problem, 3):
        assert not isinstance(schedule.epilogue.source, TmaSource)
        run_case(cupy, problem, schedule, alpha=2, beta=3)


def test_a_call_again_finds_another_c(cupy: Any) -> None:
    """The map is pointed elsewhere at each call."""
    spec = of(*TMA_SOURCE[0])[0]
    case = spec.case
    run = build_executable(gemm_plan(problem_of(spec)), None, spec.schedule)
    a, b = case.operands(cupy, "float16")
    exact = case.reference(*case.operands(np, "float16"), "float16")
    c_of = case.added(cupy, "float16", TMA_SOURCE[0][1])
    for value in (1, 5, -3):
        d, _ = case.result(cupy, "float16")
        c = c_of.copy(order="K")
        c[...] = value
        run(a, b, c, d, 1, 2)
        np.testing.assert_array_equal(to_host(d), (exact + 2 * value).astype("float16"))


def test_results_are_accumulated_in_place_through_the_public_function(cupy: Any) -> None:
    needs_hopper()
    a, b = LARGE.operands(cupy, "float16")
    c = LARGE.added(cupy, "float16")
    wanted = LARGE.reference(*LARGE.operands(np, "float16"), "float16") + to_host(c).astype("float64")
    assert gett.contract(LARGE.subscripts, a, b, c, beta=1, out=c) is c
    np.testing.assert_array_equal(to_host(c), wanted.astype("float16"))
    assert "by tensor map to where D is staged" in gett.plan(LARGE.subscripts, a, b, c=c, out=c).explain(detail=True)


BFLOAT16 = [("tma_source", case, c) for case, c in TMA_SOURCE]
BFLOAT16 += [(name, case, c) for name in ("wgmma_rs_source", "gather_source") for case, c in FAMILIES[name].cases]


@pytest.mark.parametrize(("family", "case", "layout"), BFLOAT16, ids=str)
def test_bfloat16(family: str, case: Case, layout: Layout) -> None:
    """NumPy has no such type, so the operands are PyTorch's; tiles that stream-K divides are among the kernels."""
    torch = pytest.importorskip("torch")
    found = [spec for spec in kernels(family, "bfloat16") if spec.case == case and spec.c == layout]
    host = case.operands(np, "float32")
    a, b = (torch.from_numpy(np.ascontiguousarray(x)).to("cuda", torch.bfloat16) for x in host)
    shape = case.shape(case.labels[2])
    strides, start, size = layout.place(shape)
    c = torch.randint(-2, 3, (size,), device="cuda").to(torch.bfloat16).as_strided(layout.shape(shape), strides, start)
    exact = 2.0 * case.reference(*host, "float32") + 3.0 * c.float().cpu().numpy()
    wanted = torch.from_numpy(np.ascontiguousarray(exact, np.float32)).to(torch.bfloat16)
    divided = [spec for spec in by_hand(found) if spec.schedule.scheduler.stream_k]
    for spec in good([*found[:10], *divided]):
        d = torch.full(shape, float("nan"), dtype=torch.bfloat16, device="cuda")
        run = build_executable(spec.plan, None, spec.schedule)
        stream = torch.cuda.current_stream().cuda_stream
        workspace = torch.empty(run.workspace_bytes, dtype=torch.uint8, device="cuda")
        run.run_at(a.data_ptr(), b.data_ptr(), c.data_ptr(), d.data_ptr(), stream, workspace.data_ptr(), 2, 3)
        assert torch.equal(d.cpu(), wanted)
