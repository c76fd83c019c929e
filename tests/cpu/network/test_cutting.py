"""Contractions too large for one launch: sections that each fit, and together give the whole."""

from __future__ import annotations

import math
import types
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

import gett
from gett.codegen.render import render_kernel
from gett.cpu import NumpyExecutable
from gett.ir.gemm import itemsize, make_gemm_plan
from gett.network.cutting import GROUP_LIMIT, Section, cut_free, cut_sum, partial_sums, uncut
from gett.plans import executables
from gett.runtime.shifted import ShiftedExecutable
from tests.cpu.helpers import at, contraction_of
from tests.cpu.strategies import Case, contractions
from tests.sampling import given_few

LIMITS = st.sampled_from([1, 2, 3, 5, 8, 20])


def run(section: Section, tensors, alpha, beta):
    c = section.contraction
    views = [at(x, o, c.extents, by) for x, o, by in zip(tensors, (c.a, c.b, c.c, c.d), section.offsets, strict=True)]
    NumpyExecutable(make_gemm_plan(c))(*views, alpha, beta)


@given_few(16, 80, contractions(operands=2, dtypes=("int64", "float64")), LIMITS, st.booleans())
def test_pieces_give_the_whole(case: Case, limit: int, with_c: bool):
    whole = contraction_of(case.subscripts, *case.operands)
    out = np.full(whole.shape_d, 77, whole.d.dtype)
    c = np.arange(out.size).reshape(out.shape).astype(out.dtype)
    operands = dict(zip("ab", case.operands, strict=True))
    if with_c:
        whole = replace(whole, c=whole.d)
    tensors = [operands["a"], operands["b"], c if with_c else None, out]
    sections = cut_sum(whole, limit)
    factors = (3, 2) if with_c else (3, 0)
    if len(sections) > 1:
        written, total = partial_sums(sections, whole.dtype)
        sums = np.full((len(sections), *whole.shape_d), 55, whole.dtype)
        for section in written:
            for part in cut_free(section, limit):
                run(part, [*tensors[:2], None, sums], 1, 0)
        sections, tensors = [uncut(total)], [sums, None, *tensors[2:]]
    for part in cut_free(sections[0], limit):
        run(part, tensors, *factors)
    wanted = 3 * case.reference() + (2 * c if with_c else 0)
    np.testing.assert_array_equal(out, wanted)


def test_large_results_of_empty_sums_are_cut():
    plan = gett.plan("ab->b", ((0, BIG), "float16"), arch="sm_90a")
    assert [s.gemm.contraction.shape_d for s in plan.steps] == [(BIG // 2,)] * 2


@given_few(20, 100, contractions(operands=2, dtypes=("float64",), max_modes=6), LIMITS)
def test_no_group_of_a_section_exceeds_the_limit(case: Case, limit: int):
    whole = contraction_of(case.subscripts, *case.operands)
    for summed in cut_sum(whole, limit):
        for section in cut_free(summed, limit):
            if 0 in section.contraction.shape_d:
                continue  # nothing is launched
            plan = make_gemm_plan(section.contraction)
            product = min(plan.extent_m, plan.extent_n, plan.extent_k) > 1
            if product:
                assert max(plan.extent_l, plan.extent_m, plan.extent_n) <= limit
            assert plan.extent_k <= limit
            assert all(s.extent <= limit for s in (*plan.l, *plan.m, *plan.n))


BIG = 1 << 31


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize(
    ("subscripts", "extents"),
    [
        ("ai,ij->aj", {"a": BIG, "i": 4, "j": 4}),
        ("ai,ij->aj", {"a": BIG + 77, "i": 64, "j": 64}),
        ("ia,ij->aj", {"a": BIG, "i": 4, "j": 4}),
        ("ai,aj->ij", {"a": BIG, "i": 4, "j": 4}),
        ("ai,i->a", {"a": BIG, "i": 4}),
        ("a,a->a", {"a": BIG}),
        ("a,a->", {"a": 4 * BIG}),
        ("xai,xij->xaj", {"x": BIG, "a": 4, "i": 4, "j": 4}),
        ("a->", {"a": BIG}),
        ("ab->ba", {"a": BIG, "b": 2}),
    ],
)
def test_gpus_get_groups_that_a_kernel_can_number(subscripts, extents, dtype):
    """Every launch renders, whose counts and divisors have 32 bits; the sections make up the whole."""
    pairs = [(tuple(extents[x] for x in term), dtype) for term in subscripts.split("->")[0].split(",")]
    plan = gett.plan(subscripts, *pairs, arch="sm_90a")
    assert len(plan.steps) > 1
    for step in plan.steps:
        render_kernel(step.gemm, step.schedule)
        assert all(s.extent <= GROUP_LIMIT for s in (*step.gemm.l, *step.gemm.m, *step.gemm.n, *step.gemm.k))
    summed = [s for s in plan.steps if s.output != plan.steps[-1].output]
    volume = math.prod(extents.values())
    assert sum(s.gemm.contraction.volume for s in (summed or plan.steps)) == volume
    if summed and dtype == "float16":  # partial sums are not rounded to 16 bits
        assert {s.gemm.contraction.d.dtype for s in summed} == {"float32"}
    for step in plan.steps:
        c = step.gemm.contraction
        for operand, by in zip((c.a, c.b, c.c, c.d), step.offsets, strict=True):
            assert operand is None or by % operand.alignment == 0


def test_pieces_run_at_their_addresses(monkeypatch):
    """Through a plan: several launches of one result, an operand converted once, c added once."""
    calls = []

    class Executable:
        workspace_bytes, schedule, measured, device = 0, None, None, 0

        def __init__(self, gemm):
            self.gemm = gemm

        def __call__(self, a, b, c, d, alpha, beta, extras):
            assert not extras
            calls.append(tuple(None if x is None else x.data.ptr for x in (a, b, c, d)))

    monkeypatch.setattr(executables, "_build_executables", lambda gemms, arch, tuned, limit: [*map(Executable, gemms)])
    plan = gett.plan("ai,ij->aj", ((BIG, 4), "float16"), ((4, 4), "float16"), arch="sm_90a")
    steps = executables.bind_steps(plan.steps, "sm_90a", False)
    assert [type(s.executable) for s in steps] == [Executable, ShiftedExecutable]
    at_zero = [types.SimpleNamespace(data=types.SimpleNamespace(ptr=p)) for p in (1000, 2000, 3000, 4000)]
    for step in steps:
        step.executable(*at_zero[:2], None, at_zero[3], 1, 0, ())
    half = (BIG // 2) * 4 * itemsize("float16")
    assert calls == [(1000, 2000, None, 4000), (1000 + half, 2000, None, 4000 + half)]


def test_the_text_of_a_plan_counts_launches():
    plan = gett.plan("ai,ij->aj", ((BIG, 4), "float16"), ((4, 4), "float16"), arch="sm_90a")
    assert "step 1 of 2: ai,ij->aj, launch 1 of 2" in plan.explain(detail=True)
    assert "launch 2 of 2" in plan.explain(detail=True)


def test_a_contraction_that_would_take_too_many_launches_is_refused():
    with pytest.raises(gett.ScheduleError, match=r"would take 1048576 launches .* the modes 'a'; the limit is 4096"):
        gett.plan("ab->ba", ((1 << 50, 2), "int8"), arch="sm_90a")
    assert gett.plan("ab->ba", ((1 << 50, 2), "int8")).steps
