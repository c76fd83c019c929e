"""Tiles of D that several MMA tiles make: the rows of each are loaded, staged and stored once."""

from __future__ import annotations

import math
import random
import re

import numpy as np
import pytest

from gett.codegen.hopper import staged_place
from gett.codegen.render import render_kernel
from gett.codegen.tma import copies
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, D, make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import StagedTile, TmaSource, TmaStore
from gett.schedule.spec.loader import Stationary, Tma
from gett.schedule.spec.schedule import Schedule
from layouts.swizzle import swizzle_address
from tests.cases import DENSE, Case, Layout
from tests.cpu.smem_places import coordinates, run
from tests.cpu.walk import each
from tests.sampling import few_or_every
from tests.specs import FAMILIES, SpecsOf, few, specs, ss_schedules

FACTS = arch_facts("sm_90a")
CASES = [case for case, _ in FAMILIES["mma_tiles"].cases]


def parts(s: Schedule) -> tuple[Tma, TmaStore, StagedTile]:
    """A's copies, the store and its staged tile."""
    a, store = s.hopper.a.tma, s.epilogue.store
    assert a is not None
    assert isinstance(store, TmaStore)
    return a, store, store.stage


def accumulator_rows(s: Schedule) -> list[list[int]]:
    """Rows of an MMA tile by block of 64 accumulator rows, as `FragmentRows` has them; -1 for padding."""
    load, _, stage = parts(s)
    size, held, blocks = s.tiling.m.size // s.tiling.mma_tiles, stage.copy.rows, s.hopper.mma_m
    out = []
    for block in range(s.tiling.shape[0] // 64):
        first, i = block // blocks * blocks, block % blocks
        rows = []
        for x in range(64):
            if load.run:
                row, within = block * 64 + x, (block * 64 + x) % load.atom
                m = row // load.atom * load.run + within if within < load.run else size
            elif held < 64:
                m = (first * (64 // held) + i + blocks * (x // held)) * held + x % held
            else:
                m = 64 * block + x
            rows.append(m if m < size else -1)
        out.append(rows)
    return out


@pytest.mark.slow
def test_every_case_has_tiles_of_several_mma_tiles() -> None:
    found = [spec.schedule for spec in specs("mma_tiles")]
    assert {spec.case for spec in specs("mma_tiles")} == set(CASES)
    assert {s.tiling.mma_tiles for s in found} >= {2, 3, 6}
    assert {(isinstance(s.hopper.a, Stationary), isinstance(s.hopper.b, Stationary)) for s in found} == {
        (False, False),
        (False, True),
    }
    assert {s.hopper.mma_m for s in found} == {4}
    assert {(parts(s)[0].run > 0, parts(s)[0].map.swizzle_bytes) for s in found} >= {
        (True, 128),
        (False, 128),
        (False, 64),
    }


@few_or_every
def test_rows_of_d_are_whole_sectors(specs: SpecsOf) -> None:
    for spec in specs("mma_tiles"):
        _, store, stage = parts(spec.schedule)
        assert store.map.box[0] * 2 >= 32
        assert not spec.schedule.hopper.ping_pong
        assert stage.copy.kind == "vec_m"


@few_or_every
def test_copies_of_an_mma_tile_begin_where_it_does(specs: SpecsOf) -> None:
    rng = random.Random(11)
    for spec in specs("mma_tiles"):
        schedule, tiling = spec.schedule, spec.schedule.tiling
        load, _, _ = parts(schedule)
        real, made, box = lower_plan(spec.plan, tiling), load.map, tiling.m
        text = render_kernel(spec.plan, schedule).source.text
        match = re.search(r"next_mma_tile\(TileCoords& t\) \{ t\.a(\d) \+= (\d+); \}", text)
        assert match
        dim, step = int(match[1]), int(match[2])
        size = box.size // tiling.mma_tiles
        assert math.prod(made.tile[len(real.l) : len(real.l) + len(real.m)]) * load.copies == size
        for _ in range(40):
            tile, part, row = rng.randrange(box.tiles), rng.randrange(tiling.mma_tiles), rng.randrange(size)
            origin, whole = box.coordinates(tile, 0), box.coordinates(tile, part * size + row)
            first = box.coordinates(tile, row)
            assert origin is not None
            assert whole is not None
            assert first is not None
            head, tail = [0] * len(real.l), [0] * len(real.k)
            wanted = made.coordinates([*head, *whole, *tail])
            got = list(made.coordinates([*head, *origin, *tail]))
            got[dim] += part * step
            inside = made.coordinates([*head, *(x - o for x, o in zip(first, origin, strict=True)), *tail])
            assert tuple(g + i for g, i in zip(got, inside, strict=True)) == wanted
            assert any(
                all(0 <= i - f < b * made.slabs for i, f, b in zip(inside, copy.first, made.box, strict=True))
                for copy in copies(load)
            )


@few_or_every
def test_mma_tiles_fill_the_staged_tile_once(specs: SpecsOf) -> None:
    rng = random.Random(2)
    for spec in specs("mma_tiles"):
        schedule, tiling = spec.schedule, spec.schedule.tiling
        _, store, stage = parts(schedule)
        m, n, vector = tiling.m, tiling.n, stage.copy.vector
        real = lower_plan(spec.plan, tiling)
        place_m, place_n = staged_place("m", m, stage.m, stage.cut), staged_place("n", n, stage.n, stage.cut)
        at_m, at_n = (each(run(f, np.arange(x.size)), x.size) for f, x in ((place_m, m), (place_n, n)))
        blocks = accumulator_rows(schedule)
        seen: list[int] = []
        for part in range(tiling.mma_tiles):
            first = part * (m.size // tiling.mma_tiles)
            for start in range(0, len(blocks), vector):
                for x in range(64):
                    rows = [blocks[start + v][x] for v in range(vector)]
                    if rows[0] < 0:
                        assert rows == [-1] * vector
                        continue
                    places = [at_m[first + r] for r in rows]
                    assert places == list(range(places[0], places[0] + vector)), "one store's elements"
                    assert places[0] % vector == 0
                    seen += [first + r for r in rows]
        assert sorted(seen) == list(range(m.size))
        assert sorted(x + y for x in at_m for y in at_n) == list(range(stage.elements))
        for _ in range(100):
            x, y = rng.randrange(m.size), rng.randrange(n.size)
            local = [0] * len(real.l) + coordinates(m, x) + coordinates(n, y)
            assert swizzle_address(stage.swizzle_bytes, 2 * (at_m[x] + at_n[y])) == store.map.smem_offset(local)


def test_two_unit_modes_in_m_are_needed() -> None:
    one = Case("one-unit", "abk,kj->bja", {"a": 96, "b": 96, "k": 40, "j": 24})
    found = ss_schedules(make_gemm_plan(one.contraction("float16")), few(FACTS, 2), 60)
    assert found
    assert all(s.tiling.mma_tiles == 1 for s in found)


def test_c_is_added_by_tensor_map_alone() -> None:
    backwards = Layout((3, 0, 1, 2))  # another unit-stride mode than D's
    for layout, ways in ((DENSE, {True}), (backwards, set())):
        plan = make_gemm_plan(CASES[2].contraction("float16", with_c=layout))
        found = ss_schedules(plan, few(FACTS, 2), 60)
        assert {isinstance(s.epilogue.source, TmaSource) for s in found if s.tiling.mma_tiles > 1} == ways


def test_the_benchmark_case_stores_whole_modes() -> None:
    case = Case("abjcd", "cabkd,kj->dcjba", {"c": 36, "a": 48, "b": 36, "k": 36, "d": 48, "j": 24})
    plan = make_gemm_plan(case.contraction("float16"))
    best = ss_schedules(plan, FACTS)[0]
    assert best.tiling.mma_tiles == 6
    assert parts(best)[1].map.box[0] == 48
    real = lower_plan(plan, best.tiling)
    assert [s.strides[A] for s in real.m if s.strides[D] == 2] != [2]
