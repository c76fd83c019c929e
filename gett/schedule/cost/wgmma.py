"""The cost model of the wgmma main loops: persistent blocks, one a multiprocessor, fed by tensor maps.

Rates, clocks and factors are those of the device's record (`gett.hw.device`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import WORD, data_type, products_of, warpgroup_atom
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.estimate import ROUNDED, Estimate, bounded_split, fastest, split_us, wgmma_splits
from gett.schedule.cost.staging import Staging
from gett.schedule.cost.traffic import TrafficCost
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile, cluster_tiles
from layouts.box import Box
from layouts.rates import L2_LINE

LONG_LOOP = 16  # k-tiles from which warpgroups that alternate wait for each other's stages
LONG_STREAM = 4096  # sums from which deep k-tiles gain where memory does little but read
SHORT_K = 1024  # sums up to which starts and ends of tiles count more than the loop
Sides = Sequence[OperandTiling]

SMALL_D = 0.1
"""Share of all bytes up to which D's hide beside those of A and B."""


@dataclass(frozen=True, slots=True)
class Loop:
    """What a k-tile takes of a multiprocessor.

    Attributes:
        clocks: Of the slowest unit.
        slowest: Its name.
        engine_clocks: Of the copy engine.
        panel_clocks: What an operand that stays for a panel adds to each tile.
        smem_clocks: Of shared memory; 0 where nothing but the loop keeps it busy.
    """

    clocks: float
    slowest: str
    engine_clocks: float
    panel_clocks: float
    smem_clocks: float = 0.0


