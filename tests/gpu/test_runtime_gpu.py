"""The runtime on a GPU, with hand-written kernels: compiled, loaded and launched end to end, exactly."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from gett.codegen.records import Kernel, KernelSource, Launch, TensorMapSpec
from gett.errors import DeviceError, MissingPackageError, OutOfMemoryError
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import make_gemm_plan
from gett.jit import compile_kernel
from gett.runtime.device import CupyHost, device_facts
from gett.runtime.driver import load_driver
from gett.runtime.executable import GpuExecutable
from gett.runtime.modules import release_modules

# d[i] = alpha * a[i] + 10 * b[i] + beta * c[i], through dynamic shared memory read backwards.
SOURCE = """
struct Params { const int* a; const int* b; const int* c; int* d; int alpha; int beta; int n; int stride; };
extern "C" __global__ void combine(const __grid_constant__ Params p) {
    extern __shared__ int tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int* last = tile + p.stride;
    if (i < p.n) last[-(int)threadIdx.x] = p.a[i];
    __syncthreads();
    if (i < p.n) p.d[i] = p.alpha * last[-(int)threadIdx.x] + 10 * p.b[i] + (p.beta ? p.beta * p.c[i] : 0);
}
struct Split { const int* a; const int* b; int* workspace; int* d; int n; int pad; };
extern "C" __global__ void partial(const __grid_constant__ Split p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) { p.workspace[i] = p.a[i]; p.workspace[p.n + i] = p.b[i]; }
}
extern "C" __global__ void reduce(const __grid_constant__ Split p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) p.d[i] = p.workspace[i] + 3 * p.workspace[p.n + i];
}
"""
ENTRIES = ("combine", "partial", "reduce")
N, BLOCK = 1000, 128
POINTERS = (("a", 0), ("b", 8), ("c", 16), ("d", 24))
SCALARS = (("alpha", 32, "int32"), ("beta", 36, "int32"))


def plan_of(*, with_c=True):
    operand = Operand((0,), (4,), "int32")
    c = operand if with_c else None
    return make_gemm_plan(Contraction(("i",), (N,), operand, operand, operand, c, "int32"))


def combine_launch(smem_bytes=4 * BLOCK, n=N, block=BLOCK):
    params = bytes(40) + struct.pack("<2i", n, smem_bytes // 4 - 1)
    return Launch("combine", (-(-n // block), 1, 1), (block, 1, 1), smem_bytes, params, POINTERS, (), SCALARS)


def split_launches():
    params = bytes(32) + struct.pack("<2i", N, 0)
    grid, block = (-(-N // BLOCK), 1, 1), (BLOCK, 1, 1)
    first = (("a", 0), ("b", 8), ("workspace", 16))
    second = (("workspace", 16), ("d", 24))
    return Launch("partial", grid, block, 0, params, first), Launch("reduce", grid, block, 0, params, second)


def build(*launches, workspace=0, with_c=True, source=SOURCE, entries=ENTRIES):
    arch = device_facts().arch
    kernel = Kernel(KernelSource(source, entries), arch, launches, workspace)
    cubin = compile_kernel(kernel.source, arch)
    return GpuExecutable(plan_of(with_c=with_c), None, kernel, cubin, CupyHost(), load_driver())


@pytest.fixture
def operands(cupy):
    rng = np.random.default_rng(1)
    host = [rng.integers(-50, 50, N, dtype=np.int32) for _ in range(3)]
    d = cupy.full(N, -(2**31), dtype=np.int32)
    return host, [cupy.asarray(x) for x in host], d


def expect(host, alpha=1, beta=0):
    return alpha * host[0] + 10 * host[1] + beta * host[2]


def test_a_kernel_runs_end_to_end(operands):
    host, (a, b, c), d = operands
    run = build(combine_launch())
    for alpha, beta in [(1, 0), (-3, 2), (0, 1), (1, 0)]:
        d[...] = 77
        run(a, b, c, d, alpha, beta)
        np.testing.assert_array_equal(d.get(), expect(host, alpha, beta))


def test_views_start_at_their_own_element(cupy, operands):
    host, (a, b, c), _ = operands
    big = cupy.full(N + 9, 5, dtype=np.int32)
    build(combine_launch())(a, b, c, big[7 : 7 + N])
    out = big.get()
    np.testing.assert_array_equal(out[7 : 7 + N], expect(host))
    assert set(out[:7].tolist() + out[7 + N :].tolist()) == {5}


def test_device_facts_describe_this_gpu(cupy):
    facts, properties = device_facts(), cupy.cuda.runtime.getDeviceProperties(0)
    assert facts.name == properties["name"].decode()
    assert facts.sm_count == properties["multiProcessorCount"] == facts.planning.sm_count
    assert facts.smem_per_block_optin <= facts.smem_per_sm
    # The table's limits are the hardware's, whichever board of the architecture this is.
    assert facts.planning.smem_per_block == facts.smem_per_block_optin
    assert facts.planning.smem_per_sm == facts.smem_per_sm
    assert 0.1 < facts.dram_tbps < 20
    with pytest.raises(DeviceError, match="there is no GPU 99"):
        device_facts(99)


def test_large_shared_memory_and_too_much_of_it(operands):
    host, (a, b, c), d = operands
    limit = device_facts().smem_per_block_optin
    run = build(combine_launch(limit))
    small = build(combine_launch(64 * 1024))
    run(a, b, c, d)  # after `small` was built: the limit of the shared kernel must not have dropped
    np.testing.assert_array_equal(d.get(), expect(host))
    d[...] = 0
    small(a, b, c, d)
    np.testing.assert_array_equal(d.get(), expect(host))
    with pytest.raises(DeviceError, match=rf"cuFuncSetAttribute failed.*'combine' asks for {limit + 1024} bytes"):
        build(combine_launch(limit + 1024))


def test_errors_of_the_driver_are_named(operands):
    _, (a, b, c), d = operands
    with pytest.raises(DeviceError, match=r"cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE.*block \(4096, 1, 1\)"):
        build(combine_launch(block=4096))(a, b, c, d)
    with pytest.raises(DeviceError, match=r"cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND.*'no_such_kernel'"):
        build(combine_launch(), entries=("combine", "no_such_kernel"))
    kernel = Kernel(KernelSource("", ()), "", ())
    with pytest.raises(DeviceError, match="cuModuleLoadData failed"):
        GpuExecutable(plan_of(), None, kernel, b"no cubin at all" * 9, CupyHost(), load_driver())
    other = "sm_90a" if device_facts().compute_capability != (9, 0) else "sm_80"
    cubin = compile_kernel(KernelSource(SOURCE, ENTRIES), other)
    with pytest.raises(DeviceError, match="another architecture"):
        GpuExecutable(plan_of(), None, kernel, cubin, CupyHost(), load_driver())


def test_split_launches_share_a_workspace_from_the_pool(cupy, operands):
    host, (a, b, _), d = operands
    pool = cupy.get_default_memory_pool()
    run = build(*split_launches(), workspace=8 * N, with_c=False)
    used = pool.used_bytes()
    run(a, b, None, d)
    assert pool.used_bytes() == used
    np.testing.assert_array_equal(d.get(), host[0] + 3 * host[1])
    memory = cupy.cuda.runtime.memGetInfo()[1]
    with pytest.raises(OutOfMemoryError, match=f"workspace of {4 * memory} bytes"):
        build(*split_launches(), workspace=4 * memory, with_c=False)(a, b, None, d)


def test_two_streams_interleave_without_waiting(cupy, operands):
    host, (a, b, c), _ = operands
    combine, split = build(combine_launch()), build(*split_launches(), workspace=8 * N, with_c=False)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    results = [[cupy.zeros(N, dtype=np.int32) for _ in range(20)] for _ in streams]
    cupy.cuda.Device().synchronize()
    for i in range(20):
        for stream, out in zip(streams, results, strict=True):
            with stream:
                (combine(a, b, c, out[i], i, 1) if i % 2 else split(a, b, None, out[i]))
    for stream, out in zip(streams, results, strict=True):
        stream.synchronize()
        for i in range(20):
            wanted = expect(host, i, 1) if i % 2 else host[0] + 3 * host[1]
            np.testing.assert_array_equal(out[i].get(), wanted)


def test_launches_are_ordered_in_the_current_stream(cupy, operands):
    host, (_, b, c), d = operands
    run = build(combine_launch())
    wanted = d[...] = 0
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for i in range(50):  # d is the next call's a: right only if each call waits for the last one
            run(d, b, c, d, -1, i)
            wanted = -wanted + 10 * host[1] + i * host[2]
        stream.synchronize()
    np.testing.assert_array_equal(d.get(), wanted)


def test_new_threads_may_call(cupy, operands):
    host, (a, b, c), _ = operands
    run = build(combine_launch())
    outs = [cupy.zeros(N, dtype=np.int32) for _ in range(4)]
    cupy.cuda.Device().synchronize()
    errors = []

    def work(i):
        try:
            for _ in range(50):
                run(a, b, c, outs[i], i, i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    cupy.cuda.Device().synchronize()
    for i, out in enumerate(outs):
        np.testing.assert_array_equal(out.get(), expect(host, i, i))


def test_graph_capture_and_replay(cupy, operands):
    host, (a, b, c), d = operands
    combine, split = build(combine_launch()), build(*split_launches(), workspace=8 * N, with_c=False)
    e = cupy.zeros_like(d)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        combine(a, b, c, d, 2, 1)
        split(d, b, None, e)
        graph = stream.end_capture()
    # What later calls write into the arguments must not reach the graph.
    combine(b, a, c, cupy.zeros_like(d), 5, 5)
    for shift in (0, 100):
        a += shift
        cupy.cuda.Device().synchronize()
        scratch = cupy.full(2 * N, -1, dtype=np.int32)  # would land on a workspace that went back to the pool
        graph.launch(stream)
        stream.synchronize()
        first = expect([host[0] + shift, *host[1:]], 2, 1)
        np.testing.assert_array_equal(d.get(), first)
        np.testing.assert_array_equal(e.get(), first + 3 * host[1])
        assert (scratch.get() == -1).all()


def test_every_device_runs_its_own_executable(cupy):
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(device):
            run = build(combine_launch())
            arrays = [cupy.arange(N, dtype=np.int32) for _ in range(3)]
            out = cupy.zeros(N, dtype=np.int32)
            cupy.cuda.Device().synchronize()
        run(*arrays, out)  # device 0 is current again
        with cupy.cuda.Device(device):
            cupy.cuda.Device().synchronize()
        np.testing.assert_array_equal(out.get(), 11 * np.arange(N))


TMA_SOURCE = """
struct alignas(64) Map { unsigned long long opaque[16]; };
struct Params { Map map; int* d; int* pad; };
extern "C" __global__ void fetch(const __grid_constant__ Params p) {
    __shared__ alignas(128) int tile[8 * 32];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned dst = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3}], [%4];" :: "r"(dst), "l"(&p.map), "r"(0), "r"(2), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;"
                 " @!done bra again; }" :: "r"(bar) : "memory");
    p.d[threadIdx.x] = tile[threadIdx.x];
}
"""


def test_tensor_maps_reach_the_kernel(cupy, operands):
    if device_facts().compute_capability < (9, 0):
        with pytest.raises(DeviceError):
            _fetch_executable()
        return
    run = _fetch_executable()
    b, out = cupy.zeros(256, np.int32), cupy.zeros(256, np.int32)
    for seed in (1, 2, 2, 3):  # encoded, moved, kept, moved
        source = np.random.default_rng(seed).integers(0, 1000, (9, 32), dtype=np.int32)
        run(cupy.asarray(source), b, None, out)
        rows = np.zeros((8, 32), np.int32)
        rows[:7] = source[2:]  # the row outside the tensor is filled with zeros
        np.testing.assert_array_equal(out.get().reshape(8, 32), rows)
    with pytest.raises(DeviceError, match="operand a at 0x"):
        run(cupy.zeros(300, np.int32)[1:], b, None, out)


def _fetch_executable():
    int32_type = 3  # CU_TENSOR_MAP_DATA_TYPE_INT32
    spec = TensorMapSpec(int32_type, (32, 9), (128,), (32, 8), 0, 0)
    # The plan's own A is the user's second operand when it is swapped; this one is not.
    launch = Launch("fetch", (1, 1, 1), (256, 1, 1), 0, bytes(192), (("d", 128),), (("a", 0, spec),))
    assert not plan_of(with_c=False).swapped
    return build(launch, with_c=False, source=TMA_SOURCE, entries=("fetch",))


def test_unused_modules_are_unloaded(operands):
    _, (a, b, c), d = operands
    source = SOURCE + "\n// a text of its own\n" + 'extern "C" __global__ void another(int* x) { *x = 1; }'
    run = build(combine_launch(), source=source, entries=(*ENTRIES, "another"))
    run(a, b, c, d)
    release_modules()
    assert run._module.handle  # in use, so it stays and works
    run(a, b, c, d)
    del run
    assert release_modules() == 1
    assert release_modules() == 0


def test_hidden_gpu_is_a_clear_error():
    code = "from gett.runtime import device_facts; device_facts()"
    env = {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"{DeviceError.__name__}: no NVIDIA GPU is visible" in done.stderr
    assert MissingPackageError.__name__ not in done.stderr


def test_host_time_of_a_call(operands, capsys):
    _, (a, b, c), d = operands
    run = build(combine_launch())
    run(a, b, c, d)  # the addresses are in place from here on
    stream_time = _host_time(lambda: run._current_stream().ptr, 1)
    driver_time = _host_time(lambda: run._launch(*run._calls[0]), 100)
    best = _host_time(lambda: run(a, b, c, d), 100)
    with capsys.disabled():
        print(f"\nhost time of a call: {best:.2f} us (driver {driver_time:.2f} us, stream {stream_time:.2f} us)")
    assert best - driver_time < 4  # the driver's share, 2 to 5 us, is the host's


def _host_time(call, batch):
    """The least over batches short enough that the launch queue never fills, in microseconds a call."""
    import cupy

    times = []
    for _ in range(200):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - start) / batch * 1e6)
    return min(times)  # others may use the processor meanwhile
