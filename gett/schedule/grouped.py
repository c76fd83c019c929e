"""Tiles of grouped launches, and the small products of a network that one launch makes together.

Knows neither tables nor arrays.
"""

from __future__ import annotations

import math

from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.grouped import GroupedLoad, GroupedSchedule, GroupedTile

# Large and small tiles: of tensor cores by bytes of an element, of multiply-adds by those of a sum.
TENSOR_CORES = {
    2: (GroupedTile((128, 128, 32), (2, 4), 4, resident=2), GroupedTile((32, 32, 32), (2, 1), 3)),
    4: (GroupedTile((128, 64, 32), (2, 2), 3), GroupedTile((32, 32, 32), (2, 1), 3)),
    8: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((32, 16, 16), (2, 1), 2)),
}
MULTIPLY_ADDS = {
    1: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((16, 16, 16), (2, 1), 3)),
    4: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((16, 16, 16), (2, 1), 3)),
    8: (GroupedTile((64, 64, 16), (2, 2), 3), GroupedTile((16, 16, 16), (2, 1), 2)),
    16: (GroupedTile((32, 32, 8), (2, 2), 3), GroupedTile((16, 16, 8), (2, 1), 2)),
}

SMALL = 1 << 19
"""Products of a small step, padding of its tiles included."""


def by_tensor_cores(dtype: str, factors: tuple[str, str], precision: str) -> bool:
    """Whether tensor cores multiply factors of two dtypes as numbers of `dtype` at a precision."""
    return factors == (dtype, dtype) and data_type(dtype).multiplied(precision) is not None


def tiles_of(dtype: str, *, tensor_cores: bool) -> tuple[GroupedTile, GroupedTile]:
    """The large and the small tile of a dtype."""
    kind = data_type(dtype)
    return TENSOR_CORES[kind.bytes] if tensor_cores else MULTIPLY_ADDS[kind.accumulator_bytes]


def listed_schedule(gemm: GemmPlan, arch: str) -> GroupedSchedule | None:
    """The kernel that makes a product together with others, whose addresses are listed; None where it is not small.

    Elements are copied one by one, whatever the strides are, so that all small products of one dtype share the kernel.
    Their time is that of a launch, which copies in vectors do not shorten.
    """
    contraction, b = gemm.contraction, gemm.b
    dtype = contraction.dtype
    if b is None or contraction.c is not None or contraction.epilogue is not None:
        return None
    if not gemm.a.dtype == b.dtype == contraction.d.dtype == dtype:
        return None
    cores = by_tensor_cores(dtype, (dtype, dtype), contraction.precision)
    tile = tiles_of(dtype, tensor_cores=cores)[1]
    sides = zip((gemm.extent_m, gemm.extent_n, gemm.extent_k), tile.shape, strict=True)
    if not 0 < gemm.extent_l * math.prod(-(-extent // side) * side for extent, side in sides) <= SMALL:
        return None
    first, second = (GroupedLoad(dtype, x.conj, "k", 1) for x in (gemm.a, b))
    return GroupedSchedule(arch, dtype, dtype, first, second, cores, tile, listed=True)
