"""Sums of the `stream` family: who walks K, who owns which outputs, and when K is split over blocks.

The largest operand decides: its unit-stride mode lies in K (lanes add up) or among the outputs (threads own them).
Knows plans and boxes; prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D, GemmPlan, itemsize
from gett.schedule.records import Access, Schedule
from gett.schedule.space import ACC_BYTES
from gett.schedule.stream_boxes import (
    LINE,
    Tensor,
    cut_box,
    cut_dims,
    is_splat,
    make_box,
    vector_along,
    walk_in_order,
)
from gett.schedule.stream_records import Stream, Way, output_modes
from layouts.box import Box
from layouts.swizzle import SmemLayout

THREADS = 256
IN_FLIGHT = 8  # accesses of the streamed operand that a thread has in flight
HELD = 128  # bytes of accumulators of a thread
WORKSPACE = 32 << 20  # most bytes of partial sums
BLOCKS_PER_SM = 8  # that a split of K aims at
LEAST_SLICE = 128 << 10  # bytes that one block reads at least before K is split: a second launch costs 2 us
RUN = 64  # bytes that the smaller tensors should have together


def schedule_sums(plan: GemmPlan, facts: ArchFacts, outputs: dict[int, Tensor], sums: dict[int, Tensor]) -> Schedule:
    """The schedule of a plan with sums.

    Args:
        plan: What to run.
        facts: Of the GPU.
        outputs: Each tensor's view of D's modes.
        sums: Each operand's view of K.
    """
    big = max(sums, key=lambda t: sums[t].bytes)
    extents_o = tuple(s.extent for s in output_modes(plan))
    extents_k = tuple(s.extent for s in plan.k) if plan.extent_k else ()
    if not extents_k:  # an empty sum: no element of A or B is touched
        sums = {t: Tensor((), x.others, x.size, x.alignment, 0) for t, x in sums.items()}
    return _Sums(plan, facts, outputs, sums, big, extents_o, extents_k).schedule()


class _Sums:
    """The choices of one plan."""

    def __init__(
        self,
        plan: GemmPlan,
        facts: ArchFacts,
        outputs: dict[int, Tensor],
        sums: dict[int, Tensor],
        big: int,
        extents_o: tuple[int, ...],
        extents_k: tuple[int, ...],
    ) -> None:
        self.plan, self.facts, self.outputs, self.sums, self.big = plan, facts, outputs, sums, big
        self.extents_o, self.extents_k = extents_o, extents_k
        self.volume_o, self.volume_k = math.prod(extents_o), math.prod(extents_k)
        lead_o = _nearest(outputs[big], extents_o)
        lead_k = _nearest(sums[big], extents_k)
        self.along_k = lead_k < lead_o
        self.small = [t for t in sums if t != big]

    def schedule(self) -> Schedule:
        """Boxes for the widest vector that they allow, then the split."""
        extents = self.extents_k if self.along_k else self.extents_o
        along = self.sums if self.along_k else self.outputs
        whole = [(m, extents[m]) for m in along[self.big].order(extents)]
        vector = vector_along(whole, extents, along[self.big])
        while True:
            lanes_k, rows, unroll = self._shape(vector)
            box_o, box_k = self._boxes(vector, lanes_k, rows, unroll)
            allowed = self._vector(box_k if self.along_k else box_o, vector)
            if allowed >= vector:
                break
            vector = allowed
        slots = THREADS // lanes_k * rows * (1 if self.along_k else vector)
        split, workspace = self._split(box_o, box_k, slots)
        stream = self._stream(box_o, box_k, vector, lanes_k, rows, unroll)
        acc = self._acc_bytes()
        held = (max(1, lanes_k // 32) if self.along_k else lanes_k) * slots * acc
        names = "AB"[self.big]
        kind = f"{lanes_k} lanes add up one output" if self.along_k else f"threads own outputs, {lanes_k} share one"
        reason = f"{names} streamed along {'K' if self.along_k else 'D'}'s modes, {kind}"
        if split > 1:
            reason += f"; {box_o.tiles} tiles leave SMs idle, so K in {split} slices"
        group = "k" if self.along_k else "mn"
        return Schedule(
            family="stream", arch=self.facts.arch, block=(slots, 1, lanes_k * unroll * (vector if self.along_k else 1)),
            warps=(THREADS // 32, 1), num_stages=1, box_m=box_o, box_n=Box((), ()), box_k=box_k, k_table=False,
            a=_access(stream.a, group), b=None if stream.b is None else _access(stream.b, group), vector_d=1,
            split_k=split, smem_bytes=held, workspace_bytes=workspace, reason=reason, stream=stream,
        )  # fmt: skip

    def _acc_bytes(self) -> int:
        dtype = self.plan.contraction.dtype
        return ACC_BYTES.get(dtype, itemsize(dtype))

    def _shape(self, vector: int) -> tuple[int, int, int]:
        """(threads along K, vectors of outputs a thread, steps of K in flight)."""
        busy = self.facts.sm_count * 1024  # threads that keep the memory busy
        depth = IN_FLIGHT // 2 if self.small else IN_FLIGHT
        if self.along_k:
            vectors = max(1, -(-self.volume_k // vector))
            lanes = min(_ceil_pow2(vectors), 32 if self.volume_o * 32 >= busy else THREADS)
        else:
            vectors = max(1, self.volume_k)
            owners = _ceil_pow2(-(-max(1, self.volume_o) // vector))
            lanes = 1 if owners >= 2 * busy else min(THREADS // min(owners, 32), _ceil_pow2(vectors))
        unroll = min(depth, _ceil_pow2(-(-vectors // lanes)))
        owned = THREADS // lanes * (1 if self.along_k else vector)
        spare = max(1, self.volume_o // (owned * self.facts.sm_count * 4))
        most = max(1, HELD // (self._acc_bytes() * (1 if self.along_k else vector)))
        return lanes, min(max(1, IN_FLIGHT // unroll), most, _floor_pow2(spare)), unroll

    def _boxes(self, vector: int, lanes_k: int, rows: int, unroll: int) -> tuple[Box, Box]:
        """Boxes of D's modes and of K, both in the streamed operand's order."""
        big_o, big_k, d = self.outputs[self.big], self.sums[self.big], self.outputs[D]
        step_k = lanes_k * unroll * (vector if self.along_k else 1)
        slots = THREADS // lanes_k * rows * (1 if self.along_k else vector)
        line = 8 * vector * big_k.size
        heavy = [t for t in self.small if self.sums[t].bytes * 8 > big_k.bytes]
        wants_k = [(big_k, line), *((self.sums[t], RUN) for t in heavy)]
        wants_o = [(big_o, line), *((self.outputs[t], RUN) for t in heavy)]
        if d.bytes * 16 >= big_o.bytes:
            wants_o.append((d, RUN))
        cut_k = cut_box(self.extents_k, wants_k, (big_k, *(self.sums[t] for t in self.small)), step_k)
        cut_o = cut_box(self.extents_o, wants_o, (big_o, d), slots)
        return (
            make_box(self.extents_o, cut_o, big_o.order(self.extents_o)),
            make_box(self.extents_k, cut_k, big_k.order(self.extents_k)),
        )

    def _vector(self, box: Box, vector: int) -> int:
        """The widest vector that all operands can follow: one access, one repeated element, or one stride."""
        along, extents = (self.sums, self.extents_k) if self.along_k else (self.outputs, self.extents_o)
        dims = cut_dims(box)
        vector = min(vector, vector_along(dims, extents, along[self.big]))
        for t in self.small:
            x = along[t]
            whole = is_splat(dims, x, vector) or vector_along(dims, extents, x) >= vector
            if dims and dims[0][1] % vector and not whole:
                vector = math.gcd(vector, dims[0][1] & -dims[0][1])
        return vector

    def _way(self, t: int, box_o: Box, box_k: Box, vector: int) -> Way:
        along, extents, box = (
            (self.sums, self.extents_k, box_k) if self.along_k else (self.outputs, self.extents_o, box_o)
        )
        dims = cut_dims(box)
        shared = all(self.outputs[t].strides[m] == 0 for m, _ in cut_dims(box_o))
        splat = vector > 1 and is_splat(dims, along[t], vector)
        return Way(splat=splat, width=min(vector, vector_along(dims, extents, along[t])), shared=shared)

    def _stream(self, box_o: Box, box_k: Box, vector: int, lanes_k: int, rows: int, unroll: int) -> Stream:
        return Stream(
            sums=True, threads=THREADS, vector=vector, along_k=self.along_k, lanes_k=lanes_k, rows=rows, unroll=unroll,
            a=self._way(A, box_o, box_k, vector),
            b=self._way(B, box_o, box_k, vector) if B in self.sums else None,
            c=Way() if C in self.outputs else None,
            walk_d=walk_in_order(box_o, self.outputs[D]),
        )  # fmt: skip

    def _split(self, box_o: Box, box_k: Box, slots: int) -> tuple[int, int]:
        """(slices of K, bytes of their partial sums)."""
        steps, tiles = box_k.tiles, max(1, box_o.tiles)
        target = self.facts.sm_count * BLOCKS_PER_SM
        read = self.sums[self.big].bytes // tiles
        per = tiles * slots * self._acc_bytes()
        split = min(target // tiles, steps // 2, WORKSPACE // per)
        if split < 2 or tiles * 2 > target or read < 2 * LEAST_SLICE:
            return 1, 0
        split = -(-steps // -(-steps // split))
        return split, split * per


def _nearest(tensor: Tensor, extents: Sequence[int]) -> float:
    """Smallest distance between neighbours along any mode; unit strides before equal distances backwards."""
    steps = [abs(s) + (0 if s > 0 else 0.5) for s, e in zip(tensor.strides, extents, strict=True) if s and e > 1]
    return min(steps, default=math.inf)


def _ceil_pow2(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _floor_pow2(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _access(way: Way, group: str) -> Access:
    return Access(group, way.width, False, group, SmemLayout(1, LINE, LINE))
