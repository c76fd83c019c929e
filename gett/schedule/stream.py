"""Schedules of the `stream` family: plans whose time is that of their bytes.

Without sums a tile of D is written in D's order; operands whose nearest mode is another one come through shared memory.
With sums one operand, the largest, is streamed in its own order, and everything else follows it. Whatever the strides
are, there is a schedule: at worst single elements straight from memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.records import Access, Schedule
from gett.schedule.stream_boxes import (
    LINE,
    Tensor,
    choose_swizzle,
    cut_box,
    cut_dims,
    is_splat,
    make_box,
    vector_along,
    walk_box,
    walk_in_order,
)
from gett.schedule.stream_records import Stream, Way, output_modes
from gett.schedule.stream_sums import schedule_sums
from layouts.access import contiguous_run, run_cost
from layouts.box import Box
from layouts.modes import Strided
from layouts.swizzle import SmemLayout

THREADS = 256
TILE_BYTES = 16384  # of the widest tensor: four 16-byte accesses a thread
LEAST_TILE = 1024  # elements; smaller tiles are all overhead
UNROLL = 4  # vectors that a thread has in flight
LAUNCH_US = 3.0


def stream_schedule(plan: GemmPlan, facts: ArchFacts) -> Schedule:
    """The schedule of a bandwidth-bound plan; it runs any other plan too, slowly.

    Raises:
        ScheduleError: The result has more tiles than a grid has blocks.
    """
    modes = output_modes(plan)
    outputs = {t: describe(plan, t, modes) for t in (A, B, D, C) if operand_of(plan, t) is not None}
    if plan.extent_k != 1:
        schedule = schedule_sums(plan, facts, outputs, {t: describe(plan, t, plan.k) for t in (A, B) if t in outputs})
    else:
        schedule = _map(plan, facts, outputs)
    blocks = schedule.box_m.tiles * schedule.split_k
    if blocks >= 2**31:
        raise ScheduleError(f"{blocks} blocks exceed the grid's limit of 2**31 - 1")
    cost = 0.0
    if 0 not in (s.extent for s in modes):
        cost = sum(x.bytes * _cost(schedule, plan, t, x) for t, x in outputs.items())
    return replace(
        schedule,
        estimate_us=cost / facts.dram_tbps * 1e-6 + LAUNCH_US * (2 if schedule.split_k > 1 else 1),
        bound="DRAM",
        item_bytes=itemsize(plan.contraction.dtype),
    )


def operand_of(plan: GemmPlan, tensor: int) -> str | None:
    """The dtype of a tensor, None where the plan lacks it."""
    c = plan.contraction
    operand = (plan.a, plan.b, c.d, c.c)[tensor]
    return None if operand is None else operand.dtype


def describe(plan: GemmPlan, tensor: int, modes: Sequence[Strided]) -> Tensor:
    """A tensor's view of some of the plan's modes."""
    c = plan.contraction
    operand = (plan.a, plan.b, c.d, c.c)[tensor]
    assert operand is not None
    everything = (*output_modes(plan), *plan.k)
    size = itemsize(operand.dtype)
    distinct = math.prod(s.extent for s in everything if s.strides[tensor]) * size
    return Tensor(
        tuple(s.strides[tensor] for s in modes),
        tuple(s.strides[tensor] for s in everything if s not in modes and s.extent > 1),
        size,
        operand.alignment,
        distinct,
        tensor == D,
    )


def _cost(schedule: Schedule, plan: GemmPlan, tensor: int, view: Tensor) -> float:
    """Relative cost of a tensor's traffic: by its longest run in either group."""
    if view.bytes == 0:
        return 1.0
    runs = [contiguous_run(schedule.box_m, view.strides, view.size)]
    if plan.extent_k > 1 and tensor in (A, B):
        runs.append(contiguous_run(schedule.box_k, [s.strides[tensor] for s in plan.k], view.size))
    return run_cost(max(runs), store=view.store)


