"""Which kernel makes a problem: the arithmetic of its dtype, and the tile that suits its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gett.groups.layouts import Factor, Layout
from gett.ir.gemm import A, B
from gett.schedule.grouped import by_tensor_cores, tiles_of
from gett.schedule.spec.grouped import GroupedSchedule, GroupedTile, Ragged

_WORTH = 2.0  # padding of a large tile, in products, that one of a small tile may have more of

Majors = tuple[Literal["k", "mn"], Literal["k", "mn"]]


def _by_tensor_cores(layout: Layout) -> bool:
    return by_tensor_cores(layout.dtype, (layout.a.dtype, layout.b.dtype), layout.precision)


def tile_of(layout: Layout) -> GroupedTile:
    """The tile for a layout."""
    return tile_for(layout, layout.extent("m"), layout.extent("n"))


def tile_for(layout: Layout, m: int, n: int) -> GroupedTile:
    """The large tile for a size of the result, or the small one where it makes clearly fewer products of padding."""
    large, small = tiles_of(layout.dtype, tensor_cores=_by_tensor_cores(layout))
    return large if _covered(large, m, n) <= _WORTH * _covered(small, m, n) else small


def _covered(tile: GroupedTile, m: int, n: int) -> int:
    rows, columns, _ = tile.shape
    return -(-m // rows) * rows * -(-n // columns) * columns


def schedule_of(
    layout: Layout, arch: str, tile: GroupedTile, majors: Majors, vectors: Sequence[int], ragged: Ragged | None = None
) -> GroupedSchedule:
    """The kernel of a layout's class."""
    a, b = (layout.load(t, majors[t], vectors[t]) for t in (A, B))
    return GroupedSchedule(arch, layout.dtype, layout.d.dtype.name, a, b, _by_tensor_cores(layout), tile, ragged)


Kind = tuple[str, str, Factor, Factor, bool, GroupedTile]
"""What problems of one kernel share, but for majors and vectors."""


def kind_of(layout: Layout) -> Kind:
    """The kernel of a layout, but for majors and vectors."""
    return layout.dtype, layout.d.dtype.name, layout.a, layout.b, _by_tensor_cores(layout), tile_of(layout)
