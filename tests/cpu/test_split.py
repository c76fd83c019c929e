"""Planes: what the warps write and hold is what wgmma multiplies, run on the host; what the guard finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.hw.dtypes import PLANES
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.smem_places import wgmma_places
from tests.cpu.fake_torch import encode
from tests.cpu.host_cuda import generated, includes, run_host
from tests.cpu.planes import planes
from tests.specs import Spec, covering, specs

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
typedef SplitFragment<Storage::TileA, MainloopTraits::LoaderTraitsA::kRows, 3> FragmentA;
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
      uint32 a[3][4];
      FragmentA(thread / 128, thread % 128).load(0, s, a, of_a);
      fwrite(a, 4, 12, stdout);
    }
  fwrite(&of_a.word, 4, 1, stdout);
}
"""


def plane_bits(x: Any) -> Any:
    """The three planes as bits, the largest first."""
    made = planes(x, 3)
    assert not (x - made[0] - made[1] - made[2]).any()  # three planes hold all of a float
    return np.stack([encode(plane, "bfloat16") for plane in made])


def order(loop: WgmmaSplit, deep: int) -> Any:
    """Where each k of a tile stands among the planes: a thread that reads four neighbours has them at 2t and 2t + 8."""
    k = np.arange(deep)
    if loop.a.major != "k":
        return k
    return k // 16 * 16 + k // 4 % 4 * 2 + k % 2 + k // 2 % 2 * 8


def kernels() -> list[Spec]:
    return covering(specs("split"), pairs=False)


@pytest.mark.parametrize("at", range(3))
def test_planes_lie_where_wgmma_reads_them(at: int, tmp_path: Path) -> None:
    for spec in kernels()[at::3]:
        check(spec, tmp_path / repr(spec))


def check(spec: Spec, tmp_path: Path) -> None:
    tmp_path.mkdir()
    loop, t = spec.schedule.mainloop, spec.schedule.tiling
    assert isinstance(loop, WgmmaSplit)
    deep = t.shape[2]
    stage = np.zeros(spec.schedule.smem.stage, np.uint8)
    rng = np.random.default_rng(1)
    values, found = [], {}
    room = -(-t.m.size // 64) * 64
    first = 0
    for name, load, rows in (("a", loop.a, t.m.size), ("b", loop.b, t.n.size)):
        assert isinstance(load, Tma)
        x = (rng.standard_normal((rows, deep)) * 2.0 ** rng.integers(-40, 40, (rows, deep))).astype(np.float32)
        places = wgmma_places(load.major, load.map.swizzle_bytes, (rows, deep), rows, deep, 4)
        stage.view(np.uint32)[(first + places) // 4] = x.view(np.uint32)
        values.append(x)
        found[name] = places
        row = -(-deep * 4 // load.map.swizzle_bytes) * load.map.swizzle_bytes if load.major == "k" else deep * 4
        first += -(-room * row // 1024) * 1024
    headers = includes("core/index", "loader/split", "mainloop/split_fragment", "mainloop/split_storage")
    text = headers + PROGRAM.replace("INSIDE", generated(render_kernel(spec.plan, spec.schedule)))
    output = run_host(tmp_path, text, stage.tobytes())
    a, b = values
    smallest = np.frombuffer(output[:4], np.uint32)[0]
    assert smallest == (np.abs(b).min().view(np.uint32) << 1) - 1
    assert np.frombuffer(output[-4:], np.uint32)[0] == (np.abs(a).min().view(np.uint32) << 1) - 1
    steps = deep // 16
    fragments = np.frombuffer(output[:-4], np.uint32)[-steps * 256 * 12 :].reshape(steps, 256, 3, 4)
    written = np.frombuffer(output[4 : len(output) - 4 - fragments.nbytes], np.uint16).reshape(3, -1)
    where = order(loop, deep)
    swizzle = loop.b.map.swizzle_bytes // 2
    places = wgmma_places(loop.b.major, swizzle, (t.n.size, deep), t.n.size, deep, 2)
    np.testing.assert_array_equal(written[:, places[:, where] // 2], plane_bits(b))
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
                got = fragments[s, held, :, r] >> 16 * e & 0xFFFF
                np.testing.assert_array_equal(got.T, expected[:, row[held], by_place[k[held] + e]])


def test_products_are_those_of_most_value_small_ones_first() -> None:
    made = PLANES["bf16x6"]
    value = [sum(x) for x in made.products]
    assert value == sorted(value, reverse=True)
    assert sorted(made.products) == [(i, j) for i in range(3) for j in range(3) if i + j < 3]
