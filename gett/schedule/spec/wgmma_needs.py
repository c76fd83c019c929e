"""What a Hopper kernel needs of a multiprocessor: bytes of the parts of its shared memory, registers of its threads.

Searches choose by these numbers, rules check them, and the shared-memory plan is printed into the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gett.hw.dtypes import TensorType, data_type
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.epilogue import StagedTile, Store, TmaStore, VectorSource
from gett.schedule.spec.loader import Gather, Stationary, Tma, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import Wgmma, WgmmaRS
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentPanel
from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.tiling import Tiling
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

ARCHS = ("sm_90a",)
"""Architectures that have wgmma."""

ALIGN = 1024
"""Tiles start at multiples of the widest swizzle's period."""

DEEP, DEEPEST = 8, 16
"""Most stages where both operands come with every k-tile, and where one stays."""

ACCUMULATORS = 128
"""32-bit registers of a thread that may hold products."""

THREAD_REGISTERS = (40, 232)
"""Registers of a thread that issues copies, and of one that multiplies."""

GATHER_REGISTERS = {96: (112, 144), 128: (96, 160)}
"""The same where operands are gathered, by the accumulators that a thread may have."""

RS_WIDEST_WITH_C, RS_WIDEST_SHARED_A = 224, 192
"""Columns of a tile with A in registers; wider tiles run out of registers."""

RS_COPIES = 8
"""Most copies of a k-tile of A for registers: where blocks share A, each has a barrier."""

GATHERING = 2
"""Warpgroups that gather."""

REACH = 1 << 30
"""Elements that the offsets of a gathered operand span."""

GRAIN = {"a": 64, "b": 8}
"""Rows that one instruction reads; a tile has room for whole ones."""

PANEL_BARRIERS = 32
"""Bytes of the barriers of an operand that stays."""

_STAGING_BARRIERS, _EXCHANGE_BARRIERS, _RS_BARRIERS, _RS_SHARED_BARRIERS = 16, 16, 32, 128
_DUMP = 128  # bytes behind a staged tile where matrices' rows of padding go


