"""TF32 with A in registers: what a warpgroup transposes and what threads hold, run on the host; bank conflicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.explain.detail import explain_gemm
from gett.hw.archs import arch_facts
from gett.hw.dtypes import data_type
from gett.hw.tensor_types import TENSOR_TYPES
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.cost.hopper_units import transposition_replays
from gett.schedule.legality import can_implement
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.mainloops.wgmma_tf32 import in_registers, tf32_registers
from gett.schedule.rules.rule import Lowered, name_of
from gett.schedule.rules.smem_places import wgmma_places
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaTf32
from gett.schedule.spec.schedule import Schedule
from tests.cases import Case, tccg
from tests.cpu.added_walk import staged_kinds
from tests.cpu.host_cuda import STORE, generated, includes, run_host
from tests.sampling import few_or_every, slow_but
from tests.specs import Spec, SpecsOf, covering, few_specs, specs

PROGRAM = (
    STORE
    + """
typedef Tf32Storage<MainloopTraits, Index, Store, Scheduler, Smem> Storage;
typedef Tf32Fragment<Storage::TileA, MainloopTraits::kMmaM, 2> FragmentA;
constexpr int kMmaM = MainloopTraits::kMmaM, kSteps = MainloopTraits::kBlockK / 8;
void put(uint32 x) { fwrite(&x, 4, 1, stdout); }
template <class Storage, bool kOn> struct Transposed {
  static void run() {
    typedef TransposeTransform<MainloopTraits, Scheduler, Storage> Transform;
    const int to = 1 << 19;
    memset(shared_memory + to, 0xcd, Storage::TransposedB::kBytes);
    for (int thread = 0; thread < Transform::kThreads; ++thread)
      Transform::transpose(Storage::kStageA, to, typename Transform::Places(thread));
    put(Storage::TransposedB::kBytes);
    fwrite(shared_memory + to, 1, Storage::TransposedB::kBytes, stdout);
    put(Transform::kPasses);
    for (int i = 0; i < Transform::kPasses; ++i)
      for (int row = 0; row < 4; ++row)
        for (int thread = 0; thread < Transform::kThreads; ++thread) {
          const typename Transform::Places places(thread);
          put(places.has(i) ? Transform::template row<Transform::kS>(places.read(i), row) : ~0u);
          put(places.has(i) ? Transform::template row<Transform::kT>(places.write(i), row) : ~0u);
        }
  }
};
template <class Storage> struct Transposed<Storage, false> { static void run() { put(0); put(0); } };
int main() {
  if (fread(shared_memory, 1, Storage::kStageBytes, stdin) != Storage::kStageBytes) return 4;
  Transposed<Storage, Storage::kTransposes>::run();
  for (int s = 0; s < kSteps; ++s)
    for (int thread = 0; thread < 256; ++thread) {
      const FragmentA fragment(thread / 128 * kMmaM, thread % 128);
      uint32 a[kMmaM][4];
      fragment.load(0, s, a);
      fwrite(a, 16, kMmaM, stdout);
      for (int i = 0; i < kMmaM; ++i)
        for (int r = 0; r < 2; ++r)
          for (int half = 0; half < 2; ++half) put(fragment.at(i, r, half, s));
    }
}
"""
)
FACTS = arch_facts("sm_90a")


def loop_of(spec: Spec) -> WgmmaTf32:
    assert isinstance(spec.schedule.mainloop, WgmmaTf32)
    return spec.schedule.mainloop


def conflicts(addresses: Any, size: int) -> int:
    """How often the accesses of warps are served at most, beyond what their bytes need; ~0 for lanes that have none."""
    worst, lanes = 0, 128 // size
    for phase in addresses.reshape(-1, lanes):
        there = np.unique(phase[phase != 0xFFFFFFFF])
        banks = (there[:, None] // 4 + np.arange(size // 4)).ravel() % 32
        worst = max(worst, int(np.bincount(banks, minlength=32).max()) - 1)
    return worst


@pytest.mark.parametrize("transposes", [False, True])
def test_a_tile_lies_where_wgmma_reads_it(transposes: bool, tmp_path: Path) -> None:
    check(first(transposes), tmp_path / "tile")


@pytest.mark.slow
@pytest.mark.parametrize("at", range(3))
def test_tiles_lie_where_wgmma_reads_them(at: int, tmp_path: Path) -> None:
    found = covering(specs("tf32"), pairs=False)
    assert {bool(loop_of(spec).transposed_stages) for spec in found} == {False, True}
    for spec in found[at::3]:
        check(spec, tmp_path / repr(spec))


def check(spec: Spec, tmp_path: Path) -> None:
    tmp_path.mkdir()
    loop, t = loop_of(spec), spec.schedule.tiling
    deep = t.shape[2]
    stage, first, values, held_rows = np.zeros(spec.schedule.smem.stage, np.uint8), 0, [], []
    for load, rows in ((loop.a, t.m.size), (loop.b, t.n.size)):
        assert isinstance(load, Tma)
        x = np.arange(first, first + rows * deep, dtype=np.uint32).reshape(rows, deep)
        atom = (load.run, load.atom) if load.run else (0, 0)
        places = wgmma_places(load.major, load.map.swizzle_bytes, (rows, deep), load.rows(rows), deep, 4, atom)
        stage.view(np.uint32)[(first + places) // 4] = x
        values.append(x)
        at_row, room = np.arange(rows), -(-load.rows(rows) // 64) * 64
        held_rows.append(at_row // load.run * load.atom + at_row % load.run if load.run else at_row)
        row = -(-deep * 4 // load.map.swizzle_bytes) * load.map.swizzle_bytes if load.major == "k" else deep * 4
        first += -(-room * row // 1024) * 1024
    headers = includes("core/index", "loader/transpose", "mainloop/tf32_fragment", "mainloop/tf32_storage")
    text = headers + PROGRAM.replace("INSIDE", generated(render_kernel(spec.plan, spec.schedule)))
    output = np.frombuffer(run_host(tmp_path, text, stage.tobytes()), np.uint32)
    size, output = int(output[0]) // 4, output[1:]
    written, passes, output = output[:size], int(output[size]), output[size + 1 :]
    assert (size > 0) == (loop.transposed_stages > 0)
    if size:
        swizzle = 128 if deep % 32 == 0 else 64 if deep % 16 == 0 else 32
        rows = loop.b.rows(t.n.size)
        places = wgmma_places("k", swizzle, (rows, deep), rows, deep, 4)
        np.testing.assert_array_equal(written[places // 4][held_rows[1]], values[1])
        accesses, output = output[: passes * 1024].reshape(-1, 128, 2), output[passes * 1024 :]
        for of, replays in enumerate(transposition_replays(loop.b.swizzle_bytes, deep)):
            assert conflicts(accesses[..., of], 16) < replays, spec
    mma_m = loop.mma_m
    found = output.reshape(deep // 8, 256, -1)
    fragments, at = found[..., : 4 * mma_m].reshape(-1, 256, mma_m, 4), found[..., 4 * mma_m :]
    assert conflicts(at.transpose(0, 2, 1), 4) == 0, spec
    thread = np.arange(256)
    lane = thread % 32
    for s in range(deep // 8):
        for i in range(mma_m):
            for r in range(4):
                row = (thread // 128 * mma_m + i) * 64 + thread % 128 // 32 * 16 + lane // 4 + r % 2 * 8
                k = s * 8 + lane % 4 + r // 2 * 4
                held = np.isin(row, held_rows[0])
                box_row = np.searchsorted(held_rows[0], row[held])
                np.testing.assert_array_equal(fragments[s, held, i, r], values[0][box_row, k[held]])


def plan_of(case: Case, precision: str = "tf32") -> GemmPlan:
    return make_gemm_plan(case.contraction("float32", precision=precision))


def square(subscripts: str) -> Case:
    return Case("square", subscripts, dict.fromkeys("mnk", 2048))


def chosen(case: Case) -> Schedule:
    return candidates(plan_of(case), "sm_90a")[0]


@pytest.mark.parametrize(
    ("subscripts", "kind", "majors", "transposes"),
    [
        ("mk,nk->mn", "wgmma ss", "k k", False),
        ("mk,kn->mn", "wgmma tf32", "mn k", False),
        ("km,nk->mn", "wgmma tf32", "mn k", False),
        ("km,kn->mn", "wgmma tf32", "mn mn", True),
    ],
)
def test_the_main_loop_follows_from_the_majors(subscripts: str, kind: str, majors: str, transposes: bool) -> None:
    s = chosen(square(subscripts))
    assert s.kind == kind
    assert f"{s.hopper.a.major} {s.hopper.b.major}" == majors
    assert bool(getattr(s.mainloop, "transposed_stages", 0)) == transposes
    assert can_implement(s, plan_of(square(subscripts)), FACTS) is None
    text = explain_gemm(plan_of(square(subscripts)), s)
    assert "of operands rounded to the nearest tf32" in text
    assert ("1 warpgroup that transposes B" in text) == transposes


def test_short_sums_are_staged_with_few_conflicts() -> None:
    """Shared memory serves the products of one tile and the staging of another: both count."""
    stage = chosen(Case("short", "lmk,lnk->lmn", {"l": 32, "m": 2048, "n": 2048, "k": 128})).epilogue.store.stage
    assert stage is not None
    assert stage.conflicts <= 2


@pytest.mark.slow
def test_large_products_of_tccg_are_chosen() -> None:
    """But for one whose A is faster out of registers, and four that are faster from copies."""
    others = {
        "ij-kil-lkj": "wgmma rs",
        "ijkl-minl-njmk": "packed wgmma ss",
        "ijkl-imjn-nlmk": "packed wgmma ss",
        "ijkl-imjn-lnkm": "packed wgmma ss",
        "ijk-ilk-jl": "packed wgmma tf32",
    }
    large = {case.name: chosen(case).kind for case in tccg() if plan_of(case).flops > 3e10}
    assert len(large) >= 8
    assert large == {name: others.get(name, "wgmma tf32") for name in large}


def test_other_precisions_and_architectures_are_as_they_were() -> None:
    plan = plan_of(square("mk,kn->mn"), "ieee")
    assert {s.kind for s in candidates(plan, "sm_90a")} == {"simt"}
    assert {s.kind for s in candidates(plan_of(square("mk,kn->mn")), "sm_80")} == {"mma.sync"}


@pytest.mark.parametrize("subscripts", ["mk,nk->mn", "mk,kn->mn", "km,kn->mn"])
def test_tensor_maps_round_both_operands_and_nothing_else(subscripts: str) -> None:
    plan = plan_of(square(subscripts))
    launch = render_kernel(plan, chosen(square(subscripts))).launches[0]
    kinds = {role: spec.data_type for role, _, spec in launch.maps}
    float32, tf32 = data_type("float32").tma, TENSOR_TYPES["tf32"].tma
    assert tf32 not in (None, float32)
    assert kinds == {"a": tf32, "b": tf32, "d": float32}
    plain = plan_of(square(subscripts), "bf16x6")
    launch = render_kernel(plain, candidates(plain, "sm_90a")[0]).launches[0]
    assert {spec.data_type for _, _, spec in launch.maps} == {float32}


@pytest.mark.slow
def test_words_are_staged_where_tensor_maps_move_them(tmp_path: Path) -> None:
    """Each accumulator meets its element of C, and is written there, by pairs and one by one."""
    assert staged_kinds(tmp_path, specs("tf32_source")) == {"pair_n", "one"}


def first(transposes: bool) -> Spec:
    return next(spec for spec in few_specs("tf32") if bool(loop_of(spec).transposed_stages) == transposes)


@pytest.mark.parametrize(
    ("transposes", "stages", "reason"),
    [
        (True, 0, "in registers: 0 k-tiles of B transposed, which is mn-major"),
        (True, 1, "in registers: 1 k-tiles of B transposed"),
        (True, 3, ""),
        (False, 2, "in registers: 2 k-tiles of B transposed, which is k-major"),
    ],
)
def test_rules_of_transposition(transposes: bool, stages: int, reason: str) -> None:
    spec = first(transposes)
    loop = replace(loop_of(spec), stages=2, transposed_stages=stages)
    made = replace(spec.schedule, mainloop=loop)
    made = replace(made, smem=smem_plan(made, spec.plan))
    refusal = can_implement(made, spec.plan, FACTS)
    assert (refusal is None) == (not reason)
    assert refusal is None or refusal.reason.startswith(reason)


@few_or_every
def test_sums_and_fragments_fit_a_thread(specs: SpecsOf) -> None:
    """The candidates of every case; what has twice as many MMA atoms does not."""
    found = {(loop_of(spec).mma_m, loop_of(spec).transposed_stages > 0): spec for spec in specs("tf32")}
    assert {transposes for _, transposes in found} == {False, True}
    for spec in found.values():
        loop, (_, columns, deep) = loop_of(spec), spec.schedule.tiling.shape
        assert not list(in_registers(Lowered(spec.schedule, spec.plan, FACTS)))
        atoms = next(m for m in (2, 4, 8, 16) if exceeds(m, columns, deep, loop.transposed_stages > 0))
        wide = replace(spec.schedule, mainloop=replace(loop, mma_m=atoms))
        (reason, *_) = in_registers(Lowered(wide, spec.plan, FACTS))
        assert "registers for sums and fragments" in reason


def exceeds(mma_m: int, columns: int, deep: int, transposes: bool) -> bool:
    needed, there = tf32_registers(mma_m, columns, deep // 8, transposes)
    return needed > there


def test_sixteen_bit_types_and_planes_have_main_loops_of_their_own() -> None:
    spec = first(False)
    for dtype, precision in (("float16", "ieee"), ("float32", "ieee"), ("float32", "bf16x6")):
        plan = make_gemm_plan(spec.case.contraction(dtype, precision=precision))
        refusal = can_implement(spec.schedule, plan, FACTS)
        assert refusal is not None
        assert name_of(refusal.rule) == "data types"


@pytest.mark.parametrize(
    ("name", "every"),
    slow_but([(x, True) for x in ("ij-ik-kj", "ijk-ilk-jl", "abjc-cbka-kj")] + [("ijk-ilk-jl", False)],
             lambda case: not case[1]),
)  # fmt: skip
def test_candidates_compile_without_spills(name: str, every: bool) -> None:
    """Those of each shape of tile, or the first. Nor do products wait for each other: the compiler says so."""
    case = next(c for c in tccg() if c.name == name)
    found = [s for s in candidates(plan_of(case), "sm_90a") if s.kind == "wgmma tf32"]
    for s in list({x.tiling.shape: x for x in found}.values())[: None if every else 1]:
        assert compile_kernel(render_kernel(plan_of(case), s).source, "sm_90a")
