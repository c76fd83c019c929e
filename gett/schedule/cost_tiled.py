"""The cost model of the tiled families: how long a schedule should take, and what limits it.

A ranking, not a prophecy. One k-tile of a block costs clocks of several units (arithmetic, the load and store path,
shared memory, instruction issue, L2), which overlap in part, and at least the latency of its loads. Blocks of a wave
share a multiprocessor; waves, prologue and epilogue add up; device memory bounds the whole. Constants marked "fitted"
come of some 1900 schedules of 19 random contractions, measured on an H200 in float16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.records import Access, Schedule
from layouts.access import contiguous_run, run_alignment, run_cost
from layouts.box import Box, TileDim
from layouts.modes import Strided

LAUNCH_US = 2.5
REDUCE_US = 3.4  # fitted: the second launch of split-K
REDUCE_SLOWDOWN = 5.9  # fitted: partial sums against L2's rate ...
REDUCE_TURNED = 1.09  # ... and once more where D does not run along N
SYNC_CLOCKS = 68.0  # fitted: of a k-tile, whatever it holds
COPY_LATENCY = 1450.0  # fitted: clocks of a copy, spread over the stages in flight
LOAD_LATENCY = 565.0  # fitted: of a load through registers, one k-tile in flight
FEW_WARPS = 20.0  # of an SM that hide nothing: single elements through registers in blocks of one or two k-tiles
ACCESS_CLOCKS, PRODUCT_CLOCKS = 26.0, 12.0  # fitted: of a thread's accesses and a warp's products, one after the other
COPY_BYTES = {16: 103.0, 8: 62.0, 4: 21.0}  # fitted: bytes per clock of asynchronous copies by their width
LOAD_CLOCKS, STORE_CLOCKS = 2.4, 2.4  # fitted: a warp's load, and its store of one element to shared memory
SMEM_BYTES = 98.0  # bytes per clock that fragments are read at
L2_BYTES = 62.0  # fitted: bytes per clock and multiprocessor of an H200, at its share of L2's rate
ISSUE = 3.7  # fitted: instructions per clock
TENSOR_SHARE = {"float16": 0.77, "bfloat16": 0.77, "tf32": 0.77, "float64": 0.9}  # of the rate of mma.sync, fitted
SIMT_SHARE = ((2048, 0.75), (1024, 0.6), (512, 0.45), (0, 0.3))  # of the rate, by a warp's outputs
OVERLAP = 2.3  # fitted: exponent of the norm in which the units' clocks add up
TABLE_SLOWDOWN = 1.36  # fitted: a flattened K
BLOCK_CLOCKS = 5700.0  # fitted: fill and drain of a block's pipeline
READ_SHARE = 0.52  # of the copy-speed time of A and B; what is read again comes from L2
STAGED_CLOCKS = 5.2  # fitted: a warp's outputs on their way through shared memory
H200_L2 = 6.9 / (132 * 1.83)  # TB/s per multiprocessor and GHz, the scale of L2_BYTES


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time in microseconds, what bounds it, and the split of K that gives it."""

    us: float
    bound: str
    split_k: int


# Relative costs of tensors by the boxes of the groups that they have, the batches' last.
Costs = dict[tuple[int, Box, Box, Box | None], float]


def traffic_us(plan: GemmPlan, facts: ArchFacts) -> dict[int, float]:
    """Microseconds that A, B and D each take of device memory at copy speed."""
    c = plan.contraction
    volumes = {A: (plan.l, plan.m, plan.k), B: (plan.l, plan.n, plan.k), D: (plan.l, plan.m, plan.n)}
    return {
        t: math.prod(s.extent for g in groups for s in g)
        * itemsize(c.d.dtype if t == D else c.dtype)
        / facts.dram_tbps
        * 1e-6
        for t, groups in volumes.items()
    }


def joined(first: Box, second: Box) -> Box:
    """Two groups' boxes as one, for a tensor that has modes in both."""
    shift = len(first.extents)
    dims = tuple(TileDim(tuple(m + shift for m in d.modes), d.box) for d in second.dims)
    return Box(first.extents + second.extents, first.dims + dims)


def traffic_cost(modes: tuple[Strided, ...], box: Box, tensor: int, size: int, store: bool) -> float:
    """Relative cost of a tensor's bytes under a box over all its tiled modes."""
    strides = tuple(s.strides[tensor] for s in modes)
    run = contiguous_run(box, strides, size)
    return run_cost(run, store=store, start_alignment=run_alignment(box, strides, run))


