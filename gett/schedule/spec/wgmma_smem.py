"""Where the parts of a Hopper kernel's shared memory lie, and the bytes that each takes.

The plan is worked out from the other parts of a schedule. Searches fill it in, rules check it, and it is printed into
the kernel.
"""

from __future__ import annotations

from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.epilogue import TmaStore, VectorSource
from gett.schedule.spec.loader import CpAsyncTile, Gather, Stationary, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import DmmaTma, WgmmaRS, WgmmaSplit, WgmmaTf32
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentPanel
from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.wgmma_needs import (
    COPYING,
    DEEP,
    DEEPEST,
    GRAIN,
    chunk_bytes,
    depth_width,
    parts,
    planes,
    swizzle_of,
    up,
    warp_pieces,
)
from layouts.swizzle import CHUNK

ALIGN = 1024
"""Tiles start at multiples of the widest swizzle's period."""

GUARD_BYTES = 96
"""Barrier and words by which a kernel that multiplies planes knows the tiles that it makes again."""

PANEL_BARRIERS = 32
"""Bytes of the barriers of an operand that stays."""

_DUMP = 128  # bytes behind a staged tile where matrices' rows of padding go


def barrier_bytes(stages: int) -> int:
    """Bytes of the barriers of stages and of two staging buffers."""
    return 16 * stages + 16


