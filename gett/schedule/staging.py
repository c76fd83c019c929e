"""How a tile of D lies in shared memory between wgmma's fragments and D's own order.

A fragment writes lanes 4g + t to row g and columns 2t, 2t + 1 (PTX ISA, wgmma accumulators). Their places in D's order
may all fall into one bank; where D leaves as vectors, gaps between the runs part them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

from gett.schedule.records import StageSteps
from layouts.box import Box
from layouts.swizzle import replays

GAPS = (0, 8, 16, 24)  # elements


def stage_steps(
    box_m: Box, box_n: Box, order: Sequence[tuple[str, int]], itemsize: int, vector: int, padded: bool
) -> StageSteps:
    """Steps of the staged tile.

    Args:
        box_m: Box of M.
        box_n: Box of N.
        order: Dimensions (group, position) with a box above 1, in D's order.
        itemsize: Bytes of a staged element.
        vector: Elements of a store to D; gaps keep its alignment.
        padded: Whether gaps may part the runs (a tensor map needs the box dense).
    """
    key_m, key_n = tuple(d.box for d in box_m.dims), tuple(d.box for d in box_n.dims)
    return _steps(key_m, key_n, tuple(order), itemsize, vector, padded)


@lru_cache(maxsize=4096)
def _steps(
    m: tuple[int, ...], n: tuple[int, ...], order: tuple[tuple[str, int], ...], itemsize: int, vector: int, padded: bool
) -> StageSteps:
    boxes = [(m if g == "m" else n)[i] for g, i in order]
    best: StageSteps | None = None
    # A gap must keep vectors aligned, so it can only follow a run of whole vectors.
    run = 1
    allowed: list[int] = []
    for i, b in enumerate(boxes[:-1]):
        run *= b
        if padded and run % max(vector, 16 // itemsize) == 0 and len(allowed) < 2:
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
        served = _conflicts(m, n, steps_m, steps_n, itemsize)
        room = step if padded else _product(boxes)
        found = StageSteps(steps_m, steps_n, room, served)
        if best is None or (served, room) < (best.conflicts, best.elements):
            best = found
        if served == 1:
            break
    assert best is not None
    return best


def _conflicts(
    m: tuple[int, ...], n: tuple[int, ...], steps_m: tuple[int, ...], steps_n: tuple[int, ...], size: int
) -> int:
    paired = pairs(n, steps_n)
    columns = [_place(2 * t, n, steps_n) for t in range(4)]
    at = [(row + column) * size for row in (_place(g, m, steps_m) for g in range(8)) for column in columns]
    return max(replays(at, size * (2 if paired else 1)))


def pairs(n: tuple[int, ...], steps_n: tuple[int, ...]) -> bool:
    """Whether two neighbouring columns are neighbours in the staged tile, so that they are written at once."""
    lead = next((i for i, b in enumerate(n) if b > 1), None)
    return lead is not None and steps_n[lead] == 1 and n[lead] % 8 == 0 and _product(n) % 8 == 0


def _place(local: int, boxes: tuple[int, ...], steps: tuple[int, ...]) -> int:
    total = 0
    for b, s in zip(boxes, steps, strict=True):
        total += local % b * s
        local //= b
    return total


def _product(values: Sequence[int]) -> int:
    out = 1
    for v in values:
        out *= v
    return out
