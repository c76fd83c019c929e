"""Planes: which schedules are found, what rules say of the order of k, which products are formed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.hw.tensor_types import PLANES
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.legality import can_implement
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.mainloops.wgmma_split import TWO_LEADS
from gett.schedule.search.hopper.tma import OperandMaps
from gett.schedule.search.select import candidates
from gett.schedule.spec.hopper_needs import leads
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from tests.cases import Case, tccg
from tests.spec_cases import SPLIT
from tests.specs import few, split_schedules

ONE_LEAD = Case("one-lead", "mlk,kln->mn", {"m": 200, "n": 136, "k": 32, "l": 64})
FACTS = arch_facts("sm_90a")
LEADS = tuple(c for c in SPLIT if c.name.startswith("leads"))


def plan_of(case: Case, precision: str = "bf16x6") -> GemmPlan:
    return make_gemm_plan(case.contraction("float32", precision=precision))


def split_loop(s: Schedule) -> WgmmaSplit:
    assert isinstance(s.mainloop, WgmmaSplit)
    return s.mainloop


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16x6", "bf16x3"])
@pytest.mark.parametrize("name", ["ij-kil-lkj", "ijkl-minl-njmk"])
def test_rows_along_two_contracted_modes_are_split(name: str, precision: str) -> None:
    for case in (c for c in tccg() if c.name == name):
        plan = plan_of(case, precision)
        best = next(s for s in candidates(plan, "sm_90a") if s.packing is None)
        loop = split_loop(best)
        assert leads(loop, best.tiling.k) == TWO_LEADS
        assert (loop.a.map.swizzle_bytes, loop.b.map.swizzle_bytes) == (32, 16)
        assert can_implement(best, plan, FACTS) is None
        kernel = render_kernel(plan, best)
        assert compile_kernel(kernel.source, "sm_90a")  # without spills, and products do not wait for each other


def test_either_operand_may_have_the_longer_rows() -> None:
    for case in LEADS:
        found = split_schedules(plan_of(case), FACTS, 40)
        assert {s.tiling.swap_ab for s in found} == {False, True}, case
        assert all(can_implement(s, plan_of(case), FACTS) is None for s in found)


def test_a_short_contracted_mode_makes_rows_of_16_bytes() -> None:
    """Along it one operand's rows run; k-tiles of eight of it would be half padding."""
    plan = plan_of(Case("short", "jkm,knj->mn", {"m": 2048, "n": 2048, "k": 512, "j": 4}))
    best = candidates(plan, "sm_90a")[0]
    loop = split_loop(best)
    along_k = {x.major: x.map.swizzle_bytes for x in (loop.a, loop.b)}
    assert set(along_k) == {"mn", "k"}
    assert along_k["k"] == 16
    assert best.tiling.k.efficiency() == 1


def with_k(s: Schedule, plan: GemmPlan, cuts: dict[int, int]) -> Schedule:
    """The schedule with k-tiles of `cuts`, and the maps and the shared memory that belong to them."""
    t, lowered = s.tiling, lower_plan(plan, s.tiling)
    box_k = Box.of_cuts(t.k.extents, cuts)
    sides = ((A, t.m, lowered.m), (B, t.n, lowered.n))
    a, b = (OperandMaps(lowered, x, 4).load(OperandTiling(box, modes), box_k) for x, box, modes in sides)
    t = replace(t, k=box_k, shape=(*t.shape[:2], box_k.size))
    made = replace(s, tiling=t, mainloop=replace(split_loop(s), a=a, b=b, stages=2, plane_stages=2))
    return replace(made, smem=smem_plan(made, lowered))


@pytest.mark.parametrize(
    ("name", "cuts", "reason"),
    [
        ("leads", "k4 l8", ""),
        ("leads", "l8 k4", ""),
        ("leads", "k8 l4", "splitting: rows of 16 bytes of operand A"),
        ("leads", "k8 l8", "k order: k-tiles of 64 with (8, 8) k"),
        ("leads-third", "k4 l8", ""),
        ("leads-third", "k4 l8 r2", "k order: k-tiles of 64 with (8, 4) k"),
        ("k-mn", "k16", ""),
        ("k-mn", "k64", "k order: k-tiles of 64"),
        ("one-lead", "k8 l4", ""),
        ("one-lead", "k4 l8", "splitting: rows of 16 bytes of operand A"),
        ("short-rows", "j4 k8", ""),
        ("one-lead", "l4 k8", "k order: k-tiles of 32, A's are"),
    ],
)
def test_rules_of_the_order_of_k(name: str, cuts: str, reason: str) -> None:
    case = next(c for c in (*SPLIT, ONE_LEAD) if c.name == name)
    plan, facts = plan_of(case), few(FACTS, 1)
    at = {plan.contraction.names[mode.labels[0]]: i for i, mode in enumerate(plan.k)}
    s = next(s for s in split_schedules(plan, facts, 40) if not s.tiling.swap_ab and s.split_k == 1)
    refusal = can_implement(with_k(s, plan, {at[x[0]]: int(x[1:]) for x in cuts.split()}), plan, facts)
    assert (refusal is None) == (not reason)
    assert refusal is None or refusal.reason.startswith(reason)


def test_products_are_those_of_most_value_small_ones_first() -> None:
    for made in PLANES.values():
        value = [sum(x) for x in made.products]
        assert value == sorted(value, reverse=True)
        pairs = [(i, j) for i in range(made.count) for j in range(made.count)]
        assert sorted(made.products) == [pair for pair in pairs if sum(pair) < made.count]


@pytest.mark.parametrize("extent", [4, 24, 64, 160, 384])
def test_what_is_not_searched_would_not_be_first(extent: int) -> None:
    """Small products run by multiply-adds; where a bound says so, planes are left out of the search."""
    left_out = []
    for m, n, k in ((extent, extent, 4), (extent, extent, extent), (extent, 8 * extent, 16)):
        plan = plan_of(Case("small", "mk,kn->mn", {"m": m, "n": n, "k": k}))
        every, few = candidates(plan, "sm_90a"), candidates(plan, "sm_90a", every=False)
        assert few[0] == every[0]
        assert set(few) <= set(every)
        left_out.append(len(few) < len(every))
    assert left_out[0]
