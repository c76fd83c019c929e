"""The order in which threads visit the accesses of an operand's tile by `cp.async`.

Neighbouring lanes should read neighbours in memory: each sector that a warp's copy touches takes shared memory a clock.
Where a row of the tile holds a few neighbours and the row below it the next ones, lanes pass from row to row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gett.schedule.spec.vectors import TiledDim
from layouts.rates import SECTOR
from layouts.swizzle import SmemLayout, replays

LANES = 32
WARPS = 2  # whose accesses are looked at

LEAST_GAIN = 2.0
"""How many times fewer clocks make up for places that a thread's first one no longer tells."""

SCATTERED = 16
"""Clocks of a warp's copy below which rows are kept: the first cache serves warps that ask for the same sectors."""


class LaneOrder(NamedTuple):
    """So many accesses along a row, in so many rows, before the next ones of the same rows."""

    along: int
    across: int


class LoadedTile(NamedTuple):
    """A tile as a loader sees it: rows along one group, in shared memory and in the accesses' order."""

    major: str  # "k" or "mn", the group along a row
    along: int  # accesses of a row
    across: int  # rows
    vector: int  # elements of an access
    side: int  # rows of M or N of a batch
    size: int  # bytes of an element
    smem: SmemLayout

    def place(self, order: LaneOrder, access: int) -> tuple[int, int]:
        """The row of an access, and its number within the row."""
        lanes, rows = order
        along = access % lanes + access // (lanes * rows) % (self.along // lanes) * lanes
        return access // lanes % rows + access // (self.along * rows) * rows, along


def lane_order(dims: Sequence[TiledDim], tile: LoadedTile) -> LaneOrder:
    """The order whose warps take the fewest clocks; row by row where no other is clearly better.

    Args:
        dims: What is tiled of the operand, by distance in memory.
        tile: The tile.
    """
    by_row = LaneOrder(tile.along, 1)
    if _in_order(dims, tile.vector, tile.size) > 0.75 * _by_row(dims, tile.major, tile.vector, tile.size):
        return by_row
    usual = _clocks(dims, tile, by_row)
    if usual < SCATTERED:
        return by_row
    lanes = [n for n in range(1, min(tile.along, LANES) + 1) if tile.along % n == 0]
    rows = [2**i for i in range(1, 6) if tile.across % 2**i == 0]
    others = {LaneOrder(n, m): 0.0 for n in lanes for m in rows if n * m <= LANES}
    for order in others:
        others[order] = _clocks(dims, tile, order)
    best = min(others, key=lambda x: (others[x], -x.along), default=by_row)
    return best if best in others and LEAST_GAIN * others[best] <= usual else by_row


def _clocks(dims: Sequence[TiledDim], tile: LoadedTile, order: LaneOrder) -> float:
    """Clocks of shared memory for a warp's copy, in the mean of a tile's first ones: sectors, or stores in turn."""
    found = [max(_sectors(dims, tile, warp), _stores(tile, warp)) for warp in _warps(tile, order)]
    return sum(found) / len(found)


def _warps(tile: LoadedTile, order: LaneOrder) -> Iterator[list[tuple[int, int]]]:
    """The places of the accesses of a tile's first warps."""
    total = tile.along * tile.across
    for first in range(0, min(total, WARPS * LANES), LANES):
        yield [tile.place(order, access) for access in range(first, min(first + LANES, total))]


def _sectors(dims: Sequence[TiledDim], tile: LoadedTile, warp: Sequence[tuple[int, int]]) -> int:
    """Sectors that a warp's copies touch."""
    touched = set[int]()
    for row, access in warp:
        column = access * tile.vector
        mn, k = (row, column) if tile.major == "k" else (column, row)
        where = {"k": k, "mn": mn % tile.side, "l": mn // tile.side}
        at = sum(where[d.group] // d.prefix % d.box * abs(d.stride) for d in dims)
        touched |= {at // SECTOR, (at + tile.vector * tile.size - 1) // SECTOR}
    return len(touched)


def _stores(tile: LoadedTile, warp: Sequence[tuple[int, int]]) -> int:
    """How often shared memory takes what a warp's copies bring."""
    width = tile.vector * tile.size
    return sum(replays((tile.smem.address(row, access * width) for row, access in warp), width))


def _by_row(dims: Sequence[TiledDim], major: str, vector: int, size: int) -> float:
    """About how many sectors a warp touches whose lanes follow rows of the tile, which run along a group."""

    def place(dim: TiledDim) -> tuple[bool, bool, int]:
        return (dim.group == "k") != (major == "k"), dim.group == "l", dim.prefix

    return _in_order(sorted(dims, key=place), vector, size)


def _in_order(dims: Sequence[TiledDim], vector: int, size: int) -> float:
    """About how many sectors a warp touches whose lanes follow dimensions in this order."""
    left, span, apart = LANES * vector, size, 1
    for dim in dims:
        taken = min(left, dim.box)
        if abs(dim.stride) <= max(span, SECTOR):  # a run goes on, or shares its sectors with the next
            span += (taken - 1) * abs(dim.stride)
        else:
            apart *= taken
        left //= taken
        if left <= 1:
            break
    return apart * max(1.0, span / SECTOR)
