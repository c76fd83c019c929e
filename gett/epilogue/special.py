"""What NumPy lacks: the error function, and rounding to bfloat16.

Knows arrays of float32 and float64 only.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

_PER_UNIT = 16  # centres of Taylor series between two whole numbers
_REACH = 6  # 1 - erf(6) is below half a unit in the last place of float64
_DEGREE = 10


@cache
def _series() -> Any:
    """Taylor coefficients of the error function around each centre, one row a degree.

    Its derivatives are Hermite polynomials times `exp(-x**2)` (Abramowitz and Stegun, 7.1.19). The distance to a
    centre is at most 1/32, so what is left out is below 1e-17.
    """
    centres = np.arange(_PER_UNIT * _REACH + 1) / _PER_UNIT
    rows = [np.array([math.erf(x) for x in centres])]
    before, hermite = np.zeros_like(centres), np.ones_like(centres)
    factor = 2 / math.sqrt(math.pi) * np.exp(-(centres**2))
    for n in range(1, _DEGREE + 1):
        rows.append(factor * hermite / math.factorial(n) * (-1) ** (n - 1))
        before, hermite = hermite, 2 * centres * hermite - 2 * (n - 1) * before
    return np.array(rows)


def erf(x: Any) -> Any:
    """The error function of real numbers, to about two units in the last place; float32 stays float32."""
    given = np.asarray(x)
    wide = np.asarray(given, np.float64)
    size = np.minimum(np.abs(wide), float(_REACH))
    centre = np.nan_to_num(np.rint(size * _PER_UNIT), nan=0.0).astype(np.intp)
    away = size - centre / _PER_UNIT
    rows = _series()
    result = rows[_DEGREE][centre]
    for n in range(_DEGREE - 1, -1, -1):
        result = result * away + rows[n][centre]
    kept = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
    return np.copysign(result, wide).astype(kept)[()]


def round_bfloat16(x: Any) -> Any:
    """Float32 values rounded to the nearest bfloat16, ties to even, still as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32).reshape(np.shape(x)))
