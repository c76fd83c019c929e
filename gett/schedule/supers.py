"""Tiles of D that several tiles of A make one after the other, so that D's rows grow longer than accumulators allow.

Where A's rows run along one free mode and D's along another, a tile has A's run times D's run rows, and a warpgroup's
registers bound the product. Here accumulators of a part are staged, then those of the next, and the whole leaves at
once. Owns which such tiles are tried; knows modes and boxes, no tensor map and no text.
"""

from __future__ import annotations

from collections.abc import Iterator

from gett.ir.gemm import D, GemmPlan
from gett.schedule.sm90_shape import Side
from layouts.box import Box, TileDim

LONGEST = 64  # elements of D's run beyond which longer rows gain nothing
STAGED = 112 * 1024  # bytes of the staged tile; the rest belongs to stages
TILES = 2  # that a block makes at least


def super_tiles(
    plan: GemmPlan, rows: int, columns: int, unit: int | None, sizes: tuple[int, int], sm_count: int
) -> Iterator[tuple[Side, Side]]:
    """(tile of D, its part) along M for parts of `rows` rows; parts follow each other along D's unit-stride mode.

    Args:
        plan: The plan, exchanged where A and B change roles.
        rows: Of the accumulators, padding included.
        columns: Of the tile.
        unit: A's unit-stride mode in M, None where A's rows run along K.
        sizes: Bytes of an element of A and of D.
        sm_count: Multiprocessors, all of which should have tiles.
    """
    modes = plan.m
    along = next((i for i, s in enumerate(modes) if s.strides[D] == sizes[1]), None)
    if unit is None or along is None or along == unit:
        return
    for run, chunk in _runs(modes[unit].extent, sizes[0]):
        count, extent = rows // chunk, modes[along].extent
        lengths = [n for n in range(2 * count, min(LONGEST, extent) + 1, count) if extent % n == 0]
        for length in lengths[-2:]:
            whole, part = (_box(plan, unit, run, along, n) for n in (length, count))
            fits = whole.size * columns * sizes[1] <= STAGED
            if not fits or whole.tiles * plan.extent_l < TILES * sm_count:
                continue
            spare = (run, chunk) if run < chunk else (0, 0)
            yield Side(whole, modes, None, *spare), Side(part, modes, None, *spare)


def _runs(extent: int, size: int) -> list[tuple[int, int]]:
    """(elements of A's run, rows that a chunk has room for): whole swizzled rows, or the mode whole in a wider one."""
    found = [(span // size, span // size) for span in (128, 64) if extent * size % span == 0]
    wider = next((s for s in (64, 128) if s > extent * size and extent * size % 16 == 0), 0)
    return found or ([(extent, wider // size)] if wider and extent * size * 2 > wider else [])


def _box(plan: GemmPlan, unit: int, run: int, along: int, length: int) -> Box:
    rest = tuple(m for m in range(len(plan.m)) if m not in (unit, along))
    dims = (TileDim((unit,), run), TileDim((along,), length), *((TileDim(rest, 1),) if rest else ()))
    return Box(tuple(s.extent for s in plan.m), dims)
