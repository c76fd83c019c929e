"""D row by row: which tiles have rows, and the kernel's own code on the host, byte for byte and chunk for chunk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from gett.codegen.common import store_order
from gett.codegen.render import render_kernel
from gett.codegen.tiles import d_unpack
from gett.hw.archs import arch_facts
from gett.ir.gemm import D, GemmPlan, make_gemm_plan
from gett.schedule.cost.staging import SHORTEST_ROW, row_length
from gett.schedule.lower import lower_plan
from gett.schedule.spec.epilogue import RowStore, TmaStore, VectorStore
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box, TileDim
from tests.cases import DENSE, Case
from tests.cpu.host_cuda import generated, includes, run_host
from tests.cpu.walk import element_offsets
from tests.specs import FAMILIES, Spec, few_specs, gather_schedules, specs

NAMES = ("row_store", "row_store_maps", "row_store_rs")
CASES = [case for name in NAMES for case, _ in FAMILIES[name].cases]
PROGRAM = """
#include <vector>
using namespace gett;
int main() {
  Params p;
  int head[5];  // tile of m, n, l; elements of D; half-words that D starts after an aligned address
  if (fread(&p, sizeof p, 1, stdin) != 1 || fread(head, sizeof head, 1, stdin) != 1) return 2;
  fread(shared_memory, 2, STAGED, stdin);
  auto m = Index::m_tile(p, head[0]);
  m.d += Index::l_tile(p, head[2]).d;
  const auto n = Index::n_tile(p, head[1]);
  static long long table[EpilogueOffsets<EpilogueTraits>::kBytes / 8];
  const EpilogueOffsets<EpilogueTraits> at((char*)table);
  at.fill<Index, StagedTile<EpilogueTraits>>(p, m, n, 0, 1);
  uint16* const buffer = (uint16*)aligned_alloc(16, (head[3] + head[4] + 7) / 8 * 16);
  memset(buffer, 0, (head[3] + head[4]) * 2);
  p.d = (EpilogueTraits::ElementD*)(buffer + head[4]);
  const int length = min(EpilogueTraits::kRowLengthD, Index::d_remaining(p, head[0], head[1]));
  typedef RowShares<EpilogueTraits, THREADS> Shares;
  for (int first = 0; first < Shares::kRows; first += Shares::kPerWarp) {  // a warp after the other
    std::vector<RowPlace> rows;
    for (int lane = 0; lane < 32; ++lane) {
      const bool inside = lane < Shares::kPerWarp && first + lane < Shares::kRows;
      rows.push_back(row_place<EpilogueTraits, Index>(p, at, first + lane, length, inside));
    }
    for (int lane = 0; lane < 32; ++lane) {
      store_chunks<Shares>(0, [&](int i) { return rows.at(i); }, lane);
      store_ends<Shares>(0, [&](int i) { return rows.at(i); }, lane);
    }
  }
  fwrite(buffer + head[4], 2, head[3], stdout);
  free(buffer);
}
"""


def store_of(s: Schedule) -> RowStore:
    assert isinstance(s.epilogue.store, RowStore)
    return s.epilogue.store


def kinds(found: Iterable[Spec]) -> list[Spec]:
    """One kernel for each length of rows and assignment of roles, three at most."""
    out: dict[tuple[object, ...], Spec] = {}
    for spec in found:
        out.setdefault((store_of(spec.schedule).run, spec.schedule.tiling.swap_ab), spec)
    return list(out.values())[:3]


def of(case: Case) -> list[Spec]:
    names = [name for name in NAMES if case in [x for x, _ in FAMILIES[name].cases]]
    return kinds(spec for name in names for spec in specs(name) if spec.case == case)


@pytest.mark.parametrize(
    ("case", "most"),
    [
        (CASES[0], 1),
        *(pytest.param(c, 3, marks=pytest.mark.slow) for c in CASES),
    ],
    ids=str,
)
def test_every_element_of_d_is_stored_once_where_it_belongs(case: Case, most: int, tmp_path: Path) -> None:
    found = of(case)[:most] if most > 1 else few_specs(NAMES[0])[:1]
    assert found
    rng = np.random.default_rng(2)
    for spec in found:
        s, store, t = spec.schedule, store_of(spec.schedule), spec.schedule.tiling
        real = lower_plan(spec.plan, t)
        kernel = render_kernel(spec.plan, s)
        threads = 128 * (1 if s.hopper.ping_pong else s.hopper.warpgroups)
        program = PROGRAM.replace("STAGED", str(store.stage.elements)).replace("THREADS", str(threads))
        body = includes("epilogue/row_store", "ptx/tma", "scheduler/persistent") + generated(kernel) + program
        size = 1 + sum(x.strides[D] * (x.extent - 1) for g in (real.l, real.m, real.n) for x in g) // 2
        staged = rng.integers(1, 1 << 16, store.stage.elements, dtype=np.uint16)
        last = (t.m.tiles - 1, t.n.tiles - 1, real.extent_l - 1)
        unpack = d_unpack({"m": t.m, "n": t.n}, store_order(real, s), {"m": store.stage.m, "n": store.stage.n})
        for tile, start in ((last, 0), ((0, 0, 0), 3), (last, 6)):
            head = np.array([*tile, size, start], np.int32)
            sent = kernel.launches[0].params + head.tobytes() + staged.tobytes()
            got = np.frombuffer(run_host(tmp_path, body, sent), np.uint16)
            wanted = np.zeros(size, np.uint16)
            at_l, rest = 0, tile[2]
            for x in real.l:
                at_l, rest = at_l + rest % x.extent * x.strides[D], rest // x.extent
            place = unpack.evaluate(i=np.arange(t.m.size * t.n.size))
            m = element_offsets(t.m, tile[0], real.m, D, 2)[place["m"]]
            n = element_offsets(t.n, tile[1], real.n, D, 2)[place["n"]]
            inside = (m >= 0) & (n >= 0)
            wanted[at_l // 2 + (m + n)[inside]] = staged[place["at"][inside]]
            np.testing.assert_array_equal(got, wanted)
            assert wanted.any()


@pytest.mark.slow
def test_rows_of_all_lengths_are_tried() -> None:
    lengths = {store_of(spec.schedule).run for case in CASES for spec in of(case)}
    for low, high in ((SHORTEST_ROW, 71), (72, 135), (136, 256)):  # eight, sixteen and all lanes of a warp a row
        assert any(low <= x <= high for x in lengths), sorted(lengths)


def test_a_row_is_what_lies_together_in_d() -> None:
    plan = make_gemm_plan(Case("x", "ak,kcb->abc", {"a": 33, "b": 35, "c": 37, "k": 11}).contraction("float16"))
    strides = [x.strides[D] for x in plan.n]
    c = strides.index(2)

    def row(of: GemmPlan, box_n: Box) -> int:
        return row_length(of.contraction, ((of.m, Box((33,), (TileDim((0,), 33),))), (of.n, box_n)))

    assert row(plan, Box((35, 37), (TileDim((c,), 36), TileDim((1 - c,), 4)))) == 36
    assert row(plan, Box((35, 37), (TileDim((c, 1 - c), 64),))) == 64
    assert row(plan, Box((35, 37), (TileDim((1 - c, c), 64),))) == 0
    assert row(plan, Box((35, 37), (TileDim((c,), 8), TileDim((1 - c,), 8)))) == 0
    added = make_gemm_plan(Case("x", "ik,kj->ij", {"i": 33, "j": 35, "k": 11}).contraction("float16", with_c=DENSE))
    assert row(added, Box((35,), (TileDim((0,), 32),))) == 0


@pytest.mark.slow
def test_rows_are_stored_wherever_a_tile_has_them() -> None:
    """Where neither a tensor map nor wide vectors can, and no slices of K are summed."""
    stores = set()
    for case, _ in FAMILIES["row_store"].cases:
        plan = make_gemm_plan(case.contraction("float16"))
        for s in gather_schedules(plan, arch_facts("sm_90a"), 40):
            store = s.epilogue.store
            real = lower_plan(plan, s.tiling)
            row = row_length(real.contraction, ((real.m, s.tiling.m), (real.n, s.tiling.n)))
            by_rows = bool(row) and s.split_k == 1 and not isinstance(store, TmaStore) and store.vector == 1
            assert isinstance(store, RowStore) == by_rows
            assert not by_rows or store_of(s).run == row
            stores.add(type(store))
    assert stores >= {RowStore, VectorStore}
