"""float32 on TF32 by wgmma on the GPU: operands are rounded to the nearest, errors are within two roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from gett.schedule.spec.schedule import Schedule
from tests.cases import Case, to_host
from tests.gpu.support import Problem, gemm_plan, needs_hopper, schedules

EXTENTS = {"m": 264, "n": 200, "k": 200}
CASES = tuple(Case(name, name, EXTENTS) for name in ("mk,nk->mn", "mk,kn->mn", "km,nk->nm", "km,kn->mn"))


def wgmma_schedules(case: Case) -> list[Schedule]:
    needs_hopper()
    found = [s for s in schedules(Problem(case, "float32", "tf32"), 60) if s.kind.startswith("wgmma")]
    assert found
    return found[:4]


def run(cp: Any, case: Case, schedule: Schedule, a: Any, b: Any) -> Any:
    plan = gemm_plan(Problem(case, "float32", "tf32"))
    d = cp.full([case.extents[x] for x in case.labels[2]], np.nan, "float32")
    load_executable(plan, compile_schedule(plan, schedule, allow_spills=True))(cp.asarray(a), cp.asarray(b), None, d)
    return to_host(d)


def rounded(x: Any) -> Any:
    """To 10 bits behind the point, to the nearest, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(np.float32)


def awkward(shape: tuple[int, ...]) -> Any:
    """Numbers just below, at and above the middle between two that TF32 has; of all signs and many exponents."""
    rng = np.random.default_rng(3)
    low = np.array([0, 1, 0xFFE, 0xFFF, 0x1000, 0x1001, 0x1002, 0x1FFF], np.uint32)
    bits = rng.integers(0, 1 << 10, shape).astype(np.uint32) << np.uint32(13) | rng.choice(low, shape)
    exponent = rng.integers(100, 150, shape).astype(np.uint32) << np.uint32(23)
    sign = rng.integers(0, 2, shape).astype(np.uint32) << np.uint32(31)
    return (sign | exponent | bits).view(np.float32)


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("where", ["a", "b"])
def test_operands_are_rounded_to_the_nearest(cupy: Any, case: Case, where: str) -> None:
    """Each result is one element of an operand, times one."""
    shapes = [case.shape(x) for x in case.labels[:2]]
    at, free = (0, "m") if where == "a" else (1, "n")
    other = "n" if where == "a" else "m"
    operands = [np.zeros(shapes[0], np.float32), np.zeros(shapes[1], np.float32)]
    operands[at] = x = awkward(shapes[at])
    count = min(EXTENTS[other], EXTENTS["k"])
    ones = np.zeros((EXTENTS[other], EXTENTS["k"]), np.float32)
    ones[np.arange(count), np.arange(count)] = 1
    operands[1 - at] = ones if case.labels[1 - at][0] == other else np.ascontiguousarray(ones.T)
    wanted = rounded(x if case.labels[at][0] == free else np.ascontiguousarray(x.T))[:, :count]
    assert (wanted != (x if case.labels[at][0] == free else x.T)[:, :count]).mean() > 0.5
    for s in wgmma_schedules(case):
        found = run(cupy, case, s, *operands)
        found = found if case.labels[2][0] == free else found.T
        np.testing.assert_array_equal(found[:, :count].view(np.uint32) << 1, wanted.view(np.uint32) << 1)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_errors_are_those_of_two_roundings(cupy: Any, case: Case) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(case.shape(x)).astype(np.float32) for x in case.labels[:2])
    for s in wgmma_schedules(case):
        found = run(cupy, case, s, a, b)
        exact = np.einsum(case.subscripts, a.astype(np.float64), b.astype(np.float64))
        size = np.einsum(case.subscripts, abs(a).astype(np.float64), abs(b).astype(np.float64))
        assert (abs(found - exact) <= (2.0**-10 + 2.0**-22 + EXTENTS["k"] * 2.0**-24) * size).all()
        assert (abs(found - exact) > 2.0**-16 * size).any()  # of what is rounded, not of multiply-adds


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_stay_in_their_rows(cupy: Any, case: Case, value: float) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(0.5, 1, case.shape(x)).astype(np.float32) for x in case.labels[:2])
    np.moveaxis(a, case.labels[0].index("m"), 0)[17, 5] = value
    for s in wgmma_schedules(case):
        found = run(cupy, case, s, a, b)
        found = found if case.labels[2][0] == "m" else found.T
        np.testing.assert_array_equal(found[17], np.full(EXTENTS["n"], value, np.float32))
        assert np.isfinite(np.delete(found, 17, 0)).all()
