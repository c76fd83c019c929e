"""The runtime without a GPU: what a call writes where, in which order, and what it says when something fails."""

from __future__ import annotations

import ctypes
import gc
import struct
import subprocess
import sys
import threading
import timeit
import types
from contextlib import contextmanager

import pytest

from gett.codegen.records import Kernel, KernelSource, Launch, TensorMapSpec
from gett.errors import DeviceError, DTypeError, MissingPackageError, OptionError, OutOfMemoryError, ScheduleError
from gett.hw.archs import ARCHS, arch_facts, arch_of
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import make_gemm_plan
from gett.runtime import device as device_module
from gett.runtime import driver as driver_module
from gett.runtime.device import CupyHost, read_facts, require_cupy
from gett.runtime.driver import ERROR_INVALID_CONTEXT, Driver, LaunchAttribute, LaunchConfig, describe_error
from gett.runtime.executable import GpuExecutable, runs_on
from gett.runtime.modules import load_module, release_modules
from gett.runtime.tensormap import MAP_BYTES, TensorMap

POINTERS = (("a", 0), ("b", 8), ("c", 16), ("d", 24), ("workspace", 32))
ROLES = tuple(role for role, _ in POINTERS)
SCALARS = (("alpha", 40, "float32"), ("beta", 44, "float32"))
PARAMS = bytes(48) + struct.pack("<qq", 123, -7)  # the slots, then two words that the plan fixed
KILO = 1024


class Array:
    """Has an address, as a CuPy array does."""

    def __init__(self, address):
        self.data = types.SimpleNamespace(ptr=address)


class FakeHost:
    """Streams, memory and devices made of integers."""

    def __init__(self, device=0, count=1, out_of_memory=False):
        self.device, self.count, self.out_of_memory = device, count, out_of_memory
        self.stream = types.SimpleNamespace(ptr=0x51, is_capturing=lambda: self.capturing)
        self.capturing = False
        self.allocated, self.live, self.switches, self.synchronized = [], 0, [], 0

    def current_stream(self):
        return self.stream

    def current_device(self):
        return self.device

    def device_count(self):
        return self.count

    @contextmanager
    def use_device(self, device):
        before, self.device = self.device, device
        self.switches.append(device)
        yield
        self.device = before

    def bind_context(self, device):
        self.bound = device

    def synchronize(self):
        self.synchronized += 1

    def allocate(self, nbytes):
        if self.out_of_memory:
            raise OutOfMemoryError(f"{nbytes} bytes")
        host = self

        class Memory:
            ptr = 0xF000 + KILO * len(host.allocated)

            def __del__(self):
                host.live -= 1

        self.allocated.append(nbytes)
        self.live += 1
        return Memory()


class FakeDriver:
    """Reads the argument block at each launch, as the driver does, and keeps what it saw."""

    def __init__(self, params_bytes, codes=(), static_smem=0):
        self.params_bytes, self.codes, self.static_smem = params_bytes, list(codes), static_smem
        self.launches, self.attributes, self.maps, self.modules, self.unloaded = [], [], [], [], []
        self.contexts, self.functions = [], {}

    def launch(self, config, function, argv, extra):
        if self.codes and (code := self.codes.pop(0)):
            return code
        assert extra is None
        record = LaunchConfig.from_address(config.value)
        params_at = ctypes.c_uint64.from_address(argv.value).value
        assert params_at % 128 == 0
        entry = self.functions[function.value]
        self.launches.append(
            types.SimpleNamespace(
                entry=entry,
                grid=(record.grid_x, record.grid_y, record.grid_z),
                block=(record.block_x, record.block_y, record.block_z),
                smem=record.smem_bytes,
                stream=record.stream,
                attributes=record.num_attributes,
                params=ctypes.string_at(params_at, self.params_bytes),
            )
        )
        return 0

    def load_module(self, cubin):
        self.modules.append(cubin)
        return 100 + len(self.modules)

    def unload_module(self, module):
        self.unloaded.append(module)

    def get_function(self, module, name):
        handle = 1000 * module + len(self.functions)
        self.functions[handle] = name
        return handle

    def set_function_attribute(self, function, attribute, value, what):
        self.attributes.append((self.functions[function], attribute, value))

    def get_function_attribute(self, function, attribute):
        return self.static_smem

    def current_context(self):
        return 0xC0

    def set_context(self, context):
        self.contexts.append(context)

    def encode_tiled(self, slot, data_type, rank, address, extents, strides, box, steps, interleave, swizzle, l2, fill):
        self.maps.append(("encode", address.value, list(extents), list(strides)[:-1], list(box), list(steps)))
        ctypes.memset(slot.value, address.value & 0xFF, MAP_BYTES)
        return 0

    def replace_address(self, slot, address):
        self.maps.append(("replace", address.value))
        ctypes.memset(slot.value, address.value & 0xFF, MAP_BYTES)
        return 0

    def error(self, code, call, detail=""):
        return describe_error(code, call, "CUDA_ERROR_TEST", "as told", detail)


