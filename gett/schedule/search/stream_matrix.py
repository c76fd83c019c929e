"""The schedules of products with a small matrix: the largest operand is read once, in its own order.

Gates of quantum circuits, Kraus operators, changes of a small basis: few contracted elements and few new ones, so the
time is that of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, C, D, GemmPlan
from gett.schedule.lower import swap_ab
from gett.schedule.mainloops.stream import MATRIX_RULES, is_small_matrix
from gett.schedule.rules.rule import first_broken
from gett.schedule.search.stream import schedule_of
from gett.schedule.search.stream_boxes import cut_box
from gett.schedule.search.tried import STREAMING
from gett.schedule.spec.mainloop import StreamMatrix
from gett.schedule.spec.schedule import Forecast, Schedule, Tiling
from gett.schedule.spec.stream_views import TensorView, cut_modes, views_of
from layouts.access import contiguous_run, run_of_boxes
from layouts.box import Box, place_of
from layouts.rates import L2_LINE, run_cost

TOGETHER = 32
"""Multiply-adds of a vector up to which its sums are interleaved and stores follow each other (kernel: `kStores`)."""


def matrix_schedules(plan: GemmPlan, facts: ArchFacts) -> list[Schedule]:
    """The schedules of a plan, best first; none where it is no large operand times a small matrix."""
    for exchanged in (False, True):
        p = swap_ab(plan) if exchanged else plan
        small = is_small_matrix(p.extent_k, p.extent_n) and p.extent_m >= STREAMING.fewest
        if small and p.extent_m * p.extent_l >= STREAMING.smallest and p.b is not None:
            search = _Matrix(p, facts, exchanged)
            found = (s for box in search.boxes() for s in search.schedules(box))
            legal = [s for s in found if first_broken(MATRIX_RULES, s, p, facts) is None]
            return sorted(legal, key=lambda s: s.forecast.us)
    return []


class _Matrix:
    """A plan whose A is streamed, and whose B is a small matrix."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        self.plan, self.facts, self.exchanged = plan, facts, exchanged
        self.views, self.views_n = views_of(plan, plan.m, (A, D, C)), views_of(plan, plan.n, (D, C))
        self.view_k = views_of(plan, plan.k, (A,))[A]
        self.box_k, self.box_n = _whole(self.view_k), _whole(self.views_n[D])

    def boxes(self) -> list[Box]:
        """Boxes of M that give A and D runs of several lengths; one or two vectors of each thread.

        Of more, blocks wait for their last vectors (H200: 2 % slower).
        """
        a, d = self.views[A], self.views[D]
        vector = max(1, 16 // max(a.size, d.size))
        volumes = dict.fromkeys(STREAMING.threads * x for x in (vector * 2, vector, 1))
        runs = [[(d, run_d), (a, run_a)] for run_d in STREAMING.runs for run_a in STREAMING.runs]
        return list(dict.fromkeys(cut_box(x, (d, a), volume) for volume in volumes for x in runs))

    def schedules(self, box: Box) -> Iterator[Schedule]:
        """The schedules of a box of M."""
        tiling = Tiling(
            (box.size, self.box_n.size, self.box_k.size), box, self.box_n, self.box_k, swap_ab=self.exchanged
        )
        for loop in self._loops(box):
            yield schedule_of(self.plan, self.facts, tiling, loop, self._forecast(box, loop))

    def _loops(self, box: Box) -> Iterator[StreamMatrix]:
        """The widest vectors: along M where both tensors' rows run there, else along K and N."""
        views = self.views.values()
        vector = min(_widest(box, x) for x in views)
        vector = max(1, min(vector, 16 // max(x.size for x in views)))
        along_k = along_n = 1
        if vector == 1:
            along_k = _widest(self.box_k, self.view_k)
            along_n = min(_widest(self.box_n, x) for x in self.views_n.values())
        pairs = self._pairs(box, vector, along_n)
        for lanes_n in (pairs,) if pairs > 1 else dict.fromkeys((1, self._lanes_of_row(vector, along_n))):
            held = max(1, self.plan.extent_k * vector * self.views[A].size // lanes_n)
            vectors = -(-box.size * lanes_n // (vector * STREAMING.threads))
            unroll = max(1, min(4, STREAMING.matrix_bytes // held, vectors))
            yield StreamMatrix(STREAMING.threads, vector, along_k, along_n, unroll, lanes_n)

    def _pairs(self, box: Box, vector: int, along_n: int) -> int:
        """Two lanes share a vector where D's rows along M are short and go on along N, so that stores fill sectors."""
        along_m, rows = self.views[D], self.views_n[D]
        run = max(run_of_boxes([(box, along_m.strides)], along_m.size), vector * along_m.size)
        shares = any(rows.strides[mode] == run and cut % 2 == 0 for mode, cut in cut_modes(self.box_n))
        return 2 if shares and along_n == 1 and run < STREAMING.shared_run else 1

    def _lanes_of_row(self, vector: int, along_n: int) -> int:
        """As many lanes share a vector as D continues it along N in a line, where a thread's stores would be apart."""
        rows, (n, k) = self.views_n[D], (self.plan.extent_n, self.plan.extent_k)
        if n * k <= TOGETHER or rows.strides[rows.order()[0]] != rows.size:
            return 1
        most = min(contiguous_run(self.box_n, rows.strides, rows.size), L2_LINE) // (vector * along_n * rows.size)
        return max(x for x in range(1, max(1, most) + 1) if n // along_n % x == 0)

    def _forecast(self, box: Box, loop: StreamMatrix) -> Forecast:
        """The bytes at the rates of their runs, or the multiply-adds."""
        p, device = self.plan, nearest(self.facts)
        memory, rates = device.memory, device.streams
        us = 0.0
        for tensor, view in self.views.items():
            other, whole = (self.view_k, self.box_k) if tensor == A else (self.views_n[tensor], self.box_n)
            run = run_of_boxes(((box, view.strides), (whole, other.strides)), view.size)
            long = run_cost(memory, memory.long_run, store=view.store)
            us += view.bytes * run_cost(memory, run, store=view.store) / long
        us /= memory.copy_tbps * rates.matrix_share * 1e6
        clocks_of_us, blocks = self.facts.clock_ghz * 1e3, -(-box.tiles * p.extent_l // self.facts.sm_count)
        clocks = {"DRAM": us * clocks_of_us}
        clocks["arithmetic"] = p.flops / 2 / (rates.matrix_lanes * self.facts.sm_count)
        # A line takes a clock; loads, sums and stores of a block follow each other, unless there are others.
        lines = {tensor: self._lines(box, loop, tensor) for tensor in self.views}
        clocks["lines"] = sum(lines.values()) * (blocks + 1)
        # Parts of a line that a warp stores one right after the other leave together.
        start = device.launches.launch_us
        if p.extent_k * p.extent_n > TOGETHER:
            start += rates.matrix_start_us
            clocks["stores"] = lines[D] * box.tiles * p.extent_l / rates.matrix_stores
        bound = max(clocks, key=lambda name: clocks[name])
        # Lanes of a row read the same of A, each as often as if it were alone.
        us = clocks[bound] / clocks_of_us * (rates.matrix_rows if loop.lanes_n > 2 else 1.0)
        reason = f"operand {'AB'[p.swapped]} streamed, times {p.extent_k} x {p.extent_n}"
        return Forecast(start + us, bound, reason)

    def _lines(self, box: Box, loop: StreamMatrix, tensor: int) -> float:
        """Lines of L2 that a block's warps touch with all accesses to a tensor."""
        cuts, view, rows = cut_modes(box), self.views[tensor], 32 * loop.vector // loop.lanes_n
        sizes, steps = [cut for _, cut in cuts], [view.strides[mode] for mode, _ in cuts]
        bytes_of = (place_of(i, sizes, steps) for i in range(0, min(rows, box.size), loop.vector))
        beside = _beside(loop, tensor)
        # Lanes that share a vector read the same of A, and store other columns.
        accesses = self.plan.extent_k / beside if tensor == A else self.plan.extent_n / (beside * loop.lanes_n)
        width = view.size * loop.vector * beside * (1 if tensor == A else loop.lanes_n)
        touched = len({x // L2_LINE for first in bytes_of for x in (first, first + width - 1)})
        return accesses * touched * -(-box.size // rows)


def _beside(loop: StreamMatrix, tensor: int) -> int:
    """Elements of an access along K or N."""
    return loop.vector_k if tensor == A else loop.vector_n


def _whole(view: TensorView) -> Box:
    """All of a group, in a tensor's order."""
    order = view.order()
    return Box.of_cuts(view.extents, {m: view.extents[m] for m in order}, order)


def _widest(box: Box, view: TensorView) -> int:
    """Widest access in elements along the index of a box."""
    return view.vector(cut_modes(box))
