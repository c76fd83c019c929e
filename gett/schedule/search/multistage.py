"""The search of the multistage main loops, `mma.sync` and multiply-adds: tiles, boxes, loaders, stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import data_type, tensor_type
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import Estimate, bounded_split, traffic_us
from gett.schedule.cost.multistage import MultistageCost
from gett.schedule.mainloops.multistage import LIMITS, multistage_smem
from gett.schedule.rules.rule import first_broken
from gett.schedule.search.base import Later, Search
from gett.schedule.search.boxing import Weight, cut_group, partner_modes
from gett.schedule.search.loaders import operand_loader
from gett.schedule.search.mma_tiles import (
    MmaTile,
    batch_warps,
    batched_tiles,
    fallback_tiles,
    mma_tiles,
    stage_counts,
    uses_tensor_cores,
    with_more_warps,
)
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import Forecast, OneTile, Schedule, Tiling
from gett.schedule.spec.vectors import store_vector
from layouts.box import Box
from layouts.modes import Strided, unit_mode


class MultistageSearch(Search[Schedule]):
    """What may be tried for one plan; a choice is a schedule without a split of K.

    Args:
        plan: What to run, a matrix product.
        facts: Of the GPU.
        fallback: Whether only tiles that meet the limits of a thread whatever the strides are shall be tried.

    Attributes:
        refusal: Why the last tile was refused, "" where none was.
    """

    def __init__(self, plan: GemmPlan, facts: ArchFacts, *, fallback: bool = False) -> None:
        self.plan, self.facts, self.fallback = plan, facts, fallback
        c = plan.contraction
        self.tensor_cores = uses_tensor_cores(plan)
        self.size = itemsize(c.dtype)
        self.accumulator = data_type(c.dtype).accumulator_bytes
        self.device = nearest(facts)
        self.time = traffic_us(plan, self.device)
        if self.tensor_cores:
            rate = facts.tensor_tflops[tensor_type(c.dtype).name] * facts.mma_sync_share
        else:
            rate = facts.fma_tflops[c.dtype]
        self.compute = plan.flops / rate * 1e-6
        self.cost = MultistageCost(plan, facts)
        self.refusal = ""
        self._boxes: dict[tuple[str, int], list[Box]] = {}
        self._loaders: dict[tuple[int, Box, int, Box, int, Box | None], CpAsync | RegisterStaged] = {}
        self._lowered: set[tuple[Tiling, tuple[int, int]]] = set()

    def choices(self) -> Iterator[Schedule | Later[Schedule]]:
        """Schedules of all tiles that meet the limits; several that differ in their stages."""
        if self.fallback:
            for tile in fallback_tiles(self.size, self.tensor_cores):
                yield from self._schedules(tile)
            return
        for tile in mma_tiles(self.plan, self.tensor_cores):
            more = with_more_warps(tile, self.tensor_cores)
            least_us = min(self._least_us(x) for x in (tile, more) if x is not None)
            yield Later(least_us, partial(self._with_more_warps, tile, more))
        for tile in batched_tiles(self.plan, self.tensor_cores):
            yield Later(self._least_us(tile), partial(self._schedules, tile))

    @property
    def least(self) -> float:
        """A bound of the estimates of all choices."""
        return min((x.least_us for x in self.choices() if isinstance(x, Later)), default=0.0)

    def _least_us(self, tile: MmaTile) -> float:
        """A bound of the estimates of a tile's schedules."""
        return self.cost.least_us((tile.m, tile.n, tile.k), tile.warps, tile.threads, tile.batches)

    def _with_more_warps(self, tile: MmaTile, more: MmaTile | None) -> Iterator[Schedule]:
        """Those of a tile; what goes through registers wants more threads, few tiles more of them to hide latency."""
        made = self._schedules(tile)
        yield from made
        copied = not any(x.through_registers for s in made for x in (s.multistage.a, s.multistage.b))
        many = made and made[0].tiling.tiles(self.plan.extent_l) > 2 * self.facts.sm_count
        if more is not None and not (copied and many):
            yield from self._schedules(more)

    def estimate(self, choice: Schedule) -> Estimate:
        """Expected time at the best split of K."""
        return self.cost.estimate(choice)

    def lower(self, choice: Schedule, estimate: Estimate) -> Iterable[Schedule]:
        """The schedule with its split; none where the same tile is faster with other stages."""
        t, loop = choice.tiling, choice.multistage
        if (t, loop.warps) in self._lowered:
            return []
        self._lowered.add((t, loop.warps))
        tiles = t.tiles(self.plan.extent_l)
        partial, limit = t.shape[0] * t.shape[1] * self.accumulator, self.facts.workspace_limit
        split, workspace = bounded_split(estimate.split_k, partial, tiles, t.k.tiles, limit)
        smem = multistage_smem(self.plan, t, loop.a, loop.b, loop.k_table).plan(loop.stages, split > 1)
        m, n, k = t.shape
        useful = t.m.efficiency(m) * t.n.efficiency(n)
        reasons = [f"{m} x {n} x {k} tiles", f"{useful:.0%} of them useful"]
        if split > 1:
            reasons.append(f"K in {split} slices because {tiles} tiles leave SMs idle")
        if loop.k_table:
            reasons.append("K flattened through an offset table")
        return [
            replace(
                choice,
                scheduler=OneTile(choice.scheduler.group_m, split),
                smem=smem,
                workspace_bytes=workspace,
                forecast=Forecast(estimate.us, estimate.bound, ", ".join(reasons)),
            )
        ]

    def _schedules(self, tile: MmaTile) -> list[Schedule]:
        """Those of one tile: for each combination of boxes, several stages."""
        box_l = self._group_boxes("l", tile.batches)[0] if tile.batches > 1 else None
        return [
            made
            for box_k in self._group_boxes("k", tile.k)[:2]
            for box_m in self._group_boxes("m", tile.m)[:2]
            for box_n in self._group_boxes("n", tile.n)[:2]
            for made in self._staged(tile, Tiling((tile.m, tile.n, tile.k), box_m, box_n, box_k, box_l))
        ]

    def _staged(self, tile: MmaTile, t: Tiling) -> list[Schedule]:
        """Schedules with several stages, none where the most stages break a limit."""
        plan, facts, c = self.plan, self.facts, self.plan.contraction
        a, b = self._loader(A, t, t.m, tile.m), self._loader(B, t, t.n, tile.n)
        smem = multistage_smem(plan, t, a, b, t.k.flattens)
        stages = stage_counts(facts, smem, t.k.tiles, not (a.through_registers and b.through_registers))
        if not stages:
            pair = smem.stage + smem.k_slot
            limit = f"({facts.smem_per_block} bytes on {facts.arch})"
            self.refusal = f"two stages of {pair} bytes exceed the shared memory of a block {limit}"
            return []
        store = VectorStore(store_vector(plan, t.m, t.n, t.l))
        epilogue = Epilogue(store, VectorSource() if c.c is not None else None)
        # Tiles of M are visited together near a square of what runs at once, all of M where it is short.
        scheduler = OneTile(max(1, min(8, t.m.tiles)) if t.n.tiles > 1 else 1)
        warps = batch_warps(t.batches) if t.l is not None else 1
        made = []
        for count in stages:
            loop = Multistage(a, b, self.tensor_cores, count, tile.warps, warps, t.k.flattens)
            made.append(Schedule(facts.arch, t, loop, epilogue, scheduler, smem.plan(count)))
        broken = first_broken(LIMITS, made[-1], plan, facts)
        self.refusal = self.refusal if broken is None else broken.reason
        return made if broken is None else []

    def _loader(self, tensor: int, t: Tiling, box: Box, side: int) -> CpAsync | RegisterStaged:
        """The loader of an operand, worked out once for boxes that many tiles share."""
        key = tensor, box, side, t.k, t.shape[2], t.l
        if key not in self._loaders:
            self._loaders[key] = operand_loader(self.plan, tensor, t, self.tensor_cores)
        return self._loaders[key]

    def _group_boxes(self, group: str, block: int) -> list[Box]:
        """Boxes of one group at one block size, the best first."""
        if (group, block) not in self._boxes:
            plan = self.plan
            modes, tensors = self._group(group)
            other = plan.n if group == "m" else plan.m
            weights = []
            for t in tensors:
                partners = partner_modes(other, D) if t == D and group != "l" else ()
                strides = tuple(s.strides[t] for s in modes)
                weights.append(Weight(strides, plan.size(t), self.time[t], t == D, partners))
            units = [unit_mode(modes, t, plan.size(t)) for t in tensors]
            first = {"l": None, "k": units[1] if units[0] is None else units[0]}.get(group, units[0])
            extents = tuple(s.extent for s in modes)
            self._boxes[group, block] = cut_group(
                self.device.memory, extents, block, weights, first, self.compute, group == "k"
            )
        return self._boxes[group, block]

    def _group(self, group: str) -> tuple[tuple[Strided, ...], tuple[int, ...]]:
        """Modes of a group, and the tensors that have it, the one that decides first."""
        if group == "l":
            return self.plan.l, (D, A, B)
        if group == "k":
            return self.plan.k, (A, B) if self.time[A] >= self.time[B] else (B, A)
        return (self.plan.m, (A, D)) if group == "m" else (self.plan.n, (B, D))
