"""What a Hopper kernel needs and what limits it: widths of tiles, sums that its threads hold, pieces that warps bring.

Searches choose by these numbers and rules check them. Shared memory is `wgmma_smem`'s, registers are
`wgmma_registers`'s.
"""

from __future__ import annotations

import math

from gett.hw.dtypes import data_type, is_complex, planes_of
from gett.hw.tensor_types import Planes, TensorType
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.epilogue import Store
from gett.schedule.spec.loader import CpAsyncTile, Gather, Tma, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import DmmaTma, Hopper, WgmmaRS, WgmmaSplit
from gett.schedule.spec.tiling import Tiling
from layouts.box import Box
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

ARCHS = ("sm_90a",)
"""Architectures that have wgmma."""

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

GATHERING = 2
"""Warpgroups that gather."""

COPYING = 128
"""Threads that copy the vectors of a tile by `cp.async`."""

REACH = 1 << 30
"""Elements that the offsets of a gathered operand reach."""

GRAIN = {"a": 64, "b": 8}
"""Rows that one instruction reads; a tile has room for whole ones."""


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


def gathers(loop: Hopper) -> bool:
    """Whether warps bring an operand, not a tensor map."""
    return any(isinstance(x, Gather | CpAsyncTile) for x in (loop.a, loop.b))


def parts(plan: GemmPlan) -> int:
    """Real numbers of an element that is multiplied."""
    return 2 if is_complex(plan.contraction.dtype) else 1


def widest_split(plan: GemmPlan, a: WgmmaLoader, b: WgmmaLoader, deep: int) -> int:
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


def swizzle_of(loader: WgmmaLoader) -> int:
    """Bytes of a row that the swizzle of an operand's tile permutes."""
    load = tma_of(loader)
    if load is not None:
        return load.map.swizzle_bytes
    assert isinstance(loader, Gather | CpAsyncTile)
    return loader.swizzle_bytes


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
