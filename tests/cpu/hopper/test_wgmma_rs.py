"""wgmma with A in registers: which contractions get it, where fragments read A and B, and who shares an operand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.wgmma_rs import k_tile
from gett.schedule.rules.rule import Lowered
from gett.schedule.search.select import candidates
from gett.schedule.search.tried import RS
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from layouts.tma import TmaMap
from tests.cases import DENSE, Case, tccg
from tests.cpu.host_cuda import includes, run_host
from tests.cpu.smem_places import coordinates
from tests.sampling import slow_but
from tests.spec_cases import RS_BATCHED, RS_GAPS, RS_LONG, RS_MANY, RS_RAGGED, RS_WIDER
from tests.specs import few_specs, rs_schedules, specs

FACTS = arch_facts("sm_90a")
DEPTHS = {*RS.two_leads}
ALONE, SHARED_A, SHARED_B = (1, 1), (1, 2), (2, 1)


def of(case: Case) -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction("float16"))
    return plan, rs_schedules(plan, FACTS, 400)


def loop_of(s: Schedule) -> WgmmaRS:
    assert isinstance(s.mainloop, WgmmaRS)
    return s.mainloop


def shape(s: Schedule) -> tuple[int, int]:
    """K of A's rows and of B's in a k-tile."""
    return loop_of(s).a.map.swizzle_bytes // 2, loop_of(s).b.map.swizzle_bytes // 2


def test_only_operands_whose_rows_run_along_two_contracted_modes_get_it() -> None:
    for case in tccg():
        plan, found = of(case)
        assert bool(found) == (case.name in ("ijkl-minl-njmk", "ij-kil-lkj")), case.name
        if found:
            in_place = next(s for s in candidates(plan, "sm_90a") if s.packing is None)
            assert in_place.mainloop == found[0].mainloop


@pytest.mark.slow
def test_the_catalogue_has_every_way() -> None:
    found = [spec.schedule for f in ("wgmma_rs", "wgmma_rs_source") for spec in specs(f)]
    parts = frozenset().union(*(spec.parts for f in ("wgmma_rs", "wgmma_rs_source") for spec in specs(f)))
    assert {shape(s) for s in found} == DEPTHS
    assert {s.cluster for s in found} == {ALONE, SHARED_A, SHARED_B}
    assert parts >= {"split-K", "TmaStore", "VectorStore", "A per warpgroup", "A for both warpgroups", "VectorSource"}
    assert any(s.split_k == 1 for s in found)


@pytest.mark.parametrize("case", [RS_LONG, RS_RAGGED, RS_BATCHED, RS_WIDER], ids=repr)
def test_fragments_read_where_the_copies_write(case: Case) -> None:
    """The kernel's address arithmetic against the images that the tensor maps make."""
    rng = random.Random(3)
    plan, found = of(case)
    assert {shape(s) for s in found} == DEPTHS
    for s in found:
        real, loop, t = lower_plan(plan, s.tiling), loop_of(s), s.tiling
        depth, width = shape(s)
        whole = list(loop.a.map.box)
        for dim, _, count in loop.a.repeats:
            whole[dim] *= count
        image = replace(loop.a.map, box=tuple(whole))
        part = width // s.cluster[1]  # of k2 that a block fetches itself
        for _ in range(40):
            row, column, k1, k2 = (rng.randrange(x) for x in (t.m.size, t.n.size, depth, part))
            at = row * part * 2 * depth + k2 * 2 * depth
            assert image.smem_offset(place(real, s, row, k1, k2, "m")) == swizzled(at, k1, image), (row, k1, k2)
            slab = loop.b.map
            assert slab.smem_offset(place(real, s, column, 0, k2, "n")) == swizzled(column * 2 * width, k2, slab)
        rows = math.prod(whole[2:])
        assert rows == t.m.size
        assert loop.a.bytes == t.m.size * depth * part * 2
        assert loop.a.pitch * loop.a.copies in (0, t.m.size * depth * part * 2)


