"""Clocks of copies by tensor map: where rows begin, and where K ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gett.hw.archs import arch_facts
from gett.ir.gemm import A, make_gemm_plan
from gett.schedule.cost.wgmma import WgmmaCost
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from tests.cases import Case

FACTS = arch_facts("sm_90a")


def clocks(case: Case, dtype: str, k: int) -> float:
    """Of 128 rows of A and `k` of K, whose rows run along K, out of L2."""
    plan = make_gemm_plan(case.contraction(dtype))
    (mode,) = (i for i, s in enumerate(plan.m) if s.extent >= 128)
    rows = OperandTiling(Box.of_cuts(tuple(s.extent for s in plan.m), {mode: 128}), plan.m)
    box_k = Box.of_cuts(tuple(s.extent for s in plan.k), {0: k})
    return WgmmaCost(plan, FACTS).clocks(A, rows, box_k, 1, 1 << 30)[0]


def product(k: int) -> Case:
    return Case("", "mk,nk->mn", {"m": 1024, "n": 1024, "k": k})


def batches(k: int) -> Case:
    """A batch lies between two rows of one."""
    return Case("", "ibj,kbj->ibk", {"i": 1024, "k": 1024, "b": 2, "j": k})


@pytest.mark.parametrize("case", [product, batches])
def test_rows_that_begin_within_sectors_take_longer_and_short_ones_most(case: Callable[[int], Case]) -> None:
    whole, cut = case(3 * 128), case(3 * 128 + 8)  # the rows of one are 784 bytes apart, those of a batch twice as far
    assert clocks(whole, "float16", 32) * 2 == pytest.approx(clocks(whole, "float16", 64))
    long = clocks(cut, "float16", 64) / clocks(whole, "float16", 64)
    short = clocks(cut, "float16", 32) / clocks(whole, "float16", 32)
    assert 1.4 < long < 2 < short


@pytest.mark.parametrize(("dtype", "deep"), [("float16", 64), ("float32", 32)])
def test_a_row_beyond_the_end_costs_rows_of_32_elements(dtype: str, deep: int) -> None:
    """Three of them, shared out to the k-tiles."""
    rows = 3 * 32 / deep
    whole, past = product(4 * deep), product(3 * deep + 32 * 2 // 4)
    assert clocks(past, dtype, deep) == pytest.approx(clocks(whole, dtype, deep) * (1 + rows / 4))
