"""Shared memory of Hopper blocks: stages, the staged tile, what stays; tiles staged where the stages were."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from gett.codegen.render import render_kernel
from gett.errors import CompileError
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.hopper_needs import MOST_STAGES, MOST_STAGES_OF_ONE
from gett.schedule.spec.mainloop import Multistage, StreamMap, StreamMatrix, StreamSum
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import cluster_tiles
from tests.cpu.schedule.hopper_schedules import with_store
from tests.sampling import few_or_every, slow_but
from tests.specs import FAMILIES, SpecsOf, few, few_kernels, first_kernels, reuses_smem, specs, ss_schedules

FACTS = arch_facts("sm_90a")
CAPACITY = FACTS.smem_per_block


def deepest(s: Schedule, plan: GemmPlan, most: int) -> int:
    """Stages that fit into shared memory, one where not even two do."""
    stages = range(most, 1, -1)
    made = (replace(s, mainloop=replace(s.hopper, stages=n)) for n in stages)
    return next((n for n, x in zip(stages, made, strict=True) if smem_plan(x, plan).size <= CAPACITY), 1)


@few_or_every
def test_stages_fit_beside_the_staged_tile_or_under_it(specs: SpecsOf) -> None:
    reusing = 0
    for spec in specs("reuse"):
        s, plan = spec.schedule, lower_plan(spec.plan, spec.schedule.tiling)
        store, stages = s.epilogue.store, s.hopper.stages
        assert stages == deepest(s, plan, MOST_STAGES)
        if isinstance(store, TmaStore) and store.reuse_mainloop_smem:
            reusing += 1
            beside = deepest(with_store(s, reuse_mainloop_smem=False), plan, MOST_STAGES)
            assert beside < min(stages, s.tiling.k.tiles)
            assert s.smem.barriers >= stages * s.smem.stage
        else:
            assert s.smem.staging == stages * s.smem.stage <= s.smem.barriers
        assert 1024 + s.smem.barriers + 16 * stages <= s.smem.size <= CAPACITY
    assert reusing


@pytest.mark.parametrize("family", ["stationary", "each_panel"])
@few_or_every
def test_what_stays_costs_no_stage(family: str, specs: SpecsOf) -> None:
    for spec in specs(family):
        s, plan = spec.schedule, lower_plan(spec.plan, spec.schedule.tiling)
        loads = {name: getattr(s.hopper, name).tma for name in "ab"}
        plain = replace(s, mainloop=replace(s.hopper, **loads))
        assert s.hopper.stages == deepest(s, plan, MOST_STAGES_OF_ONE) >= deepest(plain, plan, MOST_STAGES)
        assert s.smem.stages == 0 < s.smem.stationary == s.hopper.stages * s.smem.stage < s.smem.staging
        assert 1024 + s.smem.barriers + 16 * s.hopper.stages <= s.smem.size <= CAPACITY


@pytest.mark.slow
def test_a_tile_replaces_its_stages_where_a_block_makes_one_and_no_more() -> None:
    family = FAMILIES["reuse"]
    seen = 0
    for case, _ in family.cases:
        plan = make_gemm_plan(case.contraction("float16"))
        for count in family.sm_counts:
            for s in filter(reuses_smem, ss_schedules(plan, few(FACTS, count), 24)):
                seen += 1
                size = math.prod(s.cluster)
                clusters = cluster_tiles(s.tiling.m.tiles, s.tiling.n.tiles, s.cluster) * plan.extent_l
                assert clusters <= count // size
                assert render_kernel(plan, s).launches[0].grid[0] == clusters * size
                assert s.split_k == 1
                assert isinstance(s.epilogue.store, TmaStore)
                assert not s.hopper.ping_pong
                assert s.tiling.k.tiles > 2
                assert s.smem.staging == s.smem.stages == 0
    assert seen > 20
    assert {spec.case for spec in specs("reuse")} == {case for case, _ in family.cases}


@pytest.mark.parametrize("every", slow_but([False, True], [False]))
def test_smem_struct_is_the_plan(every: bool) -> None:
    """The kernel computes no offset of its own: what is printed is what the schedule says."""
    for spec in few_kernels() if every else first_kernels():
        s = spec.schedule
        if isinstance(s.mainloop, (StreamMap, StreamMatrix, StreamSum)):
            continue
        text = re.search(r"struct Smem \{.*?\};", render_kernel(spec.plan, s).source.text, re.DOTALL)
        assert text is not None
        found = dict(re.findall(r"(k\w+) = (\d+)", text[0]))
        parts = {"kKTable": s.smem.k_table, "kOffsets": s.smem.offsets}
        if not isinstance(s.mainloop, Multistage):
            parts = {"kStationary": s.smem.stationary, "kStaging": s.smem.staging, "kBarriers": s.smem.barriers}
        expected = {"kSize": s.smem.size, "kStages": s.smem.stages, **parts}
        assert {name: int(found[name]) for name in expected} == expected


@pytest.mark.parametrize("kind", ["mma.sync", "wgmma ss", "wgmma rs"])
def test_a_plan_whose_parts_overlap_does_not_compile(kind: str) -> None:
    spec = next(x for x in first_kernels() if x.schedule.kind == kind and x.schedule.split_k == 1)
    source = render_kernel(spec.plan, spec.schedule).source
    name = "kOffsets" if kind == "mma.sync" else "kBarriers"
    text = re.sub(rf"{name} = (\d+)", lambda x: f"{name} = {int(x[1]) - 16}", source.text)
    with pytest.raises(CompileError, match="static assertion"):
        compile_kernel(replace(source, text=text), spec.schedule.arch)
