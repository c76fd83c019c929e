"""A GPU made of integers: a host, a driver that keeps what launches say, and executables that run on them.

Knows the argument block of a kernel; runs nothing.
"""

from __future__ import annotations

import ctypes
import struct
import types
from contextlib import contextmanager

from gett.codegen.records import Kernel, KernelSource, Launch
from gett.errors import OutOfMemoryError
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import make_gemm_plan
from gett.runtime.driver import LaunchConfig, describe_error
from gett.runtime.executable import GpuExecutable
from gett.runtime.tensormap import MAP_BYTES

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
