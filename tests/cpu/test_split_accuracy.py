"""Errors of products of planes, by a model of the tensor core's sums.

The model: the products of 16 k and the sum so far are aligned at the largest sum of exponents, cut off 25 bits below
it, added exactly, and cut off to 24 bits. An H200 gave its results for 1 + 15 * 2^-26, 1 + 15 * 2^-25, 1 - 2^-25.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import BOUNDS, DATA, errors
from gett.hw.dtypes import PLANES, Planes
from tests.cpu.planes import planes

SCHEME, SHORT_SCHEME = PLANES["bf16x6"], PLANES["bf16x3"]
FRACTION = 25


def wide_planes(x: Any, count: int = SCHEME.count) -> list[Any]:
    """The planes of numbers as float64."""
    return [plane.astype(np.float64) for plane in planes(x, count)]


def exponent(x: Any) -> Any:
    return np.where(x == 0, -10_000, np.frexp(x)[1] - 1)


def tensor_core(c: Any, a: Any, b: Any) -> Any:
    """c + the sum of a * b over 16 k, a of shape (m, 16) and b of shape (16, n)."""
    terms = a[:, :, None] * b[None]
    largest = np.maximum((exponent(a)[:, :, None] + exponent(b)[None]).max(axis=1), exponent(c))
    step = np.ldexp(1.0, np.maximum(largest, -1000) - FRACTION)
    total = np.trunc(terms / step[:, None]).sum(axis=1) + np.trunc(c / step)
    found = total * step
    unit = np.ldexp(1.0, np.maximum(exponent(found), -126) - 23)
    return np.trunc(found / unit) * unit


def product(a: Any, b: Any, scheme: Planes = SCHEME) -> Any:
    """The product of two matrices of float32 in planes, sums of 16 k added in float32."""
    of_a, of_b = wide_planes(a, scheme.count), wide_planes(b, scheme.count)
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], 16):
        total = np.zeros(out.shape)
        for i, j in scheme.products:
            total = tensor_core(total, of_a[i][:, k : k + 16], of_b[j][k : k + 16])
        out = out + total.astype(np.float32)
    return out


def multiply_adds(a: Any, b: Any) -> Any:
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        out = (out + a[:, k, None].astype(np.float64) * b[k]).astype(np.float32)
    return out


@pytest.mark.parametrize(
    ("small", "found"), [(2.0**-26, 1.0), (2.0**-25, 1 + 3 * 2.0**-23), (-(2.0**-25), 1 - 2.0**-24)]
)
def test_the_model_gives_what_the_hardware_gave(small: float, found: float) -> None:
    a, b = np.zeros((1, 16)), np.zeros((16, 1))
    a[0, : 15 if small > 0 else 1] = small * 2.0**13
    b[:] = 2.0**-13
    assert tensor_core(np.ones((1, 1)), a, b) == found


@pytest.mark.parametrize("k", [16, 64, 256])
@pytest.mark.parametrize("data", DATA)
def test_errors_are_those_promised_and_no_larger_than_multiply_adds(data: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (DATA[data](rng, shape).astype(np.float32) for shape in ((32, k), (k, 32)))
    found, _ = errors(a, b, product(a, b))
    plain, _ = errors(a, b, multiply_adds(a, b))
    assert found <= BOUNDS["bf16x6"](k, 1)
    assert found <= 1.25 * plain + 1  # of sparse data multiply-adds round less
    found, _ = errors(a, b, product(a, b, SHORT_SCHEME))
    assert found <= BOUNDS["bf16x3"](k, 1)


def test_sums_that_are_not_added_outside_the_tensor_core_grow_worse() -> None:
    """What the short sums are for: cut off instead of rounded, errors of one sign pile up."""
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, np.float32) for shape in ((16, 1024), (1024, 16)))
    total = np.zeros((16, 16))
    of_a, of_b = wide_planes(a), wide_planes(b)
    for k in range(0, 1024, 16):
        for i, j in SCHEME.products:
            total = tensor_core(total, of_a[i][:, k : k + 16], of_b[j][k : k + 16])
    assert errors(a, b, total.astype(np.float32))[1] > 10 * errors(a, b, product(a, b))[1]
