"""Planes: what the warps write and hold is what wgmma multiplies, run on the host; what the guard finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.hw.archs import arch_facts
from gett.hw.dtypes import PLANES
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.schedule.lower import lower_plan
from gett.schedule.search.select import candidates
from gett.schedule.search.tma import OperandMaps
from gett.schedule.spec.legality import can_implement
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.smem_places import wgmma_places
from gett.schedule.spec.wgmma_needs import SPLIT_LEADS, leads, wgmma_smem
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box
from tests.cases import Case, tccg
from tests.cpu.fake_torch import encode
from tests.cpu.host_cuda import generated, includes, run_host
from tests.cpu.planes import planes
from tests.spec_cases import SPLIT
from tests.specs import Spec, covering, few, specs, split_schedules

PROGRAM = """
INSIDE
using namespace gett;
uint32 gett::cvt_x2(float low, float high, bhalf_t) {
  uint32 out = 0;
  for (int i = 0; i < 2; ++i) {
    uint32 bits;
    const float x = i ? high : low;
    memcpy(&bits, &x, 4);
    bits += 0x7fff + (bits >> 16 & 1);
    out |= bits >> 16 << 16 * i;
  }
  return out;
}
typedef PersistentRaster<SchedulerTraits> Scheduler;
struct Store {
  struct Exchange {
    static constexpr int kBarriers = 0;
    static void init(uint32) {}
  };
  static constexpr int kBuffers = 1, kBytes = 0;
  static constexpr bool kReuseMainloopSmem = false, kStoreWarp = true;
};
typedef SplitStorage<MainloopTraits, Index, Store, Scheduler, Smem> Storage;
typedef SplitTransform<MainloopTraits, Scheduler, Storage> Transform;
typedef SplitFragment<Storage::TileA, MainloopTraits::LoaderTraitsA::kRows, 3, Storage::kParts> FragmentA;
typedef MainloopTraits::Element Element;
template <class Tile> void put(uint32 tile, int row, int k) {
  uint32 word;
  const Element x = tile_element<Tile, Element>(tile, row, k, word);
  fwrite(&x, sizeof x, 1, stdout);
}
int main() {
  const int b = Storage::kStageA, planes = 1 << 19;
  if (fread(shared_memory, 1, Storage::kStageBytes, stdin) != Storage::kStageBytes) return 4;
  Smallest smallest;
  for (int thread = 0; thread < Transform::kThreads; ++thread)
    Transform::split_tile(b, planes, Transform::Places(thread), smallest);
  fwrite(&smallest.word, 4, 1, stdout);
  fwrite(shared_memory + planes, 1, Storage::kPlaneStageBytes, stdout);
  Smallest of_a;
  for (int s = 0; s < MainloopTraits::kBlockK / 16; ++s)
    for (int thread = 0; thread < 256; ++thread) {
      FragmentA::Planes a;
      FragmentA(thread / 128, thread % 128).load(0, s, a, of_a);
      fwrite(a, 1, sizeof a, stdout);
    }
  for (int k = 0; k < MainloopTraits::kBlockK; ++k) {
    for (int row = 0; row < MainloopTraits::LoaderTraitsA::kRows; ++row) put<Storage::TileA>(0, row, k);
    for (int row = 0; row < MainloopTraits::LoaderTraitsB::kRows; ++row) put<Storage::TileB>(b, row, k);
  }
  fwrite(&of_a.word, 4, 1, stdout);
}
"""


def floats(x: Any) -> Any:
    """The parts of numbers: (parts, ...)."""
    return np.moveaxis(np.ascontiguousarray(x).view(np.float32).reshape(*x.shape, -1), -1, 0)


def plane_bits(x: Any) -> Any:
    """The three planes of each part as bits, the largest first: (parts, planes, ...)."""
    parts = floats(x)
    made = planes(parts, 3)
    assert not (parts - made[0] - made[1] - made[2]).any()  # three planes hold all of a float
    return np.stack([encode(plane, "bfloat16") for plane in made], axis=1)


def least(x: Any) -> Any:
    """What `Smallest` keeps of numbers."""
    return (np.abs(floats(x)).min().view(np.uint32) << 1) - 1


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Of very different magnitudes."""
    shape = (*shape[:-1], shape[-1] * (np.dtype(dtype).itemsize // 4))
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-40, 40, shape)).astype(np.float32).view(dtype)


def order(loop: WgmmaSplit, deep: int, parts: int) -> Any:
    """Where each k of a tile stands among the planes: a thread that reads four neighbours has them at 2t and 2t + 8."""
    k = np.arange(deep)
    if loop.a.major != "k" or parts == 2:
        return k
    return k // 16 * 16 + k // 4 % 4 * 2 + k % 2 + k // 2 % 2 * 8


