"""Layouts: functions from an index to an offset, given by a shape and a stride per mode.

Owns the algebra of flat (never nested) shape/stride layouts: coalescing, composition, inverses, complement, division
and product. The leftmost mode runs fastest; offsets and strides are in whatever unit the caller uses. Knows neither
einsum nor CUDA. The operations follow the layout algebra that NVIDIA describes for CuTe, restricted to flat shapes and
checked at run time: an operation whose result is no flat layout raises `LayoutError` and never returns a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


class LayoutError(ValueError):
    """The layouts do not fit each other: the operation has no flat result."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The function `index -> offset` over `size` indices.

    Attributes:
        shape: Extent of each mode, at least 0, the fastest first.
        stride: Offset from neighbour to neighbour along each mode; may be 0 or negative.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            raise LayoutError(f"shape {self.shape} and stride {self.stride} differ in length")
        if any(n < 0 for n in self.shape):
            raise LayoutError(f"shape {self.shape} has a negative extent")

    def __call__(self, where: int | Sequence[int]) -> int:
        """Offset at an index in [0, size), or at a coordinate (one number per mode, each inside its extent)."""
        coordinate = self.coordinate(where) if isinstance(where, int) else where
        return sum(c * d for c, d in zip(coordinate, self.stride, strict=True))

    def __iter__(self) -> Iterator[int]:
        """All offsets in the order of the index."""
        return (self(i) for i in range(self.size))

    @property
    def rank(self) -> int:
        """Number of modes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of indices."""
        return math.prod(self.shape)

    @property
    def lowest(self) -> int:
        """Smallest offset: 0 unless a stride is negative."""
        return sum((n - 1) * d for n, d in zip(self.shape, self.stride, strict=True) if d < 0) if self.size else 0

    @property
    def cosize(self) -> int:
        """Length of the interval of offsets from the lowest to the highest, both included; 0 for an empty layout."""
        return 1 + sum((n - 1) * abs(d) for n, d in zip(self.shape, self.stride, strict=True)) if self.size else 0

    def coordinate(self, index: int) -> tuple[int, ...]:
        """Coordinate of an index.

        Raises:
            IndexError: The index is not in [0, size).
        """
        if not 0 <= index < self.size:
            raise IndexError(f"index {index} of a layout of {self.size}")
        out = []
        for n in self.shape:
            index, c = divmod(index, n)
            out.append(c)
        return tuple(out)

    def index(self, coordinate: Sequence[int]) -> int:
        """Index of a coordinate; the inverse of `coordinate`."""
        out = 0
        for c, n in zip(reversed(coordinate), reversed(self.shape), strict=True):
            out = out * n + c
        return out

    def permute(self, order: Sequence[int]) -> Layout:
        """The layout whose mode `i` is this one's mode `order[i]`."""
        if sorted(order) != list(range(self.rank)):
            raise LayoutError(f"{tuple(order)} is no permutation of {self.rank} modes")
        return Layout(tuple(self.shape[i] for i in order), tuple(self.stride[i] for i in order))

    def sorted(self) -> Layout:
        """The same modes by the size of their strides, the smallest first."""
        return self.permute(sorted(range(self.rank), key=lambda i: (abs(self.stride[i]), self.shape[i])))

    def coalesce(self) -> Layout:
        """The same function in the fewest modes: extents of 1 dropped, neighbours merged where no gap parts them."""
        if not self.size:
            return Layout((0,), (0,))
        shape: list[int] = []
        stride: list[int] = []
        for n, d in zip(self.shape, self.stride, strict=True):
            if n == 1:
                continue
            if shape and d == shape[-1] * stride[-1]:
                shape[-1] *= n
            else:
                shape.append(n)
                stride.append(d)
        return Layout(tuple(shape), tuple(stride))


def column_major(shape: Sequence[int]) -> Layout:
    """The dense layout whose first mode is contiguous."""
    return Layout(tuple(shape), tuple(math.prod(shape[:i]) for i in range(len(shape))))


def row_major(shape: Sequence[int]) -> Layout:
    """The dense layout whose last mode is contiguous."""
    return Layout(tuple(shape), tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))))


def concatenate(*layouts: Layout) -> Layout:
    """All modes in one layout, the first layout's fastest: offsets add."""
    return Layout(sum((x.shape for x in layouts), ()), sum((x.stride for x in layouts), ()))


def compose(outer: Layout, inner: Layout) -> Layout:
    """The layout R with `R(i) == outer(inner(i))` for all i in [0, inner.size).

    Raises:
        LayoutError: The inner offsets leave the outer layout, or cut its modes so that no flat layout is the result.
    """
    return concatenate(*compose_modes(outer, inner.coalesce())).coalesce()


