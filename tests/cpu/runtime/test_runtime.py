"""Calls of executables without a GPU: what they write where, in which order, and what they say when one fails."""

from __future__ import annotations

import ctypes
import gc
import struct
import subprocess
import sys
import threading
import time
import timeit
import types
from dataclasses import replace

import pytest

from gett.epilogue.traced import trace
from gett.errors import DeviceError, DTypeError, OptionError, OutOfMemoryError
from gett.ir.gemm import make_gemm_plan
from gett.runtime import driver as driver_module
from gett.runtime.driver import ERROR_INVALID_CONTEXT
from gett.runtime.modules import load_module, release_modules
from gett.runtime.shifted import ShiftedExecutable
from tests.cpu.fake_driver import (
    KILO,
    PARAMS,
    POINTERS,
    A,
    Array,
    B,
    C,
    D,
    FakeDriver,
    FakeHost,
    addresses,
    build,
    copy_plan,
    launch,
    product_plan,
)


@pytest.mark.parametrize("swapped", [False, True])
def test_addresses_reach_the_slots_of_their_roles(swapped):
    run, host, driver = build(product_plan(swapped=swapped))
    run(A, B, C, D)
    (seen,) = driver.launches
    first, second = (B, A) if swapped else (A, B)
    expected = {"a": first.data.ptr, "b": second.data.ptr, "c": C.data.ptr, "d": D.data.ptr, "workspace": 0}
    assert addresses(seen) == expected
    assert (seen.entry, seen.grid, seen.block, seen.smem) == ("main_kernel", (3, 2, 1), (128, 1, 1), 0)
    assert (seen.stream, seen.attributes) == (host.stream.ptr, 1)  # launches overlap
    assert seen.params[48:] == PARAMS[48:]
    assert struct.unpack_from("<2f", seen.params, 40) == (1.0, 0.0)


def test_each_call_has_its_own_addresses_and_stream():
    run, host, driver = build(product_plan(swapped=False))
    run(A, B, C, D)
    host.stream = types.SimpleNamespace(ptr=0x7FFF_0000_1234, is_capturing=lambda: False)
    run(D, C, B, A)
    assert [one.stream for one in driver.launches] == [0x51, 0x7FFF_0000_1234]
    assert addresses(driver.launches[1])["a"] == D.data.ptr
    assert addresses(driver.launches[1])["d"] == A.data.ptr


def test_scalars_are_written_only_when_they_change():
    run, _, driver = build(product_plan(swapped=False))
    written = []
    real = run._block.write_scalar
    run._block = types.SimpleNamespace(
        write_scalar=lambda name, value: (written.append((name, value)), real(name, value)), entries=run._block.entries
    )
    for alpha, beta in [(1, 0), (2.5, 0), (2.5, 0), (2.5, -1), (1, 0), (1.0, 0)]:
        run(A, B, C, D, alpha, beta)
        assert struct.unpack_from("<2f", driver.launches[-1].params, 40) == (alpha, beta)
    assert written == [("alpha", 2.5), ("beta", -1), ("alpha", 1), ("beta", 0)]


def test_scalars_in_every_kernel_dtype():
    scalars = (("alpha", 48, "complex64"), ("beta", 56, "float64"))
    run, _, driver = build(product_plan(swapped=False), launch(params=bytes(64), scalars=scalars))
    run(A, B, C, D, 2 - 3j, 0.1)
    assert struct.unpack_from("<2fd", driver.launches[0].params, 48) == (2.0, -3.0, 0.1)
    run, _, driver = build(product_plan(swapped=False), launch(scalars=(("alpha", 40, "uint8"), ("beta", 41, "int64"))))
    run(A, B, C, D, 255.0, -(2**62) - 1)
    assert struct.unpack_from("<Bq", driver.launches[0].params, 40) == (255, -(2**62) - 1)


@pytest.mark.parametrize(
    ("dtype", "alpha", "error", "text"),
    [
        ("float32", 1j, DTypeError, "alpha=1j cannot be used as float32"),
        ("int32", 1.5, DTypeError, "alpha=1.5 cannot be used as int32"),
        ("uint8", 300, OptionError, "alpha=300 does not fit uint8"),
        ("float64", "two", DTypeError, "alpha='two'"),
        ("float64", [1, 2], DTypeError, r"alpha=\[1, 2\]"),
    ],
)
def test_scalars_that_do_not_fit_change_nothing(dtype, alpha, error, text):
    run, _, driver = build(product_plan(swapped=False), launch(scalars=(("alpha", 40, dtype),)))
    with pytest.raises(error, match=text):
        run(A, B, C, D, alpha)
    assert not driver.launches
    run(A, B, C, D)  # neither the lock nor the last good value is lost
    assert len(driver.launches) == 1


