"""Index functions of a schedule: from (tile, index in the tile) to offsets and validity, for every group and tensor.

Owns what the kernels call `Index`. Offsets are in elements, coordinates below 2**31. Knows boxes and strides, no
kernel.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gett.codegen.index import TRUE, ZERO, Expr, Function, ParamTable, const, var
from layouts.box import Box, TileDim

Statement = tuple[str, str, Expr]

Digit = tuple[int, Mapping[str, int]]  # positions of a digit of a number, and the step between them in each output


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


def members(name: str, wide: Iterable[str] = (), ints: Iterable[str] = (), first: Iterable[str] = ()) -> str:
    """A struct of 64-bit integers between `int`s."""
    fields = [*(f"int {m};" for m in first), *(f"long long {m};" for m in wide), *(f"int {m};" for m in ints)]
    return f"  struct {name} {{ {' '.join(fields)} }};"


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


class Offsets:
    """Offsets of some tensors in a group, which its dimensions add up to."""

    def __init__(self, box: Box, tensors: Sequence[Strides], table: ParamTable) -> None:
        self.box = box
        self.extents = [table.divisor(e) for e in box.extents]
        self.strides = {t.tensor: [table.stride(s) for s in t.values] for t in tensors}

    def add(self, base: dict[str, Expr], body: list[Statement], dim: TileDim, x: Expr, name: str) -> None:
        """Adds to the offsets in `base` what coordinate `x` of a dimension gives."""
        at = decode(body, x, [self.extents[m] for m in dim.modes], name)
        for t in base:
            base[t] = base[t] + dot(at, [self.strides[t][m] for m in dim.modes])


def dot(coordinates: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    """The sum of products."""
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


def tile_origins(
    body: list[Statement], box: Box, tile: Expr, table: ParamTable, prefix: str = ""
) -> Iterator[tuple[int, TileDim, Expr]]:
    """Where tile number `tile`, fastest dimension first, begins: (number, dimension, origin along it) of each.

    Statements go to `body`, with names that begin with `prefix`; counts of tiles go to `table`.
    """
    rest = tile
    for i, (d, count) in enumerate(zip(box.dims, box.tiles_per_dim, strict=True)):
        last = i == len(box.dims) - 1
        tiles = None if last and count > 1 else table.divisor(count)
        at = rest if tiles is None else rest % tiles
        if tiles is not None and not last:
            rest = let(body, f"{prefix}t{i}", rest // tiles)
        yield i, d, let(body, f"{prefix}o{i}", at * const(d.box))


def group_index(group: str, box: Box, block: int, tensors: Sequence[Strides], table: ParamTable) -> GroupIndex:
    """Functions for one group. `block` is the tile's size; indices from `box.size` on are padding."""
    offsets, name = Offsets(box, tensors, table), f"{group.upper()}Tile"
    body: list[Statement] = []
    origins: dict[str, Expr] = {}
    base = dict.fromkeys(offsets.strides, ZERO)
    for i, d, origin in tile_origins(body, box, var("tile"), table):
        if len(d.modes) == 1 or d.box == 1:
            offsets.add(base, body, d, origin, f"x{i}")
        if d.box > 1 and (len(d.modes) > 1 or not box.divides(i)):
            origins[f"o{i}"] = origin
    return GroupIndex(
        members(name, wide=base, first=origins),
        Function(f"{group}_tile", ("tile",), tuple(body), (*origins.items(), *base.items()), name),
        _validity(group, box, block, offsets.extents, name, table),
        tuple(_offset(group, offsets, t, name) for t in base),
    )


def _validity(group: str, box: Box, block: int, extents: list[Expr], name: str, table: ParamTable) -> Function:
    body: list[Statement] = []
    ok = TRUE if box.size == block else var("local").less(const(box.size))
    coordinates = local_coordinates(body, box, var("local"))
    for i, d in enumerate(box.dims):
        if d.box > 1 and not box.divides(i):
            extent = extents[d.modes[0]] if len(d.modes) == 1 else table.count(box.dim_extent(i))
            ok = ok.both((var(f"t.o{i}") + coordinates[i]).less(extent))
    return Function.of(f"{group}_ok", body, ok, "bool", extra=f", const {name}& t")


def _offset(group: str, offsets: Offsets, tensor: str, name: str) -> Function:
    body: list[Statement] = []
    total = {tensor: ZERO}
    for i, (d, c) in enumerate(zip(offsets.box.dims, local_coordinates(body, offsets.box, var("local")), strict=True)):
        if d.box > 1:
            x = c if len(d.modes) == 1 else let(body, f"y{i}", var(f"t.o{i}") + c)
            offsets.add(total, body, d, x, f"x{i}")
    return Function.of(f"{group}_{tensor}", body, total[tensor], "long long", extra=f", const {name}& t")


def batch_index(extents: Sequence[int], tensors: Sequence[Strides], table: ParamTable) -> tuple[str, Function]:
    """The offsets of batch number `l` in every tensor, and the struct that holds them."""
    return _flat_index("LTile", "l_tile", "l", extents, tensors, table)


