"""Shared memory of Hopper blocks: stages, the staged tile, what stays; tiles staged where the stages were."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gett.codegen.render import render_kernel
from gett.codegen.smem import smem_struct
from gett.errors import CompileError
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.search.smem import DEEP, DEEPEST, carve, carve_stationary
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.mainloop import Multistage, StreamMap, StreamSum
from gett.schedule.tile.wgmma_tile import cluster_tiles
from tests.specs import FAMILIES, few, few_kernels, reuses_smem, specs, ss_schedules

FACTS = arch_facts("sm_90a")
CAPACITY = FACTS.smem_per_block
sizes = st.integers(1, 220).map(lambda x: x * 1024)


@given(stage=sizes, staging=sizes | st.just(0), k_tiles=st.integers(1, 40), exchange=st.booleans())
def test_stages_fit_beside_the_staged_tile_or_under_it(stage: int, staging: int, k_tiles: int, exchange: bool) -> None:
    beside, instead = (carve(CAPACITY, stage, staging, k_tiles, one, exchange) for one in (False, True))
    store = 2 * staging if exchange else staging
    if beside is not None:
        assert not beside.reuse
        assert 2 <= beside.stages <= DEEP
        assert beside.plan.staging == beside.stages * stage
        assert beside.plan.barriers == beside.plan.staging + store
        assert 1024 + beside.plan.barriers + 16 * beside.stages <= beside.plan.size <= CAPACITY
    if instead is not None and instead.reuse:
        assert 2 <= instead.stages <= DEEP
        assert beside is None or instead.stages > beside.stages
        assert instead.plan.staging == instead.plan.stages == 0
        assert instead.plan.barriers == max(instead.stages * stage, store)
        assert 1024 + instead.plan.barriers + 16 * instead.stages <= instead.plan.size <= CAPACITY
        assert k_tiles > (beside.stages if beside is not None else 0)
    else:
        assert instead == beside


@given(stage=sizes, staging=sizes | st.just(0), kept=sizes)
def test_what_stays_costs_no_stage(stage: int, staging: int, kept: int) -> None:
    found = carve_stationary(CAPACITY, stage, staging, kept, stage + kept)
    if found is not None:
        both = (CAPACITY - 1024 - staging - 16 * DEEP) // (stage + kept)
        assert min(DEEP, both) <= found.stages <= DEEPEST
        at = found.plan
        assert (at.stationary, at.staging) == (found.stages * stage, found.stages * stage + kept)
        assert 1024 + at.staging + staging + 16 * found.stages <= at.size <= CAPACITY


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
                assert not s.wgmma.ping_pong
                assert s.tiling.k.tiles > 2
                assert s.smem.staging == s.smem.stages == 0
    assert seen > 20
    assert {spec.case for spec in specs("reuse")} == {case for case, _ in family.cases}


def test_smem_struct_is_the_plan() -> None:
    """The kernel computes no offset of its own: what is printed is what the schedule says."""
    for spec in few_kernels():
        s = spec.schedule
        if isinstance(s.mainloop, (StreamMap, StreamSum)):
            continue
        found = dict(re.findall(r"(k\w+) = (\d+)", smem_struct(s)))
        parts = {"kKTable": s.smem.k_table, "kOffsets": s.smem.offsets}
        if not isinstance(s.mainloop, Multistage):
            parts = {"kStationary": s.smem.stationary, "kStaging": s.smem.staging, "kBarriers": s.smem.barriers}
        expected = {"kSize": s.smem.size, "kStages": s.smem.stages, **parts}
        assert {name: int(found[name]) for name in expected} == expected
        assert smem_struct(s) in render_kernel(spec.plan, s).source.text


@pytest.mark.parametrize("kind", ["mma.sync", "wgmma ss", "wgmma rs"])
def test_a_plan_whose_parts_overlap_does_not_compile(kind: str) -> None:
    spec = next(x for x in few_kernels() if x.schedule.kind == kind and x.schedule.split_k == 1)
    source = render_kernel(spec.plan, spec.schedule).source
    name = "kOffsets" if kind == "mma.sync" else "kBarriers"
    text = re.sub(rf"{name} = (\d+)", lambda x: f"{name} = {int(x[1]) - 16}", source.text)
    with pytest.raises(CompileError, match="static assertion"):
        compile_kernel(replace(source, text=text), spec.schedule.arch)
