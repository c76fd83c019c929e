"""Boxes and vector widths of the `stream` family: long runs in every tensor that matters, within a volume.

Knows extents, byte strides and alignments of one group; knows neither plans nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gett.schedule.stream_records import Digit
from layouts.access import max_vector
from layouts.box import Box, TileDim
from layouts.swizzle import replays

LINE = 128  # bytes of a shared-memory row, and of what a warp should read in one piece at least


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's view of a group.

    Attributes:
        strides: Bytes along each mode of the group.
        others: Bytes along all modes outside the group.
        size: Bytes of an element.
        alignment: Of the element at coordinate 0.
        bytes: Its distinct elements, all groups.
        store: Whether it is written.
    """

    strides: tuple[int, ...]
    others: tuple[int, ...]
    size: int
    alignment: int
    bytes: int
    store: bool = False

    def order(self, extents: Sequence[int]) -> list[int]:
        """Modes by distance in memory, those that it does not vary along last."""
        return sorted((m for m in range(len(extents))), key=lambda m: abs(self.strides[m]) or math.inf)

    def lead(self, modes: Sequence[int]) -> int | None:
        """The nearest of `modes` in memory, None where it varies along none of them."""
        return min((m for m in modes if self.strides[m]), key=lambda m: abs(self.strides[m]), default=None)


