"""K tails: what the copies and the zeros leave in a stage is what wgmma must read; the search; kernels that compile."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gett.codegen.stage_copies import LOOPED, copies, stage_copies

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.cluster import part_box
from gett.schedule.realize import realize
from gett.schedule.records import BulkMove, Schedule
from gett.schedule.sm90 import sm90_candidates
from gett.schedule.sm90_shape import STEP
from gett.schedule.tails import held, row_bytes, tail_boxes
from gett.tune.codec import decode, encode
from layouts.box import Box
from layouts.swizzle import swizzle_address
from tests.cases import Case
from tests.clusters import SHAPES, clustered
from tests.cpu.host_cuda import includes, run_host
from tests.cpu.test_cluster import read_at
from tests.tails import CASES, kind, tailed

FACTS = arch_facts("sm_90a")


@cache
def found() -> tuple[tuple[Case, GemmPlan, Schedule], ...]:
    """One schedule with a tail of every kind."""
    out: dict[tuple[object, ...], tuple[Case, GemmPlan, Schedule]] = {}
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        for s in tailed(plan, FACTS):
            out.setdefault(kind(s), (case, plan, s))
    return tuple(out.values())


def sides(plan: GemmPlan, s: Schedule) -> list[tuple[int, BulkMove, Box, tuple[Any, ...]]]:
    assert s.roles is not None
    assert s.roles.a is not None
    assert s.roles.b is not None
    return [(A, s.roles.a, s.box_m, plan.m), (B, s.roles.b, s.box_n, plan.n)]


Residue = tuple[str, int, int, int, int]
"""Major, span, rows, k that copies write, and k of the block."""


PROGRAM = """
template <int Span, bool MajorK> struct Tile {
  static constexpr int kSwizzleBytes = Span;
  static constexpr bool kMajorK = MajorK;
};
template <class T> void show() {
  for (int i = 0; i < T::kCount; ++i) printf("%d ", T::at(i));
  puts("");
}
int main() {
CALLS}
"""


def residue_chunks(tmp: Path, wanted: Sequence[Residue]) -> dict[Residue, list[int]]:
    """Bytes of a tile at which `KResidue` zeros a chunk, by kind of tile: the kernel's own code, run on the host."""
    calls = "".join(
        f"  show<gett::KResidue<Tile<{span}, {int(major == 'k')}>, {rows}, {kept}, {deep}, 2>>();\n"
        for major, span, rows, kept, deep in wanted
    )
    out = run_host(tmp, includes("loader/k_residue") + PROGRAM.replace("CALLS", calls)).decode()
    lines = out.splitlines()
    assert len(lines) == len(wanted)
    return {kind: [int(x) for x in line.split()] for kind, line in zip(wanted, lines, strict=True)}


def residue(move: BulkMove, box: Box, real: GemmPlan, deep: int) -> Residue:
    return move.major, move.map.span, rows_of(move, box.size), held(move, len(real.k)), deep


def rows_of(move: BulkMove, size: int) -> int:
    return size // move.run * (move.map.span // 2) if move.run else size


