"""Operands that stay: one so small that a block fetches it once and multiplies every tile of the other with it.

Or K is so short that the rows of a line of tiles stay while a block makes its tiles one by one. Owns when that is
possible and how much shared memory it takes. Knows plans and boxes, no tensor map and no text.
"""

from __future__ import annotations

from gett.plan import A, B, GemmPlan
from gett.schedule.room import ALIGN, up
from gett.schedule.sm90_shape import Side
from layouts.box import Box

MOST = 40 * 1024  # bytes that may stay: the rest belongs to stages, which keep memory busy
TILES = 2  # of the other operand that a block makes at least
LINE = 8  # tiles that need the same rows, at least, where they stay for a line of tiles
SMALL = 16 * 2**20  # bytes of the other operand, which every line reads again, out of L2
GRAIN = {"a": 64, "b": 8}  # rows that one instruction reads; a tile has room for whole ones


def small_operands(plan: GemmPlan, size: int) -> tuple[str, ...]:
    """Operands (`"a"`, `"b"`) that are small enough to stay and the same for every batch."""
    sides = (("a", A, plan.extent_m), ("b", B, plan.extent_n))
    return tuple(
        name
        for name, tensor, rows in sides
        if rows * plan.extent_k * size <= MOST and not any(s.extent > 1 and s.strides[tensor] for s in plan.l)
    )


def may_stay(name: str, kept: Side, box_k: Box, size: int, tiles: int, sm_count: int) -> bool:
    """Whether each of `tiles` tiles needs all of a small operand, it fits, and there is something to gain."""
    if tiles < TILES * sm_count or kept.box.tiles > 1:
        return False
    return kept_bytes(name, kept.rows, box_k.size * size, box_k.tiles) <= MOST


def may_stay_for_lines(name: str, kept: Side, other: Side, box_k: Box, size: int, batches: int, sm_count: int) -> bool:
    """Whether the rows of a line of tiles fit twice, and lines are long enough and cheap enough to walk along."""
    tiles = kept.box.tiles * other.box.tiles * batches
    if kept.box.tiles * batches == 1 or other.box.tiles < LINE or tiles < LINE * sm_count:
        return False
    if other.box.volume * box_k.volume * size > SMALL:
        return False
    return kept_bytes(name, kept.rows, box_k.size * size, 2 * box_k.tiles) <= MOST


def kept_bytes(name: str, rows: int, deep: int, tiles: int) -> int:
    """Shared memory for `tiles` k-tiles of operand `name`, whose rows take `deep` bytes of each.

    They follow each other without the room that instructions want behind a tile: what lies there is the next one.
    """
    return (tiles - 1) * kept_pitch(rows, deep) + _room(rows, GRAIN[name], deep)


def kept_pitch(rows: int, deep: int) -> int:
    """Bytes from one k-tile of an operand that stays to the next."""
    return _room(rows, 8, deep)


def staged_bytes(resident: str, rows: tuple[int, int], deep: tuple[int, int]) -> int:
    """Shared memory of one stage: the tiles of A and B, of `rows` rows of `deep` bytes, but for the one that stays."""
    sides = zip("ab", rows, deep, strict=True)
    return sum(_room(count, GRAIN[name], width) for name, count, width in sides if name != resident)


def _room(rows: int, grain: int, deep: int) -> int:
    return up(up(rows, grain) * deep, ALIGN)
