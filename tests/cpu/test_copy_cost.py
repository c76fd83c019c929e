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


def beyond(k: int, deep: int, size: int) -> float:
    """Factor on rows of K where the last ends beyond it: six rows of 64 bytes more, shared out to the k-tiles."""
    return 1 + 6 * 64 / (deep * size) / -(-k // deep) * bool(k % deep)


@pytest.mark.parametrize("case", [product, batches])
def test_rows_that_begin_within_sectors_touch_one_more(case: Callable[[int], Case]) -> None:
    whole, cut = 3 * 128, 3 * 128 + 8  # the rows of one are 784 bytes apart, those of a batch twice as far
    assert clocks(case(whole), "float16", 32) * 2 == pytest.approx(clocks(case(whole), "float16", 64))
    for deep, sectors in ((64, 4), (32, 2)):
        found = clocks(case(cut), "float16", deep) / clocks(case(whole), "float16", deep)
        assert found == pytest.approx((1 + 1 / sectors) * beyond(cut, deep, 2))


@pytest.mark.parametrize(("dtype", "deep", "size"), [("float16", 64, 2), ("float32", 32, 4), ("float32", 16, 4)])
def test_rows_that_end_beyond_k_cost_more(dtype: str, deep: int, size: int) -> None:
    whole, past = 4 * deep, 3 * deep + 64 // size // 2
    found = clocks(product(past), dtype, deep) / clocks(product(whole), dtype, deep)
    assert found == pytest.approx(beyond(past, deep, size))
