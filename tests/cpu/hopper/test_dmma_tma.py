"""float64 and complex128 by tensor map: which schedules are found, what rules say of them, and that they compile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.contraction import Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.legality import can_implement
from gett.schedule.mainloops.dmma_tma import doubles, k_of_doubles
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.packed import scheduled_plan
from gett.schedule.rules.rule import Lowered, name_of
from gett.schedule.search import select
from gett.schedule.search.hopper.fragments import DmmaTmaSearch
from gett.schedule.search.hopper.search import both_roles
from gett.schedule.search.select import candidates
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.hopper_needs import leads
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from tests.by_hand import clustered
from tests.cases import Case, tccg
from tests.cpu.choices import bounded_choices
from tests.sampling import few_or_every, slow_but
from tests.specs import SpecsOf, covering, specs

FACTS = arch_facts("sm_90a")


def plan_of(case: Case, dtype: str = "float64") -> GemmPlan:
    return make_gemm_plan(case.contraction(dtype))


def square(subscripts: str) -> Case:
    return Case("square", subscripts, dict.fromkeys("mnk", 2000))


def of_kind(plan: GemmPlan, arch: str = "sm_90a") -> list[Schedule]:
    return [s for s in candidates(plan, arch) if isinstance(s.mainloop, DmmaTma)]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("subscripts", ["mk,nk->mn", "mk,kn->mn", "km,nk->mn", "km,kn->mn"])
def test_the_tensor_cores_limit_in_all_majors(subscripts: str, dtype: str) -> None:
    plan = plan_of(square(subscripts), dtype)
    found = of_kind(plan)
    assert found
    assert all(can_implement(s, plan, FACTS) is None for s in found)
    assert found[0].forecast.bound == "tensor cores"
    assert plan.flops / found[0].forecast.us * 1e-6 > 0.68 * FACTS.tensor_tflops["float64"]


@pytest.mark.parametrize("name", ["abcijk-ijma-mkbc", "ij-ikl-ljk", "ij-kil-lkj", "abj-bka-kj"])
def test_bounds_are_not_above_forecasts(name: str) -> None:
    plan = plan_of(next(c for c in tccg() if c.name == name))
    for search in both_roles(DmmaTmaSearch, plan, FACTS):
        for least, choice in bounded_choices(search):
            paced = search.paced_us(choice, search.estimate(choice))
            assert max(least, search.least_us(choice)) <= paced, choice


@pytest.mark.parametrize("name", ["abcijk-ijma-mkbc", "abcijk-ijmb-mkac", "abcijk-ijmc-mkab", "abcijk-ikmb-mjac"])
def test_large_complex_results_leave_by_tensor_map(name: str) -> None:
    """The best boxes of M and N alone have more dimensions than a map."""
    found = of_kind(plan_of(next(c for c in tccg() if c.name == name), "complex128"))
    assert isinstance(found[0].epilogue.store, TmaStore)


def test_k_of_two_modes_may_be_padded() -> None:
    """No k-tile divides 127, so that each row of k-tiles has one k of padding."""
    plan = plan_of(Case("odd k", "mak,kan->mn", {"m": 256, "n": 24, "k": 127, "a": 1024}), "complex128")
    found = of_kind(plan)
    assert found
    assert all(can_implement(s, plan, FACTS) is None for s in found)
    assert found[0] == candidates(plan, "sm_90a")[0]


def test_boxes_of_two_modes_are_what_one_copy_brings() -> None:
    """Of 31 rows a copy brings eight beside a second mode; boxes of 16 and more would leave no tensor map."""
    plan = plan_of(Case("odd m", "abcd,ecb->aed", {"a": 13, "b": 4096, "c": 16, "d": 31, "e": 61}), "complex128")
    best = of_kind(plan)[0]
    assert can_implement(best, plan, FACTS) is None
    lowered = scheduled_plan(plan, best)
    made = best.tiling.m.tiles * best.tiling.shape[0] * best.tiling.n.tiles * best.tiling.shape[1]
    assert made <= 1.5 * lowered.extent_m * lowered.extent_n


def test_real_operands_beside_complex_ones_are_refused() -> None:
    plan = plan_of(square("mk,kn->mn"), "complex128")
    schedule, c = of_kind(plan)[0], plan.contraction
    real = Operand(c.b.modes, tuple(x // 2 for x in c.b.strides), "float64", c.b.alignment)
    mixed = make_gemm_plan(replace(c, b=real))
    assert not of_kind(mixed)
    refusal = can_implement(schedule, mixed, FACTS)
    assert refusal is not None
    assert name_of(refusal.rule) == "data types"


def test_other_types_and_architectures_are_as_they_were() -> None:
    for dtype, arch in (("float64", "sm_80"), ("complex128", "sm_80"), ("float32", "sm_90a"), ("float16", "sm_90a")):
        assert not of_kind(plan_of(square("mk,kn->mn"), dtype), arch)
    schedule = of_kind(plan_of(square("mk,kn->mn")))[0]
    for dtype in ("float16", "float32", "complex64"):
        refusal = can_implement(schedule, plan_of(square("mk,kn->mn"), dtype), FACTS)
        assert refusal is not None
        assert name_of(refusal.rule) == "data types"


def remade(schedule: Schedule, plan: GemmPlan, **changes: Any) -> Schedule:
    loop = replace(schedule.hopper, **changes)
    made = replace(schedule, mainloop=loop)
    return replace(made, smem=smem_plan(made, plan))


def test_rules() -> None:
    plan = plan_of(square("mk,kn->mn"))
    schedule = next(s for s in of_kind(plan) if s.hopper.mma_m == 1)
    for changes, reason in (
        ({"stages": 1}, "stages: 1, a pipeline has 2 to 8"),
        ({"mma_m": 2}, "block: block_m = 128, but 2 warpgroups of 2 MMA atoms"),
        ({"a": replace(schedule.hopper.b)}, "mapped modes: "),
    ):
        refusal = can_implement(remade(schedule, plan, **changes), plan, FACTS)
        assert refusal is not None
        assert refusal.reason.startswith(reason)


def test_tiles_are_staged_in_the_stages_of_single_blocks() -> None:
    """Those of other blocks of a cluster would fill the stages too early."""
    for spec in specs("dmma_reuse"):
        assert spec.schedule.tiling.tiles(spec.plan.extent_l) > spec.schedule.hopper.warpgroups
        assert can_implement(spec.schedule, spec.plan, FACTS) is None
    spec = next(x for x in specs("dmma_reuse") if x.schedule.tiling.m.tiles > 2)
    refusal = can_implement(clustered(spec.schedule, (2, 1)), spec.plan, FACTS)
    assert refusal is not None
    assert name_of(refusal.rule) == "reuse"


def whole_tiles(plan: GemmPlan, monkeypatch: pytest.MonkeyPatch) -> list[Schedule]:
    """The schedules without stream-K, however many with it the model puts before them."""
    monkeypatch.setattr(select, "DMMA", 48)
    return [s for s in of_kind(plan) if not s.scheduler.stream_k]


def test_wide_tiles_fill_whole_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2000 x 2000 results: 320 tiles of 128 x 104, the widest below 128 of rows of 20, would be three waves."""
    ring = Case("ring", "mbej,imae->ijab", {"m": 20, "b": 100, "e": 100, "j": 20, "i": 20, "a": 100})
    plan = plan_of(ring)
    first = whole_tiles(plan, monkeypatch)[0]
    assert first.tiling.shape[1] > 128
    assert 1.8 * FACTS.sm_count < first.tiling.tiles(plan.extent_l) <= 2 * FACTS.sm_count


