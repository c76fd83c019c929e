"""Schedules of the Hopper family: boxes that tensor maps can move, tiles that wgmma can multiply.

Where no such box exists there is no schedule, and another family serves. Every choice of `sm90_space` is estimated, and
the best of them are given their tensor maps (`sm90_maps`) and shared memory (`room`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.access import unit_mode, vector_d
from gett.schedule.cluster import SHARING, cluster_tiles, share
from gett.schedule.realize import exchange, split_modes
from gett.schedule.records import Schedule, WarpRoles
from gett.schedule.resident import kept_bytes, one_line_pace, small_operands, staged_bytes, staying
from gett.schedule.room import divide, divide_kept, store_bytes
from gett.schedule.sm90_maps import TYPES, c_map, d_map, operand_move
from gett.schedule.sm90_shape import STEP, Roles, Side, Sm90Shape
from gett.schedule.sm90_space import ROLES, Space
from gett.schedule.sm90_space import sides as side_lengths
from gett.schedule.space import bounded_split
from gett.schedule.supers import super_tiles
from gett.schedule.tails import filled_box, row_bytes, tail_boxes
from layouts.box import Box
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

ENOUGH = 120 * 1024  # bytes of loads under way beyond which more gain nothing there
START = 0.02  # and a first k-tile of 64
LONG_SUM = 1024  # k beyond which that is little beside what many shallow k-tiles cost
SQUARE = 8  # rows of tiles that are visited together at least
HASTE = 0.2  # what none at all would cost; 96 of 120 KiB cost 5 % (measured)
IN_FLIGHT = 96 * 1024  # bytes of loads that keep memory busy while another stage is read
LONG_ROW = 64  # bytes of D's rows below which parts of a tile gain nothing
RESIDENT = 8  # of twelve candidates at most, those in which an operand stays
OTHERS, BY_VECTORS = 2, 1.05  # schedules that add C from vectors as well, and how much longer at least (a guess)


def sm90_candidates(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """The most promising schedules of the family, best first; empty where no tensor map suits the contraction."""
    if plan.contraction.dtype not in TYPES or facts.arch != "sm_90a" or plan.b is None or not plan.k:
        return []
    choices: list[tuple[float, int, _Search, Sm90Shape]] = []
    for exchanged in (False, True):
        search = _Search(exchange(plan) if exchanged else plan, facts, exchanged)
        choices += [(us, i, search, shape) for i, (us, shape) in enumerate(search.choices())]
    choices.sort(key=lambda c: c[:2])
    found: dict[Schedule, None] = {}
    others: list[Schedule] = []
    plain, stay = False, 0
    for _, _, search, shape in choices:
        full = shape.k.size % STEP == 0
        if limit > 1 and not (plain or full) and len(found) == limit - 1:
            continue  # the last place is for one that fills its k-tiles, for whoever measures
        if shape.resident and stay >= -(-limit * RESIDENT // 12):
            continue  # likewise
        schedule = search.schedule(shape)
        if schedule is not None:
            found[schedule] = None
            plain |= full
            stay += bool(shape.resident)
            if schedule.roles is not None and schedule.roles.c is not None and len(others) < OTHERS:
                vectors = search.schedule(replace(shape, added=False))
                if vectors is not None:
                    others.append(replace(vectors, estimate_us=vectors.estimate_us * BY_VECTORS))
        if len(found) == limit:
            break
    return sorted(dict.fromkeys((*found, *others)), key=lambda s: s.estimate_us)


class _Search(Space):
    """Estimates first, tensor maps for the best of them."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        super().__init__(plan, facts, exchanged)
        self.small = small_operands(plan, self.size)
        c, d = plan.contraction.c, plan.contraction.d
        self.added = c is not None and c.dtype == d.dtype and c.alignment % CHUNK == 0

    def choices(self) -> Iterator[tuple[float, Sm90Shape]]:
        """Every combination of tile and boxes with its expected time."""
        plan = self.plan
        k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}
        mn_unit = {A: unit_mode(plan.m, A, self.size), B: unit_mode(plan.n, B, self.size)}
        if any(k_unit[t] is None and mn_unit[t] is None for t in (A, B)):
            return
        leads = {u for u in k_unit.values() if u is not None}
        if len(leads) > 1:  # the two operands' rows run along different contracted modes
            return
        sides = side_lengths(plan.extent_n)
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
                    for shape in self.supers(roles, n, mn_unit[A], mn_unit[B], box_k):
                        for tried in (shape, *self.resident(shape)):
                            yield self.model.estimate(tried).us, tried
                    for m_side in self.boxes("m", roles.rows, mn_unit[A]) if not low else ():
                        for n_side in self.boxes("n", n, mn_unit[B]):
                            shape = Sm90Shape(roles, m_side, n_side, box_k, added=self.added)
                            alone = self.model.estimate(shape)
                            yield alone.us, shape
                            others = self.resident(shape)
                            if (filled := filled_box(plan, box_k, self.size)) is not None:
                                others += [replace(other, filled=filled) for other in (shape, *others)]
                            for other in others:
                                yield self.model.estimate(other).us, other
                            yield from self.trading(shape)
                            # Sharing costs a little everywhere and relieves L2 alone.
                            for cluster in SHARING if alone.bound == "L2" and box_k.tiles >= 8 else ():
                                if m_side.box.tiles >= cluster[0] and n_side.box.tiles >= cluster[1]:
                                    shared = replace(shape, cluster=cluster)
                                    yield self.model.estimate(shared).us, shared

    def trading(self, shape: Sm90Shape) -> Iterator[tuple[float, Sm90Shape]]:
        """The same tile, where two blocks trade halves of it."""
        plan = self.plan
        if shape.roles.ping_pong or plan.contraction.c is not None or shape.k.tiles < 2:
            return
        traded = self.model.traded(shape)
        if traded is None:
            return
        other = replace(shape, cluster=traded.cluster, trade=True)
        if self.single(other):
            yield self.model.estimate(other).us, other

    def single(self, shape: Sm90Shape) -> bool:
        """Whether a block makes one tile at most."""
        clusters = cluster_tiles(shape.m.box.tiles, shape.n.box.tiles, shape.cluster) * self.plan.extent_l
        return clusters <= self.facts.sm_count // math.prod(shape.cluster)

    def supers(self, roles: Roles, n: int, unit: int | None, unit_n: int | None, box_k: Box) -> Iterator[Sm90Shape]:
        """Tiles of D that the accumulators make in parts."""
        if roles.m_blocks < 4 or roles.ping_pong or n < self.plan.extent_n:
            return
        for n_side in self.boxes("n", n, unit_n)[:1]:
            sizes = self.size, self.size_d
            for m_side, part in super_tiles(self.plan, roles.rows, n, unit, sizes, self.facts.sm_count):
                shape = Sm90Shape(roles, m_side, n_side, box_k, part=part, added=self.added)
                staging = self.model.staging(shape)
                if staging.bulk and staging.dense.row * self.size_d >= LONG_ROW:
                    yield shape

    def resident(self, shape: Sm90Shape) -> list[Sm90Shape]:
        """The same tile with an operand that stays in shared memory, whole or the rows of a line of tiles."""
        return staying(shape, self.small, self.size, self.plan.extent_l, self.facts.sm_count)

    def movable(self, tensor: int, sides: Iterable[Side], boxes_k: Sequence[Box]) -> bool:
        """Whether tensor maps move an operand at all: that takes less time to find out than to estimate all choices."""
        for side in sides:
            plan = self.plan if side.split is None else split_modes(self.plan, (side.split,))
            modes = plan.m if tensor == A else plan.n
            if any(operand_move(plan, tensor, modes, side, box_k, self.size) is not None for box_k in boxes_k):
                return True
        return False

    def schedule(self, shape: Sm90Shape) -> Schedule | None:
        """The schedule of a tile, or None where a rule of the hardware forbids it."""
        roles, box_m, box_n, box_k = shape.roles, shape.m.box, shape.n.box, shape.k
        splits = tuple(side.split for side in (shape.m, shape.n) if side.split is not None)
        plan = split_modes(self.plan, splits)
        a = operand_move(plan, A, plan.m, shape.part or shape.m, self.model.box_of(A, shape), self.size)
        b = operand_move(plan, B, plan.n, shape.n, self.model.box_of(B, shape), self.size)
        if a is None or b is None:
            return None
        a, b = share(a, shape.cluster[1]), share(b, shape.cluster[0])
        c = plan.contraction
        best = self.model.estimate(shape)
        staging = self.model.staging(shape)
        d = d_map(plan, box_m, box_n, self.size_d, staging.dense) if staging.bulk and best.split_k == 1 else None
        traded = self.model.traded(shape) if shape.trade else None
        if traded is not None and d is not None:
            whole = replace(staging.dense, row=2 * staging.dense.row)
            d = d_map(plan, traded.m, traded.n, self.size_d, whole)
        if shape.trade and d is None:
            return None
        added = None
        if c.c is not None and d is not None:
            added = c_map(plan, box_m, box_n, self.size_d, staging.dense, d)
            if added is None:
                return self.schedule(replace(shape, added=False))
        if d is None and shape.part is not None:
            return None
        stage_plan = staging.dense if d is not None else staging.padded
        block = shape.block
        tiles = box_m.tiles * box_n.tiles * plan.extent_l
        split, workspace = bounded_split(best.split_k, block[0] * block[1] * 4, tiles, box_k.tiles)
        rows = (shape.part or shape.m).rows, shape.n.rows
        deep = row_bytes(a, block[2], self.size), row_bytes(b, block[2], self.size)
        stage = staged_bytes(shape.resident, rows, deep)
        store = 0
        if split == 1:
            store = store_bytes(stage_plan, block, self.size_d, c.c is not None and added is None, d is not None)
            store *= roles.consumers if roles.ping_pong else 1
        capacity = self.facts.smem_per_block
        if shape.resident:
            which = "ab".index(shape.resident)
            if shape.line and split > 1:
                return None
            kept = kept_bytes(
                shape.resident, rows[which], deep[which], box_k.tiles * (2 if shape.line == "each" else 1)
            )
            both = None if shape.line == "own" else staged_bytes("", rows, deep)
            room = divide_kept(capacity, stage, store, kept, both)
        else:
            # C must have a place while the stages are read.
            single = self.single(shape) and d is not None and added is None
            single &= shape.part is None and not roles.ping_pong
            room = divide(capacity, stage, store, box_k.tiles, single, shape.trade)
        if room is None or (shape.trade and not room.alone):
            return None
        pace = one_line_pace(shape, room.stages * stage) if shape.line == "own" else 1.0
        if pace is None:
            return None
        return Schedule(
            family="sm90", arch=self.facts.arch, block=block, warps=(4 * (roles.consumers + 1), 1),
            num_stages=room.stages, box_m=box_m, box_n=box_n, box_k=box_k, k_table=False, a=None, b=None,
            vector_d=vector_d(plan, box_m, box_n), split_k=split,
            group_m=self.raster(shape, best.bound, tiles), smem_bytes=room.size,
            item_bytes=self.size, exchanged=self.exchanged, splits=splits,
            roles=WarpRoles(
                roles.consumers, roles.m_blocks, roles.ping_pong, a, b, d, stage_plan, shape.cluster,
                resident=shape.resident, line=shape.line, parts=shape.parts, alone=room.alone, c=added,
                trade=traded.trade if traded is not None else None,
            ),
            blocks=self.facts.sm_count, workspace_bytes=workspace,
            # Two stages hold the loop up.
            estimate_us=best.us
            * pace
            * self.ease(shape, (a.map, b.map, d))
            * self.haste(best.bound, tiles, room.stages, stage, block[2], box_k.tiles)
            * (1.0 if room.stages >= 3 or (best.bound == "DRAM" and stage >= IN_FLIGHT) else 1.2),
            bound=best.bound,
            reason=f"{tiles} tiles of {block[0]} x {block[1]}, {box_k.size} deep, operands by tensor map"
            + (", ping-pong" if roles.ping_pong else "")
            + (f", shared by {math.prod(shape.cluster)} blocks" if shape.cluster != (1, 1) else "")
            + (", which trade halves of D's" if shape.trade else "")
            + (f", {shape.resident.upper()} resident" if shape.resident else "")
            + {"": "", "own": " for its one line of tiles", "each": " for a line of tiles"}[shape.line]
            + (f", {shape.parts} of them a tile of D" if shape.part is not None else ""),
        )  # fmt: skip

    def ease(self, shape: Sm90Shape, maps: tuple[TmaMap | None, ...]) -> float:
        """Of equals: warpgroups that take turns, boxes of few dimensions and with long first ones."""
        weighted = zip(maps, (2, 2, 1), strict=True)
        dims = sum(weight * (b > 1) for made, weight in weighted if made is not None for b in made.box)
        firsts = [next((d.box for d in side.box.dims if d.box > 1), 1) for side in (shape.m, shape.n)]
        order = 0.0005 * dims + sum(0.05 / first for first in firsts)
        together = 0.0 if shape.roles.ping_pong else 0.01
        return 1.0 + order + together + 0.0005 * self.exchanged + 0.0005 * shape.roles.m_blocks

    def haste(self, bound: str, tiles: int, stages: int, stage: int, deep: int, k_tiles: int) -> float:
        """How depth shows: short sums want bytes under way and to start soon, long ones fewer and deeper k-tiles."""
        enough = IN_FLIGHT if bound == "DRAM" else ENOUGH
        under_way = HASTE * max(0.0, 1.0 - (stages - 1) * stage / enough)
        if bound == "DRAM":
            return (1.01 if deep >= 128 else 1.0) + under_way / 2
        long = {16: 1.05, 32: 1.025, 128: 1.01}.get(deep, 1.0)
        if self.hurried(tiles):
            return (1.0 + under_way + START * deep / 64) * (long if deep * k_tiles >= LONG_SUM else 1.0)
        return long

    def raster(self, shape: Sm90Shape, bound: str, tiles: int) -> int:
        """Rows of tiles that are visited together."""
        if shape.line:
            return 1 if shape.resident == "a" else shape.m.box.tiles
        rows = SQUARE
        if tiles > self.facts.sm_count and bound in ("tensor cores", "shared memory"):
            # Tiles under way make a square of D: what they read is least, and with it the power that it takes.
            rows = max(rows, round(math.sqrt(self.facts.sm_count * shape.block[1] / shape.block[0])))
        return max(1, min(rows, shape.m.box.tiles) // shape.cluster[0])
