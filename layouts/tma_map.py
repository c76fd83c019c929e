"""TMA expressibility: whether one tensor map can move boxes of a strided tensor, and what that map is.

Owns the hardware's rules for tensor maps (CUDA driver API, `cuTensorMapEncodeTiled`; PTX ISA, "Tensors") as arithmetic
on extents and byte strides. Encodes nothing and calls no driver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from layouts.modes import Strided, unit_mode
from layouts.swizzle import CHUNK, SWIZZLES
from layouts.tma import MAX_BOX, MAX_RANK, ModeMap, TmaMap, halves

MAX_EXTENT = 2**31  # the driver takes 2**32, but a copy's coordinates are signed 32-bit numbers
MAX_STRIDE = 2**40  # bytes, exclusive


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no map can do it, in words."""

    reason: str


@dataclass(slots=True)
class _Dim:
    """A dimension being built: the tensor's modes in it with their weights."""

    extent: int
    stride: int
    box: int
    modes: list[tuple[int, int]]

    @property
    def name(self) -> str:
        """The modes, for messages."""
        return "+".join(str(m) for m, _ in self.modes)


def tma_map(
    extents: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    box: Sequence[int],
    *,
    order: Sequence[int] | None = None,
    unit: int | None = None,
    base_alignment: int = 16,
    swizzle_bytes: int = CHUNK,
    row: int = 0,
) -> TmaMap | Refusal:
    """The tensor map that moves tiles of `box` elements, or the reason why there is none.

    Modes that the box covers whole are merged with the next mode of the tile if no gap separates them in memory. Modes
    with a box of 1 are folded into one dimension when there are too many. A run longer than the swizzle is moved in
    several slabs.

    Args:
        extents: Extent of each mode.
        strides: Bytes between neighbours along each mode.
        itemsize: Bytes of an element: 1, 2, 4, 8 or 16.
        box: Extent of the tile along each mode; it may exceed the mode's (the rest reads as zero).
        order: Modes in the order of the tile's index, fastest first; the unit mode goes first in any case.
            Default: as they come.
        unit: The mode that becomes dimension 0. Default: the mode of stride `itemsize`.
        base_alignment: Alignment in bytes of the element at coordinate 0.
        swizzle_bytes: Swizzle in bytes, 16 for none.
        row: Elements of one copy along dimension 0; a longer run is moved in several slabs whatever the swizzle. 0
            leaves it to the swizzle.

    Returns:
        A `TmaMap`, or a `Refusal`.

    Raises:
        ValueError: The arguments do not belong together (lengths, an unknown swizzle).
    """
    rank = len(extents)
    if not len(strides) == len(box) == rank or sorted(order or range(rank)) != list(range(rank)):
        raise ValueError(f"extents {extents}, strides {strides}, box {box}, order {order} do not belong together")
    if swizzle_bytes != CHUNK and swizzle_bytes not in SWIZZLES:
        raise ValueError(f"no hardware swizzle spans {swizzle_bytes} bytes; there are {SWIZZLES}, and 16 for none")
    if unit is None:
        unit = unit_mode([Strided((), e, (s,)) for e, s in zip(extents, strides, strict=True)], 0, itemsize)
    refusal = _refuse_modes(extents, strides, itemsize, box, unit, base_alignment)
    if refusal or unit is None:
        return Refusal(refusal)
    sequence = (unit, *(m for m in (order or range(rank)) if m != unit))
    kept = [m for m in sequence if m == unit or box[m] > 1 or (extents[m] > 1 and strides[m])]
    # The only neighbour of a mode of extent 1 is out of bounds, so its stride may be any legal one.
    dims = [_Dim(extents[m], abs(strides[m]) if extents[m] > 1 else CHUNK, box[m], [(m, 1)]) for m in kept]
    dims[0].stride = itemsize
    _merge(dims, itemsize, swizzle_bytes, row)
    inner, slabs = dims[0].box * itemsize, 1
    if row:
        if dims[0].box % row:
            return Refusal(f"a run of {dims[0].box} elements along mode {unit} is no multiple of {row}")
        slabs = dims[0].box // row
        dims[0].box = row
    elif swizzle_bytes > CHUNK and inner > swizzle_bytes:
        if inner % swizzle_bytes:
            return Refusal(f"a run of {inner} bytes along mode {unit} is no multiple of the swizzle's {swizzle_bytes}")
        slabs = inner // swizzle_bytes
        dims[0].box //= slabs
    refusal = _refuse_strides(dims) or _fold(dims) or _refuse_dims(dims, itemsize)
    if refusal:
        return Refusal(refusal)
    modes = [ModeMap(0, 0)] * rank
    base = 0
    for i, d in enumerate(dims):
        for m, weight in d.modes:
            down = strides[m] < 0  # counted from the far end, so that the map's own stride is positive
            base += (extents[m] - 1) * strides[m] if down else 0
            modes[m] = ModeMap(i, -weight, (extents[m] - 1) * weight) if down else ModeMap(i, weight)
    if math.gcd(base_alignment, base) % CHUNK:
        return Refusal(f"the first element in memory is {base} bytes from element 0, no multiple of {CHUNK}")
    return TmaMap(
        tuple(d.extent for d in dims),
        tuple(d.stride for d in dims),
        tuple(d.box for d in dims),
        swizzle_bytes,
        slabs,
        base,
        tuple(modes),
        sequence,
        tuple(box),
    )


