"""The tile of D that multistage kernels stage: rows of N with a gap behind each, and what reading it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from gett.schedule.mainloops.multistage import padded_pitch
from gett.schedule.spec.vectors import TiledDim
from layouts.box import place_of
from layouts.swizzle import CHUNK, replays

LANES = 32


def reads_in_turn(dims: Sequence[TiledDim], shape: tuple[int, int, int], size: int, vector: int) -> float:
    """How often shared memory serves a warp that stores 32 elements of D, in vectors; 1 without conflicts.

    Args:
        dims: What is tiled of D, by distance in memory.
        shape: Of a batch's tile.
        size: Bytes of an element of D.
        vector: Elements of a store. Where they are no neighbours in a row they are read one by one.
    """
    pitch = padded_pitch(shape[1], size)
    row = {"m": pitch, "n": size, "l": shape[0] * pitch}
    steps, lanes = list[tuple[int, int]](), LANES * vector
    for dim in dims:
        steps.append((dim.box, row[dim.group] * dim.prefix))
        lanes = -(-lanes // dim.box)
        if lanes == 1:
            break
    whole = bool(steps) and steps[0][1] == size and vector * size <= CHUNK
    width = vector * size if whole else size
    return _served(tuple(steps), vector, width) / (vector if whole else 1)


@lru_cache(maxsize=4096)
def _served(steps: tuple[tuple[int, int], ...], vector: int, width: int) -> int:
    """How often the first warp's access is served."""
    boxes, distances = zip(*steps, strict=True) if steps else ((), ())
    total = math.prod(boxes)
    return sum(replays((place_of(lane * vector % total, boxes, distances) for lane in range(LANES)), width))
