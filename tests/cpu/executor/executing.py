"""What the tests of the NumPy executor share: operands of small integers, and a run that is compared bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from gett.cpu import NumpyExecutable
from gett.ir.gemm import make_gemm_plan
from tests.cpu.helpers import Array, contraction_of
from tests.cpu.strategies import values

RNG = np.random.default_rng(20)


def integers(shape: tuple[int, ...], dtype: Any = "float32") -> Array:
    return values(RNG, shape, np.dtype(dtype))


def make(subscripts: str, a: Array, b: Array | None, c: Array | None, d: Array, **options: Any) -> NumpyExecutable:
    return NumpyExecutable(make_gemm_plan(contraction_of(subscripts, a, b, c, d)), **options)


def check(
    subscripts: str,
    a: Array,
    b: Array | None = None,
    c: Array | None = None,
    d: Array | None = None,
    alpha: Any = 1,
    beta: Any = 0,
) -> NumpyExecutable:
    """Run and compare bit for bit with einsum in the widest type; returns the executable for its route."""
    operands = [x for x in (a, b) if x is not None]
    dtype = np.result_type(*operands)
    added = dtype if c is None else np.result_type(dtype, c)
    wide = {"b": bool, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}[added.kind]
    expected = np.asarray(np.einsum(subscripts, *(x.astype(wide) for x in operands)))
    if d is None:
        d = np.full(expected.shape, 1 if dtype.kind == "b" else 77, dtype)
    expected = np.multiply(expected, np.asarray(alpha).astype(wide))
    if c is not None:
        expected = expected + np.asarray(beta).astype(wide) * c.astype(wide)
    expected = expected.astype(d.dtype)
    run = make(subscripts, a, b, c, d)
    run(a, b, c, d, alpha, beta)
    np.testing.assert_array_equal(d, expected, err_msg=f"{subscripts}: {run.explain}")
    return run
