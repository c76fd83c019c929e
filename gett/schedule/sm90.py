"""Schedules of the Hopper family: boxes that tensor maps can move, tiles that wgmma can multiply.

A box here is bound by the hardware's rules (`layouts.tma`), not by vectors: one unit-stride run of 16 to 128 bytes a
row, at most five dimensions, sizes up to 256. Where no such box exists there is no schedule, and another family serves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gett.plan import A, B, D, GemmPlan, itemsize
from gett.schedule.access import unit_mode, vector_d
from gett.schedule.archs import ArchFacts
from gett.schedule.boxing import Weight, beside, cut_group
from gett.schedule.cluster import SHARING, cluster_tiles, share
from gett.schedule.cost import traffic_us
from gett.schedule.cost_sm90 import Side, Sm90Model, Sm90Shape
from gett.schedule.realize import exchange, split_modes
from gett.schedule.records import BulkMove, Schedule, Split, StageSteps, WarpRoles
from gett.schedule.resident import kept_bytes, may_stay, may_stay_for_lines, small_operands, staged_bytes
from gett.schedule.room import ALIGN, divide, divide_kept
from gett.schedule.space import bounded_split
from gett.schedule.supers import parts, super_tiles
from gett.schedule.tails import STEP, depth, filled_box, row_bytes, tail_boxes, tail_move
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.tma import Refusal, TmaMap, tma_map

TYPES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Roles:
    """Warpgroups of a tile: how many, 64-row blocks each, and whether each has a tile of its own."""

    consumers: int
    m_blocks: int
    ping_pong: bool

    @property
    def rows(self) -> int:
        """Rows of one tile."""
        return 64 * self.m_blocks * (1 if self.ping_pong else self.consumers)

    def takes(self, n: int) -> bool:
        """Whether a thread's registers hold the products of `n` columns, and blocks are not needlessly many."""
        widest = {1: 256, 2: 128, 4: 64, 8: 32}[self.m_blocks]
        return n <= widest and self.m_blocks * n // 2 <= ACCUMULATORS


@dataclass(frozen=True, slots=True)
class _Choice:
    """A tile and its boxes."""

    roles: Roles
    m: Side
    n: Side
    k: Box
    cluster: tuple[int, int] = (1, 1)
    filled: Box | None = None
    resident: str = ""
    lines: bool = False  # it stays for a line of tiles
    part: Side | None = None  # of `m`, where several tiles of A make one of D


ROLES = (
    Roles(2, 1, False),
    Roles(2, 2, False),
    Roles(2, 4, False),
    Roles(2, 8, False),
    Roles(2, 1, True),
    Roles(2, 2, True),
    Roles(2, 4, True),
)
SHORT_K = 1024  # sums up to which starts and ends of tiles count more than the loop
ENOUGH = 120 * 1024  # bytes of loads under way beyond which more gain nothing there
START = 0.02  # and a first k-tile of 64
HASTE = 0.2  # what none at all would cost; 96 of 120 KiB cost 5 % (measured)
IN_FLIGHT = 96 * 1024  # bytes of loads that keep memory busy while another stage is read
LONG_ROW = 64  # bytes of D's rows below which parts of a tile gain nothing
RESIDENT = 8  # of twelve candidates at most, those in which an operand stays
ACCUMULATORS = 128  # 32-bit registers of a thread that may hold products


