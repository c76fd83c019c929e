"""Index functions of a block that makes several batches: positions in memory order to rows and columns of tall tiles.

A row of A's tile is `batch * block_m + m`, one of B's `batch * block_n + n` (`gett/kernels/core/batched.cuh`). Knows
boxes and strides; the functions of single groups are `tiles`'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gett.codegen.index import ZERO, Function, const, var
from gett.codegen.tiles import Statement, let, scaled
from layouts.box import Box

Digit = tuple[str, int, int]
"""(output `"m"` or `"n"`, positions, step between them in that output)."""


def unpack(name: str, digits: Sequence[Digit]) -> Function:
    """From a position to the tile's (m, n), the first digit fastest."""
    body: list[Statement] = []
    rest = var("i")
    total = {"m": ZERO, "n": ZERO}
    for j, (output, size, step) in enumerate(digits):
        last = j == len(digits) - 1
        c = let(body, f"c{j}", rest if last else rest % const(size))
        if not last:
            rest = let(body, f"r{j}", rest // const(size))
        total[output] = total[output] + scaled(c, step)
    return Function(name, ("i",), tuple(body), tuple(total.items()), "gett::MN")


def digits(order: Sequence[tuple[str, int]], boxes: Mapping[str, tuple[str, Box, int]]) -> list[Digit]:
    """Digits of tiled dimensions (group, position in its box).

    Args:
        order: The dimensions, fastest first.
        boxes: For each group the output that it counts in, its box, and the step of its first index there.
    """
    out = []
    for group, i in order:
        output, box, step = boxes[group]
        out.append((output, box.dims[i].box, step * math.prod(d.box for d in box.dims[:i])))
    return out
