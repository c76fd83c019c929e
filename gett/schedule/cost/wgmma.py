"""The cost model of the wgmma main loops: persistent blocks, one a multiprocessor, fed by tensor maps.

Rates are the architecture's; what a run of bytes costs comes from the measurements in `layouts.access` (bulk).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.copies import L2_LINE
from gett.schedule.cost.estimate import LAUNCH_US, Estimate, fastest, joined, split_us, wgmma_splits
from gett.schedule.cost.staging import Staging, StagingModel
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile, cluster_tiles
from layouts.access import contiguous_run, run_alignment, run_cost
from layouts.box import Box
from layouts.modes import Strided

FILL_US = 1.5  # first tile's way through an empty pipeline
TENSOR_EFFICIENCY = 0.86  # of the peak at the sustained clock
SMEM_BYTES_PER_CLOCK = 128.0
STORED_ROW_CLOCKS = 2.0
SHALLOW = 0.02  # share of the time that each stage of only 16 k costs
PADDED = 0.1  # share of the padded outputs that shows in the time though waves are whole: power, L2
# What stays helps more than copies say, if the other's rows are no whole lines; keeping to panels helps or costs more.
WHOLE_STAYS, WHOLE_STAYS_BESIDE_LINES, PANEL_STAYS = 0.97, 1.01, {"each": 1.15, "one": 0.83}
SHORT_PING_PONG = 1.1  # ping-pong at products too short to overlap
READ_LINES, WRITTEN_LINES = 0.1, 0.3  # share in which lines that are read and written in parts show
MORE_DIMS = 0.005  # share of the time that one more tiled dimension costs: shorter walks through memory
# From one tile to the next: of warpgroups in ping-pong, and when nothing else holds them up; of cooperative ones.
PING_PONG_CLOCKS, TILE_LATENCY_CLOCKS, COOPERATIVE_CLOCKS = 300.0, 1100.0, 500.0
CLUSTER_CLOCKS = 150.0  # of a tile, where blocks keep step
EXCHANGE_CLOCKS = 2000.0  # half a tile to another block, at 19 bytes a clock
EXCHANGE_STEP = 1.1  # what keeping step costs blocks of one tile, whichever operand they share (measured)
LATE = 0.3  # share in which a slow store shows where every block has one tile: nothing hides it
# What keeping two blocks in step costs the main loop (measured). Sharing A is dearer than sharing B; clusters of four
# do not find room beside each other on all multiprocessors and take twice as long.
CLUSTERS = {(1, 1): 1.0, (2, 1): 1.04, (1, 2): 1.25}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What boxes make of the tensors' way through device memory.

    Attributes:
        dram_us: Microseconds that it takes.
        late_us: Microseconds by which slow stores come late where blocks have one tile.
        store_clocks: Clocks of the copy engine for a tile of D, and of C.
        dims: Factor for the dimensions that tiles have.
    """

    dram_us: float
    late_us: float
    store_clocks: float
    dims: float


@dataclass(frozen=True, slots=True)
class Loop:
    """What a k-tile takes of a multiprocessor.

    Attributes:
        clocks: Of the slowest unit.
        slowest: Its name.
        engine_clocks: Of the copy engine.
        panel_clocks: What an operand that stays for a panel adds to each tile.
    """

    clocks: float
    slowest: str
    engine_clocks: float
    panel_clocks: float


