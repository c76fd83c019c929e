"""Planes of float32 numbers, as the kernels make them."""

from __future__ import annotations

from typing import Any

from tests.cpu.fake_torch import decode, encode


def planes(x: Any, count: int) -> list[Any]:
    """float32 arrays of bfloat16 values, each the nearest to what the ones before it leave of `x`."""
    out = []
    for _ in range(count):
        out.append(decode(encode(x, "bfloat16"), "bfloat16"))
        x = x - out[-1]
    return out