def product_plan(*, swapped, with_c=True):
    """`D[i, j] = A[i] * B[j]`; D's unit stride is j or, to be swapped, i."""
    a, b = Operand((0,), (4,), "float32"), Operand((1,), (4,), "float32")
    d = Operand((0, 1), (4, 32) if swapped else (32, 4), "float32")
    c = Operand((0,), (4,), "float32") if with_c else None
    plan = make_gemm_plan(Contraction(("i", "j"), (8, 8), a, b, d, c, "float32"))
    assert plan.swapped is swapped
    return plan


def copy_plan():
    """`D[i] = A[i]`."""
    a = Operand((0,), (4,), "float32")
    return make_gemm_plan(Contraction(("i",), (8,), a, None, a, None, "float32"))


def launch(entry="main_kernel", grid=(3, 2, 1), smem=0, **kw):
    fields = {"params": PARAMS, "pointers": POINTERS, "scalars": SCALARS} | kw
    return Launch(entry, grid, (128, 1, 1), smem, **fields)


def build(plan, *launches, workspace=0, host=None, driver=None, cubin=None):
    launches = launches or (launch(),)
    entries = tuple(dict.fromkeys(one.entry for one in launches))
    kernel = Kernel(KernelSource("", entries), "sm_90a", launches, workspace)
    host = host or FakeHost()
    driver = driver or FakeDriver(len(launches[0].params))
    # A cubin of its own for each test, since loaded modules are shared by content.
    cubin = cubin or f"{id(driver)} {build.count}".encode()
    build.count += 1
    return GpuExecutable(plan, None, kernel, cubin, host, driver), host, driver


build.count = 0
A, B, C, D = (Array(0x1_0000_0000 * i + 16 * i) for i in range(1, 5))


def addresses(seen):
    return dict(zip(ROLES, struct.unpack_from("<5Q", seen.params), strict=True))


@pytest.mark.parametrize("swapped", [False, True])
def test_addresses_reach_the_slots_of_their_roles(swapped):
    run, host, driver = build(product_plan(swapped=swapped))
    run(A, B, C, D)
    (seen,) = driver.launches
    first, second = (B, A) if swapped else (A, B)
    expected = {"a": first.data.ptr, "b": second.data.ptr, "c": C.data.ptr, "d": D.data.ptr, "workspace": 0}
    assert addresses(seen) == expected
    assert (seen.entry, seen.grid, seen.block, seen.smem) == ("main_kernel", (3, 2, 1), (128, 1, 1), 0)
    assert (seen.stream, seen.attributes) == (host.stream.ptr, 0)
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


SPEC = TensorMapSpec(6, (64, 32, 4), (256, 8192), (32, 16, 2), 3, 2)


