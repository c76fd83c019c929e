"""Bounds of what the cost model of the Hopper main loops says of tiles: cheap, so that most tiles are never estimated.

A shape has a bound before boxes of M and N are cut, its boxes have one, and a tile has one before its staging is worked
out. Bounds are of forecasts: the part of `pace` that no schedule changes is in them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.estimate import ROUNDED, traffic_us
from gett.schedule.cost.hopper import HopperCost, Loop
from gett.schedule.cost.hopper_units import SPLIT, LoopCost
from gett.schedule.spec.hopper_needs import up
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.rates import run_cost

Sides = Sequence[OperandTiling]


@dataclass(frozen=True, slots=True)
class _Group:
    """What any of the boxes of a block of M or of N, with a box of K, takes of a tile at least.

    Attributes:
        side: The smallest of the boxes, without rows of padding.
        tiles: Along the group.
        read: Bytes at copy speed that reading the operand is worth.
        clocks: Of the copy engine for a k-tile that one block reads, and two.
        share: Of the time, for short first dimensions.
    """

    side: OperandTiling
    tiles: int
    read: float
    clocks: tuple[float, ...]
    share: float


def least_split_us(plan: GemmPlan, facts: ArchFacts) -> float:
    """A bound of the time of any schedule in planes: its start, and the largest tensor at copy speed."""
    device = nearest(facts)
    start_us = device.launches.launch_us + SPLIT.fills * device.launches.fill_us
    return start_us + max(traffic_us(plan, device).values())


class HopperBounds(HopperCost):
    """The cost model with its bounds, for one plan and one main loop."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, mainloop: LoopCost) -> None:
        super().__init__(plan, facts, mainloop)
        memory, of = self.device.memory, self.bytes
        loads, stores = (run_cost(memory, memory.long_run, store=store, bulk=True) for store in (False, True))
        self.least_memory = (of[A] + of[B]) * loads + of[D] * min(1.0, stores) + of.get(C, 0)
        self.least_memory *= 1e-6 / memory.copy_tbps
        self.groups: dict[tuple[int, int, Box], _Group] = {}
        self.least_stores: dict[tuple[int, int], float] = {}

    def least_us(self, tile: WgmmaTile, known: Loop | None = None) -> float:
        """A bound of the estimate that does not ask how D is staged; `known` is the tile's loop."""
        (tiles, at_once), steps = self.grid(tile), tile.k.tiles * tile.mma_tiles
        loop = known or self.loop(tile, tiles)
        clocks, waves, memory = steps * max(loop.clocks, loop.copies), tiles / at_once, self.least_dram_us(tile)
        if self.mainloop.splits(tile.k.tiles, tiles, self.facts.sm_count) == [1]:
            clocks = max(clocks, self.least_work(tile, steps * loop.clocks, loop.panel, self.least_tail(tile)))
            waves, memory = math.ceil(waves), memory / min(1.0, tiles / self.facts.sm_count)
        return self._bound(memory, waves * clocks) * self.factor(tile, tiles) * ROUNDED

    def least_work(self, tile: WgmmaTile, looped: float, panel: float, tail: float) -> float:
        """Clocks from one tile to the next at least, whose sums take all of K; D is staged in `tail` or more."""
        rates, steps, reused = self.rates, tile.k.tiles * tile.mma_tiles, self.tile_rates.reused_clocks
        if tile.warpgroups.ping_pong:
            return max(looped, (looped + tail + rates.alternate_clocks) / 2) + panel
        clocks = looped + tail + rates.tile_clocks * tile.mma_tiles + panel
        if not rates.load_clocks:
            return clocks
        staged = tile.m.box.size * tile.n.box.size * self.size_d
        within = self.waiting(tile, steps, clocks + reused, 0.0, 0) if looped >= 8 * reused else math.inf
        return min(self.waiting(tile, steps, clocks, 0.0, staged), within)

    def _bound(self, memory: float, clocks: float) -> float:
        busy = clocks / (self.facts.clock_ghz * 1e3)
        return self.start_us + max(memory, busy) + self.beside_loads * min(memory, busy)

    def least_of_sides(
        self,
        groups: Warpgroups,
        columns: int,
        sides: tuple[Sides, Sides],
        box_k: Box,
        shares: bool,
        stay: Iterable[tuple[str, bool]],
    ) -> float:
        """A bound of the forecasts of all tiles of a shape, in clusters and of operands that stay, too.

        Args:
            groups: Who multiplies.
            columns: Of the tiles.
            sides: Their boxes of M and of N.
            box_k: That of K.
            shares: Whether blocks may share operands.
            stay: Operands that may stay, and whether for a block's one panel.
        """
        m, n = self._group(A, groups.rows, sides[0], box_k), self._group(B, columns, sides[1], box_k)
        rates, tiles = self.tile_rates, m.tiles * n.tiles * self.batches
        exchange = tiles <= self.facts.sm_count
        stored = self._least_stored(groups.rows, columns, sides)
        memory = m.read + n.read + self.bytes[D] * (min(stored, 1.0) if exchange else stored) + self.bytes.get(C, 0)
        memory *= 1e-6 / self.device.memory.copy_tbps
        copied = m.clocks[0] + n.clocks[0]
        if shares and (exchange or box_k.tiles >= 8):
            copied = min(copied, m.clocks[1] + n.clocks[0], m.clocks[0] + n.clocks[1])
        ways = [("", 1.0, self.rates.waits, copied)]
        for name, panel in stay:
            paced = min(1.0, rates.one_panel) if panel else 1.0
            ways.append((name, paced, min(self.rates.waits, rates.each_panel), (n if name == "a" else m).clocks[0]))
        share = m.share + n.share + (0.0 if groups.ping_pong else rates.together_share)
        tail = self.least_tail_of(groups.rows * n.side.box.size)
        pace = 1.0 + rates.map_share * groups.mma_m + share
        pace *= 1.0 + rates.padded_share * (tiles * groups.rows * up(n.side.box.size, 8) / self.outputs - 1.0)
        steps, waves, least = box_k.tiles, tiles / self.facts.sm_count, math.inf
        whole = self.mainloop.splits(steps, tiles, self.facts.sm_count) == [1]
        columns_n = sides[1] if self.mainloop.by_box else (n.side,)
        for (name, paced, factor, copied), side in itertools.product(ways, columns_n):
            tile = WgmmaTile(self.atom, groups, m.side, side, box_k, stationary=name)
            (products, port, _), copies = self._units(tile), self.rates.copies * copied
            clocks = max(products, port, copies)
            clocks += self.rates.hidden * (products + port + copies - clocks) + self.rates.k_tile_clocks
            looped = steps * clocks * paced
            clocks = max(looped, steps * copies)
            if whole:
                clocks, waves = max(clocks, self.least_work(tile, looped, 0.0, tail)), math.ceil(waves)
            least = min(least, self._bound(memory, waves * clocks) * factor)
        return least * pace * ROUNDED

    def least_of_shape(self, groups: Warpgroups, columns: int, boxes_k: Sequence[Box], keeps: bool) -> float:
        """A bound of the forecasts of all tiles of a shape before boxes of M and N are cut.

        Args:
            groups: Who multiplies.
            columns: Of the tiles.
            boxes_k: Boxes of K.
            keeps: Whether operands may stay.
        """
        p, rates, hidden = self.plan, self.tile_rates, self.rates.hidden
        rows_m, columns_n = (
            OperandTiling(Box.of_cuts((extent,), {0: min(extent, block)}), ())
            for extent, block in ((p.extent_m, groups.rows), (p.extent_n, columns))
        )
        looped = math.inf
        for box_k in boxes_k:
            tile = WgmmaTile(self.atom, groups, rows_m, columns_n, box_k, stationary="ab" if keeps else "")
            products, port, _ = self._units(tile)
            clocks = max(products, port) + hidden * min(products, port) + self.rates.k_tile_clocks
            looped = min(looped, box_k.tiles * clocks)
        # Rows are padded in any case; narrower tiles are more.
        tiles = rows_m.box.tiles * p.extent_n / up(columns_n.box.size, 8) * self.batches / self.facts.sm_count
        panel = keeps and self.batches == 1 and not groups.ping_pong
        looped *= tiles * (min(1.0, rates.one_panel) if panel else 1.0)
        tail = self.outputs * self.least_of_element / self.facts.sm_count + tiles * self.device.stores.tile_clocks
        if groups.ping_pong:
            clocks = max(looped, (looped + tail + tiles * self.rates.alternate_clocks) / 2)
        else:
            clocks = looped + tail + tiles * self.rates.tile_clocks
        count = math.ceil(tiles * self.facts.sm_count)
        if self.mainloop.splits(max(x.tiles for x in boxes_k), count, self.facts.sm_count) != [1]:
            clocks = looped
        pace = 1.0 + rates.map_share * groups.mma_m + (0.0 if groups.ping_pong else rates.together_share)
        return self._bound(self.least_memory, clocks) * pace * ROUNDED

    def _group(self, tensor: int, block: int, sides: Sides, box_k: Box) -> _Group:
        """What the boxes of a block of M or of N, and a box of K, take of a tile at least."""
        key = (tensor, block, box_k)
        if key not in self.groups:
            k, share = self.plan.k, self.device.l2.line_share
            smallest = min(sides, key=lambda side: side.box.size)
            self.groups[key] = _Group(
                OperandTiling(smallest.box, smallest.modes),
                min(side.box.tiles for side in sides),
                self.bytes[tensor]
                * min(
                    self.cost(tensor, side, box_k, k) * (1.0 + share * (self.lines(tensor, side, box_k, k) - 1.0))
                    for side in sides
                ),
                tuple(min(self.clocks(tensor, side, box_k, shared) for side in sides) for shared in (1, 2)),
                self.tile_rates.first_share / max(self.first_rows(tensor, side) for side in sides),
            )
        return self.groups[key]

    def _least_stored(self, rows: int, columns: int, sides: tuple[Sides, Sides]) -> float:
        """Relative cost of D's bytes at least, with any boxes of a shape."""
        if (rows, columns) not in self.least_stores:
            m, n = sides
            pairs = ((x, y, bulk) for x in m for y in n for bulk in (True, False))
            self.least_stores[rows, columns] = min(self.cost(D, x, y.box, y.modes, bulk) for x, y, bulk in pairs)
        return self.least_stores[rows, columns]

    def least_pace(self, tile: WgmmaTile) -> float:
        """A bound of `pace`, whatever schedule is made of a tile."""
        return 1.0 + self.tile_rates.map_share * tile.warpgroups.mma_m + self.of_rows(tile)
