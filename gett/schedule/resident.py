"""Operands that stay: one so small that a block fetches it once and multiplies every tile of the other with it.

Or a block makes tiles of one line only, and the rows that all of them need stay; or K is so short that the rows of a
line stay while a block makes its tiles one by one, and then those of the next. Owns when that is possible, how much
shared memory it takes, and how measured times differ from estimates. Knows plans and boxes, no tensor map and no text.
"""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.room import ALIGN, up
from gett.schedule.sm90_shape import Side, Sm90Shape
from layouts.box import Box

MOST = 40 * 1024  # bytes that may stay: the rest belongs to stages, which keep memory busy
TILES = 2  # of the other operand that a block makes at least
LINE = 8  # tiles that need the same rows, at least, where they stay for a line of tiles
SMALL = 16 * 2**20  # bytes of the other operand, which every line reads again, out of L2
# Blocks that keep to one line: lines at most, tiles of a multiprocessor and k at least, share of rows that padding may
# add, outputs of a tile at most. Beyond these it gains nothing on an H200.
ONE_LINES, ONE_TILES, ONE_K, ONE_PADDED, ONE_OUTPUTS = 6, 4, 192, 1.07, 128 * 192
ONE_MOST = 150 * 1024  # bytes that may stay there: L2 is read so much less that fewer stages suffice
# Bytes of loads under way there, at least and from which on more gain nothing; what fewer cost, k-tiles of short rows,
# and A in place of B.
ONE_LEAST, ONE_ENOUGH, ONE_FEWER, ONE_SHORT, ONE_A = 64 * 1024, 96 * 1024, 0.25, 1.03, 1.02
ONE_SHORT_K = 64  # k below which k-tiles are those
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


def may_stay_for_one_line(name: str, kept: Side, other: Side, box_k: Box, size: int, sm_count: int) -> bool:
    """Whether blocks may each keep to one of few lines of tiles, whose rows fit, and there is something to gain."""
    lines = kept.box.tiles
    if not 1 < lines <= min(ONE_LINES, sm_count) or lines * other.box.tiles < ONE_TILES * sm_count:
        return False
    if kept.box.size * other.box.size > ONE_OUTPUTS or box_k.volume < ONE_K:
        return False
    if lines * kept.box.size > ONE_PADDED * kept.box.volume:
        return False
    return kept_bytes(name, kept.rows, box_k.size * size, box_k.tiles) <= ONE_MOST


def may_stay_for_lines(name: str, kept: Side, other: Side, box_k: Box, size: int, batches: int, sm_count: int) -> bool:
    """Whether the rows of a line of tiles fit twice, and lines are long enough and cheap enough to walk along."""
    tiles = kept.box.tiles * other.box.tiles * batches
    if kept.box.tiles * batches == 1 or other.box.tiles < LINE or tiles < LINE * sm_count:
        return False
    if other.box.volume * box_k.volume * size > SMALL:
        return False
    return kept_bytes(name, kept.rows, box_k.size * size, 2 * box_k.tiles) <= MOST


def staying(shape: Sm90Shape, small: tuple[str, ...], size: int, batches: int, sm_count: int) -> list[Sm90Shape]:
    """The same tile with a small operand that stays in shared memory, or with the rows of a line of tiles.

    Args:
        shape: A tile whose operands both come with every k-tile.
        small: What `small_operands` found.
        size: Bytes of an element.
        batches: Extent of L.
        sm_count: Multiprocessors.
    """
    sides, k = {"a": shape.m, "b": shape.n}, shape.k
    tiles = shape.m.box.tiles * shape.n.box.tiles * batches
    found = [replace(shape, resident=x) for x in small if may_stay(x, sides[x], k, size, tiles, sm_count)][:1]
    if found or shape.part is not None:
        return found
    for x, y in (("a", "b"), ("b", "a")):
        pair = x, sides[x], sides[y], k, size
        if batches == 1 and not shape.roles.ping_pong and may_stay_for_one_line(*pair, sm_count):
            found.append(replace(shape, resident=x, line="own"))
        if may_stay_for_lines(*pair, batches, sm_count):
            found.append(replace(shape, resident=x, line="each"))
    return found


def one_line_pace(shape: Sm90Shape, under_way: int) -> float | None:
    """What `under_way` bytes of loads and the way they come make of the time; None where they are too few."""
    if under_way < ONE_LEAST:
        return None
    pace = 1.0 + ONE_FEWER * max(0.0, 1.0 - under_way / ONE_ENOUGH)
    pace *= ONE_SHORT if shape.block[2] < ONE_SHORT_K else 1.0
    return pace * (ONE_A if shape.resident == "a" else 1.0)


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
