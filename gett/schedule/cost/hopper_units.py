"""What a k-tile of each Hopper main loop asks of the units of a multiprocessor; knows no number that was fitted.

A row of `LOOPS` is all that the cost model asks of a main loop. What units take is the device's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gett.hw.hopper_rates import HopperLoops, LoopRates
from gett.ir.gemm import A, B
from gett.schedule.cost.copies import CopyCost
from gett.schedule.cost.estimate import even_splits
from gett.schedule.spec.hopper_needs import parts, planes, up
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.rates import L2_LINE
from layouts.swizzle import swizzle_dividing


class Units(NamedTuple):
    """What a k-tile asks for."""

    products: float  # clocks of the tensor cores at their nominal rate
    port: float  # bytes that shared memory moves
    threads: float = 0.0  # clocks of the threads that copy


@dataclass(frozen=True, slots=True)
class LoopCost:
    """A main loop as the cost model sees it."""

    rates: Callable[[HopperLoops], LoopRates]  # its numbers
    units: Callable[[CopyCost, WgmmaTile], Units]  # what a k-tile asks of the units
    splits: Callable[[int, int, int], list[int]]  # slices of K that are tried, of a tile's k-tiles and so many tiles
    # Whether threads make something of k-tiles: a block's first tile then waits for two empty pipelines.
    remakes: bool = False
    by_box: bool = False  # whether what is asked depends on how the box of N lies, beside its rows
    waits_for_d: bool = False  # whether those who multiply wait until D's only staging buffer is empty
    divides: Callable[[WgmmaTile], bool] = lambda tile: True  # whether stream-K may divide such tiles


def few_slices(k_tiles: int, tiles: int, sm_count: int) -> list[int]:
    """How many slices of K are tried where a slice's sums cost much beside its products."""
    if tiles * 2 > sm_count or k_tiles < 8:
        return [1]
    return even_splits((min(t // tiles, k_tiles // 4) for t in (sm_count // 2, sm_count, 2 * sm_count)), k_tiles)


def whole_waves(k_tiles: int, tiles: int, sm_count: int) -> list[int]:
    """The same where tiles take so long that whole waves are worth a few more partial sums."""
    if tiles > sm_count or k_tiles < 8:
        return [1]
    counts = (sm_count // 2, sm_count, 2 * sm_count, 3 * sm_count)
    return even_splits((min(t // tiles, k_tiles // 4) for t in counts), k_tiles)


def in_turn(k_tiles: int, tiles: int, sm_count: int) -> list[int]:
    """The same where k-tiles are dealt out in turn, so that slices may differ by one."""
    most = max(1, k_tiles // 2)
    return sorted({max(1, min(wish, most)) for wish in (1, sm_count // tiles, 2 * sm_count // tiles)})


def _ss(cost: CopyCost, tile: WgmmaTile) -> Units:
    """Shared memory serves wgmma's reads, all of B for every 64 rows, and takes what the copies bring."""
    rows, bn, bk = tile.shape
    passed = (tile.a.rows if tile.stationary != "a" else 0) + (tile.n.rows if tile.stationary != "b" else 0)
    port = (rows / 64) * (64 + bn) * bk + passed * tile.k.size
    return Units(rows * bn * bk / cost.lanes, port * cost.size)


def _gather(cost: CopyCost, tile: WgmmaTile) -> Units:
    """Threads bring pieces of rows, and shift them on their way."""
    clocks, bk = cost.threads, tile.shape[2]
    threads = 0.0
    for side, run in ((tile.m, tile.runs[0]), (tile.n, tile.runs[1])):
        if run:
            threads += side.box.size * bk // run * (clocks.piece_clocks + run * clocks.element_clocks)
    return _ss(cost, tile)._replace(threads=threads)


def _rs(cost: CopyCost, tile: WgmmaTile) -> Units:
    """A goes through registers; B is read for every 64 rows."""
    rows, bn, bk = tile.shape[0], tile.shape[1], tile.k.size
    return Units(rows * bn * bk / cost.lanes, (2 * (rows + bn) + bn * rows / 64) * bk * cost.size)


def _tf32(cost: CopyCost, tile: WgmmaTile) -> Units:
    """Both operands come in, A is loaded once, B is read for every 64 rows; what is transposed is loaded and stored."""
    rows, bn, bk = tile.shape
    port = rows + bn + rows + bn * (rows / 64)
    if cost.k_unit[B] is None:
        swizzle = tile.n.atom * cost.size if tile.n.run else cost.rows(B, tile.n, tile.k)[1]
        port += bn * sum(transposition_replays(swizzle, bk))
    return Units(rows * bn * bk / cost.lanes, port * bk * cost.size)


def _split(cost: CopyCost, tile: WgmmaTile) -> Units:
    """Both operands come in and are read once; B's planes are written once and read by each product."""
    rows, bn, bk = tile.shape
    real, made = parts(cost.plan), planes(cost.plan)
    assert made is not None
    count, products, size = real * made.count, real * len(made.products), made.tensor.bytes
    # Rows along two modes are short: lanes that read them at a time meet in the same banks in twos.
    units = set(cost.k_unit.values())
    served = 2 if None not in units and len(units) > 1 else 1
    port = (1 + served) * cost.size * (rows + bn) + size * bn * (count + products * rows / 64)
    clocks, threads = cost.threads, 0.0
    for tensor, side, vector in ((A, tile.m, tile.runs[0]), (B, tile.n, tile.runs[1])):
        if vector:
            run, _ = cost.run(tensor, side, tile.k, cost.plan.k)
            lines = 32 * vector * cost.size / min(run, L2_LINE)
            warps = up(side.box.size, 8) * bk / vector / 32
            threads += warps * (clocks.warp_clocks + clocks.line_clocks * lines)
    return Units(real * products * rows * bn * bk / cost.lanes, port * bk, threads)


def _dmma(cost: CopyCost, tile: WgmmaTile) -> Units:
    """Each warp reads its rows of A once, and each of eight warps all columns of B."""
    rows, bn, bk = tile.shape
    port = float(rows + bn)
    two_leads = cost.k_unit[A] is not None and cost.k_unit[B] not in (None, cost.k_unit[A])
    for tensor, read in ((A, rows), (B, 4 * DmmaTma.warpgroups * bn)):
        unit = cost.k_unit[tensor]
        replays = 1.0
        if unit is None:
            replays = cost.tile_rates.across_k
        elif not two_leads:
            replays = fragment_replays("k", swizzle_dividing(tile.k.cut[unit] * cost.size))
        port += read * replays
    products = rows * bn * bk * cost.real_products / cost.lanes
    return Units(products, port * bk * cost.size)


def transposition_replays(swizzle: int, deep: int) -> tuple[int, int]:
    """How often the loads and the stores of B transposed are served.

    Args:
        swizzle: Bytes of a row of B.
        deep: K of a k-tile.
    """
    return {128: 1 if deep % 16 == 0 else 2, 64: 2}.get(swizzle, 4), 1


def fragment_replays(major: str, swizzle: int) -> int:
    """How often the loads of an operand's fragments are served, by the group along its rows and their swizzle."""
    return {16: 4, 32: 2}.get(swizzle, 1) if major == "k" else 1


SS = LoopCost(lambda x: x.ss, _ss, few_slices)
GATHER = LoopCost(lambda x: x.gather, _gather, few_slices, remakes=True)
RS = LoopCost(lambda x: x.rs, _rs, in_turn, divides=lambda tile: tile.cluster[1] == 1)  # slices alone share A
SPLIT = LoopCost(lambda x: x.split, _split, few_slices, remakes=True)
SPLIT_COPIES = LoopCost(lambda x: x.split_copies, _split, few_slices, remakes=True)
TF32 = LoopCost(lambda x: x.tf32, _tf32, few_slices, by_box=True)
DMMA = LoopCost(lambda x: x.dmma, _dmma, whole_waves, waits_for_d=True)
