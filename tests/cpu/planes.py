"""Planes of float32 numbers, as the kernels make them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gett.hw.tensor_types import Planes
from tests.cpu.fake_torch import decode, encode

LOW, GONE = 2.0**-5, 2.0**-22
"""Scaled numbers below it are low, 2^-20 of the largest; below the second one they hardly have any bits, 2^-37."""
MANY = 16
"""Low numbers of a warp's share that are too many."""


def planes(x: Any, made: Planes) -> list[Any]:
    """float32 arrays of the planes' type, each the nearest to what the ones before it leave of `x`."""
    out = []
    for _ in range(made.count):
        out.append(decode(encode(x, made.tensor.name), made.tensor.name).astype(np.float32))
        x = x - out[-1]
    return out


def scale(x: Any) -> float:
    """The power of two that numbers are multiplied by that share a scale."""
    most = float(np.abs(x).max(initial=0))
    power = int(np.frexp(most)[1]) - 1 if most else -59
    power += most >= 2.0**power * (2 - 2.0**-11)  # it would be rounded up to 2^16, which float16 lacks
    return 2.0 ** (15 - max(power, -59))


def low_counts(x: Any) -> Any:
    """What scaled numbers count for as low ones: where `MANY` come together, a tile is made again."""
    size = np.abs(x)
    return np.where((x == 0) | (size >= LOW), 0, np.where(size < GONE, MANY, 1))
