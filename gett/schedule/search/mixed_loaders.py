"""Tiles whose operands tensor maps do not both move: how far offsets reach, and the boxes with their loaders.

Which boxes are tried, and what brings an operand that no map moves, is each search's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.rules.gather import REACH
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile
from layouts.box import Box


def addressable(plan: GemmPlan) -> bool:
    """Whether 32-bit offsets from an operand's first element reach all others."""
    size = itemsize(plan.contraction.dtype)
    modes = [s for g in (plan.l, plan.m, plan.n, plan.k) for s in g]
    if any(s.strides[t] < 0 or s.strides[t] % size for s in modes for t in (A, B)):
        return False
    return all(sum(s.strides[t] * (s.extent - 1) for s in modes) // size < REACH for t in (A, B))


def mixed_tiles(
    search: HopperSearch,
    groups: Warpgroups,
    boxes_m: Iterable[Box],
    boxes_n: Iterable[Box],
    box_k: Box,
    loader: Callable[[int, Box, Box], Loader | None],
) -> Iterator[tuple[WgmmaTile, Loader, Loader]]:
    """Every combination of boxes that both operands reach, not both by tensor map, with A's and B's loaders."""
    for box_m in boxes_m:
        for box_n in boxes_n:
            a, b = loader(A, box_m, box_k), loader(B, box_n, box_k)
            if a is None or b is None or not (a.by_warps or b.by_warps):
                continue
            sides = OperandTiling(box_m, search.plan.m), OperandTiling(box_n, search.plan.n)
            yield WgmmaTile(search.atom, groups, *sides, box_k, runs=(a.width, b.width)), a, b