def estimate(plan: GemmPlan, schedule: Schedule, registers: int, facts: ArchFacts, known: Costs) -> Estimate:
    """Expected time of a plan under a schedule (without a split), at the best split of K.

    Args:
        plan: What is run.
        schedule: Everything but its split.
        registers: Of a thread, by the fit of the limits.
        facts: Of the GPU.
        known: Relative costs of this plan's tensors under boxes that were met before; more are put in.
    """
    c, s = plan.contraction, schedule
    assert s.a is not None
    assert s.b is not None
    size, size_d = itemsize(c.dtype), itemsize(c.d.dtype)
    cut = s.batch.box if s.batch is not None else None
    tiles = s.box_m.tiles * s.box_n.tiles * (cut.tiles if cut is not None else plan.extent_l)

    def cost(tensor: int, first: tuple[tuple[Strided, ...], Box], second: tuple[tuple[Strided, ...], Box]) -> float:
        key = (tensor, first[1], second[1], cut)
        if key not in known:
            modes, box = first[0] + second[0], joined(first[1], second[1])
            if cut is not None:
                modes, box = modes + plan.l, joined(box, cut)
            known[key] = traffic_cost(modes, box, tensor, size_d if tensor == D else size, tensor == D)
        return known[key]

    group_m, group_n, group_k = (plan.m, s.box_m), (plan.n, s.box_n), (plan.k, s.box_k)
    cost_a, cost_b, cost_d = cost(A, group_m, group_k), cost(B, group_n, group_k), cost(D, group_m, group_n)
    read = _volume(plan.l + plan.m + plan.k, A) * size * cost_a + _volume(plan.l + plan.n + plan.k, B) * size * cost_b
    outputs_d = _volume(plan.l + plan.m + plan.n, D)
    written = outputs_d * size_d * cost_d
    if c.c is not None:
        written += _volume(plan.l + plan.m + plan.n, C) * itemsize(c.c.dtype) * cost_d

    tile = _tile_clocks(plan, s, (cost_a, cost_b), facts)
    outputs = s.box_m.size * s.box_n.size * s.batches
    per_sm = _resident(s, registers, facts)
    us = facts.clock_ghz * 1e3
    best: Estimate | None = None
    for split in _splits(s.box_k.tiles, tiles, facts.sm_count) if cut is None else [1]:
        blocks = tiles * split
        steps = -(-s.box_k.tiles // split)
        vector = 2 if split > 1 else s.vector_d
        tail = outputs / 32 * (STAGED_CLOCKS + 8 / vector)
        waves, left = divmod(blocks, facts.sm_count * per_sm)
        clocks = waves * (steps * max(per_sm * tile.busy, tile.latency) + tile.start / per_sm + per_sm * tail)
        if left:
            beside = -(-left // facts.sm_count)
            clocks += steps * max(beside * tile.busy, tile.latency) + tile.start + beside * tail
        if steps <= 2 and not (s.a.asynchronous or s.b.asynchronous) and 1 in (s.a.vector, s.b.vector):
            clocks *= 1.0 + FEW_WARPS / (per_sm * s.threads / 32)
        memory = (read * READ_SHARE + (written if split == 1 else 0)) / facts.dram_tbps * 1e-6
        memory /= min(1.0, blocks / facts.sm_count)
        main = ((clocks / us) ** 4 + memory**4) ** 0.25
        reduce = 0.0
        if split > 1:
            partial = blocks * s.block[0] * s.block[1] * 4 * (1.0 if _along_n(plan, s) else REDUCE_TURNED)
            reduce = REDUCE_US + (REDUCE_SLOWDOWN * partial / facts.l2_tbps + written / facts.dram_tbps) * 1e-6
        total = LAUNCH_US + main + reduce
        if best is None or total < best.us:
            bound = "DRAM" if memory >= clocks / us else tile.bound
            if steps * max(tile.busy, tile.latency) < tile.start + tail or reduce > main:
                bound = "latency"
            best = Estimate(total, bound, split)
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class _Tile:
    """Clocks of one block: a k-tile's share of the units, its least latency, and what comes before the loop."""

    busy: float
    latency: float
    start: float
    bound: str


def _tile_clocks(plan: GemmPlan, s: Schedule, costs: tuple[float, float], facts: ArchFacts) -> _Tile:
    c = plan.contraction
    size, warps = itemsize(c.dtype), s.threads / 32
    bm, bn, bk = s.block
    few = min(1.0, warps / 4)  # schedulers that have a warp
    products = bm * bn * bk * s.batches * (4 if c.dtype.startswith("complex") else 1)
    if s.family == "sm80":
        kind = "tf32" if c.dtype == "float32" else c.dtype
        share = 1.0 if kind == "float64" else facts.mma_sync_share
        math_clocks = products / (facts.tensor_lanes[kind] * share * TENSOR_SHARE[kind]) / few
        fragments = s.warps[0] * s.warps[1] * s.batches * (bm / s.warps[0] + bn / s.warps[1]) * bk * size / SMEM_BYTES
    else:
        warp_tile = bm * bn // math.prod(s.warps) * (2 if c.dtype.startswith("complex") else 1)
        rate = next(share for least, share in SIMT_SHARE if warp_tile >= least)
        math_clocks, fragments = products / (facts.fma_lanes[c.dtype] * rate) / few, 0.0
    assert s.a is not None
    assert s.b is not None
    moved = issued = stored = fetched = accesses = 0.0
    for access, box, cost in ((s.a, s.box_m, costs[0]), (s.b, s.box_n, costs[1])):
        elements = box.size * s.batches * s.box_k.size
        fetched += elements * size * cost
        accesses += elements / access.vector
        issued += elements / access.vector / 32 * (8 if access.asynchronous else 7)
        if access.asynchronous:
            moved += elements * size / COPY_BYTES[access.vector * size] + elements * size / 128
        else:
            stored += _walk_clocks(elements, access, size)
            issued += elements / 32 * 3
    ragged = any(d.box > 1 and not s.box_k.divides(i) for i, d in enumerate(s.box_k.dims))
    issued *= 1.3 if s.k_table else 1.1 if ragged else 1.0
    issued += products / 2048 + fragments / 2
    l2 = fetched / (L2_BYTES * facts.l2_tbps / (facts.sm_count * facts.clock_ghz) / H200_L2)
    units = {"arithmetic": math_clocks, "loads": moved + stored + fragments, "issue": issued / ISSUE, "L2": l2}
    busy = sum(u**OVERLAP for u in units.values()) ** (1 / OVERLAP) * (TABLE_SLOWDOWN if s.k_table else 1.0)
    chain = products / 2048 / warps * PRODUCT_CLOCKS + accesses / s.threads * ACCESS_CLOCKS
    latency = SYNC_CLOCKS + chain + (LOAD_LATENCY + stored if stored else 0.0)
    if s.a.asynchronous or s.b.asynchronous:
        latency = max(latency, COPY_LATENCY / (s.num_stages - 1))
    bound = "latency" if latency > busy else max(units, key=lambda name: units[name])
    return _Tile(busy, latency, BLOCK_CLOCKS + accesses / 32 * 5, bound)


def _walk_clocks(elements: float, access: Access, size: int) -> float:
    return elements / 32 * (LOAD_CLOCKS / min(access.vector, max(1, 4 // size)) + STORE_CLOCKS * access.served)


def _along_n(plan: GemmPlan, s: Schedule) -> bool:
    """Whether neighbours in D are neighbours in the tile."""
    near = [abs(plan.n[d.modes[0]].strides[D]) for d in s.box_n.dims if d.box > 1][:1]
    return bool(near) and near[0] == itemsize(plan.contraction.d.dtype)


def _volume(modes: tuple[Strided, ...], tensor: int) -> int:
    return math.prod(s.extent for s in modes if s.strides[tensor])


def _resident(s: Schedule, registers: int, facts: ArchFacts) -> int:
    """Blocks that an SM holds at a time."""
    by_smem = facts.smem_per_sm // (s.smem_bytes + 1024)
    each = -(-min(255, int(0.81 * registers) + 1) // 8) * 8  # fitted
    by_registers = facts.regs_per_sm // (each * s.threads)
    return max(1, min(by_smem, by_registers, facts.threads_per_sm // s.threads, facts.blocks_per_sm))


def _splits(k_tiles: int, tiles: int, sm_count: int) -> list[int]:
    """Ways to slice K: none, and as many as give every SM half a block up to eight."""
    if tiles >= 2 * sm_count or k_tiles < 4:
        return [1]
    out = {1}
    for target in (sm_count // 2, sm_count, 2 * sm_count, 4 * sm_count, 8 * sm_count):
        split = max(1, min(target // max(tiles, 1), k_tiles // 2))
        out.add(-(-k_tiles // -(-k_tiles // split)))
    return sorted(out)