def up(value: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-value // step) * step


def multiplied(plan: GemmPlan) -> TensorType | None:
    """The type that wgmma multiplies where it takes a plan's operands as they are, None where it does not."""
    row = data_type(plan.contraction.dtype)
    return row.tensor if row.exact and row.tensor is not None and row.tensor.wgmma is not None else None


def gathers(loop: Wgmma) -> bool:
    """Whether an operand is gathered."""
    return isinstance(loop.a, Gather) or isinstance(loop.b, Gather)


def thread_registers(loop: Wgmma, columns: int) -> tuple[int, int]:
    """Registers of a thread that fetches and of one that multiplies a tile of `columns`."""
    if gathers(loop):
        held = loop.mma_m * columns // 2
        return next((r for most, r in GATHER_REGISTERS.items() if held <= most), GATHER_REGISTERS[ACCUMULATORS])
    return THREAD_REGISTERS


def barrier_bytes(stages: int) -> int:
    """Bytes of the barriers of stages and of two staging buffers."""
    return 2 * stages * 8 + _STAGING_BARRIERS


def swizzle_of(loader: WgmmaLoader) -> int:
    """Bytes of a row that the swizzle of an operand's tile permutes."""
    load = tma_of(loader)
    if load is not None:
        return load.map.span
    assert isinstance(loader, Gather)
    return loader.swizzle_bytes


def row_bytes(loader: WgmmaLoader, deep: int, size: int) -> int:
    """Shared memory that `deep` k of one row of an operand take: K-major rows are whole atoms of the swizzle."""
    return up(deep * size, swizzle_of(loader)) if loader.major == "k" else deep * size


def valid_k(load: Tma, modes_k: int) -> int:
    """K of an operand's tile that its copies write."""
    return math.prod(load.map.tile[len(load.map.tile) - modes_k :])


def shared_dimension(made: TmaMap, blocks: int) -> int | None:
    """The outermost tiled dimension of a box, if equal parts of it start where the swizzle's pattern does."""
    outer = max((i for i, b in enumerate(made.box) if b > 1), default=0)
    period = 8 * made.span if made.span > CHUNK else 8 * CHUNK
    if outer == 0 or made.box[outer] % blocks or made.slab_bytes // blocks % period:
        return None
    return outer


def steps_over_gaps(store: Store, rows: int, split: int) -> bool:
    """Whether an epilogue steps over the padding behind each warpgroup's share of `rows` rows, with A in registers.

    Copies of whole blocks of rows do not, nor do slices of K.
    """
    kind = store.stage.copy.kind if store.stage is not None else "scalar"
    return split == 1 and kind in ("scalar", "stsm", "vec_n") and rows % WgmmaRS.warpgroups == 0


def _tile_bytes(rows: int, grain: int, deep: int) -> int:
    return up(up(rows, grain) * deep, ALIGN)


def stage_bytes(stationary: str, rows: Sequence[int], deep: Sequence[int]) -> int:
    """Shared memory of one stage: the tiles of A and B, of `rows` rows of `deep` bytes, but for the one that stays."""
    sides = zip("ab", rows, deep, strict=True)
    return sum(_tile_bytes(count, GRAIN[name], width) for name, count, width in sides if name != stationary)


def stationary_bytes(name: str, rows: int, deep: int, tiles: int) -> int:
    """Shared memory for `tiles` k-tiles of operand `name`, whose rows take `deep` bytes of each.

    They follow each other without the room that instructions want behind a tile: what lies there is the next one.
    """
    return (tiles - 1) * _tile_bytes(rows, 8, deep) + _tile_bytes(rows, GRAIN[name], deep)


def staging_bytes(tile: StagedTile, block: Sequence[int], item: int, vector_source: bool, bulk: bool) -> int:
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
    staged = tile.elements * (4 if vector_source else item) + (0 if tile.copy.kind == "scalar" else _DUMP)
    return up(staged, ALIGN if tile.swizzle_bytes > CHUNK else 128) + up(offsets, 128)


def pieces_of(side: int, block_k: int, run: int) -> int:
    """Pieces of a gathered operand's k-tile."""
    return side * block_k // run


def chunk_bytes(run: int, size: int) -> int:
    """Bytes of the aligned chunks that cover a piece wherever it starts."""
    return run * size + CHUNK


def warp_pieces(side: int, block_k: int, loader: Gather, warps: int) -> int:
    """Pieces of a k-tile that each of the warps brings in."""
    step = 8 if loader.transpose else 1
    return -(-pieces_of(side, block_k, loader.run) // (step * warps)) * step


def ring_bytes(pieces: int, loader: Gather, size: int) -> int:
    """What a warp's pieces of a k-tile take of its ring; transposed ones have gaps that separate their banks."""
    return (8 * (pieces // 8 | 1) if loader.transpose else pieces) * chunk_bytes(loader.run, size)


def gather_bytes(
    loaders: Sequence[WgmmaLoader], sides: Sequence[int], block_k: int, size: int, warps: int
) -> tuple[int, int]:
    """Bytes that all gathering warps need for the chunks of one k-tile, and for the offsets of pieces."""
    ring = tables = 0
    for loader, side in zip(loaders, sides, strict=True):
        if isinstance(loader, Gather):
            pieces = warp_pieces(side, block_k, loader, warps)
            ring += warps * ring_bytes(pieces, loader, size)
            tables += 8 * pieces
    return ring, warps * up(tables, 16)


def pipeline_smem(
    stages: int,
    stage: int,
    staging: int,
    *,
    exchange: bool = False,
    reuse: bool = False,
    gather: tuple[int, int] = (0, 0),
) -> SmemPlan:
    """Where the parts lie when both operands come with every k-tile.

    Args:
        stages: K-tiles under way.
        stage: Bytes of one.
        staging: Bytes that staging takes.
        exchange: Whether halves of the staged tile are exchanged, for which a second one lies behind it.
        reuse: Whether D is staged where the stages were.
        gather: Bytes of the gathering warps' rings and of their offsets.
    """
    fixed = ALIGN + barrier_bytes(DEEP) + (_EXCHANGE_BARRIERS if exchange else 0)
    staging += up(staging, ALIGN) if exchange else 0
    end = stages * stage
    if reuse:
        return SmemPlan(fixed + max(end, staging), stage, barriers=max(end, staging))
    behind = end + staging
    buffers = behind + barrier_bytes(stages) if sum(gather) else 0
    return SmemPlan(fixed + behind + sum(gather), stage, staging=end, barriers=behind, gather=buffers)


def stationary_smem(stages: int, stage: int, staging: int, kept: int) -> SmemPlan:
    """The same where one operand stays, in `kept` bytes, and stages hold the other."""
    end = stages * stage
    size = ALIGN + end + kept + staging + barrier_bytes(DEEPEST) + PANEL_BARRIERS
    return SmemPlan(size, stage, stationary=end, staging=end + kept, barriers=end + kept + staging)


def rs_smem(
    stages: int, slab: int, k_tile_a: int, staging: int, cluster: tuple[int, int], per_warpgroup_a: bool
) -> SmemPlan:
    """The same with A in registers: D is staged where a k-tile of A was, slabs of B of `slab` bytes lie behind."""
    first, slab = up(max(k_tile_a, staging), ALIGN), up(slab, ALIGN)
    shared = _RS_SHARED_BARRIERS if cluster[1] > 1 else _RS_BARRIERS + (16 if per_warpgroup_a else 0)
    end = first + stages * slab
    return SmemPlan(ALIGN + end + 16 * stages + shared, slab, first, barriers=end)


def depth_width(loop: WgmmaRS, tiling: Tiling) -> tuple[int, int]:
    """How much a k-tile has of the modes along which A's and B's rows run, with A in registers."""
    return tiling.k.cut[loop.unit_a], tiling.k.cut[loop.unit_b]


def wgmma_smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """Where the parts of a schedule's shared memory lie, worked out from its other parts."""
    t, loop = s.tiling, s.wgmma
    size, sides = itemsize(plan.contraction.dtype), (t.m.size // t.mma_tiles, t.n.size)
    staging = _staged(s, plan)
    if isinstance(loop, WgmmaRS):
        rows, columns, deep = t.block
        _, width = depth_width(loop, t)
        slab = columns * width * size
        return rs_smem(loop.stages, slab, rows * deep * size, staging, s.cluster, loop.per_warpgroup_a)
    loaders = loop.a, loop.b
    loads = [tma_of(x) for x in loaders]
    rows_of = tuple(load.rows(side) if load is not None else side for load, side in zip(loads, sides, strict=True))
    deep_of = tuple(row_bytes(x, t.block[2], size) for x in loaders)
    for name, loader, rows, deep in zip("ab", loaders, rows_of, deep_of, strict=True):
        if isinstance(loader, Stationary):
            # The rows of the next panel come while those of this one are read.
            buffers = 2 if isinstance(s.scheduler, PersistentPanel) and not s.scheduler.one_panel else 1
            kept = stationary_bytes(name, rows, deep, buffers * loader.k_tiles)
            return stationary_smem(loop.stages, stage_bytes(name, rows_of, deep_of), staging, kept)
    ring, tables = gather_bytes(loaders, sides, t.block[2], size, 4 * loop.producers)
    store = s.epilogue.store
    reuse = isinstance(store, TmaStore) and store.reuse_mainloop_smem
    exchange = isinstance(store, TmaStore) and store.exchange is not None
    gather = (loop.cp_async_stages * ring, tables)
    stage = stage_bytes("", rows_of, deep_of)
    return pipeline_smem(loop.stages, stage, staging, exchange=exchange, reuse=reuse, gather=gather)


def _staged(s: Schedule, plan: GemmPlan) -> int:
    """Bytes that staging takes: of one tile, in ping-pong of one for each warpgroup; none where slices are added."""
    store, loop = s.epilogue.store, s.wgmma
    if s.split_k > 1 or store.stage is None:
        return 0
    vectors, bulk = isinstance(s.epilogue.source, VectorSource), isinstance(store, TmaStore)
    one = staging_bytes(store.stage, s.tiling.block, itemsize(plan.contraction.d.dtype), vectors, bulk)
    return one * (loop.warpgroups if loop.ping_pong else 1)