def test_missing_and_surplus_operands_are_named():
    run, _, _ = build(product_plan(swapped=False))
    with pytest.raises(OptionError, match="b is missing"):
        run(A, None, C, D)
    with pytest.raises(OptionError, match="c is missing"):
        run(A, B, None, D)
    run, _, _ = build(product_plan(swapped=False, with_c=False))
    with pytest.raises(OptionError, match="c is given"):
        run(A, B, C, D)
    run, _, driver = build(copy_plan())
    with pytest.raises(OptionError, match="no second operand"):
        run(A, B, None, D)
    run(A, None, None, D)
    assert addresses(driver.launches[0]) == {
        "a": A.data.ptr, "b": 0, "c": 0, "d": D.data.ptr, "workspace": 0
    }  # fmt: skip


def bias_plan(count):
    """`D[i, j] = A[i] * B[j] + x0[i] + ...`, and the parameters of its kernel."""
    plan = product_plan(swapped=False, with_c=False)
    extra = plan.contraction.a
    function = trace(lambda d, *x: sum(x, d), [0] * count)
    return make_gemm_plan(replace(plan.contraction, epilogue=function, extras=(extra,) * count))


def test_addresses_of_an_epilogues_tensors_reach_every_launch():
    slots = (("x0", 0), ("x1", 16))
    both = [launch(name, pointers=(*POINTERS[1:2], *POINTERS[3:], *slots)) for name in ("main_kernel", "gett_reduce")]
    run, _, driver = build(bias_plan(2), *both)
    for first, second in ((0x1230, 0x4560), (0x7890, 0xABC0)):
        driver.launches.clear()
        run(A, B, None, D, extras=[Array(first), Array(second)])
        run.run_at(A.data.ptr, B.data.ptr, 0, D.data.ptr, 0x51, 0, extras=[second, first])
        assert [struct.unpack_from("<Q8xQ", one.params) for one in driver.launches] == [(first, second)] * 2 + [
            (second, first)
        ] * 2
    shifted = ShiftedExecutable(run, (4, 0, 0, 8, 32, -16))
    driver.launches.clear()
    shifted(A, B, None, D, extras=[Array(0x1230), Array(0x4560)])
    shifted.run_at(A.data.ptr, B.data.ptr, 0, D.data.ptr, 0x51, 0, extras=[0x1230, 0x4560])
    assert {struct.unpack_from("<Q8xQ", one.params) for one in driver.launches} == {(0x1250, 0x4550)}


def test_missing_and_surplus_tensors_of_an_epilogue_are_counted():
    run, _, driver = build(bias_plan(2), launch(pointers=(*POINTERS, ("x0", 0), ("x1", 16))))
    for given in ([], [A], [A, A, A]):
        with pytest.raises(OptionError, match=f"reads 2 tensors, {len(given)} are given"):
            run(A, B, None, D, extras=given)
    assert not driver.launches


def test_two_launches_run_in_order_and_share_the_workspace():
    reduce = launch("reduce", (1, 1, 1), pointers=(("d", 8), ("workspace", 0)), scalars=(("beta", 16, "float64"),))
    run, host, driver = build(product_plan(swapped=True), launch(), reduce, workspace=4096)
    for _ in range(2):
        run(A, B, C, D, 1, 3)
    assert [one.entry for one in driver.launches] == ["main_kernel", "reduce"] * 2
    assert host.allocated == [4096, 4096]
    assert host.live == 0  # back in the pool as soon as the launches are queued
    for main, second, base in zip(driver.launches[::2], driver.launches[1::2], (0xF000, 0xF400), strict=True):
        assert addresses(main)["workspace"] == base
        assert struct.unpack_from("<2Qd", second.params) == (base, D.data.ptr, 3.0)


def test_without_workspace_nothing_is_allocated():
    run, host, _ = build(product_plan(swapped=False))
    run(A, B, C, D)
    assert host.allocated == []


def test_a_captured_workspace_stays_with_the_executable():
    gc.freeze()  # what other tests have made is not walked over
    run, host, _ = build(product_plan(swapped=False), workspace=64)
    host.capturing = True
    run(A, B, C, D)
    assert host.live == 1
    host.capturing = False
    run(A, B, C, D)
    assert host.live == 1
    del run
    gc.collect()
    assert host.live == 0


def test_out_of_memory_for_the_workspace_gives_the_bytes():
    run, _, driver = build(product_plan(swapped=False), workspace=1 << 40, host=FakeHost(out_of_memory=True))
    with pytest.raises(MemoryError, match=str(1 << 40)):
        run(A, B, C, D)
    assert not driver.launches


def test_empty_grids_are_not_launched():
    run, _, driver = build(product_plan(swapped=False), launch(grid=(0, 1, 1)), launch("tail"))
    run(A, B, C, D)
    assert [one.entry for one in driver.launches] == ["tail"]


