"""The tensor maps of a Hopper kernel in its text: coordinates of tiles and k-tiles, copies of stages and of D.

Owns the statements inside the generated `Index::load_stage`, `store_coords` of a staged tile of D, `store_tile` and
`load_c`, and `prefetch_tensormaps`. Of each copy a block issues all, or its part of what its cluster needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gett.codegen.index import ZERO, Expr, Function, ParamTable, const, var
from gett.codegen.ragged import clipped_rows, first_row, summed_rows
from gett.codegen.tiles import Statement, decode, members, tile_origins
from gett.ir.gemm import GemmPlan
from gett.schedule.mainloops.hopper import kept_operand
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

# The copy engine takes one copy after the other: behind a long store, loads wait while the stages run dry. Short ones
# are not worth a cut.
STORE_BYTES, LONG_BYTES = 8192, 32768
MOST_WRITTEN = 24  # copies of a staged tile that are written out
NO_LIMITS: Mapping[int, str] = MappingProxyType({})
LOOPED = 8  # more copies of a tile are a loop: one after the other, their places would take registers


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a tile."""

    start: int  # byte of the tile in shared memory where it begins
    first: tuple[int, ...]  # the hardware's coordinates, relative to the tile's
    part_bytes: int = 0  # what a block's part of a divided box adds to `start` and to the divided coordinate
    part_step: int = 0
    whose: int | None = None  # part of the cluster that issues it, or None: all do (each its part), or each in its turn


def copies(load: Tma) -> list[Copy]:
    """The copies of one tile, in the order in which they are issued."""
    out, made = [], load.map
    slabs = ((0, made.box[0], made.slabs),)
    repeats, pitch = (load.repeats, load.pitch) if load.repeats else (slabs, made.slab_bytes)
    even = load.blocks > 1 and load.copies % load.blocks == 0
    for i in range(load.copies):
        first, at = [0] * made.rank, i
        for dim, step, count in repeats:
            first[dim] += at % count * step * _count(made, dim)
            at //= count
        if load.divided is not None:
            # The divided dimension is the outermost, so a part is one piece of the copy.
            part = made.slab_bytes // load.blocks, load.box[load.divided] * _count(made, load.divided)
            out.append(Copy(i * pitch, tuple(first), *part))
        else:
            out.append(Copy(i * pitch, tuple(first), whose=i % load.blocks if even else None))
    return out


def _count(made: TmaMap, dim: int) -> int:
    """The hardware's elements in one of the map along a dimension."""
    return made.halves if dim == 0 else 1


def stage_copies(name: str, load: Tma, limits: Mapping[int, str] = NO_LIMITS) -> list[str]:
    """C++ statements that issue the copies of operand `name` (`"a"` or `"b"`).

    In scope are its place `<name>` in shared memory, `bar`, `multicast_<name>`, `tile_k`, and the coordinates:
    `t.<name>0` ... of the tile and `k.<name>0` ... of the k-tile. `limits` are the extents of dimensions at which
    and behind which no copy may begin (`limits_of`).
    """
    part = f"int(multicast_{name}.part)"
    if load.repeats and load.divided is None and load.copies > LOOPED:
        return _loop(name, load, part, limits)
    calls = []
    for copy in copies(load):
        coords = [_coordinate(name, d, str(x) if x else "", limits) for d, x in enumerate(copy.first)]
        to = f"{name} + {copy.start}" if copy.start else name
        if load.divided is not None:
            to += f" + {part} * {copy.part_bytes}"
            coords[load.divided] += f" + {part} * {copy.part_step}"
        if load.blocks == 1:
            calls.append(f"    gett::tma_load({to}, &p.map_{name}, bar, {', '.join(coords)});")
            continue
        guard = ""
        if load.divided is None:
            whose = f"tile_k % {load.blocks}" if copy.whose is None else str(copy.whose)
            guard = f"    if ({part} == {whose})\n  "
        mask = f"multicast_{name}.mask"
        calls.append(f"{guard}    gett::tma_load_multicast({to}, &p.map_{name}, bar, {mask}, {', '.join(coords)});")
    return calls


def _coordinate(name: str, dim: int, step: str, limits: Mapping[int, str]) -> str:
    """Where a copy begins, `step` behind the tile's first along a dimension; at the first instead of behind its end."""
    first = f"t.{name}{dim} + k.{name}{dim}"
    if not step:
        return first
    return f"{first} + ({first} + {step} < {limits[dim]} ? {step} : 0)" if dim in limits else f"{first} + {step}"


