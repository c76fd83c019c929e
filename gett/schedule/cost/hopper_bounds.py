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
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.copies import Loads
from gett.schedule.cost.estimate import ROUNDED
from gett.schedule.cost.hopper import HopperCost, Loop
from gett.schedule.cost.hopper_units import LoopCost
from gett.schedule.spec.hopper_needs import MOST_STAGES, up
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.rates import run_cost

Sides = Sequence[OperandTiling]


def least_hopper_us(plan: GemmPlan, facts: ArchFacts, mainloop: LoopCost) -> float:
    """A bound of the time of any schedule of a main loop: its start, all tensors in the longest runs, all products."""
    cost = HopperBounds(plan, facts, mainloop)
    products = cost.outputs * plan.extent_k / cost.lanes / cost.rates.products
    return cost._us(cost.least_memory, products / facts.sm_count) * ROUNDED


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
        tail = self.least_tail(tile.shape[0] * tile.mma_tiles * tile.n.box.size)
        least = self._bound(tile, loop, (memory, busy), tail, tiles, at_once)
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
            between = memory[1] / math.ceil(waves)  # of more tiles each waits less, all of them for no less
            clocks = max(clocks, min(self.work(tile, loop, looped, tail, 0.0, between, True, True, busy=0.0)))
            least = self._us(memory[1], math.ceil(waves) * clocks)
            if not self.divides(tile):
                return least
            clocks *= self.stream_k
            return min(least, self._us(memory[0], waves * clocks) + self.parts_us(tile, at_once))
        return self._us(memory[0], waves * clocks)

    def _us(self, memory: float, clocks: float) -> float:
        busy = clocks / (self.facts.clock_ghz * 1e3)
        return self.start_us + max(memory, busy) + self.beside_loads * min(memory, busy)

    def least_dram_us(self, tile: WgmmaTile) -> float:
        """What a tile's loads take of device memory, and its stores in the longest rows that D has."""
        return self._memory_us(*self.operands(tile), self._stored(tile.m, tile.n), tile.exchange)

    def least_stored(self, m: OperandTiling, n: OperandTiling) -> float:
        """Relative cost of D's bytes, however they leave, and of the lines that they touch."""
        key = (m.box, n.box)
        if key not in self.least_stores:
            run, _ = self.run(D, m, n.box, n.modes)
            self.least_stores[key] = self._stored(m, n) * self.lines(run, store=True)
        return self.least_stores[key]

    def _stored(self, m: OperandTiling, n: OperandTiling) -> float:
        return min(self.cost(D, m, n, True), self.cost(D, m, n, False))

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
        stay: Iterable[tuple[str, str]],
    ) -> float:
        """A bound of the forecasts of all tiles of a shape, in clusters and of operands that stay, too.

        Args:
            groups: Who multiplies.
            columns: Of the tiles.
            sides: Their boxes of M and of N.
            box_k: That of K.
            shares: Whether blocks may share operands.
            stay: Operands that may stay, and for which panel.
        """
        a, m = self._of_side(A, groups.rows, sides[0], box_k)
        b, n = self._of_side(B, columns, sides[1], box_k)
        tiles = a.tiles * b.tiles * self.batches
        exchange = tiles <= self.facts.sm_count
        if (groups.rows, columns) not in self.least_costs:
            self.least_costs[groups.rows, columns] = min(self.least_stored(x, y) for x in sides[0] for y in sides[1])
        memory = self._memory_us(a, b, self.least_costs[groups.rows, columns], exchange)
        copied = a.clocks + b.clocks
        if shares and (exchange or box_k.tiles >= 8):
            copied = min(copied, a.shared + b.clocks, a.clocks + b.shared)
        ways = [("", "", copied), *((x, panel, (b if x == "a" else a).clocks) for x, panel in stay)]
        tail, least = self.least_tail(groups.rows * n.box.size), math.inf
        # What it costs to transpose is told by a box of N.
        for (name, panel, copied), side in itertools.product(ways, sides[1] if self.mainloop.by_box else (n,)):
            tile = WgmmaTile(self.atom, groups, m, side, box_k, stationary=name, panel=panel)
            loop = self.of_units(tile, self.mainloop.units(self, tile), copied)
            bound = self._bound(tile, loop, (memory, memory), tail, tiles, self.facts.sm_count)
            least = min(least, bound * self.factor(tile, tiles))
        return least * self.least_pace(groups, a, b) * ROUNDED

    def least_of_shape(
        self,
        groups: Warpgroups,
        columns: int,
        boxes_k: Sequence[Box],
        shares: bool,
        stay: Iterable[tuple[str, str]],
    ) -> float:
        """The same before boxes of M and N are cut: memory is read and written in the longest runs."""
        rates, sm_count, tiles_m = self.tile_rates, self.facts.sm_count, -(-self.extent_m // groups.rows)
        # Rows are padded in any case, so that tiles have as many as fill the fewest; narrower tiles are more.
        rows = self.extent_m // tiles_m
        m, n = _of_one_mode(rows * tiles_m, rows), _of_one_mode(self.extent_n, columns)
        columns = up(n.box.size, self.atom.n)
        count = tiles_m * self.extent_n / columns * self.batches
        waves, tail = count / sm_count, self.outputs * self.least_of_element / count + self.device.stores.tile_clocks
        between = self.least_memory * self.share_of_d * self.facts.clock_ghz * 1e3 / waves
        # Rows that are copied, and factors of the loop and of the whole, by what stays.
        waits, one, each = self.rates.waits, rates.one_panel, rates.each_panel
        panels = {"": (1.0, waits), "one": (one, waits), "each": (1.0, each)}
        stays = [(columns if x == "a" else rows, *panels[panel]) for x, panel in stay]
        least = math.inf
        for box_k in boxes_k:
            shared = max(rows, columns) / 2 if shares and (count <= sm_count or box_k.tiles >= 8) else 0.0
            whole = self.mainloop.splits(box_k.tiles, math.ceil(count), sm_count) == [1]
            of_row = box_k.size * self.size / self.device.l2.tma_bytes_per_clock
            ways = ("", [(rows + columns - shared, *panels[""])]), ("a" if rows > columns else "b", stays)
            for stationary, copies in ways if stays else ways[:1]:
                tile = WgmmaTile(self.atom, groups, m, n, box_k, stationary=stationary)
                asked = self.mainloop.units(self, tile)
                for copied, paced, factor in copies:
                    looped = box_k.tiles * self.of_units(tile, asked, copied * of_row).clocks * paced
                    clocks = self._least_work(tile, looped, tail, between) if whole else looped
                    least = min(least, clocks * factor)
        pace = 1.0 + rates.map_share * groups.mma_m + (0.0 if groups.ping_pong else rates.together_share)
        return self._us(self.least_memory, waves * least) * pace * ROUNDED

    def _least_work(self, tile: WgmmaTile, looped: float, tail: float, memory: float) -> float:
        """Clocks from one tile to the next at least, whatever its boxes; memory is busy with D for `memory` of them."""
        rates, (rows, columns, deep) = self.rates, tile.shape
        if tile.warpgroups.ping_pong:
            return max(looped, (looped + tail + rates.alternate_clocks) / 2)
        beside = min(memory, looped + self.tile_rates.reused_clocks) if self.mainloop.waits_for_d else 0.0
        stages = min(MOST_STAGES, self.facts.smem_per_block / ((rows + columns) * deep * self.size))
        return max(tile.k.tiles * rates.load_clocks / stages, max(looped, beside) + tail + rates.tile_clocks)

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
