"""The cost model of the Hopper family: persistent blocks, one a multiprocessor, fed by tensor maps.

Rates are the architecture's; what a run of bytes costs comes from the measurements in `layouts.access` (bulk).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cluster import CLUSTERS, cluster_tiles
from gett.schedule.cost_copies import LINE
from gett.schedule.cost_staging import Staging, StagingModel
from gett.schedule.cost_tiled import LAUNCH_US, Estimate, joined
from gett.schedule.sm90_shape import Side, Sm90Shape
from layouts.access import contiguous_run, run_alignment, run_cost
from layouts.box import Box
from layouts.modes import Strided

FILL_US = 1.5  # first tile's way through an empty pipeline
TENSOR_EFFICIENCY = 0.86  # of the peak at the sustained clock
SMEM_BYTES_PER_CLOCK = 128.0
STORED_ROW_CLOCKS = 2.0
SHALLOW = 0.02  # share of the time that each stage of only 16 k costs
PADDED = 0.1  # share of the padded outputs that shows in the time though waves are whole: power, L2
KEPT, KEPT_BESIDE_LINES = 0.97, 1.01  # what stays helps more than copies say, if the other's rows are no whole lines
SHORT_TURNS = 1.1  # warpgroups that take turns at products too short to overlap
# Blocks far apart in D write slower than neighbours do; keeping to one line brings more than the copies that it saves.
BY_LINE = {"": 1.0, "each": 1.15, "own": 0.83}
READ_LINES, WRITTEN_LINES = 0.1, 0.3  # share in which lines that are read and written in parts show
LOOSE = 0.005  # share of the time that one more tiled dimension costs: shorter walks through memory
# Turns of the warpgroups, and the way from one tile to the next when nothing else holds it up.
TURN_CLOCKS, CHAIN_CLOCKS = 300.0, 1100.0
TRADE_CLOCKS = 2000.0  # half a tile to another block, at 19 bytes a clock
TRADERS = 1.1  # what keeping step costs blocks of one tile, whichever operand they share (measured)
LATE = 0.3  # share in which a slow store shows where every block has one tile: nothing hides it


@dataclass(frozen=True, slots=True)
class Traffic:
    """What boxes make of the tensors' way through device memory.

    Attributes:
        dram: Microseconds that it takes.
        late: Microseconds by which slow stores come late where blocks have one tile.
        stored: Clocks of the copy engine for a tile of D, and of C.
        loose: Factor for the dimensions that tiles have.
    """

    dram: float
    late: float
    stored: float
    loose: float


@dataclass(frozen=True, slots=True)
class Loop:
    """What a k-tile takes of a multiprocessor.

    Attributes:
        per_k: Clocks of the slowest unit.
        slowest: Its name.
        engine: Clocks of the copy engine.
        again: Clocks that an operand which stays for a line of tiles adds to each of them.
    """

    per_k: float
    slowest: str
    engine: float
    again: float


class Sm90Model(StagingModel):
    """Estimates for one plan; what tiles have in common is worked out once."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan)
        self.facts = facts
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
        self, tensor: int, first: Side, second: Box, modes: tuple[Strided, ...], bulk: bool = True, row: int = 0
    ) -> float:
        """Relative cost of a tensor's bytes under its boxes, moved in rows of `row` bytes if that is not 0."""
        key = (tensor, first.box, second, row)
        if key not in self.costs:
            strides = tuple(s.strides[tensor] for s in (*first.modes, *modes))
            size = self.item(tensor)
            box = joined(first.box, second)
            run = contiguous_run(box, strides, size)
            start = run_alignment(box, strides, run)
            if row and row < run and (row % 32 or row < 64):
                # Sectors that rows cut are made whole in L2 by the next row, at a price.
                run = row // 32 * 32 if row >= 32 else row
            self.costs[key] = run_cost(run, store=tensor == D, bulk=bulk, start_alignment=start)
        return self.costs[key]

    def traffic(self, shape: Sm90Shape, staging: Staging) -> Traffic:
        """What a tile's boxes make of the tensors' way through device memory."""
        part = shape.part or shape.m
        row = staging.dense.row * self.size_d if staging.bulk else 0
        key = (shape.m.box, shape.n.box, shape.k, part.box, shape.trade, staging.bulk, row)
        if key not in self.traffics:
            self.traffics[key] = self._traffic(shape, staging.bulk, row)
        return self.traffics[key]

    def _traffic(self, shape: Sm90Shape, bulk: bool, row: int) -> Traffic:
        facts, k, of = self.facts, self.plan.k, self.bytes
        cost_a = self.cost(A, shape.m, shape.k, k)
        cost_b = self.cost(B, shape.n, shape.k, k)
        m_stored, n_stored = shape.m, shape.n.box
        if shape.trade and (traded := self.traded(shape)) is not None:
            m_stored, n_stored, row = replace(shape.m, box=traded.m), traded.n, 2 * row
        cost_d = self.cost(D, m_stored, n_stored, shape.n.modes, bulk, row)
        cost_a *= 1.0 + READ_LINES * (self.lines(A, shape.part or shape.m, shape.k, k) - 1.0)
        cost_b *= 1.0 + READ_LINES * (self.lines(B, shape.n, shape.k, k) - 1.0)
        cost_d *= 1.0 + WRITTEN_LINES * (self.lines(D, shape.m, shape.n.box, shape.n.modes) - 1.0)
        added = 0.0
        if C in of:
            cost_c = self.cost(C, shape.m, shape.n.box, shape.n.modes, bulk, row)
            added = of[C] * cost_c * (1.0 + READ_LINES * (self.lines(C, shape.m, shape.n.box, shape.n.modes) - 1.0))
        late = LATE * of[D] * (cost_d - 1.0) / facts.dram_tbps * 1e-6
        dram = (of[A] * cost_a + of[B] * cost_b + of[D] * cost_d + added) / facts.dram_tbps * 1e-6
        stored = shape.m.box.size * shape.n.box.size * self.size_d / row * STORED_ROW_CLOCKS if row else 0.0
        stored *= 2 if C in of else 1  # rows of C come in as D's go out
        loose = 1.0 + LOOSE * sum(d.box > 1 for d in (*shape.m.box.dims, *shape.n.box.dims))
        return Traffic(dram, late, stored, loose)

    def loop(self, shape: Sm90Shape, tiles: int) -> Loop:
        """What a k-tile takes, by the unit that takes longest."""
        facts = self.facts
        rows, bn, bk = shape.block
        math_clocks = rows * bn * bk / facts.tensor_lanes[self.plan.contraction.dtype] / TENSOR_EFFICIENCY
        # Shared memory serves wgmma's reads (all of B for every 64 rows) and takes what the copies bring.
        part = shape.part or shape.m
        read, passed = (rows / 64) * (64 + bn), 0
        # A box that several blocks need is read once, by all of them in parts.
        copied = engine = again = 0.0
        for name, tensor, side, shared, reads in (
            ("a", A, part, shape.cluster[1], shape.n.box.tiles), ("b", B, shape.n, shape.cluster[0], shape.m.box.tiles)
        ):  # fmt: skip
            copy, moved = self.clocks(tensor, side, self.box_of(tensor, shape), shared, reads)
            if name != shape.resident:
                copied, engine, passed = copied + copy, engine + moved, passed + side.rows
            elif shape.line == "each":  # it comes once a line, or a block's share of it
                again = shape.k.tiles * copy / min(reads, tiles / facts.sm_count)
        smem_clocks = (read * bk + passed * shape.k.size) * self.size / SMEM_BYTES_PER_CLOCK / TENSOR_EFFICIENCY
        limits = {"tensor cores": math_clocks, "shared memory": smem_clocks, "L2": copied}
        slowest = max(limits, key=lambda name: limits[name])
        per_k = limits[slowest] * (TRADERS if shape.trade else CLUSTERS[shape.cluster])
        return Loop(per_k, slowest, engine, again)

    def estimate(self, shape: Sm90Shape) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        facts, plan = self.facts, self.plan
        rows, bn, bk = shape.block
        staging = self.staging(shape)
        traffic = self.traffic(shape, staging)
        k_tiles, parts = shape.k.tiles, shape.parts
        # Blocks that no tile is left for run along with their cluster.
        wide = math.prod(shape.cluster)
        tiles = cluster_tiles(shape.m.box.tiles, shape.n.box.tiles, shape.cluster) * plan.extent_l * wide
        at_once = facts.sm_count // wide * wide
        if shape.line == "own":  # as many for each line
            lines = (shape.m if shape.resident == "a" else shape.n).box.tiles
            at_once = facts.sm_count // lines * lines
        clocks_us = facts.clock_ghz * 1e3
        loop, kept = self.loop(shape, tiles), self.kept(shape)
        padded = 1.0 + PADDED * (tiles * rows * parts * bn / (plan.extent_m * plan.extent_n * plan.extent_l) - 1.0)
        best: Estimate | None = None
        for split in splits(k_tiles, tiles, facts.sm_count):
            blocks = tiles * split
            waves = math.ceil(blocks / at_once)
            steps = -(-k_tiles // split) * parts
            tail = staging.clocks if split == 1 else rows * bn / 32.0
            looped = steps * loop.per_k
            # Taking turns, and a warpgroup's way from one product to the next when nothing else holds it up.
            work = (
                max(looped + TURN_CLOCKS, (looped + tail + CHAIN_CLOCKS) / 2)
                if shape.roles.ping_pong
                else looped + tail + 500 * parts
            )
            work += (150.0 if wide > 1 else 0.0) + (TRADE_CLOCKS if shape.trade else 0.0)
            work += loop.again
            # One engine moves the rows of loads and of stores.
            busy = waves * max(work, steps * loop.engine + traffic.stored) / clocks_us
            reduce = LAUNCH_US + 2.0 * blocks * rows * bn * 4 / facts.l2_tbps * 1e-6 if split > 1 else 0.0
            memory = traffic.dram / min(1.0, blocks / facts.sm_count)
            us = LAUNCH_US + FILL_US + max(memory, busy) + 0.2 * min(memory, busy) + reduce
            us += traffic.late if waves == 1 and split == 1 and parts == 1 else 0.0
            us *= 1.0 + (SHALLOW * (steps // parts) if bk == 16 else 0.0)
            us *= padded
            us *= kept
            us *= SHORT_TURNS if shape.roles.ping_pong and k_tiles * bk <= 32 and shape.line != "each" else 1.0
            us *= traffic.loose
            if best is None or us < best.us:
                best = Estimate(us, self.bound(memory, busy, tail, looped, loop.slowest), split)
        assert best is not None
        return best

    def kept(self, shape: Sm90Shape) -> float:
        """What an operand that stays brings beyond the copies that it saves."""
        if shape.line or not shape.resident:
            return BY_LINE[shape.line]
        tensor, side = (B, shape.n) if shape.resident == "a" else (A, shape.m)
        modes = (*side.modes, *self.plan.k)
        whole = any(s.strides[tensor] == self.size and s.extent * self.size % LINE == 0 for s in modes)
        return KEPT_BESIDE_LINES if whole else KEPT

    @staticmethod
    def bound(memory: float, busy: float, tail: float, loop: float, slowest: str) -> str:
        """What takes longest, in words."""
        if memory >= busy:
            return "DRAM"
        return "stores" if tail > loop else slowest


def splits(k_tiles: int, tiles: int, sm_count: int) -> list[int]:
    """How many slices of K are tried."""
    if tiles * 2 > sm_count or k_tiles < 8:
        return [1]
    out = {1}
    for target in (sm_count // 2, sm_count, 2 * sm_count):
        split = max(1, min(target // tiles, k_tiles // 4))
        out.add(-(-k_tiles // -(-k_tiles // split)))
    return sorted(out)
