"""Depths of K that are no multiple of 16: tiles of which the copies fill only what exists, beside zeros that stay.

wgmma takes 16 k at a time. A k-tile of 24, 36 or 84 has room for 32, 48 or 96; the missing k are zeros in both
operands, written once when a block starts (`kernels/loader/k_residue.cuh`), and no copy touches them again: each fill
of a stage is the same box at the same place. So the copy engine moves no rows of padding and no rows that end in
padding.

A schedule has such a tail where the size of its `box_k` is below its block's depth. Knows boxes and tensor maps; what a
tail is worth is the cost model's.
"""

from __future__ import annotations

import math

from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.access import unit_mode
from gett.schedule.records import BulkMove
from gett.schedule.sm90_shape import STEP, Side, depth
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.tma import Refusal, tma_map

DEEPEST = 128  # k of a tile
TILES = 6  # more k-tiles than that, and the plain ones waste little
WASTE = 1.15  # how much more padding than the least one is taken into account
COPIES = 40  # most copies of an operand's tile: a thread issues them one by one
KEPT = 4


def row_bytes(move: BulkMove, deep: int, size: int) -> int:
    """Shared memory that `deep` k of one row of an operand take: K-major rows are whole spans of the swizzle."""
    span = move.map.span
    return -(-deep * size // span) * span if move.major == "k" else deep * size


def tail_boxes(extents: tuple[int, ...], lead: int | None, size: int) -> list[Box]:
    """Boxes of K that divide it evenly into tiles that are no multiple of 16, the least padded first.

    Args:
        extents: Of K's modes.
        lead: Mode along which an operand's rows run, None where they run along M and N only. Such a row is one piece
            of a swizzled row, in whole 16 bytes, so no other mode is tiled with it.
        size: Bytes of an element.
    """
    longest = lead if lead is not None else max(range(len(extents)), key=lambda m: extents[m])
    beside = [m for m in range(len(extents)) if m != longest and extents[m] > 1] if lead is None else []
    whole = math.prod(extents[m] for m in beside)
    count = math.prod(extents)
    if (count if lead is None else extents[lead]) % STEP == 0:
        return []  # full k-tiles divide it
    found = []
    for parts in range(1, extents[longest] + 1):
        cut = extents[longest] // parts
        if count > TILES * whole * cut:
            break
        deep = whole * cut
        if extents[longest] % parts or deep % STEP == 0 or deep > (DEEPEST if lead is None else DEEPEST // size):
            continue
        if lead is not None and deep * size % 16:
            continue
        cuts = {longest: cut} | {m: extents[m] for m in beside}
        dims = [TileDim((m,), c) for m, c in cuts.items() if c > 1]
        rest = tuple(m for m in range(len(extents)) if cuts.get(m, 1) == 1)
        found.append(Box(extents, (*dims, *((TileDim(rest, 1),) if rest else ()))))
    least = min((depth(b) / b.size for b in found), default=1.0)
    good = [b for b in found if depth(b) / b.size <= WASTE * least]
    return sorted(good, key=lambda b: (depth(b) / b.size, b.tiles))[:KEPT]


def filled_box(plan: GemmPlan, box_k: Box, size: int) -> Box | None:
    """The box of K for copies of an MN-major operand that bring zeros past K's end, beside a K-major one with a tail.

    None where there is no such pair, or where K does not end with the tile. Rows of zeros cost what rows of an
    MN-major tile cost, which may be less than a copy for each chunk.
    """
    units = [unit_mode(plan.k, t, size) for t in (A, B)]
    lead = next((u for u in units if u is not None), None)
    if box_k.size % STEP == 0 or lead is None or None not in units or box_k.size != plan.k[lead].extent:
        return None
    dims = tuple(TileDim(d.modes, depth(box_k)) if d.modes == (lead,) else d for d in box_k.dims)
    return Box(box_k.extents, dims)


def held(move: BulkMove, modes_k: int) -> int:
    """K of an operand's tile that its copies write, zeros past K's end included."""
    return math.prod(move.map.tile[len(move.map.tile) - modes_k :])


def tail_move(
    plan: GemmPlan, tensor: int, side: tuple[Strided, ...], cut: Side, box_k: Box, size: int
) -> BulkMove | None:
    """The way of an operand whose k-tiles are not full, None where no tensor map does it.

    K-major: one row of a swizzle holds the box's k, the rest of the row is the tail. MN-major: each chunk (a row's
    worth of M or N) is a copy of its own, at the pitch of a full k-tile.
    """
    operand = plan.a if tensor == A else plan.b
    assert operand is not None
    cut_mn, cut_k = [*cut.box.cut], [*box_k.cut]
    if any(mode.extent % c for mode, c in zip(plan.k, cut_k, strict=True)):
        return None
    k_unit, mn_unit = unit_mode(plan.k, tensor, size), unit_mode(side, tensor, size)
    base_s, base_k = len(plan.l), len(plan.l) + len(side)
    counts: list[tuple[int, int, int]] = []  # mode of the operand, step along it, copies
    if k_unit is not None:
        major, unit, row, run = "k", base_k + k_unit, cut_k[k_unit], 0
        fits = [s for s in (32, 64, 128) if s >= depth(box_k) * size]
        if box_k.size != row or row * size % 16 or not fits:
            return None
        span = fits[0]
    elif mn_unit is not None:
        major, unit, run = "mn", base_s + mn_unit, cut.run
        span = cut.chunk * size if run else next((s for s in (128, 64, 32, 16) if cut_mn[mn_unit] * size % s == 0), 0)
        if not span:
            return None
        row = run or span // size
        tiled = [m for d in cut.box.dims if d.box > 1 for m in d.modes]
        if tiled and tiled[0] != mn_unit:
            return None
        pieces = {m: (row, cut_mn[m] // row) if m == mn_unit else (1, cut_mn[m]) for m in tiled}
        counts = [(base_s + m, step, count) for m, (step, count) in pieces.items() if count > 1]
        cut_mn = [row if m == mn_unit else 1 for m in range(len(side))]
    else:
        return None
    if math.prod(count for _, _, count in counts) > COPIES:
        return None
    modes = (*plan.l, *side, *plan.k)
    order_s = [base_s + m for d in cut.box.dims for m in d.modes]
    order_k = [base_k + m for d in box_k.dims for m in d.modes]
    order = [*order_s, *order_k] if major == "k" else [*order_k, *order_s]
    made = tma_map(
        [s.extent for s in modes],
        [s.strides[tensor] for s in modes],
        size,
        [1] * base_s + cut_mn + cut_k,
        order=[*order, *range(base_s)],
        unit=unit,
        base_alignment=operand.alignment,
        span=span,
        row=row,
    )
    if isinstance(made, Refusal) or made.base_offset or made.slabs > 1 or made.box[0] != row:
        return None
    repeats = tuple((made.modes[m].dim, made.modes[m].weight * step, count) for m, step, count in counts)
    return BulkMove(major, made, repeats=repeats, pitch=depth(box_k) * span if repeats else 0, run=run)
