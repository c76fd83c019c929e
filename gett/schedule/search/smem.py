"""Shared memory of a Hopper block: how many stages fit beside the staged tile of D, the operand that stays, barriers.

Owns every offset; the kernels are told them. Knows bytes only.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.search.wgmma_tile import up
from gett.schedule.spec.epilogue import StagedTile
from gett.schedule.spec.smem import SmemPlan

ALIGN = 1024
"""Tiles start at multiples of the widest swizzle's period."""

DEEP, DEEPEST = 8, 16
"""Most stages where both operands come with every k-tile, and where one stays."""

PANEL_BARRIERS = 32
"""Bytes of the barriers of an operand that stays."""

EXCHANGE_BARRIERS = 16
"""Bytes of the barriers of an exchange."""

DUMP = 128
"""Bytes behind a staged tile where matrices' rows of padding go."""


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


def barriers(stages: int) -> int:
    """Bytes of the barriers of stages and of two staging buffers."""
    return (2 * stages + 2) * 8


def staging_bytes(tile: StagedTile, block: tuple[int, int, int], item: int, vector_source: bool, bulk: bool) -> int:
    """Bytes of a staged tile of D, whose elements have `item` bytes, and of what its stores need beside it.

    Args:
        tile: How the tile is staged.
        block: Extents of the block's tile.
        item: Bytes of an element of D.
        vector_source: Whether C is added from vectors: float32 is staged, and C has offsets too. Where a tensor map
            brings C to where D is staged, it takes no room of its own.
        bulk: Whether a tensor map stores the tile, so that no offsets are needed.
    """
    offsets = 0 if bulk else (block[0] + block[1]) * 8 * (2 if vector_source else 1)
    staged = tile.elements * (4 if vector_source else item) + (0 if tile.copy.kind == "scalar" else DUMP)
    return up(staged, ALIGN if tile.swizzle_bytes > 16 else 128) + up(offsets, 128)


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
    fixed = ALIGN + barriers(DEEP) + (EXCHANGE_BARRIERS if exchange else 0)
    staging += up(staging, ALIGN) if exchange else 0
    stages = max(0, min(DEEP, (capacity - fixed - staging) // stage))
    deeper = min(DEEP, (capacity - fixed) // stage)
    if one_tile and deeper >= 2 and stages < min(deeper, k_tiles) and staging <= capacity - fixed:
        end = max(deeper * stage, staging)
        return Carved(deeper, SmemPlan(fixed + end, stage, barriers=end), True)
    if stages < 2:
        return None
    end = stages * stage
    return Carved(stages, SmemPlan(fixed + end + staging, stage, staging=end, barriers=end + staging))


def carve_stationary(capacity: int, stage: int, staging: int, kept: int, whole: int | None) -> Carved | None:
    """The same where one operand stays, in `kept` bytes; None where that costs stages.

    Args:
        capacity: As in `carve`.
        stage: Bytes of a stage without it.
        staging: As in `carve`.
        kept: Bytes of the operand that stays.
        whole: Bytes that a stage of both operands would take; None where fewer stages than of those do not matter.
    """
    room = capacity - ALIGN - staging
    beside = (room - kept - barriers(DEEP) - PANEL_BARRIERS) // stage
    if whole is not None and beside < min(DEEP, (room - barriers(DEEP)) // whole):
        return None
    fixed = kept + barriers(DEEPEST) + PANEL_BARRIERS
    stages = min(DEEPEST, (room - fixed) // stage)
    if stages < 2:
        return None
    end = stages * stage
    plan = SmemPlan(
        ALIGN + staging + fixed + end, stage, stationary=end, staging=end + kept, barriers=end + kept + staging
    )
    return Carved(stages, plan)
