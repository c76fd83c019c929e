"""Shared memory of Hopper blocks, and blocks of one tile, which is staged where the stages were."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.cluster import cluster_tiles
from gett.schedule.records import Schedule
from gett.schedule.room import DEEP, DEEPEST, divide, divide_kept
from gett.schedule.sm90 import sm90_candidates
from gett.tune.codec import decode, encode
from tests.alone import CASES, COUNTS, alone
from tests.resident import few

FACTS = arch_facts("sm_90a")
CAPACITY = FACTS.smem_per_block
sizes = st.integers(1, 220).map(lambda x: x * 1024)


@given(stage=sizes, store=sizes | st.just(0), k_tiles=st.integers(1, 40))
def test_a_block_has_room(stage: int, store: int, k_tiles: int) -> None:
    beside, instead = (divide(CAPACITY, stage, store, k_tiles, single) for single in (False, True))
    if beside is not None:
        assert not beside.alone
        assert 2 <= beside.stages <= DEEP
        assert 1024 + beside.stages * (stage + 16) + store <= beside.size <= CAPACITY
    if instead is not None and instead.alone:
        assert 2 <= instead.stages <= DEEP
        assert beside is None or instead.stages > beside.stages
        assert 1024 + max(instead.stages * stage, store) + 16 * instead.stages <= instead.size <= CAPACITY
        assert k_tiles > (beside.stages if beside is not None else 0)
    else:
        assert instead == beside


@given(stage=sizes, store=sizes | st.just(0), kept=sizes)
def test_what_stays_costs_no_stage(stage: int, store: int, kept: int) -> None:
    room = divide_kept(CAPACITY, stage, store, kept, stage + kept)
    if room is not None:
        both = (CAPACITY - 1024 - store - 16 * DEEP) // (stage + kept)
        assert min(DEEP, both) <= room.stages <= DEEPEST
        assert 1024 + room.stages * (stage + 16) + store + kept <= room.size <= CAPACITY


def test_one_tile_a_block_and_no_more() -> None:
    found = 0
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        for count in COUNTS:
            for s in sm90_candidates(plan, few(FACTS, count), 24):
                assert s.roles is not None
                if not s.roles.alone:
                    continue
                found += 1
                size = math.prod(s.roles.cluster)
                clusters = cluster_tiles(s.box_m.tiles, s.box_n.tiles, s.roles.cluster) * plan.extent_l
                assert clusters <= count // size
                assert render_kernel(plan, s).launches[0].grid[0] == clusters * size
                assert s.split_k == 1
                assert s.roles.d is not None
                assert not s.roles.ping_pong
                assert s.box_k.tiles > 2
    assert found > 20


def test_the_schedule_is_said_and_kept() -> None:
    plan = make_gemm_plan(CASES[0].contraction("float16"))
    schedule = alone(plan, FACTS)[0]
    assert "where the stages were" in explain_gemm(plan, schedule)
    assert decode(Schedule, encode(schedule)) == schedule
    assert schedule.roles is not None
    assert replace(schedule, roles=replace(schedule.roles, alone=False)) != schedule


def test_kernels_compile(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = []
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        found = alone(plan, FACTS)
        assert found
        jobs += [render_kernel(plan, s).source for s in found[:2]]
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda source: compile_kernel(source, "sm_90a"), jobs):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())