def test_tiles_are_staged_in_the_stages_where_sums_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a wide tile there is room for two stages. Short sums do not hide the wait between tiles."""

    def staged_in_stages(case: Case) -> list[bool]:
        stores = [s.epilogue.store for s in whole_tiles(plan_of(case), monkeypatch)]
        return [isinstance(x, TmaStore) and x.reuse_mainloop_smem for x in stores]

    ring = Case("ring", "mbej,imae->ijab", {"m": 20, "b": 100, "e": 100, "j": 20, "i": 20, "a": 100})
    assert staged_in_stages(ring)[0]
    assert not any(staged_in_stages(next(c for c in tccg() if c.name == "abjc-cbka-kj")))


def test_rows_along_two_modes_have_4_or_8_k_of_each() -> None:
    plan = plan_of(Case("two leads", "lmk,nkl->mn", {"m": 400, "n": 300, "k": 96, "l": 80}))
    found = {leads(s.hopper, s.tiling.k): s for s in of_kind(plan) if isinstance(s.mainloop, DmmaTma)}
    assert found
    for (lead_a, lead_b), s in found.items():
        assert can_implement(s, plan, FACTS) is None
        assert not list(k_of_doubles(Lowered(s, plan, FACTS)))
        cut = s.tiling.k.cut
        box = Box.of_cuts(s.tiling.k.extents, {m: 4 * c for m, c in enumerate(cut)})
        (reason,) = k_of_doubles(Lowered(replace(s, tiling=replace(s.tiling, k=box)), plan, FACTS))
        assert reason.startswith(f"k-tiles of {16 * lead_a * lead_b} with {(4 * lead_a, 4 * lead_b)} k of A's and B's")


@few_or_every
def test_sums_and_fragments_fit_a_thread(specs: SpecsOf) -> None:
    """Those of every candidate; of four times as many blocks of rows they do not."""
    for spec in covering([*specs("dmma"), *specs("dmma_complex")], pairs=False):
        assert not list(doubles(Lowered(spec.schedule, spec.plan, FACTS)))
    tall = replace(spec.schedule.mainloop, mma_m=16)
    (reason,) = doubles(Lowered(replace(spec.schedule, mainloop=tall), spec.plan, FACTS))
    assert "registers for sums and fragments" in reason


@pytest.mark.parametrize(
    ("dtype", "every"),
    slow_but([(x, every) for every in (False, True) for x in ("float64", "complex128")], [("float64", False)]),
)
def test_candidates_compile_without_spills(dtype: str, every: bool) -> None:
    """A kernel of every shape that is tried for some cases, or the first; one that spills raises an error."""
    for name in ("ij-ik-kj", "ijkl-imjn-nlmk", "abjc-cbka-kj")[: None if every else 1]:
        plan = plan_of(next(c for c in tccg() if c.name == name), dtype)
        for s in list({x.tiling.shape: x for x in of_kind(plan)}.values())[: None if every else 1]:
            assert compile_kernel(render_kernel(plan, s).source, "sm_90a")
