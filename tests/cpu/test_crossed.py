"""Crossed units on Hopper: which contractions get them, where fragments read A and B, and what compiles."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.crossed import ALONE, SHAPES, SHARED_A, SHARED_B, crossed_candidates
from gett.schedule.realize import realize
from gett.schedule.records import Schedule
from gett.schedule.select import candidates
from layouts.tma import TmaMap
from tests.cases import Case, Layout, tccg
from tests.cpu.test_d_box import coordinates

LONG = Case("crossed-long", "lik,jkl->ji", {"i": 120, "j": 96, "k": 64, "l": 384})
WIDER = Case("crossed-wider", "lik,jkl->ji", {"i": 200, "j": 96, "k": 64, "l": 384})
RAGGED = Case("crossed-ragged", "lnim,kmjn->lkji", {"i": 24, "j": 10, "k": 9, "l": 7, "m": 40, "n": 56})
GAPS = Case("crossed-gaps", "lnim,kmjn->lkji", {"i": 64, "j": 42, "k": 12, "l": 9, "m": 40, "n": 32})
MANY = Case("crossed-many", "lnim,kmjn->lkji", {"i": 96, "j": 36, "k": 40, "l": 48, "m": 48, "n": 64})
BATCHED = Case("crossed-batched", "bmkl,bnlk->bmn", {"b": 3, "m": 72, "n": 48, "k": 32, "l": 32})


def of(case: Case, dtype: str = "float16", with_c: bool = False) -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction(dtype, with_c=Layout() if with_c else None))
    return plan, crossed_candidates(plan, arch_facts("sm_90a"), 400)


def shape(s: Schedule) -> tuple[int, int]:
    """Runs of A and of B."""
    assert s.roles is not None
    return s.roles.a.map.span // 2, s.roles.b.map.span // 2


RUNS = {(depth, width) for depth, width, _ in SHAPES}


def sharing(s: Schedule) -> tuple[int, int]:
    """Blocks that share B, and those that share A."""
    assert s.roles is not None
    return s.roles.cluster


def way(s: Schedule) -> bool:
    """Whether each warpgroup has its own rows of A."""
    assert s.roles is not None
    assert s.roles.crossed is not None
    return s.roles.crossed.apart


def test_only_crossed_units_get_them() -> None:
    for case in tccg():
        plan, found = of(case)
        assert bool(found) == (case.name in ("ijkl-minl-njmk", "ij-kil-lkj")), case.name
        if found:
            assert next(s for s in candidates(plan, "sm_90a")).roles == found[0].roles


@pytest.mark.parametrize("case", [LONG, RAGGED, BATCHED, WIDER], ids=lambda c: c.name)
def test_fragments_read_where_the_copies_write(case: Case) -> None:
    """The kernel's address arithmetic against the images that the tensor maps make."""
    rng = random.Random(3)
    plan, found = of(case)
    assert {shape(s) for s in found} == RUNS
    for s in found:
        real, roles = realize(plan, s), s.roles
        assert roles is not None
        assert roles.crossed is not None
        depth, width = shape(s)
        unit_a, unit_b = roles.crossed.unit_a, roles.crossed.unit_b
        whole = list(roles.a.map.box)
        for dim, _, count in roles.a.repeats:
            whole[dim] *= count
        image = replace(roles.a.map, box=tuple(whole))
        part = width // roles.cluster[1]  # of k2 that a block fetches itself
        for _ in range(40):
            row, column, k1, k2 = (rng.randrange(x) for x in (s.box_m.size, s.box_n.size, depth, part))
            at = row * part * 2 * depth + k2 * 2 * depth
            assert image.smem_offset(place(real, s, row, k1, k2, "m", unit_a, unit_b)) == swizzled(at, k1, image), (
                row,
                k1,
                k2,
            )
            slab = roles.b.map
            assert slab.smem_offset(place(real, s, column, 0, k2, "n", unit_a, unit_b)) == swizzled(
                column * 2 * width, k2, slab
            )
        rows = math.prod(whole[2:])
        assert rows == s.box_m.size
        assert roles.a.copies * roles.a.map.transaction_bytes == s.box_m.size * depth * part * 2
        assert roles.a.pitch * roles.a.copies in (0, s.box_m.size * depth * part * 2)