def test_a_failed_launch_says_what_and_where():
    run, _, driver = build(product_plan(swapped=False), driver=FakeDriver(len(PARAMS), codes=[1, 2, 0]))
    with pytest.raises(DeviceError, match=r"cuLaunchKernelEx failed: CUDA_ERROR_TEST \(1\): as told; kernel main_kernel"
                       r", grid \(3, 2, 1\), block \(128, 1, 1\), 0 bytes of shared memory, GPU 0"):  # fmt: skip
        run(A, B, C, D)
    with pytest.raises(OutOfMemoryError, match="cuLaunchKernelEx"):
        run(A, B, C, D)
    run(A, B, C, D)
    assert len(driver.launches) == 1


def test_a_thread_without_context_gets_the_device_context():
    driver = FakeDriver(len(PARAMS), codes=[ERROR_INVALID_CONTEXT, 0])
    run, _, _ = build(product_plan(swapped=False), driver=driver)
    run(A, B, C, D)
    assert driver.contexts == [driver.current_context()]
    assert len(driver.launches) == 1
    driver.codes = [ERROR_INVALID_CONTEXT] * 2
    with pytest.raises(DeviceError, match=str(ERROR_INVALID_CONTEXT)):
        run(A, B, C, D)


def test_an_executable_remembers_its_device():
    run, host, driver = build(product_plan(swapped=False), host=FakeHost(device=1, count=2))
    assert (run.device, host.bound) == (1, 1)
    run(A, B, C, D)
    assert host.switches == []
    host.device = 0
    run(A, B, C, D)
    assert (host.switches, host.device, len(driver.launches)) == ([1], 0, 2)


def test_shared_memory_limit_is_raised_when_needed_and_never_lowered():
    driver = FakeDriver(len(PARAMS))
    plan, limit = product_plan(swapped=False), driver_module.ATTRIBUTE_MAX_DYNAMIC_SMEM
    cubin = b"shared by three"
    build(plan, launch(smem=48 * KILO), driver=driver, cubin=cubin)
    assert driver.attributes == []
    keep = [build(plan, launch(smem=size * KILO), driver=driver, cubin=cubin) for size in (200, 64)]
    assert driver.attributes == [("main_kernel", limit, 200 * KILO)]
    assert driver.modules == [cubin]  # loaded once
    static = FakeDriver(len(PARAMS), static_smem=1)
    build(plan, launch(smem=48 * KILO), driver=static, cubin=b"with static memory")
    assert static.attributes == [("main_kernel", limit, 48 * KILO)]
    del keep


def test_modules_are_kept_for_each_device_and_released_when_unused():
    gc.freeze()
    release_modules(FakeHost())
    driver, host = FakeDriver(len(PARAMS)), FakeHost(count=2)
    run, _, _ = build(product_plan(swapped=False), driver=driver, host=host, cubin=b"x")
    host.device = 1
    other, _, _ = build(product_plan(swapped=False), driver=driver, host=host, cubin=b"x")
    assert driver.modules == [b"x", b"x"]
    assert load_module(driver, 1, b"x") is other._module
    assert release_modules(host) == 0
    del other
    gc.collect()
    host.switches.clear()
    assert release_modules(host) == 1
    assert (driver.unloaded, host.switches, host.synchronized) == ([102], [1], 1)
    run(A, B, C, D)


def test_threads_do_not_mix_their_arguments():
    run, _, driver = build(product_plan(swapped=False))

    def work(tag):
        arrays = [Array(tag << 32 | i) for i in range(4)]
        for _ in range(200):
            run(*arrays, tag, tag)

    threads = [threading.Thread(target=work, args=(tag,)) for tag in range(1, 5)]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert len(driver.launches) == 800
    for seen in driver.launches:
        found = addresses(seen)
        tag = found["a"] >> 32
        assert [found[role] for role in "abcd"] == [tag << 32 | i for i in range(4)]
        assert struct.unpack_from("<2f", seen.params, 40) == (tag, tag)


def test_import_needs_no_cupy():
    code = "import sys, gett.runtime; sys.exit(any(m.split('.')[0] == 'cupy' for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_host_time_of_a_call(capsys):
    run, _, _ = build(product_plan(swapped=True))
    empty = ctypes.CDLL(None).pthread_equal  # compares its first two arguments; they differ, so it returns 0
    run._launch = empty
    run(A, B, C, D)
    number = 20_000
    # The thread's own time: other processes of a busy machine do not count.
    best = min(timeit.repeat(lambda: run(A, B, C, D), timer=time.thread_time, number=number, repeat=5)) / number
    with capsys.disabled():
        print(f"\nhost time of a call without the driver: {best * 1e9:.0f} ns")
    assert best < 7e-6  # what a call may take with the driver
