"""Tiles of grouped launches, and the products of a network that these make: small ones together, any for a while.

Knows neither tables nor arrays.
"""

from __future__ import annotations

import math

from gett.hw.archs import arch_facts
from gett.hw.device import DeviceModel, nearest
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

_LARGE = GroupedTile((64, 64, 32), (2, 2), 3)
"""The largest tile of tensor cores that makes products until there are kernels of their own."""
_MOST = 1 << 30  # elements of a group, and blocks


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
    if not _is_listed(gemm):
        return None
    cores = _by_cores(gemm)
    tile = tiles_of(gemm.contraction.dtype, tensor_cores=cores)[1]
    return _listed_for(gemm, arch, tile, cores) if 0 < _padded(gemm, tile) <= SMALL else None


def shared_schedule(gemm: GemmPlan, arch: str) -> tuple[GroupedSchedule, float] | None:
    """The kernel that makes a product of any size by tables, and about how many microseconds it takes; None if none.

    It is the one of small products, or another one with large tiles, whichever takes less time. So two kernels of a
    dtype make all products, until there are kernels of their own. Their time counts for little then.
    """
    if not _is_listed(gemm) or max(gemm.extent_l, gemm.extent_m, gemm.extent_n, gemm.extent_k) >= _MOST:
        return None
    cores = _by_cores(gemm)
    tiles = _shared_tiles(gemm.contraction.dtype, cores)
    device = nearest(arch_facts(arch))
    us, tile = min(((_expected_us(gemm, tile, device), tile) for tile in tiles), key=lambda x: x[0])
    return (_listed_for(gemm, arch, tile, cores), us) if 0 < _tiles(gemm, tile) < _MOST else None


def shared_schedules(dtype: str, precision: str, arch: str) -> tuple[GroupedSchedule, ...]:
    """The kernels of `shared_schedule` for a dtype, of operands that are not conjugated."""
    cores = by_tensor_cores(dtype, (dtype, dtype), precision)
    return tuple(_listed(arch, dtype, (False, False), tile, cores) for tile in _shared_tiles(dtype, cores))


def _shared_tiles(dtype: str, cores: bool) -> tuple[GroupedTile, GroupedTile]:
    large, small = tiles_of(dtype, tensor_cores=cores)
    # Larger ones take the compiler more than a second.
    return small, _LARGE if math.prod(large.shape) > math.prod(_LARGE.shape) else large


def _is_listed(gemm: GemmPlan) -> bool:
    """Whether a product has the form of those whose addresses are listed: two factors and the result, of one dtype.

    Threads copy whole elements, so these lie at multiples of their size.
    """
    contraction, b = gemm.contraction, gemm.b
    if b is None or contraction.c is not None or contraction.epilogue is not None:
        return False
    size = data_type(contraction.dtype).bytes
    return all(
        x.dtype == contraction.dtype and x.alignment % size == 0 and not any(s % size for s in x.strides)
        for x in (gemm.a, b, contraction.d)
    )


def _by_cores(gemm: GemmPlan) -> bool:
    dtype = gemm.contraction.dtype
    return by_tensor_cores(dtype, (dtype, dtype), gemm.contraction.precision)


def _listed_for(gemm: GemmPlan, arch: str, tile: GroupedTile, cores: bool) -> GroupedSchedule:
    assert gemm.b is not None
    return _listed(arch, gemm.contraction.dtype, (gemm.a.conj, gemm.b.conj), tile, cores)


def _listed(arch: str, dtype: str, conj: tuple[bool, bool], tile: GroupedTile, cores: bool) -> GroupedSchedule:
    first, second = (GroupedLoad(dtype, x, "k", 1) for x in conj)
    return GroupedSchedule(arch, dtype, dtype, first, second, cores, tile, listed=True)


def _tiles(gemm: GemmPlan, tile: GroupedTile) -> int:
    """Blocks of a product."""
    return gemm.extent_l * -(-gemm.extent_m // tile.shape[0]) * -(-gemm.extent_n // tile.shape[1])


def _padded(gemm: GemmPlan, tile: GroupedTile) -> int:
    """Products of whole tiles."""
    return _tiles(gemm, tile) * math.prod(tile.shape) * -(-gemm.extent_k // tile.shape[2])


def _expected_us(gemm: GemmPlan, tile: GroupedTile, device: DeviceModel) -> float:
    """About how long a product takes: blocks one after the other, or products at the rate of all multiprocessors."""
    rates, steps = device.tables, -(-gemm.extent_k // tile.shape[2])
    own = math.prod(tile.shape) / tile.threads
    at_once = device.sm_count * max(1, rates.threads // tile.threads)
    waves = -(-_tiles(gemm, tile) // at_once)
    rate = rates.products_per_us * math.sqrt(tile.shape[0] * tile.shape[1] / math.prod(_LARGE.shape[:2]))
    us = max(waves * steps * (rates.step_us + own * rates.product_us), _padded(gemm, tile) / rate)
    return device.launches.launch_us + device.launches.fill_us + us
