"""The cost model of the multistage main loops: how long a schedule should take, and what limits it.

One k-tile of a block costs clocks of several units (arithmetic, loads and stores of shared memory, instruction issue,
L2), which overlap in part, and at least the latency of its loads. Blocks that are resident together share a
multiprocessor; waves, prologue and epilogue add up; device memory bounds the whole. Rates, clocks and shares are those
of the device's record (`gett.hw.device`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import PORT, ROUNDED, Estimate, even_splits, fastest
from gett.schedule.cost.padded_tile import reads_in_turn
from gett.schedule.cost.partial_lines import PartialLines, Walk
from gett.schedule.mainloops.multistage import FEW_K_TILES, loads_ahead, resident_blocks, warp_atom
from gett.schedule.mainloops.stream import has_small_matrix
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import PARTS, Schedule, Tiling
from gett.schedule.spec.vectors import Groups, tiled_dims
from layouts.access import alignment_of_boxes, run_of_boxes
from layouts.box import Box
from layouts.modes import volume
from layouts.rates import L2_LINE, SECTOR, run_cost


class KTile(NamedTuple):
    """Clocks of one block.

    Attributes:
        busy: A k-tile's share of the units.
        ahead: The same where fragments are loaded before their k-tile begins.
        latency: Least time from k-tile to k-tile.
        begin: What comes before the loop.
        bound: What bounds a k-tile.
    """

    busy: float
    ahead: float
    latency: float
    begin: float
    bound: str


class MultistageCost:
    """Estimates of the schedules of one plan on one GPU."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, *, tensor_cores: bool) -> None:
        self.plan, self.facts, self.device = plan, facts, nearest(facts)
        model = self.device.multistage
        self.rates, self.tile, self.factors = model.rates, model.tile, model.factors
        c = plan.contraction
        self.type, self.tensor_cores = data_type(c.dtype), tensor_cores
        self.atom = warp_atom(plan) if tensor_cores else None
        self.tensor = self.type.parts if tensor_cores else None
        self.doubles = self.tensor is not None and not self.tensor.wgmma
        self.overlap_ahead = self.rates.overlap_ahead if self.doubles else self.rates.overlap
        self.size = itemsize(c.dtype)
        self.extents = plan.extent_m, plan.extent_n, plan.extent_k, plan.extent_l
        outputs = plan.l + plan.m + plan.n
        self.stored_d = volume(outputs, D) * plan.size(D)
        self.read_c = volume(outputs, C) * itemsize(c.c.dtype) if c.c is not None else 0
        sides = ((A, plan.m), (B, plan.n))
        self.read = {t: volume(plan.l + side + plan.k, t) * plan.size(t) for t, side in sides}
        self.distinct = sum(self.read.values()) + self.stored_d + self.read_c
        self.partial_lines = PartialLines(plan, facts, self.read, self.distinct)
        self.clocks_of_us = facts.clock_ghz * 1e3
        self.share = self.device.streams.matrix_share if has_small_matrix(plan) else 1.0  # of a copy's rate
        self.traffic: dict[tuple[int, Box, Box, Box | None], tuple[float, int]] = {}
        self.reads: dict[tuple[object, ...], float] = {}

    def estimate(self, s: Schedule) -> Estimate:
        """Expected time of a schedule without a split, at the best split of K, or where stream-K divides tiles."""
        return fastest(self._ways(s))

    def whole(self, s: Schedule) -> Estimate:
        """The same without stream-K."""
        return fastest(x for x in self._ways(s) if not x.stream_k)

    def _ways(self, s: Schedule) -> list[Estimate]:
        """The times of all ways to divide the work among blocks."""
        t, facts = s.tiling, self.facts
        cost_d, _ = self._traffic(D, t)
        written = self.stored_d * cost_d + self.read_c * cost_d
        tiles = t.tiles(self.plan.extent_l)
        splits = [1]
        if t.l is None and tiles < 2 * facts.sm_count and t.k.tiles >= 4:
            factors = (1, 2, 4, 8, 16) if s.multistage.tensor_cores else (1, 2, 4, 6, 8, 16)
            wishes = (f * facts.sm_count // 2 // tiles for f in factors)
            splits = even_splits((min(wish, t.k.tiles // 2) for wish in wishes), t.k.tiles)
        per_sm = resident_blocks(self.plan, s, self.facts, self.factors.registers)  # launch bounds ask for as many
        k_tile = self._k_tile(s)
        found = [self._split(s, k, k_tile, per_sm, tiles, written) for k in splits]
        if self._divides(s, tiles):
            found.append(self._divided(s, k_tile, tiles, written))
        launches = self.device.launches
        of_kind: float = getattr(self.factors, self.factor_name(s.multistage))
        of_kind *= self.factors.own_copies if self._copies_alone(s) else 1.0

        def with_factors(x: Estimate) -> Estimate:
            us = of_kind * (x.us - launches.launch_us)
            return replace(x, us=launches.launch_us + max(us, tiles * x.split_k / launches.blocks_per_us))

        return [with_factors(x) for x in found]

    def at_once(self, s: Schedule) -> int:
        """Blocks of a schedule that surely run at once."""
        return self.facts.sm_count * resident_blocks(self.plan, s, self.facts)

    def partial_bytes(self, t: Tiling) -> int:
        """Bytes of the partial sums of a tile, padding included."""
        return t.shape[0] * t.shape[1] * self.type.accumulator_bytes

    def _divides(self, s: Schedule, tiles: int) -> bool:
        """Whether stream-K divides such tiles: some are left over, and the workspace holds their parts."""
        t, at_once = s.tiling, self.at_once(s)
        # Fewer tiles than blocks are better sliced: all of them would be divided.
        if t.l is not None or tiles <= at_once or tiles % at_once * t.k.tiles < at_once:
            return False
        return PARTS * at_once * self.partial_bytes(t) <= self.facts.workspace_limit

    def _copies_alone(self, s: Schedule) -> bool:
        """Whether a warp alone copies and multiplies a tile of one k-tile, or of one of several batches."""
        loop, t = s.multistage, s.tiling
        alone = loop.tensor_cores and loop.warps == (1, 1) and (t.k.tiles == 1 or bool(self.plan.batched))
        return alone and t.l is None and not (loop.a.through_registers or loop.b.through_registers)

    @staticmethod
    def factor_name(loop: Multistage) -> str:
        """The field of `MultistageFactors` that stands for a kind of kernel."""
        if loop.a.vector == loop.b.vector == 1:
            return "elements"
        return "tensor_cores" if loop.tensor_cores else "multiply_adds"

    def least_us(self, shape: tuple[int, int, int], grid: tuple[int, int], threads: int, batches: int) -> float:
        """A bound of the estimates of tiles of a shape, however boxes are cut and operands come.

        Blocks make `batches` batches and have so many threads; `grid` are the warps along M and N of one batch. Padding
        is multiplied, but not loaded. Of the two ways in which operands come, each unit is asked what the cheaper asks.
        """
        facts, tile, factors, size = self.facts, self.tile, self.factors, self.size
        (bm, bn, bk), (m, n, k, l) = shape, self.extents
        tiles_m, tiles_n, k_tiles = -(-m // bm), -(-n // bn), -(-k // bk)
        tiles, of_batch = tiles_m * tiles_n * l, 32 * grid[0] * grid[1]
        elements = k * (m / tiles_m + n / tiles_n) / k_tiles
        through = self.rates.register_stage_clocks * (1 / max(1, 4 // size) + 1) / 32
        loads = elements * min(through, size * self._copied_clocks(L2_LINE))
        fetched = elements * size * run_cost(self.device.memory, self.device.memory.long_run)
        arithmetic = self._arithmetic(shape, grid, threads, 1)
        overlap = self.overlap_ahead if k_tiles > FEW_K_TILES else self.rates.overlap
        busy = self._busy(self._units(*arithmetic, loads, elements * size / 64, fetched), overlap)
        threads = threads if batches == 1 else of_batch
        registers = 48 + bm * bn * max(size, 4) // 4 // of_batch
        registers = min(255, int(factors.registers * registers) + 1)
        most = facts.resident_blocks(registers, threads, 2 * (bm + bn) * bk * size)
        start = tile.block_clocks / most
        if batches > 1 or tiles < 2 * facts.sm_count:  # K may be in slices
            start = min(start, tile.block_clocks - tile.launched_clocks)
        else:
            start *= max(1, tiles // (facts.sm_count * most))
        tail = m * n * l / 32 * self._stored_clocks(max(2, 16 // self.plan.size(D))) / facts.sm_count
        clocks = k_tiles * busy * tiles / facts.sm_count * self._waits(most * threads) + start + tail
        launch_us = self.device.launches.launch_us
        us = launch_us + self._main(clocks, self._memory_us(self.stored_d + self.read_c))
        of_kind = min(factors.tensor_cores if self.tensor_cores else factors.multiply_adds, factors.elements)
        return (launch_us + of_kind * (us - launch_us)) * ROUNDED

    def _traffic(self, tensor: int, t: Tiling) -> tuple[float, int]:
        """Relative cost of a tensor's bytes, and bytes of a run, worked out once for boxes that schedules share."""
        plan, first, second = self.plan, t.n if tensor == B else t.m, t.n if tensor == D else t.k
        key = (tensor, first, second, t.l)
        if key not in self.traffic:
            groups = [(first, plan.n if tensor == B else plan.m), (second, plan.n if tensor == D else plan.k)]
            groups += [(t.l, plan.l)] if t.l is not None else []
            boxes = [(cut, [s.strides[tensor] for s in group]) for cut, group in groups]
            run = run_of_boxes(boxes, self.plan.size(tensor))
            start = alignment_of_boxes(boxes, run)
            least = 0.0
            if tensor == D and t.l is None and self._stays(t):
                least = SECTOR / run * self.device.memory.copy_tbps / self.device.l2.read_tbps  # L2 takes each piece
                run = self._together(run)
            cost = run_cost(self.device.memory, run, store=tensor == D, start_alignment=start, tile=True)
            self.traffic[key] = max(cost, least), run
        return self.traffic[key]

    def _again(self, t: Tiling, walk: Walk) -> float:
        """Bytes of lines that memory sends once more for each part of them that tiles read."""
        plan = self.plan
        return self.partial_lines.of_operands(("m", plan.m, t.m), ("n", plan.n, t.n), t.l, t.k, walk)

    def _stays(self, t: Tiling) -> bool:
        """Whether sectors of D that a tile cuts are in L2 until those of the next batches fill them."""
        return t.m.tiles * t.n.tiles <= self.facts.sm_count and 2 * self.stored_d < self.facts.l2_bytes

    def _together(self, run: int) -> int:
        """Bytes of D that tiles of neighbouring batches store at the same time, where these go on from a run's row."""
        row = run
        for x in sorted((*self.plan.l, *self.plan.m, *self.plan.n), key=lambda x: abs(x.strides[D])):
            if 0 < abs(x.strides[D]) <= row:
                row = max(row, abs(x.strides[D]) * x.extent)
        return row

    def _split(self, s: Schedule, split: int, k_tile: KTile, per_sm: int, tiles: int, written: float) -> Estimate:
        """Time with K in `split` slices.

        `written` are bytes of D and C, as many as at copy speed would take as long.
        """
        t, facts, device, (_, _, latency, begin, bound) = s.tiling, self.facts, self.device, k_tile
        blocks, steps = tiles * split, -(-t.k.tiles // split)
        busy = k_tile.ahead if loads_ahead(s, self.atom, steps) else k_tile.busy
        vector = 2 if split > 1 else s.epilogue.store.vector
        stored = self._stored_clocks(vector)
        tail = t.m.size * t.n.size * t.batches / 32 * (max(stored, self._read(t, vector)) if split == 1 else stored)
        waves, left = divmod(blocks, facts.sm_count * per_sm)

        def wave(count: int, fill: float) -> float:
            """Clocks of so many blocks a multiprocessor that run together."""
            work = steps * busy * self._waits(count * s.threads) + tail
            return max(count * work, steps * latency + tail) + fill / count

        clocks = waves * wave(per_sm, begin)
        if left:
            launched = 0.0 if waves or s.multistage.tensor_cores else self.tile.launched_clocks
            clocks += wave(-(-left // facts.sm_count), begin - launched)
        memory = self._memory_us(written if split == 1 else 0.0)
        of_batch, at_once = t.m.tiles * t.n.tiles * split, facts.sm_count * per_sm
        walk = Walk(steps, s.scheduler.group_m, t.n.tiles, of_batch, blocks, at_once)
        main = self._main(clocks, memory, self._again(t, walk))
        reduce = 0.0
        if split > 1:
            passes = device.launches.reduce_l2_passes * blocks * t.shape[0] * t.shape[1] * 4 / device.l2.read_tbps
            reduce = device.launches.launch_us + (passes + written / device.memory.copy_tbps) * 1e-6
        bound = "DRAM" if memory >= clocks / self.clocks_of_us else bound
        if steps * max(busy, latency) < begin + tail or reduce > main:
            bound = "latency"
        return Estimate(device.launches.launch_us + main + reduce, bound, split)

    def _divided(self, s: Schedule, k_tile: KTile, tiles: int, written: float) -> Estimate:
        """Time where stream-K divides the tiles that are left over; as `_split` otherwise.

        Each block has an equal share of all k-tiles, and begins and ends two parts beside its whole tiles.
        """
        t, device, (_, _, latency, begin, bound) = s.tiling, self.device, k_tile
        busy = k_tile.ahead if loads_ahead(s, self.atom, t.k.tiles) else k_tile.busy
        at_once = self.at_once(s)
        per_sm = at_once // self.facts.sm_count
        whole, left = divmod(tiles, at_once)
        steps = tiles * t.k.tiles / at_once * self.factors.stream_k
        vector = s.epilogue.store.vector
        tail = t.m.size * t.n.size / 32 * max(self._stored_clocks(vector), self._read(t, vector))
        clocks = steps * max(per_sm * busy * self._waits(per_sm * s.threads), latency)
        clocks += (whole + PARTS) * (begin / per_sm + per_sm * tail)
        memory = self._memory_us(written)
        bound = "DRAM" if memory >= clocks / self.clocks_of_us else bound
        parts = 2.0 * (at_once + left) * self.partial_bytes(t) / device.memory.copy_tbps * 1e-6
        walk = Walk(t.k.tiles, s.scheduler.group_m, t.n.tiles, t.m.tiles * t.n.tiles, tiles, at_once)
        main = self._main(clocks, memory, self._again(t, walk))
        us = 2 * device.launches.launch_us + main + parts
        return Estimate(us, bound, 1, stream_k=True)

    def _k_tile(self, s: Schedule) -> KTile:
        t, loop, rates, tile = s.tiling, s.multistage, self.rates, self.tile
        math_clocks, fragments, products = self._arithmetic(t.shape, loop.warps, s.threads, t.batches)
        moved = issued = stored = fetched = accesses = 0.0
        for tensor, loader, box in ((A, loop.a, t.m), (B, loop.b, t.n)):
            cost, run = self._traffic(tensor, t)
            elements, size = box.size * t.batches * t.k.size, self.plan.size(tensor)
            fetched += elements * size * cost
            accesses += elements / loader.vector
            if loader.through_registers:
                load = rates.register_stage_clocks / min(loader.vector, max(1, 4 // size))
                stored += elements / 32 * (load + rates.register_stage_clocks * loader.conflicts)
                issued += elements / loader.vector / 32 * 10
            else:
                moved += elements * size * self._copied_clocks(min(max(run, loader.vector * size), L2_LINE))
                issued += elements / loader.vector / 32 * 8
        units = self._units(math_clocks, fragments, products, moved + stored, issued, fetched)
        table = tile.k_table_factor if loop.k_table else 1.0
        busy, ahead = (table * self._busy(units, overlap) for overlap in (rates.overlap, self.overlap_ahead))
        if self.atom is not None and t.shape[2] == self.atom.k:
            ahead *= tile.one_step_factor
        latency = tile.load_latency_clocks + stored if stored else 0.0
        if moved:
            latency = max(latency, tile.copy_latency_clocks / (loop.stages - 1))
        latency += tile.own_clocks * units["issue"] * rates.issue_per_clock / (s.threads / 32)
        bound = "latency" if latency > busy else max(units, key=lambda name: units[name])
        return KTile(busy, ahead, latency, tile.block_clocks + accesses / 32 * 5, bound)

    def _copied_clocks(self, run: int) -> float:
        """Clocks of a byte that is copied to shared memory with so many of its line: it is looked up, and written.

        Choices of other types than float64 are no better by lines than by bytes.
        """
        looked_up = self.rates.line_clocks / run if self.doubles else 1 / self.rates.copy_bytes_per_clock
        return looked_up + 1 / PORT

    def _stored_clocks(self, vector: int) -> float:
        """Clocks of a warp's outputs from its sums to D, in vectors of so many elements."""
        return self.tile.staged_clocks + self.tile.vector_clocks / vector

    def _read(self, t: Tiling, vector: int) -> float:
        """Clocks in which shared memory gives a warp 32 outputs in D's order."""
        key = (t.m, t.n, t.l, t.shape, vector)
        if key not in self.reads:
            groups: Groups = (("m", self.plan.m, t.m), ("n", self.plan.n, t.n))
            dims = tiled_dims(groups if t.l is None else (*groups, ("l", self.plan.l, t.l)), D)
            self.reads[key] = reads_in_turn(dims, t.shape, self.plan.size(D), vector)
        return self.reads[key]

    def _units(
        self, math_clocks: float, fragments: float, products: float, loads: float, issued: float, fetched: float
    ) -> dict[str, float]:
        """Clocks of each unit for a k-tile of so many products, instructions that load, and bytes from L2.

        Multiply-adds, reading fragments and what comes into shared memory are given in clocks.
        """
        issued = (issued + (products / 2048 + fragments / 2)) / self.rates.issue_per_clock
        l2 = fetched / self.device.l2.thread_bytes_per_clock
        return {"arithmetic": math_clocks, "loads": loads + fragments, "issue": issued, "L2": l2}

    def _busy(self, units: Mapping[str, float], own: float) -> float:
        """Clocks of units that overlap in part; `own` is the exponent of those of one multiprocessor, all but L2."""
        rest, overlap = sum(u**own for name, u in units.items() if name != "L2"), self.rates.overlap
        busy: float = (rest ** (overlap / own) + units["L2"] ** overlap) ** (1 / overlap)
        return busy

    def _arithmetic(
        self, shape: tuple[int, int, int], grid: tuple[int, int], threads: int, batches: int
    ) -> tuple[float, float, int]:
        """Clocks of a k-tile's multiply-adds, those of reading its fragments, and how many products it has."""
        facts, rates, (bm, bn, bk), (wm, wn) = self.facts, self.rates, shape, grid
        products = bm * bn * bk * batches * self.plan.contraction.real_products
        few = min(1.0, threads / 32 / 4)  # schedulers that have a warp
        tensor = self.tensor
        if tensor is None:
            outputs = bm * bn // (wm * wn) * (2 if self.type.real_products > 1 else 1)
            shares = rates.double_shares if self.type.doubled else rates.simt_shares
            rate = next(share for least, share in shares if outputs >= least)
            return products / (facts.fma_lanes[self.type.name] * rate) / few, 0.0, products
        # float64 has no faster instruction than mma.sync; the rates of all others are those of wgmma.
        share = rates.tensor_share * facts.mma_sync_share if tensor.wgmma else rates.float64_share
        fragments = wm * wn * batches * (bm / wm + bn / wn) * bk * self.size / rates.smem_bytes_per_clock
        return products / (facts.tensor_lanes[tensor.name] * share) / few, fragments, products

    def _waits(self, threads: int) -> float:
        """Factor on the multiply-adds of so many threads of a multiprocessor."""
        if self.tensor_cores:
            return 1.0
        return 1.0 + self.factors.few_warps / max(1.0, threads / 128) ** 2

    def _memory_us(self, written: float) -> float:
        """Microseconds of device memory for so many bytes of D and C, at copy speed; reads pass beside the products."""
        return written / self.device.memory.copy_tbps * 1e-6

    def _main(self, clocks: float, memory: float, again: float = 0.0) -> float:
        """Microseconds of the multiprocessors and of memory, which overlap in part; `again` are bytes sent anew."""
        norm = self.rates.memory_overlap
        main: float = ((clocks / self.clocks_of_us) ** norm + memory**norm) ** (1 / norm)
        # Nothing is faster than a copy, nor than the kernels that stream an operand past a small matrix.
        return max(main, self._memory_us(self.distinct + again) / self.share)
