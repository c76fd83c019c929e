"""Boxes and walks of bandwidth-bound kernels: long runs in every tensor that matters, within a volume.

Knows extents, byte strides and alignments of one group; knows neither plans nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gett.schedule.mainloops.stream import ROW_BYTES
from gett.schedule.spec.mainloop import Digit
from gett.schedule.spec.stream_views import TensorView
from layouts.box import Box, place_of
from layouts.swizzle import replays


def cut_box(
    runs: Sequence[tuple[TensorView, int]],
    growth: Sequence[TensorView],
    volume: int,
    idle: float = 0.25,
    first: Sequence[int] = (),
) -> Box:
    """A box of at most `volume` elements, in the order of the first tensor of `growth`.

    Args:
        runs: Tensors with the bytes that should lie together in each, the first one served first.
        growth: Tensors along whose order the tile then grows to the volume.
        volume: Most elements.
        idle: Exponent of a cut's share of what is allowed: 1 where the threads that it leaves idle cost their time.
        first: Modes along which the tile grows before.
    """
    extents, order = growth[0].extents, growth[0].order()
    cut = [1] * len(extents)
    modes = range(len(extents)) if 0 not in extents else ()

    def lengthen(m: int, wanted: int | float) -> None:
        most = volume // (math.prod(cut) // cut[m])
        if most > cut[m]:  # in whole accesses of 16 bytes
            vector = max((16 // t.size for t, _ in runs if t.strides[m] == t.size), default=1)
            multiple = math.gcd(vector, extents[m] & -extents[m])
            cut[m] = max(cut[m], _pick(extents[m], int(min(most, wanted)), multiple, idle))

    for tensor, target in runs:
        run = 1
        for m in tensor.order(modes):
            if tensor.strides[m] == 0 or run * tensor.size >= target:
                break
            if run > 1 and abs(tensor.strides[m]) != tensor.size * run:
                break
            lengthen(m, -(-target // (tensor.size * run)))
            run *= cut[m]
            if cut[m] < extents[m]:
                break
    for m in (*first, *(m for tensor in growth for m in tensor.order(modes))):
        lengthen(m, math.inf)
    return Box.of_cuts(extents, {m: cut[m] for m in order}, order)


def _pick(extent: int, most: int, multiple: int, idle: float) -> int:
    """A cut of at most `most` that wastes little of the last tile."""
    if extent <= most:
        return extent
    even = -(-extent // -(-extent // most))
    options = {most // multiple * multiple, even // multiple * multiple, -(-even // multiple) * multiple}
    options |= {1 << (most.bit_length() - 1)} | {most // d for d in (2, 3, 4) if extent % (most // d or 1) == 0}
    valid = [c for c in options if 1 <= c <= most and (c % multiple == 0 or most < multiple)] or [1]
    return max(valid, key=lambda c: (extent / (-(-extent // c) * c) * min(1.0, c / most) ** idle, c))


def in_order(box: Box, tensor: TensorView) -> list[int]:
    """Tiled dimensions of a box by distance in a tensor's memory."""
    return sorted((i for i, _ in box.tiled), key=lambda i: abs(tensor.strides[box.dims[i].modes[0]]) or math.inf)


def walk_in_order(box: Box, tensor: TensorView) -> tuple[Digit, ...]:
    """The tile's elements by distance in a tensor's memory."""
    return tuple(Digit(i, 1, box.dims[i].box) for i in in_order(box, tensor))


def walk_in_rows(box: Box, tensor: TensorView, vector: int) -> tuple[Digit, ...]:
    """The tile's elements in a tensor's own order, so that a warp reads whole rows.

    After eight 16-byte accesses along the tensor's run the walk continues in the tile's own order, so that the lanes of
    a warp spread over the shared-memory banks. Vectors that go on from one mode to the next are not divided.
    """
    row, run = 8 * vector, 1
    first: list[Digit] = []
    last: list[Digit] = []
    rest: list[int] = []
    for i in in_order(box, tensor):
        cut = box.dims[i].box
        if (run >= row and run % vector == 0) or tensor.strides[box.dims[i].modes[0]] == 0:
            rest.append(i)
        elif not first and cut > row and cut % row == 0:
            first.append(Digit(i, 1, row))
            last.append(Digit(i, row, cut // row))
            run = row
        else:
            first.append(Digit(i, 1, cut))
            run *= cut
    return (*first, *(Digit(i, 1, box.dims[i].box) for i in sorted(rest)), *last)


def walk_index(places: Sequence[int], walk: Sequence[Digit], i: int) -> int:
    """Index in the image of position `i` of a walk; `places` are the distances along the box's dimensions."""
    return place_of(i, (digit.size for digit in walk), (digit.step * places[digit.dim] for digit in walk))


def swizzled(byte: int, mask: int, shift: int) -> int:
    """Where byte `byte` of a dense tile lies in its swizzled image in shared memory."""
    return byte ^ (((byte // ROW_BYTES >> shift) & mask) << 4)


def choose_swizzle(places: Sequence[int], walk: Sequence[Digit], vector: int, size: int) -> tuple[int, int]:
    """(mask, shift) that lets a warp store its vectors element by element with the fewest bank conflicts.

    Reads are free of conflicts in any case: they follow the dense order.
    """
    lanes = min(32, math.prod(digit.size for digit in walk) // vector)
    accesses = [[walk_index(places, walk, lane * vector + j) * size for lane in range(lanes)] for j in {0, vector - 1}]

    def served(swizzle: tuple[int, int]) -> int:
        return sum(sum(replays([swizzled(x, *swizzle) for x in at], size)) for at in accesses)

    return min(((0, 0), *((7, shift) for shift in range(9))), key=served)
