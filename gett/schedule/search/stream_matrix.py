"""The search of products with a small matrix: the largest operand is read once, in its own order.

Gates of quantum circuits, Kraus operators, changes of a small basis: few contracted elements and few new ones, so the
time is that of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, D, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.lower import swap_ab
from gett.schedule.mainloops.stream_matrix import MATRIX, RULES, matrix_bytes
from gett.schedule.rules.rule import first_broken
from gett.schedule.search.base import Search
from gett.schedule.search.stream_boxes import cut_box
from gett.schedule.search.tried import STREAMING
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.mainloop import StreamMatrix
from gett.schedule.spec.schedule import Forecast, OneTile, Schedule, SmemPlan, Tiling
from gett.schedule.spec.stream_views import TensorView, cut_modes, matrix_views, vector_along, view_of
from layouts.access import run_of_boxes
from layouts.box import Box
from layouts.modes import Strided
from layouts.rates import run_cost


@dataclass(frozen=True, slots=True)
class MatrixChoice:
    """The box of M and the vectors that it allows."""

    box: Box
    loop: StreamMatrix


class StreamMatrixSearch(Search[MatrixChoice]):
    """One assignment of roles: A is the operand that is streamed."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        self.plan, self.facts, self.exchanged = swap_ab(plan) if exchanged else plan, facts, exchanged
        self.device = nearest(facts)
        self.views = matrix_views(self.plan, self.plan.m)
        self.box_k = _whole(self.plan.k, A)
        self.box_n = _whole(self.plan.n, D)

    @property
    def takes(self) -> bool:
        """Whether the plan is a large operand times a small matrix."""
        p = self.plan
        small = 2 <= p.extent_k <= MATRIX and 2 <= p.extent_n <= MATRIX and p.extent_m >= STREAMING.fewest
        large = p.extent_m * p.extent_l >= STREAMING.smallest
        return small and large and p.b is not None

    def choices(self) -> Iterator[MatrixChoice]:
        """Boxes that give A and D runs of several lengths."""
        if not self.takes:
            return
        a, d = self.views[A], self.views[D]
        extents = tuple(s.extent for s in self.plan.m)
        seen = set()
        for run_d in STREAMING.runs:
            for run_a in STREAMING.runs:
                vector = max(1, 16 // max(a.size, d.size))
                volume = (
                    STREAMING.threads * vector * 2
                )  # of more, blocks wait for their last vectors (H200: 2 % slower)
                box = cut_box(extents, [(d, run_d), (a, run_a)], (d, a), volume, d.order(range(len(extents))))
                if box not in seen:
                    seen.add(box)
                    yield MatrixChoice(box, self._loop(box))

    def _loop(self, box: Box) -> StreamMatrix:
        """The widest vectors: along M where both tensors' rows run there, else along K and N."""
        cuts, extents = cut_modes(box), box.extents
        widest = max(x.size for x in self.views.values())
        vector = min(vector_along(cuts, extents, x) for x in self.views.values())
        vector = max(1, min(vector, 16 // widest))
        along_k = along_n = 1
        if vector == 1:
            along_k = _vector(self.box_k, view_of(self.plan, A, self.plan.k))
            stored = (x for t, x in matrix_views(self.plan, self.plan.n).items() if t != A)
            along_n = min(_vector(self.box_n, x) for x in stored)
        lanes_n = self._lanes_n(box, vector) if along_n == 1 else 1
        held = self.plan.extent_k * vector * self.views[A].size // lanes_n
        vectors = -(-box.size * lanes_n // (vector * STREAMING.threads))
        return StreamMatrix(
            STREAMING.threads,
            vector,
            along_k,
            along_n,
            max(1, min(4, STREAMING.matrix_bytes // held, vectors)),
            lanes_n,
        )

    def _lanes_n(self, box: Box, vector: int) -> int:
        """Two lanes share a vector where D's rows along M are short and go on along N, so that stores fill sectors."""
        along_m, along_n = self.views[D], view_of(self.plan, D, self.plan.n)
        run = max(run_of_boxes([(box, along_m.strides)], along_m.size), vector * along_m.size)
        if run >= STREAMING.shared_run:
            return 1
        return 2 if any(along_n.strides[mode] == run and cut % 2 == 0 for mode, cut in cut_modes(self.box_n)) else 1

    def estimate(self, choice: MatrixChoice) -> Estimate:
        """The bytes at the rates of their runs, or the multiply-adds."""
        p, loop, memory, rates = self.plan, choice.loop, self.device.memory, self.device.streams
        us, by_width = 0.0, dict(rates.matrix_widths)
        for tensor, view in self.views.items():
            group, box = (p.k, self.box_k) if tensor == A else (p.n, self.box_n)
            strides = [s.strides[tensor] for s in group]
            run = run_of_boxes(((choice.box, view.strides), (box, strides)), view.size)
            width = view.size * loop.vector * (loop.vector_k if tensor == A else loop.vector_n)
            long = run_cost(memory, memory.long_run, store=view.store)
            us += view.bytes * run_cost(memory, run, store=view.store) / long * by_width[width]
        us /= memory.copy_tbps * rates.matrix_share * 1e6
        clocks = p.flops / 2 / (rates.matrix_lanes * self.facts.sm_count)
        arithmetic = clocks / (self.facts.clock_ghz * 1e3)
        bound = "DRAM" if us >= arithmetic else "arithmetic"
        return Estimate(max(us, arithmetic) + self.device.launches.launch_us, bound, 1)

    def lower(self, choice: MatrixChoice, estimate: Estimate) -> Iterable[Schedule]:
        """The schedule, none where it breaks a rule."""
        p, loop, box = self.plan, choice.loop, choice.box
        shape = box.size, self.box_n.size, self.box_k.size
        tiling = Tiling(shape, box, self.box_n, self.box_k, swap_ab=self.exchanged)
        reason = f"operand {'AB'[p.swapped]} streamed, times {p.extent_k} x {p.extent_n}"
        made = Schedule(
            arch=self.facts.arch,
            tiling=tiling,
            mainloop=loop,
            epilogue=Epilogue(
                VectorStore(loop.vector * loop.vector_n), VectorSource() if p.contraction.c is not None else None
            ),
            scheduler=OneTile(),
            smem=SmemPlan(matrix_bytes(p, tiling)),
            forecast=Forecast(estimate.us, estimate.bound, reason),
        )
        return [] if first_broken(RULES, made, p, self.facts) else [made]


def _whole(modes: tuple[Strided, ...], tensor: int) -> Box:
    """All of a group, in a tensor's order."""
    order = sorted(range(len(modes)), key=lambda m: abs(modes[m].strides[tensor]) or 1 << 62)
    extents = tuple(s.extent for s in modes)
    return Box.of_cuts(extents, {m: extents[m] for m in order}, order)


def _vector(box: Box, view: TensorView) -> int:
    """Widest access in elements along all of a group."""
    widest = vector_along(cut_modes(box), box.extents, view)
    return max(1, min(widest, 16 // view.size))
