"""Can tensor maps fetch rows that start anywhere, and how fast: a probe, to be run by hand on a Hopper GPU.

    python -m benchmarks.odd_rows_probe

A map's strides are multiples of 16 bytes, but its coordinates are not bound to anything. Of rows `s` elements apart (s
odd), every eighth is 16 * s bytes from the next: eight copies, one for each remainder r, with the innermost coordinate
k + r * s, bring eight interleaved sets of rows, each row aligned in shared memory. An innermost extent of r * s + K
makes what is behind the row's end zero. This prints whether that is so, and bytes a second beside aligned rows.
"""

from __future__ import annotations

import ctypes
import tempfile
from typing import Any

import numpy as np

from gett.codegen.records import TensorMapSpec
from gett.jit.compile import compile_uncached
from gett.runtime.driver import load_driver
from gett.runtime.tensormap import TensorMap

HALF, PROMOTE_128 = 6, 2
SOURCE = r"""
#include "gett/sm90_ptx.cuh"
using namespace gett;
// Every block walks `count` boxes of kInner elements by kRows rows; a box's rows are all of one remainder.
extern "C" __global__ void fetch(const TensorMap* maps, long long stride, int across, int down, int count, uint4* out) {
  extern __shared__ __align__(1024) char raw[];
  const uint32 start = (smem_address(raw) + 1023) & ~1023u, bars = start + kSlots * kBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) barrier_init(bars + i * 8, 1);
    barrier_fence();
    int asked = 0;
    auto ask = [&]() {
      const long long box = (long long)asked * gridDim.x + blockIdx.x;
      const int r = int(box % 8), x = int(box / 8 % across), y = int(box / 8 / across % down);
      const uint32 slot = asked % kSlots;
      barrier_expect(bars + slot * 8, kBytes);
      load_box(start + slot * kBytes, maps + r, bars + slot * 8, x * kInner + int(r * stride), y * kRows);
      ++asked;
    };
    while (asked < min(kSlots, count)) ask();
    for (int i = 0; i < count; ++i) {
      barrier_wait(bars + i % kSlots * 8, i / kSlots & 1);
      if (asked < count) ask();
    }
  }
  __syncthreads();
  if (out) {
    const uint4* from = reinterpret_cast<const uint4*>(raw + (start - smem_address(raw)));
    for (int i = threadIdx.x; i < kBytes / 16; i += blockDim.x) out[blockIdx.x * (kBytes / 16) + i] = from[i];
  }
}
"""


def main() -> None:
    """Print the table."""
    import cupy as cp

    print("swizzle off; boxes of `rows` rows; TB/s of useful bytes, in L2 (24 MB) and in memory (1 GiB)")
    for inner, rows in ((16, 32), (32, 32), (64, 16), (64, 32), (64, 64)):
        exact = probe(cp, inner, rows, 1031, 1 << 12, check=True)
        line = [f"{inner * 2:4d} bytes x {rows:3d}: {'exact' if exact else 'WRONG'}"]
        for megabytes in (24, 1024):
            for stride in (1032, 1031):
                high = megabytes * 500_000 // stride // (8 * rows) * (8 * rows)
                line.append(f"{'odd' if stride % 8 else 'aligned'} {probe(cp, inner, rows, stride, high):5.2f}")
        print("  ".join(line), flush=True)


def probe(cp: Any, inner: int, rows: int, stride: int, high: int, check: bool = False) -> Any:
    """Terabytes a second, or whether a few boxes are right; `high` rows of 1031 elements."""
    length, slots = 1031, max(2, min(12, 98304 // (inner * rows * 2)))
    numbers = (
        f"#define kInner {inner}\n#define kRows {rows}\n#define kSlots {slots}\n#define kBytes {inner * rows * 2}\n"
    )
    made = compile_uncached(numbers + SOURCE, "sm_90a")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.cubin)
        file.flush()
        kernel = cp.RawModule(path=file.name).get_function("fetch")
    values = cp.arange(high * stride, dtype=cp.uint32).astype(cp.uint16)
    host = np.zeros(8 * 128 + 64, np.uint8)
    base = host.ctypes.data + -host.ctypes.data % 64
    for r in range(8):
        extents = (r * stride + length, -(-(high - r) // 8))
        spec = TensorMapSpec(HALF, extents, (16 * stride,), (inner, rows), 0, PROMOTE_128)
        TensorMap(load_driver(), spec, base + 128 * r, "the probe").point_at(values.data.ptr)
    maps = cp.asarray(np.frombuffer((ctypes.c_uint8 * 1024).from_address(base), np.uint8))
    across, down = -(-length // inner), high // 8 // rows
    shared = slots * inner * rows * 2 + 1024 + 8 * slots
    passes = max(1, 400_000_000 // (high * stride * 2))  # a small tensor stays in L2 from the second on
    blocks = 264 if not check else 8 * across
    count = 1 if check else max(1, passes * 8 * across * down // blocks)
    out = cp.zeros(blocks * inner * rows, cp.uint16) if check else None
    kernel.max_dynamic_shared_size_bytes = shared
    args = (
        maps.data.ptr,
        np.int64(stride),
        np.int32(across),
        np.int32(down),
        np.int32(count),
        out.data.ptr if check else 0,
    )
    times = []
    for _ in range(1 if check else 5):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        kernel((blocks, 1, 1), (32, 1, 1), args, shared_mem=shared)
        end.record()
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(begin, end) * 1e-3)
    if not check:
        return blocks * count * inner * rows * 2 / min(times) * 1e-12
    got = out.get().reshape(blocks, rows, inner)
    data, right = values.get(), True
    for block in range(blocks):
        r, x = block % 8, block // 8
        at_row, at = np.arange(rows) * 8 + r, x * inner + np.arange(inner)
        wanted = np.where(at < length, data[at_row[:, None] * stride + np.minimum(at, length - 1)], 0)
        right &= bool((got[block] == wanted).all())
    return right


if __name__ == "__main__":
    main()