def limits_of(load: Tma, table: ParamTable) -> dict[int, str]:
    """The extents of the dimensions of a clipped map along which a copy may begin behind the tensor.

    Where all of a copy lies outside, the hardware still touches the map's address. That of a clipped map lies before
    the tensor, where there need be no memory. What such a copy brings from elsewhere is not stored.
    """
    made = load.map
    if not made.base_offset:
        return {}
    steps = [max(x) for x in zip(*(copy.first for copy in copies(load)), strict=True)]
    return {d: table.count(made.extents[d] * _count(made, d)).text for d, step in enumerate(steps) if step}


def _loop(name: str, load: Tma, part: str, limits: Mapping[int, str]) -> list[str]:
    """Statements that issue the copies of `load.repeats`, the first of them fastest."""
    steps: list[list[str]] = [[] for _ in range(load.map.rank)]
    to, heads, number, flat = name, [], [], 1
    for i, (dim, step, count) in enumerate(load.repeats):
        heads.append(f"#pragma unroll 1\n    for (int i{i} = 0; i{i} < {count}; ++i{i})")
        steps[dim].append(f"i{i} * {step * _count(load.map, dim)}")
        to += f" + i{i} * {flat * load.pitch}"
        number.append(f"i{i} * {flat}")
        flat *= count
    coords = [_coordinate(name, d, " + ".join(x), limits) for d, x in enumerate(steps)]
    call = f"gett::tma_load({to}, &p.map_{name}, bar, {', '.join(coords)});"
    if load.blocks > 1:
        whose = f"({' + '.join(number)})" if load.copies % load.blocks == 0 else "tile_k"
        call = (
            f"if ({part} == {whose} % {load.blocks})\n"
            f"        gett::tma_load_multicast({to}, &p.map_{name}, bar, multicast_{name}.mask, {', '.join(coords)});"
        )
    return [*reversed(heads), f"      {call}"]