def compose_modes(outer: Layout, inner: Layout) -> tuple[Layout, ...]:
    """`compose`, mode by mode of the inner layout: part j has the size of mode j, and the parts' offsets add.

    Raises:
        LayoutError: As `compose`.
    """
    if not inner.size:
        return tuple(Layout((n,), (0,)) for n in inner.shape)
    base = outer.coalesce()
    if any(d < 0 for d in inner.stride) or inner.cosize > max(outer.size, 1):
        raise LayoutError(f"offsets of {inner} are no indices of {outer}")
    reach = [0] * base.rank  # largest coordinate used in each outer mode, by all inner modes together
    parts = tuple(_compose_mode(base, n, d, reach) for n, d in zip(inner.shape, inner.stride, strict=True))
    if any(r >= n for r, n in zip(reach, base.shape, strict=True)):
        raise LayoutError(f"adding the modes of {inner} carries from mode to mode of {outer}")
    return parts


def _compose_mode(base: Layout, extent: int, step: int, reach: list[int]) -> Layout:
    if extent == 1 or step == 0:
        return Layout((extent,), (0,))
    shape: list[int] = []
    stride: list[int] = []
    for i, (n, d) in enumerate(zip(base.shape, base.stride, strict=True)):
        if (extent - 1) * step < n:  # what is left stays inside this mode
            take = extent
        elif step % n == 0:
            step //= n
            continue
        elif n % step == 0 and extent % (n // step) == 0:
            take = n // step
        else:
            raise LayoutError(f"{extent} steps of {step} cut a mode of extent {n} unevenly")
        shape.append(take)
        stride.append(step * d)
        reach[i] += (take - 1) * step
        extent //= take
        step = 1
        if extent == 1:
            break
    assert extent == 1, "the cosize was checked"
    return Layout(tuple(shape), tuple(stride))


def right_inverse(layout: Layout) -> Layout:
    """The longest layout R that finds indices of offsets: `layout(R(o)) == o` for all o in [0, R.size).

    Its size is 1 where the layout has no mode of stride 1.
    """
    flat = layout.coalesce()
    steps = column_major(flat.shape).stride
    shape: list[int] = []
    stride: list[int] = []
    run = 1
    for d, n, step in sorted(zip(flat.stride, flat.shape, steps, strict=True)):
        if d == run and n:
            shape.append(n)
            stride.append(step)
            run *= n
    return Layout(tuple(shape), tuple(stride)).coalesce()


def left_inverse(layout: Layout) -> Layout:
    """A layout L that finds the index of each offset that occurs: `L(layout(i)) == i` for all i in [0, layout.size).

    Raises:
        LayoutError: The offsets are negative or repeat, or gaps between modes are not whole multiples.
    """
    flat = layout.coalesce()
    return right_inverse(concatenate(flat, complement(flat, flat.cosize)))


def complement(layout: Layout, cosize: int) -> Layout:
    """The layout of the gaps: with it, `concatenate(layout, gaps)` meets every offset from 0 on exactly once.

    Together they cover [0, n), n the smallest possible number that is at least `cosize`.

    Args:
        layout: Non-negative strides; modes of stride 0 and extent > 1 have no complement.
        cosize: How far to reach.

    Raises:
        LayoutError: Modes overlap, or a gap is no whole multiple of what lies below it.
    """
    shape: list[int] = []
    stride: list[int] = []
    run = 1
    for d, n in sorted((d, n) for n, d in zip(layout.shape, layout.stride, strict=True) if n != 1):
        if d < run or d % run or not n:
            raise LayoutError(f"{layout} has no complement: a mode of stride {d} does not fit above {run} offsets")
        shape.append(d // run)
        stride.append(run)
        run = d * n
    shape.append(-(-cosize // run) if cosize > run else 1)
    stride.append(run)
    return Layout(tuple(shape), tuple(stride)).coalesce()


def logical_divide(layout: Layout, tile: Layout) -> tuple[Layout, Layout]:
    """Cut a layout into tiles: (inside one tile, from tile to tile).

    `inside(i) + between(j)` is the layout's offset at index `tile(i) + rest(j)`, `rest` being the tile's complement.

    Args:
        layout: What is cut.
        tile: Which indices make up a tile, e.g. `Layout((8,), (1,))` for eight neighbours.

    Raises:
        LayoutError: The tiles do not divide the layout evenly.
    """
    rest = complement(tile, layout.size)
    parts = compose_modes(layout, concatenate(tile, rest))
    return concatenate(*parts[: tile.rank]).coalesce(), concatenate(*parts[tile.rank :]).coalesce()


def logical_product(block: Layout, tiler: Layout) -> tuple[Layout, Layout]:
    """Repeat a block: (the block, where its copies go), the copies laid out by `tiler` over the gaps of the block.

    Raises:
        LayoutError: The block has no complement, or the tiler cuts it unevenly.
    """
    gaps = complement(block, block.cosize * max(tiler.cosize, 1))
    return block, compose(gaps, tiler)