def test_tensor_maps_are_encoded_once_and_then_moved():
    one = launch(params=bytes(MAP_BYTES) + PARAMS, pointers=(("d", 128),), scalars=(), maps=(("b", 0, SPEC),))
    run, _, driver = build(product_plan(swapped=True), one)
    for first in (A, A, D):  # the plan's B is the first operand
        run(first, B, C, D)
    strides = list(SPEC.strides)
    assert driver.maps == [
        ("encode", A.data.ptr, [64, 32, 4], strides, [32, 16, 2], [1, 1, 1]),
        ("replace", D.data.ptr),
    ]
    marks = [bytes([array.data.ptr & 0xFF]) * MAP_BYTES for array in (A, A, D)]
    assert [seen.params[:MAP_BYTES] for seen in driver.launches] == marks
    assert [struct.unpack_from("<Q", seen.params, 128) for seen in driver.launches] == [(D.data.ptr,)] * 3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"extents": (1,) * 6, "strides": (16,) * 5, "box": (1,) * 6}, "rank 6"),
        ({"box": (32, 16)}, "3 extents need 3 box extents"),
        ({"box": (257, 1, 1)}, "box extent"),
        ({"extents": (0, 1, 1)}, r"an extent of \(0, 1, 1\)"),
        ({"strides": (256, 24)}, "multiple of 16"),
    ],
)
def test_impossible_tensor_maps_are_explained(change, text):
    fields = {name: getattr(SPEC, name) for name in SPEC.__dataclass_fields__} | change
    with pytest.raises(DeviceError, match=f"operand b has no tensor map: .*{text}"):
        TensorMap(FakeDriver(0), TensorMapSpec(**fields), 0, "b")