class WgmmaCost(TrafficCost):
    """Estimates for one plan; what tiles have in common is worked out once.

    Attributes:
        fills: How often a block's first tile waits for the empty pipeline.
        sum_words: Words of a partial sum that slices of K leave.
        beside: Share that shows of what takes less, memory's time or that of the multiprocessors.
        few_waves: Tiles of a block up to which the stores of its last one show.
        streams: Whether a loop that loads limit waits for nothing else.
        idle_share: Share of the last wave's time that blocks without a tile save the others, who have their power.
    """

    fills = 1
    sum_words = 1
    beside = 0.2
    few_waves = 3
    idle_share = 0.0
    streams = True

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan, nearest(facts))
        self.facts = facts
        self.atom = warpgroup_atom(plan.contraction.dtype, plan.contraction.precision)
        self.batches = plan.extent_l
        self.least_reads: dict[tuple[int, int, Box], float] = {}
        self.least_stores: dict[tuple[int, int], float] = {}
        self.outputs = plan.extent_m * plan.extent_n * plan.extent_l
        self.lanes = facts.tensor_lanes[products_of(plan.contraction.dtype, plan.contraction.precision)[0].name]
        self.shallow_share = self.device.wgmma.loop.shallow_share

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        rates = self.device.wgmma.loop
        rows, bn, bk = tile.shape
        math_clocks = rows * bn * bk / self.lanes / rates.peak_share
        # Shared memory serves wgmma's reads (all of B for every 64 rows) and takes what the copies bring.
        read, passed = (rows / 64) * (64 + bn), 0
        drawn = engine = panel = 0.0
        for name, tensor, side, shared, reads in (
            ("a", A, tile.a, tile.cluster[1], tile.n.box.tiles),
            ("b", B, tile.n, tile.cluster[0], tile.m.box.tiles),
        ):
            copy, moved = self.clocks(tensor, side, tile.k, shared, reads)
            if name != tile.stationary:
                drawn, engine, passed = drawn + copy, engine + moved, passed + side.rows
            elif tile.panel == "each":  # it comes once a panel, or a block's share of it
                panel = tile.k.tiles * copy / min(reads, tiles / self.facts.sm_count)
        smem_clocks = (read * bk + passed * tile.k.size) * self.size / rates.smem_bytes_per_clock / rates.peak_share
        clocks = max(math_clocks, smem_clocks, drawn)
        slowest = "tensor cores" if clocks == math_clocks else "shared memory" if clocks == smem_clocks else "L2"
        return Loop(clocks * self.in_step(tile) * self.paced(tile), slowest, engine, panel, smem_clocks)

    def in_step(self, tile: WgmmaTile) -> float:
        """Factor on the loop of blocks that keep step because they share an operand."""
        rates = self.device.wgmma.loop
        return 1.0 if tile.blocks == 1 or tile.exchange else rates.cluster_m if tile.cluster[0] > 1 else rates.cluster_n

    def least_us(self, tile: WgmmaTile, known: Loop | None = None) -> float:
        """A bound of the estimate that does not ask how D is staged; `known` is the tile's loop."""
        facts, launches = self.facts, self.device.launches
        k_tiles, mma_tiles, (tiles, at_once) = tile.k.tiles, tile.mma_tiles, self.grid(tile)
        loop = known or self.loop(tile, tiles)
        looped, waves, memory = k_tiles * mma_tiles * loop.clocks, tiles / at_once, self.least_dram_us(tile)
        clocks = engine = k_tiles * mma_tiles * loop.engine_clocks
        whole = self.splits(tile, tiles) == [1]
        if whole:
            clocks = max(engine, self.least_work(tile, loop, looped, self.least_tail(tile)))
            waves, memory = self.waves(waves), memory / min(1.0, tiles / facts.sm_count)
        busy = waves * max(looped, clocks) / (facts.clock_ghz * 1e3)
        us = launches.launch_us + self.fills * launches.fill_us
        us += max(memory, busy) + self.beside_loads * min(memory, busy)
        return us * self.factor(tile, tiles, k_tiles if whole else 0) * ROUNDED

    def least_of_sides(
        self, groups: Warpgroups, columns: int, sides: tuple[Sides, Sides], box_k: Box, stays: bool
    ) -> float:
        """A bound of the estimates of all tiles of a shape, in clusters and of operands that stay, too.

        Args:
            groups: Who multiplies.
            columns: Of the tiles.
            sides: Their boxes of M and of N.
            box_k: That of K.
            stays: Whether an operand may stay: then shared memory takes less, and the time may be shorter.
        """
        m, n = sides
        fewest, smallest = min(side.box.tiles for side in m), min(m, key=lambda side: side.box.size)
        exchange = fewest * min(side.box.tiles for side in n) * self.batches <= self.facts.sm_count
        memory = self._least_read(A, groups.rows, m, box_k) + self._least_read(B, columns, n, box_k)
        memory += self.bytes[D] * min(self._least_stored(groups.rows, columns, sides), 1.0 if exchange else math.inf)
        memory = (memory + self.bytes.get(C, 0)) / self.device.memory.copy_tbps * 1e-6
        shapes = (WgmmaTile(self.atom, groups, smallest, side, box_k) for side in n)
        return min(self._least_of(x, fewest * x.n.box.tiles * self.batches, memory, stays) for x in shapes)

    def _least_read(self, tensor: int, block: int, sides: Sides, box_k: Box) -> float:
        """Bytes at copy speed that reading an operand is worth at least, with any of the boxes of a block."""
        key = (tensor, block, box_k)
        if key not in self.least_reads:
            k, share = self.plan.k, self.device.l2.line_share
            self.least_reads[key] = self.bytes[tensor] * min(
                self.cost(tensor, side, box_k, k) * (1.0 + share * (self.lines(tensor, side, box_k, k) - 1.0))
                for side in sides
            )
        return self.least_reads[key]

    def _least_stored(self, rows: int, columns: int, sides: tuple[Sides, Sides]) -> float:
        """Relative cost of D's bytes at least, with any boxes of a shape."""
        if (rows, columns) not in self.least_stores:
            m, n = sides
            pairs = ((x, y, bulk) for x in m for y in n for bulk in (True, False))
            self.least_stores[rows, columns] = min(self.cost(D, x, y.box, y.modes, bulk) for x, y, bulk in pairs)
        return self.least_stores[rows, columns]

    def _least_of(self, tile: WgmmaTile, tiles: int, memory: float, stays: bool) -> float:
        """A bound of the estimates of a tile of any box of M, of which there are `tiles` at least."""
        facts, launches, rates = self.facts, self.device.launches, self.device.wgmma.loop
        (rows, bn, bk), k_tiles, waves = tile.shape, tile.k.tiles, tiles / facts.sm_count
        stationary = self.device.wgmma.stationary
        loop = self.least_loop(tile, stays)
        clocks = looped = k_tiles * loop.clocks * (min(1.0, stationary.one_panel) if stays else 1.0)
        factor = 1.0 + rates.padded_share * (tiles * rows * bn / self.outputs - 1.0)
        if waves > 1.0 or k_tiles < 8:  # K is not split
            clocks = max(looped, self.least_work(tile, loop, looped, self.least_tail(tile)))
            waves = self.waves(waves)
            factor *= 1.0 + (self.shallow_share * k_tiles if bk == self.atom.k else 0.0)
        busy = waves * clocks / (facts.clock_ghz * 1e3)
        us = launches.launch_us + self.fills * launches.fill_us
        us += max(memory, busy) + self.beside_loads * min(memory, busy)
        return us * factor * (min(1.0, stationary.whole, stationary.whole_beside_lines) if stays else 1.0) * ROUNDED

    def least_loop(self, tile: WgmmaTile, stays: bool) -> Loop:
        """What a k-tile takes at least of the tensor cores and of shared memory."""
        rates, (rows, bn, bk) = self.device.wgmma.loop, tile.shape
        passed = 0 if stays else tile.m.rows + tile.n.rows
        read = (rows / 64) * (64 + bn) * bk + passed * tile.k.size
        clocks = max(rows * bn * bk / self.lanes, read * self.size / rates.smem_bytes_per_clock) / rates.peak_share
        return Loop(clocks, "", 0.0, 0.0)

    def least_work(self, tile: WgmmaTile, loop: Loop, looped: float, tail: float) -> float:
        """What `work` is not below; does not ask how D is staged."""
        return self.work(tile, loop, looped, tail)

    def work(self, tile: WgmmaTile, loop: Loop, looped: float, tail: float, stored: float = 0.0) -> float:
        """Clocks from one tile to the next: of the main loop, of staging and storing D, and what comes between.

        Where warpgroups share a tile they share its staging buffer: the next tile is multiplied, but not staged, while
        the copy engine reads it (`stored`).
        """
        rates = self.device.wgmma.loop
        if tile.warpgroups.ping_pong:
            clocks = max(looped, (looped + tail + rates.latency_clocks) / 2)
        else:
            # The clocks of tiles of 16-bit elements were fitted together with the engine's.
            beside = stored if self.size_d >= WORD else 0.0
            clocks = max(looped, beside) + tail + rates.cooperative_clocks * tile.mma_tiles
        return clocks + loop.panel_clocks

    @cached_property
    def beside_loads(self) -> float:
        """`beside` where memory limits and the loop's loads take less: without much of D both are one stream."""
        return self.beside * min(1.0, self.share_of_d / SMALL_D)

    @property
    def only_reads(self) -> bool:
        """Whether D has a small share of all bytes."""
        return self.share_of_d < SMALL_D

    def waves(self, tiles: float) -> float:
        """Times of a tile that pass until the last is made, for so many tiles a block."""
        whole = math.ceil(tiles)
        return whole - self.idle_share * (whole - tiles) if whole > 1 else whole

    def grid(self, tile: WgmmaTile) -> tuple[int, int]:
        """Tiles of D, those included that a cluster's blocks run along for, and how many are made at a time."""
        tiles = cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, tile.cluster) * self.batches * tile.blocks
        at_once = self.facts.sm_count // tile.blocks * tile.blocks
        if tile.panel == "one":  # as many for each panel
            panels = (tile.m if tile.stationary == "a" else tile.n).box.tiles
            at_once = self.facts.sm_count // panels * panels
        return tiles, at_once

    def factor(self, tile: WgmmaTile, tiles: int, k_tiles: int = 0) -> float:
        """Factor on the time for padding, what stays, dimensions, shallow k-tiles, products too short to overlap."""
        rates = self.device.wgmma.loop
        rows, bn, bk = tile.shape
        factor = 1.0 + rates.padded_share * (tiles * rows * tile.mma_tiles * bn / self.outputs - 1.0)
        factor *= 1.0 + (self.shallow_share * k_tiles if bk == tile.atom.k else 0.0)
        factor *= (1.0 if tile.panel == "one" else self.stays(tile)) * (
            1.0 + rates.dim_share * (len(tile.m.box.tiled) + len(tile.n.box.tiled))
        )
        short = tile.warpgroups.ping_pong and tile.k.tiles * bk <= 32 and tile.panel != "each"
        return factor * (rates.short_sum if short else 1.0)

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        return fastest(self._estimates(tile))

    def _estimates(self, tile: WgmmaTile) -> Iterator[Estimate]:
        facts, device = self.facts, self.device
        launches, (rows, bn, _) = device.launches, tile.shape
        staging = self.staging(tile)
        traffic = self.traffic(tile, staging)
        k_tiles, mma_tiles = tile.k.tiles, tile.mma_tiles
        tiles, at_once = self.grid(tile)
        loop = self.loop(tile, tiles)
        partial = rows * bn * data_type(self.plan.contraction.dtype).accumulator_bytes
        whole = tile.m.box.tiles * tile.n.box.tiles * self.plan.extent_l
        limit = facts.workspace_limit
        splits = {
            wish if wish * whole * partial <= limit else bounded_split(wish, partial, whole, k_tiles, limit)[0]
            for wish in self.splits(tile, tiles)
        }
        for split in sorted(splits):
            blocks = tiles * split
            waves = math.ceil(blocks / at_once)
            steps = -(-k_tiles // split) * mma_tiles
            tail = staging.clocks if split == 1 else rows * bn / 32.0
            looped = steps * loop.clocks
            stored = traffic.store_clocks if split == 1 else 0.0
            work = self.work(tile, loop, looped, tail, stored)
            if tile.warpgroups.ping_pong and split == 1:  # shared memory serves two tiles at once
                work = max(work, steps * loop.smem_clocks + self.staged_clocks(tile, staging))
            # One engine moves the rows of loads and of stores.
            clocks = max(work, steps * loop.engine_clocks + traffic.store_clocks)
            busy = (self.waves(blocks / at_once) if split == 1 else waves) * clocks / (facts.clock_ghz * 1e3)
            memory = traffic.dram_us / min(1.0, blocks / facts.sm_count)
            streams = self.streams and loop.slowest == "L2" and memory >= busy
            beside = self.beside_loads if streams else self.beside
            us = launches.launch_us + self.fills * launches.fill_us + max(memory, busy) + beside * min(memory, busy)
            us += split_us(blocks, rows * bn * self.sum_words, device) if split > 1 else 0.0
            if self.batches == split == 1 < waves <= self.few_waves and memory >= busy:
                # Nothing is loaded beside the stores of the last tiles.
                us += self.bytes[D] / self.device.memory.copy_tbps * 1e-6 / waves
            us += traffic.late_us if waves == 1 and split == 1 and mma_tiles == 1 else 0.0
            us *= self.factor(tile, tiles, steps // mma_tiles)
            bound = "DRAM" if memory >= busy else "stores" if tail > looped else loop.slowest
            yield Estimate(us, bound, split)

    def staged_clocks(self, tile: WgmmaTile, staging: Staging) -> float:
        """Clocks of shared memory for a tile of D: it is written, conflicts and all, and read once."""
        rates, (rows, columns, _) = self.device.wgmma.loop, tile.shape
        served = staging.dense.conflicts + 1
        return rows * columns * self.size_d * served / rates.smem_bytes_per_clock / rates.peak_share

    def splits(self, tile: WgmmaTile, tiles: int) -> list[int]:
        """Slices of K that are tried."""
        return wgmma_splits(tile.k.tiles, tiles, self.facts.sm_count)

    def paced(self, tile: WgmmaTile) -> float:
        """Factor on the loop where blocks keep to one panel, which brings nothing to device memory."""
        return self.stays(tile) if tile.panel == "one" else 1.0

    def stays(self, tile: WgmmaTile) -> float:
        """What an operand that stays brings beyond the copies that it saves."""
        if not tile.stationary:
            return 1.0
        factors = self.device.wgmma.stationary
        if tile.panel:
            return factors.each_panel if tile.panel == "each" else factors.one_panel
        tensor, side = (B, tile.n) if tile.stationary == "a" else (A, tile.m)
        modes = (*side.modes, *self.plan.k)
        whole = any(s.strides[tensor] == self.size and s.extent * self.size % L2_LINE == 0 for s in modes)
        return factors.whole_beside_lines if whole else factors.whole

    def preference(self, tile: WgmmaTile, made: Schedule, swap_ab: bool) -> float:
        """Of equals: ping-pong, boxes of few dimensions and with long first ones."""
        maps = made.hopper.a.tma, made.hopper.b.tma, made.epilogue.store
        weighted = zip((x.map if x is not None else None for x in maps), (2, 2, 1), strict=True)
        dims = sum(weight * (b > 1) for made, weight in weighted if made is not None for b in made.box)
        firsts = [next((d.box for _, d in side.box.tiled), 1) for side in (tile.m, tile.n)]
        together = 0.0 if tile.warpgroups.ping_pong else 0.01
        order = 0.0005 * (dims + swap_ab + tile.warpgroups.mma_m) + sum(0.05 / first for first in firsts)
        return 1.0 + order + together

    def depth(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """How stages show: short sums want bytes under way and to start soon, long ones fewer and deeper k-tiles."""
        rates = self.device.wgmma.in_flight
        stages, stage, deep, by_dram = made.hopper.stages, made.smem.stage, tile.shape[2], estimate.bound == "DRAM"
        enough = rates.dram_bytes if by_dram else rates.l2_bytes
        missing = rates.none_share * max(0.0, 1.0 - (stages - 1) * stage / enough)
        few = 1.0 if stages >= 3 or (by_dram and stage >= rates.dram_bytes) else rates.two_stages
        if by_dram:
            late = self.behind_stores(tile, estimate, made)
            long_rows = 1.0
            if deep >= 8 * self.atom.k:  # two lines of L2 a row of what is read once, or k-tiles that come late
                stream = self.plan.extent_k >= LONG_STREAM and self.only_reads and tile.shape[0] > 64
                long_rows = 0.99 if stream else 1.01
            return few * (long_rows + missing / 2 + late)
        if stages == 3 and tile.warpgroups.ping_pong and tile.k.tiles >= LONG_LOOP:
            few = rates.alternating_three
        long = {1: 1.05, 2: 1.025, 8: 1.01}.get(deep // self.atom.k, 1.0)
        if self.hurried(tile.m.box.tiles * tile.n.box.tiles * self.batches):
            return (
                few
                * (1.0 + missing + rates.start_share * deep / (4 * self.atom.k))
                * (long if deep * tile.k.tiles >= SHORT_K else 1.0)
            )
        return few * long

    def behind_stores(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Share of the time that loads from L2 cost beside stores of D that keep memory busy, behind which they wait.

        Too few are under way for the pace of the tiles, or their rows are half a line.
        """
        rates = self.device.wgmma.in_flight
        tiles, at_once = self.grid(tile)
        k_tiles = math.ceil(tiles / at_once) * tile.k.tiles * tile.mma_tiles
        under_way = (made.hopper.stages - 1) * estimate.us / (k_tiles * rates.behind_stores_us)  # by what is needed
        half_lines = tile.k.tiles > 1 and tile.shape[2] * self.size < L2_LINE and None not in self.k_unit.values()
        if not isinstance(made.epilogue.store, TmaStore):  # threads store, the copy engine loads
            return 0.0
        late = rates.behind_stores_share * max(0.0, 1.0 - under_way) + (rates.half_lines if half_lines else 0.0)
        return late * max(0.0, 2.0 * self.share_of_d - 1.0)

    def hurried(self, tiles: int) -> bool:
        """Whether the start and the end of a tile take a share of its time."""
        return self.plan.extent_k <= SHORT_K or tiles <= self.facts.sm_count
