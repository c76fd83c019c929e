"""What all Hopper main loops need and what limits them: stages, sums that threads hold, rows that instructions read.

Searches choose by these numbers and rules check them; likewise the halves of tiles of D that two blocks exchange. What
one main loop alone needs is in its own module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gett.hw.dtypes import WORD, data_type, is_complex, planes_of
from gett.hw.tensor_types import Planes, TensorType
from gett.ir.contraction import Operand
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.spec.epilogue import DsmemExchange, StagedTile
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import Hopper
from layouts.box import Box
from layouts.modes import Strided, unit_mode
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap
from layouts.tma_map import Refusal, tma_map

ARCHS = ("sm_90a",)  # architectures that run the Hopper main loops
MOST_STAGES, MOST_STAGES_OF_ONE = 8, 16  # most stages where both operands come with every k-tile, and where one does
ACCUMULATORS = 128  # 32-bit registers of a thread that may hold products
GRAIN = {"a": 64, "b": 8}  # rows that one instruction reads; a tile has room for whole ones


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


def parts(plan: GemmPlan) -> int:
    """Real numbers of an element that is multiplied."""
    return 2 if is_complex(plan.contraction.dtype) else 1


def tensor_map(
    operand: Operand,
    tensor: int,
    modes: Sequence[Strided],
    box: Sequence[int],
    order: Sequence[int],
    swizzle_bytes: int,
    *,
    unit: int | None = None,
    row: int = 0,
) -> TmaMap | Refusal:
    """The map of a tensor of a plan, or why there is none; arguments as `layouts.tma_map.tma_map` takes them."""
    made = tma_map(
        [s.extent for s in modes],
        [s.strides[tensor] for s in modes],
        itemsize(operand.dtype),
        box,
        order=order,
        unit=unit,
        base_alignment=operand.alignment,
        swizzle_bytes=swizzle_bytes,
        row=row,
    )
    if isinstance(made, TmaMap) and made.base_offset:
        return Refusal(f"it starts {made.base_offset} bytes from element 0, whose address is passed")
    return made


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


def leads(loop: Hopper, box_k: Box) -> tuple[int, int]:
    """How much a k-tile has of the modes along which A's and B's rows run, if these are two of K, else (1, 1)."""
    loads = loop.a.tma, loop.b.tma
    maps = [load.map for load in loads if load is not None and load.major == "k"]
    if len(maps) < 2:
        return 1, 1
    a, b = (made.order[0] - (len(made.order) - len(box_k.extents)) for made in maps)
    return (1, 1) if a == b else (box_k.cut[a], box_k.cut[b])


def wgmma_takes(plan: GemmPlan, arch: str) -> bool:
    """Whether a plan is a product of two operands that wgmma multiplies, as they are, on this architecture."""
    made = planes(plan)
    tensor = made.tensor if made is not None else multiplied(plan)
    wgmma = tensor.wgmma if tensor is not None else None
    if tensor is None or wgmma is None or not _product(plan, arch):
        return False
    if wgmma.either_major or tensor.bytes == WORD:  # words go through registers where wgmma wants another major
        return True
    return all(unit_mode(plan.k, t, itemsize(plan.contraction.dtype)) is not None for t in (A, B))


def dmma_takes(plan: GemmPlan, arch: str) -> bool:
    """Whether a plan is a product of two operands of one type whose numbers the architecture has m16n8k16 of."""
    return data_type(plan.contraction.dtype).by_warps() is not None and _product(plan, arch)


def _product(plan: GemmPlan, arch: str) -> bool:
    """Whether two operands of the contraction's type are summed over."""
    if arch not in ARCHS or plan.b is None or not plan.k:
        return False
    return all(x.dtype == plan.contraction.dtype for x in (plan.a, plan.b))


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An exchange and what follows from it."""

    cluster: tuple[int, int]  # blocks along M and N that exchange
    m: Box  # boxes of D that each of them stores then
    n: Box
    exchange: DsmemExchange  # the exchange


def exchanged(box_m: Box, box_n: Box, stage: StagedTile, size: int, batches: int) -> Exchanged | None:
    """How two blocks exchange halves of a tile whose rows have 16 bytes, None where they cannot.

    Such rows write half a sector each, which takes four times as long as whole ones. Of two tiles side by side in
    D's unit mode each block stores one half, in rows of 32 bytes.

    `stage` says how the tile is staged; there are `batches` modes of D before those of M.
    """
    if stage.row * size != CHUNK or stage.swizzle_bytes != CHUNK or stage.cut is not None or len(stage.order) < 2:
        return None
    boxes = {"m": box_m, "n": box_n}
    (group, i), (slow, j) = stage.order[0], stage.order[-1]
    row, last = boxes[group].dims[i], boxes[slow].dims[j]
    if len(row.modes) > 1 or len(last.modes) > 1 or row.box != stage.row or last.box % 2:
        return None
    if boxes[group].tiles_per_dim[i] % 2:
        return None
    made = dict(boxes)
    for name, at, extent in ((group, i, 2 * row.box), (slow, j, last.box // 2)):
        dims = made[name].dims
        made[name] = replace(made[name], dims=(*dims[:at], replace(dims[at], box=extent), *dims[at + 1 :]))
    first = {"m": batches, "n": batches + len(box_m.extents)}
    distance = math.prod(boxes[group].tiles_per_dim[:i])
    record = DsmemExchange(
        distance, (first[group] + row.modes[0], row.box), (first[slow] + last.modes[0], last.box // 2)
    )
    return Exchanged((1, 2) if group == "n" else (2, 1), made["m"], made["n"], record)
