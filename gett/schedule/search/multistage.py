"""The search of the multistage main loops, `mma.sync` and multiply-adds: tiles, boxes, loaders, stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type, tensor_type
from gett.hw.tensor_types import MmaAtom
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.cost.estimate import Estimate, bounded_split, traffic_us
from gett.schedule.cost.multistage import MultistageCost
from gett.schedule.mainloops.multistage import LIMITS, MultistageSmem, multistage_smem, smem, warp_atom, warp_step
from gett.schedule.rules.rule import first_broken
from gett.schedule.search.base import Later, Search
from gett.schedule.search.boxing import Weight, cut_group, partner_modes
from gett.schedule.search.loaders import operand_loader
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import PARTS, Forecast, OneTile, Schedule, StreamK, TileScheduler, Tiling
from gett.schedule.spec.vectors import store_vector
from layouts.box import Box
from layouts.modes import Strided, unit_mode
from layouts.rates import SECTOR

WARPS = 8  # most warps of a block
SIDES = (32, 64, 128, 256)  # of tiles that are tried for any extent
BATCHED_SIDES = {
    16: ((16, 32, 64), (8, 16, 32, 64)),
    8: ((8, 16, 24, 32, 64), (8, 16, 24, 32, 64)),
    4: ((4, 8, 12, 16, 24, 32, 64), (8, 16, 24, 32, 64)),
}
"""Rows and columns of a batch in a block, by what a warp's rows are multiples of."""
SMALL = {16: 16, 8: 24, 4: 24}
"""Rows and columns of the largest products of which a block makes several though a batch's elements lie together."""
FULL = 0.85
"""Share of a side that whole rows of D fill at least where it is tried for them."""


@dataclass(frozen=True, slots=True)
class MmaTile:
    """Block sizes of M, N and K in elements, warps along M and N, and batches that a block makes."""

    shape: tuple[int, int, int]
    warps: tuple[int, int]
    batches: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps[0] * self.warps[1] * (batch_warps(self.batches) if self.batches > 1 else 1)