def store_pieces(made: TmaMap) -> tuple[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]:
    """The box of one copy of a staged tile of D; (byte of the tile, the hardware's first coordinates) of each copy."""
    box, pieces = list(made.box), [(0,) * made.rank]
    size = made.slab_bytes
    for dim in range(made.rank - 1, 0, -1) if size * made.slabs > LONG_BYTES else ():
        period = 8 * max(made.swizzle_bytes, CHUNK)
        fits = [n for n in range(1, box[dim] + 1) if box[dim] % n == 0 and size // n % period == 0]
        # Of an extent with few divisors: a copy that is long costs less than many short ones.
        fits = [n for n in fits if n <= 2 * -(-size // STORE_BYTES)]
        n = next((n for n in fits if size // n <= STORE_BYTES), max(fits, default=1))
        box[dim] //= n
        size //= n
        pieces = [(*p[:dim], i * box[dim], *p[dim + 1 :]) for p in pieces for i in range(n)]
        if box[dim] > 1 or size <= STORE_BYTES:
            break  # what lies further in is no longer in one piece
    out = []
    for slab in range(made.slabs):
        for i, first in enumerate(pieces):
            out.append((slab * made.slab_bytes + i * size, (slab * made.box[0] * made.halves, *first[1:])))
    return tuple(box), out


def tensor_maps(schedule: Schedule) -> dict[str, TmaMap]:
    """The tensor maps of a kernel by the role of their tensor, in the order of the argument."""
    loads, epilogue = {"a": schedule.hopper.a.tma, "b": schedule.hopper.b.tma}, schedule.epilogue
    maps = {name: None if load is None else load.map for name, load in loads.items()}
    maps |= {"d": epilogue.store.map, "c": epilogue.source_map}
    return {name: made for name, made in maps.items() if made is not None}


@dataclass(frozen=True, slots=True)
class TileCoords:
    """Coordinate of each mode at the origin of a tile (`at`, by group) and of a k-tile, with their statements."""

    body: tuple[Statement, ...]
    at: dict[str, list[Expr]]
    k_body: tuple[Statement, ...]
    at_k: list[Expr]

    def coordinates(self, made: TmaMap, side: str) -> tuple[list[Expr], list[Expr]]:
        """Coordinates of an operand's map: what the tile gives, and what the k-tile adds."""
        tile = [*self.at["l"], *self.at[side]]
        fixed = _coordinates(made, [*tile, *(ZERO for _ in self.at_k)])
        return fixed, _coordinates(made, [ZERO for _ in tile] + self.at_k)

    def fixed(self, name: str, outputs: Mapping[str, Expr], kind: str, more: Sequence[Statement] = ()) -> list[str]:
        """The struct `kind` and the function `name` of a tile that fills it, with further statements."""
        function = Function(name, ("tile_m", "tile_n", "l"), (*self.body, *more), tuple(outputs.items()), kind)
        return [members(kind, ints=outputs), function.to_cpp()]

    def moving(self, name: str, outputs: Mapping[str, Expr], kind: str) -> list[str]:
        """The struct `kind` and the function `name` of a k-tile that fills it."""
        function = Function(name, ("tile_k",), self.k_body, tuple(outputs.items()), kind)
        return [members(kind, ints=outputs), function.to_cpp()]

    def store(self, schedule: Schedule) -> list[str]:
        """The copies of a staged tile to D, and those that bring C's; nothing where no map stores it.

        Parts divide the last tiled dimension of the tile's box of N.
        """
        epilogue, n = schedule.epilogue, schedule.tiling.n
        store, c = epilogue.store.tma, epilogue.source_map
        if store is None:
            return []
        d, exchange = store.map, store.exchange
        at = [*self.at["l"], *self.at["m"], *self.at["n"]]
        outputs = {f"d{i}": x for i, x in enumerate(_coordinates(d, at))}
        body: list[Statement] = []
        if (group := schedule.scheduler.ragged) in ("m", "n"):
            body, rows = clipped_rows(schedule, d, len(self.at["l"]) + (group == "n") * len(self.at["m"]))
            outputs |= rows
        fields = list(outputs)
        more = "" if exchange is None else ", int rank"
        if store.subtiles > 1:  # the next part lies further on along the last tiled dimension of N
            more, part = ", int part", n.tiled[-1][1]
            of = d.modes[len(at) - len(self.at["n"]) + part.modes[0]]
            fields[of.dim] += f" + part * {of.weight * part.box // store.subtiles * _count(d, of.dim)}"
        for (mode, step), sign in zip((exchange.row, exchange.half), "-+", strict=True) if exchange is not None else ():
            # The row begins where that of the first block's tile does; each block has a half of another dimension.
            fields[d.modes[mode].dim] += f" {sign} rank * {d.modes[mode].weight * step}"
        head = f"static GETT_DEVICE void store_tile(const Params& p, const StoreCoords& t, gett::uint32 from{more})"
        functions = [tile_copies(head, "gett::tma_store(&p.map_d, from + {start}, ", d, fields)]
        if c is not None:
            known = {x: name for name, x in reversed(outputs.items())}  # coordinates that D has too are found once
            coords = _coordinates(c, at)
            fields = [known.get(x, f"c{i}") for i, x in enumerate(coords)]
            outputs |= {name: x for name, x in zip(fields, coords, strict=True) if x not in known}
            inputs = "const Params& p, const StoreCoords& t, gett::uint32 to, gett::uint32 bar"
            head = f"static GETT_DEVICE void load_c({inputs})"
            functions.append(tile_copies(head, "gett::tma_load(to + {start}, &p.map_c, bar, ", c, fields))
        return [*self.fixed("store_coords", outputs, "StoreCoords", body), *functions]


def tile_copies(head: str, call: str, made: TmaMap, fields: Sequence[str]) -> str:
    """The function that issues the copies of a staged tile, whose coordinates are those members of `t`.

    Many copies are issued in loops: written out, their coordinates would take more registers than a store warp has.
    """
    pieces = [(start, *first) for start, first in store_pieces(made)[1]]
    lines = []
    for run in _runs(pieces) if len(pieces) > MOST_WRITTEN else [[x] for x in pieces]:
        terms = [str(x) if x or not step else "" for x, step in zip(run[0], _step(*run[:2]), strict=True)]
        if len(run) > 1:
            lines.append(f"#pragma unroll 1\n    for (int i = 0; i < {len(run)}; ++i)")
            steps = [f"i * {step}" if step else "" for step in _step(*run[:2])]
            terms = [" + ".join(filter(None, pair)) for pair in zip(terms, steps, strict=True)]
        coords = (f"t.{field}" + (f" + {x}" if x != "0" else "") for field, x in zip(fields, terms[1:], strict=True))
        lines.append(f"    {call.format(start=terms[0])}{', '.join(coords)});")
    return f"  {head} {{\n" + "\n".join(lines) + "\n  }"


def _runs(pieces: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Longest runs of copies, from the first on, whose starts and coordinates grow by the same steps."""
    runs: list[list[tuple[int, ...]]] = []
    for piece in pieces:
        run = runs[-1] if runs else []
        if run and (len(run) == 1 or _step(run[-1], piece) == _step(run[-2], run[-1])):
            run.append(piece)
        else:
            runs.append([piece])
    return runs


def _step(x: tuple[int, ...], y: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """From one copy to the next; none from a copy that stands alone."""
    return tuple(b - a for a, b in zip(x, y or x, strict=True))


def tile_coords(plan: GemmPlan, schedule: Schedule, table: ParamTable) -> TileCoords:
    """Where the tiles of a lowered plan begin."""
    body: list[Statement] = []
    tiling, ragged = schedule.tiling, schedule.scheduler.ragged
    at = {"l": decode(body, var("l"), [table.divisor(s.extent) for s in plan.l], "xl") if plan.l else []}
    for group, box in (("m", tiling.m), ("n", tiling.n)):
        at[group] = [first_row(schedule)] if group == ragged else _origins(body, box, group, table)
    k_body: list[Statement] = []
    at_k = [ZERO] if ragged == "k" else _origins(k_body, tiling.k, "k", table)
    return TileCoords(tuple(body), at, tuple(k_body), at_k)


def prefetch(names: Iterable[str]) -> str:
    """The function that fetches the tensor maps themselves."""
    fetches = " ".join(f"gett::prefetch_tensormap(&p.map_{name});" for name in names)
    return f"  static GETT_DEVICE void prefetch_tensormaps(const Params& p) {{ {fetches} }}"


def _origins(body: list[Statement], box: Box, group: str, table: ParamTable) -> list[Expr]:
    """Coordinate of each mode at the origin of tile `tile_<group>`."""
    out: list[Expr] = [ZERO] * len(box.extents)
    for i, d, origin in tile_origins(body, box, var(f"tile_{group}"), table, group):
        found = decode(body, origin, [table.divisor(box.extents[m]) for m in d.modes], f"{group}x{i}")
        for m, x in zip(d.modes, found, strict=True):
            out[m] = x
    return out


def _coordinates(made: TmaMap, coordinates: list[Expr]) -> list[Expr]:
    """Coordinates of the map from those of the modes."""
    out = [ZERO] * made.rank
    for x, mode in zip(coordinates, made.modes, strict=True):
        if mode.weight:
            out[mode.dim] = out[mode.dim] + x * const(mode.weight * _count(made, mode.dim))
    return out


def stage_loads(plan: GemmPlan, schedule: Schedule, table: ParamTable) -> list[str]:
    """Coordinates of the boxes and the functions that issue the copies of a stage and of a tile of D."""
    coords = tile_coords(plan, schedule, table)
    outputs: dict[str, Expr] = {}
    k_outputs: dict[str, Expr] = {}
    calls: list[str] = []
    stationary: list[str] = []
    kept = kept_operand(plan, schedule)
    for name, loader, side in (("a", schedule.hopper.a, "m"), ("b", schedule.hopper.b, "n")):
        load = loader.tma
        if load is None:
            continue
        fixed, moving = coords.coordinates(load.map, side)
        outputs |= {f"{name}{i}": x for i, x in enumerate(fixed)}
        k_outputs |= {f"{name}{i}": x for i, x in enumerate(moving)}
        if loader is not load:  # it stays
            stationary.append(
                "  static GETT_DEVICE void load_stationary(const Params& p, const TileCoords& t, int tile_k, "
                f"gett::uint32 {name},\n      gett::uint32 bar) {{\n    const KCoords k = k_coords(p, tile_k);\n"
                + "\n".join(stage_copies(name, load))
                + "\n  }"
            )
        else:
            found = stage_copies(name, load, limits_of(load, table))
            calls += ["    if (whole) {", *found, "    }"] if name == kept else found
    rows: list[str] = []
    if schedule.scheduler.ragged == "k":
        sides = (("a", schedule.hopper.a.tma, plan.m), ("b", schedule.hopper.b.tma, plan.n))
        maps = {name: (load.map, len(plan.l) + len(side)) for name, load, side in sides if load is not None}
        ends, rows = summed_rows(schedule, maps)
        outputs |= ends
    const_k = "" if rows else "const "
    texts = [*coords.fixed("tile_coords", outputs, "TileCoords"), *coords.moving("k_coords", k_outputs, "KCoords")]
    head = "static GETT_DEVICE void load_stage(const Params& p, const TileCoords& t, int tile_k, "
    texts.append(
        f"  {head}gett::uint32 a, gett::uint32 b, gett::uint32 bar,\n"
        f"      const gett::Multicast& multicast_a, const gett::Multicast& multicast_b, bool whole) {{\n"
        f"    {const_k}KCoords k = k_coords(p, tile_k);\n" + "\n".join([*rows, *calls]) + "\n  }"
    )
    texts += stationary
    if schedule.tiling.mma_tiles > 1:
        texts.append(_next_mma_tile(plan, schedule))
    return [*texts, *coords.store(schedule), prefetch(tensor_maps(schedule))]


def _next_mma_tile(plan: GemmPlan, schedule: Schedule) -> str:
    """Moves the coordinates of A's copies to the next MMA tile of a tile of D."""
    load = schedule.hopper.a.tma
    assert load is not None
    _, last = schedule.tiling.m.tiled[-1]
    mode = load.map.modes[len(plan.l) + last.modes[0]]
    step = mode.weight * (last.box // schedule.tiling.mma_tiles)
    return f"  static GETT_DEVICE void next_mma_tile(TileCoords& t) {{ t.a{mode.dim} += {step}; }}"


def slab_loads(plan: GemmPlan, schedule: Schedule, table: ParamTable) -> list[str]:
    """Coordinates of the boxes, the copy of a k-tile of A, that of slab `s` of B, and that of a tile of D."""
    loop, cluster = schedule.loop(WgmmaRS), schedule.cluster
    coords = tile_coords(plan, schedule, table)
    texts: list[str] = []
    for name, load, side in (("a", loop.a, "m"), ("b", loop.b, "n")):
        fixed, moving = ({f"x{i}": x for i, x in enumerate(found)} for found in coords.coordinates(load.map, side))
        texts += coords.fixed(f"tile_coords_{name}", fixed, f"TileCoords{name.upper()}")
        texts += coords.moving(f"k_coords_{name}", moving, f"KCoords{name.upper()}")
    start = [f"t.x{i} + k.x{i}" for i in range(loop.a.map.rank)]
    for dim, step, _ in loop.a.repeats:
        start[dim] += f" + piece * {step}"
    if cluster[1] > 1:  # a block's half of k2
        half = loop.a.map.modes[len(plan.l) + len(plan.m) + loop.unit_b]
        start[half.dim] += f" + rank * {half.weight * schedule.tiling.k.cut[loop.unit_b] // cluster[1]}"
    head = (
        "static GETT_DEVICE void load_a(const Params& p, const TileCoordsA& t, const KCoordsA& k, int rank, int piece,"
    )
    texts.append(
        f"  {head}\n"
        f"      gett::uint32 to, gett::uint32 bar) {{\n    gett::tma_load(to, &p.map_a, bar, {', '.join(start)});\n  }}"
    )
    unit = loop.b.map.modes[len(plan.l) + len(plan.n) + loop.unit_a]
    moved = [f"t.x{i} + k.x{i}" for i in range(loop.b.map.rank)]
    moved[unit.dim] += f" + s * {unit.weight}"
    call = "tma_load(to, &p.map_b, bar, " if cluster[0] == 1 else "tma_load_multicast(to, &p.map_b, bar, 3, "
    texts.append(
        "  static GETT_DEVICE void load_b(const Params& p, const TileCoordsB& t, const KCoordsB& k, int s,\n"
        f"      gett::uint32 to, gett::uint32 bar) {{\n    gett::{call}{', '.join(moved)});\n  }}"
    )
    return [*texts, *coords.store(schedule), prefetch(tensor_maps(schedule))]
