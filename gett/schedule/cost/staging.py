"""How a tile of D is staged on its way to memory, and the clocks that each way takes of a multiprocessor.

Knows a tile's boxes and D's strides; what the whole tile takes is estimated in `hopper.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.hw.device import StoreClocks
from gett.hw.dtypes import WORD, data_type
from gett.ir.contraction import Contraction
from gett.ir.gemm import A, C, D, GemmPlan
from gett.schedule.cost.copies import CopyCost
from gett.schedule.spec.epilogue import StagedTile
from gett.schedule.spec.hopper_needs import Exchanged, exchanged, multiplied, planes
from gett.schedule.spec.vectors import TiledDim, run_length, run_of, tiled_dims
from gett.schedule.tile.staged_tile import (
    MATRIX_SLOTS,
    Accumulators,
    DimD,
    boxed_tile,
    gapped_tile,
    pairs,
)
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.box import Box
from layouts.modes import Strided
from layouts.swizzle import CHUNK, swizzle_dividing

SHORTEST_ROW = 32
"""Elements of D's rows that leave one by one; shorter ones are stored faster element by element."""

Key = tuple[Box, int, Box, int, int, bool, int, bool]


@dataclass(frozen=True, slots=True)
class Staging:
    """How a tile of D is staged for a tensor map, and whether that is cheaper than for vectors."""

    dense: StagedTile  # the tile as a tensor map takes it; of no meaning where none may
    bulk: bool  # whether the tensor map is cheaper
    clocks: float  # what the cheapest way takes
    row: int = 0  # elements of the rows that leave one by one, where that is cheaper than vectors; else 0


@dataclass(frozen=True, slots=True)
class _Ways:
    """In which ways a tile of D may leave."""

    dims: Sequence[TiledDim]  # what is tiled of D, by distance in memory
    lead: int  # elements along D's unit-stride mode that all tiles have together
    run: int  # the same across modes
    mapped: bool  # whether a tensor map may store it
    source: bool  # whether a tensor map brings C, too
    vectors: float  # clocks of storing it in vectors or in rows
    row: int  # elements of the rows that leave one by one, where that is cheaper than vectors; else 0


