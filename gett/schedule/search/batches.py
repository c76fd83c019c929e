"""Batches whose tiles are visited together, since they lie side by side in D.

A batch mode of short stride in D cuts D's rows: the tiles of one batch write short runs that lie far apart, and device
memory opens a page for each. Tiles of neighbouring batches that are made at the same time fill those pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gett.hw.hopper_rates import SideBySide
from gett.ir.gemm import B, D, GemmPlan
from gett.schedule.spec.schedule import PersistentRaster
from gett.schedule.tile.wgmma_tile import WgmmaTile


def side_by_side(plan: GemmPlan) -> int:
    """Batches that lie within D's outermost free mode, fastest first; 1 where batches are outermost."""
    outermost = max((abs(s.strides[D]) for s in (*plan.m, *plan.n) if s.extent > 1), default=0)
    count = 1
    for mode in plan.l:
        if mode.extent > 1 and abs(mode.strides[D]) > outermost:
            break
        count *= mode.extent
    return count


def with_batches(
    made: PersistentRaster, tile: WgmmaTile, plan: GemmPlan, of: Mapping[int, int], rates: SideBySide
) -> PersistentRaster:
    """The raster over as many batches as fill the GPU with few rows of tiles of each; as it was where none do.

    All blocks make the same rows at the same time, so their number is that of the tiles. Rows of tiles must run along
    D, and D must be most of what memory moves (`of`: distinct bytes by tensor).
    """
    if made.cluster != (1, 1) or made.split_k > 1 or 2 * of[D] < sum(of.values()):
        return made
    along = min((abs(s.strides[D]), g) for g, modes in (("m", plan.m), ("n", plan.n)) for s in modes if s.extent > 1)
    if along[1] == "m":
        return made
    batches, row, shared = side_by_side(plan), tile.n.box.tiles, of[B] / max(1, plan.extent_l)
    for group_l in range(min(batches, made.blocks // row), 1, -1):
        rows = min(made.blocks // (group_l * row), tile.m.box.tiles)
        blocks = group_l * rows * row
        if batches % group_l == 0 and group_l * shared <= rates.kept_bytes and rates.at_work * made.blocks <= blocks:
            return replace(made, blocks=blocks, group_l=group_l, group_m=rows)
    return made
