"""Errors of products of planes, by a model of the tensor core's sums.

The model: the products of 16 k and the sum so far are aligned at the largest sum of exponents, cut off 25 bits below
it, added exactly, and cut off to 24 bits. An H200 gave its results for 1 + 15 * 2^-26, 1 + 15 * 2^-25, 1 - 2^-25.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import BOUNDS, DATA, UNIT, errors
from gett.hw.tensor_types import PLANES, Planes
from tests.cpu.planes import MANY, low_counts, planes, scale
from tests.sampling import slow_but

BF16X6, BF16X3, FP16X3 = (PLANES[name] for name in ("bf16x6", "bf16x3", "fp16x3"))
FRACTION = 25
ROWS, COLUMNS = 16, 32  # of a warp's share of A and of B in planes of float16


def wide_planes(x: Any, made: Planes) -> list[Any]:
    """The planes of numbers as float64."""
    return [plane.astype(np.float64) for plane in planes(x.astype(np.float32), made)]


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


def scales(a: Any, b: Any, made: Planes) -> tuple[Any, Any]:
    """Those of the rows of A and of the columns of B of one sum; of both shapes (rows, 1) and (1, columns)."""
    if not made.scaled:
        return np.ones((a.shape[0], 1)), np.ones((1, b.shape[1]))
    of_b = [scale(b[:, i : i + COLUMNS]) for i in range(0, b.shape[1], COLUMNS)]
    return np.array([[scale(row)] for row in a]), np.repeat(of_b, COLUMNS)[None, : b.shape[1]]


def sums(a: Any, b: Any, made: Planes) -> Iterator[tuple[Any, Any]]:
    """Parts of two matrices whose products the tensor cores sum."""
    for k in range(0, a.shape[1], made.sum_k):
        yield tuple(x.astype(np.float64) for x in (a[:, k : k + made.sum_k], b[k : k + made.sum_k]))


def product(a: Any, b: Any, made: Planes) -> Any:
    """The product of two matrices of float32 in planes, sums of a few k added in float32."""
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for x, y in sums(a, b, made):
        times_x, times_y = scales(x, y, made)
        of_x, of_y = wide_planes(x * times_x, made), wide_planes(y * times_y, made)
        total = np.zeros(out.shape)
        for i, j in made.products:
            for k in range(0, x.shape[1], 16):
                total = tensor_core(total, of_x[i][:, k : k + 16], of_y[j][k : k + 16])
        out = (out + total / times_x / times_y).astype(np.float32)
    return out


def is_lost(a: Any, b: Any) -> bool:
    """Whether the guard has the product made again: many numbers of a warp's share are low."""
    for x, y in sums(a, b, FP16X3):
        times_x, times_y = scales(x, y, FP16X3)
        low_x, low_y = low_counts(x * times_x), low_counts(y * times_y)
        shares = [low_x[i : i + ROWS] for i in range(0, len(x), ROWS)]
        shares += [low_y[:, i : i + COLUMNS] for i in range(0, y.shape[1], COLUMNS)]
        if max(share.sum() for share in shares) >= MANY:
            return True
    return False


def counted(a: Any, b: Any) -> tuple[Any, Any]:
    """Magnitudes as the bound of scaled planes counts them: 2^-17 or more of the largest of the same scale."""
    parts = []
    for x, y in sums(a, b, FP16X3):
        of_x, of_y = (2.0**15 / t for t in scales(x, y, FP16X3))  # the largest is less than twice that
        parts.append((np.maximum(abs(x), of_x * 2.0**-17), np.maximum(abs(y), of_y * 2.0**-17)))
    return np.concatenate([x for x, _ in parts], 1), np.concatenate([y for _, y in parts])


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
    found, _ = errors(a, b, product(a, b, BF16X6))
    plain, _ = errors(a, b, multiply_adds(a, b))
    assert found <= BOUNDS["bf16x6"](k, 1)
    assert found <= 1.25 * plain + 1  # of sparse data multiply-adds round less
    found, _ = errors(a, b, product(a, b, BF16X3))
    assert found <= BOUNDS["bf16x3"](k, 1)


def test_sums_that_are_not_added_outside_the_tensor_core_grow_worse() -> None:
    """What the short sums are for: cut off instead of rounded, errors of one sign pile up."""
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, np.float32) for shape in ((16, 1024), (1024, 16)))
    total = np.zeros((16, 16))
    of_a, of_b = wide_planes(a, BF16X6), wide_planes(b, BF16X6)
    for k in range(0, 1024, 16):
        for i, j in BF16X6.products:
            total = tensor_core(total, of_a[i][:, k : k + 16], of_b[j][k : k + 16])
    assert errors(a, b, total.astype(np.float32))[1] > 10 * errors(a, b, product(a, b, BF16X6))[1]


LOST = {"2^30": True, "outliers": True, "rows": True, "normal": False, "uniform": False, "zeros": False}
"""Whether the guard finds fault with data; of others it depends on the sample."""


@pytest.mark.parametrize("k", slow_but([32, 64, 256], [64]))
@pytest.mark.parametrize("data", DATA)
def test_errors_of_scaled_planes_are_those_promised(data: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (DATA[data](rng, shape).astype(np.float32) for shape in ((32, k), (k, 64)))
    d, lost = product(a, b, FP16X3), is_lost(a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    of_a, of_b = counted(a, b)
    assert (abs(d - exact) <= BOUNDS["fp16x3"](k, 1) * UNIT * (of_a @ of_b)).all()
    assert lost is LOST.get(data, lost)
    assert lost or errors(a, b, d)[0] <= BOUNDS["fp16x3"](k, 1)


@pytest.mark.parametrize("data", ["normal", "uniform"])
def test_scaled_planes_are_about_as_accurate_as_multiply_adds(data: str) -> None:
    for k in (32, 128, 512):
        rng = np.random.default_rng(k)
        a, b = (DATA[data](rng, shape).astype(np.float32) for shape in ((32, k), (k, 64)))
        found, plain = (errors(a, b, d) for d in (product(a, b, FP16X3), multiply_adds(a, b)))
        assert found[0] <= plain[0]
        assert found[1] <= 1.6 * plain[1]


def test_one_small_number_does_not_have_a_tile_made_again() -> None:
    """Of a million normal numbers one or two are 2^-20 of the largest beside them, or less."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((128, 64), (64, 128)))
    a[5, 7], b[9, 11] = 1e-8, 1e-7
    assert not is_lost(a, b)
    column, tiny = b.copy(), b.copy()
    column[:, 3] *= np.float32(2.0**-24)  # far below those that it is scaled with
    tiny[9, 11] = 1e-13
    assert is_lost(a, column)
    assert is_lost(a, tiny)
    assert is_lost(tiny.T, b)


@pytest.mark.parametrize("size", [2.0**-59, 2.0**-40, 1.0, 2.0**60, 2.0**127])
def test_the_largest_number_is_scaled_to_what_float16_has(size: float) -> None:
    for x in (1, 2 - 2.0**-11, np.nextafter(np.float32(2 - 2.0**-11), np.float32(0)), 2 - 2.0**-23):
        scaled = float(np.float32(x * size)) * scale(np.float32(x * size))
        assert 2.0**15 * (1 - 2.0**-11) <= scaled < 65520
