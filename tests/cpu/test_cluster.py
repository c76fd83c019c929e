"""Clusters: every element of a shared tile arrives once, where wgmma reads it; the search; kernels that compile."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import pytest
from gett.codegen.stage_copies import copies, store_pieces

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.cluster import cluster_tiles, part_box
from gett.schedule.records import BulkMove, Schedule
from gett.schedule.sm90 import sm90_candidates
from layouts.box import Box
from layouts.swizzle import swizzle_address
from tests.cases import Case, tccg
from tests.clusters import CASES, SHAPES, clustered, kind
from tests.cpu.test_d_box import coordinates
from tests.parted import part_of


@cache
def found() -> tuple[tuple[GemmPlan, Schedule], ...]:
    """One schedule of every kind that the cases and the benchmark's contractions offer."""
    out: dict[tuple[object, ...], tuple[GemmPlan, Schedule]] = {}
    for case in (*CASES, *tccg()):
        plan = make_gemm_plan(case.contraction("float16"))
        for s in sm90_candidates(plan, arch_facts("sm_90a"), 30):
            out.setdefault(kind(s), (plan, s))
    return tuple(out.values())


def moves() -> Iterator[tuple[BulkMove, Box, Box, int]]:
    """Operands, alone and shared, with the boxes of their rows and of K, and the depth of a k-tile."""
    for _, schedule in found():
        for shape in ((1, 1), *SHAPES):
            roles = clustered(schedule, shape).roles
            assert roles is not None
            yield roles.a, part_of(schedule), schedule.box_k, schedule.block[2]
            yield roles.b, schedule.box_n, schedule.box_k, schedule.block[2]


def read_at(move: BulkMove, rows: int, depth: int, row: int, k: int) -> int:
    """Byte of a tile from which wgmma takes an element (KERNELS.md: slabs, swizzled rows)."""
    span = move.map.span
    if move.major == "k":
        slab, inside, line, pitch = 2 * k // span, 2 * k % span, row, -(-rows // 8) * 8
    else:
        chunk = move.run or span // 2  # rows that a chunk holds; it may have room for more
        slab, inside, line, pitch = row // chunk, 2 * (row % chunk), k, depth
    return slab * pitch * span + swizzle_address(span, line * span + inside)


def places(move: BulkMove, at: tuple[int, ...], tile_k: int) -> list[int]:
    """Where the blocks that share a tile put the element at map coordinate `at`, one entry a write."""
    made = move.map
    out = []
    for part in range(move.shared):
        for copy in copies(move):
            whose = tile_k % move.shared if copy.whose is None else copy.whose
            if move.shared > 1 and move.divided is None and part != whose:
                continue
            first = list(copy.first)
            start = copy.start
            if move.divided is not None:
                first[move.divided] += part * copy.part_step
                start += part * copy.part_bytes
            inside = [x - f for x, f in zip(at, first, strict=True)]
            box = part_box(move)
            if not all(0 <= x < b for x, b in zip(inside, box, strict=True)):
                continue
            line = 0
            for x, b in zip(reversed(inside[1:]), reversed(box[1:]), strict=True):
                line = line * b + x
            assert start % (8 * made.span) == 0, "a copy starts where the swizzle's pattern does"
            out.append(start + swizzle_address(made.span, line * made.pitch + 2 * inside[0]))
    return out


def test_every_element_arrives_once_where_it_is_read() -> None:
    rng = random.Random(3)
    ways = set()
    for move, rows, box_k, deep in moves():
        ways.add((move.shared > 1, move.divided is None, move.copies > 1, bool(move.repeats)))
        fixed = len(move.map.modes) - len(rows.extents) - len(box_k.extents)
        for _ in range(12):
            row, k = rng.randrange(rows.size), rng.randrange(box_k.size)
            at = move.map.coordinates([0] * fixed + coordinates(rows, row) + coordinates(box_k, k))
            wanted = read_at(move, rows.size, deep, row, k)
            for tile_k in (0, 1):
                assert places(move, at, tile_k) == [wanted], (move, row, k)
    assert {w[:2] for w in ways} == {(False, True), (True, True), (True, False)}
    assert {w[2:] for w in ways} >= {(False, False), (True, False), (True, True)}


