"""Tiles of the multistage main loops: sides, depth, warps and how many batches a block makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type, tensor_type
from gett.ir.gemm import A, B, D, GemmPlan, itemsize
from gett.schedule.mainloops.multistage import MultistageSmem, warp_step
from layouts.rates import SECTOR

WARPS = 8  # most warps of a block
SIDES = (32, 64, 128, 256)  # of tiles that are tried for any extent
BATCHED_SIDES = {True: ((16, 32, 64), (8, 16, 32, 64)), False: ((4, 8, 12, 16, 24, 32, 64), (8, 16, 24, 32, 64))}
"""Rows and columns of a batch in a block, by whether tensor cores multiply."""


@dataclass(frozen=True, slots=True)
class MmaTile:
    """Block sizes of M, N and K in elements, warps along M and N, and batches that a block makes."""

    shape: tuple[int, int, int]
    warps: tuple[int, int]
    batches: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps[0] * self.warps[1] * (batch_warps(self.batches) if self.batches > 1 else 1)


def mma_tiles(plan: GemmPlan, tensor_cores: bool) -> Iterator[MmaTile]:
    """Tiles of one batch worth considering for the extents at hand."""
    dtype = data_type(plan.contraction.dtype)
    accumulator = dtype.accumulator_bytes
    depths = _depths(dtype.bytes, tensor_cores)
    most = 128 * 128 * 4 // accumulator
    if tensor_cores:
        most = 128 * 256 if accumulator == 4 else 128 * 128
    for m in _sides(plan.extent_m, 16, tensor_cores):
        for n in _sides(plan.extent_n, 8, tensor_cores):
            warps = _warps(m, n, tensor_cores, accumulator) if m * n <= most else None
            if warps is not None:
                for k in depths if plan.extent_k > depths[0] else depths[:1]:
                    yield MmaTile((m, n, k), warps)


def _depths(size: int, tensor_cores: bool) -> tuple[int, ...]:
    """K of a tile that is tried, for elements of `size` bytes."""
    if tensor_cores:
        return 64 // size, 128 // size
    return {1: (16, 32), 2: (16, 32), 4: (8, 16), 8: (8,), 16: (4,)}[size]


def _sides(extent: int, step: int, tensor_cores: bool) -> list[int]:
    """Usual sides that are not twice too long, and the one that fits a short group.

    Of multiply-adds, whose time is that of all elements of a tile, also sides that divide a group evenly.
    """
    usual, fit = SIDES, -(-extent // step) * step
    sides = {s for s in usual if s < 2 * fit or s == usual[0]}
    if not tensor_cores and usual[0] < fit < usual[-1]:
        sides |= {-(-extent // -(-extent // s) // step) * step for s in usual if s < fit}
        sides.add(-(-fit // usual[0]) * usual[0])
    if fit <= usual[1] or (fit <= usual[-1] and fit % 32 == 0) or (fit < usual[2] and fit % 16 == 0):
        sides = {s for s in sides if s <= fit} | {fit}
    return sorted(sides)


def _warp_grids(m: int, n: int, tensor_cores: bool) -> Iterator[tuple[int, int]]:
    """Warps along M and N that share a tile evenly: powers of two, most warps first."""
    step_m, step_n = warp_step(tensor_cores)
    for count in (8, 4, 2, 1):
        for wm in (1, 2, 4, 8):
            if count % wm == 0 and m % (wm * step_m) == 0 and n % (count // wm * step_n) == 0:
                yield wm, count // wm


@lru_cache(maxsize=1024)
def _warps(m: int, n: int, tensor_cores: bool, accumulator: int) -> tuple[int, int] | None:
    """Warps so that a warp's accumulators fit its registers and its tile is near square."""
    limit = 64 * (64 if tensor_cores else 32) * 4 // accumulator
    best: tuple[float, tuple[int, int]] | None = None
    for wm, wn in _warp_grids(m, n, tensor_cores):
        tm, tn, count = m // wm, n // wn, wm * wn
        if tm * tn > limit or (tm * tn < limit // 4 and count > 4) or (tm * tn < limit // 16 and count > 1):
            continue
        # Fewer, larger warps read less shared memory; four keep every scheduler busy.
        score = (tm + tn) / (tm * tn) * (1.0 if count >= 4 else 3.0) * (1.05 if count == 8 and m * n < 128 * 256 else 1)
        if best is None or score < best[0]:
            best = (score, (wm, wn))
    return best[1] if best else None


@lru_cache(maxsize=1024)
def with_more_warps(tile: MmaTile, tensor_cores: bool) -> MmaTile | None:
    """The tile with the most warps, near a square, which reads the least shared memory; None where it has as many."""
    (m, n, _), had = tile.shape, tile.warps[0] * tile.warps[1]
    most = max(_warp_grids(m, n, tensor_cores), key=lambda w: (w[0] * w[1], -(m // w[0] + n // w[1]), w))
    return MmaTile(tile.shape, most) if tile.batches == 1 and most[0] * most[1] > had else None


def fallback_tiles(plan: GemmPlan, tensor_cores: bool) -> list[MmaTile]:
    """Tiles that meet the limits of a thread whatever the strides are: four warps on little work."""
    m, k = 32 if tensor_cores else 16, _depths(itemsize(plan.contraction.dtype), tensor_cores)[0]
    return [MmaTile((x * m, x * 32, k), (2, 2)) for x in (1, 2)]


def batched_tiles(plan: GemmPlan, tensor_cores: bool) -> Iterator[MmaTile]:
    """Tiles of blocks that make several batches at once.

    They serve plans in which a tensor's unit-stride mode is a batch mode: a block of one batch would use one element of
    every sector. One warp makes all of a batch's tile, or a half or a quarter of it.
    """
    c = plan.contraction
    size, size_d = itemsize(c.dtype), itemsize(c.d.dtype)
    units = [t for t, x in ((A, size), (B, size), (D, size_d)) for s in plan.l if s.strides[t] == x and s.extent > 1]
    if not units:
        return
    sides_m, sides_n = BATCHED_SIDES[tensor_cores]
    depths = _depths(size, tensor_cores)
    if tensor_cores:
        mma = tensor_type(c.dtype).mma
        assert mma is not None
        depths = tuple(sorted({min(d * mma.k, -(-plan.extent_k // mma.k) * mma.k) for d in (1, 2, 3, 4)}))
    most = 128 * WARPS * 32 * 2 // max(size, 2)  # 128 accumulators a thread
    for count in (8, 16, 32):
        if count // 2 >= plan.extent_l and count != 8:
            continue
        if D in units and count * size_d < SECTOR and plan.extent_l > count:  # stores that cut sectors cost most
            continue
        for m in _up_to(plan.extent_m, sides_m):
            for n in _up_to(plan.extent_n, sides_n):
                if count * m * n <= most:
                    yield from (MmaTile((m, n, k), (1, 1), count) for k in depths)


def _up_to(extent: int, sides: tuple[int, ...]) -> list[int]:
    """Sides up to the first that covers the extent."""
    return [s for i, s in enumerate(sides) if i == 0 or sides[i - 1] < extent]


def batch_warps(count: int) -> int:
    """Groups of warps that share `count` batches evenly."""
    return max(w for w in range(1, WARPS + 1) if count % w == 0)


def stage_count(facts: ArchFacts, smem: MultistageSmem, k_tiles: int, copies: bool) -> int:
    """As many stages as two blocks on a multiprocessor allow, as one does where two do not fit; below 2 if neither.

    `copies`: whether any operand comes by `cp.async`; what goes through registers is one k-tile ahead at most.
    """
    most = min(5 if copies else 3, max(2, k_tiles))
    fixed, half = smem.offsets + smem.k_slot, (facts.smem_per_sm - 2048) // 2
    of_two, of_one = ((limit - fixed) // (smem.stage + smem.k_slot) for limit in (half, facts.smem_per_block))
    return min(most, of_two if of_two >= 2 and smem.staging + fixed <= half else of_one)
