"""How a Hopper block's shared memory is divided: stages, what stays, the staged tile of D, barriers.

Knows bytes only; `kernels/mainloop/shared_storage.cuh` lays the same parts out and asserts that they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.records import StageSteps

ALIGN = 1024
"""Tiles start at multiples of the widest swizzle's period."""

DEEP = 8
"""Most stages where both operands come with every k-tile."""

DEEPEST = 16
"""Most stages where one of them stays."""

KEPT = 32
"""Bytes of the barriers of an operand that stays."""

TRADE = 16
"""Bytes of the barriers of a trade."""


@dataclass(frozen=True, slots=True)
class Room:
    """Shared memory of a block.

    Attributes:
        stages: K-tiles under way.
        size: Bytes in all.
        alone: Whether D is staged where the stages were, since the block makes one tile.
    """

    stages: int
    size: int
    alone: bool = False


def up(value: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-value // step) * step


def store_bytes(steps: StageSteps, block: tuple[int, int, int], item: int, added: bool, bulk: bool) -> int:
    """Bytes of a staged tile of D, whose elements have `item` bytes, and of what its stores need beside it.

    Args:
        steps: How the tile is staged.
        block: Extents of the block's tile.
        item: Bytes of an element of D.
        added: Whether C is added from vectors: float32 is staged, and C has offsets too. Where a tensor map brings C
            to where D is staged, it takes no room of its own.
        bulk: Whether a tensor map stores the tile, so that no offsets are needed.
    """
    offsets = 0 if bulk else (block[0] + block[1]) * 8 * (2 if added else 1)
    staged = steps.elements * (4 if added else item) + (128 if steps.put else 0)
    return up(staged, ALIGN if steps.span > 16 else 128) + up(offsets, 128)


def divide(capacity: int, stage: int, store: int, k_tiles: int, single: bool, trade: bool = False) -> Room | None:
    """Room for as many stages as fit beside the staged tile, or in its place too; None where fewer than two do.

    Args:
        capacity: Bytes that a block may have.
        stage: Bytes of one stage.
        store: Bytes that staging takes.
        k_tiles: That a tile of D has; more stages are of no use.
        single: Whether a block makes one tile at most and may stage it where the stages were.
        trade: Whether halves of the staged tile are traded, for which a second one lies behind it.
    """
    fixed = ALIGN + _barriers(DEEP) + (TRADE if trade else 0)
    store += up(store, ALIGN) if trade else 0
    stages = max(0, min(DEEP, (capacity - fixed - store) // stage))
    deeper = min(DEEP, (capacity - fixed) // stage)
    if single and deeper >= 2 and stages < min(deeper, k_tiles) and store <= capacity - fixed:
        return Room(deeper, fixed + max(deeper * stage, store), True)
    return Room(stages, fixed + stages * stage + store) if stages >= 2 else None


def divide_kept(capacity: int, stage: int, store: int, kept: int, whole: int | None) -> Room | None:
    """The same where one operand stays, in `kept` bytes; None where that costs stages.

    Args:
        capacity: As in `divide`.
        stage: Bytes of a stage without it.
        store: As in `divide`.
        kept: Bytes of the operand that stays.
        whole: Bytes that a stage of both operands would take; None where fewer stages than of those do not matter.
    """
    room = capacity - ALIGN - store
    beside = (room - kept - _barriers(DEEP) - KEPT) // stage
    if whole is not None and beside < min(DEEP, (room - _barriers(DEEP)) // whole):
        return None
    fixed = kept + _barriers(DEEPEST) + KEPT
    stages = min(DEEPEST, (room - fixed) // stage)
    return Room(stages, ALIGN + store + fixed + stages * stage) if stages >= 2 else None


def _barriers(stages: int) -> int:
    return (2 * stages + 2) * 8  # of stages and of two staging buffers