def k_table_index(extents: Sequence[int], tensors: Sequence[Strides], table: ParamTable) -> tuple[str, list[Function]]:
    """K flattened: the offsets of one k, for the table that the kernel keeps in shared memory."""
    struct, function = _flat_index("KEntry", "k_entry", "k", extents, tensors, table)
    return struct, [function]


def _flat_index(
    kind: str, name: str, number: str, extents: Sequence[int], tensors: Sequence[Strides], table: ParamTable
) -> tuple[str, Function]:
    body: list[Statement] = []
    x = decode(body, var(number), [table.divisor(e) for e in extents], "x") if extents else []
    outputs = {t.tensor: dot(x, [table.stride(s) for s in t.values]) for t in tensors}
    return members(kind, outputs), Function(name, (number,), tuple(body), tuple(outputs.items()), kind)


def k_box_index(box: Box, block: int, tensors: Sequence[Strides], table: ParamTable) -> tuple[str, list[Function]]:
    """K cut into boxes: one uniform offset per k-tile, and offsets of the index in the tile that never change.

    At most one dimension may be ragged; `rem` is what is left of it at a k-tile, `k_coord` the index along it.
    """
    offsets = Offsets(box, tensors, table)
    body: list[Statement] = []
    base = dict.fromkeys(offsets.strides, ZERO)
    rem, ragged = const(1 << 30), -1
    for i, d, origin in tile_origins(body, box, var("tile"), table):
        offsets.add(base, body, d, origin, f"x{i}")
        if d.box > 1 and not box.divides(i):
            assert ragged < 0, "a boxed K has one ragged dimension at most"
            ragged = i
            rem = table.count(box.dim_extent(i)) - origin
    local: list[Statement] = []
    along = [*local_coordinates(local, box, var("local")), ZERO][ragged]
    ok = TRUE if box.size == block else var("local").less(const(box.size))
    functions = [
        Function("k_tile", ("tile",), tuple(body), (*base.items(), ("rem", rem)), "KTile"),
        *k_offsets(offsets),
        Function.of("k_ok", (), ok, "bool"),
        Function.of("k_coord", local, along, "int"),
    ]
    return members("KTile", base, ["rem"]), functions


def k_offsets(offsets: Offsets) -> Iterator[Function]:
    """Of every operand the offset of an index in a k-tile."""
    box = offsets.box
    for t, strides in offsets.strides.items():
        body: list[Statement] = []
        total = dot(local_coordinates(body, box, var("local")), [strides[d.modes[0]] for d in box.dims])
        yield Function.of(f"k_{t}", body, total, "long long")


def d_order(boxes: Mapping[str, Box], strides: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """Tiled dimensions (group, position) by D's strides, which groups have by name: the order in which D is stored."""

    def key(dim: tuple[str, int]) -> int:
        return min(abs(strides[dim[0]][m]) for m in boxes[dim[0]].dims[dim[1]].modes)

    return sorted(((g, i) for g, box in boxes.items() for i, _ in box.tiled), key=key)


def unpack(name: str, digits: Sequence[Digit], outputs: Sequence[str] = ("m", "n")) -> Function:
    """From a position to the tile's (m, n), and to what else digits count; the first digit is the fastest."""
    body: list[Statement] = []
    position = var("i")
    rest, total = position, dict.fromkeys(outputs, ZERO)
    digits = _joined(digits)
    for j, (size, steps) in enumerate(digits):
        last = j == len(digits) - 1
        c = let(body, f"c{j}", rest if last else rest % const(size))
        if not last:
            rest = let(body, f"r{j}", rest // const(size))
        for output, step in steps.items():
            total[output] = total[output] + c * const(step)
    places = list(itertools.accumulate((size for size, _ in digits), operator.mul, initial=1))
    for output in outputs:  # what counts every digit at its own place is the position itself
        if [steps.get(output) for _, steps in digits] == places[:-1]:
            total[output] = position
    return Function(name, ("i",), tuple(body), tuple(total.items()), "gett::MNAt" if "at" in total else "gett::MN")


def _joined(digits: Sequence[Digit]) -> list[Digit]:
    """The same number with neighbours made one wherever all that they count goes on from one to the other."""
    found: list[Digit] = []
    for size, steps in digits:
        if found and steps == {output: found[-1][0] * step for output, step in found[-1][1].items()}:
            found[-1] = found[-1][0] * size, found[-1][1]
        else:
            found.append((size, steps))
    return found


def d_unpack(
    boxes: Mapping[str, Box], order: Sequence[tuple[str, int]], steps: Mapping[str, Sequence[int]]
) -> Function:
    """From the position in D's order to the tile's (m, n), and to the place in the staged tile."""
    digits = [(boxes[g].dims[i].box, {g: boxes[g].prefix(i), "at": steps[g][i]}) for g, i in order]
    return unpack("idx2crd_d", digits, ("m", "n", "at"))
