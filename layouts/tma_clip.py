"""Tensor maps whose boxes end at any row of a tensor: what lies behind it is not written.

A map has an extent for each dimension and no other end. Of a clipped map the rows' dimension has as many as a box, and
one more dimension of the same stride says where the box lies. Its first coordinate is so large that the rows which are
not wanted lie behind the extent; the other one takes back what this moved it by. Encodes nothing and calls no driver.

The idea is that of `triton/tools/ragged_tma.py` and of `create_ragged_tensor_for_tma` in quack, whose extents are 2^30.
"""

from __future__ import annotations

from dataclasses import replace

from layouts.swizzle import CHUNK
from layouts.tma import MAX_RANK, TmaMap
from layouts.tma_map import MAX_EXTENT, MAX_STRIDE

FAR = 2**30
"""Bytes before a tensor at which the address of its clipped map lies at most."""


def clipped(made: TmaMap, mode: int, rows: int, stride: int) -> TmaMap | None:
    """The clipped map of tiles of `rows` rows along a mode, None where there is none.

    A box whose first row is number x, of which n are written, has the coordinates `rows - n` and `x + n` along the
    mode's dimension and the last one. The map's address lies `rows` rows before the tensor's, so that neither is
    negative. Of a tile that several copies make the first has these coordinates.

    Args:
        made: The map that is not clipped.
        mode: Which of the tensor's modes has the rows. Its dimension must have no other.
        rows: Of a tile.
        stride: Bytes from row to row.
    """
    at = made.modes[mode]
    alone = [i for i, m in enumerate(made.modes) if m.dim == at.dim and m.weight] == [mode]
    if made.rank == MAX_RANK or at.dim == 0 or at.weight != 1 or not alone or made.base_offset:
        return None
    extent = made.extents[at.dim]
    if extent + rows > MAX_EXTENT or not 0 < stride < MAX_STRIDE or stride % CHUNK or rows * stride > FAR:
        return None

    def put(values: tuple[int, ...], value: int, last: int) -> tuple[int, ...]:
        return (*values[: at.dim], value, *values[at.dim + 1 :], last)

    return replace(
        made,
        extents=put(made.extents, rows, extent + 1),
        strides=put(made.strides, stride, stride),
        box=(*made.box, 1),
        base_offset=-rows * stride,
    )
