"""float64 and complex128 by tensor map on the GPU: errors of IEEE sums, the same bits in each run, infinities and NaN.

Integers, exactly, on kernels of every part: `test_catalogue_gpu.py`, families `dmma` and `dmma_complex`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gett.runtime.build import load_executable
from gett.runtime.compiling import compile_schedule
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.spec.schedule import Schedule
from tests.cases import Case, to_host
from tests.gpu.support import Problem, device_facts, gemm_plan, needs_hopper, schedules
from tests.specs import within_stages

MAJORS = ("mk,nk->mn", "mk,kn->mn", "km,nk->nm", "km,kn->mn")
DTYPES = ("float64", "complex128")
TWO_LEADS = "lmk,nkl->mn"
CASES = (
    *(Case(name, name, {"m": 264, "n": 200, "k": 200}) for name in MAJORS),
    Case(TWO_LEADS, TWO_LEADS, {"m": 264, "n": 200, "k": 20, "l": 10}),
)
LONG = (
    *(Case(name, name, {"m": 2000, "n": 1500, "k": 3000}) for name in MAJORS),
    Case(TWO_LEADS, TWO_LEADS, {"m": 2000, "n": 1500, "k": 100, "l": 30}),
)


def random(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    parts = rng.standard_normal((*shape, np.dtype(dtype).itemsize // 8))
    return parts.view(dtype)[..., 0]


def dmma_schedules(case: Case, dtype: str) -> list[Schedule]:
    """One of each shape."""
    needs_hopper()
    found = [s for s in schedules(Problem(case, dtype), 80) if isinstance(s.mainloop, DmmaTma)]
    assert found
    return list({s.tiling.shape: s for s in found}.values())


def run(cp: Any, case: Case, schedule: Schedule, a: Any, b: Any, times: int = 1) -> list[Any]:
    plan = gemm_plan(Problem(case, a.dtype.name))
    kernel = load_executable(plan, compile_schedule(plan, schedule))
    a, b, found = cp.asarray(a), cp.asarray(b), []
    for _ in range(times):
        d = cp.full([case.extents[x] for x in case.labels[2]], np.nan, a.dtype)
        kernel(a, b, None, d)
        found.append(to_host(d))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_errors_are_those_of_ieee_sums(cupy: Any, case: Case, dtype: str) -> None:
    """Of each part of complex numbers, whose sums have twice as many products."""
    rng = np.random.default_rng(1)
    a, b = (random(rng, case.shape(x), dtype) for x in case.labels[:2])
    exact = np.einsum(case.subscripts, *(x.astype(np.result_type(x, np.longdouble)) for x in (a, b)))
    terms = 200 * exact.itemsize // np.dtype(np.longdouble).itemsize
    for s in dmma_schedules(case, dtype):
        (found,) = run(cupy, case, s, a, b)
        for part, size in parts_of(case, a, b):
            assert (abs(part(found) - part(exact)) <= terms * 2.0**-53 * size).all()


def parts_of(case: Case, a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Each part of the result with the sums of the magnitudes of its products."""

    def sums(x: Any, y: Any) -> Any:
        return np.einsum(case.subscripts, abs(x), abs(y))

    if not np.iscomplexobj(a):
        return [(np.real, sums(a, b))]
    return [
        (np.real, sums(a.real, b.real) + sums(a.imag, b.imag)),
        (np.imag, sums(a.real, b.imag) + sums(a.imag, b.real)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", LONG, ids=repr)
def test_every_run_gives_the_same_bits(cupy: Any, case: Case, dtype: str) -> None:
    """A stage that is filled again before all warps have read it would show here."""
    rng = np.random.default_rng(2)
    a, b = (np.rint(8 * random(rng, case.shape(x), dtype)) for x in case.labels[:2])
    wanted = np.einsum(case.subscripts, a, b, optimize=True)
    for s in dmma_schedules(case, dtype):
        for found in run(cupy, case, s, a, b, 20):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", LONG, ids=repr)
def test_tiles_staged_in_the_stages_are_the_same_in_each_run(cupy: Any, case: Case, dtype: str) -> None:
    """A stage that is filled before the store has read it would show here."""
    needs_hopper()
    rng = np.random.default_rng(3)
    a, b = (np.rint(8 * random(rng, case.shape(x), dtype)) for x in case.labels[:2])
    wanted = np.einsum(case.subscripts, a, b, optimize=True)
    found = within_stages(gemm_plan(Problem(case, dtype)), device_facts().planning)
    assert found
    for s in {s.tiling.shape: s for s in found}.values():
        for d in run(cupy, case, s, a, b, 20):
            np.testing.assert_array_equal(d, wanted)


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_stay_in_their_rows(cupy: Any, case: Case, value: float) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(0.5, 1, case.shape(x)) for x in case.labels[:2])
    np.moveaxis(a, case.labels[0].index("m"), 0)[17, 5] = value
    for s in dmma_schedules(case, "float64"):
        (found,) = run(cupy, case, s, a, b)
        found = found if case.labels[2][0] == "m" else found.T
        np.testing.assert_array_equal(found[17], np.full(case.extents["n"], value))
        assert np.isfinite(np.delete(found, 17, 0)).all()
