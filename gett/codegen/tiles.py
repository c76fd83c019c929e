"""Index functions of a schedule: from (tile, index in the tile) to offsets and validity, for every group and tensor.

Owns what the kernels call `Index`. Offsets are in elements, coordinates below 2**31. Knows boxes and strides, no
kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gett.codegen.index import TRUE, ZERO, Expr, Function, ParamTable, const, var
from layouts.box import Box

Statement = tuple[str, str, Expr]


@dataclass(frozen=True, slots=True)
class Strides:
    """Element strides of one tensor along the modes of a group."""

    tensor: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """Generated functions of the M or N group.

    `tile` gives the offset of each tensor at the tile's origin and what `ok` and the offset functions need of it;
    `ok(local)` is the validity of an index, `offsets[t](local)` the offset of tensor t relative to the origin's.
    """

    struct: str
    tile: Function
    ok: Function
    offsets: tuple[Function, ...]

    def to_cpp(self) -> str:
        """The struct and its functions."""
        return "\n".join([self.struct, *(f.to_cpp() for f in (self.tile, self.ok, *self.offsets))])


def decode(body: list[Statement], x: Expr, extents: Sequence[Expr], name: str) -> list[Expr]:
    """Split a flattened coordinate into one per mode, fastest first; the last needs no remainder."""
    out = []
    for j, extent in enumerate(extents):
        last = j == len(extents) - 1
        out.append(let(body, f"{name}_{j}", x if last else x % extent))
        if not last:
            x = let(body, f"{name}_q{j}", x // extent)
    return out


def let(body: list[Statement], name: str, value: Expr, kind: str = "int") -> Expr:
    """Name a value in the body, unless it is a literal or a name already."""
    if value.op in ("const", "var"):
        return value
    body.append((kind, name, value))
    return var(name)


def _dot(coordinates: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    total = ZERO
    for x, s in zip(coordinates, strides, strict=True):
        total = total + x * s
    return total


def local_coordinates(body: list[Statement], box: Box, local: Expr) -> list[Expr]:
    """Coordinate of a tile index along each dimension of the box; all divisors are literals."""
    out = []
    for i, d in enumerate(box.dims):
        last = all(e.box == 1 for e in box.dims[i + 1 :])
        if d.box == 1:
            out.append(ZERO)
            continue
        out.append(let(body, f"c{i}", local if last else local % const(d.box)))
        if not last:
            local = let(body, f"r{i}", local // const(d.box))
    return out


def group_index(group: str, box: Box, block: int, tensors: Sequence[Strides], table: ParamTable) -> GroupIndex:
    """Functions for one group. `block` is the tile's size; indices from `box.size` on are padding."""
    extents = [table.divisor(e) for e in box.extents]
    strides = {t.tensor: [table.stride(s) for s in t.values] for t in tensors}
    body: list[Statement] = []
    outputs: list[tuple[str, Expr]] = []
    members: list[str] = []
    base = {t.tensor: ZERO for t in tensors}
    rest = var("tile")
    for i, (d, count) in enumerate(zip(box.dims, box.tiles_per_dim, strict=True)):
        last = i == len(box.dims) - 1
        tiles = table.divisor(count) if not last or count == 1 else None
        at = rest if tiles is None else rest % tiles
        if tiles is not None and not last:
            rest = let(body, f"t{i}", rest // tiles)
        origin = let(body, f"o{i}", at * const(d.box))
        if len(d.modes) == 1 or d.box == 1:
            at_origin = decode(body, origin, [extents[m] for m in d.modes], f"x{i}")
            for t in tensors:
                base[t.tensor] = base[t.tensor] + _dot(at_origin, [strides[t.tensor][m] for m in d.modes])
        if d.box > 1 and (len(d.modes) > 1 or not box.divides(i)):
            members.append(f"o{i}")
            outputs.append((f"o{i}", origin))
    for t in tensors:
        members.append(t.tensor)
        outputs.append((t.tensor, base[t.tensor]))
    fields = " ".join(f"{'int' if m.startswith('o') else 'long long'} {m};" for m in members)
    name = f"{group.upper()}Tile"
    struct = f"  struct {name} {{ {fields} }};"
    tile = Function(f"{group}_tile", ("tile",), tuple(body), tuple(outputs), name)
    return GroupIndex(
        struct,
        tile,
        _validity(group, box, block, extents, name, table),
        tuple(_offset(group, box, t.tensor, strides[t.tensor], extents, name) for t in tensors),
    )


def _validity(group: str, box: Box, block: int, extents: list[Expr], name: str, table: ParamTable) -> Function:
    body: list[Statement] = []
    ok = TRUE if box.size == block else var("local").less(const(box.size))
    coordinates = local_coordinates(body, box, var("local"))
    for i, d in enumerate(box.dims):
        if d.box > 1 and not box.divides(i):
            extent = extents[d.modes[0]] if len(d.modes) == 1 else table.count(box.dim_extent(i))
            ok = ok.both((var(f"t.o{i}") + coordinates[i]).less(extent))
    return Function(f"{group}_ok", ("local",), tuple(body), (("", ok),), "bool", extra=f", const {name}& t")


def _offset(group: str, box: Box, tensor: str, strides: list[Expr], extents: list[Expr], name: str) -> Function:
    body: list[Statement] = []
    total = ZERO
    for i, (d, c) in enumerate(zip(box.dims, local_coordinates(body, box, var("local")), strict=True)):
        if d.box == 1:
            continue
        coordinates = [c]
        if len(d.modes) > 1:
            x = let(body, f"y{i}", var(f"t.o{i}") + c)
            coordinates = decode(body, x, [extents[m] for m in d.modes], f"x{i}")
        total = total + _dot(coordinates, [strides[m] for m in d.modes])
    return Function(
        f"{group}_{tensor}", ("local",), tuple(body), (("", total),), "long long", extra=f", const {name}& t"
    )


def batch_index(extents: Sequence[int], tensors: Sequence[Strides], table: ParamTable) -> tuple[str, Function]:
    """The offsets of batch number `l` in every tensor, and the struct that holds them."""
    body: list[Statement] = []
    x = decode(body, var("l"), [table.divisor(e) for e in extents], "x") if extents else []
    outputs = tuple((t.tensor, _dot(x, [table.stride(s) for s in t.values])) for t in tensors)
    fields = " ".join(f"long long {t.tensor};" for t in tensors)
    return f"  struct LTile {{ {fields} }};", Function("l_tile", ("l",), tuple(body), outputs, "LTile")


def tile_origins(
    body: list[Statement], box: Box, tile: Expr, extent: Callable[[int], Expr], table: ParamTable, prefix: str = ""
) -> Iterator[tuple[int, Expr, list[Expr]]]:
    """Where tile number `tile` begins: (dimension, origin along it, coordinates of its modes), dimension by dimension.

    Args:
        body: Takes the statements.
        box: How the group is cut.
        tile: The tile's number, fastest dimension first.
        extent: Divisor of a mode's extent.
        table: Takes the counts of tiles.
        prefix: Of the names in the body.
    """
    rest = tile
    for i, (d, count) in enumerate(zip(box.dims, box.tiles_per_dim, strict=True)):
        last = i == len(box.dims) - 1
        tiles = None if last and count > 1 else table.divisor(count)
        at = rest if tiles is None else rest % tiles
        if tiles is not None and not last:
            rest = let(body, f"{prefix}t{i}", rest // tiles)
        origin = let(body, f"{prefix}o{i}", at * const(d.box))
        yield i, origin, decode(body, origin, [extent(m) for m in d.modes], f"{prefix}x{i}")


def k_box_index(box: Box, block: int, tensors: Sequence[Strides], table: ParamTable) -> tuple[str, list[Function]]:
    """K cut into boxes: one uniform offset per k-tile, and offsets of the index in the tile that never change.

    At most one dimension may be ragged; `rem` is what is left of it at a k-tile, `k_coord` the index along it.
    """
    extents = [table.divisor(e) for e in box.extents]
    strides = {t.tensor: [table.stride(s) for s in t.values] for t in tensors}
    body: list[Statement] = []
    base = {t.tensor: ZERO for t in tensors}
    rem, ragged = const(1 << 30), -1
    for i, origin, at_origin in tile_origins(body, box, var("tile"), extents.__getitem__, table):
        d = box.dims[i]
        for t in tensors:
            base[t.tensor] = base[t.tensor] + _dot(at_origin, [strides[t.tensor][m] for m in d.modes])
        if d.box > 1 and not box.divides(i):
            assert ragged < 0, "a boxed K has one ragged dimension at most"
            ragged = i
            rem = table.count(box.dim_extent(i)) + Expr("mul", (const(-1), origin))
    outputs = (*((t.tensor, base[t.tensor]) for t in tensors), ("rem", rem))
    fields = " ".join(f"long long {t.tensor};" for t in tensors)
    functions = [Function("k_tile", ("tile",), tuple(body), outputs, "KTile")]
    for t in tensors:
        local: list[Statement] = []
        c = local_coordinates(local, box, var("local"))
        value = _dot([c[i] for i in range(len(c))], [strides[t.tensor][d.modes[0]] for d in box.dims])
        functions.append(Function(f"k_{t.tensor}", ("local",), tuple(local), (("", value),), "long long"))
    local = []
    c = local_coordinates(local, box, var("local"))
    ok = TRUE if box.size == block else var("local").less(const(box.size))
    functions.append(Function("k_ok", ("local",), (), (("", ok),), "bool"))
    functions.append(Function("k_coord", ("local",), tuple(local), (("", c[ragged] if ragged >= 0 else ZERO),), "int"))
    return f"  struct KTile {{ {fields} int rem; }};", functions


def k_table_index(extents: Sequence[int], tensors: Sequence[Strides], table: ParamTable) -> tuple[str, list[Function]]:
    """K flattened: the offsets of one k, for the table that the kernel keeps in shared memory."""
    body: list[Statement] = []
    x = decode(body, var("k"), [table.divisor(e) for e in extents], "x") if extents else []
    outputs = tuple((t.tensor, _dot(x, [table.stride(s) for s in t.values])) for t in tensors)
    fields = " ".join(f"long long {t.tensor};" for t in tensors)
    return f"  struct KEntry {{ {fields} }};", [Function("k_entry", ("k",), tuple(body), outputs, "KEntry")]


def d_order(box_m: Box, box_n: Box, strides: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """Box dimensions of M and N by D's stride, smallest first: the order in which a tile of D is stored.

    Args:
        box_m: Box of the M group.
        box_n: Box of the N group.
        strides: D's strides along the modes of `"m"` and of `"n"`.
    """
    dims = [(g, i) for g, box in (("m", box_m), ("n", box_n)) for i, d in enumerate(box.dims) if d.box > 1]

    def key(dim: tuple[str, int]) -> int:
        box = box_m if dim[0] == "m" else box_n
        return min(abs(strides[dim[0]][m]) for m in box.dims[dim[1]].modes)

    return sorted(dims, key=key)


def d_unpack(
    box_m: Box, box_n: Box, order: Sequence[tuple[str, int]], steps: Mapping[str, Sequence[int]] | None = None
) -> Function:
    """From the position in D's order to the tile's (m, n) and, given steps, to the place in the staged tile."""
    body: list[Statement] = []
    rest = var("i")
    total = {"m": ZERO, "n": ZERO}
    at = ZERO
    for j, (g, i) in enumerate(order):
        box = box_m if g == "m" else box_n
        last = j == len(order) - 1
        c = let(body, f"c{j}", rest if last else rest % const(box.dims[i].box))
        if not last:
            rest = let(body, f"r{j}", rest // const(box.dims[i].box))
        prefix = math.prod(d.box for d in box.dims[:i])
        total[g] = total[g] + scaled(c, prefix)
        if steps is not None:
            at = at + scaled(c, steps[g][i])
    outputs = (("m", total["m"]), ("n", total["n"]))
    if steps is None:
        return Function("idx2crd_d", ("i",), tuple(body), outputs, "gett::MN")
    return Function("idx2crd_d", ("i",), tuple(body), (*outputs, ("at", at)), "gett::MNAt")


def scaled(x: Expr, factor: int) -> Expr:
    """A literal multiple in plain integers."""
    if x == ZERO or factor == 0:
        return ZERO
    return x if factor == 1 else Expr("mul", (x, const(factor)))
