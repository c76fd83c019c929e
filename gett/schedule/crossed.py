"""Schedules for crossed units: A's rows run along one contracted mode (k1), B's along another (k2).

A tile's A goes through registers (`kernels/mainloop/wgmma_rs.cuh`), 64 rows a warpgroup; k1 and k2 in runs of 16 or 32.
What limits it is L2, which looks up rows, and a row of 64 bytes takes no longer than one of 32. Two blocks that need
the same operand may therefore share it: each fetches half of it for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.access import unit_mode, vector_d
from gett.schedule.cluster import cluster_tiles
from gett.schedule.cost_sm90 import FILL_US
from gett.schedule.cost_tiled import LAUNCH_US
from gett.schedule.realize import exchange, split_modes
from gett.schedule.records import BulkMove, Crossed, Schedule, WarpRoles
from gett.schedule.room import ALIGN, store_bytes, up
from gett.schedule.sm90_maps import TYPES, d_map
from gett.schedule.sm90_shape import Roles, Sm90Shape
from gett.schedule.sm90_space import Space
from gett.schedule.space import WORKSPACE_LIMIT
from layouts.box import Box, TileDim
from layouts.tma import Refusal, tma_map

GROUPS = 2  # warpgroups that multiply, 64 rows each
ROLES = Roles(GROUPS, 1, False)
# Blocks that share B, neighbours along M, or A, neighbours along N; with the time that it takes them to keep step, as
# measured on an H200. A is shared by slices of K alone: elsewhere that took a twentieth longer.
ALONE, SHARED_A, SHARED_B = (1, 1), (1, 2), (2, 1)
IN_STEP = {ALONE: 1.0, SHARED_A: 1.12, SHARED_B: 1.21}
# Of k1 and k2, and who shares.
SHAPES = ((16, 32, ALONE), (32, 16, ALONE), (16, 16, ALONE), (16, 32, SHARED_A), (16, 32, SHARED_B))
PIECES = 8  # most copies of a tile of A
WIDTHS = (256, 224, 192, 160, 128, 96, 64, 32)
SLOTS = 16  # most slabs of B under way
GAPS = ("", "rows", "columns")  # ways of staging that take each row for itself
MOST_PIECES, MANY_PIECES = 6, 1.08  # runs of A's rows; more of them took 8 % longer
APART = 0.96  # of the time where warpgroups wait for their own rows of A
WIDEST_WITH_C = 224  # columns; wider tiles that add C run out of registers
WIDEST_SHARED = 192  # likewise where A is shared, half a batch of which has registers of its own
ROW_CLOCKS = 1.5  # of the copy engine for a row of 32 or 64 bytes, measured on an H200


def crossed_candidates(plan: GemmPlan, facts: ArchFacts, limit: int = 12) -> list[Schedule]:
    """The most promising schedules for crossed units, best first; empty where the units are not crossed."""
    if plan.contraction.dtype not in TYPES or facts.arch != "sm_90a" or plan.b is None or len(plan.k) < 2:
        return []
    found: dict[Schedule, None] = {}
    for exchanged in (False, True):
        search = _CrossedSearch(exchange(plan) if exchanged else plan, facts, exchanged)
        ranked = sorted(search.choices(), key=lambda c: c[0])
        made = [s for _, c in ranked[: 2 * limit] if (s := search.schedule(c)) is not None]
        found.update(dict.fromkeys(v for s in made for v in (s, *_variants(s, facts))))
    return sorted(found, key=lambda s: s.estimate_us)[:limit]


def _variants(base: Schedule, facts: ArchFacts) -> Iterator[Schedule]:
    """Other ways for the same tiles: A by warpgroup, more of B under way. Factors as measured on an H200."""
    roles, slab = base.roles, _slab(base)
    assert roles is not None
    assert roles.crossed is not None
    already = roles.crossed.apart
    kinds = (True,) if already else (False, True) if _can_part(base) else (False,)
    more = min(SLOTS // 2, base.num_stages + (facts.smem_per_block - base.smem_bytes - 16) // (slab + 16))
    for slots in sorted({base.num_stages, max(more, base.num_stages)}):
        for by_group in kinds:
            bytes_ = base.smem_bytes + (slots - base.num_stages) * (slab + 16) + 16 * (by_group and not already)
            if (slots, by_group) == (base.num_stages, already) or bytes_ > facts.smem_per_block:
                continue
            deeper = 1.0 if slots == base.num_stages else 0.98 if base.split_k > 1 else 1.001
            yield replace(
                base, num_stages=slots, smem_bytes=bytes_,
                estimate_us=base.estimate_us * deeper * (APART if by_group and not already else 1.0),
                roles=replace(roles, crossed=replace(roles.crossed, apart=by_group)),
            )  # fmt: skip


def _can_part(s: Schedule) -> bool:
    """Whether each warpgroup may wait for its own rows of A, so that the two need not keep step."""
    roles = s.roles
    assert roles is not None
    assert roles.a is not None
    loaded = roles.a.map.transaction_bytes * roles.a.copies * roles.cluster[1] // (s.block[2] * s.item_bytes)
    # Shares below 64 rows leave gaps between them, which staging by blocks of rows and the sum of slices do not know.
    gaps = s.split_k == 1 and roles.stage.put in GAPS and s.box_m.size % roles.consumers == 0
    return roles.a.copies % roles.consumers == 0 and loaded == (s.box_m.size if gaps else s.block[0])


def _slab(s: Schedule) -> int:
    """Bytes of a slot of B."""
    assert s.roles is not None
    assert s.roles.b is not None
    return up(s.block[1] * s.roles.b.map.span, ALIGN)


class _CrossedSearch:
    """The tiles of one assignment of roles to A and B."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts, exchanged: bool) -> None:
        self.plan, self.facts, self.exchanged = plan, facts, exchanged
        self.plain = Space(plan, facts, exchanged)
        self.size = self.plain.size
        self.units = unit_mode(plan.k, A, self.size), unit_mode(plan.k, B, self.size)

    def choices(self) -> Iterator[tuple[float, Sm90Shape]]:
        """Tiles with their expected times."""
        unit_a, unit_b = self.units
        if unit_a is None or unit_b is None or unit_a == unit_b:
            return
        rows = 64 * GROUPS
        widest = WIDTHS[0] if self.plan.contraction.c is None else WIDEST_WITH_C
        for depth, width, cluster in SHAPES:
            box_k = self.k_box(unit_a, unit_b, depth, width)
            for n in (w for w in WIDTHS if w <= min(widest, up(self.plan.extent_n, 32))):
                for m_side in self.plain.boxes("m", rows, None):
                    for n_side in self.plain.boxes("n", n, None):
                        shape = Sm90Shape(ROLES, m_side, n_side, box_k, cluster)
                        if cluster[0] > m_side.box.tiles or cluster[1] > n_side.box.tiles:
                            continue
                        if cluster == SHARED_A and n > WIDEST_SHARED:
                            continue
                        yield self.estimate(shape)[0], shape

    def k_box(self, unit_a: int, unit_b: int, depth: int, width: int) -> Box:
        """`depth` of A's unit times `width` of B's; tiles go first along the one with the shorter rows."""
        extents = tuple(s.extent for s in self.plan.k)
        rest = tuple(m for m in range(len(extents)) if m not in (unit_a, unit_b))
        dims = tuple(sorted((TileDim((unit_b,), width), TileDim((unit_a,), depth)), key=lambda d: d.box))
        return Box(extents, (*dims, *((TileDim(rest, 1),) if rest else ())))

    def estimate(self, shape: Sm90Shape) -> tuple[float, str, int]:
        """Expected microseconds, what bounds them, and the slices of K."""
        facts, plan = self.facts, self.plan
        columns = shape.block[1]
        depth, width = self.depth_width(shape.k)
        math_clocks = 64 * GROUPS * columns * depth * width / facts.tensor_lanes[plan.contraction.dtype] / 0.88
        rows_a, rows_b = shape.m.box.size * width // shape.cluster[1], shape.n.box.size * depth // shape.cluster[0]
        copy_clocks = (rows_a + rows_b) * ROW_CLOCKS
        per_k = max(math_clocks, copy_clocks) + 0.1 * min(math_clocks, copy_clocks)
        teams = facts.sm_count
        tiles = math.prod(shape.cluster) * plan.extent_l
        tiles *= cluster_tiles(shape.m.box.tiles, shape.n.box.tiles, shape.cluster)
        best: tuple[float, str, int] | None = None
        k_tiles = shape.k.tiles
        pieces = shape.m.box.size / max(d.box for d in shape.m.box.dims)
        for wish in {1, *((teams // tiles, 2 * teams // tiles) if tiles < teams else ())}:
            split = max(1, min(wish, k_tiles // 2, WORKSPACE_LIMIT // (tiles * 64 * GROUPS * columns * 4)))
            steps = (k_tiles / split + -(-k_tiles // split)) / 2  # slices differ by one
            tail = self.plain.model.staging(shape).clocks if split == 1 else 64 * GROUPS * columns / 32.0
            clocks = -(-tiles * split // teams) * (steps * per_k + tail + 2000)
            busy = clocks / (facts.clock_ghz * 1e3)
            dram = 1.3 * plan.bytes / facts.dram_tbps * 1e-6
            blocks = tiles * split
            reduce = LAUNCH_US + 2.0 * blocks * 64 * GROUPS * columns * 4 / facts.l2_tbps * 1e-6 if split > 1 else 0.0
            us = LAUNCH_US + FILL_US + max(busy, dram) + 0.2 * min(busy, dram) + reduce
            us *= (MANY_PIECES if pieces > MOST_PIECES else 1.0) * (APART if shape.cluster == SHARED_A else 1.0)
            us *= IN_STEP[shape.cluster]
            bound = "DRAM" if dram > busy else "tensor cores" if math_clocks > copy_clocks else "L2"
            if best is None or us < best[0]:
                best = us, bound, split
        assert best is not None
        return best

    def depth_width(self, box_k: Box) -> tuple[int, int]:
        """How much of k1 and of k2 a k-tile has."""
        cut = box_k.cut
        assert self.units[0] is not None
        assert self.units[1] is not None
        return cut[self.units[0]], cut[self.units[1]]

    def schedule(self, shape: Sm90Shape) -> Schedule | None:
        """The schedule of a shape, None where no tensor maps can do it or shared memory is short."""
        box_m, box_n, box_k = shape.m.box, shape.n.box, shape.k
        splits = tuple(side.split for side in (shape.m, shape.n) if side.split is not None)
        plan = split_modes(self.plan, splits)
        shared = shape.cluster[1]
        a, b = self.move(plan, A, box_m, box_k, shared), self.move(plan, B, box_n, box_k)
        unit_a, unit_b = self.units
        if a is None or b is None or unit_a is None or unit_b is None:
            return None
        us, bound, split = self.estimate(shape)
        block, c = shape.block, plan.contraction
        staging = self.plain.model.staging(shape)
        d = d_map(plan, box_m, box_n, self.plain.size_d, staging.dense) if staging.bulk and split == 1 else None
        steps = staging.dense if d is not None else staging.padded
        tiles = box_m.tiles * box_n.tiles * plan.extent_l
        workspace = split * tiles * block[0] * block[1] * 4 if split > 1 else 0
        store = 0
        if split == 1:
            store = store_bytes(steps, block, self.plain.size_d, c.c is not None, d is not None)
        first = up(max(block[0] * block[2] * self.size, store), ALIGN)
        slab = up(block[1] * self.depth_width(box_k)[1] * self.size, ALIGN)
        # Where many blocks share few tiles the copies limit, and slabs far ahead only delay A, which comes behind them.
        ahead = SLOTS if split == 1 else self.depth_width(box_k)[0] // 4
        barriers = 32 if shared == 1 else 128
        slots = min(ahead, (self.facts.smem_per_block - ALIGN - first - barriers) // (slab + 16))
        if slots < 4:
            return None
        crossed = Crossed(unit_a, unit_b, apart=shared > 1)
        made = Schedule(
            family="sm90", arch=self.facts.arch, block=block, warps=(4 * (GROUPS + 1), 1), num_stages=slots,
            box_m=box_m, box_n=box_n, box_k=box_k, k_table=False, a=None, b=None,
            vector_d=vector_d(plan, box_m, box_n), split_k=split,
            group_m=max(1, min(8, box_m.tiles) // shape.cluster[0]),
            smem_bytes=ALIGN + first + slots * (slab + 16) + barriers, item_bytes=self.size,
            exchanged=self.exchanged, splits=splits,
            roles=WarpRoles(GROUPS, 1, False, _in_pieces(a), b, d, steps, shape.cluster, crossed=crossed),
            blocks=self.facts.sm_count, workspace_bytes=workspace, estimate_us=us, bound=bound,
            reason=f"{tiles} tiles of {block[0]} x {block[1]}, operands' rows along different contracted modes, "
            "A through registers" + ("" if shape.cluster == ALONE else ", an operand shared by two blocks"),
        )  # fmt: skip
        return made if shared == 1 or (_can_part(made) and split > 1) else None

    def move(self, plan: GemmPlan, tensor: int, box_mn: Box, box_k: Box, shared: int = 1) -> BulkMove | None:
        """The tensor map of a k-tile of A, [row][k2][k1], or of a slab of B, [n][k2].

        Where blocks share A, it is that of one's part of k2.
        """
        operand, side = (plan.a, plan.m) if tensor == A else (plan.b, plan.n)
        assert operand is not None
        unit_a, unit_b = self.units
        assert unit_a is not None
        assert unit_b is not None
        cut_k = [*box_k.cut]
        # Parts of a k-tile, along the operand's longer way through K, that are copied one by one.
        parted = unit_a if tensor == B else unit_b
        whole = cut_k[parted]
        cut_k[parted] = 1 if tensor == B else whole // shared
        unit, other = (unit_a, unit_b) if tensor == A else (unit_b, unit_a)
        span = cut_k[unit] * self.size
        modes = (*plan.l, *side, *plan.k)
        base_s, base_k = len(plan.l), len(plan.l) + len(side)
        order_s = [base_s + m for d in box_mn.dims for m in d.modes]
        first = [base_k + unit, base_k + other] if tensor == A else [base_k + unit, *order_s, base_k + other]
        order = [*first, *(i for i in (*order_s, *range(base_k, len(modes)), *range(base_s)) if i not in first)]
        made = tma_map(
            [s.extent for s in modes],
            [s.strides[tensor] for s in modes],
            self.size,
            [1] * base_s + [*box_mn.cut, *cut_k],
            order=order,
            unit=base_k + unit,
            base_alignment=operand.alignment,
            span=span,
        )
        if isinstance(made, Refusal) or made.base_offset or made.slabs > 1 or made.box[0] * self.size != span:
            return None
        step = made.modes[base_k + parted]
        if whole > cut_k[parted] and plan.k[parted].extent % whole:
            # A part past the end of K must read zeros: nothing slower may share its dimension of the map.
            others = [m.weight for i, m in enumerate(made.modes) if m.dim == step.dim and i != base_k + parted]
            if step.weight <= 0 or any(w <= 0 or w >= step.weight for w in others if w):
                return None
        return BulkMove("k", made) if step.weight > 0 else None


def _in_pieces(move: BulkMove) -> BulkMove:
    """A's copies in pieces along the slowest dimension of its box, so that B's get between them."""
    made = move.map
    slowest = max(i for i, b in enumerate(made.box) if b > 1)
    if slowest < 2:  # k1 and k2 alone: a single row
        return move
    pieces = max(d for d in range(1, PIECES + 1) if made.box[slowest] % d == 0)
    part = tuple(b // pieces if i == slowest else b for i, b in enumerate(made.box))
    piece = replace(made, box=part)
    return replace(move, map=piece, repeats=((slowest, part[slowest], pieces),), pitch=piece.slab_bytes)
