"""Copies by tensor map: every element of a tile arrives once, where wgmma reads it, however blocks share the tile."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator
from functools import cache

import pytest

from gett.codegen import tma
from gett.codegen.index import ParamTable
from gett.codegen.tma import LOOPED, copies, stage_copies, store_pieces
from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.hopper_needs import valid_k
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from layouts.tma import ModeMap, TmaMap
from tests.by_hand import CLUSTERS, can_cluster, clustered
from tests.cases import tccg
from tests.cpu.smem_places import coordinates, mma_box, places, read_at
from tests.sampling import slow_but
from tests.spec_parts import has_k_residue
from tests.specs import few_specs, specs, ss_schedules

FACTS = arch_facts("sm_90a")


EVERY = pytest.mark.parametrize("every", slow_but([False, True], [False]))


@cache
def found(every: bool) -> tuple[Schedule, ...]:
    """A schedule of every combination of parts that the catalogue and the benchmark's contractions offer.

    Or, not `every` one, those that first cases offer.
    """
    out: dict[frozenset[str], Schedule] = {}
    for family in ("tma", "staged", "k_residue", "stationary", "mma_tiles"):
        for spec in (specs if every else few_specs)(family):
            out.setdefault(spec.parts, spec.schedule)
    some = list(out.values())
    for case in tccg() if every else ():
        some += ss_schedules(make_gemm_plan(case.contraction("float16")), FACTS, 4)[:4]
    return tuple(some)


def loads(schedule: Schedule) -> Iterator[tuple[Tma, Box]]:
    """The copies of A and B, with the boxes of their rows."""
    for loader, box in ((schedule.hopper.a, mma_box(schedule)), (schedule.hopper.b, schedule.tiling.n)):
        load = loader.tma
        assert load is not None
        yield load, box


def in_all_clusters(every: bool) -> Iterator[Schedule]:
    for schedule in found(every):
        yield schedule
        if can_cluster(schedule):
            yield from (clustered(schedule, shape) for shape in CLUSTERS)


@pytest.mark.slow
def test_every_element_arrives_once_where_it_is_read() -> None:
    rng = random.Random(3)
    ways = set()
    for schedule in in_all_clusters(True):
        box_k, deep = schedule.tiling.k, schedule.tiling.shape[2]
        for load, rows in loads(schedule):
            ways.add((load.blocks > 1, load.divided is None, load.copies > 1, bool(load.repeats)))
            fixed = len(load.map.modes) - len(rows.extents) - len(box_k.extents)
            for _ in range(3):
                row, k = rng.randrange(rows.size), rng.randrange(box_k.size)
                at = load.map.coordinates([0] * fixed + coordinates(rows, row) + coordinates(box_k, k))
                wanted = read_at(load, rows.size, deep, row, k)
                for tile_k in (0, 1):
                    assert places(load, at, tile_k) == [wanted], (load, row, k)
    assert {w[:2] for w in ways} == {(False, True), (True, True), (True, False)}
    assert {w[2:] for w in ways} >= {(False, False), (True, False), (True, True)}


@EVERY
def test_shares_of_a_cluster_are_the_whole_and_the_barrier_counts_them(every: bool) -> None:
    for schedule in in_all_clusters(every):
        tiling = schedule.tiling
        for load, rows in loads(schedule):
            shares = load.blocks if load.divided is not None else 1
            assert math.prod(load.box) * shares * 2 == load.map.transaction_bytes
            deep = valid_k(load, len(tiling.k.extents)) if has_k_residue(schedule) else tiling.k.size
            assert load.bytes == 2 * rows.size * deep


def run_copies(lines: list[str], part: int, tile_k: int) -> list[tuple[int, tuple[int, ...]]]:
    """(place, coordinates) of each copy that block `part` issues by the generated statements, all tiles at 0."""
    issued: list[tuple[int, tuple[int, ...]]] = []
    text, depth = [], 0
    for line in "\n".join(lines).split("\n"):
        if line.startswith("#pragma"):
            continue
        head = re.fullmatch(r"\s*for \(int (\w+) = 0; \1 < (\d+); \+\+\1\)", line)
        test = re.fullmatch(r"\s*if \(int\(multicast_b.part\) == (.*)\)", line)
        if head or test:
            text.append("    " * depth + (f"for {head[1]} in range({head[2]}):" if head else f"if part == {test[1]}:"))
            depth += 1
            continue
        load = r"\s*gett::tma_load(?:_multicast)?"
        call = re.fullmatch(load + r"\((.*), &p\.map_b, bar, (?:multicast_b\.mask, )?(.*)\);", line)
        assert call is not None, line
        to, coords = (re.sub(r"\b[tk]\.b\d", "0", x).replace("int(multicast_b.part)", "part") for x in call.groups())
        text.append("    " * depth + f"issued.append(({to}, ({coords},)))")
        depth = 0
    exec("\n".join(text), {"issued": issued, "b": 0, "part": part, "tile_k": tile_k})
    return issued


@EVERY
def test_the_generated_statements_issue_the_copies(every: bool) -> None:
    """Many copies are a loop."""
    loops = set()
    tried = {load for schedule in in_all_clusters(every) for load, _ in loads(schedule)}
    for load in tried:
        lines = stage_copies("b", load)
        looped = any("for (int" in x for x in lines)
        loops.add((looped, load.blocks > 1))
        assert looped == (load.copies > LOOPED and bool(load.repeats) and load.divided is None)
        for part, tile_k in ((0, 0), (1, 0), (0, 1)) if load.blocks > 1 else ((0, 3),):
            wanted = []
            for c in copies(load):
                first, start = list(c.first), c.start
                if load.divided is not None:
                    first[load.divided] += part * c.part_step
                    start += part * c.part_bytes
                elif load.blocks > 1 and part != (tile_k % load.blocks if c.whose is None else c.whose):
                    continue
                wanted.append((start, tuple(first)))
            assert run_copies(lines, part, tile_k) == wanted
    assert not every or loops == {(x, y) for x in (False, True) for y in (False, True)}


@EVERY
def test_pieces_of_a_staged_tile_are_the_tile(every: bool) -> None:
    """Together they cover the box once, in the order in which it lies in shared memory."""
    counts = set()
    for schedule in found(every):
        store = schedule.epilogue.store
        if not isinstance(store, TmaStore):
            continue
        made = store.map
        box, pieces = store_pieces(made)
        counts.add(len(pieces) > made.slabs)
        at = 0
        covered = set()
        for start, first in pieces:
            assert start == at
            assert start % (8 * max(made.swizzle_bytes, 16)) == 0
            at += made.pitch * math.prod(box[1:])
            corners = [range(f, f + b) for f, b in zip(first[1:], box[1:], strict=True)]
            for x in itertools.product(*corners):
                covered.add((first[0], *x))
        assert at == made.slab_bytes * made.slabs
        assert len(covered) == made.slabs * math.prod(made.box[1:])
        if len(pieces) > made.slabs:
            # Pieces follow each other as the rows of the whole box do.
            firsts = [p[1:] for _, p in pieces[: len(pieces) // made.slabs]]
            assert firsts == sorted(firsts, key=lambda p: tuple(reversed(p)))
    assert not every or counts == {False, True}


@pytest.mark.parametrize("rows", [127, 128, 61, 96])
def test_no_extent_cuts_a_long_store_into_many_copies(rows: int) -> None:
    """A prime extent has no even parts near the length wanted: all of it is one copy."""
    tile = TmaMap((256, 1024), (8, 2048), (64, rows), 16, 1, 0, (ModeMap(0, 1), ModeMap(1, 1)), (0, 1), (64, rows))
    box, pieces = store_pieces(tile)
    assert math.prod(box) * len(pieces) == 64 * rows
    assert len(pieces) <= 2 * math.ceil(64 * 8 * rows / tma.STORE_BYTES)


@pytest.mark.parametrize(("most", "loops"), [(1, True), (4, True), (tma.MOST_WRITTEN, False)])
@EVERY
def test_the_generated_statements_store_the_pieces(
    most: int, loops: bool, every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many of them are issued in loops."""
    monkeypatch.setattr(tma, "MOST_WRITTEN", most)
    looped = 0
    for schedule in found(every):
        store = schedule.epilogue.store
        if not isinstance(store, TmaStore):
            continue
        pieces = store_pieces(store.map)[1]
        names = [f"d{i}" for i in range(store.map.rank)]
        text = tma.tile_copies("f()", "store(from + {start}, ", store.map, names)
        issued: list[tuple[int, ...]] = []
        lines = []
        for line in text.split("\n")[1:-1]:
            head = re.fullmatch(r" *for \(int i = 0; i < (\d+); \+\+i\)", line)
            if head:
                looped += 1
                lines.append(f"for i in range({head[1]}):")
            elif not line.startswith("#pragma"):
                inside = bool(lines) and lines[-1].endswith(":")
                call = re.sub(r"\b(from|t\.d\d)\b", "0", line.strip().rstrip(";"))
                lines.append("    " * inside + call)
        exec("\n".join(lines), {"store": lambda *x, to=issued: to.append(x)})
        assert issued == [(start, *first) for start, first in pieces]
    assert bool(looped) == loops or not every


def test_parts_of_a_tile_follow_each_other_along_the_last_dimension() -> None:
    """The generated function moves each part to where the map has the first of its columns."""
    counts = set()
    for spec in (*specs("subtiled_k"), *specs("subtiled_tf32")):
        s, plan = spec.schedule, lower_plan(spec.plan, spec.schedule.tiling)
        store = s.epilogue.store
        assert isinstance(store, TmaStore)
        text = tma.tile_coords(plan, s, ParamTable()).store(s)[-1]
        steps = {int(dim): int(step) for dim, step in re.findall(r"t\.d(\d) \+ part \* (\d+)", text)}
        first = len(plan.l) + len(plan.m)
        for part in range(store.subtiles):
            at = coordinates(s.tiling.n, part * s.staged_n.size)
            wanted = store.map.coordinates([0] * first + at)
            assert [part * steps.get(dim, 0) for dim in range(store.map.rank)] == [*wanted]
        counts.add((store.subtiles, store.buffers))
    assert len(counts) > 2
