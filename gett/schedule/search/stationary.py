"""Operands that stay in shared memory: whole, or the rows that the tiles of a panel need.

Owns when that is possible, how much shared memory it takes, and what is known of its pace. Knows plans and boxes, no
tensor map and no text.
"""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.spec.wgmma_needs import stationary_bytes
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box

MOST = 40 * 1024  # bytes that may stay: the rest belongs to stages, which keep memory busy
TILES = 2  # of the other operand that a block makes at least
# Blocks that keep to one panel: panels at most, tiles of an SM and k at least, share of rows that padding may
# add, outputs of a tile at most. Beyond these it gains nothing on an H200.
ONE_PANELS, ONE_TILES, ONE_K, ONE_PADDED, ONE_OUTPUTS = 6, 4, 192, 1.07, 128 * 192
# Bytes of loads under way there: at least, and from which on more gain nothing; what none at all would cost.
ONE_LEAST, ONE_ENOUGH, ONE_FEWER = 64 * 1024, 96 * 1024, 0.25


def small_operands(plan: GemmPlan, size: int) -> tuple[str, ...]:
    """Operands (`"a"`, `"b"`) that are small enough to stay and the same for every batch."""
    sides = (("a", A, plan.extent_m), ("b", B, plan.extent_n))
    return tuple(
        name
        for name, tensor, rows in sides
        if rows * plan.extent_k * size <= MOST and not any(s.extent > 1 and s.strides[tensor] for s in plan.l)
    )


def _whole(name: str, kept: OperandTiling, box_k: Box, size: int, tiles: int, sm_count: int) -> bool:
    """Whether each of `tiles` tiles needs all of a small operand, it fits, and there is something to gain."""
    if tiles < TILES * sm_count or kept.box.tiles > 1:
        return False
    return stationary_bytes(name, kept.rows, box_k.size * size, box_k.tiles) <= MOST


def _one_panel(kept: OperandTiling, other: OperandTiling, box_k: Box, sm_count: int) -> bool:
    """Whether blocks may each keep to one of few panels, and there is something to gain."""
    panels = kept.box.tiles
    if not 1 < panels <= min(ONE_PANELS, sm_count) or panels * other.box.tiles < ONE_TILES * sm_count:
        return False
    if kept.box.size * other.box.size > ONE_OUTPUTS or box_k.volume < ONE_K:
        return False
    return panels * kept.box.size <= ONE_PADDED * kept.box.volume


def _each_panel(
    name: str, kept: OperandTiling, other: OperandTiling, box_k: Box, size: int, batches: int, sm_count: int
) -> bool:
    """Whether the rows of a panel fit twice, and blocks make several panels."""
    if kept.box.tiles * batches == 1 or kept.box.tiles * other.box.tiles * batches < TILES * sm_count:
        return False
    return stationary_bytes(name, kept.rows, box_k.size * size, 2 * box_k.tiles) <= MOST


def with_stationary(tile: WgmmaTile, small: tuple[str, ...], size: int, batches: int, sm_count: int) -> list[WgmmaTile]:
    """The same tile with a small operand that stays in shared memory, or with the rows of a panel.

    Args:
        tile: A tile whose operands both come with every k-tile.
        small: What `small_operands` found.
        size: Bytes of an element.
        batches: Extent of L.
        sm_count: Multiprocessors.
    """
    sides, k = {"a": tile.m, "b": tile.n}, tile.k
    tiles = tile.m.box.tiles * tile.n.box.tiles * batches
    found = [replace(tile, stationary=x) for x in small if _whole(x, sides[x], k, size, tiles, sm_count)][:1]
    if found or tile.mma_m is not None:
        return found
    for x, y in (("a", "b"), ("b", "a")):
        pair = x, sides[x], sides[y], k, size
        if batches == 1 and not tile.warpgroups.ping_pong and _one_panel(sides[x], sides[y], k, sm_count):
            found.append(replace(tile, stationary=x, panel="one"))
        if _each_panel(*pair, batches, sm_count):
            found.append(replace(tile, stationary=x, panel="each"))
    return found


def one_panel_pace(tile: WgmmaTile, under_way: int) -> float | None:
    """What `under_way` bytes of loads and the way they come make of the time; None where they are too few."""
    if under_way < ONE_LEAST:
        return None
    fewer = 1.0 + ONE_FEWER * max(0.0, 1.0 - under_way / ONE_ENOUGH)
    # K-tiles of short rows take longer, and A in place of B.
    return fewer * (1.03 if tile.block[2] < 64 else 1.0) * (1.02 if tile.stationary == "a" else 1.0)
