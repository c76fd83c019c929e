"""The cost model of the Hopper main loops: persistent blocks, one a multiprocessor, and one formula of their time.

A main loop says what a k-tile asks of the units (`hopper_units`), the device's record what units take. A k-tile takes
what its slowest unit takes; products and stores of D follow each other or overlap; tiles are made in waves; device
memory is busy beside them. How many loads are under way is known of a schedule alone: `pace` is what they make of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import WORD, data_type
from gett.hw.hopper_rates import HopperModel
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.copies import Loads
from gett.schedule.cost.estimate import PORT, Estimate, bounded_split, fastest, split_us
from gett.schedule.cost.hopper_units import LoopCost, Units
from gett.schedule.cost.partial_lines import PartialLines, Walk
from gett.schedule.cost.staging import Staging, StagingCost
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts
from gett.schedule.spec.schedule import PARTS, Schedule
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile, cluster_tiles
from layouts.rates import L2_LINE

RASTER = 8
"""Rows of tiles that are visited together where nothing asks for others."""

UNITS = "tensor cores", "shared memory", "L2", "copies"
"""What k-tiles ask for; the last are threads that copy."""


class Loop(NamedTuple):
    """What a k-tile takes of a multiprocessor."""

    clocks: float  # of the slowest unit
    slowest: str  # its name
    copies: float  # of the copy engine
    port: float  # of shared memory
    panel: float  # what an operand that stays for a panel adds to each tile


class Traffic(NamedTuple):
    """What boxes make of the tensors' way through device memory."""

    dram_us: float  # microseconds that it takes
    store_clocks: float  # clocks of the copy engine for a tile of D, and of C