def places_in_b(loop: WgmmaSplit, box_k: Box) -> Any:
    """Where in B's tile each k of A's stands."""
    found = []
    for load in (loop.a, loop.b):
        unit = load.map.order[0] - (len(load.map.order) - len(box_k.extents))
        box = box_k.led_by(unit) if load.major == "k" else box_k
        found.append([box.coordinates(0, i) for i in range(box.size)])
    return np.array([found[1].index(at) for at in found[0]])


def kernels() -> list[Spec]:
    return [*covering(specs("split"), pairs=False), *covering(specs("split_complex"), pairs=False)]


@pytest.mark.parametrize("at", range(3))
def test_planes_lie_where_wgmma_reads_them(at: int, tmp_path: Path) -> None:
    for spec in kernels()[at::3]:
        check(spec, tmp_path / repr(spec))


def check(spec: Spec, tmp_path: Path) -> None:
    tmp_path.mkdir()
    loop, t = spec.schedule.mainloop, spec.schedule.tiling
    assert isinstance(loop, WgmmaSplit)
    deep, dtype = t.shape[2], spec.plan.contraction.dtype
    size = np.dtype(dtype).itemsize
    parts, word = size // 4, {4: np.uint32, 8: np.uint64}[size]
    stage = np.zeros(spec.schedule.smem.stage, np.uint8)
    rng = np.random.default_rng(1)
    values, found = [], {}
    room = -(-t.m.size // 64) * 64
    first = 0
    for name, load, rows in (("a", loop.a, t.m.size), ("b", loop.b, t.n.size)):
        assert isinstance(load, Tma)
        x = numbers(rng, (rows, deep), dtype)
        places = wgmma_places(load.major, load.map.swizzle_bytes, (rows, deep), rows, deep, size)
        if name == "b":
            places = places[:, places_in_b(loop, t.k)]
        stage.view(word)[(first + places) // size] = x.view(word)
        values.append(x)
        found[name] = places
        row = -(-deep * size // load.map.swizzle_bytes) * load.map.swizzle_bytes if load.major == "k" else deep * size
        first += -(-room * row // 1024) * 1024
    headers = includes("core/index", "loader/split", "mainloop/split_fragment", "mainloop/split_storage")
    headers += includes("mainloop/split_repair")
    text = headers + PROGRAM.replace("INSIDE", generated(render_kernel(spec.plan, spec.schedule)))
    output = run_host(tmp_path, text, stage.tobytes())
    a, b = values
    assert np.frombuffer(output[:4], np.uint32)[0] == least(b)
    assert np.frombuffer(output[-4:], np.uint32)[0] == least(a)
    repaired = np.frombuffer(output[-4 - a.nbytes - b.nbytes : -4], dtype).reshape(deep, -1)
    np.testing.assert_array_equal(repaired.T, np.concatenate([a, b]))
    output = output[: -4 - repaired.nbytes]
    steps = deep // 16
    count = steps * 256 * 12 * parts
    fragments = np.frombuffer(output, np.uint32)[-count:].reshape(steps, 256, parts, 3, 4)
    written = np.frombuffer(output[4 : len(output) - fragments.nbytes], np.uint16).reshape(parts, 3, -1)
    where = order(loop, deep, parts)
    swizzle = deep * 2 if loop.b.major == "k" else loop.b.map.swizzle_bytes * 2 // size
    places = wgmma_places(loop.b.major, swizzle, (t.n.size, deep), t.n.size, deep, 2)
    np.testing.assert_array_equal(written[:, :, places[:, where] // 2], plane_bits(b))
    thread = np.arange(256)
    lane = thread % 32
    expected = plane_bits(a)
    by_place = np.argsort(where)  # the k that stands at a place of the fragments
    for s in range(steps):
        for r in range(4):
            row = thread // 128 * 64 + thread % 128 // 32 * 16 + lane // 4 + r % 2 * 8
            k = s * 16 + lane % 4 * 2 + r // 2 * 8
            held = row < t.m.size
            for e in range(2):
                got = fragments[s, held, :, :, r] >> 16 * e & 0xFFFF
                wanted = expected[:, :, row[held], by_place[k[held] + e]]
                np.testing.assert_array_equal(np.moveaxis(got, 0, -1), wanted)


ONE_LEAD = Case("one-lead", "mlk,kln->mn", {"m": 200, "n": 136, "k": 32, "l": 64})
FACTS = arch_facts("sm_90a")
LEADS = tuple(c for c in SPLIT if c.name.startswith("leads"))


def plan_of(case: Case, precision: str = "bf16x6") -> GemmPlan:
    return make_gemm_plan(case.contraction("float32", precision=precision))


def split_loop(s: Schedule) -> WgmmaSplit:
    assert isinstance(s.mainloop, WgmmaSplit)
    return s.mainloop


@pytest.mark.parametrize("precision", ["bf16x6", "bf16x3"])
def test_rows_along_two_contracted_modes_are_split(precision: str) -> None:
    chosen = [c for c in tccg() if c.name in ("ij-kil-lkj", "ijkl-minl-njmk")]
    assert len(chosen) == 2
    for case in chosen:
        plan = plan_of(case, precision)
        best = candidates(plan, "sm_90a")[0]
        loop = split_loop(best)
        assert leads(loop, best.tiling.k) == SPLIT_LEADS
        assert (loop.a.map.swizzle_bytes, loop.b.map.swizzle_bytes) == (32, 16)
        assert can_implement(best, plan, FACTS) is None
        kernel = render_kernel(plan, best)
        assert compile_kernel(kernel.source, "sm_90a")  # without spills, and products do not wait for each other


def test_either_operand_may_have_the_longer_rows() -> None:
    for case in LEADS:
        found = split_schedules(plan_of(case), FACTS, 40)
        assert {s.tiling.swap_ab for s in found} == {False, True}, case
        assert all(can_implement(s, plan_of(case), FACTS) is None for s in found)


def test_a_short_contracted_mode_makes_rows_of_16_bytes() -> None:
    """Along it one operand's rows run; k-tiles of eight of it would be half padding."""
    plan = plan_of(Case("short", "jkm,knj->mn", {"m": 2048, "n": 2048, "k": 512, "j": 4}))
    best = candidates(plan, "sm_90a")[0]
    loop = split_loop(best)
    along_k = {x.major: x.map.swizzle_bytes for x in (loop.a, loop.b)}
    assert set(along_k) == {"mn", "k"}
    assert along_k["k"] == 16
    assert best.tiling.k.efficiency() == 1


def with_k(s: Schedule, plan: GemmPlan, cuts: dict[int, int]) -> Schedule:
    """The schedule with k-tiles of `cuts`, and the maps and the shared memory that belong to them."""
    t, lowered = s.tiling, lower_plan(plan, s.tiling)
    box_k = Box.of_cuts(t.k.extents, cuts)
    sides = ((A, t.m, lowered.m), (B, t.n, lowered.n))
    a, b = (OperandMaps(lowered, x, 4).load(OperandTiling(box, modes), box_k) for x, box, modes in sides)
    t = replace(t, k=box_k, shape=(*t.shape[:2], box_k.size))
    made = replace(s, tiling=t, mainloop=replace(split_loop(s), a=a, b=b, stages=2, plane_stages=2))
    return replace(made, smem=wgmma_smem(made, lowered))


@pytest.mark.parametrize(
    ("name", "cuts", "reason"),
    [
        ("leads", "k4 l8", ""),
        ("leads", "l8 k4", ""),
        ("leads", "k8 l4", "splitting: rows of 16 bytes of operand A"),
        ("leads", "k8 l8", "k order: k-tiles of 64 with (8, 8) k"),
        ("leads-third", "k4 l8", ""),
        ("leads-third", "k4 l8 r2", "k order: k-tiles of 64 with (8, 4) k"),
        ("k-mn", "k16", ""),
        ("k-mn", "k64", "k order: k-tiles of 64"),
        ("one-lead", "k8 l4", ""),
        ("one-lead", "k4 l8", "splitting: rows of 16 bytes of operand A"),
        ("short-rows", "j4 k8", ""),
        ("one-lead", "l4 k8", "k order: k-tiles of 32, A's are"),
    ],
)
def test_rules_of_the_order_of_k(name: str, cuts: str, reason: str) -> None:
    case = next(c for c in (*SPLIT, ONE_LEAD) if c.name == name)
    plan, facts = plan_of(case), few(FACTS, 1)
    at = {plan.contraction.names[mode.labels[0]]: i for i, mode in enumerate(plan.k)}
    s = next(s for s in split_schedules(plan, facts, 40) if not s.tiling.swap_ab and s.split_k == 1)
    refusal = can_implement(with_k(s, plan, {at[x[0]]: int(x[1:]) for x in cuts.split()}), plan, facts)
    assert (refusal is None) == (not reason)
    assert refusal is None or refusal.reason.startswith(reason)


def test_products_are_those_of_most_value_small_ones_first() -> None:
    made = PLANES["bf16x6"]
    value = [sum(x) for x in made.products]
    assert value == sorted(value, reverse=True)
    assert sorted(made.products) == [(i, j) for i in range(3) for j in range(3) if i + j < 3]
