"""What a Hopper kernel needs of a multiprocessor: bytes of the parts of its shared memory, sums that its threads hold.

Searches choose by these numbers, rules check them, and the shared-memory plan is printed into the kernel. Registers are
`wgmma_registers`'s.
"""

from __future__ import annotations

import math

from gett.hw.dtypes import Planes, TensorType, data_type, is_complex, planes_of
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.epilogue import Store, TmaStore, VectorSource
from gett.schedule.spec.loader import CpAsyncTile, Gather, Stationary, Tma, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import DmmaTma, Wgmma, WgmmaRS, WgmmaSplit, WgmmaTf32
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentPanel
from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.tiling import Tiling
from layouts.box import Box
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

RS_WIDEST_WITH_C, RS_WIDEST_SHARED_A = 224, 192
"""Columns of a tile with A in registers; wider tiles run out of registers."""

RS_COPIES = 8
"""Most copies of a k-tile of A for registers: where blocks share A, each has a barrier."""

RS_BATCH = 16
"""Instructions whose fragments of A are loaded together."""

RS_ROW = 1024
"""Most bytes of a k-tile of one row of A for registers: the rows of two warpgroups take half of shared memory."""

WIDEST_TRANSPOSED = 192
"""Columns of a tile beside a warpgroup that transposes: registers are shared out in the end, but instructions must fit
those that all threads start with."""

WIDEST_SPLIT = 128
"""Real sums of a row of a tile whose planes are multiplied: short sums take as many registers as those of the tile."""

WIDEST_CHUNK = 64
"""Columns up to which a tile of planes is one chunk; wider ones are halved, since they have no room for two sums."""
SPLIT_LEADS = 8, 4
"""K of A's and of B's rows in a k-tile of planes where they run along two contracted modes. Longer rows of B would make
k-tiles of 64, for few of which there is room."""

DMMA_LEADS = 4, 8
"""The same of float64, for either operand: rows of 32 bytes or 64."""

DMMA_LEADS_COMPLEX = 4, 4
"""The same of complex128: lanes share them out such that accesses to either operand differ in banks."""


GUARD_BYTES = 96
"""Barrier and words by which a kernel that multiplies planes knows the tiles that it makes again."""

GATHERING = 2
"""Warpgroups that gather."""

COPYING = 128
"""Threads that copy the vectors of a tile by `cp.async`."""

REACH = 1 << 30
"""Elements that the offsets of a gathered operand reach."""

GRAIN = {"a": 64, "b": 8}
"""Rows that one instruction reads; a tile has room for whole ones."""

PANEL_BARRIERS = 32
"""Bytes of the barriers of an operand that stays."""

_DUMP = 128  # bytes behind a staged tile where matrices' rows of padding go


