"""Tiles of D larger than what accumulators hold or than what one block stores: so that D's rows grow longer.

Where A's rows run along one free mode and D's along another, a tile has A's run times D's run rows, and a warpgroup's
registers bound the product. Either several MMA tiles are staged one after the other and leave together, or two blocks
of a cluster exchange halves of their tiles. Owns which such tiles are tried; knows modes and boxes, no tensor map.
"""

from __future__ import annotations

from collections.abc import Iterator

from gett.hw.archs import ArchFacts
from gett.ir.gemm import D, GemmPlan
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from layouts.swizzle import CHUNK


def store_tiles(
    plan: GemmPlan, rows: int, columns: int, unit: int | None, sizes: tuple[int, int], facts: ArchFacts
) -> Iterator[tuple[OperandTiling, OperandTiling]]:
    """(tile of D, its MMA tile) along M; MMA tiles of `rows` rows follow each other along D's unit-stride mode.

    A's unit-stride mode is number `unit` of M, None where A's rows run along K; `sizes` are bytes of an element of A
    and of D.
    """
    modes = plan.m
    along = next((i for i, s in enumerate(modes) if s.strides[D] == sizes[1]), None)
    if unit is None or along is None or along == unit:
        return
    extents = tuple(s.extent for s in modes)
    for run, atom in _runs(modes[unit].extent, sizes[0]):
        count, extent = rows // atom, modes[along].extent
        most = facts.smem_per_block // 2 // (run * columns * sizes[1])  # the other half belongs to stages
        lengths = [n for n in range(2 * count, min(most, extent) + 1, count) if extent % n == 0]
        for length in lengths[-2:]:
            whole, mma = (Box.of_cuts(extents, {unit: run, along: n}) for n in (length, count))
            if whole.tiles * plan.extent_l < facts.sm_count:
                continue
            padded = (run, atom) if run < atom else (0, 0)
            yield OperandTiling(whole, modes, None, *padded), OperandTiling(mma, modes, None, *padded)


def _runs(extent: int, size: int) -> list[tuple[int, int]]:
    """(elements of A's run, rows that an atom has room for): whole swizzled rows, or the mode whole in a wider one."""
    found = [(swizzle // size, swizzle // size) for swizzle in (128, 64) if extent * size % swizzle == 0]
    wider = next((s for s in (64, 128) if s > extent * size and extent * size % CHUNK == 0), 0)
    return found or ([(extent, wider // size)] if wider and extent * size * 2 > wider else [])
