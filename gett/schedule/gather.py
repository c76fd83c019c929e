"""Schedules of the Hopper family's general door: operands that tensor maps refuse are gathered by warps.

A row may start anywhere and end anywhere; what must lie together is a piece of the unit-stride mode, a multiple of 8
elements. Boxes may be longer than a short mode (the rest is zeros) and, but for that mode, flattened. An operand that a
tensor map can move under the chosen boxes still goes by it.

Where the units of A and B are two contracted modes, K's box has some of each: B's rows are the tile's, A's are turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.access import unit_mode, vector_d
from gett.schedule.boxing import Weight, beside, cut_group
from gett.schedule.cost_gather import SINGLE, GatherModel, GatherShape, ring_bytes, warp_pieces
from gett.schedule.cost_tiled import traffic_us
from gett.schedule.realize import exchange
from gett.schedule.records import BulkMove, Gather, Schedule, WarpRoles
from gett.schedule.room import ALIGN, store_bytes, up
from gett.schedule.rows import row_length
from gett.schedule.sm90_maps import TYPES, d_map, operand_move
from gett.schedule.sm90_shape import Roles, Side
from gett.schedule.space import bounded_split
from layouts.box import Box, TileDim

ROLES = (Roles(2, 1, False), Roles(2, 2, False), Roles(2, 1, True))
PRODUCERS = 2  # warpgroups that gather
WIDTHS = (192, 176, 160, 128, 96, 64, 48, 32, 24, 16, 8)
OTHERS, BY_ELEMENT = 2, 1.2  # schedules that store D element by element as well, and how much longer they take
REACH = 1 << 30  # elements that the kernel's offsets span
LONGEST = 256  # elements of a piece; the longer, the fewer sectors and lines are fetched in part
CROSSED = ((16, 8), (8, 16), (8, 8))  # of B's unit and of A's in a tile, where they differ
SHORTEST = 4  # unit-stride modes below it would be mostly padding


@dataclass(frozen=True, slots=True)
class _Choice:
    """A tile, the way of each operand and the expected time."""

    shape: GatherShape
    ways: tuple[BulkMove | Gather, BulkMove | Gather]
    us: float


def gather_candidates(plan: GemmPlan, facts: ArchFacts, limit: int = 8) -> list[Schedule]:
    """The most promising schedules with a gathered operand, best first; empty where the door does not fit."""
    c = plan.contraction
    if c.dtype not in TYPES or facts.arch != "sm_90a" or plan.b is None or not plan.k or not _addressable(plan):
        return []
    found: list[tuple[_Choice, _Search]] = []
    for exchanged in (False, True):
        search = _Search(exchange(plan) if exchanged else plan, facts, exchanged)
        found += [(choice, search) for choice in search.choices()]
    out: dict[Schedule, None] = {}
    for choice, search in sorted(found, key=lambda f: f[0].us):
        schedule = search.schedule(choice)
        if schedule is not None:
            out[schedule] = None
        if len(out) == limit:
            break
    # D element by element, the older way, stays to be measured.
    others = [_by_element(s) for s in out if s.roles is not None and s.roles.rows][:OTHERS]
    return [*out, *others]


def _by_element(schedule: Schedule) -> Schedule:
    """The schedule without rows of D."""
    assert schedule.roles is not None
    roles = replace(schedule.roles, rows=0)
    return replace(schedule, roles=roles, estimate_us=schedule.estimate_us * BY_ELEMENT)


def _addressable(plan: GemmPlan) -> bool:
    """Whether 32-bit offsets from an operand's first element reach all others."""
    size = itemsize(plan.contraction.dtype)
    modes = [s for g in (plan.l, plan.m, plan.n, plan.k) for s in g]
    if any(s.strides[t] < 0 or s.strides[t] % size for s in modes for t in (A, B)):
        return False
    return all(sum(s.strides[t] * (s.extent - 1) for s in modes) // size < REACH for t in (A, B))


class _Search:
    """The boxes of one assignment of roles to A and B."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        self.plan, self.facts, self.exchanged = plan, facts, exchanged
        self.size = itemsize(plan.contraction.dtype)
        self.size_d = itemsize(plan.contraction.d.dtype)
        self.time = traffic_us(plan, facts)
        self.compute = plan.flops / facts.tensor_tflops[plan.contraction.dtype] * 1e-6 * 2
        self.model = GatherModel(plan, facts)
        self.k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}
        self.crossed = None not in self.k_unit.values() and self.k_unit[A] != self.k_unit[B]
        self.mn_unit = {A: unit_mode(plan.m, A, self.size), B: unit_mode(plan.n, B, self.size)}
        self.cuts: dict[tuple[int, int], list[Box]] = {}
        self.moves: dict[tuple[int, Box, Box], BulkMove | Gather | None] = {}

    def choices(self) -> Iterator[_Choice]:
        """Every combination of tile and boxes, with its expected time."""
        plan = self.plan
        leads = {u for u in self.k_unit.values() if u is not None}
        if any(self.k_unit[t] is None and self.mn_unit[t] is None for t in (A, B)):
            return
        lengths = [plan.k[u].extent for u in leads]
        lengths += [
            modes[u].extent
            for t, modes in ((A, plan.m), (B, plan.n))
            if self.k_unit[t] is None and (u := self.mn_unit[t]) is not None
        ]
        if min(lengths) < SHORTEST:
            return
        widths = [w for w in WIDTHS if w < 2 * max(8, plan.extent_n)][:6]
        for box_k in self.crossed_boxes() if self.crossed else self.k_boxes(next(iter(leads), None)):
            for roles in ROLES:
                if roles.rows >= 2 * max(64, plan.extent_m) and roles.rows > 64:
                    continue
                for n in (w for w in widths if roles.takes(w)):
                    for box_m in self.boxes(A, roles.rows):
                        for box_n in self.boxes(B, n):
                            a, b = self.way(A, box_m, box_k), self.way(B, box_n, box_k)
                            if a is None or b is None or not (isinstance(a, Gather) or isinstance(b, Gather)):
                                continue
                            shape = self.shape(roles, box_m, box_n, box_k, (a, b))
                            yield _Choice(shape, (a, b), self.model.estimate(shape).us)

    def shape(
        self, roles: Roles, box_m: Box, box_n: Box, box_k: Box, ways: tuple[BulkMove | Gather, BulkMove | Gather]
    ) -> GatherShape:
        """What the cost model sees of a choice."""
        runs = tuple(w.run if isinstance(w, Gather) else 0 for w in ways)
        sides = Side(box_m, self.plan.m, None), Side(box_n, self.plan.n, None)
        return GatherShape(roles, *sides, box_k, runs=(runs[0], runs[1]), turned=self.crossed)

    def boxes(self, tensor: int, block: int) -> list[Box]:
        """Boxes of M or N; where the operand's unit stride is here, that mode leads in whole chunks."""
        if (tensor, block) in self.cuts:
            return self.cuts[tensor, block]
        modes, other = (self.plan.m, self.plan.n) if tensor == A else (self.plan.n, self.plan.m)
        unit = self.mn_unit[tensor] if self.k_unit[tensor] is None else None

        def cut(chosen: Sequence[int], room: int) -> list[Box]:
            weights = [
                Weight(tuple(modes[i].strides[t] for i in chosen), size, self.time[t], t == D, past)
                for t, size, past in ((tensor, self.size, ()), (D, self.size_d, beside(other, D)))
            ]
            return cut_group([modes[i].extent for i in chosen], room, weights, None, self.compute, False)

        found: list[Box] = []
        if unit is None:
            found = cut(range(len(modes)), block)
        else:
            rest = [i for i in range(len(modes)) if i != unit]
            extents = tuple(s.extent for s in modes)
            whole = -(-extents[unit] // 8) * 8
            for lead in dict.fromkeys(min(v, whole) for v in (256, 128, 64, 32, 16, 8) if v <= block):
                if lead > block or (not rest and 2 * lead <= block and lead < whole):
                    continue
                for box in cut(rest, block // lead)[:2] if rest else [Box((), ())]:
                    dims = tuple(TileDim(tuple(rest[m] for m in d.modes), d.box) for d in box.dims)
                    found.append(Box(extents, (TileDim((unit,), lead), *dims)))
            found = sorted(found, key=lambda b: -b.efficiency(block))
        self.cuts[tensor, block] = found[:3]
        return self.cuts[tensor, block]

    def k_boxes(self, lead: int | None) -> list[Box]:
        """Boxes of K, a multiple of 16 elements; the contracted unit-stride mode leads in whole chunks."""
        extents = tuple(s.extent for s in self.plan.k)
        others = sorted((m for m in range(len(extents)) if m != lead), key=lambda m: -extents[m])[:2]
        found: dict[Box, float] = {}
        whole = -(-extents[lead] // 8) * 8 if lead is not None else 1
        lengths = dict.fromkeys((64, 48, 32, 24, 16, 8, whole) if lead is not None else (1,))
        firsts = [v for v in lengths if v <= min(64, whole)]
        for first in firsts:
            for x in range(1, 64 // first + 1) if others else [1]:
                for y in range(1, 64 // (first * x) + 1) if len(others) > 1 else [1]:
                    block = first * x * y
                    cut = {**({lead: first} if lead is not None else {}), **dict(zip(others, (x, y), strict=False))}
                    if block % 16 or block < 16 or any(cut[m] > extents[m] + 7 for m in cut):
                        continue
                    dims = [TileDim((m,), t) for m, t in cut.items() if t > 1]
                    rest = tuple(m for m in range(len(extents)) if cut.get(m, 1) == 1)
                    box = Box(extents, (*dims, *((TileDim(rest, 1),) if rest else ())))
                    waste = box.tiles * block / box.volume
                    found[box] = waste * (1 + 2 / first if lead is not None else 1.0) * (1 + 8 / block)
        return sorted(found, key=lambda b: found[b])[:3]

    def crossed_boxes(self) -> list[Box]:
        """Boxes of K with B's unit first and A's second; walks go along B's rows first."""
        first, second = self.k_unit[B], self.k_unit[A]
        assert first is not None
        assert second is not None
        extents = tuple(s.extent for s in self.plan.k)
        rest = tuple(m for m in range(len(extents)) if m not in (first, second))
        shapes = [s for s in CROSSED if s[0] < extents[first] + 8 and s[1] < extents[second] + 8]
        ends = (TileDim(rest, 1),) if rest else ()
        return [Box(extents, (TileDim((first,), w), TileDim((second,), d), *ends)) for w, d in shapes]

    def way(self, tensor: int, box: Box, box_k: Box) -> BulkMove | Gather | None:
        """By tensor map where one can, else gathered; None where the tile would not lie as wgmma wants it."""
        key = (tensor, box, box_k)
        if key not in self.moves:
            bulk = None if self.crossed else self.bulk(tensor, box, box_k)
            self.moves[key] = bulk or self.gather(tensor, box, box_k)
        return self.moves[key]

    def bulk(self, tensor: int, box: Box, box_k: Box) -> BulkMove | None:
        """The tensor map of an operand, None where there is none."""
        if any(len(d.modes) > 1 and d.box > 1 for d in (*box.dims, *box_k.dims)):
            return None
        modes = self.plan.m if tensor == A else self.plan.n
        return operand_move(self.plan, tensor, modes, Side(box, modes, None), box_k, self.size)

    def gather(self, tensor: int, box: Box, box_k: Box) -> Gather | None:
        """The pieces of an operand."""
        k_unit = self.k_unit[tensor]
        major = "k" if k_unit is not None else "mn"
        inner = box_k if major == "k" else box
        turned = self.crossed and tensor == A
        lead = inner.dims[1 if turned else 0]
        if lead.modes != (k_unit if k_unit is not None else self.mn_unit[tensor],) or lead.box % 8:
            return None
        run = max(r for r in range(8, LONGEST + 1, 8) if lead.box % r == 0)
        # The epilogue knows an MN-major tile's chunks by the box of its unit-stride mode, as tensor maps cut them.
        length = inner.size if major == "k" else lead.box
        span = next(s for s in (128, 64, 32, 16) if length * self.size % s == 0)
        return Gather(major, run, span, box_k.dims[0].box if turned else 0)

    def schedule(self, choice: _Choice) -> Schedule | None:
        """The schedule of a choice, or None where shared memory does not hold it."""
        plan, shape, c = self.plan, choice.shape, self.plan.contraction
        roles, box_m, box_n, box_k = shape.roles, shape.m.box, shape.n.box, shape.k
        best, staging = self.model.estimate(shape), self.model.staging(shape)
        flat = any(len(d.modes) > 1 and d.box > 1 for box in (box_m, box_n) for d in box.dims)
        boxed = staging.bulk and best.split_k == 1 and not flat
        d = d_map(plan, box_m, box_n, self.size_d, staging.dense) if boxed else None
        steps = staging.dense if d is not None else staging.padded
        block = shape.block
        tiles = box_m.tiles * box_n.tiles * plan.extent_l
        split, workspace = bounded_split(best.split_k, block[0] * block[1] * 4, tiles, box_k.tiles)
        store = 0
        if split == 1:
            store = store_bytes(steps, block, self.size_d, c.c is not None, d is not None)
            store *= roles.consumers if roles.ping_pong else 1
        stage = sum(up(up(b.size, g) * box_k.size * self.size, ALIGN) for b, g in ((box_m, 64), (box_n, 8)))
        warps = 4 * PRODUCERS
        ring = tables = 0
        for way, box in zip(choice.ways, (box_m, box_n), strict=True):
            if isinstance(way, Gather):
                per = warp_pieces(box.size, box_k.size, way, warps)
                ring += warps * ring_bytes(per, way)
                tables += 8 * per
        fixed = ALIGN + store + (2 * 8 + 2) * 8 + warps * up(tables, 16)
        room = self.facts.smem_per_block - fixed
        mixed = not all(isinstance(w, Gather) for w in choice.ways)
        fewest = 1 if self.crossed else 2  # k-tiles of crossed units are deep
        counts = range(4, fewest - 1, -1)
        depths = [(s, r) for s in counts for r in counts if s * stage + r * ring <= room and s >= fewest + mixed]
        if not depths:
            return None
        # What waits for memory is in the ring; two or three stages are enough between the shift and wgmma.
        stages, depth = max(depths, key=lambda d: (min(d) >= 2, min(d[0], 3) + min(d[1], 3), d[1], d[0]))
        a, b = choice.ways
        vector = vector_d(plan, box_m, box_n)
        rows = row_length(plan, box_m, box_n) if d is None and split == 1 and vector == 1 else 0
        return Schedule(
            family="sm90", arch=self.facts.arch, block=block, warps=(4 * (roles.consumers + PRODUCERS), 1),
            num_stages=stages, box_m=box_m, box_n=box_n, box_k=box_k, k_table=False, a=None, b=None,
            vector_d=vector, split_k=split, group_m=max(1, min(8, box_m.tiles)),
            smem_bytes=fixed + stages * stage + depth * ring, item_bytes=self.size, exchanged=self.exchanged,
            roles=WarpRoles(
                roles.consumers, roles.m_blocks, roles.ping_pong,
                a if isinstance(a, BulkMove) else None, b if isinstance(b, BulkMove) else None, d, steps,
                gather_a=a if isinstance(a, Gather) else None, gather_b=b if isinstance(b, Gather) else None,
                producers=PRODUCERS, ring=depth, rows=rows,
            ),
            blocks=self.facts.sm_count, workspace_bytes=workspace,
            estimate_us=best.us * (SINGLE if depth == 1 else 1.0), bound=best.bound,
            reason=f"{tiles} tiles of {block[0]} x {block[1]}, {block[2]} deep, "
            + ("one operand" if mixed else "operands")
            + " gathered"
            + (", A turned" if self.crossed else "")
            + (", ping-pong" if roles.ping_pong else ""),
        )  # fmt: skip
