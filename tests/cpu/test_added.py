"""C through tensor maps: every element arrives where D's fragments read and write it; the search; good kernels."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from gett.codegen.stage_copies import store_pieces

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, C, D, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.cost_sm90 import Sm90Model
from gett.schedule.gather import gather_candidates
from gett.schedule.realize import realize
from gett.schedule.records import Schedule, WarpRoles
from gett.schedule.sm90 import sm90_candidates
from gett.tune.codec import decode, encode
from layouts.box import Box
from layouts.swizzle import swizzle_address
from layouts.tma import TmaMap
from tests.added import CASES, VECTORS, WAYS, added
from tests.alone import COUNTS
from tests.cases import DENSE, Case, Layout
from tests.clusters import clustered
from tests.cpu.added_walk import walked
from tests.cpu.test_d_box import coordinates
from tests.resident import few

FACTS = arch_facts("sm_90a")


@cache
def found() -> tuple[tuple[Case, GemmPlan, Schedule, WarpRoles], ...]:
    out = []
    for case, layout in CASES:
        plan = make_gemm_plan(case.contraction("float16", with_c=layout))
        for s in added(plan, FACTS):
            assert s.roles is not None
            out.append((case, plan, s, s.roles))
    return tuple(out)


def maps(roles: WarpRoles) -> tuple[TmaMap, TmaMap]:
    assert roles.c is not None
    assert roles.d is not None
    return roles.c, roles.d


def inside(plan: GemmPlan, box_m: Box, box_n: Box, m: int, n: int) -> list[int]:
    """Coordinate inside the tile of row `m` and column `n`, batches first."""
    return [0] * len(plan.l) + coordinates(box_m, m) + coordinates(box_n, n)


def put_step(text: str) -> int:
    """Groups of eight columns between neighbours in D."""
    match = re.search(r"kR2SStepN = (\d+)", text)
    assert match
    return int(match[1])


def test_every_case_brings_c_by_tensor_map() -> None:
    assert {case.name for case, *_ in found()} == {case.name for case, _ in CASES}
    assert {r.stage.put for *_, r in found()} == WAYS
    assert {r.ping_pong for *_, r in found()} == {True, False}
    assert {r.resident for *_, r in found()} == {"", "a", "b"}
    assert {r.parts for *_, r in found()} >= {1, 2, 3}
    assert {r.line == "each" for *_, r in found()} == {True, False}
    assert {r.stage.span for *_, r in found()} == {16, 32, 64, 128}
    assert any(not s.box_m.divides(i) for _, _, s, _ in found() for i in range(len(s.box_m.dims)))
    ranks = {maps(r)[0].rank - maps(r)[1].rank for *_, r in found()}
    assert ranks >= {0, 1}, "modes that D has in one dimension and C in two"
    assert any(r.stage.row > maps(r)[0].box[0] for *_, r in found()), "rows of D that are several runs of C"
    assert any(r.stage.put == "" and maps(r)[0].rank != maps(r)[1].rank for *_, r in found())


def test_c_lies_where_d_is_staged() -> None:
    rng = random.Random(4)
    for case, plan, schedule, roles in found():
        c, d = maps(roles)
        real = realize(plan, schedule)
        assert c.slab_bytes * c.slabs == d.slab_bytes * d.slabs == 2 * roles.stage.elements
        m, n = schedule.box_m, schedule.box_n
        for _ in range(200):
            local = inside(real, m, n, rng.randrange(m.size), rng.randrange(n.size))
            assert c.smem_offset(local) == d.smem_offset(local), (case.name, local)


def test_copies_bring_every_element_of_c_once() -> None:
    """Tiles anywhere, boxes that hang over the edge: what a copy reads for an element of D is C's at its coordinate."""
    rng = random.Random(9)
    edges = 0
    for case, plan, schedule, roles in found():
        made, _ = maps(roles)
        real = realize(plan, schedule)
        m, n = schedule.box_m, schedule.box_n
        box, pieces = store_pieces(made)
        assert sum(math.prod(box) for _ in pieces) * 2 == made.transaction_bytes * made.slabs
        text = render_kernel(plan, schedule).source.text
        assert f"kTransactionBytesC = {math.prod(box) * 2 * len(pieces)};" in text
        for _ in range(60):
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
            assert sum(x * s for x, s in zip(at, made.strides, strict=True)) == wanted, case.name
            places = []
            for start, lead in pieces:
                within = [s - f for s, f in zip(step, lead, strict=True)]
                if all(0 <= x < b for x, b in zip(within, box, strict=True)):
                    line = 0
                    for x, b in zip(reversed(within[1:]), reversed(box[1:]), strict=True):
                        line = line * b + x
                    places.append(start + swizzle_address(made.span, line * made.pitch + 2 * within[0]))
            assert places == [made.smem_offset(local)]
    assert edges > 20


