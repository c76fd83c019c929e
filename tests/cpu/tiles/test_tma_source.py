"""C through tensor maps: every element arrives where D's fragments read and write it; when C comes so."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gett.codegen.render import render_kernel
from gett.codegen.tma import store_pieces
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, C, D, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.cost.hopper import HopperCost
from gett.schedule.cost.hopper_units import SS
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import TmaSource, TmaStore
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from layouts.swizzle import swizzle_address
from layouts.tma import TmaMap
from tests.cases import DENSE, Case, Layout
from tests.cpu.added_walk import walked
from tests.cpu.smem_places import coordinates
from tests.spec_cases import TMA_SOURCE, VECTOR_SOURCE
from tests.specs import Spec, few, gather_schedules, reuses_smem, specs, ss_schedules

FACTS = arch_facts("sm_90a")
KINDS = {"scalar", "stsm", "stsm_t", "vec_n", "vec_m"}


@cache
def found() -> tuple[Spec, ...]:
    """A kernel of every combination of parts of every case and layout of C."""
    return specs("tma_source")


def store_of(s: Schedule) -> TmaStore:
    store = s.epilogue.store
    assert isinstance(store, TmaStore)
    return store


def maps(s: Schedule) -> tuple[TmaMap, TmaMap]:
    """C's and D's."""
    source = s.epilogue.source
    assert isinstance(source, TmaSource)
    return source.map, store_of(s).map


def by_map(s: Schedule) -> bool:
    return isinstance(s.epilogue.source, TmaSource)


def inside(plan: GemmPlan, box_m: Box, box_n: Box, m: int, n: int) -> list[int]:
    """Coordinate inside the tile of row `m` and column `n`, batches first."""
    return [0] * len(plan.l) + coordinates(box_m, m) + coordinates(box_n, n)


def r2s_step(text: str) -> int:
    """Groups of eight columns between neighbours in D."""
    match = re.search(r"kR2SStepN = (\d+)", text)
    assert match
    return int(match[1])


def test_the_catalogue_has_every_way() -> None:
    every = [spec.schedule for spec in found()]
    parts = frozenset().union(*(spec.parts for spec in found()))
    assert {spec.case.name for spec in found()} == {case.name for case, _ in TMA_SOURCE}
    assert {store_of(s).stage.copy.kind for s in every} == KINDS
    assert {store_of(s).stage.swizzle_bytes for s in every} == {16, 32, 64, 128}
    assert {s.tiling.mma_tiles for s in every} >= {1, 2, 3}
    assert parts >= {"ping-pong", "cooperative", "a: stationary", "b: stationary", "persistent"}
    assert any("each panel" in x for x in parts)
    assert any(not s.tiling.m.divides(i) for s in every for i in range(len(s.tiling.m.dims)))
    ranks = {maps(s)[0].rank - maps(s)[1].rank for s in every}
    assert ranks >= {0, 1}, "modes that D has in one dimension and C in two"
    assert any(store_of(s).stage.row > maps(s)[0].box[0] for s in every), "rows of D that are several runs of C"
    scalar = [maps(s) for s in every if store_of(s).stage.copy.kind == "scalar"]
    assert any(c.rank != d.rank for c, d in scalar)


def test_c_lies_where_d_is_staged() -> None:
    rng = random.Random(4)
    for spec in found():
        c, d = maps(spec.schedule)
        real = lower_plan(spec.plan, spec.schedule.tiling)
        assert c.slab_bytes * c.slabs == d.slab_bytes * d.slabs == 2 * store_of(spec.schedule).stage.elements
        m, n = spec.schedule.tiling.m, spec.schedule.tiling.n
        for _ in range(100):
            local = inside(real, m, n, rng.randrange(m.size), rng.randrange(n.size))
            assert c.smem_offset(local) == d.smem_offset(local), (spec, local)


def test_copies_bring_every_element_of_c_once() -> None:
    """Tiles anywhere, boxes that hang over the edge: what a copy reads for an element of D is C's at its coordinate."""
    rng = random.Random(9)
    edges = 0
    for spec in found():
        made, _ = maps(spec.schedule)
        real = lower_plan(spec.plan, spec.schedule.tiling)
        m, n = spec.schedule.tiling.m, spec.schedule.tiling.n
        box, pieces = store_pieces(made)
        assert sum(math.prod(box) for _ in pieces) * 2 == made.transaction_bytes * made.slabs
        text = render_kernel(spec.plan, spec.schedule).source.text
        assert f"kTransactionBytesC = {math.prod(box) * 2 * len(pieces)};" in text
        for _ in range(30):
            l = [rng.randrange(s.extent) for s in real.l]
            tile_m, tile_n = rng.choice((0, m.tiles - 1)), rng.choice((0, n.tiles - 1))
            row, column = rng.randrange(m.size), rng.randrange(n.size)
            at_m, at_n = m.coordinates(tile_m, row), n.coordinates(tile_n, column)
            origin_m, origin_n = m.coordinates(tile_m, 0), n.coordinates(tile_n, 0)
            assert origin_m is not None
            assert origin_n is not None
            local = inside(real, m, n, row, column)
            first = made.coordinates([*l, *origin_m, *origin_n])
            step = [x - o for x, o in zip(made.coordinates(local), made.coordinates([0] * len(local)), strict=True)]
            at = tuple(f + s for f, s in zip(first, step, strict=True))
            if at_m is None or at_n is None:
                edges += 1
                continue
            modes = (*real.l, *real.m, *real.n)
            wanted = sum(x * s.strides[C] for x, s in zip((*l, *at_m, *at_n), modes, strict=True))
            assert all(0 <= x < e for x, e in zip(at, made.extents, strict=True))
            assert sum(x * s for x, s in zip(at, made.strides, strict=True)) == wanted, spec
            places = []
            for start, lead in pieces:
                within = [s - f for s, f in zip(step, lead, strict=True)]
                if all(0 <= x < b for x, b in zip(within, box, strict=True)):
                    line = 0
                    for x, b in zip(reversed(within[1:]), reversed(box[1:]), strict=True):
                        line = line * b + x
                    places.append(start + swizzle_address(made.swizzle_bytes, line * made.pitch + 2 * within[0]))
            assert places == [made.smem_offset(local)]
    assert edges > 20


