"""How wide vectors of a tensor may be in a tile: its tiled dimensions in memory order and the run that they make.

Knows plans and boxes; which width is taken is decided by the searches, whether one is legal by the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gett.hw.dtypes import ACCESS_BYTES
from gett.ir.contraction import Operand
from gett.ir.gemm import A, D, GemmPlan, itemsize
from layouts.access import max_vector
from layouts.box import Box
from layouts.modes import Strided

Groups = tuple[tuple[str, tuple[Strided, ...], Box], ...]  # name, modes and box of some groups of a plan


@dataclass(frozen=True, slots=True)
class TiledDim:
    """A tiled dimension as one tensor sees it.

    Modes flattened into the dimension count as far as each continues the one before in the tensor's memory.
    """

    group: str  # name of its group
    index: int  # position in the group's box
    box: int  # elements that a tile takes
    stride: int  # bytes between neighbours
    extent: int  # elements along it
    whole: bool  # whether the tile takes all of it, and all of its modes count
    modes: tuple[Strided, ...]  # those that count
    prefix: int  # distance between neighbours in the index of the group's tile


def tiled_dims(groups: Groups, tensor: int) -> list[TiledDim]:
    """The tiled dimensions of some groups by distance in the tensor's memory."""
    out = []
    for name, modes, box in groups:
        for i, d in box.tiled:
            taken = [modes[d.modes[0]]]
            stride, extent = taken[0].strides[tensor], taken[0].extent
            for m in d.modes[1:]:
                if modes[m].strides[tensor] != stride * extent:
                    break
                taken.append(modes[m])
                extent *= modes[m].extent
            whole = len(taken) == len(d.modes) and d.box == extent
            out.append(TiledDim(name, i, d.box, stride, extent, whole, tuple(taken), box.prefix(i)))
    return sorted(out, key=lambda x: abs(x.stride) or math.inf)


def operand_dims(plan: GemmPlan, tensor: int, box: Box, box_k: Box, box_l: Box | None) -> list[TiledDim]:
    """The tiled dimensions of A or B: of K, of M or N (group `"mn"`), and of L where a block makes several batches."""
    groups: Groups = (("k", plan.k, box_k), ("mn", plan.m if tensor == A else plan.n, box))
    return tiled_dims(groups if box_l is None else (*groups, ("l", plan.l, box_l)), tensor)


def widest_vector(plan: GemmPlan, tensor: int, dims: Sequence[TiledDim], row: int | None = None) -> int:
    """Elements of the widest access along the run that the first dimensions make together.

    Where a vector must lie in one row of the tile in shared memory, that has `row` elements.
    """
    operand = plan.operand(tensor)
    assert operand is not None
    size = itemsize(operand.dtype)
    along = run_of(dims, size, in_rows=row is not None)
    used = [mode for dim in along for mode in dim.modes]
    strides = [s.strides[tensor] for g in (plan.l, plan.m, plan.n, plan.k) for s in g if s not in used]
    return max_vector(size, math.gcd(run_length(along), row or 0), strides, operand.alignment)


def run_of(dims: Sequence[TiledDim], size: int, *, in_rows: bool = False) -> Sequence[TiledDim]:
    """The first dimensions, as long as each continues the run of those before, which a tile takes whole.

    With `in_rows` the run must lie in one row of the tile in shared memory, too. Elements have `size` bytes.
    """
    step = size
    for at, dim in enumerate(dims):
        follows = not in_rows or at == 0 or (dim.group, dim.index) == (dims[0].group, dims[at - 1].index + 1)
        if dim.stride != step or not follows:
            return dims[:at]
        if not dim.whole:
            return dims[: at + 1]
        step *= dim.extent
    return dims


def run_length(along: Sequence[TiledDim]) -> int:
    """Elements that divide a run wherever a tile of it begins and ends."""
    return math.gcd(math.prod(dim.extent for dim in along), math.prod(dim.box for dim in along))


def row_vector(plan: GemmPlan, tensor: int, dims: Sequence[TiledDim], rows: int, depth: int) -> int:
    """The widest vector that `cp.async` may copy: all of it in one row of the tile; 0 where it may copy none.

    The tile has `rows` (M or N) and `depth`, padding included. An element that is as wide as the widest copy may lie
    anywhere.
    """
    operand = plan.operand(tensor)
    assert operand is not None
    size = itemsize(operand.dtype)
    if dims and size == ACCESS_BYTES:
        return int(operand.alignment % ACCESS_BYTES == 0)
    if not dims or dims[0].group == "l" or dims[0].prefix != 1:
        return 0
    vector = widest_vector(plan, tensor, dims, depth if dims[0].group == "k" else rows)
    return vector if vector * size in (4, 8, ACCESS_BYTES) else 0


def whole_vectors(
    operand: Operand,
    tensor: int,
    modes: Iterable[Strided],
    group: Sequence[Strided],
    inner: Box,
    unit: int | None,
    vector: int,
) -> bool:
    """Whether rows of a tile are vectors of one mode, aligned in memory wherever a tile starts.

    Of all modes of the tensor those of `group` are those along which rows run. A tile takes `inner` of them, and number
    `unit` of them has unit stride.
    """
    lead = next(iter(inner.dims), None)
    if unit is None or lead is None or lead.modes != (unit,) or lead.box % vector or group[unit].extent % vector:
        return False
    step = vector * group[unit].strides[tensor]
    others = (s for s in modes if s is not group[unit] and s.extent > 1)
    return operand.alignment % step == 0 and all(s.strides[tensor] % step == 0 for s in others)


def store_vector(plan: GemmPlan, box_m: Box, box_n: Box, box_l: Box | None = None, *, staged: bool = False) -> int:
    """Elements per store of D; `box_l` is what a tile takes of L, where a block makes several batches.

    With `staged` D's elements are stored from a tile in D's order. Otherwise neighbours along the first dimension alone
    are one step apart in the tile.
    """
    groups: Groups = (("m", plan.m, box_m), ("n", plan.n, box_n))
    dims = tiled_dims(groups if box_l is None else (*groups, ("l", plan.l, box_l)), D)
    return widest_vector(plan, D, dims if staged else dims[:1]) if dims else 1
