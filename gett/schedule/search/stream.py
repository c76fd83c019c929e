"""The schedule of a bandwidth-bound kernel: there is one whatever the strides are.

At worst single elements go straight from and to memory. Any plan can be run this way; matrix products run slowly.

Without sums each element of D is one product. A tile is stored in D's order, and operands whose nearest mode is another
one are staged in shared memory. Of a sum the largest operand is streamed in its own order and decides: its nearest mode
lies in K (lanes add up) or among D's modes (threads own outputs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.hw.device import DeviceModel, nearest
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.cost.partial_lines import kept_by_l2
from gett.schedule.mainloops.stream import ROW_BYTES, smem, sum_block
from gett.schedule.search.stream_boxes import choose_swizzle, cut_box, walk_in_order, walk_in_rows
from gett.schedule.search.tried import STREAMING
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.mainloop import Stream, StreamLoad, StreamMap, StreamMatrix, StreamSum, row_step
from gett.schedule.spec.schedule import Forecast, OneTile, Schedule, SmemPlan, Tiling
from gett.schedule.spec.stream_views import TensorView, cut_modes, output_views, sum_views
from layouts.access import contiguous_run
from layouts.box import Box
from layouts.rates import L2_LINE, SECTOR, run_cost
from layouts.swizzle import CHUNK

NONE = Box((), ())


def is_stream(plan: GemmPlan) -> bool:
    """Whether the plan's time is that of its bytes: no matrix product."""
    return plan.b is None or plan.extent_k <= 1 or plan.extent_m == 1 or plan.extent_n == 1


def stream_schedule(plan: GemmPlan, facts: ArchFacts) -> Schedule:
    """The schedule of a plan; who runs it asks whether it meets `LIMITS`."""
    loop: Stream
    split = 1
    if plan.extent_k == 1:
        box, loop = _map_loop(plan, facts)
        tiling = Tiling((box.size, 1, 1), box, NONE, NONE)
        cut = " x ".join(str(c) for _, c in cut_modes(box)) or "1"
        names = "".join(n for n, x in (("A", loop.a), ("B", loop.b), ("C", loop.c)) if x is not None and x.staged)
        how = f"{names} through shared memory" if names else "all accesses in D's order"
        reason = f"a {cut} box, {how}"
    else:
        sums = _Sums(plan, facts)
        box, box_k, loop = sums.loop()
        tiling = Tiling(sum_block(loop), box, NONE, box_k)
        how = f"{loop.lanes_k} lanes add up one output"
        if not loop.along_k:
            how = f"threads own outputs, {loop.lanes_k} share one"
        reason = f"{'AB'[sums.big]} streamed along {'K' if loop.along_k else 'D'}'s modes, {how}"
        partial = tiling.shape[0] * sums.accumulator
        split = _slices(facts, max(1, box.tiles), box_k.tiles, sums.sums[sums.big].bytes, partial)
        reason += f"; {box.tiles} tiles leave SMs idle, so K in {split} slices" if split > 1 else ""
    forecast = Forecast(_us(plan, nearest(facts), tiling, split), "DRAM", reason)
    found = schedule_of(plan, facts, tiling, loop, forecast)
    if split == 1:
        return found
    return replace(found, scheduler=OneTile(split_k=split), workspace_bytes=split * max(1, box.tiles) * partial)


def schedule_of(
    plan: GemmPlan, facts: ArchFacts, tiling: Tiling, loop: Stream | StreamMatrix, forecast: Forecast
) -> Schedule:
    """The schedule of a tile and a main loop, without slices of K."""
    epilogue = Epilogue(VectorStore(loop.stored_vector), VectorSource() if plan.contraction.c is not None else None)
    made = Schedule(facts.arch, tiling, loop, epilogue, OneTile(), SmemPlan(0), forecast=forecast)
    return replace(made, smem=smem(made, plan))


def _us(plan: GemmPlan, device: DeviceModel, tiling: Tiling, split: int) -> float:
    """The time of all bytes at the rates of the longest runs in either group."""
    bytes_at_copy_speed = 0.0
    for t, x in output_views(plan).items() if all(tiling.m.extents) else ():
        runs = [contiguous_run(tiling.m, x.strides, x.size)]
        if plan.extent_k > 1 and t in (A, B):
            runs.append(contiguous_run(tiling.k, [s.strides[t] for s in plan.k], x.size))
        bytes_at_copy_speed += x.bytes * run_cost(device.memory, max(runs), store=x.store)
    return bytes_at_copy_speed / device.memory.copy_tbps * 1e-6 + device.launches.launch_us * min(split, 2)


