"""The search of the multistage main loops, `mma.sync` and multiply-adds: tiles, boxes, loaders, stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import tensor_type
from gett.ir.gemm import A, B, D, GemmPlan
from gett.schedule.cost.estimate import Estimate, bounded_split, traffic_us
from gett.schedule.cost.multistage import MultistageCost
from gett.schedule.mainloops.multistage import LIMITS, multistage_smem
from gett.schedule.rules.rule import first_broken
from gett.schedule.search import mma_tiles as tiles
from gett.schedule.search.base import Later, Search
from gett.schedule.search.boxing import Weight, cut_group, partner_modes
from gett.schedule.search.loaders import operand_loader
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
        self.cost = MultistageCost(plan, facts)
        self.tensor_cores = self.cost.tensor_cores
        self.memory, self.time = self.cost.device.memory, traffic_us(plan, self.cost.device)
        dtype = plan.contraction.dtype
        if self.tensor_cores:
            rate = facts.tensor_tflops[tensor_type(dtype).name] * facts.mma_sync_share
        else:
            rate = facts.fma_tflops[dtype]
        self.compute = plan.flops / rate * 1e-6
        self.refusal = ""
        heavier = (A, B) if self.time[A] >= self.time[B] else (B, A)
        self._groups = {
            "l": self._group(plan.l, (D, A, B), (), ()),
            "m": self._group(plan.m, (A, D), (A,), plan.n),
            "n": self._group(plan.n, (B, D), (B,), plan.m),
            "k": self._group(plan.k, heavier, heavier, ()),
        }
        self._boxes: dict[tuple[str, int], list[Box]] = {}
        self._loaders: dict[tuple[int, Box, int, Box, int, Box | None], CpAsync | RegisterStaged] = {}

    def choices(self) -> Iterator[Later[Schedule]]:
        """Schedules of all tiles that meet the limits."""
        yield from self._tiles

    @property
    def least(self) -> float:
        """A bound of the estimates of all choices."""
        return min((x.least_us for x in self._tiles), default=0.0)

    @cached_property
    def _tiles(self) -> list[Later[Schedule]]:
        """The schedules of each tile, and of the same with more warps, when they may be among the best."""
        found = []
        for enumerate_tiles in (tiles.fallback_tiles,) if self.fallback else (tiles.mma_tiles, tiles.batched_tiles):
            for tile in enumerate_tiles(self.plan, self.tensor_cores):
                more = None if self.fallback else tiles.with_more_warps(tile, self.tensor_cores)
                bounds = (self._least_us(x) for x in (tile, more) if x is not None)
                found.append(Later(min(bounds), partial(self._with_more_warps, tile, more)))
        return found

    def _least_us(self, tile: tiles.MmaTile) -> float:
        """A bound of the estimates of a tile's schedules."""
        return self.cost.least_us(tile.shape, tile.warps, tile.threads, tile.batches)

    def _with_more_warps(self, tile: tiles.MmaTile, more: tiles.MmaTile | None) -> Iterator[Schedule]:
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
        """The schedule with its split."""
        t, loop = choice.tiling, choice.multistage
        count = t.tiles(self.plan.extent_l)
        partial_bytes = t.shape[0] * t.shape[1] * self.cost.type.accumulator_bytes
        limit = self.facts.workspace_limit
        split, workspace = bounded_split(estimate.split_k, partial_bytes, count, t.k.tiles, limit)
        smem = multistage_smem(self.plan, t, loop.a, loop.b, loop.k_table).plan(loop.stages, split > 1)
        m, n, k = t.shape
        useful = t.m.efficiency(m) * t.n.efficiency(n)
        reasons = [f"{m} x {n} x {k} tiles", f"{useful:.0%} of them useful"]
        if split > 1:
            reasons.append(f"K in {split} slices because {count} tiles leave SMs idle")
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

    def _schedules(self, tile: tiles.MmaTile) -> list[Schedule]:
        """Those of one tile that break no limit: one for each combination of boxes."""
        m, n, k = tile.shape
        box_l = self._group_boxes("l", tile.batches)[0] if tile.batches > 1 else None
        tilings = (
            Tiling(tile.shape, box_m, box_n, box_k, box_l)
            for box_k in self._group_boxes("k", k)[:2]
            for box_m in self._group_boxes("m", m)[:2]
            for box_n in self._group_boxes("n", n)[:2]
        )
        return [made for t in tilings if (made := self._schedule(tile, t)) is not None]

    def _schedule(self, tile: tiles.MmaTile, t: Tiling) -> Schedule | None:
        """That of a tile's boxes, None where it breaks a limit."""
        plan, facts = self.plan, self.facts
        a, b = self._loader(A, t, t.m), self._loader(B, t, t.n)
        smem = multistage_smem(plan, t, a, b, t.k.flattens)
        stages = tiles.stage_count(facts, smem, t.k.tiles, not (a.through_registers and b.through_registers))
        if stages < 2:
            pair = smem.stage + smem.k_slot
            limit = f"({facts.smem_per_block} bytes on {facts.arch})"
            self.refusal = f"two stages of {pair} bytes exceed the shared memory of a block {limit}"
            return None
        warps = tiles.batch_warps(t.batches) if t.l is not None else 1
        made = Schedule(
            arch=facts.arch,
            tiling=t,
            mainloop=Multistage(a, b, self.tensor_cores, stages, tile.warps, warps, t.k.flattens),
            epilogue=Epilogue(
                VectorStore(store_vector(plan, t.m, t.n, t.l)),
                VectorSource() if plan.contraction.c is not None else None,
            ),
            # Tiles of M are visited together near a square of what runs at once, all of M where it is short.
            scheduler=OneTile(max(1, min(8, t.m.tiles)) if t.n.tiles > 1 else 1),
            smem=smem.plan(stages),
        )
        if (broken := first_broken(LIMITS, made, plan, facts)) is not None:
            self.refusal = broken.reason
            return None
        return made

    def _loader(self, tensor: int, t: Tiling, box: Box) -> CpAsync | RegisterStaged:
        """The loader of an operand, worked out once for boxes that many tiles share."""
        key = tensor, box, t.shape[tensor == B], t.k, t.shape[2], t.l
        if key not in self._loaders:
            self._loaders[key] = operand_loader(self.plan, tensor, t, self.tensor_cores)
        return self._loaders[key]

    def _group_boxes(self, group: str, block: int) -> list[Box]:
        """Boxes of one group at one block size, the best first."""
        if (group, block) not in self._boxes:
            extents, weights, first = self._groups[group]
            made = cut_group(self.memory, extents, block, weights, first, self.compute, group == "k")
            self._boxes[group, block] = made
        return self._boxes[group, block]

    def _group(
        self, modes: tuple[Strided, ...], tensors: Sequence[int], leaders: Sequence[int], other: tuple[Strided, ...]
    ) -> tuple[tuple[int, ...], list[Weight], int | None]:
        """Extents of a group that some tensors have, the stakes of these, and the mode that comes first.

        That is the unit-stride mode of the first of the leaders that has one. `other` is D's other group.
        """
        weights = []
        for t in tensors:
            strides, partners = tuple(s.strides[t] for s in modes), partner_modes(other, D) if t == D else ()
            weights.append(Weight(strides, self.plan.size(t), self.time[t], t == D, partners))
        units = (unit_mode(modes, t, self.plan.size(t)) for t in leaders)
        return tuple(s.extent for s in modes), weights, next((u for u in units if u is not None), None)
