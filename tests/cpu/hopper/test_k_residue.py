"""K residues: what the copies and the zeros leave in a stage is what wgmma must read; the boxes of K."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.tma import copies
from gett.hw.archs import arch_facts
from gett.hw.dtypes import wgmma_atom
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.hopper import row_bytes
from gett.schedule.search.hopper.boxes import residue_boxes
from gett.schedule.spec.hopper_needs import valid_k
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from layouts.swizzle import swizzle_address
from tests.by_hand import by_hand
from tests.cases import Case
from tests.cpu.host_cuda import includes, run_host
from tests.cpu.smem_places import mma_box, read_at
from tests.spec_parts import has_k_residue
from tests.specs import Spec, covering, specs, ss_schedules

FACTS = arch_facts("sm_90a")
Residue = tuple[str, int, int, int, int]
"""Major, swizzle, rows, k that copies write, and k of the block."""
UNWRITTEN = -7


def found() -> list[Spec]:
    """One kernel with a residue of every combination of parts."""
    out: dict[frozenset[str], Spec] = {}
    for spec in specs("k_residue"):
        out.setdefault(spec.parts, spec)
    return list(out.values())


def ways() -> list[Spec]:
    """One kernel of every combination of parts, and one of every way in which tensor maps bring residues."""
    of_loads = {tuple((load.major, load.run > 0, load.repeats > ()) for load in loads(x.schedule)): x for x in found()}
    return [*covering(found(), pairs=False), *of_loads.values()]


def loads(s: Schedule) -> tuple[Tma, Tma]:
    a, b = s.hopper.a.tma, s.hopper.b.tma
    assert a is not None
    assert b is not None
    return a, b


def sides(plan: GemmPlan, s: Schedule) -> list[tuple[int, Tma, Box, tuple[Any, ...]]]:
    a, b = loads(s)
    return [(A, a, mma_box(s), plan.m), (B, b, s.tiling.n, plan.n)]


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


def residue(load: Tma, box: Box, real: GemmPlan, deep: int) -> Residue:
    return load.major, load.map.swizzle_bytes, load.rows(box.size), valid_k(load, len(real.k)), deep


def fill(image: Any, load: Tma, first: tuple[int, ...], tile_k: int) -> None:
    """One k-tile as the copies of all blocks that share it leave it; elements by where they lie in memory, -1 zeros."""
    made = load.map
    for part in range(load.blocks):
        for copy in copies(load):
            whose = tile_k % load.blocks if copy.whose is None else copy.whose
            if load.blocks > 1 and load.divided is None and part != whose:
                continue
            at, start, box = list(copy.first), copy.start, load.box
            if load.divided is not None:
                at[load.divided] += part * copy.part_step
                start += part * copy.part_bytes
            assert start % (8 * made.swizzle_bytes) == 0, "a copy starts where the swizzle's pattern does"
            inside = np.indices(box).reshape(len(box), -1)
            there = inside + np.array([[x + f] for x, f in zip(at, first, strict=True)])
            ok = ((there >= 0) & (there < np.array([[e] for e in made.extents]))).all(axis=0)
            source = made.base_offset + (there * np.array([[s] for s in made.strides])).sum(axis=0)
            line, step = np.zeros(inside.shape[1], int), 1
            for x, b in zip(inside[1:], box[1:], strict=True):
                line += x * step
                step *= b
            byte = line * made.pitch + 2 * inside[0]
            if made.swizzle_bytes > 16:
                byte ^= ((byte >> 7) & (made.swizzle_bytes // 16 - 1)) << 4
            image[(start + byte) // 2] = np.where(ok, source, -1)


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, True])
def test_wgmma_reads_the_tile_and_zeros(every: bool, tmp_path: Path) -> None:
    """Two fills of a stage, at different tiles, after the zeros: every k of the block is there, in both operands."""
    rng = np.random.default_rng(4)
    kinds = set()
    chosen = [*found(), *by_hand(found())] if every else ways()
    tiles = [(lower_plan(x.plan, x.schedule.tiling), x.schedule) for x in chosen]
    wanted = {
        residue(load, box, real, s.tiling.shape[2]): None for real, s in tiles for _, load, box, _ in sides(real, s)
    }
    chunks = residue_chunks(tmp_path, list(wanted))
    for spec, (real, schedule) in zip(chosen, tiles, strict=True):
        box_k, deep = schedule.tiling.k, schedule.tiling.shape[2]
        for tensor, load, box, modes in sides(real, schedule):
            rows, kept = load.rows(box.size), valid_k(load, len(real.k))
            kinds.add((load.major, kept < deep, bool(load.run), bool(load.repeats), load.map.swizzle_bytes))
            room = -(-rows // 64) * 64 * row_bytes(load, deep, 2)
            image = np.full(room // 2, UNWRITTEN)
            zeroed = chunks[residue(load, box, real, deep)]
            assert len(set(zeroed)) == len(zeroed)
            for at in zeroed:
                assert at % 16 == 0
                image[at // 2 : at // 2 + 8] = -1
            for _ in range(2):
                tile, tile_k = int(rng.integers(box.tiles)), int(rng.integers(box_k.tiles))
                batch = [int(rng.integers(s.extent)) for s in real.l]
                origin = [*batch, *(box.coordinates(tile, 0) or ()), *(box_k.coordinates(tile_k, 0) or ())]
                fill(image, load, load.map.coordinates(origin), tile_k)
                for at in zeroed:
                    assert (image[at // 2 : at // 2 + 8] == -1).all(), "copies leave the zeros alone"
                strides = [s.strides[tensor] for s in (*real.l, *modes, *real.k)]
                for row in {0, box.size - 1, *map(int, rng.integers(box.size, size=4))}:
                    at_row = box.coordinates(tile, row)
                    got = image[read_at(load, rows, deep, row, np.arange(deep)) // 2]
                    for k in range(deep) if at_row is not None else ():
                        at_k = box_k.coordinates(tile_k, k)
                        if at_k is None:
                            assert k >= box_k.size
                            assert got[k] == -1, (spec, load, row, k)
                            continue
                        at = (*batch, *at_row, *at_k)
                        assert got[k] == sum(x * s for x, s in zip(at, strides, strict=True)), (spec, load, k)
    spans = {(major, span) for major, residue, _, _, span in kinds if residue}
    assert spans >= {("k", 32), ("k", 64), ("k", 128), ("mn", 16), ("mn", 32), ("mn", 64), ("mn", 128)}
    assert {("mn", run, many) for major, residue, run, many, _ in kinds if major == "mn" and residue} == {
        ("mn", run, many) for run in (False, True) for many in (False, True)
    }


def test_boxes_divide_k() -> None:
    for extents, lead in (((24,), 0), ((36,), None), ((84,), None), ((72, 2), 0), ((6, 14), None), ((8,), 0)):
        boxes = residue_boxes(extents, lead, 2, 16)
        assert boxes
        for box in boxes:
            assert box.size % wgmma_atom("float16").k
            assert box.tiles * box.size == math.prod(extents)
            assert lead is None or box.size % 8 == 0
    assert [b.size for b in residue_boxes((84,), None, 2, 16)] == [84, 42, 28, 14]
    assert not residue_boxes((64,), None, 2, 16)
    assert not residue_boxes((48,), 0, 2, 16), "full k-tiles divide it"
    assert not residue_boxes((23,), 0, 2, 16)
    assert not residue_boxes((7056,), None, 2, 16)


@pytest.mark.parametrize("k", [24, 32])
def test_residues_are_found_where_k_is_no_multiple_of_16(k: int) -> None:
    case = Case("products", "bki,cak->icba", {"b": 8, "i": 384, "c": 32, "a": 64, "k": k})
    schedules = ss_schedules(make_gemm_plan(case.contraction("float16")), FACTS)
    residues = [s for s in schedules if has_k_residue(s)]
    assert bool(residues) == (k % 16 != 0)
    if k == 24:  # one box holds it, and padding gains nothing
        assert len(residues) == len(schedules)
        assert all(s.tiling.shape[2] == 32 for s in residues)
    else:
        assert len(residues) < len(schedules), "full k-tiles are there to compare"


def test_the_swizzle_keeps_to_its_row() -> None:
    """Why the residue of a row stays where it is from fill to fill, and why whole rows need no swizzle."""
    for span in (16, 32, 64, 128):
        for row in range(64):
            line = {swizzle_address(span, row * span + x) // span for x in range(0, span, 16)}
            assert line == {row}
