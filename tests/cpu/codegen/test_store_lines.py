"""Tiles of D that threads store in lines: every vector once, where it belongs, in fewer turns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gett.codegen import store_lines as module
from gett.codegen.common import store_order
from gett.codegen.render import render_kernel
from gett.codegen.store_lines import LANES, TURN_COST, Lines, best_lines, store_lines
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan
from gett.schedule.search.base import best_schedules
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.spec.epilogue import VectorSource
from gett.schedule.spec.schedule import Schedule
from tests.cpu.host_blocks import run_kernel
from tests.cpu.stream_plans import plan_for

FACTS = arch_facts("sm_90a")
STEP = 4

CASES = [  # subscripts, shapes, dtype: what the tile's lines are
    ("ik,kj->ij", [(70, 6), (6, 31)], "float32"),  # rows of 31 whose starts are odd
    ("kij,lk->lij", [(6, 5, 61), (70, 6)], "float32"),  # a ragged mode of 61 in a tile of others
    ("aik,akj->ija", [(6, 20, 3), (6, 3, 20)], "float32"),  # batches are D's neighbours
    ("abk,kcd->acbd", [(4, 9, 5), (5, 6, 7)], "complex64"),  # modes of M and N by turns
    ("abk,kcd->cbda", [(4, 9, 5), (5, 6, 7)], "int32"),
]


def schedules(subscripts: str, shapes: list[tuple[int, ...]], dtype: str) -> tuple[GemmPlan, list[Schedule]]:
    """Those without slices whose tile of D is stored in lines, of different lines."""
    plan, _ = plan_for(subscripts, shapes, dtype)
    search = MultistageSearch(plan, FACTS, multiply_adds=True)
    found: dict[Lines, Schedule] = {}
    for s in best_schedules([search], 60):
        if s.split_k == 1 and (lines := store_lines(plan, s, store_order(plan, s))).line:
            found.setdefault(lines, s)
    return plan, list(found.values())


@given(data=st.data(), threads=st.sampled_from([32, 96, 128, 256]), vector=st.sampled_from([1, 2, 4]))
def test_lines_have_every_vector_in_fewer_turns(data: st.DataObject, threads: int, vector: int) -> None:
    sizes = data.draw(st.lists(st.integers(2, 40), min_size=1, max_size=4).filter(lambda x: math.prod(x) <= 1 << 15))
    sizes[0] = -(-sizes[0] // vector) * vector
    steps = [STEP * data.draw(st.integers(1, 500)) for _ in sizes[1:]]
    places = [np.arange(n) * s for n, s in zip(sizes, [STEP, *steps], strict=True)]
    most = data.draw(st.integers(4, 400))
    found = best_lines(places, vector, STEP, STEP * vector, threads, most)
    if not found.line:
        return
    total = math.prod(sizes) // vector
    planes, left = divmod(total, found.line * found.lines)
    assert not left
    assert found.line + found.lines + planes <= most
    assert found.lanes in LANES
    assert threads % found.lanes == 0
    turns = -(-found.line // found.lanes) * planes * -(-found.lines * found.lanes // threads)
    assert turns < TURN_COST * -(-total // threads)


def test_one_dimension_has_no_lines() -> None:
    assert not best_lines([np.arange(512) * STEP], 1, STEP, STEP, 128, 1000).line


def test_vectors_do_not_begin_in_one_line_and_end_in_another() -> None:
    places = [np.arange(31) * STEP, np.arange(64) * 31 * STEP]
    assert best_lines(places, 1, STEP, STEP, 128, 200).line == 31
    assert not best_lines(places, 4, STEP, 16, 128, 200).line


def test_lines_that_cut_more_sectors_are_not_taken() -> None:
    """Lines of 44 elements end within sectors, all elements in turn begin and end with them."""
    rows = [np.arange(44) * STEP, np.arange(64) * 44 * STEP]
    assert not best_lines(rows, 1, STEP, 128, 128, 200).line
    apart = [rows[0], rows[1] * 16]
    assert best_lines(apart, 1, STEP, 128, 128, 200).line == 44


def test_lanes_store_a_line_of_l2_or_all_of_theirs() -> None:
    assert best_lines([np.arange(16) * STEP, np.arange(64) * 1000 * STEP], 1, STEP, 4, 128, 200).lanes == 16
    assert best_lines([np.arange(40) * STEP, np.arange(64) * 1000 * STEP], 1, STEP, 4, 128, 200).lanes == 32


@pytest.mark.parametrize(("subscripts", "shapes", "dtype"), CASES)
def test_lines_are_stored_exactly(subscripts: str, shapes: list[tuple[int, ...]], dtype: str, tmp_path: Path) -> None:
    plan, found = schedules(subscripts, shapes, dtype)
    assert found
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    wanted = np.einsum(subscripts, a, b)
    for i, s in enumerate(found[:2]):
        d = np.full_like(wanted, 99)
        (folder := tmp_path / str(i)).mkdir()
        run_kernel(folder, plan, s, dict(zip("ba" if plan.swapped else "ab", (a, b), strict=True)), d)
        np.testing.assert_array_equal(d, wanted)


def test_far_elements_and_c_have_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines have offsets of 29 bits, and C has places of its own."""
    plan, found = schedules(*CASES[0])
    order = store_order(plan, found[0])
    with_c = replace(found[0], epilogue=replace(found[0].epilogue, source=VectorSource()))
    assert not store_lines(plan, with_c, order).line
    assert "typedef int Offset;\n  static constexpr gett::SourceC" in render_kernel(plan, found[0]).source.text
    monkeypatch.setattr(module, "reach", lambda plan, tensor: 4 << 29)
    assert not store_lines(plan, found[0], order).line
    assert "typedef long long Offset;\n  static constexpr gett::SourceC" in render_kernel(plan, found[0]).source.text
