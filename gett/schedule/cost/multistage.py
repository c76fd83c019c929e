"""The cost model of the multistage main loops: how long a schedule should take, and what limits it.

One k-tile of a block costs clocks of several units (arithmetic, loads and stores of shared memory, instruction issue,
L2), which overlap in part, and at least the latency of its loads. Blocks that are resident together share a
multiprocessor; waves, prologue and epilogue add up; device memory bounds the whole. Constants marked "fitted" come of
some 1900 schedules of 19 random contractions, measured on an H200 in float16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import LAUNCH_US, Estimate, even_splits, fastest, joined, traffic_cost
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.multistage_needs import multistage_registers
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.tiling import Tiling
from layouts.box import Box
from layouts.modes import Strided

REDUCE_US = 3.4  # fitted: the second launch of split-K
REDUCE_L2_FACTOR = 5.9  # fitted: partial sums against L2's rate
REDUCE_TRANSPOSED_FACTOR = 1.09  # the same where D does not run along N
SYNC_CLOCKS = 68.0  # fitted: of a k-tile, whatever it holds
COPY_LATENCY_CLOCKS = 1450.0  # fitted: of a copy, spread over the stages in flight
LOAD_LATENCY_CLOCKS = 565.0  # fitted: of a load through registers, one k-tile in flight
SHORT_LOOP_WARPS = 20.0  # on one multiprocessor, that hide nothing: one or two k-tiles, single elements by registers
ACCESS_CLOCKS, PRODUCT_CLOCKS = 26.0, 12.0  # fitted: of a thread's accesses and a warp's products, one after the other
COPY_BYTES = {16: 103.0, 8: 62.0, 4: 21.0}  # fitted: bytes per clock of `cp.async` by its width
REGISTER_STAGE_CLOCKS = 2.4  # fitted: a warp's load, and its store of one element to shared memory
SMEM_BYTES = 98.0  # bytes per clock that fragments are read at
L2_BYTES = 62.0  # fitted: bytes per clock and multiprocessor of an H200, at its share of L2's rate ...
H200_L2 = 6.9 / (132 * 1.83)  # ... which is this many TB/s per multiprocessor and GHz
ISSUE_PER_CLOCK = 3.7  # fitted: instructions
TENSOR_SHARE = {"float16": 0.77, "bfloat16": 0.77, "tf32": 0.77, "float64": 0.9}  # of the rate of mma.sync, fitted
SIMT_SHARE = ((2048, 0.75), (1024, 0.6), (512, 0.45), (0, 0.3))  # of the rate, by a warp's outputs
OVERLAP = 2.3  # fitted: exponent of the norm in which the units' clocks add up
K_TABLE_FACTOR = 1.36  # fitted: a flattened K
BLOCK_CLOCKS = 5700.0  # fitted: fill and drain of a block's pipeline
READ_SHARE = 0.52  # of the copy-speed time of A and B; what is read again comes from L2
STAGED_CLOCKS = 5.2  # fitted: a warp's outputs on their way through shared memory
REGISTER_SHARE = 0.81  # fitted: of the registers that the limits reckon with


@dataclass(frozen=True, slots=True)
class _KTile:
    """Clocks of one block: a k-tile's share of the units, its least latency, and what comes before the loop."""

    busy: float
    latency: float
    start: float
    bound: str


