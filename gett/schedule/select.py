"""From a plan to a schedule: candidates under the hard limits, ranked by the cost model."""

from __future__ import annotations

from dataclasses import replace

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.access import plan_access, unit_mode, vector_d
from gett.schedule.batches import batch_tiles, batch_warps, wants_batches
from gett.schedule.boxing import Weight, beside, cut_group
from gett.schedule.cost_tiled import Costs, Estimate, estimate, traffic_us
from gett.schedule.crossed import crossed_candidates
from gett.schedule.gather import gather_candidates
from gett.schedule.records import Access, Batch, Schedule
from gett.schedule.sm90 import sm90_candidates
from gett.schedule.space import (
    ACC_BYTES,
    Tile,
    bounded_split,
    check_limits,
    family_of,
    more_warps,
    register_estimate,
    roomy_tiles,
    stages_for,
    tiles,
)
from layouts.box import Box
from layouts.modes import Strided

TILED_EXCESS, ELEMENTS_EXCESS = 1.1, 1.35
"""By how much more than the Hopper family's the tiled family's times exceed their estimates (float16, H200), and where
it loads both operands element by element."""


def select_schedule(plan: GemmPlan, arch: str, facts: ArchFacts | None = None) -> Schedule:
    """The schedule that the cost model expects to be fastest.

    Raises:
        ScheduleError: None meets the hard limits; the text names the last one that was broken.
    """
    return candidates(plan, arch, facts)[0]


def candidates(plan: GemmPlan, arch: str, facts: ArchFacts | None = None) -> list[Schedule]:
    """All schedules that meet the hard limits, the most promising first.

    Args:
        plan: What to run.
        arch: Architecture, e.g. `"sm_90a"`.
        facts: Of the GPU at hand; the architecture's nominal ones by default.
    """
    facts = facts or arch_facts(arch)
    family = family_of(plan)
    if family == "stream":
        from gett.schedule.stream import stream_schedule

        return [stream_schedule(plan, facts)]
    search = _Search(plan, facts, family)
    found: dict[Schedule, None] = dict.fromkeys((*sm90_candidates(plan, facts), *crossed_candidates(plan, facts)))
    if not found:  # the general door, where tensor maps move nothing
        found.update(dict.fromkeys(gather_candidates(plan, facts)))
    refused: ScheduleError | None = None
    for tile in tiles(plan, family):
        # What goes through registers wants more threads to share it, and few tiles more to hide latency.
        for attempt in filter(None, (tile, more_warps(tile, family))):
            try:
                made = search.schedules(attempt)
                found.update(dict.fromkeys(made))
                copied = all(
                    s.a is not None and s.a.asynchronous and s.b is not None and s.b.asynchronous for s in made
                )
                if copied and made[0].box_m.tiles * made[0].box_n.tiles * plan.extent_l > 2 * facts.sm_count:
                    break
            except ScheduleError as error:
                refused = error
    if wants_batches(plan, family):
        for batched in batch_tiles(plan):
            try:
                found.update(dict.fromkeys(search.schedules(batched.tile, batched.count)))
            except ScheduleError as error:
                refused = error
    if not found:  # small extents and single elements: a tile with enough threads, though most of it is padding
        for tile in roomy_tiles(family, itemsize(plan.contraction.dtype)):
            try:
                found.update(dict.fromkeys(search.schedules(tile)))
            except ScheduleError as error:
                refused = error
    if not found:
        raise refused or ScheduleError(f"no {family} tile fits extents {plan.extent_m} x {plan.extent_n}")
    if any(s.family == "sm90" for s in found):
        made = [s if s.family == "sm90" else replace(s, estimate_us=s.estimate_us * _excess(s)) for s in found]
        return sorted(made, key=lambda s: s.estimate_us)
    return sorted(found, key=lambda s: s.estimate_us)


def _excess(s: Schedule) -> float:
    single = s.a is not None and s.b is not None and s.a.vector == s.b.vector == 1
    return ELEMENTS_EXCESS if single else TILED_EXCESS


