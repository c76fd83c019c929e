"""Float64 and complex128 by tensor map: fragments of both operands, run on the host and multiplied; conflicts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as product_of
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.ir.contraction import Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.cost.dmma_tma import fragment_replays
from gett.schedule.search.dmma_tma import DmmaTmaSearch
from gett.schedule.search.select import candidates
from gett.schedule.search.wgmma import both_roles
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.legality import can_implement
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.spec.rule import Lowered
from gett.schedule.spec.rules_wgmma import doubles, k_of_doubles
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.smem_places import wgmma_places
from gett.schedule.spec.wgmma_needs import leads, parts
from gett.schedule.spec.wgmma_registers import dmma_step
from gett.schedule.spec.wgmma_smem import wgmma_smem
from layouts.box import Box
from tests.cases import Case, tccg
from tests.cpu.added_walk import staged_kinds
from tests.cpu.host_cuda import STORE, generated, includes, run_host
from tests.specs import Spec, clustered, covering, reuses_smem, specs

# Numbers of each thread for each step, A's and then B's for all columns, in the order of the instruction; places of the
# accesses of a warp; what each lane adds to sums of its row g or g + 8 and of column g of each group, over k-tiles with
# A times the number of their stage.
PROGRAM = (
    STORE
    + """
typedef DmmaTma<MainloopTraits, Index, Dmma<STEP>, Store, Scheduler, Smem> Mainloop;
typedef Mainloop::Storage Storage;
struct Lane {
  static constexpr int kK = STEP;
  static void mma(double* c, const double (&a)[STEP / 2], const double (&b)[STEP / 4]) {
    for (int i = 0; i < STEP / 2; ++i) c[i % 2 * 2] += a[i] * b[i / 2];
  }
};
typedef DmmaTma<MainloopTraits, Index, Lane, Store, Scheduler, Smem> Loop;
void put(uint32 x) { fwrite(&x, 4, 1, stdout); }
template <class Fragment> void places(const Fragment& fragment, int rows, int s) {
  for (int q = 0; q < Fragment::kCount; ++q) put(fragment.at(rows, s, q));
}
int main() {
  if (fread(shared_memory, 1, Storage::kStageBytes, stdin) != Storage::kStageBytes) return 4;
  for (int s = 0; s < Mainloop::kSteps; ++s)
    for (int thread = 0; thread < 256; ++thread) {
      const Mainloop::Fragments fragments(thread / 128 * Mainloop::kMmaM, thread % 128);
      Mainloop::StepA a;
      fragments.load_a(0, s, a);
      fwrite(a, 1, sizeof a, stdout);
      for (int j = 0; j < Mainloop::kColumns; ++j) {
        Mainloop::StepB b;
        fragments.load_b(0, s * Mainloop::kColumns + j, b);
        fwrite(b, 1, sizeof b, stdout);
      }
    }
  for (int s = 0; s < 2; ++s)
    for (int thread = 0; thread < 256; ++thread) {
      const Mainloop::Fragments fragments(thread / 128 * Mainloop::kMmaM, thread % 128);
      places(fragments.a, 8, s);
    }
  for (int s = 0; s < 2; ++s)
    for (int thread = 0; thread < 256; ++thread) {
      const Mainloop::Fragments fragments(thread / 128 * Mainloop::kMmaM, thread % 128);
      places(fragments.b, 0, s);
    }
  for (int stage = 1; stage < MainloopTraits::kStages; ++stage) {
    memcpy(shared_memory + stage * Storage::kStageBytes, shared_memory, Storage::kStageBytes);
    double* const a = (double*)(shared_memory + stage * Storage::kStageBytes);
    for (int i = 0; i < Storage::kStageA / 8; ++i) a[i] *= stage + 1;
  }
  for (int thread = 0; thread < 256; ++thread) {
    const Loop::Fragments fragments(thread / 128 * Mainloop::kMmaM, thread % 128);
    Loop::Accumulators sums = {};
    PipelineState<MainloopTraits::kStages> stage(0);
    const int both = 2 * MainloopTraits::kStages;
    const KTileRange ranges[] = {{0, 1}, {1, 1}, {1, 1 + both}};
    for (const auto& range : ranges)
      Loop::multiply({0}, range, stage, fragments, thread, sums);
    for (auto& of_block : sums)
      for (int j = 0; j < 2 * Mainloop::kColumns; ++j) fwrite(of_block + j * 2, sizeof *of_block, 1, stdout);
  }
}
"""
)
FACTS = arch_facts("sm_90a")
LANE = np.arange(32)
G, T = LANE // 4, LANE % 4


def loop_of(spec: Spec) -> DmmaTma:
    assert isinstance(spec.schedule.mainloop, DmmaTma)
    return spec.schedule.mainloop


def product(a: Any, b: Any) -> Any:
    """Sums of m16n8k8 or m16n8k16: [lane, register] of A and of B (PTX ISA, fragments of .f64)."""
    deep = b.shape[1] * 4
    left, right, out = (np.zeros(shape, a.dtype) for shape in ((16, deep), (deep, 8), (32, 4)))
    for i in range(a.shape[1]):
        left[G + i % 2 * 8, T + i // 2 * 4] = a[:, i]
    for i in range(b.shape[1]):
        right[T + i * 4, G] = b[:, i]
    full = left @ right
    for i in range(4):
        out[:, i] = full[G + i // 2 * 8, 2 * T + i % 2]
    return out


def whole(numbers: Any, rows: int, count_parts: int) -> Any:
    """The elements whose parts the last axis has, of `rows` rows one beside the other."""
    if count_parts == 1:
        return numbers
    apart = numbers.reshape(*numbers.shape[:-1], -1, 2, rows)
    return (apart[..., 0, :] + 1j * apart[..., 1, :]).reshape(*numbers.shape[:-1], -1)


def replays(addresses: Any, size: int) -> int:
    """How often a phase of 128 bytes is served at most."""
    worst = 0
    for phase in addresses.reshape(-1, 128 // size):
        banks = (np.unique(phase)[:, None] // 4 + np.arange(size // 4)).ravel() % 32
        worst = max(worst, int(np.bincount(banks, minlength=32).max()))
    return worst


@pytest.mark.parametrize("at", range(3))
def test_fragments_multiply_to_the_tile(at: int, tmp_path: Path) -> None:
    found = covering([*specs("dmma"), *specs("dmma_complex")], pairs=False)
    swizzles = {(x.major, x.map.swizzle_bytes) for spec in found for x in (loop_of(spec).a, loop_of(spec).b)}
    found += next([spec] for spec in specs("dmma_complex") if spec.case.name == "two-leads")
    assert {spec.dtype for spec in found} == {"float64", "complex128"}
    assert swizzles >= {("k", 128), ("k", 64), ("k", 32), ("mn", 128), ("mn", 64), ("mn", 32), ("mn", 16)}
    assert {loop_of(spec).mma_m for spec in found} == {1, 2, 4}
    for spec in found[at::3]:
        check(spec, tmp_path / repr(spec))


def check(spec: Spec, tmp_path: Path) -> None:
    tmp_path.mkdir()
    loop, t, dtype = loop_of(spec), spec.schedule.tiling, np.dtype(spec.dtype)
    (rows, columns, deep), rng, size_e = t.shape, np.random.default_rng(7), dtype.itemsize
    stage, first, values, held = np.full(spec.schedule.smem.stage, 0xFF, np.uint8), 0, [], []
    for load, size, grain in ((loop.a, t.m.size, 64), (loop.b, t.n.size, 8)):
        x = rng.integers(-99, 99, (size, deep, size_e // 8)).astype(float).view(dtype)[..., 0]
        atom = (load.run, load.atom) if load.run else (0, 0)
        places = wgmma_places(load.major, load.map.swizzle_bytes, (size, deep), load.rows(size), deep, size_e, atom)
        stage.view(dtype)[(first + places) // size_e] = x
        values.append(x)
        at = np.arange(size)
        held.append(at // load.run * load.atom + at % load.run if load.run else at)
        row = deep * size_e
        row = -(-row // load.map.swizzle_bytes) * load.map.swizzle_bytes if load.major == "k" else row
        first += -(-(-(-load.rows(size) // grain) * grain * row) // 1024) * 1024
    assert first == stage.size
    lead_a, lead_b = leads(loop, t.k)
    if lead_a > 1:  # B's k in A's order
        values[1] = values[1].reshape(-1, lead_a, lead_b).swapaxes(1, 2).reshape(-1, deep)
    count_parts = parts(spec.plan)
    headers, step = includes("core/index", "mainloop/dmma_tma"), dmma_step(loop.mma_m, columns, count_parts)
    program = PROGRAM.replace("STEP", str(step))
    if reuses_smem(spec.schedule):
        program = program.replace("kReuseMainloopSmem = false", "kReuseMainloopSmem = true")
    text = headers + program
    text = text.replace("INSIDE", generated(render_kernel(spec.plan, spec.schedule)))
    output = run_host(tmp_path, text, stage.tobytes())
    steps, per_a, per_b = deep * count_parts // step, step // 2, step // 4
    count = steps * 256 * (loop.mma_m * per_a + columns // 8 * per_b)
    numbers = np.frombuffer(output[: count * 8]).reshape(steps, 8, 32, -1)
    sums = np.zeros((rows, columns), dtype)
    for numbers_of_step in numbers:
        for warp, of_warp in enumerate(numbers_of_step):
            first_b = loop.mma_m * per_a
            a = whole(of_warp[:, :first_b].reshape(32, loop.mma_m, per_a), 2, count_parts)
            b = whole(of_warp[:, first_b:].reshape(32, columns // 8, per_b), 1, count_parts)
            for i in range(loop.mma_m):
                row = (warp // 4 * loop.mma_m + i) * 64 + warp % 4 * 16
                for j in range(columns // 8):
                    c = product(a[:, i], b[:, j])
                    for r in range(4):
                        sums[row + G + r // 2 * 8, j * 8 + 2 * T + r % 2] += c[:, r]
    np.testing.assert_array_equal(sums[np.ix_(*held)], values[0] @ values[1].T)
    added = loop.mma_m * columns // 8 * 2
    lanes = (
        np.frombuffer(output[-256 * added * size_e :], dtype).reshape(8, 8, 4, loop.mma_m, columns // 8, 2).sum(axis=2)
    )
    sums, g = np.full((rows, columns), np.nan, dtype), np.arange(8)[:, None]
    column = g + np.arange(0, columns, 8)
    for warp, i, r in product_of(range(8), range(loop.mma_m), range(2)):
        sums[g + (warp // 4 * loop.mma_m + i) * 64 + warp % 4 * 16 + r * 8, column] = lanes[warp, :, i, :, r]
    found = sums[np.ix_(*held)]
    expected = values[0] @ values[1].T * (1 + loop.stages * (loop.stages + 1))
    np.testing.assert_array_equal(found, np.where(np.isnan(found), np.nan, expected))
    assert t.n.size % 8 or np.isfinite(found).any(axis=1).all()
    words = np.frombuffer(output[count * 8 : -256 * added * size_e], np.uint32)
    for load in (loop.a, loop.b):
        accesses = 1 if load.major == "k" and lead_a == 1 and size_e == 8 else 2
        places, words = words[: 512 * accesses].reshape(2, 256, accesses), words[512 * accesses :]
        size = 16 // accesses * count_parts
        expected = 1 if lead_a > 1 else fragment_replays(load.major, load.map.swizzle_bytes)
        assert replays(places.transpose(0, 2, 1), size) == expected, (spec, load.major, load.map.swizzle_bytes)
    assert words.size == 0


def plan_of(case: Case, dtype: str = "float64") -> GemmPlan:
    return make_gemm_plan(case.contraction(dtype))


def square(subscripts: str) -> Case:
    return Case("square", subscripts, dict.fromkeys("mnk", 2000))


def of_kind(plan: GemmPlan, arch: str = "sm_90a") -> list[Schedule]:
    return [s for s in candidates(plan, arch) if isinstance(s.mainloop, DmmaTma)]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("subscripts", ["mk,nk->mn", "mk,kn->mn", "km,nk->mn", "km,kn->mn"])
def test_the_tensor_cores_limit_in_all_majors(subscripts: str, dtype: str) -> None:
    plan = plan_of(square(subscripts), dtype)
    found = of_kind(plan)
    assert found
    assert all(can_implement(s, plan, FACTS) is None for s in found)
    assert found[0].forecast.bound == "tensor cores"
    assert plan.flops / found[0].forecast.us * 1e-6 > 0.68 * FACTS.tensor_tflops["float64"]


@pytest.mark.parametrize("name", ["abcijk-ijma-mkbc", "ij-ikl-ljk", "ij-kil-lkj", "abj-bka-kj"])
def test_bounds_are_not_above_estimates(name: str) -> None:
    plan = plan_of(next(c for c in tccg() if c.name == name))
    for search in both_roles(DmmaTmaSearch, plan, FACTS):
        for choice in search.choices():
            assert search.least_us(choice) <= search.estimate(choice).us, choice


@pytest.mark.parametrize("name", ["abcijk-ijma-mkbc", "abcijk-ijmb-mkac", "abcijk-ijmc-mkab", "abcijk-ikmb-mjac"])
def test_large_complex_results_leave_by_tensor_map(name: str) -> None:
    """The best boxes of M and N alone have more dimensions than a map."""
    found = of_kind(plan_of(next(c for c in tccg() if c.name == name), "complex128"))
    assert isinstance(found[0].epilogue.store, TmaStore)


def test_real_operands_beside_complex_ones_are_refused() -> None:
    plan = plan_of(square("mk,kn->mn"), "complex128")
    schedule, c = of_kind(plan)[0], plan.contraction
    real = Operand(c.b.modes, tuple(x // 2 for x in c.b.strides), "float64", c.b.alignment)
    mixed = make_gemm_plan(replace(c, b=real))
    assert not of_kind(mixed)
    refusal = can_implement(schedule, mixed, FACTS)
    assert refusal is not None
    assert refusal.rule.name == "data types"


def test_other_types_and_architectures_are_as_they_were() -> None:
    for dtype, arch in (("float64", "sm_80"), ("complex128", "sm_80"), ("float32", "sm_90a"), ("float16", "sm_90a")):
        assert not of_kind(plan_of(square("mk,kn->mn"), dtype), arch)
    schedule = of_kind(plan_of(square("mk,kn->mn")))[0]
    for dtype in ("float16", "float32", "complex64"):
        refusal = can_implement(schedule, plan_of(square("mk,kn->mn"), dtype), FACTS)
        assert refusal is not None
        assert refusal.rule.name == "data types"


def remade(schedule: Schedule, plan: GemmPlan, **changes: Any) -> Schedule:
    loop = replace(schedule.wgmma, **changes)
    made = replace(schedule, mainloop=loop)
    return replace(made, smem=wgmma_smem(made, plan))


def test_rules() -> None:
    plan = plan_of(square("mk,kn->mn"))
    schedule = next(s for s in of_kind(plan) if s.wgmma.mma_m == 1)
    for changes, reason in (
        ({"stages": 1}, "stages: 1, a pipeline has 2 to 8"),
        ({"mma_m": 2}, "block: block_m = 128, but 2 warpgroups of 2 MMA atoms"),
        ({"a": replace(schedule.wgmma.b)}, "majors: "),
    ):
        refusal = can_implement(remade(schedule, plan, **changes), plan, FACTS)
        assert refusal is not None
        assert refusal.reason.startswith(reason)


def test_tiles_are_staged_in_the_stages_of_single_blocks() -> None:
    """Those of other blocks of a cluster would fill the stages too early."""
    for spec in specs("dmma_reuse"):
        assert spec.schedule.tiling.tiles(spec.plan.extent_l) > spec.schedule.wgmma.warpgroups
        assert can_implement(spec.schedule, spec.plan, FACTS) is None
    spec = next(x for x in specs("dmma_reuse") if x.schedule.tiling.m.tiles > 2)
    refusal = can_implement(clustered(spec.schedule, (2, 1)), spec.plan, FACTS)
    assert refusal is not None
    assert refusal.rule.name == "reuse"


def test_wide_tiles_fill_whole_waves() -> None:
    """Of 2000 x 2000 results: 320 tiles of 128 x 104, the widest below 128 of rows of 20, would be three waves."""
    ring = Case("ring", "mbej,imae->ijab", {"m": 20, "b": 100, "e": 100, "j": 20, "i": 20, "a": 100})
    plan = plan_of(ring)
    (first, *_) = of_kind(plan)
    assert first.tiling.shape[1] > 128
    assert 1.8 * FACTS.sm_count < first.tiling.tiles(plan.extent_l) <= 2 * FACTS.sm_count


def test_rows_along_two_modes_have_4_or_8_k_of_each() -> None:
    plan = plan_of(Case("two leads", "lmk,nkl->mn", {"m": 400, "n": 300, "k": 96, "l": 80}))
    found = {leads(s.wgmma, s.tiling.k): s for s in of_kind(plan) if isinstance(s.mainloop, DmmaTma)}
    assert found
    for (lead_a, lead_b), s in found.items():
        assert can_implement(s, plan, FACTS) is None
        assert not list(k_of_doubles.reasons(Lowered(s, plan, FACTS)))
        cut = s.tiling.k.cut
        box = Box.of_cuts(s.tiling.k.extents, {m: 4 * c for m, c in enumerate(cut)})
        (reason,) = k_of_doubles.reasons(Lowered(replace(s, tiling=replace(s.tiling, k=box)), plan, FACTS))
        assert reason.startswith(f"k-tiles of {16 * lead_a * lead_b} with {(4 * lead_a, 4 * lead_b)} k of A's and B's")


def test_sums_and_fragments_fit_a_thread() -> None:
    """Those of every candidate; of four times as many blocks of rows they do not."""
    for spec in covering([*specs("dmma"), *specs("dmma_complex")], pairs=False):
        assert not list(doubles.reasons(Lowered(spec.schedule, spec.plan, FACTS)))
    tall = replace(loop_of(spec), mma_m=16)
    (reason,) = doubles.reasons(Lowered(replace(spec.schedule, mainloop=tall), spec.plan, FACTS))
    assert "registers for sums and fragments" in reason


def test_numbers_are_staged_where_tensor_maps_move_them(tmp_path: Path) -> None:
    """Each sum meets its element of C, and is written there, by pairs and one by one."""
    assert staged_kinds(tmp_path, [*specs("dmma_source"), *specs("dmma_complex_source")]) >= {"pair_n", "one"}


VECTORS = """
struct Traits {
  typedef double Acc; typedef double ElementC; typedef double ElementD;
  struct Params { double alpha, beta; };
  static constexpr int kSourceC = kSourceTma;
};
int main() {
  const Traits::Params p{1.0, 2.0};
  double x[2] = {1.5, -3.25}, y[2] = {0.0, 0.0};
  StoreStaged<Traits>().vector<2>([] { return 16u; }, [&](int v) -> double& { return x[v]; });
  AddStagedSource<Traits>{LinearCombination<Traits>(p)}.vector<2>([] { return 16u; },
                                                                  [&](int v) -> double& { return y[v]; });
  StoreStaged<Traits>().vector<1>([] { return 32u; }, [&](int v) -> double& { return x[1 - v]; });
  fwrite(y, 8, 2, stdout);
  fwrite(shared_memory + 16, 8, 3, stdout);
}
"""


def test_numbers_go_to_shared_memory_and_c_comes_from_it(tmp_path: Path) -> None:
    text = includes("epilogue/r2s") + "using namespace gett;\n" + VECTORS
    found = np.frombuffer(run_host(tmp_path, text))
    np.testing.assert_array_equal(found, [3.0, -6.5, 1.5, -3.25, -3.25])


SIGNS = """
struct Lane {
  static constexpr int kK = 16;
  static void mma(double* c, const double (&a)[8], const double (&b)[4]) {
    for (int i = 0; i < 8; ++i) c[i % 2 * 2] += a[i] * b[i / 2];
  }
};
template <bool kConjA, bool kConjB> void signs() {
  typedef DmmaProducts<complex128, Lane, kConjA, kConjB> Products;
  double a[8], b[4];
  complex128 sums[8] = {};
  for (int i = 0; i < 8; ++i) a[i] = 3 * i - 20;
  for (int i = 0; i < 4; ++i) b[i] = 5 * i - 7;
  typename Products::Rows rows;
  Products::template prepare<true>(rows, a, 0);
  Products::add(sums, 1, rows, b);
  fwrite(sums, 1, sizeof sums, stdout);
}
int main() { signs<false, false>(); signs<false, true>(); signs<true, false>(); signs<true, true>(); }
"""


def test_products_have_the_signs_of_conjugates(tmp_path: Path) -> None:
    text = includes("mainloop/dmma_products") + "using namespace gett;\n" + SIGNS
    found = np.frombuffer(run_host(tmp_path, text), complex).reshape(2, 2, 8)
    a, b = whole(3.0 * np.arange(8) - 20, 2, 2), whole(5.0 * np.arange(4) - 7, 1, 2)
    for conj_a, conj_b in np.ndindex(2, 2):
        left, right = a.conj() if conj_a else a, b.conj() if conj_b else b
        wanted = np.zeros(8, complex)
        wanted[[4, 6]] = right @ left.reshape(2, 2)
        np.testing.assert_array_equal(found[conj_a, conj_b], wanted)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_candidates_compile_without_spills(dtype: str) -> None:
    """A kernel of every shape that is tried for some cases; one that spills raises an error."""
    for name in ("ij-ik-kj", "ijkl-imjn-nlmk", "abjc-cbka-kj"):
        plan = plan_of(next(c for c in tccg() if c.name == name), dtype)
        for s in {x.tiling.shape: x for x in of_kind(plan)}.values():
            assert compile_kernel(render_kernel(plan, s).source, "sm_90a")
