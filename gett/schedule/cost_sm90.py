"""The cost model of the Hopper family: persistent blocks, one a multiprocessor, fed by tensor maps.

Rates are the architecture's; what a run of bytes costs comes from the measurements in `layouts.access` (bulk).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gett.plan import A, B, C, D, GemmPlan
from gett.schedule.archs import ArchFacts
from gett.schedule.cluster import CLUSTERS, cluster_tiles
from gett.schedule.cost import LAUNCH_US, Estimate, joined
from gett.schedule.cost_copies import LINE, CopyModel
from gett.schedule.d_box import SIZE, Dim, Rows, box_stage
from gett.schedule.records import StageSteps
from gett.schedule.sm90_shape import Side, Sm90Shape
from gett.schedule.staging import pairs, stage_steps
from gett.schedule.trade import Traded, trade
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
LINES = 1.15  # blocks far apart in D write slower than neighbours do
READ_LINES, WRITTEN_LINES = 0.1, 0.3  # share in which lines that are read and written in parts show
LOOSE = 0.005  # share of the time that one more tiled dimension costs: shorter walks through memory
# Turns of the warpgroups, and the way from one tile to the next when nothing else holds it up.
TURN_CLOCKS, CHAIN_CLOCKS = 300.0, 1100.0
VECTOR_SLOTS, ELEMENT_SLOTS = 80.0, 34.0  # instructions of a warp for one store, look-ups included
TRADE_CLOCKS = 2000.0  # half a tile to another block, at 19 bytes a clock
TRADERS = 1.1  # what keeping step costs blocks of one tile, whichever operand they share (measured)
LATE = 0.3  # share in which a slow store shows where every block has one tile: nothing hides it
ADDED_SLOTS = 8.0  # and for each element of C that is added there (counted, not measured)


@dataclass(frozen=True, slots=True)
class Staging:
    """The two ways of staging a tile of D, what each takes, and which is the cheaper."""

    dense: StageSteps
    padded: StageSteps
    bulk: bool
    clocks: float


class Sm90Model(CopyModel):
    """Estimates for one plan; run costs and stagings are worked out once per pair of boxes."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan)
        self.facts = facts
        self.costs: dict[tuple[int, Box, Box, int], float] = {}
        self.stagings: dict[tuple[Side, Side, int, bool, int, bool], Staging] = {}

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

    def staging(self, shape: Sm90Shape) -> Staging:
        """How a tile of D is staged and what that takes of a multiprocessor, in clocks."""
        key = (shape.m, shape.n, shape.roles.m_blocks, shape.roles.ping_pong, shape.parts, shape.added)
        if key in self.stagings:
            return self.stagings[key]
        order = _order(shape.m, shape.n)
        has_c = self.plan.contraction.c is not None
        by_map = has_c and shape.added and self.follows(shape)
        size = 4 if has_c else self.size_d  # of what is staged where D leaves as vectors
        run = _lead(shape, order) * self.size_d
        vector = max(v for v in (1, 2, 4, 8) if run % (v * self.size_d) == 0 and v * self.size_d <= 16)
        dense = stage_steps(shape.m.box, shape.n.box, order, self.size_d if by_map else size, vector, False)
        padded = stage_steps(shape.m.box, shape.n.box, order, size, vector, True)
        elements = shape.m.box.size * shape.n.box.size
        boxes_n = tuple(d.box for d in shape.n.box.dims)

        def put(steps: StageSteps) -> float:
            paired = pairs(boxes_n, steps.n)
            stores = elements / 32 / (2 if paired else 1) * steps.conflicts
            lead = next((d for d in shape.n.box.dims if d.box > 1), None)
            slots = elements / 32 * (2.0 if lead is not None and lead.box % 8 == 0 else 9.0)
            # Rows of the padding leave warps idle while the others write.
            idle = shape.block[0] * shape.parts / shape.m.box.size
            return (max(stores, slots / 4) + 0.3 * min(stores, slots / 4)) * idle

        slots = (VECTOR_SLOTS if vector > 1 else ELEMENT_SLOTS) + (ADDED_SLOTS * vector if has_c else 0.0)
        vectors = elements / vector / 32 * (slots / 4 + 4 * vector * self.size_d / 16)
        bulk_clocks, plain_clocks = 250 + put(dense), 250 + put(padded) + vectors
        if (by_map or not has_c) and self.size_d == SIZE:
            boxed = box_stage(*self.dims(shape))
            if boxed is not None and boxed[1] * shape.parts < bulk_clocks:
                dense, bulk_clocks, run = boxed[0], boxed[1] * shape.parts, 16
        if by_map:
            bulk_clocks *= 2  # C is read as D is written
        bulk = run % 16 == 0 and (by_map or not has_c) and bulk_clocks <= plain_clocks
        made = Staging(dense, padded, bulk, bulk_clocks if bulk else plain_clocks)
        self.stagings[key] = made
        return made

    def traded(self, shape: Sm90Shape) -> Traded | None:
        """How two blocks may trade halves of the tile, see `trade`."""
        staging = self.staging(shape)
        return trade(shape.m.box, shape.n.box, staging.dense, self.size_d, len(self.plan.l)) if staging.bulk else None

    def dims(self, shape: Sm90Shape) -> tuple[tuple[Dim, ...], Rows, tuple[int, int]]:
        """What `box_stage` asks of a tile."""
        found = []
        for group, side in (("m", shape.m), ("n", shape.n)):
            prefix = 1
            for i, d in enumerate(side.box.dims):
                if d.box > 1:
                    mode = side.modes[d.modes[0]]
                    found.append(Dim(group, i, d.box, mode.extent, mode.strides[D] // self.size_d, prefix))
                prefix *= d.box
            single = [side.modes[m] for d in side.box.dims if d.box == 1 for m in d.modes]
            if any(mode.extent > 1 and mode.strides[D] % 16 for mode in single):
                return (), Rows(1, 1, 1, 1, 0, 0), (0, 0)  # no tensor map steps along them
        found.sort(key=lambda d: d.step)
        chunk = 0
        if all(s.strides[A] != self.size for s in self.plan.k):
            unit = next((i for i, s in enumerate(shape.m.modes) if s.strides[A] == self.size), None)
            box = next((d.box for d in shape.m.box.dims if unit in d.modes), 1)
            chunk = next((s for s in (128, 64, 32, 16) if box * self.size % s == 0), 0) // self.size
        groups = 1 if shape.roles.ping_pong else shape.roles.consumers
        if shape.m.run:
            chunk = shape.m.chunk
        box_m = shape.m.box.size // shape.parts
        rows = Rows(shape.roles.m_blocks, groups, box_m, shape.n.box.size, chunk, shape.m.run)
        return tuple(found), rows, (len(shape.m.box.dims), len(shape.n.box.dims))

    def estimate(self, shape: Sm90Shape) -> Estimate:
        """Expected microseconds, what bounds them, and the best split of K."""
        facts, plan = self.facts, self.plan
        _, bn, bk = shape.block
        staging = self.staging(shape)
        cost_a = self.cost(A, shape.m, shape.k, plan.k)
        cost_b = self.cost(B, shape.n, shape.k, plan.k)
        row = staging.dense.row * self.size_d if staging.bulk else 0
        m_stored, n_stored = shape.m, shape.n.box
        if shape.trade and (traded := self.traded(shape)) is not None:
            m_stored, n_stored, row = replace(shape.m, box=traded.m), traded.n, 2 * row
        cost_d = self.cost(D, m_stored, n_stored, shape.n.modes, staging.bulk, row)
        cost_a *= 1.0 + READ_LINES * (self.lines(A, shape.part or shape.m, shape.k, plan.k) - 1.0)
        cost_b *= 1.0 + READ_LINES * (self.lines(B, shape.n, shape.k, plan.k) - 1.0)
        cost_d *= 1.0 + WRITTEN_LINES * (self.lines(D, shape.m, shape.n.box, shape.n.modes) - 1.0)
        of = self.bytes
        added = 0.0
        if C in of:
            cost_c = self.cost(C, shape.m, shape.n.box, shape.n.modes, staging.bulk, row)
            added = of[C] * cost_c * (1.0 + READ_LINES * (self.lines(C, shape.m, shape.n.box, shape.n.modes) - 1.0))
        late = LATE * of[D] * (cost_d - 1.0) / facts.dram_tbps * 1e-6
        dram = (of[A] * cost_a + of[B] * cost_b + of[D] * cost_d + added) / facts.dram_tbps * 1e-6
        k_tiles = shape.k.tiles
        # Blocks that no tile is left for run along with their cluster.
        wide = math.prod(shape.cluster)
        tiles = cluster_tiles(shape.m.box.tiles, shape.n.box.tiles, shape.cluster) * plan.extent_l * wide
        at_once = facts.sm_count // wide * wide
        clocks_us = facts.clock_ghz * 1e3
        rows = shape.roles.rows
        math_clocks = rows * bn * bk / facts.tensor_lanes[plan.contraction.dtype] / TENSOR_EFFICIENCY
        # Shared memory serves wgmma's reads (all of B for every 64 rows) and takes what the copies bring.
        part = shape.part or shape.m
        read = (rows / 64) * (64 + bn)
        filled = sum(s.rows for name, s in (("a", part), ("b", shape.n)) if name != shape.resident)
        passed = read * bk + filled * shape.k.size
        smem_clocks = passed * self.size / SMEM_BYTES_PER_CLOCK / TENSOR_EFFICIENCY
        # A box that several blocks need is read once, by all of them in parts.
        both = (("a", A, part, shape.cluster[1]), ("b", B, shape.n, shape.cluster[0]))
        loads = [(t, s, c) for name, t, s, c in both if name != shape.resident]
        l2_clocks = sum(self.copy_clocks(t, s, self.box_of(t, shape), c) for t, s, c in loads)
        # What stays for a line of tiles comes once a line, or a block's share of it.
        again = 0.0
        if shape.lines:
            name, t, s, c = next(x for x in both if x[0] == shape.resident)
            line = (shape.n if name == "a" else shape.m).box.tiles
            again = k_tiles * self.copy_clocks(t, s, self.box_of(t, shape), c) / min(line, tiles / facts.sm_count)
        # One engine moves the rows of loads and of stores.
        others = {A: shape.n.box.tiles, B: shape.m.box.tiles}
        row_clocks = sum(self.engine_clocks(t, s, self.box_of(t, shape), c, others[t]) for t, s, c in loads)
        stored = shape.m.box.size * shape.n.box.size * self.size_d / row * STORED_ROW_CLOCKS if row else 0.0
        stored *= 2 if C in of else 1  # rows of C come in as D's go out
        limits = {
            "tensor cores": math_clocks, "shared memory": smem_clocks, "L2": l2_clocks,
        }  # fmt: skip
        slowest = max(limits, key=lambda name: limits[name])
        per_k = limits[slowest] * (TRADERS if shape.trade else CLUSTERS[shape.cluster])
        outputs = plan.extent_m * plan.extent_n * plan.extent_l
        best: Estimate | None = None
        for split in _splits(k_tiles, tiles, facts.sm_count):
            blocks = tiles * split
            waves = math.ceil(blocks / at_once)
            steps = -(-k_tiles // split) * shape.parts
            tail = staging.clocks if split == 1 else rows * bn / 32.0
            loop = steps * per_k
            # Taking turns, and a warpgroup's way from one product to the next when nothing else holds it up.
            work = (
                max(loop + TURN_CLOCKS, (loop + tail + CHAIN_CLOCKS) / 2)
                if shape.roles.ping_pong
                else loop + tail + 500 * shape.parts
            )
            work += (150.0 if wide > 1 else 0.0) + (TRADE_CLOCKS if shape.trade else 0.0)
            work += again
            busy = waves * max(work, steps * row_clocks + stored) / clocks_us
            reduce = LAUNCH_US + 2.0 * blocks * rows * bn * 4 / facts.l2_tbps * 1e-6 if split > 1 else 0.0
            memory = dram / min(1.0, blocks / facts.sm_count)
            us = LAUNCH_US + FILL_US + max(memory, busy) + 0.2 * min(memory, busy) + reduce
            us += late if waves == 1 and split == 1 and shape.parts == 1 else 0.0
            us *= 1.0 + (SHALLOW * (steps // shape.parts) if bk == 16 else 0.0)
            us *= 1.0 + PADDED * (tiles * rows * shape.parts * bn / outputs - 1.0)
            us *= self.kept(shape)
            us *= SHORT_TURNS if shape.roles.ping_pong and k_tiles * bk <= 32 and not shape.lines else 1.0
            us *= 1.0 + LOOSE * sum(d.box > 1 for d in (*shape.m.box.dims, *shape.n.box.dims))
            if best is None or us < best.us:
                best = Estimate(us, self.bound(memory, busy, tail, loop, slowest), split)
        assert best is not None
        return best

    def kept(self, shape: Sm90Shape) -> float:
        """What an operand that stays brings beyond the copies that it saves."""
        if shape.lines or not shape.resident:
            return LINES if shape.lines else 1.0
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


def _order(m: Side, n: Side) -> list[tuple[str, int]]:
    """Tiled dimensions by D's stride."""
    dims = [
        (min(abs(side.modes[x].strides[D]) for x in d.modes), group, i)
        for group, side in (("m", m), ("n", n))
        for i, d in enumerate(side.box.dims)
        if d.box > 1
    ]
    return [(g, i) for _, g, i in sorted(dims)]


def _lead(shape: Sm90Shape, order: list[tuple[str, int]]) -> int:
    """Elements of D's run along its unit-stride mode."""
    if not order:
        return 1
    group, i = order[0]
    side = shape.m if group == "m" else shape.n
    dim = side.box.dims[i]
    mode = side.modes[dim.modes[0]]
    if len(dim.modes) > 1 or mode.strides[D] not in (1, 2, 4, 8, 16):
        return 1
    return math.gcd(dim.box, mode.extent)


def _splits(k_tiles: int, tiles: int, sm_count: int) -> list[int]:
    if tiles * 2 > sm_count or k_tiles < 8:
        return [1]
    out = {1}
    for target in (sm_count // 2, sm_count, 2 * sm_count):
        split = max(1, min(target // tiles, k_tiles // 4))
        out.add(-(-k_tiles // -(-k_tiles // split)))
    return sorted(out)
