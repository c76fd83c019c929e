"""The order in which threads visit an operand's tile by `cp.async`: row by row, or as the operand lies in memory.

L1 serves in one turn what lies in different banks, both where it is read and where it goes. Lanes that go down a
column of a tensor whose rows are whole lines read one bank: each takes a turn of its own. Copies of 16 bytes pass L1
by, which then asks L2 for each sector that they touch, and lanes that share one should be neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gett.schedule.spec.vectors import TiledDim
from layouts.rates import SECTOR
from layouts.swizzle import BANK_BYTES, BANKS, CHUNK, SmemLayout, replays

LANES = 32
WARPS = 2  # whose accesses are looked at
BYPASS = 16  # bytes of a copy that passes L1 by

LEAST_GAIN = 2.0
"""How many times fewer clocks make up for places that a thread's first one no longer tells."""

SCATTERED = 16
"""Clocks of a warp's copy below which rows are kept: six such kernels took 1.04 to 1.34 of their time otherwise."""


class OrderDigit(NamedTuple):
    """A digit of an access's number: how many values it has, and what one adds to the place in the tile."""

    group: str  # "mn", with the batches of a tall tile one below the other, or "k"
    size: int
    step: int


Order = tuple[OrderDigit, ...]  # fastest digit first, the elements of a vector before all


