"""Tensor maps of the Hopper family: how operands and C come and how D leaves, for boxes that the hardware can move.

Owns the rules that join boxes, swizzles and slabs; which boxes are tried and what they cost is asked elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from gett.ir.contraction import Operand
from gett.ir.gemm import A, C, D, GemmPlan
from gett.schedule.access import unit_mode
from gett.schedule.records import BulkMove, StageSteps
from gett.schedule.room import up
from gett.schedule.sm90_shape import STEP, Side
from gett.schedule.tails import tail_move
from layouts.box import Box
from layouts.modes import Strided
from layouts.swizzle import CHUNK
from layouts.tma import Refusal, TmaMap, tma_map

TYPES = ("float16", "bfloat16")


def operand_move(
    plan: GemmPlan, tensor: int, side: tuple[Strided, ...], cut: Side, box_k: Box, size: int
) -> BulkMove | None:
    """The tensor map of an operand, None where there is none."""
    if box_k.size % STEP:
        return tail_move(plan, tensor, side, cut, box_k, size)
    box_mn = cut.box
    operand = plan.a if tensor == A else plan.b
    assert operand is not None
    cuts = box_mn.cut, box_k.cut
    k_unit, mn_unit = unit_mode(plan.k, tensor, size), unit_mode(side, tensor, size)
    major = "k" if k_unit is not None else "mn"
    inner = (cuts[1][k_unit] if k_unit is not None else cuts[0][mn_unit or 0]) * size
    span = next((s for s in (128, 64, 32, 16) if inner % s == 0), None)
    run = cut.run if major == "mn" else 0
    if run:
        span = cut.chunk * size
    if span is None:
        return None
    base_l, base_s = 0, len(plan.l)
    modes = (*plan.l, *side, *plan.k)
    base_k = base_s + len(side)
    # Slabs must start at whole periods of the swizzle; where rows do not come in eights, each is its own copy.
    count_k = [1] * len(cuts[1])
    if major == "k" and box_mn.size % 8:
        count_k = [c * size // span if m == k_unit else c for m, c in enumerate(cuts[1])]
    box = [1] * len(plan.l) + [*cuts[0], *(c // count for c, count in zip(cuts[1], count_k, strict=True))]
    order_s = [base_s + m for d in box_mn.dims for m in d.modes]
    order_k = [base_k + m for d in box_k.dims for m in d.modes]
    order = [*order_s, *order_k] if major == "k" else [*order_k, *order_s]
    unit = base_k + k_unit if k_unit is not None else base_s + (mn_unit or 0)
    made = tma_map(
        [s.extent for s in modes],
        [s.strides[tensor] for s in modes],
        size,
        box,
        order=[*order, *range(base_l, len(plan.l))],
        unit=unit,
        base_alignment=operand.alignment,
        span=span,
        row=run,
    )
    if isinstance(made, Refusal) or made.base_offset or made.box[0] * size != (run * size or span):
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
    return BulkMove(major, made, repeats=tuple(repeats), pitch=up(box_mn.size, 8) * span if repeats else 0)


def d_map(plan: GemmPlan, box_m: Box, box_n: Box, size: int, stage: StageSteps) -> TmaMap | None:
    """The tensor map that stores a tile of D, dimensions as it is staged, else by D's strides."""
    return _staged_map(plan, D, plan.contraction.d, (box_m, box_n), size, stage)


def c_map(plan: GemmPlan, box_m: Box, box_n: Box, size: int, stage: StageSteps, d: TmaMap) -> TmaMap | None:
    """The tensor map that brings a tile of C to the places that `d`, D's map, stores from; None where there is none.

    C has D's type. Modes that follow each other in D need not do so in C, whose copies may then be others than D's.
    """
    c = plan.contraction.c
    assert c is not None
    # Without a swizzle, rows end to end are one run: one copy may bring what others store in rows.
    for row in (stage.row, 0) if stage.span == CHUNK else (stage.row,):
        made = _staged_map(plan, C, c, (box_m, box_n), size, replace(stage, row=row))
        if made is not None and _same_places(made, d):
            return made
    return None


def _same_places(first: TmaMap, second: TmaMap) -> bool:
    """Whether two maps of the same box lay all elements down alike.

    A place, but for the swizzle, is a sum over the modes, so each mode is asked alone.
    """
    if (first.span, first.tile) != (second.span, second.tile):
        return False
    origin = [0] * len(first.tile)
    alone = ((*origin[:m], x, *origin[m + 1 :]) for m, count in enumerate(first.tile) for x in range(1, count))
    return all(first.smem_offset(local) == second.smem_offset(local) for local in alone)


def _staged_map(
    plan: GemmPlan, tensor: int, operand: Operand, boxes: tuple[Box, Box], size: int, stage: StageSteps
) -> TmaMap | None:
    box_m, box_n = boxes
    modes = (*plan.l, *plan.m, *plan.n)
    box = [1] * len(plan.l) + [*box_m.cut, *box_n.cut]
    first = {"m": len(plan.l), "n": len(plan.l) + len(plan.m)}
    dims = {"m": box_m.dims, "n": box_n.dims}
    staged = [first[g] + dims[g][i].modes[0] for g, i in stage.order]
    order = staged + sorted(
        (i for i in range(len(modes)) if i not in staged), key=lambda i: (box[i] == 1, modes[i].strides[D])
    )
    made = tma_map(
        [s.extent for s in modes],
        [s.strides[tensor] for s in modes],
        size,
        box,
        order=order,
        base_alignment=operand.alignment,
        span=stage.span,
        row=stage.row,
    )
    if isinstance(made, Refusal) or made.base_offset or (made.slabs > 1 and not stage.row):
        return None
    return made
