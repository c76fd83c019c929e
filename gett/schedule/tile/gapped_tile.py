"""A tile of D in shared memory whose dimensions follow each other in D's order: gaps between its runs, conflicts.

Gaps between runs separate what falls into one bank where D leaves as vectors. Knows boxes, no strides and no text.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

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
    for gaps in itertools.product(GAPS, repeat=len(allowed)):
        chosen = dict(zip(allowed, gaps, strict=True))
        steps, step = [], 1
        for i, b in enumerate(boxes):
            steps.append(step)
            step = step * b + chosen.get(i, 0)
        by = dict(zip(order, steps, strict=True))
        steps_m = tuple(by.get(("m", i), 0) for i in range(len(m)))
        steps_n = tuple(by.get(("n", i), 0) for i in range(len(n)))
        conflicts = _gapped_conflicts(m, n, steps_m, steps_n, itemsize)
        elements = step if padded else math.prod(boxes)
        found = StagedTile(steps_m, steps_n, elements, conflicts=conflicts)
        if best is None or (conflicts, elements) < (best.conflicts, best.elements):
            best = found
        if conflicts == 1:
            break
    assert best is not None
    return best


def _gapped_conflicts(
    m: tuple[int, ...], n: tuple[int, ...], steps_m: tuple[int, ...], steps_n: tuple[int, ...], size: int
) -> int:
    """How often the first fragment's store is served; neighbouring columns are written in pairs, up to 16 bytes."""
    columns = [_place(2 * t, n, steps_n) for t in range(4)]
    at = [(row + column) * size for row in (_place(g, m, steps_m) for g in range(8)) for column in columns]
    return max(replays(at, size * (2 if pairs(n, steps_n) and 2 * size <= CHUNK else 1)))


def pairs(n: tuple[int, ...], steps_n: tuple[int, ...]) -> bool:
    """Whether two neighbouring columns are neighbours in the staged tile, so that they are written at once."""
    lead = next((i for i, b in enumerate(n) if b > 1), None)
    return lead is not None and steps_n[lead] == 1 and n[lead] % 8 == 0 and math.prod(n) % 8 == 0


def _place(local: int, boxes: tuple[int, ...], steps: tuple[int, ...]) -> int:
    total = 0
    for b, s in zip(boxes, steps, strict=True):
        total += local % b * s
        local //= b
    return total


def extents_of(box: Box) -> tuple[int, ...]:
    """Box extents of the dimensions."""
    return tuple(d.box for d in box.dims)