@pytest.mark.slow
def test_fragments_read_c_where_it_lies(tmp_path: Path) -> None:
    """The kernel's own walk and coordinates, run on the host: each element of C meets its accumulator, and no other."""
    ran = set()
    for spec in found():
        schedule, stage = spec.schedule, store_of(spec.schedule).stage
        made, stored = maps(schedule)
        kind = (stage.copy.kind, stage.copy.rows < 64, schedule.tiling.mma_tiles > 1, made.rank != stored.rank)
        kernel = render_kernel(spec.plan, schedule)
        step = r2s_step(kernel.source.text)
        if kind[0] == "scalar" or (*kind, step) in ran:  # single elements lie where the boxes say: see above
            continue
        ran.add((*kind, step))
        real = lower_plan(spec.plan, schedule.tiling)
        m, n = schedule.tiling.m, schedule.tiling.n
        jobs = [(0, 0, 0), (m.tiles - 1, n.tiles - 1, real.extent_l - 1), (m.tiles // 2, n.tiles // 2, 0)]
        tiles, places = walked(tmp_path, kernel, jobs)
        for row, column, byte in places:
            assert byte == made.smem_offset(inside(real, m, n, row, column)), (spec, row, column)
        met = [byte for *_, byte in places]
        assert sorted(met) == sorted(set(met))
        assert len(met) == m.size * n.size, "every element is one thread's"
        for (tile_m, tile_n, l), loads, stores in tiles:
            at_l = []
            for s in real.l:
                at_l.append(l % s.extent)
                l //= s.extent
            at_m, at_n = m.coordinates(tile_m, 0), n.coordinates(tile_n, 0)
            assert at_m is not None
            assert at_n is not None
            for map_, issued in ((made, loads), (stored, stores)):
                origin = map_.coordinates([*at_l, *at_m, *at_n])
                wanted = [[start, *(o + f for o, f in zip(origin, first, strict=True))]
                          for start, first in store_pieces(map_)[1]]  # fmt: skip
                assert issued == wanted, spec
    assert {kind[0] for kind in ran} == KINDS - {"scalar"}
    assert {kind[2:4] for kind in ran} >= {(False, False), (False, True), (True, False)}
    assert {kind[4] for kind in ran if kind[0] == "vec_n"} > {1}


def test_kernels_prefetch_the_map_and_take_it() -> None:
    spec = found()[0]
    kernel = render_kernel(spec.plan, spec.schedule)
    assert "gett::prefetch_tensormap(&p.map_c);" in kernel.source.text
    assert "kSourceC = gett::kSourceTma;" in kernel.source.text
    made = {role: x for role, _, x in kernel.launches[0].maps}
    c, _ = maps(spec.schedule)
    assert list(made) == ["a", "b", "d", "c"]
    assert made["c"].extents == c.extents
    assert made["c"].strides == c.strides[1:]
    assert made["c"].box == store_pieces(c)[0]
    assert made["c"].data_type == made["d"].data_type


@pytest.mark.slow
def test_staging_takes_what_it_does_without_c() -> None:
    """The tile is staged in D's type, no offsets lie beside it, and C has no room of its own."""
    twins = 0
    for case in (case for case, layout in TMA_SOURCE if layout == DENSE):
        with_c, without = (
            {
                (s.tiling, s.epilogue.store, s.scheduler, replace(s.hopper, stages=0)): s
                for s in ss_schedules(make_gemm_plan(case.contraction("float16", with_c=c)), few(FACTS, 2), 60)
                if c is None or by_map(s)
            }
            for c in (DENSE, None)
        )
        for key in with_c.keys() & without.keys():
            twins += 1
            assert with_c[key].smem == without[key].smem
            assert with_c[key].hopper.stages == without[key].hopper.stages
    assert twins > 20


def test_vectors_stay_where_no_map_can_bring_c() -> None:
    for case, layout in VECTOR_SOURCE:
        plan = make_gemm_plan(case.contraction("float16", with_c=layout))
        schedules = ss_schedules(plan, FACTS)
        assert schedules
        for s in schedules:
            assert not by_map(s)
            assert not isinstance(s.epilogue.store, TmaStore)
            assert "kSourceC = gett::kSourceVector;" in render_kernel(plan, s).source.text
    narrow = TMA_SOURCE[-1][0].contraction("float16", with_c=DENSE)
    assert narrow.c is not None
    c = replace(narrow.c, dtype="float32", strides=tuple(2 * x for x in narrow.c.strides))
    wide = ss_schedules(make_gemm_plan(replace(narrow, c=c)), FACTS)
    assert wide
    assert not any(map(by_map, wide))


def test_the_map_brings_c_where_it_can() -> None:
    ways: Counter[bool] = Counter()
    for case, layout in TMA_SOURCE:
        plan = make_gemm_plan(case.contraction("float16", with_c=layout))
        ways.update(map(by_map, ss_schedules(plan, FACTS)))
    assert min(ways[True], ways[False]) > 5
    large = Case("x", "mk,kn->mn", {"m": 4096, "n": 4096, "k": 1024})
    schedules = ss_schedules(make_gemm_plan(large.contraction("bfloat16", with_c=DENSE)), FACTS)
    assert schedules
    assert all(map(by_map, schedules))


def test_c_waits_for_no_stage_and_no_slice() -> None:
    """Blocks that stage D where the stages were, and slices of K, add C from vectors; so do those that gather."""
    for count in (2, 3, 4, 6):
        for extents in ({"m": 248, "k": 1000, "n": 376}, {"m": 64, "k": 8192, "n": 64}):
            plan = make_gemm_plan(Case("x", "mk,kn->mn", extents).contraction("float16", with_c=DENSE))
            found = ss_schedules(plan, few(FACTS, count), 24)
            assert found
            for s in filter(by_map, found):
                assert isinstance(s.epilogue.store, TmaStore)
                assert not reuses_smem(s)
                assert s.split_k == 1
    odd = make_gemm_plan(Case("x", "ik,kj->ij", {"i": 136, "k": 101, "j": 72}).contraction("float16", with_c=DENSE))
    gathers = gather_schedules(odd, FACTS)
    assert gathers
    assert not any(by_map(s) or isinstance(s.epilogue.store, TmaStore) for s in gathers)


def test_the_model_counts_c() -> None:
    case = TMA_SOURCE[0][0]
    with_c, without = (
        HopperCost(make_gemm_plan(case.contraction("float16", with_c=c)), FACTS, SS) for c in (DENSE, None)
    )
    assert set(without.bytes) == {A, B, D}
    assert with_c.bytes[C] == with_c.bytes[D]
    shared = HopperCost(make_gemm_plan(case.contraction("float16", with_c=Layout(ones=(0,)))), FACTS, SS)
    assert shared.bytes[C] == shared.bytes[D] // case.extents["s"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_first_kernels_of_a_large_product_have_registers_enough(dtype: str) -> None:
    """`compile_kernel` refuses spills and serialized products."""
    large = Case("x", "mk,kn->mn", {"m": 4096, "n": 4096, "k": 1024})
    plan = make_gemm_plan(large.contraction(dtype, with_c=DENSE))
    for s in ss_schedules(plan, FACTS)[:3]:
        compile_kernel(render_kernel(plan, s).source, "sm_90a")