def _map(plan: GemmPlan, facts: ArchFacts, tensors: dict[int, Tensor]) -> Schedule:
    """No sums: tiles of D, each element made once."""
    extents = tuple(s.extent for s in output_modes(plan))
    d = tensors[D]
    widest = max(t.size for t in tensors.values())
    tile = TILE_BYTES // widest
    volume = math.prod(extents)
    if 0 < volume < tile * facts.sm_count * 4:  # small results: more blocks rather than large tiles
        tile = max(min(tile, LEAST_TILE), 1 << max(0, volume // (facts.sm_count * 4) - 1).bit_length())
        tile = min(tile, TILE_BYTES // widest)
    box = _map_box(extents, tensors, tile)
    dims = cut_dims(box)
    vector = min(vector_along(dims, extents, d), max(1, 16 // widest))
    ways = {t: _map_way(box, extents, tensors[t], d, vector) for t in tensors if t != D}
    staged = {t: w for t, w in ways.items() if w.staged}
    smem = sum(_image(box, tensors[t].size) for t in staged)
    names = "".join("ABDC"[t] for t in sorted(staged))
    cut = " x ".join(str(c) for _, c in dims) or "1"
    reason = f"a {cut} box, " + (f"{names} through shared memory" if staged else "all accesses in D's order")
    per_thread = -(-box.size // (vector * THREADS))
    stream = Stream(
        sums=False, threads=THREADS, vector=vector, along_k=False, lanes_k=1, rows=1, unroll=min(UNROLL, per_thread),
        a=ways[A], b=ways.get(B), c=ways.get(C), walk_d=walk_in_order(box, d),
    )  # fmt: skip
    return Schedule(
        family="stream", arch=facts.arch, block=(box.size, 1, 1), warps=(THREADS // 32, 1), num_stages=1,
        box_m=box, box_n=Box((), ()), box_k=Box((), ()), k_table=False,
        a=access_of(ways[A], box, tensors[A].size, "mn"),
        b=access_of(ways[B], box, tensors[B].size, "mn") if B in ways else None,
        vector_d=vector, smem_bytes=smem, reason=reason, stream=stream,
    )  # fmt: skip


def _map_box(extents: tuple[int, ...], tensors: dict[int, Tensor], volume: int) -> Box:
    """The cheapest of the boxes that give D and each operand runs of several lengths."""
    d = tensors[D]
    order = d.order(extents)
    inputs = sorted((t for k, t in tensors.items() if k != D), key=lambda t: -t.bytes)
    turned = [t for t in inputs if t.lead(range(len(extents))) not in (d.lead(range(len(extents))), None)]
    best, least = None, math.inf
    for target_d in (32, 64, 128, 256, 512):
        for target in (16, 32, 64, 128, 256, 512) if turned else (0,):
            wants = [(d, target_d), *((t, target) for t in turned)]
            box = make_box(extents, cut_box(extents, wants, (d, *turned), volume), order)
            time = sum(t.bytes * run_cost(contiguous_run(box, t.strides, t.size), store=t.store)
                       for t in tensors.values())  # fmt: skip
            # Ragged and small tiles leave lanes idle, which costs less than bytes do.
            time *= (1 / box.efficiency()) ** 0.5 * (1 + 0.1 * max(0.0, math.log2(volume / box.size)))
            if time < least * 0.999:
                best, least = box, time
    assert best is not None
    return best


def _map_way(box: Box, extents: Sequence[int], tensor: Tensor, d: Tensor, vector: int) -> Way:
    """Straight into registers where D's order suits the tensor, else through shared memory."""
    dims = cut_dims(box)
    if is_splat(dims, tensor, vector):
        lead = None if vector > 1 or not dims else tensor.lead([m for m, _ in dims])
        if lead is None or lead == dims[0][0] or tensor.strides[dims[0][0]] == 0:
            return Way(splat=vector > 1)
    width = min(vector, vector_along(dims, extents, tensor))
    if width == vector and vector > 1:
        return Way(width=width)
    if dims and (dims[0][1] % vector or tensor.lead([m for m, _ in dims]) != dims[0][0]):
        return _staged(box, extents, tensor)
    return Way(width=width)


def _staged(box: Box, extents: Sequence[int], tensor: Tensor) -> Way:
    in_order = sorted(cut_dims(box), key=lambda x: abs(tensor.strides[x[0]]) or math.inf)
    width = vector_along(in_order, extents, tensor)
    walk = walk_box(box, tensor, width)
    mask, shift = choose_swizzle(box, walk, width, tensor.size)
    return Way(staged=True, width=width, walk=walk, mask=mask, shift=shift)


def _image(box: Box, size: int) -> int:
    """Bytes of a staged tile: whole rows."""
    return -(-box.size * size // LINE) * LINE


def access_of(way: Way, box: Box, size: int, group: str) -> Access:
    """The way as the record that all families share."""
    image = SmemLayout(-(-box.size * size // LINE), LINE, LINE, way.mask, way.shift)
    return Access("mn", way.width, False, group, image)