def sm90_candidates(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """The most promising schedules of the family, best first; empty where no tensor map suits the contraction."""
    if plan.contraction.dtype not in TYPES or facts.arch != "sm_90a" or plan.b is None or not plan.k:
        return []
    choices: list[tuple[float, int, _Search, _Choice]] = []
    for exchanged in (False, True):
        search = _Search(exchange(plan) if exchanged else plan, facts, exchanged)
        choices += [(us, i, search, choice) for i, (us, choice) in enumerate(search.choices())]
    choices.sort(key=lambda c: c[:2])
    found: dict[Schedule, None] = {}
    plain, stay = False, 0
    for _, _, search, choice in choices:
        full = choice.k.size % STEP == 0
        if limit > 1 and not (plain or full) and len(found) == limit - 1:
            continue  # the last place is for one that fills its k-tiles, for whoever measures
        if choice.resident and stay >= -(-limit * RESIDENT // 12):
            continue  # likewise
        schedule = search.schedule(choice)
        if schedule is not None:
            found[schedule] = None
            plain |= full
            stay += bool(choice.resident)
        if len(found) == limit:
            break
    return sorted(found, key=lambda s: s.estimate_us)


class _Search:
    """The boxes of one assignment of roles to A and B: estimates first, tensor maps for the best of them."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        self.plan, self.facts, self.exchanged = plan, facts, exchanged
        self.size = itemsize(plan.contraction.dtype)
        self.size_d = itemsize(plan.contraction.d.dtype)
        c = plan.contraction
        self.time = traffic_us(plan, facts)
        self.compute = plan.flops / facts.tensor_tflops[c.dtype] * 1e-6
        self.model = Sm90Model(plan, facts)
        self.small = small_operands(plan, self.size)
        self.cuts: dict[tuple[str, int], list[Side]] = {}

    def choices(self) -> Iterator[tuple[float, _Choice]]:
        """Every combination of tile and boxes with its expected time."""
        plan = self.plan
        k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}
        mn_unit = {A: unit_mode(plan.m, A, self.size), B: unit_mode(plan.n, B, self.size)}
        if any(k_unit[t] is None and mn_unit[t] is None for t in (A, B)):
            return
        leads = {u for u in k_unit.values() if u is not None}
        if len(leads) > 1:  # the two operands' rows run along different contracted modes
            return
        sides = _sides(plan.extent_n)
        boxes_k, shallow = self.k_boxes(next(iter(leads), None))
        tails = tail_boxes(tuple(s.extent for s in plan.k), next(iter(leads), None), self.size)
        all_k = (*boxes_k, *tails, *shallow)
        sides_m = (side for roles in ROLES for side in self.boxes("m", roles.rows, mn_unit[A]))
        sides_n = (side for n in sides for side in self.boxes("n", n, mn_unit[B]))
        padded = [f for box_k in all_k if (f := filled_box(plan, box_k, self.size)) is not None]
        if not all(self.movable(t, s, (*all_k, *padded)) for t, s in ((A, sides_m), (B, sides_n))):
            return
        for box_k in all_k:
            for roles in ROLES:
                if roles.rows >= 2 * max(64, plan.extent_m) and roles.rows > 64:
                    continue
                low = box_k in shallow and roles.m_blocks < 8  # only the tallest tiles leave no room for deeper stages
                for n in sides:
                    if not roles.takes(n):
                        continue
                    for choice in self.supers(roles, n, mn_unit[A], mn_unit[B], box_k):
                        for tried in (choice, *self.resident(choice)):
                            yield self.model.estimate(self.shape(tried)).us, tried
                    for m_side in self.boxes("m", roles.rows, mn_unit[A]) if not low else ():
                        for n_side in self.boxes("n", n, mn_unit[B]):
                            choice = _Choice(roles, m_side, n_side, box_k)
                            alone = self.model.estimate(self.shape(choice))
                            yield alone.us, choice
                            others = self.resident(choice)
                            if (filled := filled_box(plan, box_k, self.size)) is not None:
                                others += [replace(other, filled=filled) for other in (choice, *others)]
                            for other in others:
                                yield self.model.estimate(self.shape(other)).us, other
                            # Sharing costs a little everywhere and relieves L2 alone.
                            for cluster in SHARING if alone.bound == "L2" and box_k.tiles >= 8 else ():
                                if m_side.box.tiles >= cluster[0] and n_side.box.tiles >= cluster[1]:
                                    shared = replace(choice, cluster=cluster)
                                    yield self.model.estimate(self.shape(shared)).us, shared

    def supers(self, roles: Roles, n: int, unit: int | None, unit_n: int | None, box_k: Box) -> Iterator[_Choice]:
        """Tiles of D that the accumulators make in parts."""
        if roles.m_blocks < 4 or roles.ping_pong or n < self.plan.extent_n:
            return
        for n_side in self.boxes("n", n, unit_n)[:1]:
            sizes = self.size, self.size_d
            for m_side, part in super_tiles(self.plan, roles.rows, n, unit, sizes, self.facts.sm_count):
                choice = _Choice(roles, m_side, n_side, box_k, part=part)
                staging = self.model.staging(self.shape(choice))
                if staging.bulk and staging.dense.row * self.size_d >= LONG_ROW:
                    yield choice

    def resident(self, choice: _Choice) -> list[_Choice]:
        """The same tile with a small operand that stays in shared memory, or its rows for a line of tiles."""
        tiles = choice.m.box.tiles * choice.n.box.tiles * self.plan.extent_l
        sides = {"a": choice.m, "b": choice.n}
        limits = choice.k, self.size, tiles, self.facts.sm_count
        found = [replace(choice, resident=name) for name in self.small if may_stay(name, sides[name], *limits)][:1]
        if found or choice.part is not None:
            return found
        lines = choice.k, self.size, self.plan.extent_l, self.facts.sm_count
        return [
            replace(choice, resident=name, lines=True)
            for name, other in (("a", "b"), ("b", "a"))
            if may_stay_for_lines(name, sides[name], sides[other], *lines)
        ]

    def movable(self, tensor: int, sides: Iterable[Side], boxes_k: Sequence[Box]) -> bool:
        """Whether tensor maps move an operand at all: that takes less time to find out than to estimate all choices."""
        for side in sides:
            plan = self.plan if side.split is None else split_modes(self.plan, (side.split,))
            modes = plan.m if tensor == A else plan.n
            if any(self.move(plan, tensor, modes, side, box_k) is not None for box_k in boxes_k):
                return True
        return False

    def shape(self, choice: _Choice) -> Sm90Shape:
        """What the cost model sees of a choice."""
        roles = choice.roles
        block = (roles.rows, _up(choice.n.box.size, 8), depth(choice.k))
        return Sm90Shape(
            roles.consumers, roles.m_blocks, roles.ping_pong, block, choice.m, choice.n, choice.k, choice.cluster,
            choice.filled, choice.resident, choice.lines, choice.part,
        )  # fmt: skip

    def boxes(self, group: str, block: int, unit: int | None) -> list[Side]:
        """Boxes of M or N without flattened dimensions; the operand's unit mode first, in whole 16-byte pieces."""
        if (group, block) not in self.cuts:
            modes = self.plan.m if group == "m" else self.plan.n
            operand, other = (A, self.plan.n) if group == "m" else (B, self.plan.m)
            weights = [
                Weight(tuple(s.strides[operand] for s in modes), self.size, self.time[operand]),
                Weight(tuple(s.strides[D] for s in modes), self.size_d, self.time[D], True, beside(other, D)),
            ]
            extents = tuple(s.extent for s in modes)
            found = []
            for box in cut_group(extents, block, weights, unit, self.compute, False):
                if any(len(d.modes) > 1 and d.box > 1 for d in box.dims):
                    continue
                if unit is not None:
                    at = next((d for d in box.dims if unit in d.modes), None)
                    if at is None or at.box * self.size % 16:
                        continue
                cut = _spare(group, modes, box, unit, self.size) or _split(group, modes, box, unit, self.size)
                found.append(Side(box, modes, None) if cut is None else cut)
            self.cuts[group, block] = found[:2]
            if group == "m" and (wide := self.spare_rows(block, unit)) is not None:
                self.cuts[group, block].append(wide)
        return self.cuts[group, block]

    def spare_rows(self, block: int, unit: int | None) -> Side | None:
        """A box of M for an MN-major A whose unit mode, taken whole, fills no row of a swizzle: one row a chunk."""
        modes = self.plan.m
        if unit is None:
            return None
        run = modes[unit].extent * self.size
        chunk = next((s // self.size for s in (32, 64, 128) if s >= run), 0)
        if not chunk or run % 16 or chunk == modes[unit].extent or block % chunk:
            return None
        count, cut = block // chunk, {unit: modes[unit].extent}
        # First D's unit mode, so that its runs are long, then what is nearest in A.
        others = [m for m in range(len(modes)) if m != unit]
        others.sort(key=lambda m: (modes[m].strides[D] != self.size_d, abs(modes[m].strides[A])))
        for m in others:
            cut[m] = max(x for x in range(1, count + 1) if modes[m].extent % x == 0)
            count //= cut[m]
        dims = [TileDim((m,), c) for m, c in cut.items() if c > 1]
        ones = tuple(m for m in others if cut[m] == 1)
        box = Box(tuple(s.extent for s in modes), (*dims, *((TileDim(ones, 1),) if ones else ())))
        return Side(box, modes, None, modes[unit].extent, chunk)

    def k_boxes(self, lead: int | None) -> tuple[list[Box], list[Box]]:
        """Boxes of K whose size is a multiple of 16, the best and the shallowest.

        Past the end of a mode both operands read zeros.
        """
        extents = tuple(s.extent for s in self.plan.k)
        others = sorted((m for m in range(len(extents)) if m != lead), key=lambda m: -extents[m])[:2]
        found: dict[Box, float] = {}
        least = -(-self.plan.extent_m // 256) * -(-self.plan.extent_n // 128) * self.plan.extent_l
        patient = not self.hurried(least)
        for block in (64, 48, 32, 16, 96, 128):
            for cut in _factors(block, lead, others, extents):
                if lead is not None and cut.get(lead, 0) not in (8, 16, 32, 64, 128) and len(extents) > 1:
                    continue
                dims = [TileDim((m,), t) for m, t in cut.items() if t > 1]
                rest = tuple(m for m in range(len(extents)) if cut.get(m, 1) == 1)
                box = Box(extents, (*dims, *((TileDim(rest, 1),) if rest else ())))
                if box.tiles > 2 * -(-box.volume // 32) + 8:
                    continue
                lead_bytes = cut.get(lead, 64) * self.size if lead is not None else 128
                run = next(x for x in (128, 64, 32, 16) if lead_bytes % x == 0)
                waste = box.tiles * block / box.volume
                short = {16: 1.6, 32: 1.25, 64: 1.04}.get(run, 1.0)
                depth = {64: 1.0, 48: 1.02, 96: 1.03, 128: 1.04, 32: 1.08 if patient else 0.99, 16: 1.3}[block]
                found[box] = waste * short * depth
        best = sorted(found, key=lambda b: found[b])
        return best[:3], [b for b in best[3:] if b.size == 16][:1]

    def schedule(self, choice: _Choice) -> Schedule | None:
        """The schedule of a choice, or None where a rule of the hardware forbids it."""
        roles, box_m, box_n, box_k = choice.roles, choice.m.box, choice.n.box, choice.k
        splits = tuple(side.split for side in (choice.m, choice.n) if side.split is not None)
        plan = split_modes(self.plan, splits)
        shape = self.shape(choice)
        a = self.move(plan, A, plan.m, choice.part or choice.m, self.model.box_of(A, shape))
        b = self.move(plan, B, plan.n, choice.n, self.model.box_of(B, shape))
        if a is None or b is None:
            return None
        a, b = share(a, choice.cluster[1]), share(b, choice.cluster[0])
        c = plan.contraction
        best = self.model.estimate(shape)
        staging = self.model.staging(shape)
        d = _d_map(plan, box_m, box_n, self.size_d, staging.dense) if staging.bulk and best.split_k == 1 else None
        if d is None and choice.part is not None:
            return None
        stage_plan = staging.dense if d is not None else staging.padded
        block = shape.block
        tiles = box_m.tiles * box_n.tiles * plan.extent_l
        split, workspace = bounded_split(best.split_k, block[0] * block[1] * 4, tiles, box_k.tiles)
        rows = (choice.part or choice.m).rows, choice.n.rows
        deep = row_bytes(a, block[2], self.size), row_bytes(b, block[2], self.size)
        stage = staged_bytes(choice.resident, rows, deep)
        store = 0
        if split == 1:
            offsets = 0 if d is not None else (block[0] + block[1]) * 8 * (2 if c.c is not None else 1)
            staged = stage_plan.elements * (4 if c.c is not None else self.size_d) + (128 if stage_plan.put else 0)
            staged = _up(staged, ALIGN if stage_plan.span > 16 else 128)
            store = (staged + _up(offsets, 128)) * (roles.consumers if roles.ping_pong else 1)
        capacity = self.facts.smem_per_block
        if choice.resident:
            which = "ab".index(choice.resident)
            if choice.lines and split > 1:
                return None
            kept = kept_bytes(choice.resident, rows[which], deep[which], box_k.tiles * (2 if choice.lines else 1))
            room = divide_kept(capacity, stage, store, kept, staged_bytes("", rows, deep))
        else:
            clusters = cluster_tiles(box_m.tiles, box_n.tiles, choice.cluster) * plan.extent_l
            single = clusters <= self.facts.sm_count // math.prod(choice.cluster)
            single &= d is not None and choice.part is None and not roles.ping_pong
            room = divide(capacity, stage, store, box_k.tiles, single)
        if room is None:
            return None
        return Schedule(
            family="sm90", arch=self.facts.arch, block=block, warps=(4 * (roles.consumers + 1), 1),
            num_stages=room.stages, box_m=box_m, box_n=box_n, box_k=box_k, k_table=False, a=None, b=None,
            vector_d=vector_d(plan, box_m, box_n), split_k=split,
            group_m=self.raster(choice), smem_bytes=room.size,
            item_bytes=self.size, exchanged=self.exchanged, splits=splits,
            roles=WarpRoles(
                roles.consumers, roles.m_blocks, roles.ping_pong, a, b, d, stage_plan, choice.cluster,
                resident=choice.resident, lines=choice.lines, parts=parts(choice.m, choice.part), alone=room.alone,
            ),
            blocks=self.facts.sm_count, workspace_bytes=workspace,
            # Two stages hold the loop up.
            estimate_us=best.us
            * self.ease(choice, (a.map, b.map, d))
            * self.haste(best.bound, tiles, room.stages, stage, block[2])
            * (1.0 if room.stages >= 3 or (best.bound == "DRAM" and stage >= IN_FLIGHT) else 1.2),
            bound=best.bound,
            reason=f"{tiles} tiles of {block[0]} x {block[1]}, {box_k.size} deep, operands by tensor map"
            + (", ping-pong" if roles.ping_pong else "")
            + (f", shared by {math.prod(choice.cluster)} blocks" if choice.cluster != (1, 1) else "")
            + (f", {choice.resident.upper()} resident" if choice.resident else "")
            + (" for a line of tiles" if choice.lines else "")
            + (f", {parts(choice.m, choice.part)} of them a tile of D" if choice.part is not None else ""),
        )  # fmt: skip

    def ease(self, choice: _Choice, maps: tuple[TmaMap | None, ...]) -> float:
        """Of equals: warpgroups that take turns, boxes of few dimensions and with long first ones."""
        weighted = zip(maps, (2, 2, 1), strict=True)
        dims = sum(weight * (b > 1) for made, weight in weighted if made is not None for b in made.box)
        firsts = [next((d.box for d in side.box.dims if d.box > 1), 1) for side in (choice.m, choice.n)]
        order = 0.0005 * dims + sum(0.05 / first for first in firsts)
        together = 0.0 if choice.roles.ping_pong else 0.01
        return 1.0 + order + together + 0.0005 * self.exchanged + 0.0005 * choice.roles.m_blocks

    def haste(self, bound: str, tiles: int, stages: int, stage: int, deep: int) -> float:
        """How depth shows: short sums want bytes under way and to start soon, long ones fewer and deeper k-tiles."""
        enough = IN_FLIGHT if bound == "DRAM" else ENOUGH
        under_way = HASTE * max(0.0, 1.0 - (stages - 1) * stage / enough)
        if bound == "DRAM":
            return (1.01 if deep >= 128 else 1.0) + under_way / 2
        if self.hurried(tiles):
            return 1.0 + under_way + START * deep / 64
        return {16: 1.05, 32: 1.025, 128: 1.01}.get(deep, 1.0)

    def hurried(self, tiles: int) -> bool:
        """Whether the start and the end of a tile take a share of its time."""
        return self.plan.extent_k <= SHORT_K or tiles <= self.facts.sm_count

    def raster(self, choice: _Choice) -> int:
        """Rows of tiles that are visited together."""
        if choice.lines:
            return 1 if choice.resident == "a" else choice.m.box.tiles
        return max(1, min(8, choice.m.box.tiles) // choice.cluster[0])

    def move(self, plan: GemmPlan, tensor: int, side: tuple[Strided, ...], cut: Side, box_k: Box) -> BulkMove | None:
        """The tensor map of an operand, None where there is none."""
        if box_k.size % STEP:
            return tail_move(plan, tensor, side, cut, box_k, self.size)
        box_mn = cut.box
        operand = plan.a if tensor == A else plan.b
        assert operand is not None
        cuts = _cut_of(box_mn), _cut_of(box_k)
        k_unit, mn_unit = unit_mode(plan.k, tensor, self.size), unit_mode(side, tensor, self.size)
        major = "k" if k_unit is not None else "mn"
        inner = (cuts[1][k_unit] if k_unit is not None else cuts[0][mn_unit or 0]) * self.size
        span = next((s for s in (128, 64, 32, 16) if inner % s == 0), None)
        run = cut.run if major == "mn" else 0
        if run:
            span = cut.chunk * self.size
        if span is None:
            return None
        base_l, base_s = 0, len(plan.l)
        modes = (*plan.l, *side, *plan.k)
        base_k = base_s + len(side)
        # Slabs must start at whole periods of the swizzle; where rows do not come in eights, each is its own copy.
        count_k = [1] * len(cuts[1])
        if major == "k" and box_mn.size % 8:
            count_k = [c * self.size // span if m == k_unit else c for m, c in enumerate(cuts[1])]
        box = [1] * len(plan.l) + cuts[0] + [c // count for c, count in zip(cuts[1], count_k, strict=True)]
        order_s = [base_s + m for d in box_mn.dims for m in d.modes]
        order_k = [base_k + m for d in box_k.dims for m in d.modes]
        order = [*order_s, *order_k] if major == "k" else [*order_k, *order_s]
        unit = base_k + k_unit if k_unit is not None else base_s + (mn_unit or 0)
        made = tma_map(
            [s.extent for s in modes],
            [s.strides[tensor] for s in modes],
            self.size,
            box,
            order=[*order, *range(base_l, len(plan.l))],
            unit=unit,
            base_alignment=operand.alignment,
            span=span,
            row=run,
        )
        if isinstance(made, Refusal) or made.base_offset or made.box[0] * self.size != (run * self.size or span):
            return None
        repeats = []
        for m in (m for d in box_k.dims for m in d.modes if count_k[m] > 1):
            at = made.modes[base_k + m]
            repeats.append((at.dim, at.weight * (cuts[1][m] // count_k[m]), count_k[m]))
        slab = (box_mn.size if major == "k" else box_k.size) * span
        if run:
            return None if box_k.size % 8 else BulkMove(major, made, run=run)
        if not repeats and made.slab_bytes * made.slabs > slab and major == "mn" and box_k.size % 8:
            return None
        if made.slabs > 1 and sum(d.box > 1 for d in (box_k if major == "k" else box_mn).dims) > 1:
            return None  # the slabs' order would not be the other tensors'
        return BulkMove(major, made, repeats=tuple(repeats), pitch=_up(box_mn.size, 8) * span if repeats else 0)


def _cut_of(box: Box) -> list[int]:
    """Box extent of each mode."""
    cut = [1] * len(box.extents)
    for d in box.dims:
        if d.box > 1:
            cut[d.modes[0]] = d.box
    return cut


def _factors(block: int, lead: int | None, others: Sequence[int], extents: Sequence[int]) -> Iterator[dict[int, int]]:
    """Ways to write the block's depth as a product of cuts, the leading mode first."""
    firsts = [v for v in (128, 64, 32, 16, 8) if block % v == 0] if lead is not None else [1]
    if lead is not None and not others:
        firsts = [block]
    for v in firsts:
        if lead is not None and v >= 2 * extents[lead] and v > 16:
            continue
        rest = block // v
        head = {lead: v} if lead is not None else {}
        if rest == 1:
            yield head
            continue
        if not others:
            continue
        for x in range(1, rest + 1):
            if rest % x:
                continue
            y = rest // x
            if y > 1 and len(others) < 2:
                continue
            # Past a mode's end lies padding: worth it only where the mode is short.
            if (x > extents[others[0]] and x > 16) or (y > 1 and y > extents[others[1]]):
                continue
            yield {**head, others[0]: x, **({others[1]: y} if y > 1 else {})}


def _spare(group: str, modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> Side | None:
    """A box of N that is one short run of an MN-major operand: a row of a wider swizzle holds it."""
    tiled = [d for d in box.dims if d.box > 1]
    if group != "n" or unit is None or len(tiled) != 1 or unit not in tiled[0].modes:
        return None
    run = tiled[0].box * size
    span = next((s for s in (32, 64, 128) if s >= run), 0)
    if not span or span == run or run % 16 or tiled[0].box != modes[unit].extent:
        return None
    return Side(box, modes, None, tiled[0].box, span // size)


def _split(group: str, modes: tuple[Strided, ...], box: Box, unit: int | None, size: int) -> Side | None:
    """How to cut the unit mode of an MN-major operand whose run is longer than a swizzled row."""
    if unit is None:
        return None
    at = next(i for i, d in enumerate(box.dims) if unit in d.modes)
    run = box.dims[at].box * size
    span = next((s for s in (128, 64, 32, 16) if run % s == 0), None)
    if span is None or run == span or modes[unit].extent * size % span:
        return None
    inner = span // size
    if box.dims[at].box == inner or modes[unit].extent == inner:
        return None

    def moved(m: int) -> int:
        return m + 1 if m > unit else m

    dims = [TileDim((unit,), inner)]
    for i, d in enumerate(box.dims):
        if i != at:
            dims.append(TileDim(tuple(moved(m) for m in d.modes), d.box))
    # The pieces of the run come after the other tiled modes: that is how one copy lays them down.
    tiled = [d for d in dims if d.box > 1]
    ones = [m for d in dims if d.box == 1 for m in d.modes]
    pieces = box.dims[at].box // inner
    if pieces > 1:
        tiled.append(TileDim((unit + 1,), pieces))
    else:
        ones.append(unit + 1)
    extents = list(box.extents)
    extents[unit : unit + 1] = [inner, modes[unit].extent // inner]
    cut = Box(tuple(extents), (*tiled, *((TileDim(tuple(ones), 1),) if ones else ())))
    outer = Strided(modes[unit].labels, modes[unit].extent // inner, tuple(x * inner for x in modes[unit].strides))
    halves = (Strided(modes[unit].labels, inner, modes[unit].strides), outer)
    return Side(cut, (*modes[:unit], *halves, *modes[unit + 1 :]), Split(group, unit, inner))


def _d_map(plan: GemmPlan, box_m: Box, box_n: Box, size: int, stage: StageSteps) -> TmaMap | None:
    """The tensor map that stores a tile of D, dimensions as it is staged, else by D's strides."""
    modes = (*plan.l, *plan.m, *plan.n)
    box = [1] * len(plan.l) + _cut_of(box_m) + _cut_of(box_n)
    first = {"m": len(plan.l), "n": len(plan.l) + len(plan.m)}
    dims = {"m": box_m.dims, "n": box_n.dims}
    staged = [first[g] + dims[g][i].modes[0] for g, i in stage.order]
    order = staged + sorted(
        (i for i in range(len(modes)) if i not in staged), key=lambda i: (box[i] == 1, modes[i].strides[D])
    )
    made = tma_map(
        [s.extent for s in modes],
        [s.strides[D] for s in modes],
        size,
        box,
        order=order,
        base_alignment=plan.contraction.d.alignment,
        span=stage.span,
        row=stage.row,
    )
    if isinstance(made, Refusal) or made.base_offset or (made.slabs > 1 and not stage.row):
        return None
    return made


def _sides(extent: int) -> list[int]:
    """Widths of a tile worth trying."""
    usual = [n for n in (256, 192, 128, 96, 64, 48, 32, 24, 16, 8) if n <= max(8, extent)]
    fit = _up(extent, 8)
    return sorted({*usual[:6], *([fit] if fit <= 256 else [])}, reverse=True)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