class HopperCost(StagingCost):
    """Estimates for one plan by one main loop; what tiles have in common is worked out once."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, mainloop: LoopCost) -> None:
        super().__init__(plan, facts)
        self.mainloop, self.batches = mainloop, plan.extent_l
        numbers = data_type(plan.contraction.dtype)
        self.sum_bytes, self.doubled = numbers.accumulator_bytes, numbers.doubled
        self.outputs = plan.extent_m * plan.extent_n * plan.extent_l
        self.partial_lines = PartialLines(plan, facts, self.bytes, sum(self.bytes.values()))
        fills = 2 if mainloop.remakes else 1  # empty pipelines that a block's first tile waits for
        self.start_us = self.device.launches.launch_us + fills * self.device.launches.fill_us
        self.read(self.device.hopper)

    def read(self, model: HopperModel) -> None:
        """Go by these numbers of main loops from now on. What is known of copies and of D's stores stays."""
        self.rates, self.tile_rates, self.threads = self.mainloop.rates(model.loops), model.tiles, model.threads
        self.stream_k = model.stream_k_doubles if self.doubled else model.stream_k
        # Of complex numbers twice as much is split, but the sums of one part are added beside more products.
        self.step_clocks = self.rates.step_clocks * (1 + parts(self.plan)) / 2
        # Where memory limits and the loop's loads take less: without much of D both are one stream.
        self.beside_loads = self.rates.beside * min(1.0, self.share_of_d / self.tile_rates.small_d)

    def hurried(self, tiles: int) -> bool:
        """Whether the start and the end of a tile take a share of its time."""
        return self.plan.extent_k <= self.tile_rates.short_k or tiles <= self.facts.sm_count

    def operands(self, tile: WgmmaTile) -> tuple[Loads, Loads]:
        """What loads of A and of B take."""
        return self.loads(A, tile.m, tile.k), self.loads(B, tile.n, tile.k)

    def loop(self, tile: WgmmaTile, tiles: int, known: tuple[Loads, Loads] | None = None) -> Loop:
        """What a k-tile takes, by the unit that takes longest; `known` is what its loads take."""
        a, b = known or self.operands(tile)
        copies = panel = 0.0
        for name, load, blocks, mma_tiles, reads, run in (
            ("a", a, tile.cluster[1], tile.mma_tiles, b.tiles, tile.runs[0]),
            ("b", b, tile.cluster[0], 1, a.tiles, tile.runs[1]),
        ):
            if name != tile.stationary and not run:
                copies += (load.shared if blocks > 1 else load.clocks) / mma_tiles
            elif tile.panel == "each" and name == tile.stationary:  # it comes once a panel, or a block's share of it
                panel = tile.k.tiles * load.clocks / min(reads, tiles / self.facts.sm_count)
        return self.of_units(tile, self.mainloop.units(self, tile), copies, panel)

    def of_units(self, tile: WgmmaTile, asked: Units, copied: float, panel: float = 0.0) -> Loop:
        """The same where a k-tile asks for so much, and copies take so much of the copy engine."""
        rates = self.rates
        products = asked.products / rates.products + self.step_clocks * (tile.shape[2] // self.atom.k)
        units = products, asked.port / PORT / rates.port, rates.copies * copied, asked.threads
        clocks, (_, port, copies, _) = max(units), units
        hidden = rates.hidden * (sum(units) - clocks)
        paced = self.tile_rates.one_panel if tile.panel == "one" else 1.0
        if tile.blocks > 1 and not tile.exchange:  # blocks that share an operand keep step
            paced = self.tile_rates.cluster_m if tile.cluster[0] > 1 else self.tile_rates.cluster_n
        slowest = UNITS[units.index(clocks)]
        return Loop((clocks + hidden + rates.k_tile_clocks) * paced, slowest, copies, port, panel)

    def traffic(self, tile: WgmmaTile, staging: Staging) -> Traffic:
        """What a tile's boxes make of the tensors' way through device memory."""
        m, n, of, (a, b) = tile.m, tile.n, self.bytes, self.operands(tile)
        row, moved = staging.dense.row * self.size_d if staging.bulk else 0, a.read + b.read
        if tile.exchange and (found := self.exchanged(tile)) is not None:
            m, n, row = replace(m, box=found.m), replace(n, box=found.n), 2 * row
        for tensor in (t for t in of if t in (C, D)):
            run, _ = self.run(tensor, tile.m, tile.n.box, tile.n.modes)
            moved += of[tensor] * self.cost(tensor, m, n, staging.bulk, row) * self.lines(run, tensor == D)
        rows = tile.m.box.size * tile.n.box.size * self.size_d / row if row else 0.0
        rows *= 2 if C in of else 1  # rows of C come in as D's go out
        return Traffic(self.copy_us(moved), rows * self.device.tma.stored_row_clocks)

    def again_us(self, tile: WgmmaTile, split: int) -> float:
        """Microseconds of lines that memory sends once more for each part of them that tiles read."""
        m, n, (tiles, at_once) = tile.m, tile.n, self.grid(tile)
        of_batch = tiles // self.batches * split
        walk = Walk(-(-tile.k.tiles // split), RASTER, n.box.tiles, of_batch, tiles * split, at_once)
        cuts = ("m", m.modes, m.box), ("n", n.modes, n.box)
        return self.copy_us(self.partial_lines.of_operands(*cuts, None, tile.k, walk))

    def copy_us(self, moved: float) -> float:
        """Microseconds of so many bytes at copy speed."""
        return moved / self.device.memory.copy_tbps * 1e-6

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        staging = self.staging(tile)
        traffic, (tiles, at_once) = self.traffic(tile, staging), self.grid(tile)
        loop = self.loop(tile, tiles)
        found = [self.of_split(tile, loop, staging, traffic, split) for split in self.splits(tile, tiles)]
        # Fewer tiles than blocks are better sliced: all of them would be divided.
        if self.divides(tile) and tiles > at_once and tiles % at_once * tile.k.tiles >= at_once:
            found.append(self.of_split(tile, loop, staging, traffic, 1, stream_k=True))
        return fastest(found)

    def whole(self, tile: WgmmaTile, *, stream_k: bool = False) -> Estimate:
        """The estimate of a tile whose K is whole, where stream-K divides those that are left over, or not."""
        staging, (tiles, _) = self.staging(tile), self.grid(tile)
        return self.of_split(tile, self.loop(tile, tiles), staging, self.traffic(tile, staging), 1, stream_k=stream_k)

    def divides(self, tile: WgmmaTile) -> bool:
        """Whether stream-K divides such tiles: nothing stays, and the workspace holds their parts.

        Beside complex numbers that are made into planes threads have no registers left for it.
        """
        if self.mainloop.remakes and parts(self.plan) > 1:
            return False
        if not self.mainloop.divides(tile) or tile.stationary or tile.exchange or tile.mma_tile is not None:
            return False
        return PARTS * self.facts.sm_count * self.partial_bytes(tile) <= self.facts.workspace_limit

    def partial_bytes(self, tile: WgmmaTile) -> int:
        """Bytes of the partial sums of a tile, padding included."""
        return tile.shape[0] * tile.shape[1] * self.sum_bytes

    def last_stores_us(self, tile: WgmmaTile) -> float:
        """Microseconds in which D's tiles of the last wave leave: nothing is multiplied beside them.

        Those of other types are short beside their products: choices among stored schedules get no better by it.
        """
        (rows, columns, _), (tiles, at_once) = tile.shape, self.grid(tile)
        last = (tiles - 1) % at_once + 1
        return self.copy_us(last * rows * tile.mma_tiles * columns * self.size_d)

    def parts_us(self, tile: WgmmaTile, parts: int) -> float:
        """Microseconds that partial tiles of stream-K take: another launch, and their bytes out and in."""
        return self.device.launches.launch_us + self.copy_us(2.0 * parts * self.partial_bytes(tile))

    def forecast_us(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Expected time of a schedule of a tile."""
        return estimate.us * self.pace(tile, estimate, made) + self.parts_wait_us(tile, made)

    def parts_wait_us(self, tile: WgmmaTile, made: Schedule) -> float:
        """Microseconds in which parts of D's tile wait until the copy engine has read those before."""
        store, (tiles, at_once) = made.epilogue.store, self.grid(tile)
        if store.subtiles == 1:
            return 0.0
        clocks = (1.0 - store.buffers / store.subtiles) * self.traffic(tile, self.staging(tile)).store_clocks
        return math.ceil(tiles / at_once) * clocks / (self.facts.clock_ghz * 1e3)

    def splits(self, tile: WgmmaTile, tiles: int) -> list[int]:
        """Slices of K that are tried, whose partial sums the workspace holds."""
        wishes = self.mainloop.splits(tile.k.tiles, tiles, self.facts.sm_count)
        if wishes == [1]:
            return wishes
        partial, limit = self.partial_bytes(tile), self.facts.workspace_limit
        whole = tile.m.box.tiles * tile.n.box.tiles * self.batches
        bounded = [bounded_split(wish, partial, whole, tile.k.tiles, limit)[0] for wish in wishes]
        found = zip(wishes, bounded, strict=True)
        return sorted({wish if wish * whole * partial <= limit else least for wish, least in found})

    def of_split(
        self, tile: WgmmaTile, loop: Loop, staging: Staging, traffic: Traffic, split: int, *, stream_k: bool = False
    ) -> Estimate:
        """Expected time of a tile whose K is in so many slices, or where stream-K divides tiles that are left over."""
        (rows, columns, _), mma_tiles, (tiles, at_once) = tile.shape, tile.mma_tiles, self.grid(tile)
        blocks, steps = tiles * split, -(-tile.k.tiles // split) * mma_tiles
        tail = staging.clocks if split == 1 else rows * columns / 32.0
        looped, stored = steps * loop.clocks, traffic.store_clocks if split == 1 else 0.0
        dram_us = traffic.dram_us + self.again_us(tile, split)
        memory = dram_us / (1.0 if stream_k else min(1.0, blocks / self.facts.sm_count))
        between = memory / max(1.0, blocks / at_once)
        work = min(self.work(tile, loop, looped, tail, stored, between, split == 1, staging.bulk))
        if tile.warpgroups.ping_pong and split == 1:  # shared memory serves two tiles at once
            work = max(work, steps * loop.port + self.staged_clocks(tile, staging))
        # One engine moves the rows of loads and of stores.
        clocks = max(work, steps * loop.copies + traffic.store_clocks)
        waves = blocks / at_once * self.stream_k if stream_k else math.ceil(blocks / at_once)
        busy = waves * clocks / (self.facts.clock_ghz * 1e3)
        beside = self.beside_loads if loop.slowest == "L2" and memory >= busy else self.rates.beside
        us = self.start_us + max(memory, busy) + beside * min(memory, busy)
        us += split_us(blocks, rows * columns * self.sum_bytes // WORD, self.device) if split > 1 else 0.0
        us += self.parts_us(tile, at_once + tiles % at_once) if stream_k else 0.0
        us *= self.factor(tile, tiles)
        if self.doubled and busy > memory and split == 1 and not stream_k:
            us += self.last_stores_us(tile)
        bound = "DRAM" if memory >= busy else "stores" if tail > looped else loop.slowest
        return Estimate(us, bound, split, stream_k)

    def work(
        self,
        tile: WgmmaTile,
        loop: Loop,
        looped: float,
        tail: float,
        stored: float,
        memory_us: float,
        whole: bool,
        bulk: bool,
        busy: float = 1.0,
    ) -> tuple[float, float]:
        """Clocks from one tile to the next: of the main loop, of staging and storing D, and what comes between.

        The second number is that of a tile which is staged where the stages were, before the next one is loaded.

        Args:
            tile: The tile.
            loop: Its k-tiles.
            looped: Clocks of all of them.
            tail: Clocks in which D is staged.
            stored: Clocks of the copy engine for D.
            memory_us: Memory's time for a tile.
            whole: Whether its sums take all of K.
            bulk: Whether a tensor map stores D.
            busy: Factor for how much later loads come where memory is busy; 0 for a bound.
        """
        rates, waits_for_d = self.rates, self.mainloop.waits_for_d
        if tile.warpgroups.ping_pong:
            return max(looped, (looped + tail + rates.alternate_clocks) / 2) + loop.panel, math.inf
        memory, steps = memory_us * self.facts.clock_ghz * 1e3, looped / loop.clocks
        # Warpgroups that share a tile share its staging buffer: D is not staged while it leaves from there.
        beside = stored if self.size_d >= WORD else 0.0
        if waits_for_d and whole:
            beside = memory * self.share_of_d
        after = tail + rates.tile_clocks * tile.mma_tiles + loop.panel
        # Where threads store, those who multiply wait for memory.
        apart = waits_for_d and not bulk
        clocks = (looped + beside if apart else max(looped, beside)) + after
        if not rates.load_clocks:
            return clocks, math.inf
        staged = tile.m.box.size * tile.n.box.size * self.size_d if whole else 0
        late, reused = busy * memory, self.tile_rates.reused_clocks
        clocks = self.waiting(tile, steps, clocks, late, staged)
        alone = tile.blocks == 1 and self.plan.contraction.c is None
        short = busy > 0.0 and looped < 8 * reused  # what a bound is of may be longer
        if not (waits_for_d and alone and bulk and whole) or short:
            return clocks, math.inf
        return clocks, self.waiting(tile, steps, looped + after + reused, late, 0)

    def stages_are_reused(self, tile: WgmmaTile) -> bool:
        """Whether a tile whose sums take all of K is faster staged where the stages are."""
        (tiles, at_once), staging = self.grid(tile), self.staging(tile)
        loop, memory = self.loop(tile, tiles), self.traffic(tile, staging).dram_us / max(1.0, tiles / at_once)
        looped = tile.k.tiles * loop.clocks
        beside, within = self.work(tile, loop, looped, staging.clocks, 0.0, memory, True, staging.bulk)
        return within < beside

    def waiting(self, tile: WgmmaTile, steps: float, clocks: float, memory: float, staged: int) -> float:
        """A tile's `clocks` and those in which products wait for loads; infinite where fewer than two stages fit.

        Each round of the stages waits where loads take longer than the k-tiles before theirs. `memory` are the clocks
        that it takes for a tile, `staged` the bytes beside the stages.
        """
        rows, columns, deep = tile.shape
        stages = min(MOST_STAGES, (self.facts.smem_per_block - staged) // ((rows + columns) * deep * self.size))
        if stages < 2:
            return math.inf
        late = self.rates.load_clocks + self.rates.memory_clocks * min(1.0, memory / clocks)
        return clocks + max(0.0, late - (stages - 0.5) * clocks / steps) * steps / stages

    def grid(self, tile: WgmmaTile) -> tuple[int, int]:
        """Tiles of D, those included that a cluster's blocks run along for, and how many are made at a time."""
        tiles = cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, tile.cluster) * self.batches * tile.blocks
        at_once = self.facts.sm_count // tile.blocks * tile.blocks
        if tile.panel == "one":  # as many for each panel
            panels = (tile.m if tile.stationary == "a" else tile.n).box.tiles
            at_once = self.facts.sm_count // panels * panels
        return tiles, at_once

    def factor(self, tile: WgmmaTile, tiles: int) -> float:
        """Factor on the time for padding, operands that L2 sends again, panels, warps that wait."""
        rates, (rows, columns, _) = self.tile_rates, tile.shape
        factor = 1.0 + rates.padded_share * (tiles * rows * tile.mma_tiles * columns / self.outputs - 1.0)
        if self.rates.resent:
            sent = self.bytes[A] * tile.n.box.tiles + self.bytes[B] * tile.m.box.tiles
            factor *= 1.0 + self.rates.resent * (1.0 - (self.bytes[A] + self.bytes[B]) / sent)
        return factor * (rates.each_panel if tile.panel == "each" else self.rates.waits)

    def staged_clocks(self, tile: WgmmaTile, staging: Staging) -> float:
        """Clocks of shared memory for a tile of D: it is written, conflicts and all, and read once."""
        rows, columns, _ = tile.shape
        return rows * columns * self.size_d * (staging.dense.conflicts + 1) / PORT / self.rates.port

    def pace(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Factor on a tile's time: loads under way, copies' boxes of many dimensions and short first ones."""
        maps = made.hopper.a.tma, made.hopper.b.tma, made.epilogue.store
        boxes = ((weight, x.map) for weight, x in zip((2, 2, 1), maps, strict=True) if x is not None)
        dims = sum(weight * (b > 1) for weight, of in boxes if of is not None for b in of.box)
        more = self.tile_rates.map_share * (dims + made.tiling.swap_ab)
        return self.under_way(tile, estimate, made) * (self.least_pace(tile.warpgroups, *self.operands(tile)) + more)

    def least_pace(self, groups: Warpgroups, a: Loads, b: Loads) -> float:
        """The part of `pace` that no schedule changes: first dimensions, warpgroups that share a tile."""
        rates = self.tile_rates
        share = rates.map_share * groups.mma_m + rates.first_share * (a.apart + b.apart)
        return 1.0 + share + (0.0 if groups.ping_pong else rates.together_share)

    def under_way(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Factor for loads under way: those out of memory by their bytes; in short sums, those that L2 serves."""
        rates, common = self.rates, self.tile_rates
        stages, stage, by_dram = _stages(made), made.smem.stage, estimate.bound == "DRAM"
        few = 1.0 if stages > 2 or (by_dram and stage >= common.dram_bytes) else rates.two_stages
        enough = common.dram_bytes if by_dram else common.l2_bytes
        missing = rates.missing * max(0.0, 1.0 - (stages - 1) * stage / enough)
        if by_dram:
            return few * (1.0 + missing / 2 + self.behind_stores(tile, estimate, made))
        hurried = self.hurried(tile.m.box.tiles * tile.n.box.tiles * self.batches)
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
        under_way = (_stages(made) - 1) * estimate.us / (k_tiles * rates.behind_us)  # by what is needed
        along_k = None not in self.k_unit.values()
        half_lines = tile.k.tiles > 1 and tile.shape[2] * self.size < L2_LINE and along_k
        late = self.rates.behind * max(0.0, 1.0 - under_way) + (rates.half_lines if half_lines else 0.0)
        return late * max(0.0, 2.0 * self.share_of_d - 1.0)


def _stages(made: Schedule) -> int:
    """The stages, and those for which a second staging buffer takes the room: it hides as much."""
    store, smem, stages = made.epilogue.store, made.smem, made.hopper.stages
    if (store.subtiles, store.buffers) != (1, 2):
        return stages
    return max(stages, min(MOST_STAGES, stages + (smem.barriers - smem.staging) // (2 * smem.stage)))
