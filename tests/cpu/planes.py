"""Planes of float32 numbers, as the kernels make them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gett.hw.dtypes import Planes
from tests.cpu.fake_torch import decode, encode

LOW = 2.0**-5
"""Scaled numbers below it are low: 2^-20 of the largest."""


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


def is_low(x: Any) -> Any:
    """Whether scaled numbers are low."""
    return (np.abs(x) < LOW) & (x != 0)
