"""Gathered pieces on the host: the kernel's own code brings k-tiles in, and wgmma's places hold what they should.

Crossed units above all, whose A is turned; plain pieces go the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.gather import CROSSED, gather_candidates
from gett.schedule.realize import realize
from gett.schedule.records import Gather, Schedule
from gett.tune.codec import decode, encode
from layouts.box import Box
from layouts.modes import Strided
from layouts.swizzle import swizzle_address
from tests import odd
from tests.cases import DENSE, Case
from tests.cpu.host_cuda import generated, includes, run_host

TILES = 0x40000
CASES = (
    *odd.TURNED,
    Case("turned-many", "lnim,kmjn->lkji", {"i": 23, "j": 11, "k": 9, "l": 7, "m": 41, "n": 55}),
    Case("plain-k", "ik,jk->ij", {"i": 101, "j": 77, "k": 199}),
    Case("plain-mn", "ki,kj->ij", {"i": 147, "j": 149, "k": 51}),
    Case("plain-few", "ik,jk->ij", {"i": 331, "j": 23, "k": 199}),
    Case("plain-short", "lki,kjl->ji", {"i": 25, "j": 335, "k": 51, "l": 11}),
)
PROGRAM = """
using namespace gett;
template <bool kIsA, class Mine> void bring(const Params& p, int m, int n, int l, int kt, uint32 tile) {
  static int table[1 << 16];
  const TileId id = {m, n, l, 0};
  const auto k = Index::k_tile(p, kt);
  const bool whole = Index::k_whole(p, k);
  for (int warp = 0; warp < Mine::kWarps; ++warp) {
    long long origin = 0;
    for (int lane = 0; lane < 32; ++lane) origin = Mine::tabulate(p, id, table, warp, lane);
    const char* from = Mine::base(p) + origin + (kIsA ? k.a : k.b) * 2;
    static Mine lanes[32];
    int top = 0;
    for (int lane = 0; lane < 32; ++lane) {
      lanes[lane].plan_loads(table, lane);
      top = max(top, lanes[lane].top_);
    }
    for (int lane = 0; lane < 32; ++lane) {
      lanes[lane].top_ = top;  // the warp's, as its lanes agree
      lanes[lane].load(from, Mine::end(p), 0, lane);
    }
    for (int lane = 0; lane < 32; ++lane) {
      Mine x;
      x.plan_stores(table, lane);
      x.store(p, k, whole, from, 0, tile, warp, lane);
    }
  }
}
template <bool kTurned, bool kIsA> struct Which { typedef GatherPieces<Traits, Index, kIsA> type; };
template <bool kIsA> struct Which<true, kIsA> { typedef TransposedPieces<Traits, Index, kIsA> type; };
typedef Which<(Traits::LoaderTraitsA::kTransposeK > 0), true>::type MineA;
typedef Which<(Traits::LoaderTraitsB::kTransposeK > 0), false>::type MineB;
int main() {
  Params p;
  if (fread(&p, sizeof p, 1, stdin) != 1) return 2;
  const int size_a = p.cosize_a, size_b = p.cosize_b;
  uint16 *a = (uint16*)malloc(size_a * 2), *b = (uint16*)malloc(size_b * 2);  // to the last byte
  if (fread(a, 2, size_a, stdin) != size_a || fread(b, 2, size_b, stdin) != size_b) return 3;
  p.a = (const half_t*)a;
  p.b = (const half_t*)b;
  int job[4];
  while (fread(job, sizeof job, 1, stdin) == 1) {
    memset(shared_memory, 0xee, sizeof shared_memory);
    int careful[2];  // copies of A and of B that asked where the tensor ends
    careful_copies = 0;
    bring<true, MineA>(p, job[0], job[1], job[2], job[3], TILES);
    careful[0] = careful_copies;
    bring<false, MineB>(p, job[0], job[1], job[2], job[3], TILES * 2);
    careful[1] = careful_copies - careful[0];
    fwrite(careful, 1, sizeof careful, stdout);
    fwrite(shared_memory + TILES, 1, TILES, stdout);
    fwrite(shared_memory + 2 * TILES, 1, TILES, stdout);
  }
  free(a);
  free(b);
}
""".replace("TILES", str(TILES))
ANSWER = np.dtype([("careful", np.int32, 2), ("tiles", np.uint8, (2, TILES))])


def of(case: Case, dtype: str = "float16") -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction(dtype))
    return plan, gather_candidates(plan, arch_facts("sm_90a"), 40)


def widths(s: Schedule) -> tuple[int, int]:
    """Elements of B's unit and of A's in a tile of crossed units; (0, 0) where they are not crossed."""
    assert s.roles is not None
    way = s.roles.gather_a
    return (way.wide, way.run) if way is not None and way.wide else (0, 0)


def kinds(found: list[Schedule]) -> list[Schedule]:
    """One schedule for each shape of K's box and assignment of roles."""
    out: dict[tuple[object, ...], Schedule] = {}
    for s in found:
        out.setdefault((widths(s), s.block[2], s.exchanged), s)
    return list(out.values())


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_k_tiles_lie_as_wgmma_reads_them(case: Case, tmp_path: Path) -> None:
    plan, found = of(case)
    assert found
    rng = np.random.default_rng(1)
    for s in kinds(found):
        assert s.roles is not None
        real = realize(plan, s)
        kernel = render_kernel(plan, s)
        headers = includes("core/index", "loader/gather_transpose", "ptx/tma", "scheduler/persistent")
        body = headers + generated(kernel) + PROGRAM
        sizes = {t: 1 + sum(x.strides[t] * (x.extent - 1) for g in groups(real) for x in g) // 2 for t in (A, B)}
        data = {t: rng.integers(1, 1 << 16, sizes[t], dtype=np.uint16) for t in (A, B)}
        last = (s.box_m.tiles - 1, s.box_n.tiles - 1, real.extent_l - 1)
        jobs = [(0, 0, 0, 0), (*last, 0), (*last, s.box_k.tiles - 1)]
        jobs += [(*last, k) for k in range(s.box_k.tiles) if ragged(s.box_k, k)][:3]
        sent = kernel.launches[0].params + data[A].tobytes() + data[B].tobytes()
        got = run_host(tmp_path, body, sent + np.array(jobs, np.int32).tobytes())
        for (m, n, l, k), answer in zip(jobs, np.frombuffer(got, ANSWER), strict=True):
            at_l = flat(tuple(x.extent for x in real.l), l)
            for t, side, tile, group, name in ((A, s.box_m, m, real.m, "a"), (B, s.box_n, n, real.n, "b")):
                shown, careful = answer["tiles"]["ab".index(name)], answer["careful"]["ab".index(name)]
                way = s.roles.way(name)
                assert isinstance(way, Gather)
                wrong = furthest = 0
                for row in range(side.size):
                    for depth in range(s.box_k.size):
                        at, at_k = side.coordinates(tile, row), s.box_k.coordinates(k, depth)
                        if at is None:
                            continue  # a row that nobody stores
                        wanted = 0
                        if at_k is not None:
                            where = (dot(at, group, t) + dot(at_k, real.k, t) + dot(at_l, real.l, t)) // 2
                            wanted, furthest = int(data[t][where]), max(furthest, where)
                        byte = read_at(way, side.size, s.box_k.size, row, depth)
                        wrong += int(shown[byte]) + 256 * int(shown[byte + 1]) != wanted
                assert not wrong, (s.block, s.box_k, name, wrong)
                if k == 0 and furthest + way.run + 8 <= sizes[t]:
                    assert not careful, "padding counts as the tensor's end"


def groups(plan: GemmPlan) -> tuple[tuple[Strided, ...], ...]:
    return plan.l, plan.m, plan.n, plan.k


def dot(at: Iterable[int], modes: tuple[Strided, ...], t: int) -> int:
    return sum(x * mode.strides[t] for x, mode in zip(at, modes, strict=True))


def flat(extents: tuple[int, ...], index: int) -> list[int]:
    out = []
    for e in extents:
        out.append(index % e)
        index //= e
    return out


def ragged(box: Box, tile: int) -> bool:
    return any(box.coordinates(tile, x) is None for x in range(box.size))


def read_at(way: Gather, rows: int, depth: int, row: int, k: int) -> int:
    """Byte of a tile from which wgmma takes an element (KERNELS.md: slabs, swizzled rows)."""
    span = way.span
    if way.major == "k":
        slab, inside, line, pitch = 2 * k // span, 2 * k % span, row, -(-rows // 8) * 8
    else:
        slab, inside, line, pitch = 2 * row // span, 2 * row % span, k, -(-depth // 8) * 8
    return slab * pitch * span + swizzle_address(span, line * span + inside)


def test_all_shapes_of_k_are_tried() -> None:
    found = {widths(s) for case in CASES for s in of(case)[1]}
    assert found - {(0, 0)} == set(CROSSED)


def test_only_crossed_units_are_turned() -> None:
    for case in CASES:
        assert {widths(s) != (0, 0) for s in of(case)[1]} == {case.name.startswith("turned")}


def test_schedules_survive_json() -> None:
    for case in CASES[:2]:
        for s in of(case)[1]:
            assert decode(Schedule, json.loads(json.dumps(encode(s)))) == s


def test_the_explanation_says_that_a_is_turned() -> None:
    plan, found = of(CASES[0])
    assert "side by side turned" in explain_gemm(plan, found[0])


def test_all_shapes_compile_without_spills() -> None:
    jobs = {}
    for case, dtype, c in ((CASES[2], "float16", None), (CASES[4], "bfloat16", None), (CASES[1], "float16", DENSE)):
        plan = make_gemm_plan(case.contraction(dtype, with_c=c))
        found = gather_candidates(plan, arch_facts("sm_90a"), 40)
        for s in kinds(found):
            if not s.exchanged:
                assert s.roles is not None
                jobs[widths(s), s.num_stages > 1, s.split_k > 1, c] = render_kernel(plan, s)
    assert {key[0] for key in jobs} == set(CROSSED)
    with ThreadPoolExecutor(2) as pool:
        for entries in pool.map(lambda k: resources(compile_kernel(k.source, "sm_90a")), jobs.values()):
            assert all(entry.local_bytes == 0 for entry in entries.values())