class MultistageCost:
    """Estimates of the schedules of one plan on one GPU."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        self.plan, self.facts = plan, facts
        c = plan.contraction
        self.size, self.size_d = itemsize(c.dtype), itemsize(c.d.dtype)
        self.read_a = _volume(plan.l + plan.m + plan.k, A) * self.size
        self.read_b = _volume(plan.l + plan.n + plan.k, B) * self.size
        outputs = plan.l + plan.m + plan.n
        self.stored_d = _volume(outputs, D) * self.size_d
        self.read_c = _volume(outputs, C) * itemsize(c.c.dtype) if c.c is not None else 0
        self.traffic: dict[tuple[int, Box, Box, Box | None], float] = {}

    def estimate(self, s: Schedule) -> Estimate:
        """Expected time of a schedule without a split, at the best split of K."""
        t, facts = s.tiling, self.facts
        cost_a, cost_b = self._traffic(A, self.plan.m, t.m, t), self._traffic(B, self.plan.n, t.n, t)
        cost_d = self._traffic(D, self.plan.m, t.m, t)
        read = self.read_a * cost_a + self.read_b * cost_b
        written = self.stored_d * cost_d + self.read_c * cost_d
        k_tile = self._k_tile(s, cost_a, cost_b)
        tiles = t.tiles(self.plan.extent_l)
        splits = [1]
        if t.l is None and tiles < 2 * facts.sm_count and t.k.tiles >= 4:
            wishes = (f * facts.sm_count // 2 // tiles for f in (1, 2, 4, 8, 16))
            splits = even_splits((min(wish, t.k.tiles // 2) for wish in wishes), t.k.tiles)
        per_sm = self._resident_blocks(s)
        return fastest(self._split(s, split, k_tile, per_sm, tiles, read, written) for split in splits)

    def _traffic(self, tensor: int, modes: tuple[Strided, ...], box: Box, t: Tiling) -> float:
        """Relative cost of a tensor's bytes, worked out once for boxes that many schedules share."""
        second = t.n if tensor == D else t.k
        key = (tensor, box, second, t.l)
        if key not in self.traffic:
            modes, both = modes + (self.plan.n if tensor == D else self.plan.k), joined(box, second)
            if t.l is not None:
                modes, both = modes + self.plan.l, joined(both, t.l)
            size = self.size_d if tensor == D else self.size
            self.traffic[key] = traffic_cost(modes, both, tensor, size, tensor == D)
        return self.traffic[key]

    def _split(
        self, s: Schedule, split: int, k_tile: _KTile, per_sm: int, tiles: int, read: float, written: float
    ) -> Estimate:
        """Time with K in `split` slices.

        Args:
            s: The schedule.
            split: Slices.
            k_tile: Clocks of a k-tile.
            per_sm: Blocks that a multiprocessor holds at a time.
            tiles: Tiles of D.
            read: Bytes of A and B, as many as at copy speed would take as long.
            written: Bytes of D and C, likewise.
        """
        t, loop, facts = s.tiling, s.multistage, self.facts
        us = facts.clock_ghz * 1e3
        blocks, steps = tiles * split, -(-t.k.tiles // split)
        vector = 2 if split > 1 else s.epilogue.store.vector
        tail = t.m.size * t.n.size * t.batches / 32 * (STAGED_CLOCKS + 8 / vector)
        waves, left = divmod(blocks, facts.sm_count * per_sm)
        clocks = waves * (steps * max(per_sm * k_tile.busy, k_tile.latency) + k_tile.start / per_sm + per_sm * tail)
        if left:
            last = -(-left // facts.sm_count)
            clocks += steps * max(last * k_tile.busy, k_tile.latency) + k_tile.start + last * tail
        loaders = (loop.a, loop.b)
        if steps <= 2 and not any(isinstance(x, CpAsync) for x in loaders) and any(x.vector == 1 for x in loaders):
            clocks *= 1.0 + SHORT_LOOP_WARPS / (per_sm * s.threads / 32)
        memory = (read * READ_SHARE + (written if split == 1 else 0)) / facts.dram_tbps * 1e-6
        memory /= min(1.0, blocks / facts.sm_count)
        main = ((clocks / us) ** 4 + memory**4) ** 0.25
        reduce = 0.0
        if split > 1:
            partial = blocks * t.block[0] * t.block[1] * 4 * (1.0 if self._along_n(t.n) else REDUCE_TRANSPOSED_FACTOR)
            reduce = REDUCE_US + (REDUCE_L2_FACTOR * partial / facts.l2_tbps + written / facts.dram_tbps) * 1e-6
        bound = "DRAM" if memory >= clocks / us else k_tile.bound
        if steps * max(k_tile.busy, k_tile.latency) < k_tile.start + tail or reduce > main:
            bound = "latency"
        return Estimate(LAUNCH_US + main + reduce, bound, split)

    def _k_tile(self, s: Schedule, cost_a: float, cost_b: float) -> _KTile:
        t, loop, facts, size = s.tiling, s.multistage, self.facts, self.size
        math_clocks, fragments, products = self._arithmetic(s)
        moved = issued = stored = fetched = accesses = 0.0
        for loader, box, cost in ((loop.a, t.m, cost_a), (loop.b, t.n, cost_b)):
            elements = box.size * t.batches * t.k.size
            fetched += elements * size * cost
            accesses += elements / loader.vector
            if isinstance(loader, RegisterStaged):
                load = REGISTER_STAGE_CLOCKS / min(loader.vector, max(1, 4 // size))
                stored += elements / 32 * (load + REGISTER_STAGE_CLOCKS * loader.conflicts)
                issued += elements / loader.vector / 32 * 7
                issued += elements / 32 * 3
            else:
                moved += elements * size / COPY_BYTES[loader.vector * size] + elements * size / 128
                issued += elements / loader.vector / 32 * 8
        issued *= 1.3 if loop.k_table else 1.1 if t.k.ragged else 1.0
        issued += products / 2048 + fragments / 2
        l2 = fetched / (L2_BYTES * facts.l2_tbps / (facts.sm_count * facts.clock_ghz) / H200_L2)
        loads = moved + stored + fragments
        units = {"arithmetic": math_clocks, "loads": loads, "issue": issued / ISSUE_PER_CLOCK, "L2": l2}
        busy = sum(u**OVERLAP for u in units.values()) ** (1 / OVERLAP) * (K_TABLE_FACTOR if loop.k_table else 1.0)
        chain = products / 2048 / (s.threads / 32) * PRODUCT_CLOCKS + accesses / s.threads * ACCESS_CLOCKS
        latency = SYNC_CLOCKS + chain + (LOAD_LATENCY_CLOCKS + stored if stored else 0.0)
        if moved:
            latency = max(latency, COPY_LATENCY_CLOCKS / (loop.stages - 1))
        bound = "latency" if latency > busy else max(units, key=lambda name: units[name])
        return _KTile(busy, latency, BLOCK_CLOCKS + accesses / 32 * 5, bound)

    def _arithmetic(self, s: Schedule) -> tuple[float, float, int]:
        """Clocks of a k-tile's multiply-adds, those of reading its fragments, and how many products it has."""
        t, loop, facts, dtype = s.tiling, s.multistage, self.facts, self.plan.contraction.dtype
        bm, bn, bk = t.block
        wm, wn = loop.warps
        is_complex = dtype.startswith("complex")
        products = bm * bn * bk * t.batches * (4 if is_complex else 1)
        few = min(1.0, s.threads / 32 / 4)  # schedulers that have a warp
        if loop.tensor_cores:
            kind = "tf32" if dtype == "float32" else dtype
            share = 1.0 if kind == "float64" else facts.mma_sync_share
            fragments = wm * wn * t.batches * (bm / wm + bn / wn) * bk * self.size / SMEM_BYTES
            return products / (facts.tensor_lanes[kind] * share * TENSOR_SHARE[kind]) / few, fragments, products
        outputs = bm * bn // (wm * wn) * (2 if is_complex else 1)
        rate = next(share for least, share in SIMT_SHARE if outputs >= least)
        return products / (facts.fma_lanes[dtype] * rate) / few, 0.0, products

    def _along_n(self, box_n: Box) -> bool:
        """Whether neighbours in D are neighbours in the tile."""
        near = [abs(self.plan.n[d.modes[0]].strides[D]) for _, d in box_n.tiled[:1]]
        return near == [self.size_d]

    def _resident_blocks(self, s: Schedule) -> int:
        """Blocks that a multiprocessor holds at a time."""
        facts = self.facts
        registers = multistage_registers(s.tiling, s.multistage, self.size)
        each = -(-min(255, int(REGISTER_SHARE * registers) + 1) // 8) * 8
        by_registers, by_smem = facts.regs_per_sm // (each * s.threads), facts.smem_per_sm // (s.smem.size + 1024)
        return max(1, min(by_smem, by_registers, facts.threads_per_sm // s.threads, facts.blocks_per_sm))


def _volume(modes: tuple[Strided, ...], tensor: int) -> int:
    return math.prod(s.extent for s in modes if s.strides[tensor])
