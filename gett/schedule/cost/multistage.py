"""The cost model of the multistage main loops: how long a schedule should take, and what limits it.

One k-tile of a block costs clocks of several units (arithmetic, loads and stores of shared memory, instruction issue,
L2), which overlap in part, and at least the latency of its loads. Blocks that are resident together share a
multiprocessor; waves, prologue and epilogue add up; device memory bounds the whole. Rates, clocks and shares are those
of the device's record (`gett.hw.device`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import ROUNDED, Estimate, even_splits, fastest, traffic_cost
from gett.schedule.mainloops.multistage import multistage_registers, multistage_smem
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import OneTile
from gett.schedule.spec.tiling import Tiling
from layouts.box import Box
from layouts.modes import Strided
from layouts.rates import SECTOR


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
        self.plan, self.facts, self.device = plan, facts, nearest(facts)
        model = self.device.multistage
        self.rates, self.tile, self.factors = model.rates, model.tile, model.factors
        c = plan.contraction
        self.type, self.tensor_cores = data_type(c.dtype), data_type(c.dtype).multiplied(c.precision) is not None
        self.size = itemsize(c.dtype)
        self.read_a = _volume(plan.l + plan.m + plan.k, A) * plan.size(A)
        self.read_b = _volume(plan.l + plan.n + plan.k, B) * plan.size(B)
        outputs = plan.l + plan.m + plan.n
        self.stored_d = _volume(outputs, D) * plan.size(D)
        self.read_c = _volume(outputs, C) * itemsize(c.c.dtype) if c.c is not None else 0
        self.distinct = self.read_a + self.read_b + self.stored_d + self.read_c
        self.copy_bytes = dict(self.rates.copy_bytes_per_clock)
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
            factors = (1, 2, 4, 8, 16) if s.multistage.tensor_cores else (1, 2, 4, 6, 8, 16)
            wishes = (f * facts.sm_count // 2 // tiles for f in factors)
            splits = even_splits((min(wish, t.k.tiles // 2) for wish in wishes), t.k.tiles)
        # Slices that are meant to run at once take twice the time where one block fewer is resident.
        some, sure = self._resident_blocks(s, self.factors.registers), self._resident_blocks(s, 1.0)
        per_sm = {k: sure if k > 1 and not s.multistage.tensor_cores else some for k in splits}
        if _fills_registers(s):
            per_sm = dict.fromkeys(splits, sure)
        found = fastest(self._split(s, k, k_tile, per_sm[k], tiles, read, written) for k in splits)
        launch_us = self.device.launches.launch_us
        of_kind: float = getattr(self.factors, self.factor_name(s.multistage))
        return replace(found, us=launch_us + of_kind * (found.us * self._factor(s) - launch_us))

    def _factor(self, s: Schedule) -> float:
        """Factor on the time that the units, memory and the launch make, but for that of the kind of kernel."""
        t, loop, factors = s.tiling, s.multistage, self.factors
        factor = factors.scattered if self._scatters(t) else 1.0
        if loop.tensor_cores and self.size == 2 and t.k.tiles <= 2 and _single_elements(s):
            factor *= factors.short_products
        if not loop.tensor_cores and t.l is not None:
            factor *= factors.multiply_add_batches
        return factor

    @staticmethod
    def factor_name(loop: Multistage) -> str:
        """The field of `MultistageFactors` that stands for a kind of kernel."""
        if loop.a.vector == loop.b.vector == 1:
            return "elements"
        return "tensor_cores" if loop.tensor_cores else "multiply_adds"

    def least_us(self, shape: tuple[int, int, int], warps: int, threads: int) -> float:
        """A bound of the estimates of tiles of a shape, however boxes are cut: padding, products and copy speed.

        Blocks have so many threads, and `warps` share the tile of one batch.
        """
        plan, facts, (bm, bn, bk) = self.plan, self.facts, shape
        tiles = -(-plan.extent_m // bm) * -(-plan.extent_n // bn) * plan.extent_l
        k_tiles = -(-plan.extent_k // bk)
        outputs = plan.extent_m * plan.extent_n * plan.extent_l
        clocks = tiles * k_tiles * self._math_clocks(shape, 1, warps, threads)
        clocks += outputs / 32 * self.tile.staged_clocks
        main = clocks / facts.sm_count / (facts.clock_ghz * 1e3)
        least = self.distinct / self.device.memory.copy_tbps * 1e-6
        factors = self.factors
        main = max(main, main + factors.copied * (least - main))
        of_kind = min(factors.tensor_cores if self.tensor_cores else factors.multiply_adds, factors.elements)
        launch_us, short = self.device.launches.launch_us, factors.short_products if k_tiles <= 2 else 1.0
        return (launch_us + of_kind * ((launch_us + main) * short - launch_us)) * ROUNDED

    def _math_clocks(self, shape: tuple[int, int, int], batches: int, warps: int, threads: int) -> float:
        """Clocks of a k-tile's multiply-adds, however few its warps."""
        facts, rates, (bm, bn, bk) = self.facts, self.rates, shape
        products = bm * bn * bk * batches * self.plan.contraction.real_products
        few = min(1.0, threads / 32 / 4)  # schedulers that have a warp
        if self.tensor_cores:
            tensor = self.type.tensor
            assert tensor is not None
            # float64 has no faster instruction than mma.sync; the rates of all others are those of wgmma.
            share = rates.tensor_share * facts.mma_sync_share if tensor.wgmma else rates.float64_share
            return products / (facts.tensor_lanes[tensor.name] * share) / few
        outputs = bm * bn // warps * (2 if self.type.real_products > 1 else 1)
        rate = next(share for least, share in rates.simt_shares if outputs >= least)
        return products / (facts.fma_lanes[self.type.name] * rate) / few

    def _scatters(self, t: Tiling) -> bool:
        """Whether tiles of one batch touch more sectors, for single elements of them, than L2 holds."""
        if t.l is not None:
            return False
        touched = 0
        for tensor, groups, reads in (
            (A, self.plan.m + self.plan.k, t.n.tiles),
            (B, self.plan.n + self.plan.k, t.m.tiles),
            (D, self.plan.m + self.plan.n, 1),
        ):
            steps = [abs(s.strides[tensor]) for s in groups if s.strides[tensor]]
            near = [s for s in self.plan.l if 0 < abs(s.strides[tensor]) < min(steps, default=0)]
            if near:
                touched += _volume(groups, tensor) * reads * SECTOR
        return touched > self.facts.l2_bytes

    def _traffic(self, tensor: int, modes: tuple[Strided, ...], box: Box, t: Tiling) -> float:
        """Relative cost of a tensor's bytes, worked out once for boxes that many schedules share."""
        second = t.n if tensor == D else t.k
        key = (tensor, box, second, t.l)
        if key not in self.traffic:
            groups = [(box, modes), (second, self.plan.n if tensor == D else self.plan.k)]
            if t.l is not None:
                groups.append((t.l, self.plan.l))
            boxes = [(cut, [s.strides[tensor] for s in group]) for cut, group in groups]
            self.traffic[key] = traffic_cost(self.device.memory, boxes, self.plan.size(tensor), tensor == D)
        return self.traffic[key]

    def _split(
        self, s: Schedule, split: int, k_tile: _KTile, per_sm: int, tiles: int, read: float, written: float
    ) -> Estimate:
        """Time with K in `split` slices.

        `read` and `written` are bytes of A and B, and of D and C, as many as at copy speed would take as long.
        """
        t, facts, device = s.tiling, self.facts, self.device
        us = facts.clock_ghz * 1e3
        blocks, steps = tiles * split, -(-t.k.tiles // split)
        vector = 2 if split > 1 else s.epilogue.store.vector
        tail = t.m.size * t.n.size * t.batches / 32 * (self.tile.staged_clocks + 8 / vector)
        waves, left = divmod(blocks, facts.sm_count * per_sm)
        clocks = waves * (
            steps * max(per_sm * k_tile.busy * self._waits(s, per_sm), k_tile.latency)
            + k_tile.start / per_sm
            + per_sm * tail
        )
        if left:
            last = -(-left // facts.sm_count)
            start = k_tile.start - (0.0 if waves or s.multistage.tensor_cores else self.tile.launched_clocks)
            clocks += steps * max(last * k_tile.busy * self._waits(s, last), k_tile.latency) + start + last * tail
        if steps <= 2 and _single_elements(s):
            clocks *= 1.0 + self.tile.short_loop_warps / (per_sm * s.threads / 32)
        stored = written if split == 1 else 0
        memory = (read * self.tile.read_share + stored) / device.memory.copy_tbps * 1e-6
        memory /= min(1.0, blocks / facts.sm_count)
        main = ((clocks / us) ** 4 + memory**4) ** 0.25
        least = self.distinct / device.memory.copy_tbps * 1e-6
        if main < least:  # nothing is faster than a copy, but what would be is likely to be the faster of two
            main += self.factors.copied * (least - main)
        reduce = 0.0
        if split > 1:
            passes = device.launches.reduce_l2_passes * blocks * t.shape[0] * t.shape[1] * 4 / device.l2.read_tbps
            reduce = device.launches.launch_us + (passes + written / device.memory.copy_tbps) * 1e-6
        bound = "DRAM" if memory >= clocks / us else k_tile.bound
        if steps * max(k_tile.busy, k_tile.latency) < k_tile.start + tail or reduce > main:
            bound = "latency"
        return Estimate(device.launches.launch_us + main + reduce, bound, split)

    def _k_tile(self, s: Schedule, cost_a: float, cost_b: float) -> _KTile:
        t, loop, rates, tile = s.tiling, s.multistage, self.rates, self.tile
        math_clocks, fragments, products = self._arithmetic(s)
        moved = issued = stored = fetched = accesses = 0.0
        for tensor, loader, box, cost in ((A, loop.a, t.m, cost_a), (B, loop.b, t.n, cost_b)):
            elements, size = box.size * t.batches * t.k.size, self.plan.size(tensor)
            fetched += elements * size * cost
            accesses += elements / loader.vector
            if loader.through_registers:
                load = rates.register_stage_clocks / min(loader.vector, max(1, 4 // size))
                stored += elements / 32 * (load + rates.register_stage_clocks * loader.conflicts)
                issued += elements / loader.vector / 32 * 7
                issued += elements / 32 * 3
            else:
                moved += elements * size / self.copy_bytes[loader.vector * size] + elements * size / 128
                issued += elements / loader.vector / 32 * 8
        issued *= 1.3 if loop.k_table else 1.1 if t.k.ragged else 1.0
        issued += products / 2048 + fragments / 2
        l2 = fetched / self.device.l2.thread_bytes_per_clock
        loads = moved + stored + fragments
        units = {"arithmetic": math_clocks, "loads": loads, "issue": issued / rates.issue_per_clock, "L2": l2}
        busy = sum(u**rates.overlap for u in units.values()) ** (1 / rates.overlap)
        busy *= tile.k_table_factor if loop.k_table else 1.0
        chain = products / 2048 / (s.threads / 32) * tile.product_clocks + accesses / s.threads * tile.access_clocks
        latency = tile.sync_clocks + chain + (tile.load_latency_clocks + stored if stored else 0.0)
        if moved:
            latency = max(latency, tile.copy_latency_clocks / (loop.stages - 1))
        bound = "latency" if latency > busy else max(units, key=lambda name: units[name])
        return _KTile(busy, latency, tile.block_clocks + accesses / 32 * 5, bound)

    def _arithmetic(self, s: Schedule) -> tuple[float, float, int]:
        """Clocks of a k-tile's multiply-adds, those of reading its fragments, and how many products it has."""
        t, loop, rates = s.tiling, s.multistage, self.rates
        bm, bn, bk = t.shape
        wm, wn = loop.warps
        products = bm * bn * bk * t.batches * self.plan.contraction.real_products
        math_clocks = self._math_clocks(t.shape, t.batches, wm * wn, s.threads)
        if not loop.tensor_cores:
            return math_clocks, 0.0, products
        fragments = wm * wn * t.batches * (bm / wm + bn / wn) * bk * self.size / rates.smem_bytes_per_clock
        return math_clocks, fragments, products

    def _waits(self, s: Schedule, blocks: int) -> float:
        """Factor on the multiply-adds of so many blocks of a multiprocessor."""
        if s.multistage.tensor_cores:
            return 1.0
        return 1.0 + self.factors.few_warps / max(1.0, blocks * s.threads / 128) ** 2

    def _resident_blocks(self, s: Schedule, share: float) -> int:
        """Blocks that a multiprocessor holds at a time, where kernels take a share of the registers of the limits."""
        facts = self.facts
        registers = multistage_registers(s.tiling, s.multistage, self.size)
        each = -(-min(255, int(share * registers) + 1) // 8) * 8
        by_registers, by_smem = facts.regs_per_sm // (each * s.threads), facts.smem_per_sm // (s.smem.size + 1024)
        return max(1, min(by_smem, by_registers, facts.threads_per_sm // s.threads, facts.blocks_per_sm))


def unsplit(plan: GemmPlan, s: Schedule) -> Schedule:
    """The schedule without its split of K, as estimates take it."""
    loop = s.multistage
    smem = multistage_smem(plan, s.tiling, loop.a, loop.b, loop.k_table).plan(loop.stages, False)
    return replace(s, scheduler=OneTile(s.scheduler.group_m), smem=smem)


def _fills_registers(s: Schedule) -> bool:
    """Whether a kernel takes the registers of the limits: tensor cores on batches whose operands both pass through."""
    loop = s.multistage
    return loop.tensor_cores and s.tiling.l is not None and loop.a.through_registers and loop.b.through_registers


def _single_elements(s: Schedule) -> bool:
    """Whether both operands pass through registers, one of them element by element."""
    loaders = s.multistage.a, s.multistage.b
    return all(x.through_registers for x in loaders) and any(x.vector == 1 for x in loaders)


def _volume(modes: tuple[Strided, ...], tensor: int) -> int:
    return math.prod(s.extent for s in modes if s.strides[tensor])