def fill(image: Any, move: BulkMove, first: tuple[int, ...], tile_k: int) -> None:
    """One k-tile as the copies of all blocks that share it leave it; elements by where they lie in memory, -1 zeros."""
    made = move.map
    for part in range(move.shared):
        for copy in copies(move):
            whose = tile_k % move.shared if copy.whose is None else copy.whose
            if move.shared > 1 and move.divided is None and part != whose:
                continue
            at, start, box = list(copy.first), copy.start, part_box(move)
            if move.divided is not None:
                at[move.divided] += part * copy.part_step
                start += part * copy.part_bytes
            assert start % (8 * made.span) == 0, "a copy starts where the swizzle's pattern does"
            inside = np.indices(box).reshape(len(box), -1)
            there = inside + np.array([[x + f] for x, f in zip(at, first, strict=True)])
            ok = ((there >= 0) & (there < np.array([[e] for e in made.extents]))).all(axis=0)
            source = made.base_offset + (there * np.array([[s] for s in made.strides])).sum(axis=0)
            line, step = np.zeros(inside.shape[1], int), 1
            for x, b in zip(inside[1:], box[1:], strict=True):
                line += x * step
                step *= b
            byte = line * made.pitch + 2 * inside[0]
            if made.span > 16:
                byte ^= ((byte >> 7) & (made.span // 16 - 1)) << 4
            image[(start + byte) // 2] = np.where(ok, source, -1)


UNWRITTEN = -7


def test_wgmma_reads_the_tile_and_zeros(tmp_path: Path) -> None:
    """Two fills of a stage, at different tiles, after the zeros: every k of the block is there, in both operands."""
    rng = np.random.default_rng(4)
    majors = set()
    clusters = [(case, plan, clustered(s, shape)) for case, plan, s in found() for shape in ((1, 1), *SHAPES)]
    tiles = [(real, s, move, box) for _, plan, s in clusters for real in [realize(plan, s)]
             for _, move, box, _ in sides(real, s)]  # fmt: skip
    wanted = {residue(move, box, real, s.block[2]): None for real, s, move, box in tiles}
    chunks = residue_chunks(tmp_path, list(wanted))
    for case, plan, schedule in clusters:
        real, deep = realize(plan, schedule), schedule.block[2]
        for tensor, move, box, modes in sides(real, schedule):
            rows, kept = rows_of(move, box.size), held(move, len(real.k))
            majors.add((move.major, kept < deep, bool(move.run), bool(move.repeats), move.map.span))
            room = -(-rows // 64) * 64 * row_bytes(move, deep, 2)
            image = np.full(room // 2, UNWRITTEN)
            zeroed = chunks[residue(move, box, real, deep)]
            assert len(set(zeroed)) == len(zeroed)
            for at in zeroed:
                assert at % 16 == 0
                image[at // 2 : at // 2 + 8] = -1
            before = image.copy()
            for _ in range(2):
                tile, tile_k = int(rng.integers(box.tiles)), int(rng.integers(schedule.box_k.tiles))
                batch = [int(rng.integers(s.extent)) for s in real.l]
                origin = [*batch, *(box.coordinates(tile, 0) or ()), *(schedule.box_k.coordinates(tile_k, 0) or ())]
                fill(image, move, move.map.coordinates(origin), tile_k)
                # The copies leave the zeros alone.
                for at in zeroed:
                    assert (image[at // 2 : at // 2 + 8] == -1).all()
                assert (before[image == UNWRITTEN] == UNWRITTEN).all()
                strides = [s.strides[tensor] for s in (*real.l, *modes, *real.k)]
                for row in {0, box.size - 1, *map(int, rng.integers(box.size, size=24))}:
                    at_row = box.coordinates(tile, row)
                    got = image[[read_at(move, rows, deep, row, k) // 2 for k in range(deep)]]
                    for k in range(deep) if at_row is not None else ():
                        at_k = schedule.box_k.coordinates(tile_k, k)
                        if at_k is None:
                            assert k >= schedule.box_k.size
                            assert got[k] == -1, (case.name, move, row, k)
                            continue
                        at = (*batch, *at_row, *at_k)
                        assert got[k] == sum(x * s for x, s in zip(at, strides, strict=True)), (case.name, move, k)
    spans = {(major, span) for major, tail, _, _, span in majors if tail}
    assert spans >= {("k", 32), ("k", 64), ("k", 128), ("mn", 16), ("mn", 32), ("mn", 64), ("mn", 128)}
    assert {("mn", run, many) for major, tail, run, many, _ in majors if major == "mn" and tail} == {
        ("mn", run, many) for run in (False, True) for many in (False, True)
    }
    assert any(major == "mn" and not tail for major, tail, *_ in majors), "copies that bring the zeros themselves"


def test_the_barrier_counts_what_exists() -> None:
    for _, plan, s in found():
        for _, move, box, _ in sides(realize(plan, s), s):
            assert move.map.transaction_bytes * move.copies == 2 * box.size * held(move, len(plan.k))


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


def test_many_copies_are_a_loop() -> None:
    loops = set()
    for _, plan, alone in found():
        for shape in ((1, 1), *SHAPES):
            s = clustered(alone, shape)
            for _, move, _, _ in sides(realize(plan, s), s):
                lines = stage_copies("b", move)
                looped = any("for (int" in x for x in lines)
                loops.add((looped, move.shared > 1))
                assert looped == (move.copies > LOOPED and bool(move.repeats))
                for part, tile_k in ((0, 0), (1, 0), (0, 1)) if move.shared > 1 else ((0, 3),):
                    wanted = []
                    for c in copies(move):
                        first, start = list(c.first), c.start
                        if move.divided is not None:
                            first[move.divided] += part * c.part_step
                            start += part * c.part_bytes
                        elif move.shared > 1 and part != (tile_k % move.shared if c.whose is None else c.whose):
                            continue
                        wanted.append((start, tuple(first)))
                    assert run_copies(lines, part, tile_k) == wanted
    assert loops == {(x, y) for x in (False, True) for y in (False, True)}


def test_boxes_divide_k() -> None:
    for extents, lead in (((24,), 0), ((36,), None), ((84,), None), ((72, 2), 0), ((6, 14), None), ((8,), 0)):
        boxes = tail_boxes(extents, lead, 2)
        assert boxes
        for box in boxes:
            assert box.size % STEP
            assert box.tiles * box.size == math.prod(extents)
            assert lead is None or box.size % 8 == 0
    assert [b.size for b in tail_boxes((84,), None, 2)] == [84, 42, 28, 14]
    assert not tail_boxes((64,), None, 2)
    assert not tail_boxes((48,), 0, 2), "full k-tiles divide it"
    assert not tail_boxes((23,), 0, 2)
    assert not tail_boxes((7056,), None, 2)


@pytest.mark.parametrize("k", [24, 32])
def test_tails_are_found_where_k_is_no_multiple_of_16(k: int) -> None:
    case = Case("products", "bki,cak->icba", {"b": 8, "i": 384, "c": 32, "a": 64, "k": k})
    plan = make_gemm_plan(case.contraction("float16"))
    schedules = sm90_candidates(plan, FACTS, 12)
    tails = [s for s in schedules if s.box_k.size < s.block[2]]
    assert bool(tails) == (k % 16 != 0)
    assert len(tails) < len(schedules), "the plain way is there to compare"
    for s in tails:
        assert s.block[2] == 32
        assert json.loads(json.dumps(encode(s))) == encode(decode(Schedule, encode(s)))
        assert decode(Schedule, encode(s)) == s
        assert "24 of 32 in the tile" in explain_gemm(plan, s)


def test_kernels_compile_without_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    every = found()[:: len(found()) // 10]
    kernels = [render_kernel(plan, s) for _, plan, s in every]
    kernels += [render_kernel(plan, clustered(s, shape)) for _, plan, s in every[:1] for shape in SHAPES]
    with ThreadPoolExecutor(2) as pool:
        for cubin in pool.map(lambda k: compile_kernel(k.source, "sm_90a"), kernels):
            assert all(r.local_bytes == 0 for r in resources(cubin).values())


def test_the_swizzle_keeps_to_its_row() -> None:
    """Why the tail of a row stays where it is from fill to fill, and why whole rows need no swizzle."""
    for span in (16, 32, 64, 128):
        for row in range(64):
            line = {swizzle_address(span, row * span + x) // span for x in range(0, span, 16)}
            assert line == {row}
