"""D row by row: which tiles have rows, and the kernel's own code on the host, byte for byte and chunk for chunk."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gett.codegen.render_common import store_order

from gett.api.explain import explain_gemm
from gett.codegen.render import render_kernel
from gett.codegen.tiles import d_unpack
from gett.hw.archs import arch_facts
from gett.ir.gemm import D, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel, resources
from gett.schedule.gather import gather_candidates
from gett.schedule.realize import realize
from gett.schedule.records import Schedule
from gett.schedule.rows import SHORTEST, row_length
from gett.tune.codec import decode, encode
from layouts.box import Box, TileDim
from tests.cases import DENSE, Case
from tests.cpu.host_cuda import generated, includes, run_host
from tests.odd import ROWS

CASES = (
    *ROWS,
    Case("rows-turned", "lnim,kmjn->lkji", {"i": 71, "j": 41, "k": 29, "l": 27, "m": 41, "n": 55}),
)
PROGRAM = """
using namespace gett;
int main() {
  Params p;
  int head[6];  // tile of m, n, l; threads; elements of D; half-words that D starts after an aligned address
  if (fread(&p, sizeof p, 1, stdin) != 1 || fread(head, sizeof head, 1, stdin) != 1) return 2;
  fread(shared_memory, 2, STAGED, stdin);
  const auto m = Index::m_tile(p, head[0]);
  const auto n = Index::n_tile(p, head[1]);
  static long long table[EpilogueOffsets<Traits>::kBytes / 8];
  const EpilogueOffsets<Traits> at = {table};
  at.fill<Index>(p, m, n, 0, 1);
  uint16* const buffer = (uint16*)aligned_alloc(16, (head[4] + head[5] + 7) / 8 * 16);
  memset(buffer, 0, (head[4] + head[5]) * 2);
  half_t* const d = (half_t*)(buffer + head[5]) + Index::l_tile(p, head[2]).d;
  const int length = min(Traits::kRowLengthD, Index::d_remaining(p, head[0], head[1]));
  for (int t = 0; t < head[3]; ++t) store_rows<Traits, Index>(p, d, at, 0, length, t, head[3]);
  fwrite(buffer + head[5], 2, head[4], stdout);
  free(buffer);
}
"""


def of(case: Case, dtype: str = "float16") -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction(dtype))
    found = gather_candidates(plan, arch_facts("sm_90a"), 40)
    return plan, [s for s in found if s.roles is not None and s.roles.rows]


def kinds(found: list[Schedule], most: int) -> list[Schedule]:
    out: dict[tuple[object, ...], Schedule] = {}
    for s in found:
        assert s.roles is not None
        out.setdefault((s.roles.rows, s.exchanged), s)
    return list(out.values())[:most]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_element_of_d_is_stored_once_where_it_belongs(case: Case, tmp_path: Path) -> None:
    plan, found = of(case)
    assert found
    rng = np.random.default_rng(2)
    for s in kinds(found, 3):
        assert s.roles is not None
        real = realize(plan, s)
        kernel = render_kernel(plan, s)
        program = PROGRAM.replace("STAGED", str(s.roles.stage.elements))
        body = includes("epilogue/row", "ptx/tma", "scheduler/persistent") + generated(kernel) + program
        size = 1 + sum(x.strides[D] * (x.extent - 1) for g in (real.l, real.m, real.n) for x in g) // 2
        staged = rng.integers(1, 1 << 16, s.roles.stage.elements, dtype=np.uint16)
        threads = 128 * (1 if s.roles.ping_pong else s.roles.consumers)
        last = (s.box_m.tiles - 1, s.box_n.tiles - 1, real.extent_l - 1)
        unpack = d_unpack(s.box_m, s.box_n, store_order(real, s), {"m": s.roles.stage.m, "n": s.roles.stage.n})
        for tile, start in ((last, 0), ((0, 0, 0), 3), (last, 6)):
            head = np.array([*tile, threads, size, start], np.int32)
            sent = kernel.launches[0].params + head.tobytes() + staged.tobytes()
            got = np.frombuffer(run_host(tmp_path, body, sent), np.uint16)
            wanted = np.zeros(size, np.uint16)
            at_l, rest = 0, tile[2]
            for x in real.l:
                at_l, rest = at_l + rest % x.extent * x.strides[D], rest // x.extent
            for i in range(s.box_m.size * s.box_n.size):
                place = unpack.evaluate(i=i)
                m, n = s.box_m.coordinates(tile[0], place["m"]), s.box_n.coordinates(tile[1], place["n"])
                if m is None or n is None:
                    continue
                where = at_l + sum(x * g.strides[D] for at, group in ((m, real.m), (n, real.n))
                                   for x, g in zip(at, group, strict=True))  # fmt: skip
                wanted[where // 2] = staged[place["at"]]
            np.testing.assert_array_equal(got, wanted)
            assert wanted.any()


def test_rows_of_all_lengths_are_tried() -> None:
    lengths = {s.roles.rows for case in CASES for s in kinds(of(case)[1], 3) if s.roles is not None}
    for low, high in ((SHORTEST, 71), (72, 135), (136, 256)):  # eight, sixteen and all lanes of a warp a row
        assert any(low <= x <= high for x in lengths), sorted(lengths)


def test_rows_join_where_tiles_take_them_whole() -> None:
    joined = {
        case.name: {"kRowsContiguousD = true" in render_kernel(plan, s).source.text for s in kinds(found, 3)}
        for case in CASES
        for plan, found in [of(case)]
    }
    assert True in joined["rows-whole"]
    assert True in joined["rows-short"]
    assert joined["rows-n"] == {False}


def test_a_row_is_what_lies_together_in_d() -> None:
    plan = make_gemm_plan(Case("x", "ak,kcb->abc", {"a": 33, "b": 35, "c": 37, "k": 11}).contraction("float16"))
    strides = [x.strides[D] for x in plan.n]
    c = strides.index(2)
    m = Box((33,), (TileDim((0,), 33),))
    assert row_length(plan, m, Box((35, 37), (TileDim((c,), 36), TileDim((1 - c,), 4)))) == 36
    assert row_length(plan, m, Box((35, 37), (TileDim((c, 1 - c), 64),))) == 64
    assert row_length(plan, m, Box((35, 37), (TileDim((1 - c, c), 64),))) == 0
    assert row_length(plan, m, Box((35, 37), (TileDim((c,), 8), TileDim((1 - c,), 8)))) == 0
    added = make_gemm_plan(Case("x", "ik,kj->ij", {"i": 33, "j": 35, "k": 11}).contraction("float16", with_c=DENSE))
    assert row_length(added, m, Box((35,), (TileDim((0,), 32),))) == 0


def test_the_older_way_stays_among_the_candidates() -> None:
    for case in CASES:
        plan = make_gemm_plan(case.contraction("float16"))
        found = gather_candidates(plan, arch_facts("sm_90a"))
        assert {bool(s.roles.rows) for s in found if s.roles is not None} == {True, False}


def test_the_explanation_says_how_d_is_stored() -> None:
    plan, found = of(CASES[0])
    assert found[0].roles is not None
    assert f"rows of {found[0].roles.rows} elements" in explain_gemm(plan, found[0])


def test_schedules_survive_json() -> None:
    for s in of(CASES[0])[1]:
        assert decode(Schedule, json.loads(json.dumps(encode(s)))) == s


def test_rows_compile_without_spills() -> None:
    jobs = {}
    for case, dtype in ((CASES[0], "float16"), (CASES[1], "bfloat16"), (CASES[2], "float16"), (CASES[5], "float16")):
        plan, found = of(case, dtype)
        for s in found:
            assert s.roles is not None
            wide = s.roles.m_blocks * s.block[1] // 2 > 96
            jobs.setdefault((case.name, wide, s.roles.ping_pong), render_kernel(plan, s))
    assert len({key[1:] for key in jobs}) >= 3
    with ThreadPoolExecutor(2) as pool:
        for entries in pool.map(lambda k: resources(compile_kernel(k.source, "sm_90a")), jobs.values()):
            assert math.fsum(entry.local_bytes for entry in entries.values()) == 0
