"""The search of bandwidth-bound kernels: one choice, which there is whatever the strides are.

At worst single elements go straight from and to memory. Any plan can be run this way; matrix products run slowly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.stream import stream_estimate, sum_slices
from gett.schedule.mainloops.stream import LIMITS, stream_bytes, sum_block
from gett.schedule.rules.rule import first_broken
from gett.schedule.search.base import Search
from gett.schedule.search.stream_map import map_loop
from gett.schedule.search.stream_sum import SumProblem, sum_loop, sum_problem
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.mainloop import Stream
from gett.schedule.spec.schedule import Forecast, OneTile, Schedule, SmemPlan, Tiling
from gett.schedule.spec.stream_views import cut_modes, output_modes, output_views, sum_views
from layouts.box import Box


class StreamSearch(Search[Schedule]):
    """What may be tried for one plan; the choice is a schedule without a split of K.

    Attributes:
        refusal: Why the schedule was refused, "" where it was not.
    """

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        self.plan, self.facts = plan, facts
        self.tensors = output_views(plan)
        self.accumulator = data_type(plan.contraction.dtype).accumulator_bytes
        self.extents = tuple(s.extent for s in output_modes(plan))
        self.problem: SumProblem | None = None
        if plan.extent_k != 1:
            extents_k = tuple(s.extent for s in plan.k) if plan.extent_k else ()
            self.problem = sum_problem(self.tensors, sum_views(plan), self.extents, extents_k, self.accumulator)
        self.refusal = ""

    def choices(self) -> Iterator[Schedule]:
        """The schedule without a split."""
        if self.problem is None:
            box, loop = map_loop(self.extents, self.tensors, self.facts, nearest(self.facts))
            cut = " x ".join(str(c) for _, c in cut_modes(box)) or "1"
            names = "".join(n for n, x in (("A", loop.a), ("B", loop.b), ("C", loop.c)) if x is not None and x.staged)
            how = f"{names} through shared memory" if names else "all accesses in D's order"
            yield self._schedule((box.size, 1, 1), box, Box((), ()), loop, f"a {cut} box, {how}")
        else:
            box_o, box_k, sums = sum_loop(self.problem, self.facts)
            how = f"threads own outputs, {sums.lanes_k} share one"
            if sums.along_k:
                how = f"{sums.lanes_k} lanes add up one output"
            reason = f"{'AB'[self.problem.big]} streamed along {'K' if sums.along_k else 'D'}'s modes, {how}"
            yield self._schedule(sum_block(sums), box_o, box_k, sums, reason)

    def estimate(self, choice: Schedule) -> Estimate:
        """Expected time, with K split where few tiles leave multiprocessors idle."""
        t, split = choice.tiling, 1
        if self.problem is not None:
            read = self.problem.sums[self.problem.big].bytes
            split = sum_slices(self.facts, t.m, t.k, read, t.shape[0] * self.accumulator)
        return stream_estimate(self.plan, nearest(self.facts), t, self.tensors, split)

    def lower(self, choice: Schedule, estimate: Estimate) -> Iterable[Schedule]:
        """The schedule with its split, none where it breaks a limit."""
        t, split = choice.tiling, estimate.split_k
        reason = choice.forecast.reason
        if split > 1:
            reason += f"; {t.m.tiles} tiles leave SMs idle, so K in {split} slices"
        workspace = split * max(1, t.m.tiles) * t.shape[0] * self.accumulator if split > 1 else 0
        forecast = Forecast(estimate.us, estimate.bound, reason)
        made = replace(choice, scheduler=OneTile(split_k=split), workspace_bytes=workspace, forecast=forecast)
        broken = first_broken(LIMITS, made, self.plan, self.facts)
        self.refusal = "" if broken is None else broken.reason
        return [] if broken is not None else [made]

    def _schedule(self, block: tuple[int, int, int], box: Box, box_k: Box, loop: Stream, reason: str) -> Schedule:
        source = VectorSource() if self.plan.contraction.c is not None else None
        tiling = Tiling(block, box, Box((), ()), box_k)
        return Schedule(
            arch=self.facts.arch,
            tiling=tiling,
            mainloop=loop,
            epilogue=Epilogue(VectorStore(loop.stored_vector), source),
            scheduler=OneTile(),
            smem=SmemPlan(stream_bytes(self.plan, tiling, loop)),
            forecast=Forecast(reason=reason),
        )
