"""How threads share the lines of a tile of D that they store: `kLine`, `kLines` and `kLineLanes` of the epilogue.

The first few dimensions of D's order make a line, the next ones a plane of lines. Vectors of a line, lines of a plane
and planes have tables of their own in shared memory (`EpilogueOffsets`), where those of rows and columns would stand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from gett.codegen.common import reach
from gett.ir.gemm import C, D, GemmPlan, itemsize
from gett.schedule.spec.epilogue import VectorStore
from gett.schedule.spec.mainloop import Multistage, tile_warpgroups
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box, place_of
from layouts.rates import L2_LINE, SECTOR

LANES = 32, 16, 8, 4, 2
"""Neighbouring threads that may share a line."""

WIDEST = 16
"""Bytes of a store."""

TURN_COST = 2
"""What a vector costs whose place is divided, in vectors of a line."""

MORE = 1.05
"""Sectors of lines, as a multiple of those in turn, that fewer look-ups outweigh."""

Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]


class Lines(NamedTuple):
    """The lines of a tile."""

    line: int = 0  # vectors of one, 0 where the tile is not stored in lines
    lines: int = 1  # lines of a plane
    lanes: int = 1  # threads that share a line


def is_near(plan: GemmPlan) -> bool:
    """Whether 29 bits hold the offsets of D and of C, in elements."""
    c = plan.contraction
    elements = [reach(plan, D) // plan.size(D)]
    elements += [reach(plan, C) // itemsize(c.c.dtype)] if c.c is not None else []
    return max(elements) < 2**29


def store_lines(plan: GemmPlan, schedule: Schedule, order: Sequence[tuple[str, int]]) -> Lines:
    """The lines in which threads store D's tile; none where they add C, whose places are others."""
    store, t = schedule.epilogue.store, schedule.tiling
    if not isinstance(store, VectorStore) or schedule.epilogue.vector_source or not is_near(plan):
        return Lines()
    loop = schedule.mainloop if isinstance(schedule.mainloop, Multistage) else schedule.hopper
    groups = {"m": (t.m, plan.m), "n": (t.n, plan.n)} | ({} if t.l is None else {"l": (t.l, plan.l)})
    boxes = {g: (box, [s.strides[D] for s in modes]) for g, (box, modes) in groups.items()}
    places = [_places(*boxes[g], i) for g, i in order]
    steps = [plan.contraction.d.alignment, *(s.strides[D] for s in plan.l if t.l is None)]
    for box, strides in boxes.values():
        cuts = (1 if box.flattens else cut for cut in box.cut)
        steps += [stride * cut for stride, cut in zip(strides, cuts, strict=True)]
    threads = loop.threads if isinstance(loop, Multistage) else 128 * tile_warpgroups(loop)
    rows, columns, _ = t.shape
    return best_lines(places, store.vector, plan.size(D), math.gcd(*steps), threads, rows * t.batches + columns)


def _places(box: Box, strides: Sequence[int], i: int) -> Offsets:
    """Bytes of D from the first element of dimension `i` of a box to each of them."""
    dim = box.dims[i]
    digits = [box.extents[m] for m in dim.modes], [strides[m] for m in dim.modes]
    return np.array([place_of(x, *digits) for x in range(dim.box)])


def best_lines(places: Sequence[Offsets], vector: int, itemsize: int, step: int, threads: int, most: int) -> Lines:
    """The lines for which threads take the fewest turns, and L2 no more sectors than for all vectors in turn.

    Args:
        places: Bytes that elements of the tile are apart in memory, along each dimension of D's order.
        vector: Elements of a store, all along the first of them.
        itemsize: Bytes of an element.
        step: Bytes of which where tiles begin are multiples.
        threads: Those that store.
        most: Entries of the tables.

    Returns:
        The lines; none where all vectors in turn are no slower, as those of a single dimension.
    """
    total = math.prod(map(len, places)) // vector
    least = TURN_COST * -(-total // threads)
    found = ((_turns(*x, threads), Lines(x[0], x[1], x[3])) for x in _shares([*map(len, places)], vector, most))
    wide = (x for x in found if x[0] < least and _is_wide(x[1], vector * itemsize))
    shares = sorted(wide, key=lambda x: x[0])
    if itemsize >= WIDEST or not shares:  # look-ups are little beside elements that are whole vectors
        return Lines()
    at = sum(np.ix_(*places[::-1]), np.zeros(1, np.int64)).reshape(-1)[::vector]
    most_sectors = MORE * _sectors(at, LANES[0], LANES[0], step)
    return next((x for _, x in shares if _sectors(at, x.line, x.lanes, step) <= most_sectors), Lines())


def _turns(line: int, lines: int, planes: int, lanes: int, threads: int) -> int:
    """What a thread stores, and how often it begins anew."""
    return -(-line // lanes) * planes * (1 + -(-lines * lanes // threads))


def _is_wide(lines: Lines, size: int) -> bool:
    """Whether the lanes of a line store a sector at once, and a line of L2 or all that there is."""
    return lines.lanes * size >= SECTOR and (lines.lanes * size >= L2_LINE or lines.lanes >= lines.line)


def _shares(sizes: Sequence[int], vector: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Vectors of a line, lines of a plane, planes, and lanes of a line."""
    for first, second in combinations_with_replacement(range(1, len(sizes) + 1), 2):
        line, lines, planes = (math.prod(x) for x in (sizes[:first], sizes[first:second], sizes[second:]))
        line, left = divmod(line, vector)  # a vector may go on from one dimension to the next
        if not left and line + lines + planes <= most:
            yield from ((line, lines, planes, lanes) for lanes in LANES)


def _sectors(at: Offsets, line: int, lanes: int, step: int) -> int:
    """Sectors that the stores of all warps touch, of tiles that begin in some places; a sector counts for each store.

    Args:
        at: Where the tile's vectors are, in D's order; each of them lies in one sector.
        line: Vectors of a line.
        lanes: Neighbouring threads that share a line.
        step: Bytes of which where tiles begin are multiples.
    """
    turns, together = -(-line // lanes), LANES[0] // lanes  # of a line, and lines of a warp
    shape = -(-len(at) // (line * together)) * together, turns * lanes
    laid = np.full((shape[0], line), -1)
    laid.reshape(-1)[: len(at)] = at
    padded = np.full(shape, -1)
    padded[:, :line] = laid
    warps = padded.reshape(-1, together, turns, lanes).swapaxes(1, 2).reshape(-1, LANES[0])
    multiple = math.gcd(step, L2_LINE)
    found = 0
    for begin in {i * (SECTOR + multiple) % L2_LINE if multiple < SECTOR else i * multiple % L2_LINE for i in range(4)}:
        sectors = np.sort(np.where(warps < 0, -1, (warps + begin) // SECTOR), axis=1)
        found += int(np.count_nonzero(np.diff(sectors, axis=1)) + np.count_nonzero(sectors[:, 0] >= 0))
    return found
