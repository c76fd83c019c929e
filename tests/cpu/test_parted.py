"""Tiles of D that are made in parts: every part's rows are loaded, staged and stored once; kernels that compile."""

from __future__ import annotations

import math
import random
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from gett.codegen.render_sm90 import stage_place
from gett.codegen.stage_copies import copies

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, D, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.realize import realize
from gett.schedule.records import Schedule, WarpRoles
from gett.schedule.sm90 import sm90_candidates
from gett.tune.codec import decode, encode
from layouts.swizzle import swizzle_address
from tests.cases import DENSE, Case, Layout
from tests.clusters import clustered
from tests.cpu.test_d_box import coordinates, run
from tests.parted import CASES, parted
from tests.resident import few

FACTS = arch_facts("sm_90a")


@cache
def found() -> tuple[tuple[Case, GemmPlan, Schedule, WarpRoles], ...]:
    out = []
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        for s in parted(plan, FACTS):
            assert s.roles is not None
            out.append((case, plan, s, s.roles))
    return tuple(out)


def accumulator_rows(schedule: Schedule, roles: WarpRoles) -> list[list[int]]:
    """Rows of a part by block of 64 accumulator rows, as `FragmentRows` has them; -1 for padding."""
    size, chunk, blocks = schedule.box_m.size // roles.parts, roles.stage.chunk, roles.m_blocks
    assert roles.a is not None
    out = []
    for block in range(schedule.block[0] // 64):
        first, i = block // blocks * blocks, block % blocks
        rows = []
        for x in range(64):
            if roles.a.run:
                room = roles.a.map.span // 2
                row, within = block * 64 + x, (block * 64 + x) % room
                m = row // room * roles.a.run + within if within < roles.a.run else size
            else:
                m = (
                    (first * (64 // chunk) + i + blocks * (x // chunk)) * chunk + x % chunk
                    if chunk < 64
                    else 64 * block + x
                )
            rows.append(m if m < size else -1)
        out.append(rows)
    return out


def test_every_case_has_tiles_in_parts() -> None:
    assert {case.name for case, *_ in found()} == {case.name for case in CASES}
    assert {r.parts for *_, r in found()} >= {2, 3, 6}
    assert {r.resident for *_, r in found()} == {"", "b"}
    assert {r.m_blocks for *_, r in found()} == {4, 8}
    assert {(r.a.run > 0, r.a.map.span) for *_, r in found() if r.a} >= {(True, 128), (False, 128), (False, 64)}


def test_rows_of_d_are_long() -> None:
    for *_, roles in found():
        assert roles.d is not None
        assert roles.d.box[0] * 2 >= 64
        assert not roles.ping_pong
        assert roles.stage.put == "blocks"


def test_copies_of_a_part_begin_where_the_part_does() -> None:
    rng = random.Random(11)
    for _, plan, schedule, roles in found():
        assert roles.a is not None
        real, made, box = realize(plan, schedule), roles.a.map, schedule.box_m
        text = render_kernel(plan, schedule).source.text
        match = re.search(r"next_mma_tile\(TileCoords& t\) \{ t\.a(\d) \+= (\d+); \}", text)
        assert match
        dim, step = int(match[1]), int(match[2])
        size = box.size // roles.parts
        assert math.prod(made.tile[len(real.l) : len(real.l) + len(real.m)]) * roles.a.copies == size
        for _ in range(40):
            tile, part, row = rng.randrange(box.tiles), rng.randrange(roles.parts), rng.randrange(size)
            origin, whole = box.coordinates(tile, 0), box.coordinates(tile, part * size + row)
            alone = box.coordinates(tile, row)
            assert origin is not None
            assert whole is not None
            assert alone is not None
            head, tail = [0] * len(real.l), [0] * len(real.k)
            wanted = made.coordinates([*head, *whole, *tail])
            got = list(made.coordinates([*head, *origin, *tail]))
            got[dim] += part * step
            inside = made.coordinates([*head, *(x - o for x, o in zip(alone, origin, strict=True)), *tail])
            assert tuple(g + i for g, i in zip(got, inside, strict=True)) == wanted
            assert any(
                all(0 <= i - f < b * made.slabs for i, f, b in zip(inside, copy.first, made.box, strict=True))
                for copy in copies(roles.a)
            )


def test_parts_fill_the_staged_tile_once() -> None:
    for _, plan, schedule, roles in found():
        made, stage, m, n = roles.d, roles.stage, schedule.box_m, schedule.box_n
        assert made is not None
        real = realize(plan, schedule)
        place_m, place_n = stage_place("m", m, stage.m, stage.cut), stage_place("n", n, stage.n, stage.cut)
        at_m, at_n = [run(place_m, x) for x in range(m.size)], [run(place_n, y) for y in range(n.size)]
        blocks = accumulator_rows(schedule, roles)
        seen: list[int] = []
        for part in range(roles.parts):
            first = part * (m.size // roles.parts)
            for start in range(0, len(blocks), stage.vector):
                for x in range(64):
                    rows = [blocks[start + v][x] for v in range(stage.vector)]
                    if rows[0] < 0:
                        assert rows == [-1] * stage.vector
                        continue
                    places = [at_m[first + r] for r in rows]
                    assert places == list(range(places[0], places[0] + stage.vector)), "one store's elements"
                    assert places[0] % stage.vector == 0
                    seen += [first + r for r in rows]
        assert sorted(seen) == list(range(m.size))
        assert sorted(x + y for x in at_m for y in at_n) == list(range(stage.elements))
        rng = random.Random(2)
        for _ in range(100):
            x, y = rng.randrange(m.size), rng.randrange(n.size)
            local = [0] * len(real.l) + coordinates(m, x) + coordinates(n, y)
            assert swizzle_address(stage.span, 2 * (at_m[x] + at_n[y])) == made.smem_offset(local)


def test_parts_need_two_unit_modes_in_m() -> None:
    one = Case("one-unit", "abk,kj->bja", {"a": 96, "b": 96, "k": 40, "j": 24})
    found = sm90_candidates(make_gemm_plan(one.contraction("float16")), few(FACTS), 60)
    assert all(s.roles is not None and s.roles.parts == 1 for s in found)


def test_c_is_added_to_parts_by_tensor_map_alone() -> None:
    backwards = Layout((3, 0, 1, 2))  # another unit-stride mode than D's
    for layout, ways in ((DENSE, {True}), (backwards, set())):
        plan = make_gemm_plan(CASES[2].contraction("float16", with_c=layout))
        found = sm90_candidates(plan, few(FACTS), 60)
        assert {s.roles.c is not None for s in found if s.roles is not None and s.roles.parts > 1} == ways


def test_the_benchmark_case_stores_whole_modes() -> None:
    plan = make_gemm_plan(
        Case("abjcd", "cabkd,kj->dcjba", {"c": 36, "a": 48, "b": 36, "k": 36, "d": 48, "j": 24}).contraction("float16")
    )
    best = sm90_candidates(plan, FACTS)[0]
    assert best.roles is not None
    assert best.roles.parts == 6
    assert best.roles.d is not None
    assert best.roles.d.box[0] == 48
    real = realize(plan, best)
    assert [s.strides[A] for s in real.m if s.strides[D] == 2] != [2]


def test_parts_are_said_and_kept() -> None:
    _, plan, schedule, roles = found()[0]
    assert f"a tile of D is made in {roles.parts} parts" in explain_gemm(plan, schedule)
    assert decode(Schedule, encode(schedule)) == schedule


def test_kernels_compile_without_spills(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = [render_kernel(plan, schedule) for _, plan, schedule, _ in found()]
    jobs += [render_kernel(plan, clustered(schedule, (2, 1))) for _, plan, schedule, _ in found()[:2]]
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda job: compile_kernel(job.source, "sm_90a"), jobs):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())