def _slices(facts: ArchFacts, tiles: int, steps: int, read: int, partial_bytes: int) -> int:
    """Slices of K that give the multiprocessors enough blocks, 1 for none."""
    rates = nearest(facts).streams
    blocks = facts.sm_count * rates.split_blocks
    split = min(blocks // tiles, steps // 2, facts.workspace_limit // (tiles * partial_bytes))
    if split < 2 or tiles * 2 > blocks or read // tiles < 2 * rates.least_slice_bytes:
        return 1
    return -(-steps // -(-steps // split))


def _map_loop(plan: GemmPlan, facts: ArchFacts) -> tuple[Box, StreamMap]:
    """The box of D's modes, and how tensors are read."""
    tensors = output_views(plan)
    d, widest = tensors[D], max(t.size for t in tensors.values())
    tile, volume = STREAMING.tile_bytes // widest, math.prod(d.extents)
    if 0 < volume < tile * facts.sm_count * 4:  # small results: more blocks rather than large tiles
        even = 1 << max(0, volume // (facts.sm_count * 4) - 1).bit_length()
        tile = min(max(even, STREAMING.threads), tile)
    box, vector = _map_box(tensors, tile, widest, nearest(facts))
    step = STREAMING.threads * STREAMING.unroll * vector
    if box.size > step and d.bytes <= nearest(facts).streams.step_bytes:  # a second step would wait for memory again
        box, vector = _map_box(tensors, step, widest, nearest(facts))
    loads = {t: _load(box, x, vector) for t, x in tensors.items() if t != D}
    unroll = min(STREAMING.unroll, -(-box.size // (vector * STREAMING.threads)))
    walk_d, store_once = walk_in_order(box, d), d.bytes > kept_by_l2(facts)
    return box, StreamMap(loads[A], loads.get(B), loads.get(C), STREAMING.threads, vector, unroll, walk_d, store_once)


def _map_box(tensors: Mapping[int, TensorView], volume: int, widest: int, device: DeviceModel) -> tuple[Box, int]:
    """The box, and the elements of a vector of D, of which the widest tensor has as many in one access."""
    box = _cheapest_box(tensors, volume, device)
    return box, min(tensors[D].vector(cut_modes(box)), max(1, CHUNK // widest))


def _cheapest_box(tensors: Mapping[int, TensorView], volume: int, device: DeviceModel) -> Box:
    """The cheapest of the boxes that give D and the operands that matter beside it runs of several lengths."""
    d, modes = tensors[D], range(len(tensors[D].extents))
    alone = _cheapest(tensors, (), (), volume, device)
    varying = [x for t, x in tensors.items() if t != D and any(x.strides)]
    others = [x for x in varying if x.nearest(modes) != d.nearest(modes) or _cuts_lines(x, alone[0])]
    others.sort(key=lambda x: -x.bytes)
    heavy = [x for x in others if _matters(x.bytes, d)]
    best, least = _cheapest(tensors, heavy, (), volume, device) if heavy else alone
    # What tiles read again and again may matter, too: a tile along whose modes it does not vary reads it once.
    heavy = [x for x in others if x in heavy or _matters(_traffic(x, best, device), d)]
    kept = tuple(m for m in d.order(modes) if any(x.strides[m] == 0 for x in heavy))
    if not kept:
        return best
    found, time = _cheapest(tensors, heavy, kept, volume, device)
    narrower = d.vector(cut_modes(found)) < d.vector(cut_modes(best))
    return best if narrower or time > STREAMING.clearly * least else found


def _cheapest(
    tensors: Mapping[int, TensorView],
    heavy: Sequence[TensorView],
    first: Sequence[int],
    volume: int,
    device: DeviceModel,
) -> tuple[Box, float]:
    """The cheapest of the boxes that grow along modes `first`, and what it costs."""
    d = tensors[D]
    lengths = (16, *STREAMING.runs) if heavy else (0,)
    runs = ([(d, run_d), *((x, run) for x in heavy)] for run_d in STREAMING.runs for run in lengths)
    best, least = NONE, math.inf
    for box in dict.fromkeys(cut_box(x, (d, *heavy), volume, first=first) for x in runs):
        time = sum(_traffic(x, box, device) for x in tensors.values())
        # Ragged and small tiles leave lanes idle, which costs less than bytes do.
        time *= (1 / box.efficiency()) ** 0.5 * (1 + 0.1 * max(0.0, math.log2(volume / box.size)))
        if time < least * 0.999:
            best, least = box, time
    return best, least


def _traffic(tensor: TensorView, box: Box, device: DeviceModel) -> float:
    """What a tensor's bytes cost, as many as a copy moves in the same time."""
    # What tiles read again of it, since it does not vary along some modes, comes from L2.
    read = box.tiles * math.prod(d.box for _, d in box.tiled if tensor.strides[d.modes[0]]) * tensor.size
    again = max(0, read - tensor.bytes) if 0 in tensor.strides else 0
    run = contiguous_run(box, tensor.strides, tensor.size)
    from_l2 = device.memory.copy_tbps / device.l2.read_tbps
    return (tensor.bytes + from_l2 * again) * run_cost(device.memory, run, store=tensor.store)


def _load(box: Box, tensor: TensorView, vector: int) -> StreamLoad:
    """Straight into registers where D's order suits the tensor, else through shared memory."""
    cuts = cut_modes(box)
    nearest = tensor.nearest([m for m, _ in cuts])
    follows = not cuts or (nearest == cuts[0][0] and not _scattered(tensor, cuts))
    if tensor.is_splat(cuts, vector) and (vector > 1 or follows or not tensor.strides[cuts[0][0]]):
        return StreamLoad(splat=vector > 1)
    width = min(vector, tensor.vector(cuts))
    if width == vector and vector > 1:
        direct = not _turns(box, tensor)
    else:
        direct = follows and (not cuts or cuts[0][1] % vector == 0)
    if direct:
        return StreamLoad(width=width)
    places, cut = tensor.image(box), dict(cuts)
    width = tensor.vector([(m, cut[m]) for m in tensor.order([*cut])])
    walk = tuple(digit for digit in walk_in_rows(box, tensor, width) if places[digit.dim])
    mask, shift = choose_swizzle(places, walk, width, tensor.size)
    return StreamLoad(staged=True, width=width, walk=walk, mask=mask, shift=shift)


def _cuts_lines(x: TensorView, box: Box) -> bool:
    """Whether a box reads parts of a tensor's lines, in whole accesses."""
    whole = x.vector(cut_modes(box)) * x.size == CHUNK
    return whole and contiguous_run(box, x.strides, x.size) < L2_LINE


def _turns(box: Box, x: TensorView) -> bool:
    """Whether neighbours in D's order are single accesses to a tensor, whose runs in the box are longer.

    Sectors are then asked for twice and more, which costs more than the way through shared memory. Tiles of small
    results are short, and so is their time.
    """
    run = x.size * math.prod(cut for _, cut in x.run(cut_modes(box)))
    full = 2 * box.size * x.size > STREAMING.tile_bytes
    return full and run < SECTOR and contiguous_run(box, x.strides, x.size) > run


def _matters(read: float, other: TensorView) -> bool:
    """Whether the order of so many bytes matters beside a tensor's; much fewer come from caches in any order."""
    return read * 8 > other.bytes


def _scattered(tensor: TensorView, cuts: Sequence[tuple[int, int]]) -> bool:
    """Whether neighbours in D's order are in sectors of their own, which several elements of a tile read.

    Each access then takes as many sectors from the first cache as a warp has threads.
    """
    return abs(tensor.strides[cuts[0][0]]) > tensor.size and any(not tensor.strides[m] for m, _ in cuts)


class _Sums:
    """A plan with sums, whose largest operand is streamed."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        self.facts, self.outputs, self.sums = facts, output_views(plan), sum_views(plan)
        self.accumulator = data_type(plan.contraction.dtype).accumulator_bytes
        self.big = max(self.sums, key=lambda t: self.outputs[t].bytes)
        self.small = [t for t in self.sums if t != self.big]
        # Whether its nearest mode is a contracted one; views of the group along which vectors lie.
        self.along_k = _least_step(self.sums[self.big]) < _least_step(self.outputs[self.big])
        self.views = self.sums if self.along_k else self.outputs

    def loop(self) -> tuple[Box, Box, StreamSum]:
        """Boxes of D's modes and of K for the widest vector that they allow, and how tensors are read."""
        views, streamed = self.views, self.views[self.big]
        cuts = [(m, streamed.extents[m]) for m in streamed.order()]
        allowed, vector = streamed.vector(cuts), 0
        while allowed != vector:
            vector = allowed
            lanes_k, rows, unroll = self._threads(vector)
            box_o, box_k = self._boxes(vector, lanes_k, rows, unroll)
            cuts = cut_modes(box_k if self.along_k else box_o)
            allowed = self._vector(cuts, vector)
        step = row_step(STREAMING.threads, lanes_k, rows, 1 if self.along_k else vector)
        box_o = self._in_rows(box_o, step)
        loads = {
            t: StreamLoad(
                splat=vector > 1 and views[t].is_splat(cuts, vector),
                width=min(vector, views[t].vector(cuts)),
                shared=self.outputs[t].same_rows(box_o, step),
            )
            for t in self.sums
        }
        read = loads[A], loads.get(B), StreamLoad() if C in self.outputs else None
        walk_d, threads = walk_in_order(box_o, self.outputs[D]), STREAMING.threads
        return box_o, box_k, StreamSum(*read, threads, vector, self.along_k, lanes_k, rows, unroll, walk_d)

    def _in_rows(self, box: Box, step: int) -> Box:
        """The box with those modes last along which an operand is the same, where a thread's rows then share it."""
        cuts = dict(cut_modes(box))
        for t in self.small if self.along_k else ():
            order = sorted((m for d in box.dims for m in d.modes), key=lambda m: self.outputs[t].strides[m] == 0)
            made = Box.of_cuts(box.extents, {m: cuts[m] for m in order if m in cuts}, order)
            if self.outputs[t].same_rows(made, step):
                return made
        return box

    def _threads(self, vector: int) -> tuple[int, int, int]:
        """(threads along K, vectors of outputs a thread, steps of K in flight)."""
        volume_o, volume_k = math.prod(self.outputs[D].extents), math.prod(self.sums[self.big].extents)
        sm_count = self.facts.sm_count
        busy = sm_count * 1024  # threads that keep the memory busy
        if self.along_k:
            vectors = max(1, -(-volume_k // vector))
            lanes = min(_ceil_pow2(vectors), 32 if volume_o * 32 >= busy else STREAMING.threads)
        else:
            vectors = max(1, volume_k)
            owners = _ceil_pow2(-(-max(1, volume_o) // vector))
            of_block = min(owners, 32)
            least_row = self._least_row()
            # Few blocks go through K one step after the other: with more threads an output there are more of them.
            while of_block * vector * self.outputs[self.big].size > least_row and owners < of_block * sm_count:
                of_block //= 2
            lanes = 1 if owners >= 2 * busy else min(STREAMING.threads // of_block, _ceil_pow2(vectors))
        accesses = STREAMING.accesses // 2 if self.small else STREAMING.accesses
        unroll = min(accesses, _ceil_pow2(-(-vectors // lanes)))
        outputs = 1 if self.along_k else vector
        spare = max(1, volume_o // (STREAMING.threads // lanes * outputs * self.facts.sm_count * 4))
        most = max(1, STREAMING.held_bytes // (self.accumulator * outputs))
        rows = min(max(1, STREAMING.accesses // unroll), accesses)
        return lanes, min(rows, most, 1 << (spare.bit_length() - 1)), unroll

    def _least_row(self) -> int:
        """Bytes of the streamed operand's rows that a block reads at least.

        Whole lines where rows have them and L2 does not hold the operand: half as many requests to L2, of as many
        slices. Else half a line, for more blocks.
        """
        view = self.outputs[self.big]
        near = view.nearest(range(len(view.extents)))
        whole = near is not None and view.strides[near] == view.size and view.extents[near] * view.size >= ROW_BYTES
        return ROW_BYTES if whole and view.bytes > self.facts.l2_bytes else ROW_BYTES // 2

    def _boxes(self, vector: int, lanes_k: int, rows: int, unroll: int) -> tuple[Box, Box]:
        """Boxes of D's modes and of K, both in the streamed operand's order."""
        outputs, sums = self.outputs, self.sums
        big_o, big_k, d = outputs[self.big], sums[self.big], outputs[D]
        step_k = lanes_k * unroll * (vector if self.along_k else 1)
        owned = STREAMING.threads // lanes_k * rows * (1 if self.along_k else vector)
        row = 8 * vector * big_k.size
        heavy = [t for t in self.small if _matters(sums[t].bytes, big_k)]
        runs_k = [(big_k, row), *((sums[t], ROW_BYTES) for t in heavy)]
        runs_o = [(big_o, row), *((outputs[t], ROW_BYTES) for t in heavy)]
        if d.bytes * 16 >= big_o.bytes:
            runs_o.append((d, ROW_BYTES))
        growth_k, idle = (big_k, *(sums[t] for t in self.small)), 0.25 if self.along_k else 1.0
        return cut_box(runs_o, (big_o, d), owned), cut_box(runs_k, growth_k, step_k, idle)

    def _vector(self, cuts: Sequence[tuple[int, int]], vector: int) -> int:
        """The widest vector that all operands can follow: one access, one repeated element, or one stride."""
        vector = min(vector, self.views[self.big].vector(cuts))
        for view in (self.views[t] for t in self.small):
            whole = view.is_splat(cuts, vector) or view.vector(cuts) >= vector
            if cuts and cuts[0][1] % vector and not whole:
                vector = math.gcd(vector, cuts[0][1] & -cuts[0][1])
        return vector


def _least_step(view: TensorView) -> float:
    """Smallest distance between neighbours along any mode; unit strides before equal distances backwards."""
    steps = [abs(s) + (0 if s > 0 else 0.5) for s, e in zip(view.strides, view.extents, strict=True) if s and e > 1]
    return min(steps, default=math.inf)


def _ceil_pow2(n: int) -> int:
    return 1 << (n - 1).bit_length()
