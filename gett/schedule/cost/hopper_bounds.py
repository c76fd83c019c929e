"""Bounds of what the cost model of the Hopper main loops says of tiles: cheap, so that most tiles are never estimated.

The formula is that of estimates, with the least that something may be which is not known yet: how a tile of D is
staged, or which boxes the tiles of a shape have. Bounds are of forecasts: the part of `pace` that no schedule changes
is in them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.copies import Loads
from gett.schedule.cost.estimate import ROUNDED, traffic_us
from gett.schedule.cost.hopper import HopperCost, Loop
from gett.schedule.cost.hopper_units import SPLIT, LoopCost
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.rates import run_cost

Sides = Sequence[OperandTiling]


def least_split_us(plan: GemmPlan, facts: ArchFacts) -> float:
    """A bound of the time of any schedule in planes: its start, and the largest tensor at copy speed."""
    device = nearest(facts)
    start_us = device.launches.launch_us + SPLIT.fills * device.launches.fill_us
    return start_us + max(traffic_us(plan, device).values())


class HopperBounds(HopperCost):
    """The cost model with its bounds, for one plan and one main loop."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, mainloop: LoopCost) -> None:
        super().__init__(plan, facts, mainloop)
        memory, of, self.extent_m, self.extent_n = self.device.memory, self.bytes, plan.extent_m, plan.extent_n
        loads, stores = (run_cost(memory, memory.long_run, store=store, bulk=True) for store in (False, True))
        self.least_memory = self.copy_us((of[A] + of[B]) * loads + of[D] * min(1.0, stores) + of.get(C, 0))
        self.least_loads: dict[tuple[int, int, Box], tuple[Loads, OperandTiling]] = {}
        self.least_costs: dict[tuple[int, int], float] = {}
        self.least_stores: dict[tuple[Box, Box], float] = {}

    def least_us(self, tile: WgmmaTile) -> tuple[float, str]:
        """A bound of a tile's forecasts that does not ask how D is staged, and the slowest unit of its loop."""
        (tiles, at_once), (a, b) = self.grid(tile), self.operands(tile)
        loop, stored = self.loop(tile, tiles, (a, b)), self.least_stored(tile.m, tile.n)
        memory = self._memory_us(a, b, stored, tile.exchange)
        busy = memory / min(1.0, tiles / self.facts.sm_count)  # few multiprocessors leave memory idle
        least = self._bound(tile, loop, (memory, busy), self.least_tail(tile), tiles, at_once)
        return least * self.factor(tile, tiles) * self.least_pace(tile.warpgroups, a, b) * ROUNDED, loop.slowest

    def _bound(
        self, tile: WgmmaTile, loop: Loop, memory: tuple[float, float], tail: float, tiles: int, at_once: int
    ) -> float:
        """Microseconds at least, of any slices of K; D is staged in `tail` clocks.

        Memory takes `memory`, the first with any slices, the second of tiles whose sums take all of K.
        """
        steps, waves = tile.k.tiles * tile.mma_tiles, tiles / at_once
        looped = steps * loop.clocks
        clocks = max(looped, steps * loop.copies)
        if self.mainloop.splits(tile.k.tiles, tiles, self.facts.sm_count) == [1]:
            clocks = max(clocks, min(self.work(tile, loop, looped, tail, 0.0, 0.0, True, True)))
            least = self._us(memory[1], math.ceil(waves) * clocks)
            if not self.divides(tile):
                return least
            looped *= self.stream_k
            return min(least, self._us(memory[0], waves * looped) + self.parts_us(tile, at_once))
        return self._us(memory[0], waves * clocks)

    def _us(self, memory: float, clocks: float) -> float:
        busy = clocks / (self.facts.clock_ghz * 1e3)
        return self.start_us + max(memory, busy) + self.beside_loads * min(memory, busy)

    def least_dram_us(self, tile: WgmmaTile) -> float:
        """What a tile's loads take of device memory, and its stores in the longest rows that D has."""
        return self._memory_us(*self.operands(tile), self.least_stored(tile.m, tile.n), tile.exchange)

    def least_stored(self, m: OperandTiling, n: OperandTiling) -> float:
        """Relative cost of D's bytes, however they leave."""
        key = (m.box, n.box)
        if key not in self.least_stores:
            self.least_stores[key] = min(self.cost(D, m, n, True), self.cost(D, m, n, False))
        return self.least_stores[key]

    def _memory_us(self, a: Loads, b: Loads, stored: float, exchange: bool) -> float:
        stored = min(1.0, stored) if exchange else stored  # rows grow longer
        return self.copy_us(a.read + b.read + self.bytes[D] * stored + self.bytes.get(C, 0))

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
        a, m = self._of_side(A, groups.rows, sides[0], box_k)
        b, n = self._of_side(B, columns, sides[1], box_k)
        rates, tiles = self.tile_rates, a.tiles * b.tiles * self.batches
        exchange = tiles <= self.facts.sm_count
        if (groups.rows, columns) not in self.least_costs:
            self.least_costs[groups.rows, columns] = min(self.least_stored(x, y) for x in sides[0] for y in sides[1])
        memory = self._memory_us(a, b, self.least_costs[groups.rows, columns], exchange)
        copied = a.clocks + b.clocks
        if shares and (exchange or box_k.tiles >= 8):
            copied = min(copied, a.shared + b.clocks, a.clocks + b.shared)
        panel = "each" if rates.each_panel < self.rates.waits else ""
        ways = [("", "", 1.0, copied)]
        for name, one in stay:
            ways.append((name, panel, min(1.0, rates.one_panel) if one else 1.0, (b if name == "a" else a).clocks))
        tail, least = self.least_tail_of(groups.rows * n.box.size), math.inf
        # What it costs to transpose is told by a box of N.
        for (name, panel, paced, copied), side in itertools.product(ways, sides[1] if self.mainloop.by_box else (n,)):
            tile = WgmmaTile(self.atom, groups, m, side, box_k, stationary=name, panel=panel)
            loop = self.of_units(tile, copied)
            loop = loop if paced == 1.0 else loop._replace(clocks=loop.clocks * paced)
            bound = self._bound(tile, loop, (memory, memory), tail, tiles, self.facts.sm_count)
            least = min(least, bound * self.factor(tile, tiles))
        return least * self.least_pace(groups, a, b) * ROUNDED

    def least_of_shape(self, groups: Warpgroups, columns: int, boxes_k: Sequence[Box]) -> float:
        """A bound of the forecasts of all tiles of a shape before boxes of M and N are cut, whatever stays."""
        rates, sm_count = self.tile_rates, self.facts.sm_count
        m, n = _of_one_mode(self.extent_m, groups.rows), _of_one_mode(self.extent_n, columns)
        tiles = [WgmmaTile(self.atom, groups, m, n, box_k, stationary="ab") for box_k in boxes_k]
        looped = min(x.k.tiles * self.of_units(x, 0.0).clocks for x in tiles) * min(1.0, rates.one_panel)
        # Rows are padded in any case; narrower tiles are more.
        count = m.box.tiles * self.extent_n / tiles[0].shape[1] * self.batches
        tail = self.outputs * self.least_of_element / count + self.device.stores.tile_clocks
        if self.mainloop.splits(max(x.tiles for x in boxes_k), math.ceil(count), sm_count) != [1]:
            clocks = looped
        elif groups.ping_pong:
            clocks = max(looped, (looped + tail + self.rates.alternate_clocks) / 2)
        else:
            clocks = looped + tail + self.rates.tile_clocks
        pace = 1.0 + rates.map_share * groups.mma_m + (0.0 if groups.ping_pong else rates.together_share)
        return self._us(self.least_memory, count / sm_count * clocks) * pace * ROUNDED

    def _of_side(self, tensor: int, block: int, sides: Sides, box_k: Box) -> tuple[Loads, OperandTiling]:
        """What loads take at least with any boxes of a block of M or of N, and the smallest one, without padding."""
        key = (tensor, block, box_k)
        if key not in self.least_loads:
            smallest = min(sides, key=lambda side: side.box.size)
            least = Loads.least([self.loads(tensor, side, box_k) for side in sides])
            self.least_loads[key] = least, OperandTiling(smallest.box, smallest.modes)
        return self.least_loads[key]


@lru_cache(maxsize=1024)
def _of_one_mode(extent: int, block: int) -> OperandTiling:
    """Blocks of a group as if it were one mode."""
    return OperandTiling(Box.of_cuts((extent,), {0: min(extent, block)}), ())
