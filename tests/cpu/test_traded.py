"""Tiles of D whose halves two blocks trade: every element goes where it belongs, once; the kernels compile."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.realize import realize
from gett.schedule.records import Schedule, StageSteps
from gett.schedule.select import candidates
from gett.schedule.trade import trade
from gett.tune.codec import decode, encode
from layouts.box import Box, TileDim
from layouts.tma import TmaMap
from tests.cases import Case
from tests.traded import CASES, traded

FACTS = arch_facts("sm_90a")
VECTOR = 16  # bytes that are traded at once
Coordinates = tuple[int, ...]


def planned(case: Case) -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction("float16"))
    return plan, traded(plan, FACTS)


def staged(s: Schedule, tile_m: int, tile_n: int) -> dict[int, Coordinates]:
    """What a block stages: by byte, the coordinates along M and N, also those past the edge."""
    assert s.roles is not None
    out: dict[int, Coordinates] = {}
    sides = ((s.box_m, s.roles.stage.m, tile_m), (s.box_n, s.roles.stage.n, tile_n))
    for local in itertools.product(*(range(d.box) for box, _, _ in sides for d in box.dims)):
        at, byte, found = 0, 0, []
        for box, steps, tile in sides:
            here = [0] * len(box.extents)
            for d, start, step in zip(box.dims, box.origin(tile), steps, strict=True):
                byte += local[at] * step * 2
                here[d.modes[0]] = start + local[at]
                at += 1
            found += here
        out[byte] = tuple(found)
    return out


def image(d: TmaMap) -> dict[int, Coordinates]:
    """What a copy takes: by byte, the coordinates inside its box."""
    return {d.smem_offset(x): x for x in itertools.product(*(range(b) for b in d.tile))}


def origins(box: Box, tile: int) -> list[int]:
    """Coordinate of each mode where a tile begins."""
    out = [0] * len(box.extents)
    for d, start in zip(box.dims, box.origin(tile), strict=True):
        out[d.modes[0]] = start
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_block_stores_its_half_of_both_tiles(case: Case) -> None:
    plan, found = planned(case)
    tried = [s for s in found if s.block[2] <= 64]
    assert tried
    for s in tried:
        roles = s.roles
        assert roles is not None
        assert roles.d is not None
        assert roles.trade is not None
        way, l_modes = roles.trade, len(realize(plan, s).l)
        along_n = roles.cluster == (1, 2)
        group = s.box_n if along_n else s.box_m
        for pair in {0, group.tiles // 2 - 1}:
            first = (pair // way.between * 2) * way.between + pair % way.between  # Cluster::place
            numbers = [first, first + way.between]
            tiles = [(1, t) if along_n else (t, 1) for t in numbers]
            brought = [staged(s, *t) for t in tiles]
            half = len(brought[0]) * 2 // VECTOR // 2
            taken = image(roles.d)
            stored = []
            for rank in (0, 1):
                at = [0] * l_modes + origins(s.box_m, tiles[rank][0]) + origins(s.box_n, tiles[rank][1])
                at[way.row[0]] -= rank * way.row[1]
                at[way.half[0]] += rank * way.half[1]
                for source, tile in enumerate(brought):
                    for vector, byte in itertools.product(range(half), range(0, VECTOR, 2)):
                        element = tile[(rank * half + vector) * VECTOR + byte]
                        local = taken[(2 * vector + source) * VECTOR + byte]
                        place = tuple(x + y for x, y in zip(at, local, strict=True))
                        assert place[l_modes:] == element
                        stored.append(element)
            assert len(stored) == len(set(stored)) == 4 * half * VECTOR // 2


def test_rows_are_twice_as_long_and_chosen() -> None:
    seed = Case("seed", "adb,cd->cba", {"a": 64, "b": 32, "c": 2048, "d": 2048})
    plan = make_gemm_plan(seed.contraction("float16"))
    best = candidates(plan, "sm_90a")[0]
    assert best.roles is not None
    assert best.roles.trade is not None
    assert best.roles.d is not None
    assert best.roles.d.box[0] * 2 == 32
    assert best.roles.stage.row * 2 == VECTOR
    assert "trade halves" in explain_gemm(plan, best)
    assert decode(Schedule, encode(best)) == best


def test_no_trade() -> None:
    """Rows that are long enough, or that no vector fills; an odd number of tiles; a single dimension."""
    m, n = Box((512,), (TileDim((0,), 256),)), Box((32, 64), (TileDim((0,), 16), TileDim((1,), 8)))
    stage = StageSteps((128,), (8, 1), 256 * 128, 1, row=8, order=(("n", 1), ("n", 0), ("m", 0)))
    assert trade(m, n, stage, 2, 0) is not None
    for other in (
        replace(stage, row=16),
        replace(stage, row=4),
        replace(stage, span=32),
        replace(stage, order=(("n", 1),)),
    ):
        assert trade(m, n, other, 2, 0) is None
    odd = Box((32, 24), n.dims)
    assert trade(m, odd, stage, 2, 0) is None
    for case in CASES:
        plan, found = planned(case)
        for s in found:
            assert s.roles is not None
            assert s.roles.alone
            assert math.prod(s.roles.cluster) == 2
            assert (s.box_n if s.roles.cluster == (1, 2) else s.box_m).tiles % 2 == 0
            assert plan.contraction.c is None


def test_kernels_compile(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = []
    for case in CASES:
        plan, found = planned(case)
        assert found
        jobs += [render_kernel(plan, s).source for s in found[:1]]
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda source: compile_kernel(source, "sm_90a"), jobs):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())