def cut_box(
    extents: Sequence[int], wants: Sequence[tuple[Tensor, int]], fill: Sequence[Tensor], volume: int
) -> list[int]:
    """The extent of a tile along each mode, the product at most `volume`.

    Args:
        extents: Of the modes.
        wants: Tensors with the bytes that should lie together in each, served in turn.
        fill: Tensors along whose order the tile then grows to the volume.
        volume: Most elements.
    """
    cut = [1] * len(extents)
    if 0 in extents:
        return cut
    for tensor, target in wants:
        run = 1
        for m in tensor.order(extents):
            if tensor.strides[m] == 0 or run * tensor.size >= target:
                break
            if run > 1 and abs(tensor.strides[m]) != tensor.size * run:
                break
            room = volume // (math.prod(cut) // cut[m])
            wanted = -(-target // (tensor.size * run))
            cut[m] = max(cut[m], _pick(extents[m], min(room, wanted), _grain(extents[m], m, wants)))
            run *= cut[m]
            if cut[m] < extents[m]:
                break
    for tensor in fill:
        for m in tensor.order(extents):
            room = volume // (math.prod(cut) // cut[m])
            if room > cut[m]:
                cut[m] = max(cut[m], _pick(extents[m], room, _grain(extents[m], m, wants)))
    return cut


def _grain(extent: int, mode: int, wants: Sequence[tuple[Tensor, int]]) -> int:
    """What cuts of a mode should be a multiple of, so that 16-byte accesses stay whole."""
    grain = max((16 // t.size for t, _ in wants if t.strides[mode] == t.size), default=1)
    return math.gcd(grain, extent & -extent)


def _pick(extent: int, room: int, grain: int) -> int:
    """A cut of at most `room` that wastes little of the last tile."""
    if extent <= room:
        return extent
    even = -(-extent // -(-extent // room))
    options = {room // grain * grain, even // grain * grain, -(-even // grain) * grain, 1 << (room.bit_length() - 1)}
    options |= {room // d for d in (2, 3, 4) if extent % (room // d or 1) == 0}
    valid = [c for c in options if 1 <= c <= room and (c % grain == 0 or room < grain)] or [1]
    return max(valid, key=lambda c: (extent / (-(-extent // c) * c) * min(1.0, c / room) ** 0.25, c))


def make_box(extents: Sequence[int], cut: Sequence[int], order: Sequence[int]) -> Box:
    """The box whose index runs through the cut modes in `order`; the others are walked tile by tile."""
    dims = [TileDim((m,), cut[m]) for m in order if cut[m] > 1]
    rest = tuple(m for m in order if cut[m] == 1)
    return Box(tuple(extents), (*dims, *((TileDim(rest, 1),) if rest else ())))


def cut_dims(box: Box) -> list[tuple[int, int]]:
    """(mode, cut) of the box's dimensions that are longer than 1."""
    return [(d.modes[0], d.box) for d in box.dims if d.box > 1]


def vector_along(dims: Sequence[tuple[int, int]], extents: Sequence[int], tensor: Tensor) -> int:
    """Widest access (up to 16 bytes) in elements along the index that `dims` form, fastest first.

    A mode that the tile covers whole continues into the next where the tensor has no gap there.
    """
    run, inside = 1, []
    for mode, cut in dims:
        if tensor.strides[mode] != tensor.size * run:
            break
        inside.append(mode)
        run *= math.gcd(extents[mode], cut)
        if cut < extents[mode]:
            break
    rest = [s for m, s in enumerate(tensor.strides) if m not in inside and extents[m] > 1]
    return max_vector(tensor.size, run, [*rest, *tensor.others], tensor.alignment)


def is_splat(dims: Sequence[tuple[int, int]], tensor: Tensor, vector: int) -> bool:
    """Whether the tensor is constant along each `vector` elements of the index, counted from 0."""
    covered = 1
    for mode, cut in dims:
        if covered % vector == 0:
            break
        if tensor.strides[mode]:
            return False
        covered *= cut
    return True


def walk_box(box: Box, tensor: Tensor, vector: int) -> tuple[Digit, ...]:
    """The tile's elements in a tensor's own order, so that a warp reads whole lines.

    After eight 16-byte accesses along the tensor's run the walk turns to the tile's own order, so that the lanes of a
    warp spread over the shared-memory banks. Vectors that go on from one mode to the next are not parted.
    """
    dims = [i for i, d in enumerate(box.dims) if d.box > 1]
    order = sorted(dims, key=lambda i: abs(tensor.strides[box.dims[i].modes[0]]) or math.inf)
    line, run = 8 * vector, 1
    first: list[Digit] = []
    tail: list[Digit] = []
    rest: list[int] = []
    for i in order:
        cut = box.dims[i].box
        if (run >= line and run % vector == 0) or tensor.strides[box.dims[i].modes[0]] == 0:
            rest.append(i)
        elif not first and cut > line and cut % line == 0:
            first.append(Digit(i, 1, line))
            tail.append(Digit(i, line, cut // line))
            run = line
        else:
            first.append(Digit(i, 1, cut))
            run *= cut
    return (*first, *(Digit(i, 1, box.dims[i].box) for i in sorted(rest)), *tail)


def walk_in_order(box: Box, tensor: Tensor) -> tuple[Digit, ...]:
    """The tile's elements by distance in a tensor's memory."""
    dims = [i for i, d in enumerate(box.dims) if d.box > 1]
    order = sorted(dims, key=lambda i: abs(tensor.strides[box.dims[i].modes[0]]) or math.inf)
    return tuple(Digit(i, 1, box.dims[i].box) for i in order)


def walk_index(box: Box, walk: Sequence[Digit], i: int) -> int:
    """Tile index of position `i` of a walk."""
    total = 0
    for digit in walk:
        prefix = math.prod(d.box for d in box.dims[: digit.dim])
        total += i % digit.size * digit.step * prefix
        i //= digit.size
    return total


def swizzled(byte: int, mask: int, shift: int) -> int:
    """Where byte `byte` of a dense tile lies in its swizzled image in shared memory."""
    return byte ^ (((byte // LINE >> shift) & mask) << 4)


def choose_swizzle(box: Box, walk: Sequence[Digit], vector: int, size: int) -> tuple[int, int]:
    """(mask, shift) that lets a warp store its vectors element by element with the fewest bank conflicts.

    Reads are free of conflicts in any case: they follow the dense order.
    """
    lanes = min(32, box.size // vector)
    accesses = [[walk_index(box, walk, lane * vector + j) * size for lane in range(lanes)] for j in {0, vector - 1}]
    best, fewest = (0, 0), math.inf
    for mask, shift in ((0, 0), *((7, s) for s in range(9))):
        served = sum(sum(replays([swizzled(x, mask, shift) for x in at], size)) for at in accesses)
        if served < fewest:
            best, fewest = (mask, shift), served
    return best
