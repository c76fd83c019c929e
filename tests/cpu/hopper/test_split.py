"""Planes: what the warps write and hold is what wgmma multiplies, run on the host; what the guard finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.hw.tensor_types import Planes
from gett.schedule.rules.smem_places import wgmma_places
from gett.schedule.spec.hopper_needs import planes as spec_planes
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from layouts.box import Box
from tests.cpu.fake_torch import encode
from tests.cpu.host_cuda import SPLIT_PARTS, generated, includes, run_host
from tests.cpu.planes import MANY, low_counts, planes, scale
from tests.sampling import of_every_kind, slow_but
from tests.specs import Spec, covering, few_specs, specs

PROGRAM = (
    SPLIT_PARTS
    + """
typedef MainloopTraits::Element Element;
const int b = Storage::kStageA, planes = 1 << 19;
template <class T> void write(const T& x) { fwrite(&x, sizeof x, 1, stdout); }
template <class Tile> void put(uint32 tile, int row, int k) {
  uint32 word;
  write(tile_element<Tile, Element>(tile, row, k, word));
}
template <bool> struct Split {  // planes of whole numbers, and the smallest of them
  Smallest of_a, of_b;
  void split_b() {
    for (int thread = 0; thread < Transform::kThreads; ++thread) {
      Transform::Places places(thread);
      places.read += b;
      places.write += planes;
      Transform::Numbers x;
      Transform::read(0, places, x);
      int passes = 0;
      Transform::split_passes(places, x, of_b, [&](int i) {
        if (i != passes++) exit(6);
        memset(x[i], 255, sizeof x[i]);  // its registers are free
      });
    }
  }
  void split_a(int s) {
    for (int thread = 0; thread < 256; ++thread) {
      const FragmentA fragment(thread / 128, thread % 128);
      FragmentA::Numbers x;
      FragmentA::Planes a;
      fragment.read(0, s, x);
      fragment.split_whole(x, a, of_a);
      write(a);
    }
  }
  void told() {
    write(of_a.word);
    write(of_b.word);
  }
};
template <> struct Split<true> {  // of scaled ones: scales, and how many numbers are low
  int low_a = 0, low_b = 0;
  void expect(uint32 least, int count) {
    if (count && !LowNumbers::is_low(least)) exit(5);
  }
  void split_b() {
    uint32 most[4] = {};
    static Transform::Numbers x[Transform::kThreads];
    for (int thread = 0; thread < Transform::kThreads; ++thread) {
      const Transform::Places places(thread);
      Transform::read(b, places, x[thread]);
      const float found = Transform::largest(places, x[thread]);
      most[thread / 32] = max(most[thread / 32], __float_as_uint(found));
    }
    for (int thread = 0; thread < Transform::kThreads; ++thread) {
      Transform::Places places(thread);
      places.read += b;
      places.write += planes;
      const PlaneScale scale(__uint_as_float(most[thread / 32]));
      Transform::Scaled scaled{scale.times};
      Transform::split_passes(places, x[thread], scaled, [](int) {});
      const int count = Transform::count_low(0, places, scale.times);
      expect(scaled.least, count);
      low_b += count;
      if (thread % 32 == 0) write(scale.inverse);
    }
  }
  void split_a(int s) {
    for (int first = 0; first < 256; first += 4) {
      FragmentA::Numbers x[4];
      float most[2] = {}, times[2], inverse[2];
      for (int i = 0; i < 4; ++i) {
        FragmentA((first + i) / 128, (first + i) % 128).read(0, s, x[i]);
        for (int r = 0; r < 2; ++r) most[r] = fmaxf(most[r], FragmentA::largest(x[i], r));
      }
      for (int r = 0; r < 2; ++r) {
        times[r] = PlaneScale(most[r]).times;
        inverse[r] = PlaneScale(most[r]).inverse;
      }
      for (int i = 0; i < 4; ++i) {
        const FragmentA fragment((first + i) / 128, (first + i) % 128);
        FragmentA::Planes a;
        const uint32 least = fragment.split_scaled(x[i], times, a);
        const int count = fragment.count_low(x[i], times);
        expect(least, count);
        low_a += count;
        write(a);
        write(inverse);
      }
    }
  }
  void told() {
    write(low_a);
    write(low_b);
    write(Storage::kScaleColumns);
  }
};
int main() {
  if (fread(shared_memory, 1, Storage::kStageBytes, stdin) != Storage::kStageBytes) return 4;
  Split<MainloopTraits::kScaled> split;
  split.split_b();
  fwrite(shared_memory + planes, 1, Storage::kPlaneStageBytes, stdout);
  for (int s = 0; s < MainloopTraits::kBlockK / (16 * MainloopTraits::kSumSteps); ++s) split.split_a(s);
  for (int k = 0; k < MainloopTraits::kBlockK; ++k) {
    for (int row = 0; row < MainloopTraits::LoaderTraitsA::kRows; ++row) put<Storage::TileA>(0, row, k);
    for (int row = 0; row < MainloopTraits::LoaderTraitsB::kRows; ++row) put<Storage::TileB>(b, row, k);
  }
  split.told();
}
"""
)


def floats(x: Any) -> Any:
    """The parts of numbers: (parts, ...)."""
    return np.moveaxis(np.ascontiguousarray(x).view(np.float32).reshape(*x.shape, -1), -1, 0)


def plane_bits(x: Any, made: Planes) -> Any:
    """The planes of parts as bits, the largest first: (parts, planes, ...)."""
    out = planes(x, made)
    if not made.scaled:
        assert not (x - sum(out)).any()  # three planes of bfloat16 hold all of a float
    return np.stack([encode(plane, made.tensor.name).view(np.uint16) for plane in out], axis=1)


def least(x: Any) -> Any:
    """What `Smallest` keeps of numbers."""
    parts = floats(x)
    return (np.abs(parts[parts != 0]).min().view(np.uint32) << 1) - 1


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, made: Planes) -> Any:
    """Of very different magnitudes; some rows are all zero, some tiny where planes are scaled."""
    shape = (*shape[:-1], shape[-1] * (np.dtype(dtype).itemsize // 4))
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-40, 40, shape)).astype(np.float32)
    x[:8] *= np.float32(2.0**-60 if made.scaled else 1)
    x[3], x[::5, ::3] = 0, 0
    return x.view(dtype)


def order(loop: WgmmaSplit, deep: int, parts: int) -> Any:
    """Where each k of a tile stands among the planes: a thread that reads four neighbours has them at 2t and 2t + 8.

    Of rows of 128 bytes of real numbers even chunks make the first step of 16 k, odd ones the second. Complex numbers
    have that order in such rows only.
    """
    k = np.arange(deep)
    assert isinstance(loop.a, Tma)
    assert isinstance(loop.b, Tma)
    spread = loop.a.major == "k" and loop.a.map.swizzle_bytes == 128
    spread &= loop.b.major == "mn" or loop.b.map.swizzle_bytes == 128
    if loop.a.major != "k" or (parts == 2 and not spread):
        return k
    step, t = (k // 4 % 2, k // 8) if spread and parts == 1 else (k // 16, k // 4 % 4)
    return step * 16 + t * 2 + k % 2 + k // 2 % 2 * 8


def places_in_b(loop: WgmmaSplit, box_k: Box) -> Any:
    """Where in B's tile each k of A's stands."""
    found = []
    for load in (loop.a, loop.b):
        unit = load.map.order[0] - (len(load.map.order) - len(box_k.extents))
        box = box_k.led_by(unit) if load.major == "k" else box_k
        found.append([box.coordinates(0, i) for i in range(box.size)])
    if found[0] == found[1]:  # k beyond a mode's end have no coordinates of their own
        return np.arange(box_k.size)
    return np.array([found[1].index(at) for at in found[0]])


FAMILIES = ("split", "split_complex", "split_fp16", "split_fp16_complex")


@pytest.mark.parametrize(
    ("family", "every"), slow_but([(x, every) for every in (False, True) for x in FAMILIES], [(FAMILIES[3], False)])
)
def test_planes_of_every_kind_lie_where_wgmma_reads_them(family: str, every: bool, tmp_path: Path) -> None:
    """In a quick test one of the first case."""
    for spec in of_every_kind(specs(family)) if every else of_every_kind(few_specs(family))[:1]:
        check(spec, tmp_path / repr(spec))


def kernels() -> list[Spec]:
    return [spec for family in FAMILIES for spec in covering(specs(family), pairs=False)]


@pytest.mark.slow
@pytest.mark.parametrize("at", range(3))
def test_planes_lie_where_wgmma_reads_them(at: int, tmp_path: Path) -> None:
    for spec in kernels()[at::3]:
        check(spec, tmp_path / repr(spec))


def check(spec: Spec, tmp_path: Path) -> None:
    tmp_path.mkdir()
    loop, t = spec.schedule.mainloop, spec.schedule.tiling
    assert isinstance(loop, WgmmaSplit)
    made = spec_planes(spec.plan)
    assert made is not None
    deep, dtype = t.shape[2], spec.plan.contraction.dtype
    size = np.dtype(dtype).itemsize
    parts, word = size // 4, {4: np.uint32, 8: np.uint64}[size]
    stage = np.zeros(spec.schedule.smem.stage, np.uint8)
    rng = np.random.default_rng(1)
    values = []
    room = -(-t.m.size // 64) * 64
    first = 0
    for name, load, rows in (("a", loop.a, t.m.size), ("b", loop.b, t.n.size)):
        assert isinstance(load, Tma)
        x = numbers(rng, (rows, deep), dtype, made)
        places = wgmma_places(load.major, load.map.swizzle_bytes, (rows, deep), rows, deep, size)
        if name == "b":
            places = places[:, places_in_b(loop, t.k)]
        stage.view(word)[(first + places) // size] = x.view(word)
        values.append(x)
        row = -(-deep * size // load.map.swizzle_bytes) * load.map.swizzle_bytes if load.major == "k" else deep * size
        first += -(-room * row // 1024) * 1024
    headers = includes("core/index", "loader/split", "mainloop/split_fragment", "mainloop/split_storage")
    headers += includes("mainloop/split_repair")
    text = headers + PROGRAM.replace("INSIDE", generated(render_kernel(spec.plan, spec.schedule)))
    output = run_host(tmp_path, text, stage.tobytes())
    a, b = values
    told = np.frombuffer(output[-12 if made.scaled else -8 :], np.uint32)
    output = output[: -told.nbytes]
    repaired = np.frombuffer(output[-a.nbytes - b.nbytes :], dtype).reshape(deep, -1)
    np.testing.assert_array_equal(repaired.T, np.concatenate([a, b]))
    output = output[: -repaired.nbytes]

    steps = made.sum_steps(parts, deep)
    where = order(loop, deep, parts)
    part_a, part_b, of_a, of_b = floats(a), floats(b), None, None
    if made.scaled:
        columns = int(told[2])
        assert columns * 4 >= len(b)
        assert columns % 8 == 0
        share = np.arange(len(b)) // columns
        of_b = np.array([scale(part_b[:, share == i]) for i in range(4)])
        written = np.frombuffer(output[:16], np.float32)
        np.testing.assert_array_equal(written, 1 / of_b)
        output = output[16:]
        by_sum = part_a.reshape(parts, len(a), -1, 16 * steps)
        of_a = np.array([[scale(by_sum[:, m, s]) for s in range(by_sum.shape[2])] for m in range(len(a))])
        part_a = part_a * of_a.repeat(16 * steps, 1).astype(np.float32)
        part_b = part_b * of_b[share][:, None].astype(np.float32)
        readers = 2 if len(a) <= 64 else 1  # both warpgroups read the only block of 64 rows
        assert list(told[:2]) == [readers * low_counts(part_a).sum(), low_counts(part_b).sum()]
        assert set(np.unique(low_counts(part_b))) == {0, 1, MANY}
    else:
        assert list(told) == [least(a), least(b)]

    bytes_of_thread = (4 * made.count * steps * parts + 2 * made.scaled) * 4
    sums = deep // (16 * steps)
    by_thread = np.frombuffer(output, np.uint32)[-sums * 64 * bytes_of_thread :].reshape(sums, 256, -1)
    planes_of_b = np.frombuffer(output[: len(output) - by_thread.nbytes], np.uint16).reshape(parts, made.count, -1)
    swizzle = deep * 2 if loop.b.major == "k" else loop.b.map.swizzle_bytes * 2 // size
    places = wgmma_places(loop.b.major, swizzle, (t.n.size, deep), t.n.size, deep, 2)
    np.testing.assert_array_equal(planes_of_b[:, :, places[:, where] // 2], plane_bits(part_b, made))
    thread = np.arange(256)
    lane = thread % 32
    expected = plane_bits(part_a, made)
    by_place = np.argsort(where)  # the k that stands at a place of the fragments
    fragments = by_thread[:, :, : 4 * made.count * steps * parts].reshape(sums, 256, steps, parts, made.count, 4)
    for s in range(deep // 16):
        for r in range(4):
            row = thread // 128 * 64 + thread % 128 // 32 * 16 + lane // 4 + r % 2 * 8
            k = s * 16 + lane % 4 * 2 + r // 2 * 8
            held = row < t.m.size
            if of_a is not None:
                inverse = by_thread[s // steps, held, -2 + r % 2].view(np.float32)
                np.testing.assert_array_equal(inverse, 1 / of_a[row[held], s // steps])
            for e in range(2):
                got = fragments[s // steps, held, s % steps, :, :, r] >> 16 * e & 0xFFFF
                wanted = expected[:, :, row[held], by_place[k[held] + e]]
                np.testing.assert_array_equal(np.moveaxis(got, 0, -1), wanted)
