"""Sliced contractions that the tests of distributed ones share."""

from __future__ import annotations

from typing import Any

import numpy as np

import gett

SUBSCRIPTS = "xab,xbc,xcd->ad"


def operands(seed: int = 0, dtype: str = "float64", *, exact: bool = False) -> list[Any]:
    """Three operands; small integers where sums must be exact."""
    rng = np.random.default_rng(seed)
    shape = (24, 24, 24)
    if exact:
        return [rng.integers(-3, 4, shape).astype(dtype) for _ in range(3)]
    found = [rng.standard_normal(shape) for _ in range(3)]
    return [(x + 1j * x[::-1]).astype(dtype) if dtype.startswith("c") else x.astype(dtype) for x in found]


def plan(arrays: list[Any], limit: str = "50kB", **options: Any) -> Any:
    """A plan in some slices."""
    return gett.plan(SUBSCRIPTS, *arrays, memory_limit=limit, **options)


def same_bits(x: Any, y: Any) -> bool:
    """Whether two arrays are the same, bit for bit."""
    return bool(x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes())