def up(value: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-value // step) * step


def multiplied(plan: GemmPlan) -> TensorType | None:
    """The type that wgmma multiplies where tensor maps bring a plan's operands, None where it multiplies none.

    They come as they are, or rounded where the precision allows it.
    """
    c = plan.contraction
    tensor = data_type(c.dtype).multiplied(c.precision)
    return tensor if tensor is not None and tensor.wgmma is not None else None


def planes(plan: GemmPlan) -> Planes | None:
    """The planes in which a plan's operands are multiplied, None where they are multiplied whole."""
    return planes_of(plan.contraction.dtype, plan.contraction.precision)


def gathers(loop: Wgmma) -> bool:
    """Whether warps bring an operand, not a tensor map."""
    return any(isinstance(x, Gather | CpAsyncTile) for x in (loop.a, loop.b))


def parts(plan: GemmPlan) -> int:
    """Real numbers of an element that is multiplied."""
    return 2 if is_complex(plan.contraction.dtype) else 1


def widest_split(plan: GemmPlan, a: Tma | CpAsyncTile, b: Tma | CpAsyncTile, deep: int) -> int:
    """Most columns of a tile whose planes are multiplied, `deep` k at a time."""
    columns = WIDEST_SPLIT // parts(plan)
    # Those who multiply store D too, where those who would do it copy: sums of complex numbers leave no registers.
    if parts(plan) > 1 and any(isinstance(x, CpAsyncTile) for x in (a, b)):
        return columns * 3 // 4
    # Complex fragments along K beside planes along N, two steps of each: registers do not suffice.
    crowded = parts(plan) > 1 and deep > 16 and (a.major, b.major) == ("k", "mn")
    return columns - 8 if crowded else columns


def chunk_columns(plan: GemmPlan, loop: WgmmaSplit, columns: int) -> tuple[int, ...]:
    """Columns that a set of short sums of planes has.

    Halves are whole slabs of B's planes. Complex sums have a set of all columns for each part.

    Args:
        plan: A lowered plan.
        loop: The main loop.
        columns: Of the tile.
    """
    slab = GRAIN["b"] if loop.b.major == "k" else swizzle_of(loop.b) // itemsize(plan.contraction.dtype)
    halved = columns > WIDEST_CHUNK and parts(plan) == 1
    first = up(up(columns, 2) // 2, slab) if halved else columns
    return (first, columns - first) if first < columns else (columns,)


def barrier_bytes(stages: int) -> int:
    """Bytes of the barriers of stages and of two staging buffers."""
    return 16 * stages + 16


def swizzle_of(loader: WgmmaLoader) -> int:
    """Bytes of a row that the swizzle of an operand's tile permutes."""
    load = tma_of(loader)
    if load is not None:
        return load.map.swizzle_bytes
    assert isinstance(loader, Gather | CpAsyncTile)
    return loader.swizzle_bytes


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


def valid_k(load: Tma, modes_k: int) -> int:
    """K of an operand's tile that its copies write."""
    return math.prod(load.map.tile[len(load.map.tile) - modes_k :])


def shared_dimension(made: TmaMap, blocks: int) -> int | None:
    """The outermost tiled dimension of a box, if equal parts of it start where the swizzle's pattern does."""
    outer = max((i for i, b in enumerate(made.box) if b > 1), default=0)
    period = 8 * made.swizzle_bytes if made.swizzle_bytes > CHUNK else 8 * CHUNK
    if outer == 0 or made.box[outer] % blocks or made.slab_bytes // blocks % period:
        return None
    return outer


def steps_over_gaps(store: Store, rows: int, split: int) -> bool:
    """Whether an epilogue steps over the padding behind each warpgroup's share of `rows` rows, with A in registers.

    Copies of whole MMA atoms do not, nor do slices of K.
    """
    kind = store.stage.copy.kind if store.stage is not None else "scalar"
    return split == 1 and kind in ("scalar", "stsm", "vec_n", "pair_n", "one") and rows % WgmmaRS.warpgroups == 0


def _tile_bytes(rows: int, grain: int, deep: int) -> int:
    return up(up(rows, grain) * deep, ALIGN)


def stationary_bytes(name: str, rows: int, deep: int, tiles: int) -> int:
    """Shared memory for `tiles` k-tiles of operand `name`, whose rows take `deep` bytes of each.

    They follow each other without the room that instructions want behind a tile: what lies there is the next one.
    """
    return (tiles - 1) * _tile_bytes(rows, 8, deep) + _tile_bytes(rows, GRAIN[name], deep)


def pieces_of(side: int, block_k: int, run: int) -> int:
    """Pieces of a gathered operand's k-tile."""
    return side * block_k // run


def chunk_bytes(run: int, size: int) -> int:
    """Bytes of the aligned chunks that cover a piece wherever it starts."""
    return run * size + CHUNK


def warp_pieces(side: int, block_k: int, loader: Gather, warps: int) -> int:
    """Pieces of a k-tile that each of the warps brings in."""
    step = 8 if loader.transform else 1
    return -(-pieces_of(side, block_k, loader.run) // (step * warps)) * step


def ring_bytes(pieces: int, loader: Gather, size: int) -> int:
    """What a warp's pieces of a k-tile take of its ring; transposed ones have gaps that separate their banks."""
    return (8 * (pieces // 8 | 1) if loader.transform else pieces) * chunk_bytes(loader.run, size)


def depth_width(loop: WgmmaRS, tiling: Tiling) -> tuple[int, int]:
    """How much a k-tile has of the modes along which A's and B's rows run, with A in registers."""
    return tiling.k.cut[loop.unit_a], tiling.k.cut[loop.unit_b]


def leads(loop: WgmmaSplit | DmmaTma, box_k: Box) -> tuple[int, int]:
    """How much a k-tile has of the modes along which A's and B's rows run, if these are two of K, else (1, 1)."""
    if loop.a.major != "k" or loop.b.major != "k" or not (isinstance(loop.a, Tma) and isinstance(loop.b, Tma)):
        return 1, 1
    a, b = (x.map.order[0] - (len(x.map.order) - len(box_k.extents)) for x in (loop.a, loop.b))
    return (1, 1) if a == b else (box_k.cut[a], box_k.cut[b])


def least_row(load: Tma | CpAsyncTile, name: str, size: int) -> int:
    """Bytes of the shortest rows of elements of `size` bytes of operand `name` that planes are made of.

    Fragments of A out of shorter ones meet in the same banks of shared memory, which is worth it where a whole mode is
    no longer. Who splits B along K takes a row; planes of rows along N have as many columns, in rows of a chunk at
    least.
    """
    if load.major == "k":
        if isinstance(load, CpAsyncTile):
            return CHUNK
        order = load.map.order
        whole = load.map.extents[0] * size <= CHUNK or (len(order) > 1 and load.map.modes[order[1]].dim == 0)
        return CHUNK if name == "b" or whole else 2 * CHUNK
    return CHUNK // 2 * size


def _staging_bytes(s: Schedule, plan: GemmPlan) -> int:
    """Bytes of the staged tiles of D and of what their stores need beside them; none where slices are added.

    In ping-pong each warpgroup has a tile. With C from vectors float32 is staged, and C has offsets too; where a tensor
    map brings C to where D is staged, it takes no room of its own.
    """
    store, loop, (rows, columns, _) = s.epilogue.store, s.wgmma, s.tiling.shape
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
    t, loop, size, staging = s.tiling, s.wgmma, itemsize(plan.contraction.dtype), _staging_bytes(s, plan)
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
        gather = up(end + fixed - ALIGN, 16) if tables else 0
        total = ALIGN + gather + tables if tables else fixed + end
        return SmemPlan(total, stage, planes=first, staging=staged, barriers=end, gather=gather)
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
    gather = barriers + barrier_bytes(loop.stages) if buffers else 0
    stationary = end if kept else 0
    return SmemPlan(fixed + barriers + buffers, stage, 0, stationary, end + kept, barriers, gather)