class MultistageSearch(Search[Schedule]):
    """What may be tried for one plan, a matrix product; a choice is a schedule whose tiles take all of K.

    Tensor cores multiply where they take the type, unless `multiply_adds` are asked for. As a `fallback` it tries only
    tiles that meet the limits of a thread whatever the strides are. `refusal` says why the last tile was refused, ""
    where none was.
    """

    def __init__(
        self, plan: GemmPlan, facts: ArchFacts, *, fallback: bool = False, multiply_adds: bool = False
    ) -> None:
        self.plan, self.facts, self.fallback = plan, facts, fallback
        self.atom = None if multiply_adds else warp_atom(plan)
        self.cost = MultistageCost(plan, facts, tensor_cores=self.atom is not None)
        self.memory, self.time = self.cost.device.memory, traffic_us(plan, self.cost.device)
        dtype = plan.contraction.dtype
        if self.atom is not None:
            rate = facts.tensor_tflops[tensor_type(data_type(dtype).real).name] * facts.mma_sync_share
        else:
            rate = facts.fma_tflops[dtype]
        self.compute = plan.flops / rate * 1e-6
        self.refusal = ""
        heavier = (A, B) if self.time[A] >= self.time[B] else (B, A)
        self._groups = {
            "l": self._group(plan.l, (D, A, B), (), {}),
            "m": self._group(plan.m, (A, D), (A,), {D: plan.n}),
            "n": self._group(plan.n, (B, D), (B,), {D: plan.m}),
            "k": self._group(plan.k, heavier, heavier, {A: plan.m, B: plan.n}),
            "k alone": self._group(plan.k, heavier, heavier, {}),
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
        """The schedules of each tile, and of the same with more warps, when they may be among the best.

        Of equal estimates the first one counts, so blocks of several batches stand first.
        """
        found = []
        for enumerate_tiles in (fallback_tiles,) if self.fallback else (batched_tiles, mma_tiles):
            for tile in enumerate_tiles(self.plan, self.atom):
                more = None if self.fallback else with_more_warps(tile, self.atom)
                bounds = (self._least_us(x) for x in (tile, more) if x is not None)
                found.append(Later(min(bounds), partial(self._with_more_warps, tile, more)))
        return found

    def _least_us(self, tile: MmaTile) -> float:
        """A bound of the estimates of a tile's schedules."""
        return self.cost.least_us(tile.shape, tile.warps, tile.threads, tile.batches)

    def _with_more_warps(self, tile: MmaTile, more: MmaTile | None) -> Iterator[Schedule]:
        """Those of a tile; what goes through registers wants more threads, few tiles more of them to hide latency."""
        made = self._schedules(tile)
        yield from made
        copied = not any(x.through_registers for s in made for x in (s.multistage.a, s.multistage.b))
        many = made and made[0].tiling.tiles(self.plan.extent_l) > 2 * self.facts.sm_count
        if more is not None and not (copied and many):
            yield from self._schedules(more)

    def estimate(self, choice: Schedule) -> Estimate:
        """Expected time at the best split of K, or where stream-K divides tiles."""
        return self.cost.estimate(choice)

    def lower(self, choice: Schedule, estimate: Estimate) -> Iterable[Schedule]:
        """The schedule with its split, or with its tiles divided by stream-K and without."""
        yield self._lowered(choice, estimate)
        if estimate.stream_k:
            yield self._lowered(choice, self.cost.whole(choice))

    def _lowered(self, choice: Schedule, estimate: Estimate) -> Schedule:
        t, loop = choice.tiling, choice.multistage
        count, partial_bytes = t.tiles(self.plan.extent_l), self.cost.partial_bytes(t)
        limit, group_m, at_once = self.facts.workspace_limit, choice.scheduler.group_m, self.cost.at_once(choice)
        split, workspace = bounded_split(estimate.split_k, partial_bytes, count, t.k.tiles, limit)
        scheduler: TileScheduler = OneTile(group_m, split)
        if estimate.stream_k:
            scheduler, workspace = StreamK(at_once, group_m), PARTS * at_once * partial_bytes
        (m, n, k), useful = t.shape, t.m.efficiency(t.shape[0]) * t.n.efficiency(t.shape[1])
        reasons = [f"{m} x {n} x {k} tiles", f"{useful:.0%} of them useful"]
        if split > 1:
            reasons.append(f"K in {split} slices because {count} tiles leave SMs idle")
        if loop.k_table:
            reasons.append("K flattened through an offset table")
        if estimate.stream_k:
            reasons.append("those left over divided")
        forecast = Forecast(estimate.us, estimate.bound, ", ".join(reasons))
        made = replace(choice, scheduler=scheduler, workspace_bytes=workspace)
        return replace(made, smem=smem(made, self.plan), forecast=forecast)

    def _schedules(self, tile: MmaTile) -> list[Schedule]:
        """Those of one tile that break no limit: one for each combination of boxes."""
        m, n, k = tile.shape
        box_l = self._group_boxes("l", tile.batches)[0] if tile.batches > 1 else None
        tilings = (
            Tiling(tile.shape, box_m, box_n, box_k, box_l)
            for box_k in self._k_boxes(k)
            for box_m in self._group_boxes("m", m)[:2]
            for box_n in self._group_boxes("n", n)[:2]
        )
        return [made for t in tilings if (made := self._schedule(tile, t)) is not None]

    def _schedule(self, tile: MmaTile, t: Tiling) -> Schedule | None:
        """That of a tile's boxes, None where it breaks a limit."""
        plan, facts = self.plan, self.facts
        a, b = self._loader(A, t, t.m), self._loader(B, t, t.n)
        parts = multistage_smem(plan, t, a, b, t.k.flattens)
        stages = stage_count(facts, parts, t.k.tiles, not (a.through_registers and b.through_registers))
        if stages < 2:
            pair = parts.stage + parts.k_slot
            limit = f"({facts.smem_per_block} bytes on {facts.arch})"
            self.refusal = f"two stages of {pair} bytes exceed the shared memory of a block {limit}"
            return None
        warps = batch_warps(t.batches) if t.l is not None else 1
        made = Schedule(
            arch=facts.arch,
            tiling=t,
            mainloop=Multistage(a, b, self.atom is not None, stages, tile.warps, warps, t.k.flattens),
            epilogue=Epilogue(
                VectorStore(store_vector(plan, t.m, t.n, t.l)),
                VectorSource() if plan.contraction.c is not None else None,
            ),
            # Tiles of M are visited together near a square of what runs at once, all of M where it is short.
            scheduler=OneTile(max(1, min(8, t.m.tiles)) if t.n.tiles > 1 else 1),
            smem=parts.plan(stages),
        )
        if (broken := first_broken(LIMITS, made, plan, facts)) is not None:
            self.refusal = broken.reason
            return None
        return made

    def _loader(self, tensor: int, t: Tiling, box: Box) -> CpAsync | RegisterStaged:
        """The loader of an operand, worked out once for boxes that many tiles share."""
        key = tensor, box, t.shape[tensor == B], t.k, t.shape[2], t.l
        if key not in self._loaders:
            self._loaders[key] = operand_loader(self.plan, tensor, t, self.atom is not None)
        return self._loaders[key]

    def _k_boxes(self, block: int) -> Iterable[Box]:
        """Boxes of K: the best two for runs that begin in M or N, and the best for those that begin in K.

        The same walked along the memory of the larger operand, where its lines may come again.
        """
        boxes = (*self._group_boxes("k", block)[:2], *self._group_boxes("k alone", block)[:1])
        if (lines := self.cost.partial_lines).come_again:
            strides = [s.strides[lines.larger] for s in self.plan.k]
            boxes += tuple(x.walked(strides, tiled=False) for x in boxes if x.tiled and not x.flattens)
        return dict.fromkeys(boxes)

    def _group_boxes(self, group: str, block: int) -> list[Box]:
        """Boxes of one group at one block size, the best first."""
        if (group, block) not in self._boxes:
            extents, weights, first = self._groups[group]
            made = cut_group(self.memory, extents, block, weights, first, self.compute, group in ("k", "k alone"))
            self._boxes[group, block] = made
        return self._boxes[group, block]

    def _group(
        self,
        modes: tuple[Strided, ...],
        tensors: Sequence[int],
        leaders: Sequence[int],
        other: Mapping[int, tuple[Strided, ...]],
    ) -> tuple[tuple[int, ...], list[Weight], int | None]:
        """Extents of a group that some tensors have, the stakes of these, and the mode that comes first.

        That is the unit-stride mode of the first of the leaders that has one. `other` has the other groups of tensors
        whose runs may begin there and go on in this one.
        """
        weights = []
        for t in tensors:
            strides, partners = tuple(s.strides[t] for s in modes), partner_modes(other.get(t, ()), t)
            weights.append(Weight(strides, self.plan.size(t), self.time[t], t == D, partners))
        units = (unit_mode(modes, t, self.plan.size(t)) for t in leaders)
        return tuple(s.extent for s in modes), weights, next((u for u in units if u is not None), None)


def tiled_searches(plan: GemmPlan, facts: ArchFacts) -> list[MultistageSearch]:
    """The searches of a plan: of what tensor cores multiply, and of multiply-adds where there are no others.

    They are tried of complex numbers, too, where half of an instruction's rows would be padding.
    """
    atom, products = warp_atom(plan), plan.contraction.real_products
    searches = [MultistageSearch(plan, facts)]
    if atom is not None and products > 1 and 2 * plan.extent_m <= atom.m:
        searches.append(MultistageSearch(plan, facts, multiply_adds=True))
    return searches


def mma_tiles(plan: GemmPlan, atom: MmaAtom | None) -> Iterator[MmaTile]:
    """Tiles of one batch worth considering for the extents at hand."""
    dtype = data_type(plan.contraction.dtype)
    accumulator, even = dtype.accumulator_bytes, atom is None or dtype.real_products > 1
    depths = _depths(plan, atom)
    most = 128 * 128 * 4 // accumulator
    if atom is not None:
        most = 128 * 256 if accumulator == 4 else 128 * 128 * 8 // accumulator
    step = 16 if atom is None else atom.m
    for m in _sides(plan.extent_m, step, even, _row_of_d(plan, plan.m)):
        for n in _sides(plan.extent_n, 8, even, _row_of_d(plan, plan.n)):
            warps = _warps(m, n, atom, accumulator) if m * n <= most else None
            if warps is not None:
                for k in depths:
                    yield MmaTile((m, n, k), warps)


def _depths(plan: GemmPlan, atom: MmaAtom | None, *, batched: bool = False) -> list[int]:
    """K of a tile that is tried: usual ones, of a short group no more than it has in whole steps.

    Warps that make a batch each, when `batched`, take few instructions of the tensor cores.
    """
    size = itemsize(plan.contraction.dtype)
    step, usual = max(1, 8 // size), {1: (16, 32), 2: (16, 32), 4: (8, 16), 8: (8,), 16: (4,)}[size]
    if atom is not None:
        step, usual = atom.k, tuple(d * atom.k for d in (1, 2, 3, 4)) if batched else (64 // size, 128 // size)
    whole = -(-plan.extent_k // step) * step
    return sorted({min(d, whole) for d in usual})


def _row_of_d(plan: GemmPlan, modes: Sequence[Strided]) -> int:
    """Elements of D that follow each other along the nearest modes of a group, as many as a tile may have."""
    row = 1
    for mode in sorted(modes, key=lambda x: abs(x.strides[D])):
        if mode.extent > 1 and abs(mode.strides[D]) == row * plan.size(D) and row * mode.extent <= SIDES[-1]:
            row *= mode.extent
    return row


def _sides(extent: int, step: int, even: bool, row: int) -> list[int]:
    """Usual sides that are not twice too long, the one that fits a short group, and one of whole rows of D.

    Where the time is that of all elements of a tile, also sides that divide a group as `even` as can be.
    """
    usual, fit = SIDES, -(-extent // step) * step
    sides = {s for s in usual if s < 2 * fit or s == usual[0]}
    if even and usual[0] < fit < usual[-1]:
        sides |= {-(-extent // -(-extent // s) // step) * step for s in usual if s < fit}
        sides.add(-(-fit // usual[0]) * usual[0])
    if fit <= usual[1] or (fit <= usual[-1] and fit % 32 == 0) or (fit < usual[2] and fit % 16 == 0):
        sides = {s for s in sides if s <= fit} | {fit}
    side = -(-row // step) * step
    if usual[0] < side < fit and row >= FULL * side and not any(s % row == 0 for s in usual):
        sides.add(side)
    return sorted(sides)


def _warp_grids(m: int, n: int, atom: MmaAtom | None) -> Iterator[tuple[int, int]]:
    """Warps along M and N that share a tile evenly: powers of two, most warps first."""
    step_m, step_n = warp_step(atom)
    for count in (8, 4, 2, 1):
        for wm in (1, 2, 4, 8):
            if count % wm == 0 and m % (wm * step_m) == 0 and n % (count // wm * step_n) == 0:
                yield wm, count // wm


@lru_cache(maxsize=1024)
def _warps(m: int, n: int, atom: MmaAtom | None, accumulator: int) -> tuple[int, int] | None:
    """Warps so that a warp's accumulators fit its registers and its tile is near square."""
    limit = 64 * (32 if atom is None else 64) * 4 // accumulator
    best: tuple[float, tuple[int, int]] | None = None
    for wm, wn in _warp_grids(m, n, atom):
        tm, tn, count = m // wm, n // wn, wm * wn
        if tm * tn > limit or (tm * tn < limit // 4 and count > 4) or (tm * tn < limit // 16 and count > 1):
            continue
        # Fewer, larger warps read less shared memory; four keep every scheduler busy.
        score = (tm + tn) / (tm * tn) * (1.0 if count >= 4 else 3.0) * (1.05 if count == 8 and m * n < 128 * 256 else 1)
        if best is None or score < best[0]:
            best = (score, (wm, wn))
    return best[1] if best else None


@lru_cache(maxsize=1024)
def with_more_warps(tile: MmaTile, atom: MmaAtom | None) -> MmaTile | None:
    """The tile with the most warps, near a square, which reads the least shared memory; None where it has as many."""
    (m, n, _), had = tile.shape, tile.warps[0] * tile.warps[1]
    most = max(_warp_grids(m, n, atom), key=lambda w: (w[0] * w[1], -(m // w[0] + n // w[1]), w))
    return MmaTile(tile.shape, most) if tile.batches == 1 and most[0] * most[1] > had else None


def fallback_tiles(plan: GemmPlan, atom: MmaAtom | None) -> list[MmaTile]:
    """Tiles that meet the limits of a thread whatever the strides are: four warps on little work."""
    m, k = 16 if atom is None else 2 * atom.m, _depths(plan, atom)[0]
    return [MmaTile((x * m, x * 32, k), (2, 2)) for x in (1, 2)]


def batched_tiles(plan: GemmPlan, atom: MmaAtom | None) -> Iterator[MmaTile]:
    """Tiles of blocks that make several batches at once.

    They serve plans in which a tensor's unit-stride mode is a batch mode, where a block of one batch would use one
    element of every sector, and products so small that the launch of a block for each takes longer than they do. One
    warp makes all of a batch's tile.
    """
    batched, size, size_d = plan.batched, itemsize(plan.contraction.dtype), plan.size(D)
    if not batched and max(plan.extent_m, plan.extent_n) > SMALL[warp_step(atom)[0]]:
        return
    sides_m, sides_n = BATCHED_SIDES[warp_step(atom)[0]]
    depths = _depths(plan, atom, batched=True)
    most = 128 * WARPS * 32 * 2 // max(size, 2)  # 128 accumulators a thread
    for count in (8, 16, 32):
        if count // 2 >= plan.extent_l and count != 8:
            continue
        if D in batched and count * size_d < SECTOR and plan.extent_l > count:  # stores that cut sectors cost most
            continue
        for m in _up_to(plan.extent_m, sides_m):
            for n in _up_to(plan.extent_n, sides_n):
                if count * m * n <= most:
                    yield from (MmaTile((m, n, k), (1, 1), count) for k in depths)


def _up_to(extent: int, sides: tuple[int, ...]) -> list[int]:
    """Sides up to the first that covers the extent."""
    return [s for i, s in enumerate(sides) if i == 0 or sides[i - 1] < extent]


def batch_warps(count: int) -> int:
    """Groups of warps that share `count` batches evenly."""
    return max(w for w in range(1, WARPS + 1) if count % w == 0)


def stage_count(facts: ArchFacts, smem: MultistageSmem, k_tiles: int, copies: bool) -> int:
    """As many stages as two blocks on a multiprocessor allow, as one does where two do not fit; below 2 if neither.

    `copies`: whether any operand comes by `cp.async`; what goes through registers is one k-tile ahead at most.
    """
    most = min(5 if copies else 3, max(2, k_tiles))
    fixed, half = smem.offsets + smem.k_slot, (facts.smem_per_sm - 2048) // 2
    of_two, of_one = ((limit - fixed) // (smem.stage + smem.k_slot) for limit in (half, facts.smem_per_block))
    return min(most, of_two if of_two >= 2 and smem.staging + fixed <= half else of_one)