class StagingCost(CopyCost):
    """Stagings of one plan's tiles, worked out once per pair of boxes."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan, facts)
        c = plan.contraction
        self.type_d, stmatrix = data_type(c.d.dtype), data_type(c.dtype).stmatrix
        # Beside the short loops of operands that are rounded, split or narrower, single elements would take too long.
        converts = not data_type(c.dtype).exact and multiplied(plan) is not None
        converts |= planes(plan) is not None or stmatrix
        self.boxed = self.type_d.stmatrix or (converts and self.size_d == WORD) or self.type_d.doubled
        # Phases of 128 bytes that 32 elements take; times of complex64 were fitted with one.
        self.phases = self.size_d // WORD if self.type_d.doubled else 1
        # Of a store of one row of a gapped tile: pairs of 16-bit elements halve its phases.
        self.fewest = 0.5 if self.size_d < WORD else 1.0
        slots = MATRIX_SLOTS if self.type_d.stmatrix else 0.7 + 5.0 / max(1, CHUNK // max(self.size_d, WORD))
        asked = [(self.size_d / 128, slots / 128)] if self.boxed else []
        asked.append((self.fewest * self.phases / 32, 2.0 / 128))
        self.least_of_element = min(max(x) + 0.3 * min(x) for x in asked)
        self.stagings: dict[Key, Staging] = {}
        self.known_ways: dict[tuple[Box, Box, bool], _Ways] = {}

    def staging(self, tile: WgmmaTile) -> Staging:
        """How a tile of D is staged and what that takes of a multiprocessor."""
        key = _key(tile)
        if key not in self.stagings:
            self.stagings[key] = self._staging(tile)
        return self.stagings[key]

    def unmapped(self, tile: WgmmaTile) -> None:
        """Count a tile as stored in vectors from now on, since no tensor map has its dimensions."""
        self.stagings[_key(tile)] = self._staging(tile, mapped=False)

    def least_tail(self, elements: int) -> float:
        """What staging a tile of so many elements takes at least, in clocks: written without bank conflicts."""
        return self.device.stores.tile_clocks + elements * self.least_of_element

    def padded(self, tile: WgmmaTile) -> StagedTile:
        """How a tile of D is staged where it leaves as vectors."""
        return self._gapped(tile, False)

    def row_of_d(self, tile: WgmmaTile) -> int:
        """Elements of the rows in which a tile of D may leave one by one, 0 where they are too short."""
        return row_length(self.plan.contraction, ((tile.m.modes, tile.m.box), (tile.n.modes, tile.n.box)))

    def exchanged(self, tile: WgmmaTile) -> Exchanged | None:
        """How two blocks may exchange halves of the tile."""
        dims = self._ways(tile).dims
        if not dims or dims[0].box * self.size_d != CHUNK or not self.staging(tile).bulk:  # other rows need none
            return None
        return exchanged(tile.m.box, tile.n.box, self.staging(tile).dense, self.size_d, len(self.plan.l))

    def _staging(self, tile: WgmmaTile, mapped: bool = True) -> Staging:
        ways, boxes_n, bulk_clocks = self._ways(tile), tile.n.box.shape, math.inf
        dense: StagedTile | None = None

        def gapped(stage: StagedTile) -> float:
            # Conflicts are those of a phase of 128 bytes: pairs halve the phases of 16-bit elements alone.
            halved = pairs(boxes_n, stage.n) and self.size_d < WORD
            return self._written(tile, stage.conflicts / (2 if halved else 1))

        # Of either gapped tile: they are worked out only where they may be cheaper.
        least = self._written(tile, self.fewest)
        if mapped and ways.mapped:
            boxed = boxed_tile(*self.dims(tile), self.device.stores.tile_clocks) if self.boxed else None
            if boxed is not None:
                dense, bulk_clocks = boxed[0], boxed[1] * tile.mma_tiles
            if ways.lead * self.size_d % CHUNK == 0 and least < bulk_clocks:
                other = self._gapped(tile, True)
                if gapped(other) <= bulk_clocks:
                    dense, bulk_clocks = other, gapped(other)
            bulk_clocks *= 2 if ways.source else 1  # C is read as D is written
        if dense is not None and bulk_clocks <= least + ways.vectors:
            return Staging(dense, True, bulk_clocks)
        padded = self.padded(tile)
        plain_clocks = gapped(padded) + ways.vectors
        if dense is not None and bulk_clocks <= plain_clocks:
            return Staging(dense, True, bulk_clocks)
        return Staging(padded, False, plain_clocks, ways.row)

    def _ways(self, tile: WgmmaTile) -> _Ways:
        """In which ways a tile may leave."""
        key = (tile.m.box, tile.n.box, tile.tma_source)
        if key not in self.known_ways:
            self.known_ways[key] = self._new_ways(tile)
        return self.known_ways[key]

    def _new_ways(self, tile: WgmmaTile) -> _Ways:
        has_c, stores = self.plan.contraction.c is not None, self.device.stores
        dims = tiled_dims((("m", tile.m.modes, tile.m.box), ("n", tile.n.modes, tile.n.box)), D)
        elements = tile.m.box.size * tile.n.box.size
        run = run_length(run_of(dims[:1] if has_c else dims, self.size_d))
        source = has_c and tile.tma_source and self.c_follows_d(tile)
        vector, row = self._vector(run), self.row_of_d(tile)
        vectors = elements / vector / 32 * (stores.access_slots / 4 + 4 * vector * self.size_d / 16)
        by_row = _row_clocks(stores, elements, row) if row else math.inf
        row = row if vector == 1 or by_row < vectors else 0
        modes = {d: [x.strides[D] for x in _flattened(tile, d)] for d in dims}
        dims = sorted(dims, key=lambda d: (min(map(abs, modes[d])), d.group, d.index))
        # A flattened dimension is cut anywhere.
        lead = run_length(run_of([d for d in dims[:1] if len(modes[d]) == 1], self.size_d))
        return _Ways(dims, lead, run, source or not has_c, source, by_row if row else vectors, row)

    def _gapped(self, tile: WgmmaTile, dense: bool) -> StagedTile:
        """The tile whose dimensions follow each other in D's order; `dense` for a tensor map."""
        ways, has_c = self._ways(tile), self.plan.contraction.c is not None
        order = tuple((d.group, d.index) for d in ways.dims)
        # With C added, accumulators are staged.
        sums = has_c and not (dense and tile.tma_source)
        size = data_type(self.plan.contraction.dtype).accumulator_bytes if sums else self.size_d
        vector = self._vector(ways.lead if dense else ways.run)
        return gapped_tile(tile.m.box.shape, tile.n.box.shape, order, size, vector, not dense)

    def _vector(self, run: int) -> int:
        """Elements of a store of a run of so many."""
        return max(v for v in (1, 2, 4, 8) if run % v == 0 and v * self.size_d <= CHUNK)

    def _written(self, tile: WgmmaTile, conflicts: float) -> float:
        """Clocks of a gapped tile each of whose stores of one row is served so often."""
        lead = next((d.box for _, d in tile.n.box.tiled), 1)
        warps = tile.m.box.size * tile.n.box.size / 32
        stores, slots = warps * conflicts * self.phases, warps * (2.0 if lead % 8 == 0 else 9.0)
        # Rows of the padding leave warps idle while the others write.
        idle = tile.shape[0] * tile.mma_tiles / tile.m.box.size
        return self.device.stores.tile_clocks + (max(stores, slots / 4) + 0.3 * min(stores, slots / 4)) * idle

    def c_follows_d(self, tile: WgmmaTile) -> bool:
        """Whether C's strides are such that a tensor map may bring its tile where one takes D's.

        They have the same unit-stride mode and take whole 16 bytes along all others.
        """
        for side in (tile.m, tile.n):
            for d in side.box.dims:
                for mode in (side.modes[m] for m in d.modes):
                    unit, step = mode.strides[D] == self.size_d, mode.strides[C]
                    tiled = d.box > 1 and mode.extent > 1
                    if tiled and (step <= 0 or unit != (step == self.item(C))):
                        return False
                    if mode.extent > 1 and step % CHUNK and not (tiled and unit):
                        return False
        return all(mode.strides[C] % CHUNK == 0 for mode in self.plan.l)

    def dims(self, tile: WgmmaTile) -> tuple[tuple[DimD, ...], Accumulators, tuple[int, int]]:
        """What `boxed_tile` asks of a tile."""
        groups, found = tile.warpgroups, list[DimD]()
        for side in (tile.m, tile.n):
            single = [side.modes[m] for d in side.box.dims if d.box == 1 for m in d.modes]
            if any(mode.extent > 1 and mode.strides[D] % CHUNK for mode in single):
                return (), Accumulators(1, 1, 1, 1, 0, 0, self.size_d), (0, 0)  # no tensor map steps along them
        for d in self._ways(tile).dims:
            found.append(DimD(d.group, d.index, d.box, d.modes[0].extent, d.stride // self.size_d, d.prefix))
        found.sort(key=lambda d: d.step)
        atom = tile.m.atom if tile.m.run else 0
        if not atom and self.k_unit[A] is None:
            unit = tile.m.unit(A, self.size)
            box = next((d.box for d in tile.m.box.dims if unit in d.modes), 1)
            atom = swizzle_dividing(box * self.size) // self.size
        held = Accumulators(
            groups.mma_m, 1 if groups.ping_pong else groups.count, tile.m.box.size // tile.mma_tiles, tile.n.box.size,
            atom, tile.m.run, self.size_d,
        )  # fmt: skip
        return tuple(found), held, (len(tile.m.box.dims), len(tile.n.box.dims))


def _key(tile: WgmmaTile) -> Key:
    m, n, groups = tile.m, tile.n, tile.warpgroups
    return m.box, m.run, n.box, n.run, groups.mma_m, groups.ping_pong, tile.mma_tiles, tile.tma_source


def _flattened(tile: WgmmaTile, dim: TiledDim) -> list[Strided]:
    """The modes of a dimension of M's box or of N's."""
    side = tile.m if dim.group == "m" else tile.n
    return [side.modes[m] for m in side.box.dims[dim.index].modes]


def row_length(c: Contraction, sides: Sequence[tuple[Sequence[Strided], Box]]) -> int:
    """Elements of a tile that lie together in D, along its unit stride; 0 where rows are too short to be worth it.

    Args:
        c: What the tile is a part of.
        sides: The modes of M and of N, and what the tile takes of them.
    """
    dtype = data_type(c.d.dtype)
    size = dtype.bytes
    if not dtype.stmatrix or c.c is not None:
        return 0
    for modes, box in sides:
        for d in box.dims:
            strides = [modes[m].strides[D] for m in d.modes]
            if d.box < SHORTEST_ROW or strides[0] != size:
                continue
            steps = zip(d.modes, strides, strides[1:], strict=False)
            if all(after == modes[m].extent * stride for m, stride, after in steps):
                return d.box
    return 0


def _row_clocks(stores: StoreClocks, elements: int, row: int) -> float:
    """What storing a tile row by row takes of a multiprocessor."""
    chunks = row // 16 * 2
    lanes = 8 if chunks <= 8 else 16 if chunks <= 16 else 32
    passes = elements / row * lanes / 32 * -(-chunks // lanes)
    return passes * stores.row_pass_clocks