def test_blocks_that_share_an_operand_fetch_all_of_it_once() -> None:
    """A in halves of k2, each sent on in whole rows; B slab by slab in turns; and no half reads past K's end."""
    plan, found = of(WIDER)
    assert {sharing(s) for s in found} == {ALONE, SHARED_A, SHARED_B}
    for s in found:
        roles, text = s.roles, render_kernel(plan, s).source.text
        assert roles is not None
        assert roles.crossed is not None
        assert roles.a is not None
        assert ("tma_load_multicast(to, &p.map_b, bar, 3, " in text) == (sharing(s) == SHARED_B)
        if sharing(s) != SHARED_A:
            assert "+ rank * " not in text
            continue
        assert s.split_k > 1
        assert way(s)
        real, half = realize(plan, s), shape(s)[1] // 2
        unit = len(real.l) + len(real.m) + roles.crossed.unit_b
        assert f" + rank * {roles.a.map.modes[unit].weight * half}," in text
        assert roles.a.map.transaction_bytes % (shape(s)[0] * half * 2) == 0
        extent = real.k[roles.crossed.unit_b].extent
        for past in range(extent, -(-extent // (2 * half)) * 2 * half):
            coords = [0] * len(roles.a.map.modes)
            coords[unit] = past
            assert roles.a.map.element_offset(coords) is None


@pytest.mark.parametrize("case", [WIDER, MANY, GAPS], ids=lambda c: c.name)
def test_a_comes_by_warpgroup_where_its_pieces_do(case: Case) -> None:
    """Apart, half of the pieces bring a warpgroup's rows and no other; the barriers count all of their bytes."""
    _, found = of(case)
    assert {s.roles.crossed.apart for s in found if s.roles is not None and s.roles.crossed is not None} == {
        True,
        False,
    }
    for s in found:
        roles = s.roles
        assert roles is not None
        assert roles.crossed is not None
        if not roles.crossed.apart:
            continue
        assert s.block[0] == 64 * roles.consumers
        share = s.box_m.size // roles.consumers
        assert share == 64 or (case is GAPS and s.split_k == 1 and roles.stage.put not in ("turned", "blocks"))
        if share < 64:
            assert f"kGroupValidRows = {share}, kGroupRows = 64" in render_kernel(of(case)[0], s).source.text
        assert roles.a.copies % roles.consumers == 0
        ((dim, step, count),) = roles.a.repeats
        assert all(b == 1 for b in roles.a.map.box[dim + 1 :])
        rows = math.prod(roles.a.map.box[2:])
        assert rows * (count // roles.consumers) == share
        assert step == roles.a.map.box[dim]
        assert roles.a.pitch == rows * shape(s)[0] * shape(s)[1] * 2 // roles.cluster[1]
        assert roles.a.map.transaction_bytes == roles.a.pitch  # no padding between pieces


def place(plan: GemmPlan, s: Schedule, local: int, k1: int, k2: int, side: str, unit_a: int, unit_b: int) -> list[int]:
    """Coordinate in an operand's modes l, m (n), k of a row and a pair of k, relative to the tile."""
    box = s.box_m if side == "m" else s.box_n
    k = [0] * len(plan.k)
    k[unit_a], k[unit_b] = k1, k2
    return [0] * len(plan.l) + coordinates(box, local) + k


def swizzled(at: int, element: int, made: TmaMap) -> int:
    """As the kernel has it: the row's start swizzled, then the vector's place in the row exchanged by XOR."""
    start = at ^ ((at >> 3) & ((made.span // 16 - 1) * 16))
    return (start ^ (element // 8 * 16)) + element % 8 * 2


def test_slabs_past_the_end_of_k1_are_refused_where_they_would_read_on() -> None:
    """A slab of k1 past the end must read zeros: where k1 shares a dimension of the map, its extent must divide."""
    for extents in ({"k": 40}, {"k": 48}):
        case = replace(RAGGED, extents={**RAGGED.extents, "m": extents["k"], "n": 40})
        plan, found = of(case)
        for s in found:
            real, roles = realize(plan, s), s.roles
            assert roles is not None
            assert roles.crossed is not None
            depth = shape(s)[0]
            made, mode = roles.b.map, len(real.l) + len(real.n) + roles.crossed.unit_a
            extent = real.k[roles.crossed.unit_a].extent
            for past in range(extent, -(-extent // depth) * depth):
                coords = [0] * len(made.modes)
                coords[mode] = past
                assert made.element_offset(coords) is None


def test_all_ways_compile() -> None:
    jobs = []
    for case, dtype, with_c in ((LONG, "float16", False), (WIDER, "float16", False),
                                (RAGGED, "bfloat16", True), (RAGGED, "float16", False),
                                (BATCHED, "float16", False), (MANY, "float16", True)):  # fmt: skip
        plan, found = of(case, dtype, with_c)
        firsts: dict[tuple[object, ...], Schedule] = {}
        for s in found:
            assert s.roles is not None
            firsts.setdefault((shape(s), s.split_k > 1, s.roles.d is None, way(s), sharing(s)), s)
            if case is MANY and s.block[1] >= 192:  # registers are scarcest where wide tiles add C
                firsts.setdefault((s.block[1], s.box_n.dims[0].box % 8 == 0), s)
        jobs += [(s, render_kernel(plan, s)) for s in firsts.values()]
    assert {shape(s) for s, _ in jobs} == RUNS
    assert {sharing(s) for s, _ in jobs} == {ALONE, SHARED_A, SHARED_B}
    assert {s.split_k > 1 for s, _ in jobs} == {True, False}
    assert {s.roles.d is None for s, _ in jobs if s.roles is not None} == {True, False}
    assert {way(s) for s, _ in jobs} == {False, True}
    texts = {k.source.text: k for _, k in jobs}
    with ThreadPoolExecutor(2) as pool:
        for found_in in pool.map(lambda k: resources(compile_kernel(k.source, "sm_90a")), texts.values()):
            assert all(entry.local_bytes == 0 for entry in found_in.values())
