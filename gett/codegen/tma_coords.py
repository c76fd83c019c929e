"""Coordinates of tensor maps for a tile and a k-tile, and what every Hopper pipeline has of them in `Index`.

Owns `store_coords` of a staged tile of D, `store_tile` and `load_c`, and `prefetch_tensormaps`; what the copies of a
stage look like is the pipeline's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gett.codegen.index import ZERO, Expr, Function, ParamTable, const, var
from gett.codegen.tiles import Statement, decode, members, tile_origins
from gett.codegen.tma_copies import store_pieces
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.tiling import Tiling
from layouts.box import Box
from layouts.tma import TmaMap

Outputs = Mapping[str, Expr]
INPUTS = ("tile_m", "tile_n", "l")

MOST_WRITTEN = 24  # copies of a staged tile that are written out


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

    def fixed(self, name: str, outputs: Outputs, kind: str) -> list[str]:
        """The struct `kind` and the function `name` of a tile that fills it."""
        return [members(kind, ints=outputs), Function(name, INPUTS, self.body, tuple(outputs.items()), kind).to_cpp()]

    def moving(self, name: str, outputs: Outputs, kind: str) -> list[str]:
        """The struct `kind` and the function `name` of a k-tile that fills it."""
        function = Function(name, ("tile_k",), self.k_body, tuple(outputs.items()), kind)
        return [members(kind, ints=outputs), function.to_cpp()]

    def store(self, epilogue: Epilogue) -> list[str]:
        """The copies of a staged tile to D, and those that bring C's; nothing where no map stores it."""
        store, c = epilogue.store.tma, epilogue.source_map
        if store is None:
            return []
        d, exchange = store.map, store.exchange
        at = [*self.at["l"], *self.at["m"], *self.at["n"]]
        outputs = {f"d{i}": x for i, x in enumerate(_coordinates(d, at))}
        fields = list(outputs)
        rank = "" if exchange is None else ", int rank"
        for (mode, step), sign in zip((exchange.row, exchange.half), "-+", strict=True) if exchange is not None else ():
            # The row begins where that of the first block's tile does; each block has a half of another dimension.
            fields[d.modes[mode].dim] += f" {sign} rank * {d.modes[mode].weight * step}"
        head = f"static GETT_DEVICE void store_tile(const Params& p, const StoreCoords& t, gett::uint32 from{rank})"
        functions = [tile_copies(head, "gett::tma_store(&p.map_d, from + {start}, ", d, fields)]
        if c is not None:
            known = {x: name for name, x in reversed(outputs.items())}  # coordinates that D has too are found once
            coords = _coordinates(c, at)
            fields = [known.get(x, f"c{i}") for i, x in enumerate(coords)]
            outputs |= {name: x for name, x in zip(fields, coords, strict=True) if x not in known}
            inputs = "const Params& p, const StoreCoords& t, gett::uint32 to, gett::uint32 bar"
            head = f"static GETT_DEVICE void load_c({inputs})"
            functions.append(tile_copies(head, "gett::tma_load(to + {start}, &p.map_c, bar, ", c, fields))
        return [*self.fixed("store_coords", outputs, "StoreCoords"), *functions]


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


def tile_coords(plan: GemmPlan, tiling: Tiling, table: ParamTable) -> TileCoords:
    """Where the tiles of a lowered plan begin."""
    body: list[Statement] = []
    at = {
        "l": decode(body, var("l"), [table.divisor(s.extent) for s in plan.l], "xl") if plan.l else [],
        "m": _origins(body, tiling.m, "m", table),
        "n": _origins(body, tiling.n, "n", table),
    }
    k_body: list[Statement] = []
    at_k = _origins(k_body, tiling.k, "k", table)
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
            out[mode.dim] = out[mode.dim] + x * const(mode.weight * (made.halves if mode.dim == 0 else 1))
    return out
