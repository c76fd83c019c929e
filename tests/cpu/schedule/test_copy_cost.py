"""Clocks of copies by tensor map: in proportion to the sectors that rows touch, counted address by address."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from itertools import product as product_of

import pytest

from gett.hw.archs import arch_facts
from gett.ir.gemm import A, make_gemm_plan
from gett.schedule.cost.hopper import HopperCost
from gett.schedule.cost.hopper_units import SS
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from tests.cases import Case

FACTS = arch_facts("sm_90a")
ROWS, BATCHES, SIZE, SECTOR = 1024, 2, 2, 32
MANY = 200  # k-tiles, of which the last counts little


def clocks(case: Case, k: int) -> float:
    """Of 128 rows of A and `k` of K, whose rows run along K, out of L2."""
    plan = make_gemm_plan(case.contraction("float16"))
    (mode,) = (i for i, s in enumerate(plan.m) if s.extent >= 128)
    rows = OperandTiling(Box.of_cuts(tuple(s.extent for s in plan.m), {mode: 128}), plan.m)
    box_k = Box.of_cuts(tuple(s.extent for s in plan.k), {0: k})
    return HopperCost(plan, FACTS, SS).loads(A, rows, box_k).clocks


def matrix(k: int) -> tuple[Case, list[int]]:
    """A product, and where the rows of A begin."""
    return Case("", "mk,nk->mn", {"m": ROWS, "n": ROWS, "k": k}), [m * k * SIZE for m in range(ROWS)]


def batched(k: int) -> tuple[Case, list[int]]:
    """The same where a batch lies between two rows of one."""
    starts = [(m * BATCHES + b) * k * SIZE for m, b in product_of(range(ROWS), range(BATCHES))]
    return Case("", "ibj,kbj->ibk", {"i": ROWS, "k": ROWS, "b": BATCHES, "j": k}), starts


def sectors(starts: list[int], deep: int) -> int:
    """Sectors that a row of a k-tile touches at most."""
    firsts = (start + tile * deep * SIZE for start, tile in product_of(starts, range(MANY)))
    return max((first + deep * SIZE - 1) // SECTOR - first // SECTOR + 1 for first in firsts)


@pytest.mark.parametrize("deep", [32, 64])
@pytest.mark.parametrize("made", [matrix, batched])
def test_clocks_follow_the_sectors_that_rows_touch(made: Callable[[int], tuple[Case, list[int]]], deep: int) -> None:
    whole, starts = made(MANY * deep)
    fewest, unit = sectors(starts[:8], deep), clocks(whole, deep)
    assert fewest == deep * SIZE // SECTOR
    for past in (0, 8, 16, 24):  # rows begin at any multiple of 16 bytes
        case, starts = made(MANY * deep + past)
        assert clocks(case, deep) / unit == pytest.approx(sectors(starts[:8], deep) / fewest, rel=0.04), past


def test_clocks_are_in_proportion_to_bytes() -> None:
    case, _ = matrix(6 * 64)
    assert clocks(case, 32) * 2 == pytest.approx(clocks(case, 64))


@pytest.mark.parametrize("deep", [32, 64])
def test_an_end_within_a_k_tile_costs_less_the_more_k_tiles_there_are(deep: int) -> None:
    """All rows begin at sectors, so that nothing else differs."""
    whole = clocks(matrix(8 * deep)[0], deep)
    found = [clocks(matrix(count * deep + deep // 2)[0], deep) / whole for count in (1, 3, 9, MANY)]
    assert all(fewer > more for fewer, more in pairwise(found))
    assert 1 < found[-1] < 1.05
