"""Boxes: how a group of modes is cut into tiles.

Owns the mapping from (tile number, index inside the tile) to one coordinate per mode. Knows neither einsum nor CUDA;
the code generator prints the same mapping that `Box.coordinates` evaluates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from layouts.domains import Count, Index, Size


def place_of(index: int, extents: Iterable[int], steps: Iterable[int]) -> int:
    """Where an index lies whose digits, the fastest first, have these extents and take these steps (CuTe: crd2idx)."""
    place = 0
    for extent, step in zip(extents, steps, strict=True):
        place += index % extent * step
        index //= extent
    return place


@dataclass(frozen=True, slots=True)
class TileDim:
    """One dimension of a box.

    Attributes:
        modes: Positions in the group of the modes that are flattened into this dimension, fastest first. One mode is
            the usual case; several are cut as if they were a single mode of the product extent.
        box: Extent of the tile along the (flattened) dimension, at least 1.
    """

    modes: tuple[Index, ...]
    box: Count

    def __post_init__(self) -> None:
        if self.box < 1 or not self.modes:
            raise ValueError(f"a tile dimension needs modes and a box of at least 1, got {self}")


@dataclass(frozen=True)
class Box:
    """A box over a group of modes: tile dimensions in the order of the tile's index, fastest first.

    A search asks each of some thousand boxes for the same few numbers, and for its hash, over and over: they are kept.

    Attributes:
        extents: Extent of each mode of the group.
        dims: The tile dimensions; every mode of the group occurs in exactly one of them.
    """

    extents: tuple[Size, ...]
    dims: tuple[TileDim, ...]

    @classmethod
    def of_cuts(cls, extents: Sequence[int], cuts: Mapping[int, int], rest: Iterable[int] | None = None) -> Box:
        """The box that takes `cuts[m]` of mode m; modes that it takes 1 of are walked tile by tile.

        Args:
            extents: Extent of each mode of the group.
            cuts: Box extent by mode, the tile's fastest dimension first.
            rest: The order in which tiles walk the modes of cut 1, the fastest first. Default: as they come.
        """
        dims = [TileDim((m,), cut) for m, cut in cuts.items() if cut > 1]
        ones = tuple(m for m in (range(len(extents)) if rest is None else rest) if cuts.get(m, 1) == 1)
        return cls(tuple(extents), (*dims, *((TileDim(ones, 1),) if ones else ())))

    def behind(self, mode: int, extent: int, cut: int) -> Box:
        """This box with one more mode, at position `mode` of the group, as the tile's fastest dimension."""
        dims = tuple(TileDim(tuple(m + (m >= mode) for m in d.modes), d.box) for d in self.dims)
        extents = (*self.extents[:mode], extent, *self.extents[mode:])
        return Box(extents, (TileDim((mode,), cut), *dims))

    def led_by(self, mode: int) -> Box:
        """This box with the dimension of a mode as the tile's fastest."""
        if mode in self.dims[0].modes:
            return self
        return Box(self.extents, tuple(sorted(self.dims, key=lambda d: mode not in d.modes)))

    def walked(self, strides: Sequence[int], *, tiled: bool) -> Box:
        """This box whose tiles follow each other along a tensor's memory.

        Args:
            strides: Of the tensor along the modes, 0 where it does not vary.
            tiled: Whether dimensions of which a tile has several elements change places, too, and with them its index.
        """
        single = [TileDim((m,), 1) for d in self.dims if d.box == 1 for m in d.modes]

        def far(dim: TileDim) -> float:
            return abs(strides[dim.modes[0]]) or math.inf

        dims = [d for _, d in self.tiled]
        for dim in sorted(single, key=far):
            at = next((i for i, d in enumerate(dims) if far(d) > far(dim)), len(dims))
            dims.insert(at, dim)
        return Box(self.extents, tuple(sorted(dims, key=far) if tiled else dims))

    def divided(self, parts: int) -> Box:
        """One of so many parts of this box, which divide its last tiled dimension."""
        if parts == 1:
            return self
        last, whole = self.tiled[-1]
        part = TileDim(whole.modes, max(1, whole.box // parts))
        return Box(self.extents, (*self.dims[:last], part, *self.dims[last + 1 :]))

    def __post_init__(self) -> None:
        seen = sorted(m for d in self.dims for m in d.modes)
        if seen != list(range(len(self.extents))):
            raise ValueError(f"tile dimensions {self.dims} do not cover modes of extents {self.extents} once each")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.extents, self.dims))

    @cached_property
    def dim_extents(self) -> tuple[int, ...]:
        """Extent of each flattened dimension."""
        return tuple(math.prod(self.extents[m] for m in d.modes) for d in self.dims)

    def dim_extent(self, i: int) -> int:
        """Extent of the flattened dimension `i`."""
        return self.dim_extents[i]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of one tile along each dimension."""
        return tuple(d.box for d in self.dims)

    @cached_property
    def size(self) -> int:
        """Elements in one tile."""
        return math.prod(d.box for d in self.dims)

    @cached_property
    def cut(self) -> tuple[int, ...]:
        """Box extent of each mode; of modes that are flattened into one dimension, the first has it all."""
        cut = [1] * len(self.extents)
        for d in self.dims:
            cut[d.modes[0]] = d.box
        return tuple(cut)

    @cached_property
    def tiled(self) -> tuple[tuple[int, TileDim], ...]:
        """Position and dimension of those longer than 1."""
        return tuple((i, d) for i, d in enumerate(self.dims) if d.box > 1)

    @cached_property
    def flattens(self) -> bool:
        """Whether a tiled dimension has several modes."""
        return any(len(d.modes) > 1 for _, d in self.tiled)

    @cached_property
    def ragged(self) -> int:
        """How many tiled dimensions the box does not divide."""
        return sum(not self.divides(i) for i, _ in self.tiled)

    def prefix(self, i: int) -> int:
        """Distance in the tile's index between neighbours along dimension `i`."""
        return math.prod(d.box for d in self.dims[:i])

    @cached_property
    def tiles_per_dim(self) -> tuple[int, ...]:
        """Number of tiles along each dimension, the last one possibly ragged."""
        return tuple(-(-e // d.box) for e, d in zip(self.dim_extents, self.dims, strict=True))

    @cached_property
    def tiles(self) -> int:
        """Number of tiles over the whole group."""
        return math.prod(self.tiles_per_dim)

    @cached_property
    def volume(self) -> int:
        """Elements of the whole group."""
        return math.prod(self.extents)

    def efficiency(self, block: int | None = None) -> float:
        """Share of the work in tiles of `block` elements (default: the box) that is not padding, in (0, 1]."""
        return self.volume / (self.tiles * (block or self.size)) if self.tiles else 1.0

    def divides(self, i: int) -> bool:
        """Whether the box divides dimension `i` without a ragged tile."""
        return self.dim_extent(i) % self.dims[i].box == 0

    def origin(self, tile: int) -> tuple[int, ...]:
        """First flattened coordinate along each dimension of tile number `tile`, the first dimension fastest."""
        out = []
        for d, n in zip(self.dims, self.tiles_per_dim, strict=True):
            out.append(tile % n * d.box)
            tile //= n
        return tuple(out)

    def coordinates(self, tile: int, local: int) -> tuple[int, ...] | None:
        """Coordinate of each mode at index `local` of tile `tile`, or None where that lies in the padding."""
        if local >= self.size:
            return None
        result = [0] * len(self.extents)
        for i, (d, start) in enumerate(zip(self.dims, self.origin(tile), strict=True)):
            x = start + local % d.box
            local //= d.box
            if x >= self.dim_extent(i):
                return None
            for m in d.modes:
                result[m] = x % self.extents[m]
                x //= self.extents[m]
        return tuple(result)
