"""Random contractions on the GPU against exact references: hypothesis draws subscripts, dtypes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gett
from tests.cases import to_host
from tests.cpu.strategies import Case, contractions, values

QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
AWKWARD_EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 24)


def to_device(cp: Any, array: np.ndarray[Any, Any]) -> Any:
    """A CuPy array with the same elements in the same strides; misaligned ones start as far from alignment."""
    size = array.dtype.itemsize
    ends = [(e - 1) * s for e, s in zip(array.shape, array.strides, strict=True)]
    low, high = sum(min(0, x) for x in ends), sum(max(0, x) for x in ends) + size
    if 0 in array.shape:
        return cp.asarray(array)
    assert all(s % size == 0 for s in array.strides)
    # GPUs cannot read across the item size, so an address keeps only its distance in whole elements.
    first = -low // size + array.__array_interface__["data"][0] // size % 16
    buffer = cp.zeros(first + high // size, array.dtype)
    strides = tuple(s // size for s in array.strides)
    view = cp.lib.stride_tricks.as_strided(buffer[first:], array.shape, array.strides)
    unique = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
    view[unique] = cp.asarray(np.ascontiguousarray(array[unique]))
    return view


def check(cp: Any, case: Case) -> None:
    got = gett.einsum(case.subscripts, *(to_device(cp, x) for x in case.operands))
    wanted = case.reference()
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(to_host(got), wanted)


def test_random_contractions_of_two(cupy: Any) -> None:
    @QUICK
    @given(case=contractions(extents=AWKWARD_EXTENTS, max_volume=1 << 18))
    def run(case: Case) -> None:
        check(cupy, case)

    run()


def test_random_operations_on_one(cupy: Any) -> None:
    @settings(QUICK, max_examples=30)
    @given(case=contractions(operands=1, extents=AWKWARD_EXTENTS, max_volume=1 << 16))
    def run(case: Case) -> None:
        check(cupy, case)

    run()


def test_random_networks_of_three(cupy: Any) -> None:
    @settings(QUICK, max_examples=15)
    @given(case=contractions(operands=3, dtypes=("float32", "complex128", "int64"), max_volume=1 << 14))
    def run(case: Case) -> None:
        check(cupy, case)

    run()


def test_random_updates_in_place(cupy: Any) -> None:
    @settings(QUICK, max_examples=30)
    @given(
        case=contractions(dtypes=("float16", "float32", "complex64", "int32"), extents=AWKWARD_EXTENTS, empty=False),
        alpha=st.integers(-2, 2),
        beta=st.integers(-2, 2),
    )
    def run(case: Case, alpha: int, beta: int) -> None:
        c = values(np.random.default_rng(1), case.shape, np.result_type(*case.operands))
        out = cupy.array(c)
        result = gett.contract(
            case.subscripts, *(to_device(cupy, x) for x in case.operands), out, alpha=alpha, beta=beta, out=out
        )
        wide = np.complex128 if c.dtype.kind == "c" else np.float64
        exact = np.asarray(np.einsum(case.subscripts, *(x.astype(wide) for x in case.operands)))
        wanted = alpha * exact + beta * c.astype(wide)
        assert result is out
        np.testing.assert_array_equal(to_host(out), wanted.astype(c.dtype))

    run()
