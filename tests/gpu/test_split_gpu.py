"""float32 in planes on the GPU: errors beside those of fused multiply-adds, and data that planes cannot hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett
from benchmarks.accuracy import BOUNDS, DATA, UNIT
from gett.hw.tensor_types import PLANES
from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.hopper import kept_operand
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from tests import specs
from tests.by_hand import streamed
from tests.cases import DENSE, Case, to_host
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, schedules
from tests.schedules import spread

CASES = (
    Case("k-k", "mk,nk->mn", {"m": 264, "n": 200, "k": 512}),
    Case("mn-mn", "km,kn->mn", {"m": 264, "n": 200, "k": 512}),
    Case("long", "mk,kn->mn", {"m": 96, "n": 72, "k": 8192}),
    Case("two-leads", "mkl,nlk->mn", {"m": 263, "n": 201, "k": 20, "l": 28}),
)


PRECISIONS = tuple(PLANES)
WORSE = {"bf16x6": 1.5, "fp16x3": 4.0, "bf16x3": math.inf}
"""How much larger the largest error may be than that of multiply-adds: of sparse data these are nearly exact."""


def split_schedules(case: Case, precision: str, c: Any = None) -> list[Schedule]:
    """Those that a search finds; the second has tiles divided by stream-K, where one may."""
    needs_hopper()
    plan = gemm_plan(Problem(case, "float32", precision, c))
    every = candidates(plan, device_facts().arch)
    found = spread((s for s in every if isinstance(s.mainloop, WgmmaSplit)), 40)
    assert found
    divided = [made for s in found if (made := streamed(s, plan)) is not None]
    return [*found[:1], *divided[:1], *found[1:]]


def run(cp: Any, case: Case, precision: str, schedule: Schedule | None, a: Any, b: Any) -> Any:
    """The product by one schedule; by the best one without."""
    problem = Problem(case, "float32", precision)
    plan = gemm_plan(problem)
    chosen = schedule or schedules(problem, 1)[0]
    d = cp.full([case.extents[x] for x in case.labels[2]], np.nan, "float32")
    load_executable(plan, compile_schedule(plan, chosen, allow_spills=True))(cp.asarray(a), cp.asarray(b), None, d)
    return to_host(d)


def operands(case: Case, make: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    shapes = [case.shape(x) for x in case.labels[:2]]
    a, b = (make(rng, (s[0], math.prod(s[1:]))).reshape(s).astype(np.float32) for s in shapes)
    return a, b


def errors(case: Case, a: Any, b: Any, found: Any) -> Any:
    """In units of 2^-24 of the sums of magnitudes."""
    exact = np.einsum(case.subscripts, a.astype(np.float64), b.astype(np.float64))
    size = np.einsum(case.subscripts, abs(a).astype(np.float64), abs(b).astype(np.float64))
    return np.abs(found.astype(np.float64) - exact) / np.where(size > 0, size, 1) / UNIT


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_errors_are_no_larger_than_those_of_multiply_adds(cupy: Any, case: Case, data: str, precision: str) -> None:
    a, b = operands(case, DATA[data])
    plain = errors(case, a, b, run(cupy, case, "ieee", None, a, b)).max()
    for s in split_schedules(case, precision)[:3]:
        found = errors(case, a, b, run(cupy, case, precision, s, a, b))
        assert found.max() <= min(BOUNDS[precision](case.depth, 1), WORSE[precision] * plain), (found.max(), plain)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_numbers_far_below_those_that_they_are_scaled_with_are_multiplied_by_fma(cupy: Any, case: Case) -> None:
    """One column of B, full or of one number, and A and B graded along K: planes would keep ten bits or none."""
    columns, graded = operands(case, DATA["normal"]), operands(case, DATA["normal"])
    np.moveaxis(columns[1], case.labels[1].index("n"), 0)[17] *= np.float32(2.0**-30)
    for x, labels, power in zip(graded, case.labels, (-30, 30), strict=False):
        np.moveaxis(x, labels.index("k"), 0)[1::2] *= np.float32(2.0**power)
    sparse = operands(case, DATA["normal"])  # D's column is one tiny number times a column of A
    column = np.moveaxis(sparse[1], case.labels[1].index("n"), 0)[17]
    column[...] = 0
    column[(3,) * column.ndim] = 2.0**-60
    for a, b in (columns, graded, sparse):
        for s in split_schedules(case, "fp16x3")[:3]:
            found = run(cupy, case, "fp16x3", s, a, b)
            assert errors(case, a, b, found).max() <= BOUNDS["fp16x3"](case.depth, 1)
            again = run(cupy, case, "fp16x3", s, a, b)
            np.testing.assert_array_equal(again.view(np.uint32), found.view(np.uint32))


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_scales_are_those_of_rows_and_columns(cupy: Any, case: Case) -> None:
    """Rows of A of any magnitude, and all of B: nothing is made again, results are as accurate as ever."""
    a, b = operands(case, DATA["normal"])
    rows = np.moveaxis(a, case.labels[0].index("m"), -1)
    rows *= np.exp2(np.arange(rows.shape[-1]) % 100 - 50).astype(np.float32)
    b *= np.float32(2.0**-20)
    for s in split_schedules(case, "fp16x3")[:3]:
        assert errors(case, a, b, run(cupy, case, "fp16x3", s, a, b)).max() <= BOUNDS["fp16x3"](case.depth, 1)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_complex_numbers_are_as_accurate(cupy: Any, precision: str) -> None:
    case = Case("complex", "mk,kn->mn", {"m": 200, "k": 512, "n": 136})
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal((2, *case.shape(x)))).astype(np.float32) for x in case.labels[:2])
    needs_hopper()
    wide_a, wide_b = (cupy.asarray(x[0] + 1j * x[1]).astype("complex64") for x in (a, b))
    plan = gett.plan(case.subscripts, wide_a, wide_b, precision=precision)
    assert "wgmma split" in plan.explain(detail=True)
    found = to_host(plan(wide_a, wide_b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    for part, exact, size in (
        (found.real, a[0] @ b[0] - a[1] @ b[1], abs(a[0]) @ abs(b[0]) + abs(a[1]) @ abs(b[1])),
        (found.imag, a[0] @ b[1] + a[1] @ b[0], abs(a[0]) @ abs(b[1]) + abs(a[1]) @ abs(b[0])),
    ):
        assert (abs(part - exact) <= BOUNDS[precision](case.depth, 2) * UNIT * size).all()


BAD = {
    "infinite": np.inf, "-infinite": -np.inf, "nan": np.nan, "largest": np.finfo(np.float32).max, "tiny": 2.0**-120,
    "subnormal": 2.0**-140,
}  # fmt: skip


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_what_planes_cannot_hold_is_multiplied_by_fma(
    cupy: Any, case: Case, where: str, name: str, precision: str
) -> None:
    """Of one row or column; the other operand is large where the numbers are tiny, so that they count."""
    a, b = operands(case, DATA["normal"])
    bad, other = (a, b) if where == "a" else (b, a)
    other *= np.float32(2.0**100 if name in ("tiny", "subnormal") else 1)
    axis = case.labels[0 if where == "a" else 1].index("m" if where == "a" else "n")
    line = np.moveaxis(bad, axis, 0)[17]
    if name in ("tiny", "subnormal"):
        bad *= np.float32(BAD[name])
    else:
        line[(5,) * line.ndim] = BAD[name]
    with np.errstate(all="ignore"):
        exact = np.einsum(case.subscripts, a.astype(np.float64), b.astype(np.float64))
        size = np.einsum(case.subscripts, abs(a).astype(np.float64), abs(b).astype(np.float64))
        wanted = exact.astype(np.float32)
        for s in split_schedules(case, precision)[:3]:
            found = run(cupy, case, precision, s, a, b)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
            infinite = np.isinf(wanted)
            np.testing.assert_array_equal(found[infinite], wanted[infinite])
            good = np.isfinite(wanted)
            bound = BOUNDS[precision](case.depth, 1) * UNIT * size[good] + 2.0**-149 * case.depth
            assert (abs(found[good].astype(np.float64) - exact[good]) <= bound).all()
            again = run(cupy, case, precision, s, a, b)
            np.testing.assert_array_equal(again.view(np.uint32), found.view(np.uint32))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_tile_that_is_made_again_reads_c_before_it_is_overwritten(cupy: Any, precision: str) -> None:
    case = CASES[0]
    a, b = operands(case, DATA["normal"])
    a[3, 4], c = np.inf, np.random.default_rng(2).standard_normal(case.shape("mn")).astype(np.float32)
    plan = gemm_plan(Problem(case, "float32", precision, DENSE))
    with np.errstate(all="ignore"):
        product = np.einsum(case.subscripts, a.astype(np.float64), b.astype(np.float64))
        size = np.einsum(case.subscripts, abs(a).astype(np.float64), abs(b).astype(np.float64))
        wanted = 2 * product + 3 * c
        bound = 2 * BOUNDS[precision](case.depth, 1) * UNIT * size + 4 * UNIT * abs(wanted)
    for s in split_schedules(case, precision, DENSE)[:4]:
        d = cupy.asarray(c)
        load_executable(plan, compile_schedule(plan, s, allow_spills=True))(
            cupy.asarray(a), cupy.asarray(b), d, d, 2, 3
        )
        found, good = to_host(d), np.isfinite(wanted)
        np.testing.assert_array_equal(found[~good], wanted[~good].astype(np.float32))
        assert (abs(found[good] - wanted[good]) <= bound[good]).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_many_tiles_of_a_block_are_made_again(cupy: Any, precision: str) -> None:
    """More tiles than the guard has bits for."""
    case = Case("many", "bmk,bkn->bmn", {"b": 300, "m": 128, "n": 128, "k": 32})
    plan = gemm_plan(Problem(case, "float32", precision))
    (first, *_) = split_schedules(case, precision)
    scheduler = replace(first.scheduler, blocks=1)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, case.shape(x)).astype(np.float32) for x in case.labels[:2])
    a[::7, 0, 0] = np.inf
    b[:, 0, :] = 1
    d = cupy.zeros(case.shape("bmn"), "float32")
    run = load_executable(plan, compile_schedule(plan, replace(first, scheduler=scheduler)))
    run(cupy.asarray(a), cupy.asarray(b), None, d)
    np.testing.assert_array_equal(to_host(d), a @ b)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_tiles_are_made_again_where_stages_keep_an_operand(cupy: Any, precision: str) -> None:
    """One block makes all tiles, of one k-tile each, stages them in two buffers, and loads B for its first ones."""
    case = Case("kept", "mk,kn->mn", {"m": 5160, "n": 104, "k": 16})
    plan = gemm_plan(Problem(case, "float32", precision))
    needs_hopper()
    of_few = specs.split_schedules(plan, specs.few(device_facts().planning, 2))
    found = [s for s in of_few if s.epilogue.store.buffers == 2 and s.tiling.n.tiles == 1][:4]
    assert found
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, case.shape(x)).astype(np.float32) for x in case.labels[:2])
    a[::900, 0] = np.inf
    b[0, :] = 1
    for few in found:
        s = replace(few, scheduler=replace(few.scheduler, blocks=1))
        assert kept_operand(lower_plan(plan, s.tiling), s) == "b"
        d = cupy.full(case.shape("mn"), np.nan, "float32")
        load_executable(plan, compile_schedule(plan, s))(cupy.asarray(a), cupy.asarray(b), None, d)
        np.testing.assert_array_equal(to_host(d), a @ b)


@pytest.mark.parametrize("precision", [None, "fp16x3"])
def test_the_default_is_planes(cupy: Any, precision: str | None) -> None:
    needs_hopper()
    a, b = (cupy.asarray(np.random.default_rng(i).standard_normal((2048, 2048)).astype("float32")) for i in range(2))
    plan = gett.plan("ij,jk->ik", a, b, precision=precision)
    assert "wgmma split" in plan.explain(detail=True)
    assert "wgmma split" not in gett.plan("ij,jk->ik", a, b, precision="ieee").explain(detail=True)
    exact = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64)
    size = abs(to_host(a)).astype(np.float64) @ abs(to_host(b)).astype(np.float64)
    bound = BOUNDS[precision or "bf16x6"](2048, 1)
    assert (abs(to_host(plan(a, b)) - exact) <= bound * UNIT * size).all()
