"""Microbenchmarks of one GPU: memory and L2 by length of run, rows of the copy engine (TMA), launches.

Owns the measuring kernels. Rates are TB/s by the clock of `GpuTimer`; clocks are read on the multiprocessors. Knows no
schedule.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timing import GpuTimer

RUNS = (16, 32, 64, 128, 256, 512, 1024)  # bytes
PIECES = 17  # a pass over memory takes every 17th run; the next passes take the others
BUFFER = 1 << 30
L2_BUFFER = 16 << 20
L2_ROUNDS = 24
BLOCKS_PER_SM, THREADS = 16, 256
STAGES = 6  # boxes of the copy engine under way, `kStages` below
BOX_BYTES, BOX_ROWS = 16 << 10, 256  # most of a box
ROUNDS = 16  # over a buffer that L2 holds

KERNELS = r"""
// Chunk i of 16 bytes belongs to run i / length; runs are visited every `pieces`-th, pass after pass.
__device__ long long scattered(long long i, int length, long long pass, int pieces) {
    long long run = i / length;
    return (run % pass * pieces + run / pass) * length + i % length;
}
extern "C" __global__ void scattered_copy(const uint4* from, uint4* to, long long chunks, int length, long long pass,
                                          int pieces, int store) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < chunks; i += step) {
        long long far = scattered(i, length, pass, pieces);
        if (store) to[far] = from[i]; else to[i] = from[far];
    }
}
extern "C" __global__ void reread(const uint4* from, uint4* to, int chunks, int rounds) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    int step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; ++round)
        for (int i = first; i < chunks; i += step) {
            uint4 v;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from + i));
            sum.x ^= v.x; sum.y ^= v.y; sum.z ^= v.z; sum.w ^= v.w;
        }
    if (sum.x == 0x12345678u && sum.y == 1u) to[0] = sum;
}
extern "C" __global__ void nothing() {}
"""

TMA_KERNEL = r"""
// One thread of each block moves boxes of `rows` rows of `row` bytes through a ring in shared memory. The tensor map
// has passes side by side: box j lies in pass j / per_pass. The other side of a copy, if any, is one run.
constexpr int kStages = 6, kAhead = 3;
enum Mode { kCopyFromRows, kCopyToRows, kLoadRows, kStoreRows };
__device__ unsigned smem_at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void await(unsigned bar, unsigned phase) {
    asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\n"
                 "bra AGAIN;\nDONE:\n}" :: "r"(bar), "r"(phase) : "memory");
}
extern "C" __global__ void tma_rows(const char* map, char* line, int mode, long long boxes, long long total,
                                    int per_pass, int rows, int row, unsigned long long* clocks) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ __align__(8) unsigned long long full[kStages];
    if (threadIdx.x) return;
    for (int s = 0; s < kStages; ++s)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(smem_at(full + s)));
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" :: "l"(map) : "memory");
    const int bytes = rows * row;
    const int lag = mode == kLoadRows || mode == kStoreRows ? kStages : kAhead;
    const bool loads = mode != kStoreRows, stores = mode != kLoadRows;
    const long long mine = (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const long long start = clock64();
    for (long long i = 0; i < mine + lag; ++i) {
        const long long back = i - lag;
        if (loads && back >= 0) await(smem_at(full + back % kStages), unsigned(back / kStages) & 1);
        const long long out = loads ? back : i;
        if (stores && out >= 0 && out < mine) {
            if (!loads) asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(kStages - 1) : "memory");
            const long long j = (blockIdx.x + out * gridDim.x) % boxes;
            const unsigned from = smem_at(ring) + unsigned(out % kStages) * bytes;
            if (mode == kCopyFromRows)
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                             :: "l"(line + j * bytes), "r"(from), "r"(bytes) : "memory");
            else
                asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                             :: "l"(map), "r"(int(j / per_pass) * row), "r"(int(j % per_pass) * rows), "r"(from)
                             : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        if (loads && i < mine) {
            if (stores) asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(kStages - kAhead) : "memory");
            const long long j = (blockIdx.x + i * gridDim.x) % boxes;
            const unsigned to = smem_at(ring) + unsigned(i % kStages) * bytes, bar = smem_at(full + i % kStages);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
            if (mode == kCopyToRows)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                             :: "r"(to), "l"(line + j * bytes), "r"(bytes), "r"(bar) : "memory");
            else
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                             "[%0], [%1, {%2, %3}], [%4];"
                             :: "r"(to), "l"(map), "r"(int(j / per_pass) * row), "r"(int(j % per_pass) * rows), "r"(bar)
                             : "memory");
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    clocks[blockIdx.x] = clock64() - start;
}
"""


def run_passes(run_bytes: int, buffer_bytes: int = BUFFER) -> tuple[int, int]:
    """Runs of one pass, and 16-byte chunks of all passes: a whole number of runs in each of `PIECES` passes."""
    per_pass = buffer_bytes // run_bytes // PIECES
    return per_pass, per_pass * PIECES * (run_bytes // 16)


def measured_us(timer: GpuTimer, call: Callable[[int], object]) -> float:
    """Median microseconds.

    Raises:
        RuntimeError: The call failed.
    """
    found = timer.measure(call)
    if found.median_us is None:
        raise RuntimeError(f"a measurement failed: {found.error}")
    return found.median_us


def measure_runs(cupy: Any, timer: GpuTimer) -> dict[str, dict[int, float]]:
    """TB/s, read plus written, of copies by threads of which one side comes in short runs, by side and bytes."""
    kernel = cupy.RawModule(code=KERNELS).get_function("scattered_copy")
    source, target = cupy.zeros(BUFFER, "uint8"), cupy.empty(BUFFER, "uint8")
    found: dict[str, dict[int, float]] = {}
    for side in ("load", "store"):
        found[side] = {}
        for run in RUNS:
            per_pass, chunks = run_passes(run)
            arguments = (
                source, target, np.int64(chunks), np.int32(run // 16), np.int64(per_pass), np.int32(PIECES),
                np.int32(side == "store"),
            )  # fmt: skip
            us = measured_us(timer, lambda _, a=arguments: kernel((_blocks(cupy),), (THREADS,), a))
            found[side][run] = 2 * 16 * chunks / us * 1e-6
    return found


def measure_l2(cupy: Any, timer: GpuTimer) -> float:
    """TB/s of reading a buffer that the L2 cache holds, past the caches above it."""
    kernel = cupy.RawModule(code=KERNELS).get_function("reread")
    source, target = cupy.zeros(L2_BUFFER, "uint8"), cupy.empty(16, "uint8")
    arguments = (source, target, np.int32(L2_BUFFER // 16), np.int32(L2_ROUNDS))
    return L2_BUFFER * L2_ROUNDS / measured_us(timer, lambda _: kernel((_blocks(cupy),), (THREADS,), arguments)) * 1e-6


def measure_launch(cupy: Any, timer: GpuTimer) -> float:
    """Microseconds from one kernel to the next in a full queue, of kernels that do nothing."""
    kernel = cupy.RawModule(code=KERNELS).get_function("nothing")
    return measured_us(timer, lambda _: kernel((1,), (32,), ()))


def _blocks(cupy: Any) -> int:
    return BLOCKS_PER_SM * int(cupy.cuda.Device().attributes["MultiProcessorCount"])


class Rows:
    """Boxes of short rows moved by the copy engine: a buffer as a tensor map sees it.

    Args:
        cupy: The CuPy module.
        nbytes: Of the buffer.
        row: Bytes of a row.
        passes: Rows side by side, so that a pass over the boxes takes one in so many.
    """

    COPY_FROM, COPY_TO, LOAD, STORE = range(4)

    def __init__(self, cupy: Any, nbytes: int, row: int, passes: int) -> None:
        from gett.codegen.records import TensorMapSpec
        from gett.runtime.driver import load_driver
        from gett.runtime.tensormap import MAP_BYTES, TensorMap

        self._cupy = cupy
        self.row, self.rows = row, min(BOX_ROWS, BOX_BYTES // row)
        self.per_pass = nbytes // (row * passes * self.rows)
        self.boxes = self.per_pass * passes
        self._buffer = cupy.zeros(self.boxes * self.rows * row, "uint8")
        pitch = row * passes
        spec = TensorMapSpec(0, (pitch, self.per_pass * self.rows), (pitch,), (row, self.rows), 0, 0)
        host = ctypes.create_string_buffer(2 * MAP_BYTES)
        slot = -(-ctypes.addressof(host) // MAP_BYTES) * MAP_BYTES
        made = TensorMap(load_driver(), spec, slot, "the buffer")
        made.point_at(self._buffer.data.ptr)
        self._map = cupy.asarray(np.frombuffer(ctypes.string_at(slot, MAP_BYTES), np.uint8))
        self._kernel = cupy.RawModule(code=TMA_KERNEL, options=("--std=c++17",)).get_function("tma_rows")
        self._kernel.max_dynamic_shared_size_bytes = self.smem

    @property
    def smem(self) -> int:
        """Bytes of a block's ring."""
        return STAGES * self.rows * self.row

    @property
    def nbytes(self) -> int:
        """Bytes of all boxes."""
        return self.boxes * self.rows * self.row

    def run(self, mode: int, line: Any, blocks: int, rounds: int, clocks: Any) -> None:
        """Move all boxes `rounds` times; `line` is the other side of a copy."""
        arguments = (
            self._map, line, np.int32(mode), np.int64(self.boxes), np.int64(self.boxes * rounds),
            np.int32(self.per_pass), np.int32(self.rows), np.int32(self.row), clocks,
        )  # fmt: skip
        self._kernel((blocks,), (32,), arguments, shared_mem=self.smem)

    def copy_tbps(self, timer: GpuTimer, line: Any, store: bool) -> float:
        """Rate of a copy, read plus written, whose stores (or loads) come in rows; two blocks a multiprocessor."""
        blocks = 2 * int(self._cupy.cuda.Device().attributes["MultiProcessorCount"])
        clocks = self._cupy.empty(blocks, "uint64")
        mode = self.COPY_TO if store else self.COPY_FROM
        return 2 * self.nbytes / measured_us(timer, lambda _: self.run(mode, line, blocks, 1, clocks)) * 1e-6

    def clocks_per_row(self, mode: int, rounds: int) -> float:
        """Clocks of a multiprocessor for each row, one block on each; loads or stores only."""
        blocks = int(self._cupy.cuda.Device().attributes["MultiProcessorCount"])
        clocks = self._cupy.zeros(blocks, "uint64")
        found = []
        for _ in range(5):
            self.run(mode, self._buffer, blocks, rounds, clocks)
            found.append(float(clocks.mean()) * blocks / (self.boxes * rounds * self.rows))
        return sorted(found[1:])[1]


def measure_bulk(cupy: Any, timer: GpuTimer) -> dict[str, dict[int, float]]:
    """As `measure_runs`, by the copy engine; stores also in runs of 48 bytes, which cut a sector each."""
    line = cupy.zeros(BUFFER, "uint8")
    found: dict[str, dict[int, float]] = {"load": {}, "store": {}}
    for run in (*RUNS[:5], 48):
        boxes = Rows(cupy, BUFFER, run, PIECES)
        found["store"][run] = boxes.copy_tbps(timer, line, True)
        if run != 48:
            found["load"][run] = boxes.copy_tbps(timer, line, False)
    return found


def measure_row_clocks(cupy: Any) -> dict[str, dict[int, float]]:
    """Clocks of a multiprocessor's copy engine for a row, by its bytes: from L2, stored to L2."""
    found: dict[str, dict[int, float]] = {"l2": {}, "stored": {}}
    for row in (16, 32, 64, 128):
        near = Rows(cupy, L2_BUFFER, row, 1)
        found["l2"][row] = near.clocks_per_row(Rows.LOAD, ROUNDS)
        found["stored"][row] = near.clocks_per_row(Rows.STORE, ROUNDS)
    return found
