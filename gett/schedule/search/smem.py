"""Shared memory of a Hopper block: how many stages fit beside the staged tile of D and the operand that stays.

Knows bytes only; where the parts lie is said by `gett.schedule.spec.wgmma_needs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.wgmma_needs import (
    ALIGN,
    DEEP,
    DEEPEST,
    PANEL_BARRIERS,
    barrier_bytes,
    pipeline_smem,
    stationary_smem,
)


@dataclass(frozen=True, slots=True)
class Carved:
    """Stages that fit, and where all lies.

    Attributes:
        stages: K-tiles under way.
        plan: Offsets and size.
        reuse: Whether D is staged where the stages were, since the block makes one tile.
    """

    stages: int
    plan: SmemPlan
    reuse: bool = False


def carve(
    capacity: int, stage: int, staging: int, k_tiles: int, one_tile: bool, exchange: bool = False
) -> Carved | None:
    """As many stages as fit beside the staged tile, or in its place too; None where fewer than two do.

    Args:
        capacity: Bytes that a block may have.
        stage: Bytes of one stage.
        staging: Bytes that staging takes.
        k_tiles: That a tile of D has; more stages are of no use.
        one_tile: Whether a block makes one tile at most and may stage it where the stages were.
        exchange: Whether halves of the staged tile are exchanged, for which a second one lies behind it.
    """

    def most(reuse: bool) -> Carved | None:
        for stages in range(DEEP, 1, -1):
            plan = pipeline_smem(stages, stage, staging, exchange=exchange, reuse=reuse)
            if plan.size <= capacity:
                return Carved(stages, plan, reuse)
        return None

    beside, instead = most(False), most(True) if one_tile else None
    stages = beside.stages if beside is not None else 1
    return instead if instead is not None and stages < min(instead.stages, k_tiles) else beside


def carve_stationary(capacity: int, stage: int, staging: int, kept: int, whole: int | None) -> Carved | None:
    """The same where one operand stays, in `kept` bytes; None where that costs stages.

    Args:
        capacity: As in `carve`.
        stage: Bytes of a stage without it.
        staging: As in `carve`.
        kept: Bytes of the operand that stays.
        whole: Bytes that a stage of both operands would take; None where fewer stages than of those do not matter.
    """
    room = capacity - ALIGN - staging - barrier_bytes(DEEP)
    if whole is not None and (room - kept - PANEL_BARRIERS) // stage < min(DEEP, room // whole):
        return None
    plans = ((n, stationary_smem(n, stage, staging, kept)) for n in range(DEEPEST, 1, -1))
    return next((Carved(n, plan) for n, plan in plans if plan.size <= capacity), None)
