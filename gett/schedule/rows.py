"""Rows of D in a tile: what an epilogue that stores row by row can take at once.

Knows boxes and D's strides; how rows are stored is `kernels/epilogue/row.cuh`'s.
"""

from __future__ import annotations

from gett.ir.gemm import D, GemmPlan, itemsize
from layouts.box import Box

SHORTEST = 32  # elements: rows of 23 to 31 took half as long again as elements one by one
ROW_BYTES = 2  # of an element
PASS_SLOTS = 95.0  # instructions of a warp for one pass over the rows that its lanes share
PASS_CLOCKS = 14.0  # of shared memory and the way to L2 for such a pass


def row_length(plan: GemmPlan, box_m: Box, box_n: Box) -> int:
    """Elements of a tile that lie together in D, along its unit stride; 0 where rows are too short to be worth it."""
    c = plan.contraction
    size = itemsize(c.d.dtype)
    if size != ROW_BYTES or c.c is not None:
        return 0
    for modes, box in ((plan.m, box_m), (plan.n, box_n)):
        for d in box.dims:
            strides = [modes[m].strides[D] for m in d.modes]
            if d.box < SHORTEST or strides[0] != size:
                continue
            pairs = zip(d.modes, strides, strides[1:], strict=False)
            if all(after == modes[m].extent * stride for m, stride, after in pairs):
                return d.box
    return 0


def row_clocks(elements: int, row: int) -> float:
    """What storing a tile row by row takes of a multiprocessor."""
    chunks = row // 16 * 2
    lanes = 8 if chunks <= 8 else 16 if chunks <= 16 else 32
    passes = elements / row * lanes / 32 * -(-chunks // lanes)
    return passes * (PASS_SLOTS / 4 + PASS_CLOCKS)
