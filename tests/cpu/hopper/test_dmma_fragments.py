"""Fragments of float64 and complex128, the kernels' own code on the host: products, banks, staged numbers, signs."""

from __future__ import annotations

from itertools import product as product_of
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.schedule.cost.hopper_units import fragment_replays
from gett.schedule.mainloops.dmma_tma import dmma_step
from gett.schedule.rules.smem_places import wgmma_places
from gett.schedule.spec.hopper_needs import leads, parts
from gett.schedule.spec.mainloop import DmmaTma
from tests.cpu.added_walk import staged_kinds
from tests.cpu.host_cuda import STORE, generated, includes, run_host
from tests.sampling import of_every_kind, slow_but
from tests.specs import Spec, covering, few_specs, reuses_smem, specs

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


@pytest.mark.parametrize("family", slow_but(["dmma", "dmma_complex"], ["dmma_complex"]))
def test_fragments_of_a_kernel_multiply_to_the_tile(family: str, tmp_path: Path) -> None:
    check(of_every_kind(few_specs(family))[0], tmp_path / "tile")


@pytest.mark.slow
@pytest.mark.parametrize("at", range(3))
def test_fragments_multiply_to_the_tile(at: int, tmp_path: Path) -> None:
    found = covering([*specs("dmma"), *specs("dmma_complex")], pairs=False)
    swizzles = {(x.major, x.map.swizzle_bytes) for spec in found for x in (loop_of(spec).a, loop_of(spec).b)}
    orders = {ordered(spec): spec for spec in (*specs("dmma_complex"), *specs("dmma")) if ordered(spec)[-1] < 128}
    wanted = (("k", 128, "mn", 64), ("mn", 128, "mn", 32), ("mn", 32, "mn", 64))
    assert {("float64", *x) for x in wanted} <= {*orders}
    found += [spec for spec in orders.values() if spec not in found]
    found += next([spec] for spec in specs("dmma_complex") if spec.case.name == "two-leads")
    assert {spec.dtype for spec in found} == {"float64", "complex128"}
    assert swizzles >= {("k", 128), ("k", 64), ("k", 32), ("mn", 128), ("mn", 64), ("mn", 32), ("mn", 16)}
    assert {loop_of(spec).mma_m for spec in found} == {1, 2, 4}
    for spec in found[at::3]:
        check(spec, tmp_path / repr(spec))


def ordered(spec: Spec) -> tuple[str, str, int, str, int]:
    """What decides in which order a lane's numbers are read, and in which they are multiplied."""
    a, b = (x.map for x in (loop_of(spec).a, loop_of(spec).b))
    return spec.dtype, loop_of(spec).a.major, a.swizzle_bytes, loop_of(spec).b.major, b.swizzle_bytes


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
    headers, step = includes("core/index", "mainloop/dmma_tma"), dmma_step(loop.mma_m, columns, count_parts)[0]
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


@pytest.mark.slow
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
