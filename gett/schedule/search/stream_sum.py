"""Tiles of sums: which threads walk K, and which outputs each owns.

The largest operand is streamed in its own order and decides: its nearest mode lies in K (lanes add up) or among the
outputs (threads own them).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, C, D
from gett.schedule.mainloops.stream import ROW_BYTES
from gett.schedule.search.stream_boxes import cut_box, walk_in_order
from gett.schedule.search.tried import STREAMING
from gett.schedule.spec.mainloop import StreamLoad, StreamSum
from gett.schedule.spec.stream_views import TensorView, cut_modes, is_splat, vector_along
from layouts.box import Box


@dataclass(frozen=True, slots=True)
class SumProblem:
    """A plan with sums, as this search sees it.

    Attributes:
        outputs: Each tensor's view of D's modes.
        sums: Each operand's view of K.
        extents_o, extents_k: Of D's modes and of K.
        accumulator: Bytes of a sum.
        big: The operand that is streamed: the largest.
        along_k: Whether its nearest mode is a contracted one.
    """

    outputs: Mapping[int, TensorView]
    sums: Mapping[int, TensorView]
    extents_o: tuple[int, ...]
    extents_k: tuple[int, ...]
    accumulator: int
    big: int
    along_k: bool

    @property
    def small(self) -> list[int]:
        """The operands that are not streamed."""
        return [t for t in self.sums if t != self.big]

    @property
    def vectors(self) -> tuple[Mapping[int, TensorView], tuple[int, ...]]:
        """Views and extents of the group along which vectors lie."""
        return (self.sums, self.extents_k) if self.along_k else (self.outputs, self.extents_o)


def sum_problem(
    outputs: Mapping[int, TensorView],
    sums: Mapping[int, TensorView],
    extents_o: tuple[int, ...],
    extents_k: tuple[int, ...],
    accumulator: int,
) -> SumProblem:
    """The problem with the operand that is streamed; arguments as `SumProblem` has them."""
    big = max(sums, key=lambda t: outputs[t].bytes)
    along_k = _least_step(sums[big], extents_k) < _least_step(outputs[big], extents_o)
    return SumProblem(outputs, sums, extents_o, extents_k, accumulator, big, along_k)


def sum_loop(problem: SumProblem, facts: ArchFacts) -> tuple[Box, Box, StreamSum]:
    """Boxes of D's modes and of K for the widest vector that they allow, and how tensors are read."""
    p = problem
    views, extents = p.vectors
    cuts = [(m, extents[m]) for m in views[p.big].order(range(len(extents)))]
    allowed, vector = vector_along(cuts, extents, views[p.big]), 0
    while allowed != vector:
        vector = allowed
        lanes_k, rows, unroll = _threads(p, facts, vector)
        box_o, box_k = _boxes(p, vector, lanes_k, rows, unroll)
        cuts = cut_modes(box_k if p.along_k else box_o)
        allowed = _vector(p, cuts, vector)
    shared = {t: all(p.outputs[t].strides[m] == 0 for m, _ in cut_modes(box_o)) for t in p.sums}
    loads = {
        t: StreamLoad(
            splat=vector > 1 and is_splat(cuts, views[t], vector),
            width=min(vector, vector_along(cuts, extents, views[t])),
            shared=shared[t],
        )
        for t in p.sums
    }
    c = StreamLoad() if C in p.outputs else None
    walk_d = walk_in_order(box_o, p.outputs[D])
    loop = StreamSum(loads[A], loads.get(B), c, STREAMING.threads, vector, p.along_k, lanes_k, rows, unroll, walk_d)
    return box_o, box_k, loop


def _threads(p: SumProblem, facts: ArchFacts, vector: int) -> tuple[int, int, int]:
    """(threads along K, vectors of outputs a thread, steps of K in flight)."""
    volume_o, volume_k = math.prod(p.extents_o), math.prod(p.extents_k)
    busy = facts.sm_count * 1024  # threads that keep the memory busy
    if p.along_k:
        vectors = max(1, -(-volume_k // vector))
        lanes = min(_ceil_pow2(vectors), 32 if volume_o * 32 >= busy else STREAMING.threads)
    else:
        vectors = max(1, volume_k)
        owners = _ceil_pow2(-(-max(1, volume_o) // vector))
        lanes = 1 if owners >= 2 * busy else min(STREAMING.threads // min(owners, 32), _ceil_pow2(vectors))
    unroll = min(STREAMING.accesses // 2 if p.small else STREAMING.accesses, _ceil_pow2(-(-vectors // lanes)))
    outputs = 1 if p.along_k else vector
    spare = max(1, volume_o // (STREAMING.threads // lanes * outputs * facts.sm_count * 4))
    most = max(1, STREAMING.held_bytes // (p.accumulator * outputs))
    return lanes, min(max(1, STREAMING.accesses // unroll), most, 1 << (spare.bit_length() - 1)), unroll


def _boxes(p: SumProblem, vector: int, lanes_k: int, rows: int, unroll: int) -> tuple[Box, Box]:
    """Boxes of D's modes and of K, both in the streamed operand's order."""
    big_o, big_k, d = p.outputs[p.big], p.sums[p.big], p.outputs[D]
    step_k = lanes_k * unroll * (vector if p.along_k else 1)
    owned = STREAMING.threads // lanes_k * rows * (1 if p.along_k else vector)
    row = 8 * vector * big_k.size
    heavy = [t for t in p.small if p.sums[t].bytes * 8 > big_k.bytes]
    runs_k = [(big_k, row), *((p.sums[t], ROW_BYTES) for t in heavy)]
    runs_o = [(big_o, row), *((p.outputs[t], ROW_BYTES) for t in heavy)]
    if d.bytes * 16 >= big_o.bytes:
        runs_o.append((d, ROW_BYTES))
    order_o, order_k = big_o.order(range(len(p.extents_o))), big_k.order(range(len(p.extents_k)))
    return (
        cut_box(p.extents_o, runs_o, (big_o, d), owned, order_o),
        cut_box(
            p.extents_k,
            runs_k,
            (big_k, *(p.sums[t] for t in p.small)),
            step_k,
            order_k,
            idle=0.25 if p.along_k else 1.0,
        ),
    )


def _vector(p: SumProblem, cuts: Sequence[tuple[int, int]], vector: int) -> int:
    """The widest vector that all operands can follow: one access, one repeated element, or one stride."""
    views, extents = p.vectors
    vector = min(vector, vector_along(cuts, extents, views[p.big]))
    for t in p.small:
        whole = is_splat(cuts, views[t], vector) or vector_along(cuts, extents, views[t]) >= vector
        if cuts and cuts[0][1] % vector and not whole:
            vector = math.gcd(vector, cuts[0][1] & -cuts[0][1])
    return vector


def _least_step(tensor: TensorView, extents: Sequence[int]) -> float:
    """Smallest distance between neighbours along any mode; unit strides before equal distances backwards."""
    steps = [abs(s) + (0 if s > 0 else 0.5) for s, e in zip(tensor.strides, extents, strict=True) if s and e > 1]
    return min(steps, default=math.inf)


def _ceil_pow2(n: int) -> int:
    return 1 << (n - 1).bit_length()
