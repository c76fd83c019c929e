"""The staged tile of D: where fragments write is where the tensor map reads, with every copy from registers."""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest

from gett.codegen.hopper import staged_place
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, itemsize, make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import StagedTile, TmaStore
from gett.schedule.spec.schedule import Schedule
from layouts.swizzle import swizzle_address
from tests.cases import tccg
from tests.cpu.smem_places import coordinates, run
from tests.sampling import slow_but
from tests.specs import exchanges, few_specs, specs, ss_schedules

KINDS = ("stsm", "stsm_t", "vec_n", "vec_m", "pair_n", "one")
FAMILIES = ("staged", "mma_tiles", "tf32", "tf32_k", "dmma")


EACH = slow_but([(kind, every) for every in (False, True) for kind in KINDS], lambda x: not x[1])
"""Kinds of copies, and whether all tiles that have them are tried."""


@cache
def found(every: bool) -> tuple[tuple[GemmPlan, Schedule, TmaStore, StagedTile], ...]:
    """Tiles that a tensor map stores as they are staged: of the catalogue and of all benchmark contractions.

    Or, not `every` one, of first cases.
    """
    some = {spec.parts: (spec.plan, spec.schedule) for f in FAMILIES for spec in (specs if every else few_specs)(f)}
    pairs = list(some.values())
    for case in tccg() if every else tccg()[::8]:
        plan = make_gemm_plan(case.contraction("float16"))
        pairs += [(plan, s) for s in ss_schedules(plan, arch_facts("sm_90a"), 6)]
    out = []
    for plan, s in pairs:
        store = s.epilogue.store
        if isinstance(store, TmaStore) and store.stage.copy.kind != "scalar" and not exchanges(s):
            out.append((plan, s, store, store.stage))
    return tuple(out)


def places(s: Schedule, stage: StagedTile) -> tuple[list[int], list[int]]:
    """Elements from the tile's start at which its rows and columns lie."""
    m, n = s.tiling.m, s.staged_n
    place_m, place_n = staged_place("m", m, stage.m, stage.cut), staged_place("n", n, stage.n, stage.cut)
    return [run(place_m, x) for x in range(m.size)], [run(place_n, y) for y in range(n.size)]


@pytest.mark.slow
def test_every_copy_from_registers_is_chosen_somewhere() -> None:
    stages = [stage for *_, stage in found(True)]
    assert {stage.copy.kind for stage in stages} == set(KINDS)
    assert any(stage.cut for stage in stages)
    assert any(stage.copy.rows < 64 for stage in stages)
    assert {stage.swizzle_bytes for stage in stages} >= {16, 32, 64, 128}


@pytest.mark.parametrize(("kind", "every"), EACH)
def test_elements_lie_where_the_tensor_map_reads_them(kind: str, every: bool) -> None:
    rng = random.Random(5)
    for plan, s, store, stage in found(every):
        if stage.copy.kind != kind:
            continue
        real, m, n = lower_plan(plan, s.tiling), s.tiling.m, s.staged_n
        at_m, at_n = places(s, stage)
        corners = itertools.product((0, m.size - 1), (0, n.size - 1))
        inside = ((rng.randrange(m.size), rng.randrange(n.size)) for _ in range(60))
        for x, y in (*corners, *inside):
            local = [0] * len(real.l) + coordinates(m, x) + coordinates(n, y)
            byte = swizzle_address(stage.swizzle_bytes, itemsize(plan.contraction.d.dtype) * (at_m[x] + at_n[y]))
            assert byte == store.map.smem_offset(local), (s, x, y)


@pytest.mark.parametrize(("kind", "every"), EACH)
def test_vectors_are_neighbours_in_the_staged_tile(kind: str, every: bool) -> None:
    """What one store writes: elements of the two boxes that the fragments' layout puts into one vector."""
    for _, s, _, stage in found(every):
        if stage.copy.kind != kind:
            continue
        m, n, vector = s.tiling.m, s.staged_n, stage.copy.vector
        at_m, at_n = places(s, stage)
        if kind == "one":
            assert vector == 1
        elif kind == "pair_n":
            check([[at_n[2 * j], at_n[2 * j + 1]] for j in range(n.size // 2)], vector)
        elif kind == "stsm":
            check([[at_n[8 * j + c] for c in range(8)] for j in range(n.size // 8)], vector)
        elif kind == "stsm_t":
            check([[at_m[8 * j + c] for c in range(8)] for j in range(m.size // 8)], vector)
        elif kind == "vec_n":
            lead = min((step, i) for i, step in enumerate(stage.n) if step)[1]
            step = 1
            for d in n.dims[:lead]:
                step *= d.box
            assert step % 8 == 0
            firsts = (y for y in range(n.size) if y // step % vector == 0)
            check([[at_n[y + v * step] for v in range(vector)] for y in firsts], vector)
        else:
            check([[at_m[x] for x in rows] for rows in rows_of_vectors(s, stage)], vector)


def rows_of_vectors(s: Schedule, stage: StagedTile) -> list[list[int]]:
    """Rows of M that each store of `vec_m` writes: a thread's rows of neighbouring blocks."""
    size, vector = s.tiling.m.size, stage.copy.vector
    load = s.hopper.a.tma
    if load is not None and load.run:  # every block has one atom with rows to spare
        assert load.map.swizzle_bytes == 128
        firsts = range(0, size // load.run, vector)
        return [[x + load.run * (i + v) for v in range(vector)] for i in firsts for x in range(load.run)]
    held, blocks, part = stage.copy.rows, s.hopper.mma_m, size // s.tiling.mma_tiles
    per, rows = 64 // held, []
    for first in range(0, s.tiling.shape[0] // 64, blocks):
        for i, x in itertools.product(range(0, blocks, vector), range(64)):
            where = [(first * per + i + v + blocks * (x // held)) * held + x % held for v in range(vector)]
            rows.append([w for w in where if w < part])
    rows = [[w + i * part for w in r] for i in range(s.tiling.mma_tiles) for r in rows]
    assert sorted(w for r in rows for w in r) == list(range(size))
    return [r for r in rows if r]


def check(vectors: list[list[int]], width: int) -> None:
    """Every vector is aligned and has neighbours only."""
    assert vectors
    for v in vectors:
        assert v[0] % width == 0
        assert v == list(range(v[0], v[0] + width))
