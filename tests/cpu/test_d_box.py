"""The staged tile of D: where fragments write is where the tensor map reads, in every way of writing."""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest
from gett.codegen.render_sm90 import stage_place

from gett.codegen.index import Function
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.realize import realize
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from layouts.box import Box
from layouts.swizzle import swizzle_address
from tests.cases import Case, tccg

WAYS = ("rows", "turned", "columns", "blocks")


@cache
def found() -> list[tuple[Case, Schedule]]:
    """Schedules that store boxes as they are staged, of all benchmark contractions."""
    out = []
    for case in tccg():
        plan = make_gemm_plan(case.contraction("float16"))
        for s in sm90_candidates(plan, arch_facts("sm_90a"), 6):
            if s.roles is not None and s.roles.d is not None and s.roles.stage.put and s.roles.trade is None:
                out.append((case, s))
    return out


def coordinates(box: Box, local: int) -> list[int]:
    """Coordinate of each mode of a box at an index of the tile."""
    out = [0] * len(box.extents)
    for d in box.dims:
        out[d.modes[0]] = local % d.box
        local //= d.box
    return out


def test_every_way_of_writing_is_chosen_somewhere() -> None:
    ways = {s.roles.stage.put for _, s in found() if s.roles is not None}
    assert ways == set(WAYS)
    assert any(s.roles.stage.cut for _, s in found() if s.roles is not None)
    assert any(s.roles.stage.chunk < 64 for _, s in found() if s.roles is not None)
    assert {s.roles.stage.span for _, s in found() if s.roles is not None} >= {16, 32, 64, 128}


@pytest.mark.parametrize("way", WAYS)
def test_elements_lie_where_the_tensor_map_reads_them(way: str) -> None:
    rng = random.Random(5)
    for case, schedule in found():
        assert schedule.roles is not None
        stage, made = schedule.roles.stage, schedule.roles.d
        if stage.put != way:
            continue
        assert made is not None
        plan = realize(make_gemm_plan(case.contraction("float16")), schedule)
        m, n = schedule.box_m, schedule.box_n
        body_m = stage_place("m", m, stage.m, stage.cut)
        body_n = stage_place("n", n, stage.n, stage.cut)
        corners = itertools.product((0, m.size - 1), (0, n.size - 1))
        inside = ((rng.randrange(m.size), rng.randrange(n.size)) for _ in range(60))
        for x, y in (*corners, *inside):
            at = run(body_m, x) + run(body_n, y)
            local = [0] * len(plan.l) + coordinates(m, x) + coordinates(n, y)
            assert swizzle_address(stage.span, 2 * at) == made.smem_offset(local), (case.name, x, y)


@pytest.mark.parametrize("way", WAYS)
def test_vectors_are_neighbours_in_the_staged_tile(way: str) -> None:
    """What one store writes: elements of the two boxes that the fragments' layout puts into one vector."""
    for _, schedule in found():
        assert schedule.roles is not None
        roles, stage = schedule.roles, schedule.roles.stage
        if stage.put != way:
            continue
        m, n = schedule.box_m, schedule.box_n
        places_m = [run(stage_place("m", m, stage.m, stage.cut), x) for x in range(m.size)]
        places_n = [run(stage_place("n", n, stage.n, stage.cut), y) for y in range(n.size)]
        if way == "rows":
            vectors = [[places_n[8 * j + c] for c in range(8)] for j in range(n.size // 8)]
        elif way == "turned":
            vectors = [[places_m[8 * j + c] for c in range(8)] for j in range(m.size // 8)]
        elif way == "columns":
            lead = min((s, i) for i, s in enumerate(stage.n) if s)[1]
            step = 1
            for d in n.dims[:lead]:
                step *= d.box
            assert step % 8 == 0
            vectors = [
                [places_n[y + v * step] for v in range(stage.vector)]
                for y in range(n.size)
                if y // step % stage.vector == 0
            ]
        else:
            if roles.a.run:  # every block has one chunk with rows to spare
                vectors = [
                    [places_m[x + roles.a.run * (i + v)] for v in range(stage.vector)]
                    for i in range(0, m.size // roles.a.run, stage.vector)
                    for x in range(roles.a.run)
                ]
                assert roles.a.map.span == 128
                check(vectors, stage.vector)
                continue
            per, blocks = 64 // stage.chunk, roles.m_blocks
            rows = []
            for first in range(0, schedule.block[0] // 64, blocks):
                for i in range(0, blocks, stage.vector):
                    for x in range(64):
                        where = [
                            (first * per + i + v + blocks * (x // stage.chunk)) * stage.chunk + x % stage.chunk
                            for v in range(stage.vector)
                        ]
                        rows.append([w for w in where if w < m.size // roles.parts])
            part = m.size // roles.parts
            rows = [[w + i * part for w in r] for i in range(roles.parts) for r in rows]
            assert sorted(w for r in rows for w in r) == list(range(m.size))
            vectors = [[places_m[w] for w in r] for r in rows if r]
        check(vectors, stage.vector)


def check(vectors: list[list[int]], width: int) -> None:
    """Every vector is aligned and has neighbours only."""
    assert vectors
    for v in vectors:
        assert v[0] % width == 0
        assert v == list(range(v[0], v[0] + width))


def run(function: Function, local: int) -> int:
    """The value of a generated function of one index."""
    return function.evaluate(local=local)[""]