def test_parts_are_the_whole() -> None:
    for move, _, _, _ in moves():
        size = 1
        for b in part_box(move):
            size *= b
        parts = move.shared if move.divided is not None else 1
        assert size * parts * 2 == move.map.transaction_bytes


def test_clusters_cover_all_tiles() -> None:
    assert cluster_tiles(5, 3, (1, 1)) == 15
    assert cluster_tiles(5, 3, (2, 1)) == 9
    assert cluster_tiles(5, 3, (1, 2)) == 10
    assert cluster_tiles(5, 3, (2, 2)) == 6


def test_the_grid_is_whole_clusters() -> None:
    for plan, schedule in found():
        for shape in SHAPES:
            launch = render_kernel(plan, clustered(schedule, shape)).launches[0]
            assert launch.grid[0] % (shape[0] * shape[1]) == 0
            assert launch.grid[0] <= schedule.blocks


# Rows of 32 bytes: a block alone is bound by its way to L2.
EXTENTS = {"a": 7, "b": 256, "c": 64, "d": 5, "e": 16, "f": 84, "g": 32}
SHORT_RUNS = Case("short-runs", "abcde,fdbg->agfec", EXTENTS)


def test_the_search_shares_where_l2_is_short() -> None:
    plan = make_gemm_plan(SHORT_RUNS.contraction("float16"))
    best = sm90_candidates(plan, arch_facts("sm_90a"))[0]
    assert best.roles is not None
    assert best.roles.cluster != (1, 1)
    assert "shared by 2 blocks" in best.reason
    text = explain_gemm(plan, best)
    assert f"clusters of {best.roles.cluster[0]} x {best.roles.cluster[1]} blocks" in text
    assert ", shared by 2 blocks" in text


def test_the_search_leaves_matrices_alone() -> None:
    case = Case("matrices", "mk,kn->mn", {"m": 4096, "k": 4096, "n": 4096})
    best = sm90_candidates(make_gemm_plan(case.contraction("float16")), arch_facts("sm_90a"))[0]
    assert best.roles is not None
    assert best.roles.cluster == (1, 1)


def test_kernels_of_clusters_compile_without_spills(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    jobs = []
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        kinds: dict[tuple[object, ...], Schedule] = {}
        for s in sm90_candidates(plan, arch_facts("sm_90a"), 12):
            roles = s.roles
            assert roles is not None
            kinds.setdefault((roles.ping_pong, roles.d is None), s)
        for i, s in enumerate(kinds.values()):
            shape = SHAPES[(len(jobs) + i) % len(SHAPES)]
            jobs.append((shape, render_kernel(plan, clustered(s, shape))))
    assert {shape for shape, _ in jobs} == set(SHAPES)
    with ThreadPoolExecutor(2) as pool:
        cubins = list(pool.map(lambda job: compile_kernel(job[1].source, "sm_90a"), jobs))
    for (shape, kernel), cubin in zip(jobs, cubins, strict=True):
        assert f"__cluster_dims__({shape[0] * shape[1]}, 1, 1)" in kernel.source.text
        assert "gett::tma_load_multicast(" in kernel.source.text
        assert all(r.local_bytes == 0 for r in resources(cubin).values())


def test_alone_nothing_is_spread() -> None:
    plan, schedule = found()[0]
    text = render_kernel(plan, clustered(schedule, (1, 1))).source.text
    assert "tma_load_multicast" not in text
    assert "__cluster_dims__" not in text
    assert replace(clustered(schedule, (1, 1)), estimate_us=0.0) == clustered(clustered(schedule, (2, 2)), (1, 1))


def test_pieces_of_a_staged_tile_are_the_tile() -> None:
    """Together they cover the box once, in the order in which it lies in shared memory."""
    counts = set()
    for _, schedule in found():
        made = schedule.roles.d if schedule.roles is not None else None
        if made is None:
            continue
        box, pieces = store_pieces(made)
        counts.add(len(pieces) > made.slabs)
        at = 0
        covered = set()
        for start, first in pieces:
            assert start == at
            assert start % (8 * max(made.span, 16)) == 0
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
    assert counts == {False, True}
