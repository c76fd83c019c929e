"""Operands that stay: one so small that a block fetches it once and multiplies every tile of the other with it.

Owns when that is possible and how much shared memory it takes. Knows plans and boxes, no tensor map and no text.
"""

from __future__ import annotations

from gett.plan import A, B, GemmPlan
from gett.schedule.cost_sm90 import Side
from layouts.box import Box

ALIGN = 1024  # k-tiles start at multiples of the widest swizzle's period
MOST = 40 * 1024  # bytes that may stay: the rest belongs to stages, which keep memory busy
TILES = 2  # of the other operand that a block makes at least
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
    return tiles >= TILES * sm_count and kept.box.tiles == 1 and kept_bytes(name, kept.rows, box_k, size) <= MOST


def kept_bytes(name: str, rows: int, box_k: Box, size: int) -> int:
    """Shared memory for all k-tiles of operand `name`.

    They follow each other without the room that instructions want behind a tile: what lies there is the next one.
    """
    return (box_k.tiles - 1) * kept_pitch(rows, box_k, size) + _room(rows, GRAIN[name], box_k, size)


def kept_pitch(rows: int, box_k: Box, size: int) -> int:
    """Bytes from one k-tile of an operand that stays to the next."""
    return _room(rows, 8, box_k, size)


def staged_bytes(resident: str, rows: tuple[int, int], box_k: Box, size: int) -> int:
    """Shared memory of one stage: the tiles of A and B, of `rows` rows each, but for the one that stays."""
    sides = zip("ab", rows, strict=True)
    return sum(_room(count, GRAIN[name], box_k, size) for name, count in sides if name != resident)


def _room(rows: int, grain: int, box_k: Box, size: int) -> int:
    return _up(_up(rows, grain) * box_k.size * size, ALIGN)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
