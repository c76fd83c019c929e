"""What gathered operands need beyond tensor maps: offsets along K.

Owns the K side of the index (`gett/kernels/loader/gather.cuh` asks for it); M, N and batches are `codegen.tiles`'. Any
number of K's dimensions may be ragged: beyond their ends both operands must be zeros, and `valid_k_a` says how many
elements of a piece come before. `k_ok` is false for what is beyond them in every k-tile, since a box is longer than its
dimension: the address of that may be anywhere and is not to be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gett.codegen.common import reach
from gett.codegen.index import TRUE, ZERO, Expr, Function, ParamTable, const, var
from gett.codegen.tiles import Offsets, Statement, Strides, k_offsets, local_coordinates, members, tile_origins
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
    offsets = Offsets(box, tensors, table)
    body: list[Statement] = []
    base = dict.fromkeys(offsets.strides, ZERO)
    ends: dict[int, Expr] = {}
    left: dict[str, Expr] = {}
    whole = TRUE
    for i, d, origin in tile_origins(body, box, var("tile"), table):
        offsets.add(base, body, d, origin, f"x{i}")
        if d.box > 1 and not box.divides(i):
            ends[i] = table.count(box.dim_extent(i))
            left[f"left{i}"] = ends[i] - origin
            whole = whole.both(const(d.box - 1).less(var(f"k.left{i}")))
    functions = [
        Function("k_tile", ("tile",), tuple(body), (*base.items(), *left.items()), "KTile"),
        Function.of("k_whole", (), whole, "bool", "", ", const KTile& k"),
        _exists(box, {i: end for i, end in ends.items() if box.dims[i].box > box.dim_extent(i)}),
    ]
    for t, offset in zip(tensors, k_offsets(offsets), strict=True):
        functions += [offset, _room(box, t, ends)]
    return members("KTile", base, left), functions


def _exists(box: Box, ends: Mapping[int, Expr]) -> Function:
    """Whether index `local` of a k-tile is part of K in any of them; `ends` are of dimensions that boxes exceed."""
    body: list[Statement] = []
    coordinates = local_coordinates(body, box, var("local"))
    ok = TRUE
    for i, end in ends.items():
        ok = ok.both(coordinates[i].less(end))
    return Function.of("k_ok", body if ends else (), ok, "bool")


def _room(box: Box, tensor: Strides, ragged: Iterable[int]) -> Function:
    """Elements before K's end, from index `local` on along the operand's unit-stride mode."""
    body: list[Statement] = []
    coordinates = local_coordinates(body, box, var("local"))
    inside, room = TRUE, ROOM
    for i in ragged:
        remaining = var(f"k.left{i}")
        if tensor.values[box.dims[i].modes[0]] == 1:
            room = remaining - coordinates[i]
        else:
            inside = inside.both(coordinates[i].less(remaining))
    value = room if inside == TRUE else Expr("mul", (inside, room))
    return Function.of(f"valid_k_{tensor.tensor}", body, value, "int", extra=", const KTile& k")
