"""Multiply-adds: several batches a block where a unit stride is a batch mode, sides of tiles, slices of K."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.explain.detail import explain_gemm
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.legality import can_implement
from gett.schedule.mainloops.multistage import warp_atom
from gett.schedule.search.base import best_schedules
from gett.schedule.search.multistage import MultistageSearch, mma_tiles
from gett.schedule.search.select import select_schedule
from gett.schedule.spec.schedule import OneTile
from tests.by_hand import streamed
from tests.cpu.helpers import contraction_of
from tests.cpu.host_blocks import run_kernel
from tests.cpu.stream_plans import large, plan_for
from tests.specs import few

FACTS = arch_facts("sm_90a")
CASES = [
    ("abcd,ead->dceb", [(7, 3, 8, 45), (13, 7, 45)], "float32", ""),  # both operands' rows run along the batch
    ("abcd,edfcga->bgcdfe", [(9, 5, 7, 6), (2, 6, 2, 7, 2, 9)], "float32", "C"),  # those of the second along K
    ("abcd,ead->dceb", [(11, 3, 5, 33), (13, 11, 33)], "complex64", ""),
    ("akl,kbl->abl", [(5, 6, 40), (6, 9, 40)], "int32", "C"),
    ("abcd,ead->dceb", [(7, 3, 8, 35), (13, 7, 35)], "complex128", "C"),  # by tensor cores
]


def numbers_for(
    plan: GemmPlan, subscripts: str, shapes: list[tuple[int, ...]], dtype: str, *, with_c: bool
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Small integers as the arrays of a kernel, their product, and what is added to it."""
    rng = np.random.default_rng(1)

    def numbers(shape: tuple[int, ...]) -> np.ndarray:
        x = rng.integers(-3, 4, shape)
        return (x + 1j * rng.integers(-3, 4, shape) if dtype.startswith("complex") else x).astype(dtype)

    a, b = map(numbers, shapes)
    wanted = np.einsum(subscripts, a, b)
    added = numbers(wanted.shape)
    arrays = dict(zip("ba" if plan.swapped else "ab", (a, b), strict=True))
    return arrays | ({"c": added} if with_c else {}), wanted, added


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subscripts", "shapes", "dtype", "c", "number"),
    [(*case, i) for case in CASES for i in range(3)],
)
def test_several_batches_a_block_are_exact(
    subscripts: str, shapes: list[tuple[int, ...]], dtype: str, c: str, number: int, tmp_path: Path
) -> None:
    plan, _ = plan_for(subscripts, shapes, dtype, with_c=bool(c))
    found = [s for s in best_schedules([MultistageSearch(plan, FACTS)], 60) if s.tiling.l is not None]
    assert found
    arrays, wanted, added = numbers_for(plan, subscripts, shapes, dtype, with_c=bool(c))
    firsts = {(s.tiling.batches, s.tiling.shape): s for s in reversed(found)}
    for s in [found[0], *list(firsts.values())[:2]][number : number + 1]:
        assert can_implement(s, plan, FACTS) is None
        d = np.full_like(wanted, 99)
        run_kernel(tmp_path, plan, s, arrays, d, beta=3 if c else 0)
        np.testing.assert_array_equal(d, wanted + 3 * added if c else wanted)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_they_are_chosen_where_a_block_of_one_batch_would_use_single_elements(dtype: str) -> None:
    plan = large("abcd,ead->dceb", dtype, a=61, b=3, c=8, d=4096, e=13)
    schedule = select_schedule(plan, "sm_90a")
    assert schedule.tiling.batches * np.dtype(dtype).itemsize >= 32


@pytest.mark.parametrize(("columns", "side"), [(72, 24), (84, 96), (84, 48), (130, 72)])
def test_multiply_adds_are_tried_on_sides_with_little_padding(columns: int, side: int) -> None:
    plan = large("ik,kj->ij", "complex64", i=4096, k=1024, j=columns)
    sides = {side for t in mma_tiles(plan, None) for side in t.shape[:2]}
    assert side in sides


def test_k_is_cut_into_more_slices_than_multiprocessors() -> None:
    """One warp a scheduler would wait for its own loads."""
    schedule = select_schedule(large("ik,kj->ij", "complex64", i=31, k=1_000_000, j=84), "sm_90a")
    assert schedule.split_k > 2 * FACTS.sm_count