def test_fragments_read_c_where_it_lies(tmp_path: Path) -> None:
    """The kernel's own walk and coordinates, run on the host: each element of C meets its accumulator, and no other."""
    ran = set()
    for case, plan, schedule, roles in found():
        way = (roles.stage.put, roles.stage.chunk < 64, roles.parts > 1, maps(roles)[0].rank != maps(roles)[1].rank)
        step = put_step(render_kernel(plan, schedule).source.text)
        if not roles.stage.put or (*way, step) in ran:  # single elements lie where the boxes say: see above
            continue
        ran.add((*way, step))
        made, stored = maps(roles)
        real = realize(plan, schedule)
        m, n = schedule.box_m, schedule.box_n
        jobs = [(0, 0, 0), (m.tiles - 1, n.tiles - 1, real.extent_l - 1), (m.tiles // 2, n.tiles // 2, 0)]
        tiles, places = walked(tmp_path, render_kernel(plan, schedule), jobs)
        for row, column, byte in places:
            assert byte == made.smem_offset(inside(real, m, n, row, column)), (case.name, row, column)
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
                assert issued == wanted, case.name
    assert {way[0] for way in ran} == WAYS - {""}
    assert {way[2:4] for way in ran} >= {(False, False), (False, True), (True, False)}
    assert {way[4] for way in ran if way[0] == "columns"} > {1}


def test_kernels_prefetch_the_map_and_take_it() -> None:
    _, plan, schedule, roles = found()[0]
    kernel = render_kernel(plan, schedule)
    assert "gett::prefetch_tensormap(&p.map_c);" in kernel.source.text
    assert "kSourceC = gett::kSourceTma;" in kernel.source.text
    specs = {role: spec for role, _, spec in kernel.launches[0].maps}
    c, _ = maps(roles)
    assert list(specs) == ["a", "b", "d", "c"]
    assert specs["c"].extents == c.extents
    assert specs["c"].strides == c.strides[1:]
    assert specs["c"].box == store_pieces(c)[0]
    assert specs["c"].data_type == specs["d"].data_type


def test_staging_takes_what_it_does_without_c() -> None:
    """The tile is staged in D's type, no offsets lie beside it, and C has no room of its own."""
    twins = 0
    for case in (case for case, layout in CASES if layout == DENSE):
        with_c, without = (
            {
                replace(s, roles=replace(s.roles, c=None), smem_bytes=0, num_stages=0): s
                for s in sm90_candidates(make_gemm_plan(case.contraction("float16", with_c=c)), few(FACTS), 60)
                if s.roles is not None and (c is None or s.roles.c is not None)
            }
            for c in (DENSE, None)
        )
        for key in with_c.keys() & without.keys():
            twins += 1
            assert with_c[key].smem_bytes == without[key].smem_bytes
            assert with_c[key].num_stages == without[key].num_stages
    assert twins > 20


def test_vectors_stay_where_no_map_can_bring_c() -> None:
    for case, layout in VECTORS:
        plan = make_gemm_plan(case.contraction("float16", with_c=layout))
        schedules = sm90_candidates(plan, FACTS)
        assert schedules
        for s in schedules:
            assert s.roles is not None
            assert s.roles.c is None
            assert s.roles.d is None
            assert "kSourceC = gett::kSourceVector;" in render_kernel(plan, s).source.text
    narrow = CASES[-1][0].contraction("float16", with_c=DENSE)
    assert narrow.c is not None
    c = replace(narrow.c, dtype="float32", strides=tuple(2 * x for x in narrow.c.strides))
    wide = sm90_candidates(make_gemm_plan(replace(narrow, c=c)), FACTS)
    assert all(s.roles is not None and s.roles.c is None for s in wide)


def test_both_ways_are_candidates_and_the_map_comes_first() -> None:
    ways: Counter[bool] = Counter()
    for case, layout in CASES:
        plan = make_gemm_plan(case.contraction("float16", with_c=layout))
        schedules = sm90_candidates(plan, FACTS)
        ways.update(s.roles is not None and s.roles.c is not None for s in schedules)
    assert min(ways[True], ways[False]) > 5
    large = make_gemm_plan(
        Case("x", "mk,kn->mn", {"m": 4096, "n": 4096, "k": 1024}).contraction("bfloat16", with_c=DENSE)
    )
    schedules = sm90_candidates(large, FACTS)
    assert schedules[0].roles is not None
    assert schedules[0].roles.c is not None
    assert {s.roles.c is None for s in schedules if s.roles is not None} == {True, False}


def test_c_waits_for_no_stage_and_no_slice() -> None:
    """Blocks that stage D where the stages were, and slices of K, add C as ever; so do those that gather."""
    for count in COUNTS:
        for name, extents in (
            ("mk,kn->mn", {"m": 248, "k": 1000, "n": 376}),
            ("mk,kn->mn", {"m": 64, "k": 8192, "n": 64}),
        ):
            plan = make_gemm_plan(Case("x", name, extents).contraction("float16", with_c=DENSE))
            for s in sm90_candidates(plan, few(FACTS, count), 24):
                assert s.roles is not None
                assert s.roles.c is None or (not s.roles.alone and s.split_k == 1 and s.roles.d is not None)
    odd = make_gemm_plan(Case("x", "ik,kj->ij", {"i": 136, "k": 101, "j": 72}).contraction("float16", with_c=DENSE))
    gathers = gather_candidates(odd, FACTS)
    assert gathers
    assert all(s.roles is not None and s.roles.c is None and s.roles.d is None for s in gathers)


def test_the_model_counts_c() -> None:
    case = CASES[0][0]
    with_c, without = (Sm90Model(make_gemm_plan(case.contraction("float16", with_c=c)), FACTS) for c in (DENSE, None))
    assert set(without.bytes) == {A, B, D}
    assert with_c.bytes[C] == with_c.bytes[D]
    shared = Sm90Model(make_gemm_plan(case.contraction("float16", with_c=Layout(ones=(0,)))), FACTS)
    assert shared.bytes[C] == shared.bytes[D] // case.extents["s"]


def test_the_schedule_is_said_and_kept() -> None:
    _, plan, schedule, roles = found()[0]
    text = explain_gemm(plan, schedule)
    assert "load C    by tensor map to where D is staged, box" in text
    assert decode(Schedule, encode(schedule)) == schedule
    assert replace(schedule, roles=replace(roles, c=None)) != schedule


def test_kernels_compile_without_spills(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compile_kernel` refuses spills and serialized products; the staged tile must fit what the schedule reserves."""
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = {}
    for case, plan, schedule, roles in found():
        key = (roles.stage.put, roles.ping_pong, roles.m_blocks, roles.parts > 1, case.name.startswith("added"))
        jobs.setdefault(key, render_kernel(plan, schedule).source)
    jobs |= {i: render_kernel(p, clustered(s, (2, 1))).source for i, (_, p, s, _) in enumerate(found()[:2])}
    large = Case("x", "mk,kn->mn", {"m": 4096, "n": 4096, "k": 1024})
    for dtype in ("float16", "bfloat16"):
        plan = make_gemm_plan(large.contraction(dtype, with_c=DENSE))
        jobs |= {(dtype, i): render_kernel(plan, s).source for i, s in enumerate(sm90_candidates(plan, FACTS)[:3])}
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda source: compile_kernel(source, "sm_90a"), jobs.values()):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())