def row_table_bytes(loader: WgmmaLoader, size: int, deep: int) -> int:
    """Shared memory for offsets in a tile that `cp.async` brings, `size` of its free group by `deep` k.

    It has one for each row, and one for each vector of a row.
    """
    if not isinstance(loader, CpAsyncTile):
        return 0
    rows, row = (up(size, 8), deep) if loader.major == "k" else (deep, up(size, 8))
    lanes = max(8, 1 << (row // loader.vector - 1).bit_length())
    at_once = COPYING // lanes
    return 4 * (at_once * up(-(-rows // at_once), 4) + up(lanes, 4))


def row_bytes(loader: WgmmaLoader, deep: int, size: int) -> int:
    """Shared memory that `deep` k of one row of an operand take: K-major rows are whole atoms of the swizzle."""
    return up(deep * size, swizzle_of(loader)) if loader.major == "k" else deep * size


def _tile_bytes(rows: int, grain: int, deep: int) -> int:
    return up(up(rows, grain) * deep, ALIGN)


def stationary_bytes(name: str, rows: int, deep: int, tiles: int) -> int:
    """Shared memory for `tiles` k-tiles of operand `name`, whose rows take `deep` bytes of each.

    They follow each other without the room that instructions want behind a tile: what lies there is the next one.
    """
    return (tiles - 1) * _tile_bytes(rows, 8, deep) + _tile_bytes(rows, GRAIN[name], deep)


def ring_bytes(pieces: int, loader: Gather, size: int) -> int:
    """What a warp's pieces of a k-tile take of its ring; transposed ones have gaps that separate their banks."""
    return (8 * (pieces // 8 | 1) if loader.transform else pieces) * chunk_bytes(loader.run, size)


def _staging_bytes(s: Schedule, plan: GemmPlan) -> int:
    """Bytes of the staged tiles of D and of what their stores need beside them; none where slices are added.

    In ping-pong each warpgroup has a tile. With C from vectors float32 is staged, and C has offsets too; where a tensor
    map brings C to where D is staged, it takes no room of its own.
    """
    store, loop, (rows, columns, _) = s.epilogue.store, s.hopper, s.tiling.shape
    if s.split_k > 1 or store.stage is None:
        return 0
    added, tile = isinstance(s.epilogue.source, VectorSource), store.stage
    offsets = 0 if isinstance(store, TmaStore) else (rows + columns) * 8 * (2 if added else 1)
    sums = data_type(plan.contraction.dtype).accumulator_bytes
    staged = tile.elements * (sums if added else itemsize(plan.contraction.d.dtype))
    staged += 0 if tile.copy.kind in ("scalar", "pair_n", "one") else _DUMP
    one = up(staged, ALIGN if tile.swizzle_bytes > CHUNK else 128) + up(offsets, 128)
    return one * (loop.warpgroups if loop.ping_pong else 1)


def wgmma_smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """Where the parts of a schedule's shared memory lie, worked out from its other parts."""
    t, loop, size, staging = s.tiling, s.hopper, itemsize(plan.contraction.dtype), _staging_bytes(s, plan)
    rows, columns, deep = t.shape
    if isinstance(loop, WgmmaRS):  # D is staged where a k-tile of A was, slabs of B lie behind
        stages, slab = up(max(rows * deep * size, staging), ALIGN), up(columns * depth_width(loop, t)[1] * size, ALIGN)
        barriers = stages + loop.stages * slab
        shared = 128 if s.cluster[1] > 1 else 48 if loop.per_warpgroup_a else 32
        return SmemPlan(ALIGN + barriers + 16 * loop.stages + shared, slab, stages, barriers=barriers)
    if isinstance(loop, WgmmaSplit):
        made = planes(plan)
        assert made is not None
        row_a, row_b = (row_bytes(x, deep, size) for x in (loop.a, loop.b))
        stage = _tile_bytes(t.m.size, GRAIN["a"], row_a) + _tile_bytes(t.n.size, GRAIN["b"], row_b)
        plane = parts(plan) * _tile_bytes(t.n.size, GRAIN["b"], deep * made.tensor.bytes)
        first = loop.stages * stage
        staged = first + loop.plane_stages * made.count * plane
        fixed = ALIGN + barrier_bytes(DEEP) + 16 * loop.plane_stages + GUARD_BYTES
        fixed += 16 + 16 * loop.plane_stages if made.scaled else 0
        tables = row_table_bytes(loop.a, t.m.size, deep) + row_table_bytes(loop.b, t.n.size, deep)
        end = staged + staging
        loaders = up(end + fixed - ALIGN, 16) if tables else 0
        total = ALIGN + loaders + tables if tables else fixed + end
        return SmemPlan(total, stage, planes=first, staging=staged, barriers=end, loaders=loaders)
    if isinstance(loop, WgmmaTf32 | DmmaTma):
        row_a, row_b = (row_bytes(x, deep, size) for x in (loop.a, loop.b))
        held_a, held_b = loop.a.rows(t.m.size), loop.b.rows(t.n.size)
        stage = _tile_bytes(held_a, GRAIN["a"], row_a) + _tile_bytes(held_b, GRAIN["b"], row_b)
        first, transposed = loop.stages * stage, loop.transposed_stages if isinstance(loop, WgmmaTf32) else 0
        if isinstance(s.epilogue.store, TmaStore) and s.epilogue.store.reuse_mainloop_smem:
            end = max(first, staging)
            return SmemPlan(ALIGN + barrier_bytes(DEEP) + end, stage, barriers=end)
        staged = first + transposed * _tile_bytes(held_b, GRAIN["b"], deep * size)
        fixed = ALIGN + barrier_bytes(DEEP) + 16 * transposed
        planes_at = first if transposed else 0
        return SmemPlan(fixed + staged + staging, stage, planes=planes_at, staging=staged, barriers=staged + staging)
    stage = kept = ring = tables = 0
    for name, loader, side in (("a", loop.a, t.m.size // t.mma_tiles), ("b", loop.b, t.n.size)):
        load, row = tma_of(loader), row_bytes(loader, deep, size)
        held = load.rows(side) if load is not None else side
        if isinstance(loader, Stationary):
            # The rows of the next panel come while those of this one are read.
            buffers = 2 if isinstance(s.scheduler, PersistentPanel) and not s.scheduler.one_panel else 1
            kept += stationary_bytes(name, held, row, buffers * loader.k_tiles)
        else:
            stage += _tile_bytes(held, GRAIN[name], row)
        if isinstance(loader, Gather):
            pieces = warp_pieces(side, deep, loader, 4 * loop.producers)
            ring += 4 * loop.producers * loop.cp_async_stages * ring_bytes(pieces, loader, size)
            tables += 8 * pieces
    buffers = ring + 4 * loop.producers * up(tables, 16)
    store, end = s.epilogue.store, loop.stages * stage
    fixed = ALIGN + barrier_bytes(DEEPEST if kept else DEEP) + (PANEL_BARRIERS if kept else 0)
    if isinstance(store, TmaStore) and store.exchange is not None:  # a second tile behind the staged one
        staging, fixed = staging + up(staging, ALIGN), fixed + 16
    if isinstance(store, TmaStore) and store.reuse_mainloop_smem:
        return SmemPlan(fixed + max(end, staging), stage, barriers=max(end, staging))
    barriers = end + kept + staging
    loaders = barriers + barrier_bytes(loop.stages) if buffers else 0
    stationary = end if kept else 0
    return SmemPlan(fixed + barriers + buffers, stage, 0, stationary, end + kept, barriers, loaders)
