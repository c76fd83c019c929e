"""What gathered operands need beyond tensor maps: offsets along K.

Owns the K side of the index (`gett/kernels/loader/gather.cuh` asks for it); M, N and batches are `codegen.tiles`'. Any
number of K's dimensions may be ragged: beyond their ends both operands must be zeros, and `valid_k_a` says how many
elements of a piece come before. `k_ok` is false for what is beyond them in every k-tile, since a box is longer than its
dimension: the address of that may be anywhere and is not to be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gett.codegen.common import reach
from gett.codegen.index import TRUE, ZERO, Expr, Function, ParamTable, const, var
from gett.codegen.tiles import Statement, Strides, local_coordinates, tile_origins
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.spec.mainloop import Hopper
from layouts.box import Box

ROOM = const(1 << 20)  # more than any piece has


def gathered(loop: Hopper) -> dict[str, int]:
    """The operands that warps bring: name to position in `Strided.strides`."""
    return {name: t for name, t, loader in (("a", A, loop.a), ("b", B, loop.b)) if loader.by_warps}


def cosize(plan: GemmPlan, tensor: int) -> int:
    """Elements from the operand's first to just behind its last; gathered operands have no negative strides."""
    return 1 + reach(plan, tensor) // itemsize(plan.contraction.dtype)


def gather_index(box: Box, tensors: Sequence[Strides], table: ParamTable) -> tuple[str, list[Function]]:
    """The struct `KTile` and the functions `k_tile`, `k_whole`, `k_ok`, `k_<tensor>` and `valid_k_<tensor>`."""
    strides = {t.tensor: [table.stride(s) for s in t.values] for t in tensors}
    extents = [table.divisor(e) for e in box.extents]
    body: list[Statement] = []
    base = {t.tensor: ZERO for t in tensors}
    ends: dict[int, Expr] = {}
    left: dict[int, Expr] = {}
    for i, origin, at_origin in tile_origins(body, box, var("tile"), extents.__getitem__, table):
        d = box.dims[i]
        for t in tensors:
            for x, m in zip(at_origin, d.modes, strict=True):
                base[t.tensor] = base[t.tensor] + x * strides[t.tensor][m]
        if d.box > 1 and not box.divides(i):
            ends[i] = table.count(box.dim_extent(i))
            left[i] = ends[i] + Expr("mul", (const(-1), origin))
    outputs = (*base.items(), *((f"left{i}", x) for i, x in left.items()))
    fields = [*(f"long long {t};" for t in base), *(f"int left{i};" for i in left)]
    functions = [Function("k_tile", ("tile",), tuple(body), outputs, "KTile")]
    whole = TRUE
    for i in left:
        whole = whole.both(const(box.dims[i].box - 1).less(var(f"k.left{i}")))
    functions.append(Function("k_whole", (), (), (("", whole),), "bool", extra=", const KTile& k"))
    functions.append(_exists(box, {i: end for i, end in ends.items() if box.dims[i].box > box.dim_extent(i)}))
    for t in tensors:
        functions += [_offset(box, t.tensor, strides[t.tensor]), _room(box, t, left)]
    return f"  struct KTile {{ {' '.join(fields)} }};", functions


def _exists(box: Box, ends: Mapping[int, Expr]) -> Function:
    """Whether index `local` of a k-tile is part of K in any of them; `ends` are of dimensions that boxes exceed."""
    body: list[Statement] = []
    coordinates = local_coordinates(body, box, var("local"))
    ok = TRUE
    for i, end in ends.items():
        ok = ok.both(coordinates[i].less(end))
    return Function("k_ok", ("local",), tuple(body) if ends else (), (("", ok),), "bool")


def _offset(box: Box, tensor: str, strides: Sequence[Expr]) -> Function:
    body: list[Statement] = []
    total = ZERO
    for d, c in zip(box.dims, local_coordinates(body, box, var("local")), strict=True):
        if d.box > 1:
            total = total + c * strides[d.modes[0]]
    return Function(f"k_{tensor}", ("local",), tuple(body), (("", total),), "long long")


def _room(box: Box, tensor: Strides, left: Mapping[int, Expr]) -> Function:
    """Elements before K's end, from index `local` on along the operand's unit-stride mode."""
    body: list[Statement] = []
    coordinates = local_coordinates(body, box, var("local"))
    inside, room = TRUE, ROOM
    for i in left:
        remaining = var(f"k.left{i}")
        if tensor.values[box.dims[i].modes[0]] == 1:
            room = remaining + Expr("mul", (const(-1), coordinates[i]))
        else:
            inside = inside.both(coordinates[i].less(remaining))
    value = room if inside == TRUE else Expr("mul", (inside, room))
    return Function(
        f"valid_k_{tensor.tensor}", ("local",), tuple(body), (("", value),), "int", extra=", const KTile& k"
    )
