"""The cost model of the Hopper main loops: persistent blocks, one a multiprocessor, and one formula of their time.

A main loop says what a k-tile asks of the units (`hopper_units`), the device's record what units take. A k-tile takes
what its slowest unit takes; products and stores of D follow each other or overlap; tiles are made in waves; device
memory is busy beside them. How many loads are under way is known of a schedule alone: `pace` is what they make of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import WORD, data_type, products_of, warpgroup_atom
from gett.hw.hopper_rates import HopperModel
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate, bounded_split, fastest, split_us
from gett.schedule.cost.hopper_units import LoopCost
from gett.schedule.cost.staging import Staging
from gett.schedule.cost.traffic import Traffic, TrafficCost
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile, cluster_tiles
from layouts.box import Box
from layouts.rates import L2_LINE

PORT = 128
"""Bytes that shared memory moves a clock."""


class Loop(NamedTuple):
    """What a k-tile takes of a multiprocessor.

    Attributes:
        clocks: Of the slowest unit.
        slowest: Its name.
        copies: Of the copy engine.
        port: Of shared memory.
        panel: What an operand that stays for a panel adds to each tile.
    """

    clocks: float
    slowest: str
    copies: float = 0.0
    port: float = 0.0
    panel: float = 0.0


class HopperCost(TrafficCost):
    """Estimates for one plan by one main loop; what tiles have in common is worked out once."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, mainloop: LoopCost) -> None:
        super().__init__(plan, nearest(facts))
        self.facts, self.mainloop, c = facts, mainloop, plan.contraction
        self.atom, self.batches = warpgroup_atom(c.dtype, c.precision), plan.extent_l
        self.lanes = facts.tensor_lanes[products_of(c.dtype, c.precision)[0].name]
        self.sum_bytes = data_type(c.dtype).accumulator_bytes
        self.outputs = plan.extent_m * plan.extent_n * plan.extent_l
        self.start_us = self.device.launches.launch_us + mainloop.fills * self.device.launches.fill_us
        self.known_rows: dict[tuple[int, Box], int] = {}
        self.read(self.device.hopper)

    def read(self, model: HopperModel) -> None:
        """Go by these numbers of main loops from now on. What is known of copies and of D's stores stays."""
        self.rates, self.tile_rates, self.threads = self.mainloop.rates(model.loops), model.tiles, model.threads
        # Of complex numbers twice as much is split, but the sums of one part are added beside more products.
        self.step_clocks = self.rates.step_clocks * (1 + parts(self.plan)) / 2
        # Where memory limits and the loop's loads take less: without much of D both are one stream.
        self.beside_loads = self.rates.beside * min(1.0, self.share_of_d / self.tile_rates.small_d)

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        copies = panel = 0.0
        for name, tensor, side, shared, reads, run in (
            ("a", A, tile.a, tile.cluster[1], tile.n.box.tiles, tile.runs[0]),
            ("b", B, tile.n, tile.cluster[0], tile.m.box.tiles, tile.runs[1]),
        ):
            if name != tile.stationary and not run:
                copies += self.rates.copies * self.clocks(tensor, side, tile.k, shared)
            elif tile.panel == "each" and name == tile.stationary:  # it comes once a panel, or a block's share of it
                panel = tile.k.tiles * self.clocks(tensor, side, tile.k) / min(reads, tiles / self.facts.sm_count)
        products, port, threads = self._units(tile)
        clocks = max(products, port, copies, threads)
        units = {"tensor cores": products, "shared memory": port, "L2": copies, "copies": threads}
        slowest = next(name for name, asked in units.items() if asked == clocks)
        paced = self.tile_rates.one_panel if tile.panel == "one" else 1.0
        hidden = self.rates.hidden * (products + port + copies + threads - clocks)
        clocks = (clocks + hidden + self.rates.k_tile_clocks) * self.in_step(tile) * paced
        return Loop(clocks, slowest, copies, port, panel)

    def _units(self, tile: WgmmaTile) -> tuple[float, float, float]:
        """Clocks of products, of shared memory and of threads that copy."""
        rates, asked = self.rates, self.mainloop.units(self, tile)
        products = asked.products / rates.products + self.step_clocks * (tile.shape[2] // self.atom.k)
        return products, asked.port / PORT / rates.port, asked.threads

    def in_step(self, tile: WgmmaTile) -> float:
        """Factor on the loop of blocks that keep step because they share an operand."""
        if tile.blocks == 1 or tile.exchange:
            return 1.0
        return self.tile_rates.cluster_m if tile.cluster[0] > 1 else self.tile_rates.cluster_n

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        staging = self.staging(tile)
        traffic, (tiles, _) = self.traffic(tile, staging), self.grid(tile)
        loop = self.loop(tile, tiles)
        return fastest(self.of_split(tile, loop, staging, traffic, split) for split in self.splits(tile, tiles))

    def by_vectors(self, tile: WgmmaTile) -> Estimate:
        """The estimate of a tile whose K is whole and whose D leaves as vectors."""
        if self.staging(tile).bulk:
            self.unmapped(tile)
        staging, (tiles, _) = self.staging(tile), self.grid(tile)
        return self.of_split(tile, self.loop(tile, tiles), staging, self.traffic(tile, staging), 1)

    def splits(self, tile: WgmmaTile, tiles: int) -> list[int]:
        """Slices of K that are tried, whose partial sums the workspace holds."""
        wishes = self.mainloop.splits(tile.k.tiles, tiles, self.facts.sm_count)
        if wishes == [1]:
            return wishes
        partial, limit = tile.shape[0] * tile.shape[1] * self.sum_bytes, self.facts.workspace_limit
        whole = tile.m.box.tiles * tile.n.box.tiles * self.batches
        bounded = [bounded_split(wish, partial, whole, tile.k.tiles, limit)[0] for wish in wishes]
        found = zip(wishes, bounded, strict=True)
        return sorted({wish if wish * whole * partial <= limit else least for wish, least in found})

    def of_split(self, tile: WgmmaTile, loop: Loop, staging: Staging, traffic: Traffic, split: int) -> Estimate:
        """Expected time of a tile whose K is in so many slices."""
        (rows, columns, _), mma_tiles, (tiles, at_once) = tile.shape, tile.mma_tiles, self.grid(tile)
        blocks, steps = tiles * split, -(-tile.k.tiles // split) * mma_tiles
        tail = staging.clocks if split == 1 else rows * columns / 32.0
        looped, stored = steps * loop.clocks, traffic.store_clocks if split == 1 else 0.0
        memory = traffic.dram_us / min(1.0, blocks / self.facts.sm_count)
        work = self.work(tile, loop, looped, tail, stored, memory / max(1.0, blocks / at_once), split == 1)
        if tile.warpgroups.ping_pong and split == 1:  # shared memory serves two tiles at once
            work = max(work, steps * loop.port + self.staged_clocks(tile, staging))
        # One engine moves the rows of loads and of stores.
        clocks = max(work, steps * loop.copies + traffic.store_clocks)
        busy = math.ceil(blocks / at_once) * clocks / (self.facts.clock_ghz * 1e3)
        beside = self.beside_loads if loop.slowest == "L2" and memory >= busy else self.rates.beside
        us = self.start_us + max(memory, busy) + beside * min(memory, busy)
        us += split_us(blocks, rows * columns * self.sum_bytes // WORD, self.device) if split > 1 else 0.0
        us *= self.factor(tile, tiles)
        bound = "DRAM" if memory >= busy else "stores" if tail > looped else loop.slowest
        return Estimate(us, bound, split)

    def work(
        self, tile: WgmmaTile, loop: Loop, looped: float, tail: float, stored: float, memory_us: float, whole: bool
    ) -> float:
        """Clocks from one tile to the next: of the main loop, of staging and storing D, and what comes between.

        Args:
            tile: The tile.
            loop: Its k-tiles.
            looped: Clocks of all of them.
            tail: Clocks in which D is staged.
            stored: Clocks of the copy engine for D.
            memory_us: Memory's time for a tile.
            whole: Whether its sums take all of K.
        """
        rates = self.rates
        if tile.warpgroups.ping_pong:
            return max(looped, (looped + tail + rates.alternate_clocks) / 2) + loop.panel
        memory, reused = memory_us * self.facts.clock_ghz * 1e3, math.inf
        # Warpgroups that share a tile share its staging buffer: D is not staged while it leaves from there.
        beside = stored if self.size_d >= WORD else 0.0
        if self.mainloop.waits_for_d and whole:
            beside = memory * self.share_of_d
        after = tail + rates.tile_clocks * tile.mma_tiles + loop.panel
        # Where threads store, those who multiply wait for memory.
        apart = self.mainloop.waits_for_d and not self.staging(tile).bulk
        clocks = (looped + beside if apart else max(looped, beside)) + after
        if not rates.load_clocks:
            return clocks
        steps = looped / loop.clocks
        if self.may_reuse(tile) and whole and looped >= 8 * self.tile_rates.reused_clocks:
            reused = looped + after + self.tile_rates.reused_clocks
            reused = self.waiting(tile, steps, reused, min(1.0, memory / reused), 0)
        staged = tile.m.box.size * tile.n.box.size * self.size_d if whole else 0
        return min(self.waiting(tile, steps, clocks, min(1.0, memory / clocks), staged), reused)

    def may_reuse(self, tile: WgmmaTile) -> bool:
        """Whether D may be staged where the stages were, before the next tile is loaded."""
        alone = tile.blocks == 1 and self.plan.contraction.c is None
        return self.mainloop.waits_for_d and alone and self.staging(tile).bulk

    def stages_are_reused(self, tile: WgmmaTile) -> bool:
        """Whether a tile whose sums take all of K is faster staged where the stages are."""
        (tiles, at_once), staging = self.grid(tile), self.staging(tile)
        loop, traffic = self.loop(tile, tiles), self.traffic(tile, staging)
        looped, reused = tile.k.tiles * loop.clocks, self.tile_rates.reused_clocks
        if not self.may_reuse(tile) or looped < 8 * reused:
            return False
        memory = traffic.dram_us / max(1.0, tiles / at_once) * self.facts.clock_ghz * 1e3
        after = staging.clocks + self.rates.tile_clocks
        beside, within = max(looped, memory * self.share_of_d) + after, looped + after + reused
        staged = tile.m.box.size * tile.n.box.size * self.size_d
        waits = self.waiting(tile, tile.k.tiles, beside, min(1.0, memory / beside), staged)
        return self.waiting(tile, tile.k.tiles, within, min(1.0, memory / within), 0) < waits

    def waiting(self, tile: WgmmaTile, steps: float, clocks: float, memory: float, staged: int) -> float:
        """A tile's `clocks` and those in which products wait for loads; infinite where fewer than two stages fit.

        Each round of the stages waits where loads take longer than the k-tiles before theirs. `memory` is the share of
        time that it takes, `staged` the bytes beside the stages.
        """
        rows, columns, deep = tile.shape
        stages = min(MOST_STAGES, (self.facts.smem_per_block - staged) // ((rows + columns) * deep * self.size))
        if stages < 2:
            return math.inf
        late = self.rates.load_clocks + self.rates.memory_clocks * memory - (stages - 0.5) * clocks / steps
        return clocks + max(0.0, late) * steps / stages

    def grid(self, tile: WgmmaTile) -> tuple[int, int]:
        """Tiles of D, those included that a cluster's blocks run along for, and how many are made at a time."""
        tiles = cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, tile.cluster) * self.batches * tile.blocks
        at_once = self.facts.sm_count // tile.blocks * tile.blocks
        if tile.panel == "one":  # as many for each panel
            panels = (tile.m if tile.stationary == "a" else tile.n).box.tiles
            at_once = self.facts.sm_count // panels * panels
        return tiles, at_once

    def factor(self, tile: WgmmaTile, tiles: int) -> float:
        """Factor on the time for padding, panels, sums too short to overlap, warps that wait."""
        rates, (rows, columns, deep), steps = self.tile_rates, tile.shape, tile.k.tiles
        factor = 1.0 + rates.padded_share * (tiles * rows * tile.mma_tiles * columns / self.outputs - 1.0)
        factor *= rates.each_panel if tile.panel == "each" else self.rates.waits
        return factor * (self.rates.short_sum if deep == self.atom.k and steps == 2 else 1.0)

    def staged_clocks(self, tile: WgmmaTile, staging: Staging) -> float:
        """Clocks of shared memory for a tile of D: it is written, conflicts and all, and read once."""
        rows, columns, _ = tile.shape
        return rows * columns * self.size_d * (staging.dense.conflicts + 1) / PORT / self.rates.port

    def pace(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Factor on a tile's time: what the loads under way, and the copies' boxes, make of it."""
        return self.under_way(tile, estimate, made) * (1.0 + self.of_boxes(tile, made))

    def of_boxes(self, tile: WgmmaTile, made: Schedule) -> float:
        """Share of the time of copies of many dimensions, of short first ones, and of warpgroups that share a tile."""
        maps = made.hopper.a.tma, made.hopper.b.tma, made.epilogue.store
        boxes = ((weight, x.map) for weight, x in zip((2, 2, 1), maps, strict=True) if x is not None)
        dims = sum(weight * (b > 1) for weight, of in boxes if of is not None for b in of.box)
        share = self.tile_rates.map_share * (dims + made.tiling.swap_ab + tile.warpgroups.mma_m)
        return share + self.of_rows(tile)

    def of_rows(self, tile: WgmmaTile) -> float:
        """The part of that share that a tile's boxes tell without any tensor map."""
        rates = self.tile_rates
        share = sum(rates.first_share / self.first_rows(t, x) for t, x in ((A, tile.m), (B, tile.n)))
        share += 0.0 if tile.warpgroups.ping_pong else rates.together_share
        if self.mainloop.waits_for_d:
            sides = [(t, side) for t, side in ((A, tile.a), (B, tile.n)) if self.k_unit[t] is None]
            share += rates.short_rows * sum(self.run(t, x, tile.k, self.plan.k)[0] <= L2_LINE for t, x in sides)
        return share

    def first_rows(self, tensor: int, side: OperandTiling) -> int:
        """Rows of an operand's tile that follow each other at one stride."""
        key = (tensor, side.box)
        if key not in self.known_rows:
            self.known_rows[key] = _first_rows(tensor, side)
        return self.known_rows[key]

    def under_way(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Factor for loads under way: those out of memory by their bytes; in short sums, those that L2 serves."""
        rates, common = self.rates, self.tile_rates
        stages, stage, by_dram = made.hopper.stages, made.smem.stage, estimate.bound == "DRAM"
        few = 1.0 if stages > 2 or (by_dram and stage >= common.dram_bytes) else rates.two_stages
        enough = common.dram_bytes if by_dram else common.l2_bytes
        missing = rates.missing * max(0.0, 1.0 - (stages - 1) * stage / enough)
        if by_dram:
            return few * (1.0 + missing / 2 + self.behind_stores(tile, estimate, made))
        tiles = tile.m.box.tiles * tile.n.box.tiles * self.batches
        hurried = self.plan.extent_k <= common.short_k or tiles <= self.facts.sm_count
        return few * (1.0 + missing) if hurried else few

    def behind_stores(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Share of the time that loads from L2 cost beside stores of D that keep memory busy, behind which they wait.

        Too few are under way for the pace of the tiles, or their rows are half a line.
        """
        rates = self.tile_rates
        if not self.rates.behind or made.epilogue.store.map is None:  # threads store, the engine loads
            return 0.0
        tiles, at_once = self.grid(tile)
        k_tiles = math.ceil(tiles / at_once) * tile.k.tiles * tile.mma_tiles
        under_way = (made.hopper.stages - 1) * estimate.us / (k_tiles * rates.behind_us)  # by what is needed
        along_k = None not in self.k_unit.values()
        half_lines = tile.k.tiles > 1 and tile.shape[2] * self.size < L2_LINE and along_k
        late = self.rates.behind * max(0.0, 1.0 - under_way) + (rates.half_lines if half_lines else 0.0)
        return late * max(0.0, 2.0 * self.share_of_d - 1.0)


def _first_rows(tensor: int, side: OperandTiling) -> int:
    rows, step = 1, 0
    for _, dim in side.box.tiled:
        first = side.modes[dim.modes[0]]
        stride = abs(first.strides[tensor])
        if rows > 1 and stride != step * rows:
            break
        rows, step = rows * dim.box, step or stride
        if len(dim.modes) > 1 or dim.box < first.extent:
            break
    return rows
