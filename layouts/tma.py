"""Tensor maps: dimensions, box and swizzle of one, and where it finds elements in memory and in shared memory.

Which boxes a map can move is `tma_map`'s. Encodes nothing and calls no driver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from layouts.domains import Count, Index, Signed, Size, Span, Swizzle
from layouts.swizzle import CHUNK, swizzle_address

MAX_BOX = 256  # elements along one dimension of a box
MAX_RANK = 5
WIDEST = 8  # bytes of the hardware's elements


@dataclass(frozen=True, slots=True)
class ModeMap:
    """Where a mode of the tensor went: it adds `weight * coordinate + start` to coordinate `dim` of the map.

    A mode that the map does not need (extent 1, or stride 0 with a box of 1) has weight 0.
    """

    dim: Index
    weight: Signed
    start: Signed = 0


@dataclass(frozen=True, slots=True)
class TmaMap:
    """A tensor map for boxes of one tensor, dimension 0 the unit-stride one.

    The hardware has no elements of 16 bytes. Its map has two of 8 in place of each, along dimension 0: `halves`.

    Attributes:
        extents: Of each dimension of the map.
        strides: Bytes, of each dimension; the first is the element's size (the driver takes the others only).
        box: Elements of one copy along each dimension.
        swizzle_bytes: Swizzle in bytes: 128, 64, 32, or 16 for none.
        slabs: Copies per tile. Copy i starts `i * box[0]` further along dimension 0 and lies `i * slab_bytes` further
            in shared memory.
        base_offset: Bytes from the element at coordinate 0 to the map's address (not 0 where strides are negative).
        modes: Per mode of the tensor, how its coordinate enters the map's.
        order: Modes of the tensor in the order of the tile's index in shared memory, fastest first.
        tile: Box extent of each mode of the tensor.
    """

    extents: Annotated[tuple[Size, ...], Span(1, MAX_RANK)]
    strides: Annotated[tuple[Size, ...], Span(1, MAX_RANK)]
    box: Annotated[tuple[Annotated[int, Span(1, MAX_BOX)], ...], Span(1, MAX_RANK)]
    swizzle_bytes: Swizzle
    slabs: Count
    base_offset: Signed
    modes: tuple[ModeMap, ...]
    order: tuple[Index, ...]
    tile: tuple[Count, ...]

    @property
    def rank(self) -> int:
        """Dimensions of the map."""
        return len(self.extents)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.strides[0]

    @property
    def halves(self) -> int:
        """The hardware's elements in one of the map, by which its extent, box and coordinates of dimension 0 count."""
        return halves(self.itemsize)

    @property
    def pitch(self) -> int:
        """Bytes from row to row in shared memory: a swizzled row takes the whole swizzle, however short its run."""
        return self.swizzle_bytes if self.swizzle_bytes > CHUNK else self.box[0] * self.itemsize

    @property
    def slab_bytes(self) -> int:
        """Shared memory that one copy takes."""
        return self.pitch * math.prod(self.box[1:])

    @property
    def transaction_bytes(self) -> int:
        """Bytes that one copy adds to the barrier's count, also where part of the box is out of bounds."""
        return self.itemsize * math.prod(self.box)

    def coordinates(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Coordinate in the map of a coordinate of the tensor (of a tile's origin: where the copy starts)."""
        out = [0] * self.rank
        for c, m in zip(coords, self.modes, strict=True):
            out[m.dim] += m.weight * c + m.start
        return tuple(out)

    def element_offset(self, coords: Sequence[int]) -> int | None:
        """Bytes from the tensor's element 0 to what the map reads at a coordinate, None where it reads zero.

        The coordinate lies in a tile whose origin is inside the tensor and a multiple of the box in every mode.
        """
        at = self.coordinates(coords)
        if not all(0 <= x < e for x, e in zip(at, self.extents, strict=True)):
            return None
        return self.base_offset + sum(x * s for x, s in zip(at, self.strides, strict=True))

    def smem_offset(self, local: Sequence[int]) -> int:
        """Byte in the tile's image in shared memory of the element at `local`, a coordinate inside the box."""
        at = [0] * self.rank
        for c, m in zip(local, self.modes, strict=True):
            at[m.dim] += abs(m.weight) * c
        slab, at[0] = divmod(at[0], self.box[0])
        row = 0
        for x, b in zip(reversed(at[1:]), reversed(self.box[1:]), strict=True):
            row = row * b + x
        return slab * self.slab_bytes + swizzle_address(self.swizzle_bytes, row * self.pitch + at[0] * self.itemsize)


def halves(itemsize: int) -> int:
    """The hardware's elements in one of `itemsize` bytes."""
    return max(1, itemsize // WIDEST)
