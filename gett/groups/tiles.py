"""Which kernel makes a problem: the arithmetic of its dtype, and the tile that suits its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gett.groups.layouts import Factor, Layout
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B
from gett.schedule.spec.grouped import GroupedSchedule, GroupedTile, Ragged

# Large and small tiles: of tensor cores by bytes of an element, of multiply-adds by those of a sum.
TENSOR_CORES = {
    2: (GroupedTile((128, 128, 32), (2, 4), 4, resident=2), GroupedTile((32, 32, 32), (2, 1), 3)),
    4: (GroupedTile((128, 64, 32), (2, 2), 3), GroupedTile((32, 32, 32), (2, 1), 3)),
    8: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((32, 16, 16), (2, 1), 2)),
}
MULTIPLY_ADDS = {
    1: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((16, 16, 16), (2, 1), 3)),
    4: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((16, 16, 16), (2, 1), 3)),
    8: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((16, 16, 16), (2, 1), 2)),
    16: (GroupedTile((32, 32, 8), (2, 2), 3), GroupedTile((16, 16, 8), (2, 1), 2)),
}
_WORTH = 2.0  # padding of a large tile, in products, that one of a small tile may have more of

Majors = tuple[Literal["k", "mn"], Literal["k", "mn"]]


def by_tensor_cores(layout: Layout) -> bool:
    """Whether tensor cores multiply at the layout's precision."""
    same = layout.a.dtype == layout.b.dtype == layout.dtype
    return same and data_type(layout.dtype).multiplied(layout.precision) is not None


def tile_of(layout: Layout) -> GroupedTile:
    """The tile for a layout."""
    return tile_for(layout, layout.extent("m"), layout.extent("n"))


def tile_for(layout: Layout, m: int, n: int) -> GroupedTile:
    """The large tile for a size of the result, or the small one where it makes clearly fewer products of padding."""
    if by_tensor_cores(layout):
        large, small = TENSOR_CORES[data_type(layout.dtype).bytes]
    else:
        large, small = MULTIPLY_ADDS[data_type(layout.dtype).accumulator_bytes]
    return large if _covered(large, m, n) <= _WORTH * _covered(small, m, n) else small


def _covered(tile: GroupedTile, m: int, n: int) -> int:
    rows, columns, _ = tile.shape
    return -(-m // rows) * rows * -(-n // columns) * columns


def schedule_of(
    layout: Layout, arch: str, tile: GroupedTile, majors: Majors, vectors: Sequence[int], ragged: Ragged | None = None
) -> GroupedSchedule:
    """The kernel of a layout's class."""
    a, b = (layout.load(t, majors[t], vectors[t]) for t in (A, B))
    return GroupedSchedule(arch, layout.dtype, layout.d.dtype.name, a, b, by_tensor_cores(layout), tile, ragged)


Kind = tuple[str, str, Factor, Factor, bool, GroupedTile]
"""What problems of one kernel share, but for majors and vectors."""


def kind_of(layout: Layout) -> Kind:
    """The kernel of a layout, but for majors and vectors."""
    return layout.dtype, layout.d.dtype.name, layout.a, layout.b, by_tensor_cores(layout), tile_of(layout)
