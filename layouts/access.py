"""What the strides of a tensor allow: alignment, vector width, contiguous runs.

Knows extents, byte strides and boxes; neither einsum nor CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter

from layouts.box import Box

BoxStrides = tuple[Box, Sequence[int]]
"""A box, and the byte stride of each of its modes in a tensor."""


def alignment(address_alignment: int, strides: Sequence[int], limit: int = 256) -> int:
    """Largest power of two, at most `limit`, that divides the address of every element.

    Args:
        address_alignment: Alignment in bytes of the element at coordinate 0, or its address; 0 counts as aligned.
        strides: Byte strides of the modes that are walked (leave out the unit mode to get the rows' alignment).
        limit: A power of two.
    """
    both = math.gcd(limit, address_alignment, *strides)
    return both & -both


def max_vector(itemsize: int, run: int, strides: Sequence[int], base_alignment: int, limit: int = 16) -> int:
    """Widest access along the unit-stride mode, in elements (a power of two, at least 1).

    Every vector starts at a multiple of its own size in memory and ends inside its row.

    Args:
        itemsize: Bytes of an element.
        run: Extent of the unit-stride mode; where tiles cut it, the greatest common divisor of extent and box.
        strides: Byte strides of all other modes (those of extent 1 left out).
        base_alignment: Alignment in bytes of the element at coordinate 0.
        limit: Widest access in bytes.
    """
    allowed = alignment(base_alignment, strides, limit)
    vector = 1
    while 2 * vector * itemsize <= allowed and run % (2 * vector) == 0:
        vector *= 2
    return vector


def contiguous_run(box: Box, strides: Sequence[int], itemsize: int) -> int:
    """Bytes that lie together in memory when one full tile of a tensor is read or written.

    A mode that the box covers whole is joined with its neighbour in this tensor's memory, whatever other tensors look
    like. A flattened dimension may be cut across its modes, so that tiles start in the middle of a row. Then the mean
    over all tiles is returned (rounded down to elements).

    Args:
        box: How the modes are cut.
        strides: Byte stride of each mode of the box in this tensor; 0 where it does not vary.
        itemsize: Bytes of an element.
    """
    return run_of_boxes(((box, strides),), itemsize)


def run_of_boxes(boxes: Iterable[BoxStrides], itemsize: int) -> int:
    """`contiguous_run` of a tensor whose modes lie in several groups, each with its box."""
    # (stride, elements taken, whether they are the whole mode); the direction of a walk does not matter to memory
    parts: list[tuple[int, int, bool]] = []
    for box, strides in boxes:
        for i, dim in box.tiled:
            if len(dim.modes) > 1:
                parts += _flattened_parts(box, i, strides)
            elif stride := strides[dim.modes[0]]:
                extent = box.extents[dim.modes[0]]
                parts.append((abs(stride), min(dim.box, extent), dim.box >= extent))
    run, whole = 1, True
    while whole:
        at = run * itemsize
        step = next((part for part in parts if part[0] == at), None)
        if step is None:
            break
        parts.remove(step)
        run, whole = run * step[1], step[2]
    return run * itemsize


def _flattened_parts(box: Box, i: int, strides: Sequence[int]) -> list[tuple[int, int, bool]]:
    """What a tile takes of the modes that are flattened into dimension `i`."""
    parts = []
    left = min(box.dims[i].box, box.dim_extent(i))
    segments = _segments(box.dims[i].modes, box.extents, strides)
    for j, (stride, extent) in enumerate(segments):
        if left % extent == 0 or extent % left == 0 or (left < extent and j == len(segments) - 1):
            taken, whole = min(left, extent), left >= extent
        else:
            taken, whole = _mean_run(left, extent), False
        left = left // extent if whole else 1
        if stride and taken > 1:
            parts.append((abs(stride), taken, whole))
    return parts


def alignment_of_boxes(boxes: Iterable[BoxStrides], run_bytes: int, base_alignment: int = 256) -> int:
    """Alignment in bytes (a power of two up to 256) of the starts of a tile's contiguous runs, over all tiles.

    Args:
        boxes: Of the groups in which the tensor's modes lie.
        run_bytes: Length of the runs, as `run_of_boxes` gives it.
        base_alignment: Alignment of the element at coordinate 0.
    """
    steps = []
    for box, strides in boxes:
        extents = box.extents
        for i, dim in enumerate(box.dims):
            single = len(dim.modes) == 1
            for m in dim.modes:
                stride = strides[m]
                if not stride or extents[m] == 1:
                    continue
                if abs(stride) >= run_bytes:
                    steps.append(stride)
                elif dim.box < (extents[m] if single else box.dim_extent(i)):  # cut
                    steps.append(stride * dim.box if single else stride)
    return alignment(base_alignment, steps)


class Runs:
    """Contiguous runs of a tensor in tiles: what all boxes of its modes, which lie in some groups, have in common.

    Attributes:
        groups: The strides of each group.
        itemsize: Bytes of an element.
        modes: Those that the tensor varies along, the nearest first: distance, position, extent, and the alignment that
            this distance and those of farther ones have in common.
    """

    def __init__(self, groups: Sequence[Sequence[int]], extents: Sequence[int], itemsize: int) -> None:
        self.groups, self.itemsize = groups, itemsize
        strides = [stride for group in groups for stride in group]
        varying = ((abs(s), i, e) for i, (s, e) in enumerate(zip(strides, extents, strict=True)) if s and e > 1)
        modes = sorted(varying, key=itemgetter(0))
        self.modes = [(*x, alignment(0, [far for far, _, _ in modes[i:]])) for i, x in enumerate(modes)]

    def of_boxes(self, *boxes: Box) -> tuple[int, int]:
        """`run_of_boxes` and `alignment_of_boxes` of a box of each group."""
        if not any(box.flattens for box in boxes):
            return self.of_cut([cut for box in boxes for cut in box.cut])
        both = tuple(zip(boxes, self.groups, strict=True))
        run = run_of_boxes(both, self.itemsize)
        return run, alignment_of_boxes(both, run)

    def of_cut(self, cut: Sequence[int]) -> tuple[int, int]:
        """The same where a tile takes so many elements of each mode."""
        run, aligned, whole = self.itemsize, 256, True
        for distance, i, extent, common in self.modes:
            if distance > run or (distance == run and not whole):
                return run, math.gcd(aligned, common)
            taken = cut[i]
            if distance == run and taken > 1:
                run, whole = run * min(taken, extent), taken >= extent
            if taken < extent:
                aligned = math.gcd(aligned, distance * taken)
        return run, aligned


def _segments(modes: Sequence[int], extents: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """(stride, extent) of a flattened dimension's modes, those that are one mode in this tensor joined."""
    out: list[tuple[int, int]] = []
    for m in modes:
        if extents[m] == 1:
            continue
        if out and strides[m] == out[-1][0] * out[-1][1]:
            out[-1] = (out[-1][0], out[-1][1] * extents[m])
        else:
            out.append((strides[m], extents[m]))
    return out


def _mean_run(box: int, extent: int) -> int:
    """Mean piece of a line cut at all multiples of `box` and of `extent`."""
    line = math.lcm(box, extent)
    return line // (line // box + line // extent - 1)
