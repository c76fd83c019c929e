"""The cost model of the tiled families: how long a schedule should take, and what limits it.

A ranking, not a prophecy: device memory with the efficiency of each tensor's runs, L2 traffic of the tiles, the
arithmetic rate at that tile, waves over the SMs, and what a block costs before and after its main loop. All in
microseconds. Rates come from `archs`, run costs from `layouts.access`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gett.plan import A, B, C, D, GemmPlan, itemsize
from gett.schedule.archs import ArchFacts
from gett.schedule.records import Batch
from layouts.access import contiguous_run, run_alignment, run_cost
from layouts.box import Box, TileDim
from layouts.modes import Strided

LAUNCH_US = 2.5
BLOCK_US = 1.6  # fill and drain of a block's pipeline, index set-up
STORE_CLOCKS = 2.0  # issue slots a stored vector costs its SM sub-core

# Share of the arithmetic rate that a warp tile of this many elements reaches (shared-memory reads compete).
TENSOR_SHARE = ((4096, 0.9), (2048, 0.75), (1024, 0.6), (512, 0.42), (0, 0.25))
SIMT_SHARE = ((2048, 0.75), (1024, 0.6), (512, 0.45), (0, 0.3))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the model looks at, beside the plan."""

    family: str
    block: tuple[int, int, int]
    warps: tuple[int, int]
    box_m: Box
    box_n: Box
    box_k: Box
    k_table: bool
    vectors: tuple[int, int, int]
    transposing: bool
    smem_bytes: int
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time in microseconds, what bounds it, and the split of K that gives it."""

    us: float
    bound: str
    split_k: int


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


def estimate(plan: GemmPlan, shape: Shape, facts: ArchFacts) -> Estimate:
    """Expected time of a plan under a shape, at the best split of K."""
    c = plan.contraction
    size = itemsize(c.dtype)
    bm, bn, bk = shape.block
    batches = shape.batch.box.size if shape.batch is not None else 1
    tiles_mn = shape.box_m.tiles * shape.box_n.tiles * (shape.batch.box.tiles if shape.batch else plan.extent_l)
    k_tiles = shape.box_k.tiles

    def cost(tensor: int, first: tuple[tuple[Strided, ...], Box], second: tuple[tuple[Strided, ...], Box]) -> float:
        modes, box = first[0] + second[0], joined(first[1], second[1])
        if shape.batch is not None:
            modes, box = modes + plan.l, joined(box, shape.batch.box)
        return traffic_cost(modes, box, tensor, size_d if tensor == D else size, tensor == D)

    size_d = itemsize(c.d.dtype)
    group_m, group_n, group_k = (plan.m, shape.box_m), (plan.n, shape.box_n), (plan.k, shape.box_k)
    cost_a, cost_b, cost_d = cost(A, group_m, group_k), cost(B, group_n, group_k), cost(D, group_m, group_n)
    bytes_a = _volume(plan.l + plan.m + plan.k, A) * size
    bytes_b = _volume(plan.l + plan.n + plan.k, B) * size
    bytes_d = _volume(plan.l + plan.m + plan.n, D) * size_d
    bytes_c = _volume(plan.l + plan.m + plan.n, C) * itemsize(c.c.dtype) if c.c is not None else 0
    dram = (bytes_a * cost_a + bytes_b * cost_b + bytes_d * cost_d + bytes_c * cost_d) / facts.dram_tbps * 1e-6

    warp_tile = bm * bn // math.prod(shape.warps)
    if shape.family == "sm80":
        kind = "tf32" if c.dtype == "float32" else c.dtype
        rate = facts.tensor_tflops[kind] * facts.mma_sync_share * _share(TENSOR_SHARE, warp_tile)
        rate *= 1.0 if kind != "float64" else 1.0 / facts.mma_sync_share
    else:
        rate = facts.fma_tflops[c.dtype] * _share(SIMT_SHARE, warp_tile * (2 if c.dtype.startswith("complex") else 1))
    if shape.transposing:
        rate *= 0.6
    if shape.k_table:
        rate *= 0.9
    per = 8 if c.dtype.startswith("complex") else 2
    flops_tile = per * bm * bn * bk * k_tiles * batches
    resident = _resident(shape, facts)
    best: Estimate | None = None
    for split in _splits(k_tiles, tiles_mn, facts.sm_count * resident) if shape.batch is None else (1,):
        blocks = tiles_mn * split
        slots = facts.sm_count * resident
        waves = math.ceil(blocks / slots)
        # A partly filled machine runs each block faster: an SM with one block gives it all its units.
        busy = min(1.0, blocks / facts.sm_count) if blocks < slots else blocks / (waves * slots)
        compute = flops_tile * tiles_mn / (rate * max(busy, 1e-3)) * 1e-6
        loads = tiles_mn * batches * k_tiles * bk * size * (bm * cost_a + bn * cost_b)
        l2 = (loads + bytes_d) / (facts.l2_tbps * min(1.0, blocks / facts.sm_count)) * 1e-6
        stores = bm * bn * batches / shape.vectors[2] / 32 * STORE_CLOCKS / 4 / facts.clock_ghz * 1e-3
        fixed = (BLOCK_US + stores) * max(1.0, blocks / slots) / (resident if blocks > slots else 1)
        reduce = 0.0
        if split > 1:
            reduce = LAUNCH_US + 2 * tiles_mn * split * bm * bn * 4 / facts.l2_tbps * 1e-6
        main = max(dram / min(1.0, blocks / facts.sm_count), l2, compute)
        us = LAUNCH_US + main + fixed + reduce
        if best is None or us < best.us:
            bound = "DRAM" if main == dram else "L2" if main == l2 else "arithmetic"
            best = Estimate(us, bound if main > fixed + reduce else "latency", split)
    assert best is not None
    return best


def _volume(modes: tuple[Strided, ...], tensor: int) -> int:
    return math.prod(s.extent for s in modes if s.strides[tensor])


def _share(table: tuple[tuple[int, float], ...], size: int) -> float:
    return next(share for least, share in table if size >= least)


def _resident(shape: Shape, facts: ArchFacts) -> int:
    """Blocks that an SM holds at a time."""
    threads = 32 * math.prod(shape.warps) * (shape.batch.warps if shape.batch is not None else 1)
    outputs = shape.block[0] * shape.block[1] * (shape.batch.box.size if shape.batch is not None else 1)
    by_smem = facts.smem_per_sm // (shape.smem_bytes + 1024)
    registers = min(255, 64 + 2 * outputs // threads)
    by_registers = facts.regs_per_sm // (registers * threads)
    return max(1, min(by_smem, by_registers, facts.threads_per_sm // threads, facts.blocks_per_sm))


def _splits(k_tiles: int, tiles: int, slots: int) -> list[int]:
    """Ways to slice K: none, and as many as fill one or two waves."""
    if tiles * 2 > slots or k_tiles < 4:
        return [1]
    out = {1}
    for target in (slots // 2, slots, 2 * slots):
        split = max(1, min(target // max(tiles, 1), k_tiles // 2))
        per = -(-k_tiles // split)
        out.add(-(-k_tiles // per))
    return sorted(out)
