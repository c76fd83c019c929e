"""The plans that a packed schedule consists of: copies, and the product of the copies.

Both refer to one piece of the plan's contraction. Owns where copies lie in the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from gett.ir.contraction import Contraction
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.ir.packing import copy_of, packed_bytes, packed_contraction, packed_operands, piece_of
from gett.schedule.lower import lower_plan, swap_ab
from gett.schedule.spec.epilogue import Epilogue, VectorStore
from gett.schedule.spec.schedule import WORKSPACE_ALIGNMENT, CopyPass, OneTile, Packing, Schedule, Tiling
from layouts.box import Box


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """A tensor that is copied."""

    name: str  # `"a"` or `"b"`, the contraction's first or second operand, or `"d"`
    plan: GemmPlan  # of the copy
    offset: int  # where the copy lies in the workspace, in bytes


@dataclass(frozen=True, slots=True)
class PackedPlans:
    """What is run for each piece."""

    piece: Contraction  # a piece of the contraction, in the tensors' own layouts
    tensors: tuple[PackedTensor, ...]  # the tensors that are copied, A and B before D
    product: GemmPlan  # the product of the copies
    workspace_bytes: int  # room for all copies of a piece


@lru_cache(maxsize=64)
def packed_plans(contraction: Contraction, cuts: tuple[tuple[int, int], ...], names: tuple[str, ...]) -> PackedPlans:
    """The plans of a piece, with copies of the tensors of these names (of `a`, `b`, `d`)."""
    piece = piece_of(contraction, cuts)
    assert piece.b is not None
    tensors, copies, offset = [], packed_operands(piece, names), 0
    for name, tensor in (("a", piece.a), ("b", piece.b), ("d", piece.d)):
        if name not in names:
            continue
        packed = copies[name]
        ends = (packed, tensor) if name == "d" else (tensor, packed)
        tensors.append(PackedTensor(name, make_gemm_plan(copy_of(piece, *ends)), offset))
        offset += -(-packed_bytes(piece, packed) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
    product = make_gemm_plan(packed_contraction(piece, [copies.get(name) for name in "abd"]))
    return PackedPlans(piece, tuple(tensors), product, offset)


def plans_of(plan: GemmPlan, packing: Packing) -> PackedPlans:
    """The plans of a plan's packed schedule."""
    return packed_plans(plan.contraction, packing.cuts, tuple(n for n in "abd" if getattr(packing, n) is not None))


def product_of(schedule: Schedule) -> Schedule:
    """The schedule of the product of the copies."""
    assert schedule.packing is not None
    return replace(schedule, packing=None, workspace_bytes=schedule.workspace_bytes - schedule.packing.bytes)


def copy_schedule(arch: str, copy: CopyPass) -> Schedule:
    """The schedule of a copy."""
    tiling = Tiling((copy.box.size, 1, 1), copy.box, Box((), ()), Box((), ()))
    store = VectorStore(copy.loop.vector)
    return Schedule(arch, tiling, copy.loop, Epilogue(store, None), OneTile(), copy.smem)


def scheduled_plan(plan: GemmPlan, schedule: Schedule) -> GemmPlan:
    """The plan that the boxes of a schedule belong to: lowered, and of the copies where it packs."""
    if schedule.packing is not None:
        plan = plans_of(plan, schedule.packing).product
    return lower_plan(plan, schedule.tiling, schedule.precision)


def plan_in_roles(plan: GemmPlan, schedule: Schedule) -> GemmPlan:
    """The plan of the tensors that a caller has, with A and B in the roles of the schedule's kernels."""
    lowered = scheduled_plan(plan, schedule)
    if schedule.packing is None:
        return lowered
    return plan if plan.swapped == lowered.swapped else swap_ab(plan)