class _Search:
    """Boxes per block size, worked out once, and the schedules of each tile."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, family: str) -> None:
        self.plan, self.facts, self.family = plan, facts, family
        c = plan.contraction
        self.time = traffic_us(plan, facts)
        rate = (
            facts.tensor_tflops["tf32" if c.dtype == "float32" else c.dtype] * facts.mma_sync_share
            if family == "sm80"
            else facts.fma_tflops[c.dtype]
        )
        self.compute = plan.flops / rate * 1e-6
        self.ways: dict[tuple[int, Box, Box, int, int, Box | None], Access] = {}
        self.costs: Costs = {}
        self.cache: dict[tuple[str, int], list[Box]] = {}

    def boxes(self, group: str, block: int) -> list[Box]:
        """Boxes of one group at one block size."""
        if (group, block) not in self.cache:
            modes, tensors = self._group(group)
            other = self.plan.n if group == "m" else self.plan.m
            weights = [
                Weight(
                    tuple(s.strides[t] for s in modes),
                    self._itemsize(t),
                    self.time[t],
                    store=t == D,
                    beside=beside(other, D) if t == D and group != "l" else (),
                )
                for t in tensors
            ]
            first = unit_mode(modes, tensors[0], self._itemsize(tensors[0])) if group != "l" else None
            if group == "k" and first is None:
                first = unit_mode(modes, tensors[1], self._itemsize(tensors[1]))
            extents = tuple(s.extent for s in modes)
            self.cache[group, block] = cut_group(extents, block, weights, first, self.compute, group == "k")
        return self.cache[group, block]

    def _group(self, group: str) -> tuple[tuple[Strided, ...], tuple[int, ...]]:
        if group == "l":
            return self.plan.l, (D, A, B)
        if group == "k":
            return self.plan.k, (A, B) if self.time[A] >= self.time[B] else (B, A)
        return (self.plan.m, (A, D)) if group == "m" else (self.plan.n, (B, D))

    def _itemsize(self, tensor: int) -> int:
        c = self.plan.contraction
        return itemsize(c.d.dtype if tensor == D else c.dtype)

    def access(self, tensor: int, box_mn: Box, box_k: Box, block_mn: int, block_k: int, cut: Box | None) -> Access:
        """The way of an operand, worked out once for boxes that many pairs share."""
        key = (tensor, box_mn, box_k, block_mn, block_k, cut)
        if key not in self.ways:
            self.ways[key] = plan_access(self.plan, tensor, box_mn, box_k, block_mn, block_k, self.family, cut)
        return self.ways[key]

    def schedules(self, tile: Tile, batches: int = 1) -> list[Schedule]:
        """Schedules of one tile, one per pair of boxes."""
        batch = None
        if batches > 1:
            box = self.boxes("l", batches)[0]
            batch = Batch(box, batch_warps(box.size))
        out = []
        refused: ScheduleError | None = None
        for box_k in self.boxes("k", tile.k)[:2]:
            for box_m in self.boxes("m", tile.m)[:2]:
                for box_n in self.boxes("n", tile.n)[:2]:
                    try:
                        out.append(self.schedule(tile, box_m, box_n, box_k, batch))
                    except ScheduleError as error:
                        refused = error
        if refused is not None and not out:
            raise refused
        return out

    def schedule(self, tile: Tile, box_m: Box, box_n: Box, box_k: Box, batch: Batch | None = None) -> Schedule:
        """One schedule, checked against the hard limits."""
        plan, facts = self.plan, self.facts
        flat = any(len(d.modes) > 1 and d.box > 1 for d in box_k.dims)
        ragged = sum(d.box > 1 and not box_k.divides(i) for i, d in enumerate(box_k.dims))
        k_table = flat or ragged > 1
        cut = batch.box if batch is not None else None
        batches = cut.size if cut is not None else 1
        a = self.access(A, box_m, box_k, tile.m, tile.k, cut)
        b = self.access(B, box_n, box_k, tile.n, tile.k, cut)
        c = plan.contraction
        acc = ACC_BYTES.get(c.dtype, itemsize(c.dtype))
        staged = acc if c.c is not None else itemsize(c.d.dtype)
        stage_out = tile.m * batches * (-(-tile.n * staged // 16) * 16 + 16)
        offsets = (tile.m * batches + tile.n) * 8 * (2 if c.c is not None else 1)
        stage_in = a.smem.bytes + b.smem.bytes
        table_bytes = tile.k * 16 if k_table else 0
        copies = a.asynchronous or b.asynchronous
        found: list[tuple[Estimate, Schedule]] = []
        for depth in stages_for(facts, stage_in + table_bytes, offsets + table_bytes, stage_out, box_k.tiles, copies):
            schedule = Schedule(
                family=self.family, arch=facts.arch, block=(tile.m, tile.n, tile.k), warps=tile.warps, num_stages=depth,
                box_m=box_m, box_n=box_n, box_k=box_k, k_table=k_table, a=a, b=b,
                vector_d=vector_d(plan, box_m, box_n, cut), group_m=_group_m(box_m, box_n),
                smem_bytes=max(depth * stage_in, stage_out) + (depth + 1) * table_bytes + offsets,
                item_bytes=itemsize(c.dtype), batch=batch,
            )  # fmt: skip
            check_limits(schedule, facts)
            found.append((estimate(plan, schedule, register_estimate(schedule), facts, self.costs), schedule))
        best, schedule = min(found, key=lambda x: x[0].us)
        count = box_m.tiles * box_n.tiles * (cut.tiles if cut is not None else plan.extent_l)
        split, workspace = bounded_split(best.split_k, tile.m * tile.n * acc, count, box_k.tiles)
        schedule = replace(
            schedule, split_k=split, workspace_bytes=workspace, estimate_us=best.us, bound=best.bound
        )  # fmt: skip
        return replace(schedule, reason=_reason(schedule, plan))


def _group_m(box_m: Box, box_n: Box) -> int:
    """Tiles of M visited together: near a square of what runs at once, all of M where it is short."""
    return max(1, min(8, box_m.tiles)) if box_n.tiles > 1 else 1


def _reason(s: Schedule, plan: GemmPlan) -> str:
    parts = [f"{s.block[0]} x {s.block[1]} x {s.block[2]} tiles"]
    parts.append(f"{s.box_m.efficiency(s.block[0]) * s.box_n.efficiency(s.block[1]):.0%} of them useful")
    if s.split_k > 1:
        tiles = s.box_m.tiles * s.box_n.tiles * plan.extent_l
        parts.append(f"K in {s.split_k} slices because {tiles} tiles leave SMs idle")
    if s.k_table:
        parts.append("K flattened through an offset table")
    return ", ".join(parts)