def test_a_refused_tensor_map_is_encoded_again():
    driver = FakeDriver(0)
    memory = (ctypes.c_char * 256)()
    slot = -(-ctypes.addressof(memory) // 128) * 128
    refusing = types.SimpleNamespace(encode_tiled=lambda *args: 1, replace_address=lambda *args: 1, error=driver.error)
    with pytest.raises(DeviceError, match=r"cuTensorMapEncodeTiled failed.*operand d at 0x8, TensorMapSpec"):
        TensorMap(refusing, SPEC, slot, "d").point_at(8)
    tensor_map = TensorMap(driver, SPEC, slot, "d")
    tensor_map.point_at(16)
    tensor_map._replace = refusing.replace_address
    with pytest.raises(DeviceError, match="cuTensorMapReplaceAddress"):
        tensor_map.point_at(8)
    tensor_map.point_at(16)
    assert [one[0] for one in driver.maps] == ["encode", "encode"]


def test_launch_config_has_the_driver_layout():
    # CUlaunchConfig in cuda.h: seven 32-bit words, then stream and attributes at 8-byte boundaries, then a count.
    offsets = (LaunchConfig.stream.offset, LaunchConfig.attributes.offset, LaunchConfig.num_attributes.offset)
    assert (*offsets, ctypes.sizeof(LaunchConfig)) == (32, 40, 48, 56)


def test_launch_attribute_has_the_driver_layout():
    # CUlaunchAttribute in cuda.h: a number padded to 8 bytes, then a union of 64.
    assert (LaunchAttribute.value.offset, ctypes.sizeof(LaunchAttribute)) == (8, 72)


class FakeLibrary:
    """`libcuda` in Python: what each call returns, and the texts of errors."""

    def __init__(self, *, codes=None, launches=True):
        self.codes = codes or {}

        def call(name):
            def run(*args):
                if name == "cuGetErrorName":
                    args[1]._obj.value = b"CUDA_ERROR_FAKE"
                elif name == "cuGetErrorString":
                    args[1]._obj.value = b"it is fake"
                elif name in ("cuDriverGetVersion", "cuDeviceGetCount", "cuFuncGetAttribute"):
                    args[0]._obj.value = 11040
                elif name in ("cuModuleLoadData", "cuModuleGetFunction", "cuCtxGetCurrent"):
                    args[0]._obj.value = 0xABCD_0000_1234
                return self.codes.get(name, 0)

            return run

        names = (
            "cuInit cuGetErrorName cuGetErrorString cuDriverGetVersion cuDeviceGetCount cuModuleLoadData "
            "cuModuleUnload cuModuleGetFunction cuFuncSetAttribute cuFuncGetAttribute cuCtxGetCurrent cuCtxSetCurrent"
        )
        for name in names.split() + (["cuLaunchKernelEx"] if launches else []):
            setattr(self, name, call(name))


@pytest.fixture
def library(monkeypatch):
    """Put a library in the place of `libcuda`."""

    def place(**kw):
        fake = FakeLibrary(**kw)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
        return fake

    return place


def test_driver_returns_handles_and_raises_typed_errors(library):
    fake = library()
    driver = Driver()
    handle = 0xABCD_0000_1234
    assert (driver.load_module(b""), driver.get_function(1, "f"), driver.current_context()) == (handle,) * 3
    assert (driver.version(), driver.launch) == ("11.4", fake.cuLaunchKernelEx)
    cases = {
        "cuModuleLoadData": lambda: driver.load_module(b""),
        "cuModuleUnload": lambda: driver.unload_module(1),
        "cuModuleGetFunction": lambda: driver.get_function(1, "some_kernel"),
        "cuFuncSetAttribute": lambda: driver.set_function_attribute(1, 8, 9, "kernel x"),
        "cuFuncGetAttribute": lambda: driver.get_function_attribute(1, 8),
        "cuCtxGetCurrent": driver.current_context,
        "cuCtxSetCurrent": lambda: driver.set_context(1),
        "cuDeviceGetCount": driver.device_count,
    }
    for name, call in cases.items():
        call()
        for code, kind in ((1, DeviceError), (2, OutOfMemoryError), (209, DeviceError)):
            fake.codes = {name: code}
            with pytest.raises(kind, match=rf"{name} failed: CUDA_ERROR_FAKE \({code}\): it is fake") as caught:
                call()
            wrong_arch = "another architecture" in str(caught.value)
            assert wrong_arch == ((name, code) == ("cuModuleLoadData", 209))
        fake.codes = {}
    fake.codes = {"cuModuleGetFunction": 500}
    with pytest.raises(DeviceError, match="kernel 'some_kernel'"):
        driver.get_function(1, "some_kernel")


def test_unusable_drivers_are_explained(library):
    with pytest.raises(DeviceError, match=r"no NVIDIA driver was found .*no_such_library"):
        Driver("no_such_library.so")
    library(codes={"cuInit": 100})
    with pytest.raises(DeviceError, match=r"cuInit failed: CUDA_ERROR_FAKE \(100\)"):
        Driver()
    library(launches=False)
    with pytest.raises(DeviceError, match=r"CUDA 11\.4.*needs a driver for CUDA 12"):
        Driver()
    library()
    with pytest.raises(DeviceError, match="no cuTensorMapEncodeTiled"):
        Driver().encode_tiled  # noqa: B018 - the access raises


class FakeRuntimeError(RuntimeError):
    """`cupy.cuda.runtime.CUDARuntimeError`."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


def fake_cupy(count=1, status=None):
    """A module with as much of CuPy as `gett.runtime.device` touches."""

    def device_count():
        if status is not None:
            raise FakeRuntimeError(status)
        return count

    properties = {
        "name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132, "l2CacheSize": 60 << 20,
        "sharedMemPerBlockOptin": 227 * KILO, "sharedMemPerMultiprocessor": 228 * KILO, "totalGlobalMem": 141 << 30,
    }  # fmt: skip
    attributes = {13: 1_980_000, 36: 3_201_000, 37: 6016}
    runtime = types.SimpleNamespace(
        CUDARuntimeError=FakeRuntimeError,
        getDeviceCount=device_count,
        getDevice=lambda: 0,
        getDeviceProperties=lambda device: properties,
        deviceGetAttribute=lambda attribute, device: attributes[attribute],
        properties=properties,
        attributes=attributes,
    )

    def alloc(nbytes):
        raise MemoryError("pool is empty")

    cuda = types.SimpleNamespace(runtime=runtime, alloc=alloc, get_current_stream=None, Device=None)
    return types.SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(
    ("module", "error", "text"),
    [
        (None, MissingPackageError, r"CuPy, which is not installed: pip install gett\[cuda13\]"),
        (fake_cupy(status=35), DeviceError, "no NVIDIA driver was found, or it is older"),
        (fake_cupy(status=100), DeviceError, "no NVIDIA GPU is visible"),
        (fake_cupy(status=999), DeviceError, "cannot list the GPUs: status 999"),
        (fake_cupy(count=0), DeviceError, "no NVIDIA GPU is visible"),
    ],
)
def test_what_is_missing_is_named(monkeypatch, module, error, text):
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(error, match=text):
        require_cupy()
    assert not device_module.gpu_available()


def test_device_facts_come_from_the_runtime(monkeypatch):
    cupy = fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device_module, "_facts", {})
    facts = device_module.device_facts()
    assert facts is device_module.device_facts(0)
    assert (facts.name, facts.arch, facts.sm_count, facts.clock_ghz) == ("NVIDIA H200", "sm_90a", 132, 1.98)
    # The estimate from the memory's clock and width agrees with what a copy was measured to reach.
    assert facts.dram_tbps == pytest.approx(arch_facts("sm_90a").dram_tbps, rel=0.01)
    planning, nominal = facts.planning, arch_facts("sm_90a")
    assert (planning.name, planning.l2_bytes, planning.clock_ghz) == ("NVIDIA H200", 60 << 20, nominal.clock_ghz)
    assert planning.tensor_tflops == nominal.tensor_tflops
    with pytest.raises(DeviceError, match="there is no GPU 7; 1 are visible"):
        device_module.device_facts(7)
    with pytest.raises(OutOfMemoryError, match="workspace of 77 bytes: pool is empty"):
        CupyHost().allocate(77)


def test_smaller_and_virtual_devices():
    runtime = fake_cupy().cuda.runtime
    runtime.properties["multiProcessorCount"] = 66
    runtime.attributes.update({13: 0, 36: 0})
    facts, nominal = read_facts(runtime, 0), arch_facts("sm_90a")
    assert (facts.clock_ghz, facts.dram_tbps) == (nominal.clock_ghz, nominal.dram_tbps)
    assert facts.planning.l2_tbps == nominal.l2_tbps / 2
    assert facts.planning.fma_tflops["float32"] == nominal.fma_tflops["float32"] / 2
    runtime.properties.update(major=7, minor=5)
    with pytest.raises(ScheduleError, match=r"capability 7\.5 is not supported; known architectures: sm_80"):
        read_facts(runtime, 0)


def test_arch_table():
    for arch, facts in ARCHS.items():
        assert facts is arch_facts(arch)
        digits = arch.removeprefix("sm_").rstrip("a")
        assert arch_of(int(digits[:-1]), int(digits[-1])) == arch
        assert runs_on(arch, (int(digits[:-1]), int(digits[-1])))
        # A resident block takes 1 KiB beside what it asks for, so one of the largest size must fit.
        assert facts.smem_per_block + KILO <= facts.smem_per_sm
        assert facts.tensor_lanes["tf32"] * 2 == facts.tensor_lanes["float16"]
        assert set(facts.fma_lanes) >= {"float32", "float64", "complex64", "complex128", "int64", "bool"}
        assert hash(facts) == hash(arch_facts(arch))
    with pytest.raises(ScheduleError, match=r"arch='sm_75' is not known; known architectures: sm_80, .*sm_90a"):
        arch_facts("sm_75")
    assert arch_of(8, 8) == "sm_87"


def test_cubins_run_within_their_generation():
    assert [runs_on("sm_86", capability) for capability in ((8, 0), (8, 6), (8, 9), (9, 0))] == [
        False,
        True,
        True,
        False,
    ]
    assert [runs_on("sm_100a", capability) for capability in ((10, 0), (10, 3), (12, 0))] == [True, False, False]


def test_import_needs_no_cupy():
    code = "import sys, gett.runtime; sys.exit(any(m.split('.')[0] == 'cupy' for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_host_time_of_a_call(capsys):
    run, _, _ = build(product_plan(swapped=True))
    empty = ctypes.CDLL(None).pthread_equal  # compares its first two arguments; they differ, so it returns 0
    run._launch = empty
    run(A, B, C, D)
    number = 20_000
    best = min(timeit.repeat(lambda: run(A, B, C, D), number=number, repeat=5)) / number
    with capsys.disabled():
        print(f"\nhost time of a call without the driver: {best * 1e9:.0f} ns")
    assert best < 7e-6  # what a call may take with the driver
