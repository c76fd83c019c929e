"""Batches whose tiles are visited together, since they lie side by side in D.

A batch mode of short stride in D cuts D's rows: the tiles of one batch write short runs that lie far apart, and device
memory opens a page for each. Tiles of neighbouring batches that are made at the same time fill those pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gett.ir.gemm import A, B, D, GemmPlan
from gett.schedule.spec.scheduler import PersistentRaster
from gett.schedule.tile.wgmma_tile import WgmmaTile

KEPT = 16 << 20  # bytes of operands of a group, which L2 keeps beside what is written


def side_by_side(plan: GemmPlan) -> int:
    """Batches that lie within D's outermost free mode, fastest first; 1 where batches are outermost."""
    outermost = max((abs(s.strides[D]) for s in (*plan.m, *plan.n) if s.extent > 1), default=0)
    count = 1
    for mode in plan.l:
        if mode.extent > 1 and abs(mode.strides[D]) > outermost:
            break
        count *= mode.extent
    return count


def with_batches(made: PersistentRaster, tile: WgmmaTile, plan: GemmPlan, of: Mapping[int, int]) -> PersistentRaster:
    """The raster over as many batches as L2 keeps the operands of, with fewer rows of tiles of each.

    `of` are distinct bytes by tensor. Rows of tiles must run along D, which must be most of what memory moves.
    """
    if made.cluster != (1, 1) or made.split_k > 1 or 2 * of[D] < sum(of.values()):
        return made
    along = min((abs(s.strides[D]), g) for g, modes in (("m", plan.m), ("n", plan.n)) for s in modes if s.extent > 1)
    each = (of[A] + of[B]) / max(1, plan.extent_l)
    group_l = max(1, min(side_by_side(plan), int(KEPT // each)))
    if along[1] == "m" or group_l == 1:
        return made
    rows = max(1, round(made.blocks / (group_l * tile.n.box.tiles)))
    return replace(made, group_l=group_l, group_m=min(rows, made.group_m))