def _refuse_modes(
    extents: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    box: Sequence[int],
    unit: int | None,
    base_alignment: int,
) -> str:
    """What forbids a map whatever its dimensions are, or an empty text."""
    if itemsize not in (1, 2, 4, 8, 16):
        return f"elements of {itemsize} bytes; a map takes 1, 2, 4, 8 or 16"
    if 0 in extents:
        return f"mode {list(extents).index(0)} is empty"
    if base_alignment % CHUNK:
        return f"the address is a multiple of {base_alignment} bytes, a map's of {CHUNK}"
    if unit is None:
        return f"no mode has the stride {itemsize} of neighbouring elements"
    if strides[unit] != itemsize:
        return f"mode {unit} has stride {strides[unit]}, dimension 0 of a map needs {itemsize}"
    for m, (e, s, b) in enumerate(zip(extents, strides, box, strict=True)):
        if b < 1:
            return f"mode {m} has a box of {b}"
        if e > 1 and b > 1 and s <= 0:
            what = "does not vary" if s == 0 else "runs backwards"
            return f"mode {m} {what} in memory and has a box of {b}; a map moves such modes with a box of 1 only"
    return ""


def _merge(dims: list[_Dim], itemsize: int, swizzle: int, row: int) -> None:
    """Merge a dimension that the box covers whole with one that continues it in memory.

    That one must be next in the tile's index, or have a box of 1: then its place there does not matter.
    """
    i = 0
    while i < len(dims):
        a = dims[i]
        for j, b in enumerate(dims[i + 1 :], i + 1):
            together = a.box * b.box
            fits = together * (halves(itemsize) if i == 0 else 1) <= MAX_BOX
            if i == 0 and row:
                fits = a.box < row or b.box == 1  # slabs divide the run where it is too long for one copy
            elif i == 0 and swizzle > CHUNK:
                # A row of the image is at most as long as the swizzle. A longer run takes several copies, so it must
                # be a multiple of it, and is not worth it where the rows are multiples already.
                run = together * itemsize
                fits = run <= swizzle or b.box == 1 or (run % swizzle == 0 and a.box * itemsize % swizzle != 0)
            near = all(d.box == 1 for d in dims[i + 1 : j]) or b.box == 1
            if near and fits and a.box == a.extent and b.stride == a.stride * a.extent:
                modes = a.modes + [(m, w * a.extent) for m, w in b.modes]
                dims[i] = _Dim(a.extent * b.extent, a.stride, together, modes)
                del dims[j]
                break
        else:
            i += 1


def _fold(dims: list[_Dim]) -> str:
    """Bring the map to at most five dimensions: those with a box of 1 become one of stride gcd. Returns a refusal."""
    if len(dims) <= MAX_RANK:
        return ""
    ones = [d for d in dims[1:] if d.box == 1]
    tiled = [dims[0], *(d for d in dims[1:] if d.box > 1)]
    if len(tiled) + bool(ones) > MAX_RANK:
        rest = " and one for all others" if ones else ""
        return f"{len(tiled)} tiled modes{rest}; a map has at most {MAX_RANK} dimensions"
    step = math.gcd(*(d.stride for d in ones))
    extent = 1 + sum((d.extent - 1) * (d.stride // step) for d in ones)
    dims[:] = [*tiled, _Dim(extent, step, 1, [(m, w * (d.stride // step)) for d in ones for m, w in d.modes])]
    return ""


def _refuse_strides(dims: list[_Dim]) -> str:
    for d in dims[1:]:
        if d.stride % CHUNK or not 0 < d.stride < MAX_STRIDE:
            return f"mode {d.name} has a stride of {d.stride} bytes, not a multiple of {CHUNK} below 2**40"
    return ""


def _refuse_dims(dims: list[_Dim], itemsize: int) -> str:
    if (inner := dims[0].box * itemsize) % CHUNK:
        return f"the box's run along mode {dims[0].name} is {inner} bytes, no multiple of {CHUNK}"
    for i, d in enumerate(dims):
        count = halves(itemsize) if i == 0 else 1
        if d.box * count > MAX_BOX:
            return f"a box of {d.box} elements along mode {d.name}; a map's has at most {MAX_BOX // count}"
        if d.extent * count > MAX_EXTENT:
            return f"extent {d.extent} along mode {d.name}; a coordinate has 31 bits"
    return ""
