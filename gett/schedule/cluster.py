"""Clusters of blocks that share operands: which shapes are tried, and how a tile is divided among those who share it.

Knows boxes and tensor maps; what sharing gains is the cost model's.
"""

from __future__ import annotations

from dataclasses import replace

from gett.schedule.records import BulkMove
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

# What keeping two blocks in step costs the main loop (measured). Sharing A is dearer than sharing B; clusters of four
# do not find room beside each other on all multiprocessors and take twice as long.
CLUSTERS = {(1, 1): 1.0, (2, 1): 1.04, (1, 2): 1.25}
SHARING = tuple(c for c in CLUSTERS if c != (1, 1))


def cluster_tiles(tiles_m: int, tiles_n: int, cluster: tuple[int, int]) -> int:
    """Clusters that cover the tiles of one slice and batch; at the edges some blocks have no tile."""
    return -(-tiles_m // cluster[0]) * -(-tiles_n // cluster[1])


def share(move: BulkMove, blocks: int) -> BulkMove:
    """The operand's way when `blocks` blocks of a cluster need the same tiles of it."""
    return move if blocks == 1 else replace(move, shared=blocks, divided=_divided(move.map, blocks))


def part_box(move: BulkMove) -> tuple[int, ...]:
    """The box of one copy: the map's, or a block's part of it."""
    box = list(move.map.box)
    if move.divided is not None:
        box[move.divided] //= move.shared
    return tuple(box)


def _divided(made: TmaMap, blocks: int) -> int | None:
    """The outermost tiled dimension, if equal parts of it start where the swizzle's pattern does."""
    outer = max((i for i, b in enumerate(made.box) if b > 1), default=0)
    period = 8 * made.span if made.span > CHUNK else 8 * CHUNK
    if outer == 0 or made.box[outer] % blocks or made.slab_bytes // blocks % period:
        return None
    return outer
