"""Boxes: how a group of modes is cut into tiles.

Owns the mapping from (tile number, index inside the tile) to one coordinate per mode. Knows neither einsum nor CUDA;
the code generator prints the same mapping that `Box.coordinates` evaluates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class TileDim:
    """One dimension of a box.

    Attributes:
        modes: Positions in the group of the modes that are flattened into this dimension, fastest first. One mode is
            the usual case; several are cut as if they were a single mode of the product extent.
        box: Extent of the tile along the (flattened) dimension, at least 1.
    """

    modes: tuple[int, ...]
    box: int

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

    extents: tuple[int, ...]
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


def flat_box(extents: Sequence[int], block: int) -> Box:
    """The box that flattens the whole group and cuts it into tiles of `block` elements."""
    if not extents:
        return Box((), ())
    return Box(tuple(extents), (TileDim(tuple(range(len(extents))), block),))


def boxes(
    extents: Sequence[int],
    block: int,
    *,
    prefer: Sequence[int] | None = None,
    threshold: float = 0.8,
    multiple: int = 1,
    tiled: int = 3,
    limit: int = 32,
) -> list[Box]:
    """Ways to cut a group into tiles of at most `block` elements, the most efficient first, ending in the flat box.

    Each mode is cut evenly (`ceil(extent / n)`), at powers of two or at multiples of `multiple`. The tile's index runs
    through the modes in the order of `prefer`; of equally efficient boxes, the one with the longer cut along the
    earlier mode comes first.

    Args:
        extents: Extent of each mode of the group.
        block: Elements of a tile that the kernel computes, padding included.
        prefer: All modes, the most wanted first (such as the unit-stride modes of the tensors). Default: as they come.
        threshold: Least `Box.efficiency(block)`.
        multiple: The cut along the first preferred mode is a multiple of it (a vector width), unless the mode is whole.
        tiled: Most modes that are cut longer than 1.
        limit: Most boxes returned, the flat one not counted.
    """
    order = tuple(range(len(extents))) if prefer is None else tuple(prefer)
    if sorted(order) != list(range(len(extents))):
        raise ValueError(f"prefer={order} is no order of {len(extents)} modes")
    flat = flat_box(extents, block)
    if len(extents) < 2 or 0 in extents:
        return [flat]
    cuts = [_cuts(extents[m], block, multiple if i == 0 else 1) for i, m in enumerate(order)]
    found = []
    for cut in _products([extents[m] for m in order], cuts, block, threshold, tiled):
        dims = [TileDim((m,), t) for m, t in zip(order, cut, strict=True)]
        box = Box(tuple(extents), tuple(d for d in dims if d.box > 1) + tuple(d for d in dims if d.box == 1))
        found.append((-box.efficiency(block), tuple(-t for t in cut), box))
    found.sort(key=lambda f: f[:2])
    # A long cut of the first mode may be worth some padding, so none is dropped for want of efficiency alone.
    leaders = {f[1][0]: f for f in reversed(found)}.values()
    kept = sorted(leaders, key=lambda f: f[1])[:limit]
    kept += [f for f in found if f not in kept][: limit - len(kept)]
    return [f[2] for f in sorted(kept, key=lambda f: f[:2])] + [flat]


def _cuts(extent: int, block: int, multiple: int) -> list[int]:
    """Box extents worth trying along one mode, the longest first."""
    longest = min(extent, block)
    cuts = {-(-extent // n) for n in range(1, extent + 1)} | {1 << i for i in range(longest.bit_length())}
    if multiple > 1:
        cuts = {-(-t // multiple) * multiple for t in cuts} | {extent}
    return sorted((t for t in cuts if t <= longest), reverse=True) or [1]


def _products(
    extents: list[int], cuts: list[list[int]], block: int, threshold: float, tiled: int
) -> Iterator[tuple[int, ...]]:
    """All choices of cuts whose tile fits the block and wastes less than `threshold` allows."""
    # The most that `left` of the modes from i on can add to the product.
    most = [
        [math.prod(sorted(extents[i:], reverse=True)[:left]) for left in range(tiled + 1)] for i in range(len(extents))
    ]

    def walk(i: int, size: int, share: float, left: int) -> Iterator[tuple[int, ...]]:
        if i == len(extents):
            if share * size >= threshold * block:
                yield ()
            return
        if share * min(size * most[i][left], block) < threshold * block:
            return
        for t in cuts[i] if left else (1,):
            if size * t <= block:
                kept = share * extents[i] / (t * -(-extents[i] // t))
                for rest in walk(i + 1, size * t, kept, left - (t > 1)):
                    yield (t, *rest)

    return walk(0, 1, 1.0, tiled)
