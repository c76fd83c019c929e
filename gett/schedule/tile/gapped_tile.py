"""A tile of D in shared memory whose dimensions follow each other in D's order: gaps between its runs, conflicts.

Gaps between runs separate what falls into one bank where D leaves as vectors. Knows boxes, no strides and no text.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

from gett.schedule.spec.epilogue import StagedTile
from layouts.box import Box
from layouts.swizzle import CHUNK, replays

GAPS = (0, 8, 16, 24)  # elements between runs that leave as vectors


@lru_cache(maxsize=4096)
def gapped_tile(
    m: tuple[int, ...], n: tuple[int, ...], order: tuple[tuple[str, int], ...], itemsize: int, vector: int, padded: bool
) -> StagedTile:
    """A staged tile whose dimensions follow each other in D's order.

    `order` has the dimensions (group, position) with a box above 1. Gaps keep vectors of D aligned; a tensor map needs
    the box dense.
    """
    boxes = [(m if g == "m" else n)[i] for g, i in order]
    best: StagedTile | None = None
    # A gap must keep vectors aligned, so it can only follow a run of whole vectors.
    run = 1
    allowed: list[int] = []
    for i, b in enumerate(boxes[:-1]):
        run *= b
        if padded and run % max(vector, CHUNK // itemsize) == 0 and len(allowed) < 2:
            allowed.append(i)
    rows, columns = [_digits(g, m) for g in range(8)], [_digits(2 * t, n) for t in range(4)]
    for gaps in itertools.product(GAPS, repeat=len(allowed)):
        steps, step = {}, 1
        for i, (dim, b) in enumerate(zip(order, boxes, strict=True)):
            steps[dim] = step
            step = step * b + (gaps[allowed.index(i)] if i in allowed else 0)
        steps_m = tuple([steps.get(("m", i), 0) for i in range(len(m))])
        steps_n = tuple([steps.get(("n", i), 0) for i in range(len(n))])
        # Neighbouring columns are written in pairs, up to 16 bytes.
        width = itemsize * (2 if pairs(n, steps_n) and 2 * itemsize <= CHUNK else 1)
        conflicts = _conflicts(_places(rows, steps_m), _places(columns, steps_n), itemsize, width)
        elements = step if padded else math.prod(boxes)
        if best is None or (conflicts, elements) < (best.conflicts, best.elements):
            best = StagedTile(steps_m, steps_n, elements, conflicts=conflicts)
        if conflicts == 1:
            break
    assert best is not None
    return best


@lru_cache(maxsize=4096)
def _conflicts(rows: tuple[int, ...], columns: tuple[int, ...], itemsize: int, width: int) -> int:
    """How often the first fragment's store is served, of elements in these rows and columns of the staged tile."""
    return max(replays([(row + column) * itemsize for row in rows for column in columns], width))


def pairs(n: tuple[int, ...], steps_n: tuple[int, ...]) -> bool:
    """Whether two neighbouring columns are neighbours in the staged tile, so that they are written at once."""
    lead = next((i for i, b in enumerate(n) if b > 1), None)
    return lead is not None and steps_n[lead] == 1 and n[lead] % 8 == 0 and math.prod(n) % 8 == 0


def _digits(local: int, boxes: tuple[int, ...]) -> list[int]:
    """Coordinates of an index of a tile."""
    found = []
    for b in boxes:
        found.append(local % b)
        local //= b
    return found


def _places(indices: Sequence[Sequence[int]], steps: Sequence[int]) -> tuple[int, ...]:
    return tuple([sum(map(mul, digits, steps)) for digits in indices])


def extents_of(box: Box) -> tuple[int, ...]:
    """Box extents of the dimensions."""
    return tuple(d.box for d in box.dims)
