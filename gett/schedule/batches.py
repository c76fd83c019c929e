"""Blocks that make several batches at once: for plans in which a tensor's neighbours belong to different batches.

A block of one batch would use one element of every sector of such a tensor. Owns which plans want it and which tiles
are tried; boxes and limits are those of all tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.space import Tile
from layouts.access import SECTOR

COUNTS = (8, 16, 32)  # batches a block
WARPS = 8
MOST_OUTPUTS = 128 * WARPS * 32  # a thread's accumulators
LEAST_OUTPUTS = 2048


@dataclass(frozen=True, slots=True)
class BatchTile:
    """A tile of each batch and how many batches a block makes."""

    tile: Tile
    count: int


def wants_batches(plan: GemmPlan, family: str) -> bool:
    """Whether some tensor's unit-stride mode is a batch mode, and the kernels can make several batches."""
    if family != "sm80":
        return False
    c = plan.contraction
    sizes = {A: itemsize(c.dtype), B: itemsize(c.dtype), D: itemsize(c.d.dtype)}
    return any(s.extent > 1 and s.strides[t] == size for t, size in sizes.items() for s in plan.l)


def batch_tiles(plan: GemmPlan) -> Iterator[BatchTile]:
    """Tiles worth considering; one warp makes all of a batch's tile, or a half or quarter of it."""
    c = plan.contraction
    size, size_d = itemsize(c.dtype), itemsize(c.d.dtype)
    along_d = any(s.strides[D] == size_d and s.extent > 1 for s in plan.l)
    step_k = {2: 16, 4: 8, 8: 4}[size]
    for count in COUNTS:
        if count // 2 >= plan.extent_l and count != COUNTS[0]:
            continue
        if along_d and count * size_d < SECTOR and plan.extent_l > count:  # stores that cut sectors cost most
            continue
        for m in _sides(plan.extent_m, (16, 32, 64)):
            for n in _sides(plan.extent_n, (8, 16, 32, 64)):
                if not LEAST_OUTPUTS <= count * m * n <= MOST_OUTPUTS * 2 // max(size, 2):
                    continue
                for k in sorted({min(d * step_k, -(-plan.extent_k // step_k) * step_k) for d in (1, 2, 3, 4)}):
                    yield BatchTile(Tile(m, n, k, (1, 1)), count)


def _sides(extent: int, usual: tuple[int, ...]) -> list[int]:
    """Usual sides, up to the first that covers the extent."""
    return [s for i, s in enumerate(usual) if i == 0 or usual[i - 1] < extent]


def batch_warps(count: int) -> int:
    """Groups of warps that share `count` batches evenly."""
    return max(w for w in range(1, WARPS + 1) if count % w == 0)