def test_blocks_that_share_an_operand_fetch_all_of_it_once() -> None:
    """A in halves of k2, each sent on in whole rows; B slab by slab in turns; and no half reads past K's end."""
    plan, found = of(RS_WIDER)
    assert {s.cluster for s in found} == {ALONE, SHARED_A, SHARED_B}
    for s in found:
        loop, text = loop_of(s), render_kernel(plan, s).source.text
        assert ("tma_load_multicast(to, &p.map_b, bar, 3, " in text) == (s.cluster == SHARED_B)
        if s.cluster != SHARED_A:
            assert "+ rank * " not in text
            continue
        assert s.split_k > 1
        assert loop.per_warpgroup_a
        real, half = lower_plan(plan, s.tiling), shape(s)[1] // 2
        unit = len(real.l) + len(real.m) + loop.unit_b
        assert f" + rank * {loop.a.map.modes[unit].weight * half}," in text
        assert loop.a.map.transaction_bytes % (shape(s)[0] * half * 2) == 0
        extent = real.k[loop.unit_b].extent
        for past in range(extent, -(-extent // (2 * half)) * 2 * half):
            coords = [0] * len(loop.a.map.modes)
            coords[unit] = past
            assert loop.a.map.element_offset(coords) is None


@pytest.mark.parametrize("case", [RS_WIDER, RS_MANY, RS_GAPS], ids=repr)
def test_a_comes_by_warpgroup_where_its_pieces_do(case: Case) -> None:
    """Half of the pieces bring a warpgroup's rows and no other; the barriers count all of their bytes."""
    plan, found = of(case)
    assert {loop_of(s).per_warpgroup_a for s in found} == {True, False}
    for s in found:
        loop, t, stage = loop_of(s), s.tiling, s.epilogue.store.stage
        if not loop.per_warpgroup_a:
            continue
        assert stage is not None
        assert t.shape[0] == 64 * loop.warpgroups
        share = t.m.size // loop.warpgroups
        assert share == 64 or (case is RS_GAPS and s.split_k == 1 and stage.copy.kind not in ("stsm_t", "vec_m"))
        if share < 64:
            text = render_kernel(plan, s).source.text
            assert f"kGroupValidRows = {share};" in text
            assert "kGroupRows = 64;" in text
        assert loop.a.copies % loop.warpgroups == 0
        ((dim, step, count),) = loop.a.repeats
        assert all(b == 1 for b in loop.a.map.box[dim + 1 :])
        rows = math.prod(loop.a.map.box[2:])
        assert rows * (count // loop.warpgroups) == share
        assert step == loop.a.map.box[dim]
        assert loop.a.pitch == rows * shape(s)[0] * shape(s)[1] * 2 // s.cluster[1]
        assert loop.a.map.transaction_bytes == loop.a.pitch  # no padding between pieces


def place(plan: GemmPlan, s: Schedule, local: int, k1: int, k2: int, side: str) -> list[int]:
    """Coordinate in an operand's modes l, m (n), k of a row and a pair of k, relative to the tile."""
    k = [0] * len(plan.k)
    k[loop_of(s).unit_a], k[loop_of(s).unit_b] = k1, k2
    return [0] * len(plan.l) + coordinates(s.tiling.m if side == "m" else s.tiling.n, local) + k


def swizzled(at: int, element: int, made: TmaMap) -> int:
    """As the kernel has it: the row's start swizzled, then the vector's place in the row exchanged by XOR."""
    start = at ^ ((at >> 3) & ((made.swizzle_bytes // 16 - 1) * 16))
    return (start ^ (element // 8 * 16)) + element % 8 * 2


@pytest.mark.parametrize("extent", [40, 48])
def test_slabs_past_the_end_of_k1_are_refused_where_they_would_read_on(extent: int) -> None:
    """A slab of k1 past the end must read zeros: where k1 shares a dimension of the map, its extent must divide."""
    plan, found = of(replace(RS_RAGGED, extents={**RS_RAGGED.extents, "m": extent, "n": 40}))
    assert found
    for s in found:
        real, loop = lower_plan(plan, s.tiling), loop_of(s)
        depth = shape(s)[0]
        made, mode = loop.b.map, len(real.l) + len(real.n) + loop.unit_a
        k1 = real.k[loop.unit_a].extent
        for past in range(k1, -(-k1 // depth) * depth):
            coords = [0] * len(made.modes)
            coords[mode] = past
            assert made.element_offset(coords) is None


@pytest.mark.slow
def test_wide_tiles_that_add_c_have_registers_enough() -> None:
    """Registers are scarcest there; `compile_kernel` refuses spills."""
    plan = make_gemm_plan(RS_MANY.contraction("float16", with_c=DENSE))
    wide = [s for s in rs_schedules(plan, FACTS, 400) if s.tiling.shape[1] >= 192]
    firsts = {(s.tiling.shape[1], s.tiling.n.dims[0].box % 8 == 0): s for s in reversed(wide)}
    assert firsts
    for s in firsts.values():
        compile_kernel(render_kernel(plan, s).source, "sm_90a")


WORDS = """
using namespace gett;
int main() {
  typedef WgmmaRSWords<SWIZZLE, HALVES, FORWARD> Fragments;
  constexpr int kBatches = SWIZZLE / 4 / Fragments::kSteps;
  const int size = 2 * Fragments::kGroupBytes;
  if (fread(shared_memory, 1, size, stdin) != size) return 4;
  for (int thread = 0; thread < 256; ++thread) {
    Fragments a(thread / 128, thread % 128);
    for (int part = 0; part < 2 * kBatches; ++part) {
      if (part % 2 == 0) a.load(0, part / 2, true);
      if (FORWARD) a.select(part % 2);
      for (int s = 0; s < Fragments::kPart; ++s)
        for (int h = 0; h < HALVES; ++h)
          for (int q = 0; q < 4; ++q) {
            const uint32 x = a.at(s, h, q);
            fwrite(&x, 4, 1, stdout);
          }
      if (!FORWARD && part % 2 == 0) a.advance();
    }
  }
  fwrite(vector_loads, 4, vector_load_count, stdout);
}
"""


@pytest.mark.parametrize(
    ("depth", "width", "forward"), slow_but([(16, 16, 0), (8, 16, 0), (16, 8, 0), (16, 16, 1)], [(16, 16, 1)])
)
def test_words_of_a_are_those_that_wgmma_takes(depth: int, width: int, forward: int, tmp_path: Path) -> None:
    """In order of k1, eight k2 each; no two of eight lanes that are served together meet in a bank."""
    halves, pitch = width // 8, depth * 4
    row, k2, k1 = np.meshgrid(np.arange(128), np.arange(width), np.arange(depth), indexing="ij")
    place = (row * width + k2) * pitch + k1 * 4
    if forward:  # the first eight k2 of all rows of a warpgroup come before the second ones
        place = ((row // 64 * 2 + k2 // 8) * 64 + row % 64) * 8 * pitch + k2 % 8 * pitch + k1 * 4
    place ^= (place >> 7 & pitch // 16 - 1) << 4
    stage = np.zeros(place.size, np.uint32)
    stage[place // 4] = (row * width + k2) * depth + k1
    text = WORDS.replace("SWIZZLE", str(pitch)).replace("HALVES", str(halves)).replace("FORWARD", str(forward))
    headers = includes("core/index", "mainloop/wgmma_rs_fragment")
    output = np.frombuffer(run_host(tmp_path, headers + text, stage.tobytes()), np.uint32)
    found = output[: 256 * depth * halves * 4].reshape(256, depth, halves, 4)
    thread = np.arange(256)[:, None, None, None]
    k, h, q = np.arange(depth)[:, None, None], np.arange(halves)[:, None], np.arange(4)
    of_row = thread // 128 * 64 + thread % 128 // 32 * 16 + thread % 32 // 4 + q % 2 * 8
    of_k2 = h * 8 + thread % 4 + q // 2 * 4
    np.testing.assert_array_equal(found, (of_row * width + of_k2) * depth + k)
    loads = output[found.size :].reshape(256, -1).T.reshape(-1, 8)
    chunks = np.sort(loads // 16 % 8, axis=1)
    assert (chunks == np.arange(8)).all()


def with_k_tile(s: Schedule, plan: GemmPlan, depth: int, width: int) -> Schedule:
    """The schedule with k-tiles of other depths; nothing else is made to fit."""
    loop, t = loop_of(s), s.tiling
    box = Box.of_cuts(t.k.extents, {loop.unit_a: depth, loop.unit_b: width})
    return replace(s, tiling=replace(t, k=box, shape=(*t.shape[:2], box.size)))


@pytest.mark.parametrize(("depth", "width", "reason"), [(8, 8, "are 8 instructions"), (16, 32, "each is 8 or 16")])
def test_k_tiles_of_words_are_whole_batches(depth: int, width: int, reason: str) -> None:
    spec = few_specs("tf32_rs")[0]
    made = with_k_tile(spec.schedule, spec.plan, depth, width)
    found = next(k_tile(Lowered(made, lower_plan(spec.plan, made.tiling), FACTS)), "")
    assert reason in found
    assert not list(k_tile(Lowered(spec.schedule, lower_plan(spec.plan, spec.schedule.tiling), FACTS)))


@pytest.mark.slow
def test_words_get_it_where_rows_run_along_two_contracted_modes() -> None:
    for case in tccg():
        plan = make_gemm_plan(case.contraction("float32", precision="tf32"))
        found = candidates(plan, "sm_90a")
        kinds = {s.kind for s in found}
        assert ("wgmma rs" in kinds) == (case.name in ("ijkl-minl-njmk", "ij-kil-lkj")), case.name
        if "wgmma rs" in kinds:
            assert found[0].kind == ("wgmma rs" if case.name == "ij-kil-lkj" else "packed wgmma ss")
            best = next(s for s in found if s.kind == "wgmma rs")
            assert compile_kernel(render_kernel(plan, best).source, "sm_90a")