class WgmmaModel(StagingModel):
    """Estimates for one plan; what tiles have in common is worked out once."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan)
        self.facts = facts
        self.lanes = facts.tensor_lanes[plan.contraction.dtype]
        self.costs: dict[tuple[int, Box, Box, int], float] = {}
        self.traffics: dict[tuple[Box, Box, Box, Box, bool, bool, int], Traffic] = {}

    @cached_property
    def bytes(self) -> dict[int, int]:
        """Distinct bytes of A, B and D, and of C, if there is one."""
        p = self.plan
        groups = {A: (p.l, p.m, p.k), B: (p.l, p.n, p.k), D: (p.l, p.m, p.n)}
        if p.contraction.c is not None:
            groups[C] = groups[D]
        return {
            t: math.prod(s.extent for g in gs for s in g if s.strides[t]) * self.item(t) for t, gs in groups.items()
        }

    def cost(
        self,
        tensor: int,
        first: OperandTiling,
        second: Box,
        modes: tuple[Strided, ...],
        bulk: bool = True,
        row: int = 0,
    ) -> float:
        """Relative cost of a tensor's bytes under its boxes, moved in rows of `row` bytes if that is not 0."""
        key = (tensor, first.box, second, row)
        if key not in self.costs:
            strides = tuple(s.strides[tensor] for s in (*first.modes, *modes))
            box = joined(first.box, second)
            run = contiguous_run(box, strides, self.item(tensor))
            start = run_alignment(box, strides, run)
            if row and row < run and (row % 32 or row < 64):
                # Sectors that rows cut are made whole in L2 by the next row, at a price.
                run = row // 32 * 32 if row >= 32 else row
            self.costs[key] = run_cost(run, store=tensor == D, bulk=bulk, start_alignment=start)
        return self.costs[key]

    def traffic(self, tile: WgmmaTile, staging: Staging) -> Traffic:
        """What a tile's boxes make of the tensors' way through device memory."""
        row = staging.dense.row * self.size_d if staging.bulk else 0
        key = (tile.m.box, tile.n.box, tile.k, tile.a.box, tile.exchange, staging.bulk, row)
        if key not in self.traffics:
            self.traffics[key] = self._traffic(tile, staging.bulk, row)
        return self.traffics[key]

    def _traffic(self, tile: WgmmaTile, bulk: bool, row: int) -> Traffic:
        facts, k, of = self.facts, self.plan.k, self.bytes
        m, n, modes_n = tile.m, tile.n.box, tile.n.modes

        def cut(share: float, tensor: int, first: OperandTiling, second: Box, modes: tuple[Strided, ...]) -> float:
            return 1.0 + share * (self.lines(tensor, first, second, modes) - 1.0)

        cost_a = self.cost(A, m, tile.k, k) * cut(READ_LINES, A, tile.a, tile.k, k)
        cost_b = self.cost(B, tile.n, tile.k, k) * cut(READ_LINES, B, tile.n, tile.k, k)
        m_stored, n_stored, row_stored = m, n, row
        if tile.exchange and (exchanged := self.exchanged(tile)) is not None:
            m_stored, n_stored, row_stored = replace(m, box=exchanged.m), exchanged.n, 2 * row
        cost_d = self.cost(D, m_stored, n_stored, modes_n, bulk, row_stored) * cut(WRITTEN_LINES, D, m, n, modes_n)
        source = 0.0
        if C in of:
            source = of[C] * self.cost(C, m, n, modes_n, bulk, row) * cut(READ_LINES, C, m, n, modes_n)
        late = LATE * of[D] * (cost_d - 1.0) / facts.dram_tbps * 1e-6
        dram = (of[A] * cost_a + of[B] * cost_b + of[D] * cost_d + source) / facts.dram_tbps * 1e-6
        stored = m.box.size * n.size * self.size_d / row_stored * STORED_ROW_CLOCKS if row_stored else 0.0
        stored *= 2 if C in of else 1  # rows of C come in as D's go out
        return Traffic(dram, late, stored, 1.0 + MORE_DIMS * (len(m.box.tiled) + len(n.tiled)))

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        rows, bn, bk = tile.block
        math_clocks = rows * bn * bk / self.lanes / TENSOR_EFFICIENCY
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
        smem_clocks = (read * bk + passed * tile.k.size) * self.size / SMEM_BYTES_PER_CLOCK / TENSOR_EFFICIENCY
        limits = {"tensor cores": math_clocks, "shared memory": smem_clocks, "L2": drawn}
        slowest = max(limits, key=lambda name: limits[name])
        step = EXCHANGE_STEP if tile.exchange else CLUSTERS[tile.cluster]
        return Loop(limits[slowest] * step, slowest, engine, panel)

    def least_us(self, tile: WgmmaTile) -> float:
        """What the products of a tile's blocks take, or the distinct bytes: a bound of the estimate."""
        facts = self.facts
        rows, bn, bk = tile.block
        tiles = tile.m.box.tiles * tile.n.box.tiles * self.plan.extent_l
        waves = tiles / facts.sm_count
        if tile.k.tiles < 8 or 2 * tiles > facts.sm_count:  # K is not sliced
            waves = math.ceil(waves)
        clocks = rows * bn * bk / self.lanes / TENSOR_EFFICIENCY * tile.k.tiles * tile.mma_tiles
        return (LAUNCH_US + FILL_US + max(waves * clocks / (facts.clock_ghz * 1e3), self.copy_us)) * self.stays(tile)

    @cached_property
    def copy_us(self) -> float:
        """Microseconds of the distinct bytes at copy speed."""
        return sum(self.bytes.values()) / self.facts.dram_tbps * 1e-6

    def estimate(self, tile: WgmmaTile) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        return fastest(self._estimates(tile))

    def _estimates(self, tile: WgmmaTile) -> Iterator[Estimate]:
        facts, plan = self.facts, self.plan
        rows, bn, bk = tile.block
        staging = self.staging(tile)
        traffic = self.traffic(tile, staging)
        k_tiles, parts, wide = tile.k.tiles, tile.mma_tiles, tile.blocks
        ping_pong = tile.warpgroups.ping_pong
        # Blocks that no tile is left for run along with their cluster.
        tiles = cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, tile.cluster) * plan.extent_l * wide
        at_once = facts.sm_count // wide * wide
        if tile.panel == "one":  # as many for each panel
            panels = (tile.m if tile.stationary == "a" else tile.n).box.tiles
            at_once = facts.sm_count // panels * panels
        loop = self.loop(tile, tiles)
        factor = 1.0 + PADDED * (tiles * rows * parts * bn / (plan.extent_m * plan.extent_n * plan.extent_l) - 1.0)
        factor *= self.stays(tile) * traffic.dims
        if ping_pong and k_tiles * bk <= 32 and tile.panel != "each":
            factor *= SHORT_PING_PONG
        for split in wgmma_splits(k_tiles, tiles, facts.sm_count):
            blocks = tiles * split
            waves = math.ceil(blocks / at_once)
            steps = -(-k_tiles // split) * parts
            tail = staging.clocks if split == 1 else rows * bn / 32.0
            looped = steps * loop.clocks
            work = (
                max(looped + PING_PONG_CLOCKS, (looped + tail + TILE_LATENCY_CLOCKS) / 2)
                if ping_pong
                else looped + tail + COOPERATIVE_CLOCKS * parts
            )
            work += (CLUSTER_CLOCKS if wide > 1 else 0.0) + (EXCHANGE_CLOCKS if tile.exchange else 0.0)
            work += loop.panel_clocks
            # One engine moves the rows of loads and of stores.
            busy = waves * max(work, steps * loop.engine_clocks + traffic.store_clocks) / (facts.clock_ghz * 1e3)
            memory = traffic.dram_us / min(1.0, blocks / facts.sm_count)
            us = LAUNCH_US + FILL_US + max(memory, busy) + 0.2 * min(memory, busy)
            us += split_us(blocks, rows * bn, facts) if split > 1 else 0.0
            us += traffic.late_us if waves == 1 and split == 1 and parts == 1 else 0.0
            us *= factor * (1.0 + (SHALLOW * (steps // parts) if bk == 16 else 0.0))
            bound = "DRAM" if memory >= busy else "stores" if tail > looped else loop.slowest
            yield Estimate(us, bound, split)

    def stays(self, tile: WgmmaTile) -> float:
        """What an operand that stays brings beyond the copies that it saves."""
        if tile.panel or not tile.stationary:
            return PANEL_STAYS.get(tile.panel, 1.0)
        tensor, side = (B, tile.n) if tile.stationary == "a" else (A, tile.m)
        modes = (*side.modes, *self.plan.k)
        whole = any(s.strides[tensor] == self.size and s.extent * self.size % L2_LINE == 0 for s in modes)
        return WHOLE_STAYS_BESIDE_LINES if whole else WHOLE_STAYS