class LoadedTile(NamedTuple):
    """A tile as a loader sees it: rows along one group, in shared memory."""

    major: str  # "k" or "mn", the group along a row
    vector: int  # elements of an access
    side: int  # rows of M or N of a batch
    batches: int
    size: int  # bytes of an element
    smem: SmemLayout

    @property
    def along(self) -> int:
        """Accesses of a row."""
        return self.smem.row_bytes // (self.vector * self.size)

    def address(self, mn: int, k: int, spread: int = 1) -> int:
        """Where an element lies in shared memory, where batches of K-major tiles differ by so many chunks."""
        if self.major == "k":
            return self.smem.address(mn, k * self.size ^ mn // self.side % spread * CHUNK)
        return self.smem.address(k, mn * self.size)


class Copy(NamedTuple):
    """Where an access reads and where it writes: bytes in the operand, and in the tile."""

    source: int
    to: int


def lane_order(dims: Sequence[TiledDim], tile: LoadedTile) -> Order:
    """The order whose warps take the fewest clocks; none, row by row, where no other is clearly better.

    Args:
        dims: What is tiled of the operand, by distance in memory.
        tile: The tile.
    """
    by_row = _by_row(tile, tile.along, 1)
    usual = _clocks(dims, tile, by_row)
    if usual < SCATTERED:
        return ()
    if tile.vector * tile.size < BYPASS:
        others = [memory_order(dims, tile.side)]
    else:
        lanes = [n for n in range(1, min(tile.along, LANES) + 1) if tile.along % n == 0]
        rows = [2**i for i in range(1, 6) if tile.smem.rows % 2**i == 0]
        others = [_by_row(tile, n, m) for n in lanes for m in rows if n * m <= LANES]
        if dims and (dims[0].group == "l" or dims[0].prefix > 1):  # no row of the tile begins as memory does
            others.append(memory_order(dims, tile.side))
    clocks = {order: _clocks(dims, tile, order) for order in others}
    best = min(others, key=lambda x: (clocks[x], -x[:2][-1].size), default=None)
    return best if best is not None and LEAST_GAIN * clocks[best] <= usual else ()


def memory_order(dims: Sequence[TiledDim], side: int) -> Order:
    """The dimensions as they lie in memory; `side` are the rows of M or N of a batch."""
    groups = {"k": ("k", 1), "mn": ("mn", 1), "l": ("mn", side)}
    return tuple(OrderDigit(groups[d.group][0], d.box, groups[d.group][1] * d.prefix) for d in dims)


def _by_row(tile: LoadedTile, lanes: int, rows: int) -> Order:
    """So many accesses along a row, in so many rows, before the next ones of the same rows."""
    other = "mn" if tile.major == "k" else "k"
    return (
        OrderDigit(tile.major, tile.vector, 1),
        OrderDigit(tile.major, lanes, tile.vector),
        OrderDigit(other, rows, 1),
        OrderDigit(tile.major, tile.along // lanes, lanes * tile.vector),
        OrderDigit(other, tile.smem.rows // rows, rows),
    )


def _clocks(dims: Sequence[TiledDim], tile: LoadedTile, order: Order) -> float:
    """Clocks of L1 for a warp's copies, in the mean of a tile's first warps: of sectors, or of turns."""
    width, numbers, clocks = tile.vector * tile.size, iter(range(0, elements_of(order), tile.vector)), list[int]()
    for _ in range(WARPS):
        if warp := [x for x in _copies(dims, tile, order, islice(numbers, LANES)) if x is not None]:
            clocks.append(max(_sectors(warp, width), turns(warp, width)))
    return sum(clocks) / max(1, len(clocks))


def elements_of(order: Order) -> int:
    """Elements that an order visits."""
    return math.prod(digit.size for digit in order)


def _place(order: Order, number: int) -> tuple[int, int]:
    """Where an element of an order is: of M or N with the batches, and of K."""
    place = {"k": 0, "mn": 0}
    for group, size, step in order:
        place[group] += number % size * step
        number //= size
    return place["mn"], place["k"]


def _copies(dims: Sequence[TiledDim], tile: LoadedTile, order: Order, numbers: Iterator[int]) -> Iterator[Copy | None]:
    """The copies that begin at some elements in an order; None in padding."""
    limits = {g: max((d.prefix * d.box for d in dims if d.group == g), default=1) for g in ("k", "mn", "l")}
    for number in numbers:
        mn, k = _place(order, number)
        at = {"k": k, "mn": mn % tile.side, "l": mn // tile.side}
        if any(at[group] >= limits[group] for group in at):
            yield None
            continue
        source = sum(at[d.group] // d.prefix % d.box * abs(d.stride) for d in dims)
        yield Copy(source, tile.address(mn, k))


def batch_spread(order: Order, tile: LoadedTile) -> int:
    """By how many chunks of a row the batches of a tall tile differ in shared memory; 1 where all are alike.

    A warp that reads the same element of neighbouring batches stores to rows that lie whole lines apart: to one bank.
    Where each batch begins its rows with another chunk, it stores to several.
    """
    chunks = tile.smem.row_bytes // CHUNK
    most = min(BANKS * BANK_BYTES // CHUNK, chunks & -chunks)
    if tile.major != "k" or tile.batches == 1 or most < 2:
        return 1
    return most if 2 * store_turns(order, tile, most) <= store_turns(order, tile) else 1


def store_turns(order: Order, tile: LoadedTile, spread: int = 1) -> int:
    """How often the first warp's store of one element is served, where batches differ by so many chunks."""
    first = range(0, min(LANES * tile.vector, elements_of(order)), tile.vector)
    return max(replays((tile.address(*_place(order, x), spread) for x in first), tile.size), default=0)


def _sectors(warp: Sequence[Copy], width: int) -> int:
    """Sectors that a warp's copies touch."""
    return len({at // SECTOR for copy in warp for at in (copy.source, copy.source + width - 1)})


def turns(warp: Sequence[Copy], width: int) -> int:
    """In how many turns L1 serves a warp's copies of `width` bytes each.

    As many lanes as fill all banks are served together. A lane waits for the next turn where a bank that it writes, or
    one that it reads of L1, is taken for another word (measured on an H200: 8.0 and 16 to 20 where this counts 8 and
    16).
    """
    words, count = max(1, width // BANK_BYTES), 0
    for start in range(0, len(warp), BANKS // words):
        left = list(warp[start : start + BANKS // words])
        while left:
            count += 1
            left = _waiting(left, words, by_l1=width < BYPASS)
    return count


def _waiting(lanes: Sequence[Copy], words: int, *, by_l1: bool) -> list[Copy]:
    """Those of the lanes that one turn does not serve."""
    read, written, left = dict[int, int](), set[int](), list[Copy]()
    for lane in lanes:
        sources = [lane.source // BANK_BYTES + i for i in range(words)] if by_l1 else []
        places = [(lane.to // BANK_BYTES + i) % BANKS for i in range(words)]
        if written.isdisjoint(places) and all(read.get(word % BANKS, word) == word for word in sources):
            read.update((word % BANKS, word) for word in sources)
            written.update(places)
        else:
            left.append(lane)
    return left
