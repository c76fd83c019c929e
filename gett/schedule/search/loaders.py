"""Loaders of a multistage main loop: vectors, majors, transposition, rows in shared memory without bank conflicts.

All of it follows from the plan, the operand's boxes and the way in which warps read shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gett.hw.dtypes import data_type
from gett.hw.tensor_types import TensorType
from gett.ir.gemm import A, GemmPlan
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.schedule import Tiling
from gett.schedule.spec.vectors import operand_dims, row_vector, widest_vector
from gett.schedule.tile.lane_order import LoadedTile, memory_order, store_turns
from layouts.swizzle import Pattern, SmemLayout, choose_smem


def operand_loader(plan: GemmPlan, tensor: int, t: Tiling, tensor_cores: bool) -> CpAsync | RegisterStaged:
    """The loader of operand A or B: `cp.async` where vectors lie in one row of the tile, else through registers."""
    size = plan.size(tensor)
    tensor_type = data_type(plan.contraction.dtype).parts if tensor_cores else None
    (box, side), depth = ((t.m, t.shape[0]) if tensor == A else (t.n, t.shape[1])), t.shape[2]
    dims = operand_dims(plan, tensor, box, t.k, t.l)
    group, tall = dims[0].group if dims else "k", side * t.batches
    row = next((d.group for d in dims if d.group != "l"), "k")

    def smem(major: str) -> SmemLayout:
        rows, row = (tall, depth) if major == "k" else (depth, tall)
        return smem_layout(rows, row * size, tensor_type, size, major)

    vector = row_vector(plan, tensor, dims, side, depth)
    if vector:
        return CpAsync(row, vector, smem(row))
    vector = widest_vector(plan, tensor, dims)
    order = memory_order(dims, side)
    tiles = {major: LoadedTile(major, vector, side, t.batches, size, smem(major)) for major in ("k", "mn")}
    conflicts = {major: store_turns(order, tile) for major, tile in tiles.items()}
    best = min(conflicts, key=lambda major: (conflicts[major], major != group))
    walk = tuple((x.group, x.index) for x in dims)
    return RegisterStaged(best, vector, group, smem(best), walk, max(1, conflicts[best]))


@lru_cache(maxsize=256)
def smem_layout(rows: int, row_bytes: int, tensor: TensorType | None, size: int, major: str) -> SmemLayout:
    """Rows of a tile that warps read without bank conflicts.

    Fragments of `mma.sync` are read of `tensor`, else, where it is None, elements of multiply-adds.
    """
    patterns: list[Pattern] = []
    if tensor is not None and tensor.ldmatrix(major):
        patterns = [(_neighbouring_rows(chunk * 16), 16, 8) for chunk in range(min(row_bytes // 16, 8))]
    elif tensor is not None:  # element by element: lane 4g + t holds row g, column t of a K-major tile
        along_k = major == "k"
        patterns = [(lambda x: (x >> 2, (x & 3) * size) if along_k else (x & 3, (x >> 2) * size), size, 32)]
    elif major == "k":
        patterns = [(_neighbouring_rows(0), min(8, max(size, 4)) if size < 16 else 16, 8)]

    def inside(pattern: Pattern) -> bool:
        where, width, lanes = pattern
        return all(row < rows and byte + width <= row_bytes for row, byte in map(where, range(lanes)))

    return choose_smem(rows, row_bytes, [p for p in patterns if inside(p)])


def _neighbouring_rows(byte: int) -> Callable[[int], tuple[int, int]]:
    return lambda lane: (lane, byte)