@pytest.mark.parametrize(
    ("subscripts", "shapes", "dtype", "c"),
    [
        ("ik,kj->ij", [(90, 70), (70, 100)], "float32", ""),
        ("ik,jk->ji", [(90, 70), (100, 70)], "complex64", "C"),
        ("abk,kcb->abc", [(40, 3, 50), (50, 40, 3)], "int32", ""),
        ("kil,ljk->ij", [(5, 70, 13), (13, 60, 5)], "float64", ""),  # offsets along K come from a table
        ("ik,jk->ij", [(70, 50), (60, 50)], "complex128", "C"),  # by tensor cores
    ],
)
def test_tiles_divided_by_stream_k_are_exact(
    subscripts: str, shapes: list[tuple[int, ...]], dtype: str, c: str, tmp_path: Path
) -> None:
    """Blocks make parts of tiles first, then whole tiles; the second kernel adds the parts."""
    plan, _ = plan_for(subscripts, shapes, dtype, with_c=bool(c))
    arrays, wanted, added = numbers_for(plan, subscripts, shapes, dtype, with_c=bool(c))
    search = MultistageSearch(plan, few(FACTS, 2), multiply_adds=dtype != "complex128")
    divided = [made for s in best_schedules([search], 60) if (made := streamed(s, plan, FACTS)) is not None]
    small = sorted(divided, key=lambda s: s.tiling.shape)
    assert small
    for s in {s.multistage.k_table: s for s in reversed(small)}.values():
        tiles = s.tiling.tiles(plan.extent_l)
        assert tiles > s.shares, "whole tiles and parts"
        d = np.full_like(wanted, 99)
        run_kernel(tmp_path, plan, s, arrays, d, beta=3 if c else 0)
        np.testing.assert_array_equal(d, wanted + 3 * added if c else wanted)


@pytest.mark.parametrize(("dtype", "c"), [("float32", ""), ("complex64", "C")])
def test_slices_are_added_in_the_order_of_the_workspace(dtype: str, c: str, tmp_path: Path) -> None:
    """D's fastest mode is not the first of the tile, so that its neighbours lie apart in the workspace."""
    subscripts, shapes = "kce,kf->efc", [(300, 5, 7), (300, 9)]
    plan, _ = plan_for(subscripts, shapes, dtype, with_c=bool(c))
    arrays, wanted, added = numbers_for(plan, subscripts, shapes, dtype, with_c=bool(c))
    search = MultistageSearch(plan, few(FACTS, 4), multiply_adds=True)
    sliced = [s for s in best_schedules([search], 80) if 1 < s.split_k < 8]  # one thread adds all slices of an output
    apart = [s for s in sliced if "kStepN = 7" in render_kernel(plan, s).source.text]
    assert apart
    assert all(s.epilogue.store.vector == 1 for s in apart)
    for s in apart[:2]:
        d = np.full_like(wanted, 99)
        run_kernel(tmp_path, plan, s, arrays, d, beta=3 if c else 0)
        np.testing.assert_array_equal(d, wanted + 3 * added if c else wanted)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("dtype", "i", "k", "j"), [("float32", 2048, 4096, 1088), ("float64", 2176, 2048, 2048)])
def test_stream_k_is_taken_where_tiles_leave_most_of_a_wave_idle(arch: str, dtype: str, i: int, k: int, j: int) -> None:
    plan, facts = large("ik,kj->ij", dtype, i=i, k=k, j=j), arch_facts(arch)
    best, *others = best_schedules([MultistageSearch(plan, facts)], 12)
    tiles = best.tiling.tiles(1)
    assert best.scheduler.stream_k
    assert 0 < tiles % best.shares < best.shares < tiles
    assert can_implement(best, plan, facts) is None
    assert "stream-K: tiles left over are divided" in explain_gemm(plan, best)
    same = [s for s in others if s.tiling == best.tiling and s.mainloop == best.mainloop]
    assert [s.scheduler for s in same if not s.scheduler.stream_k] == [OneTile(best.scheduler.group_m)]
    limited = replace(facts, workspace_limit=best.workspace_bytes - 1)
    found = best_schedules([MultistageSearch(plan, limited)], 12)
    assert all(s.workspace_bytes < best.workspace_bytes for s in found)


def test_whole_waves_are_not_divided() -> None:
    plan = large("ik,kj->ij", "float64", i=128 * 12, k=2048, j=128 * 11)
    found = best_schedules([MultistageSearch(plan, FACTS)], 4)
    assert found[0].tiling.tiles(1) % FACTS.sm_count == 0
    assert not found[0].scheduler.stream_k


@pytest.mark.parametrize(("a", "b", "rows"), [("c16", "c16", 8), ("c16", "f8", 8), ("f8", "c16", 16)])
def test_warps_multiply_whole_rows_of_complex_numbers(a: str, b: str, rows: int) -> None:
    """Real rows fill an instruction, complex ones half of it; a real column is one, a complex one two of them."""
    plan = make_gemm_plan(contraction_of("mk,kn->mn", np.ones((96, 64), a), np.ones((64, 80), b)))
    atom = warp_atom(plan)
    assert atom is not None
    assert (atom.m, plan.contraction.dtype, plan.swapped) == (rows, "complex128", False)
    s = best_schedules([MultistageSearch(plan, FACTS)], 1)[0]
    assert (s.kind, can_implement(s, plan, FACTS)) == ("mma.sync", None)
    m, n, k = s.tiling.shape
    broken = replace(s, tiling=replace(s.tiling, shape=(m + atom.m // 2, n, k)))
    assert "block_m" in str(can_implement(broken, plan, FACTS))
