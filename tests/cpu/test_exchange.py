"""Arrays of other libraries in the public functions: on a stand-in for CuPy, PyTorch's CPU tensors for real."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
from gett.api import executables
from gett.arrays import kinds
from gett.arrays import torch as torch_arrays
from gett.cpu import NumpyExecutable
from tests.cpu import test_arrays
from tests.cpu.fake_driver import PARAMS, FakeDriver, FakeHost, addresses, build, launch, product_plan
from tests.cpu.fake_torch import Region, make_torch, tensor
from tests.cpu.test_arrays import GpuArray

RNG = np.random.default_rng(5)
ROOT = Path(__file__).parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def integers(*shape: int, dtype: str = "float32") -> np.ndarray:
    values = RNG.integers(-3, 4, shape)
    return (values + 1j * RNG.integers(-3, 4, shape)).astype(dtype) if dtype.startswith("c") else values.astype(dtype)


def test_addresses_of_any_origin_reach_the_kernel() -> None:
    for swapped in (False, True):
        run, _, driver = build(product_plan(swapped=swapped), workspace=64)
        run.run_at(0x1000, 0x2000, 0x3000, 0x4000, 0x99, 0x5000, 2, -1)
        (seen,) = driver.launches
        a, b = (0x2000, 0x1000) if swapped else (0x1000, 0x2000)
        assert addresses(seen) == {"a": a, "b": b, "c": 0x3000, "d": 0x4000, "workspace": 0x5000}
        assert seen.stream == 0x99
        assert seen.params[48:] == PARAMS[48:]


def test_addresses_on_another_device_switch_to_it() -> None:
    host = FakeHost(device=1, count=2)
    run, _, driver = build(product_plan(swapped=False), launch(), host=host, driver=FakeDriver(len(PARAMS)))
    host.device = 0
    run.run_at(1, 2, 3, 4, 5, 0)
    assert host.switches == [1]
    assert len(driver.launches) == 1


# Other libraries' GPU arrays, on a stand-in for CuPy


class Exporter:
    """An array of some library with the CUDA array interface."""

    def __init__(self, host: np.ndarray, **facts: Any) -> None:
        self.host = host
        address, strides = host.__array_interface__["data"][0], host.strides
        self.__cuda_array_interface__ = {
            "shape": host.shape, "typestr": host.dtype.str, "data": (address, False), "version": 3, "strides": strides,
        } | facts  # fmt: skip


class Capsule:
    """An array of some library with DLPack."""

    def __init__(self, host: np.ndarray, device_type: int = 2) -> None:
        self.host, self.device_type = host, device_type

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, 0

    def __dlpack__(self, **kw: Any) -> Any:
        return self.host.__dlpack__(**kw)


class View(GpuArray):
    """The stand-in's array, also on memory that exists already."""

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"):
        super().__init__(shape, dtype, None, strides, order)
        if memptr is not None:
            self.host = np.asarray(Region(memptr, shape, strides, np.dtype(dtype)))

    @classmethod
    def of(cls, host: np.ndarray, device: int) -> View:
        array = cls.__new__(cls)
        array.host, array.device_id = host, device
        return array


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    log: list[tuple[str, int]] = []

    class Stream:
        def __init__(self, ptr: int) -> None:
            self.ptr = ptr

        def wait_event(self, event: Any) -> None:
            log.append(("wait", self.ptr))

    class Event:
        def __init__(self, disable_timing: bool) -> None:
            assert disable_timing

        def record(self, stream: Any) -> None:
            log.append(("record", stream.ptr))

    current = Stream(0)
    module = types.SimpleNamespace(
        ndarray=View, asarray=lambda x: View.of(np.asarray(x), test_arrays.State.device), empty=View,
        log=log, current=current,
        from_dlpack=lambda x: View.of(np.from_dlpack(x.host), 0) if x.host.dtype.kind != "V" else 1 / 0,
        cuda=types.SimpleNamespace(
            Device=test_arrays.use_device, ExternalStream=Stream, Event=Event, get_current_stream=lambda: current,
            UnownedMemory=lambda address, size, owner: types.SimpleNamespace(address=address, device_id=0),
            MemoryPointer=lambda memory, offset: memory.address + offset,
            runtime=types.SimpleNamespace(getDevice=lambda: test_arrays.State.device),
        ),
    )  # fmt: skip

    def make(gemm: Any) -> Any:
        run = NumpyExecutable(gemm)

        def execute(*things: Any) -> None:
            log.append(("launch", current.ptr))
            run(*(x.host if isinstance(x, GpuArray) else x for x in things))

        return execute

    kind = kinds.CupyKind(module)
    monkeypatch.setattr(kind, "arch", lambda device: "sm_90a")
    monkeypatch.setattr(kind, "memory", lambda device: 1 << 37)
    monkeypatch.setattr(kinds, "_cupy_kind", kind)
    monkeypatch.setattr(executables, "_build_executables", lambda gemms, *options: [make(gemm) for gemm in gemms])
    gett.plan_cache.clear()
    yield module
    gett.plan_cache.clear()


def test_exporters_go_in_without_a_copy(cupy: Any) -> None:
    a, b = integers(4, 6)[:, ::2], integers(3, 5)
    wanted = a @ b
    for _ in range(2):
        result = gett.einsum("ij,jk", Exporter(a), Exporter(b, strides=None))
        assert type(result) is View
        np.testing.assert_array_equal(result.host, wanted)
    assert gett.plan_cache.info()[:3] == (1, 1, 1)
    assert cupy.log == [("launch", 0)] * 2  # no stream was named, so none is waited for
    out = np.zeros((5, 4), "f4")
    target = Exporter(out.T)
    assert gett.einsum("ij,jk", Exporter(a), Capsule(b), out=target) is target
    np.testing.assert_array_equal(out.T, wanted)
    assert gett.contract("ij,jk", Capsule(a), Exporter(b), target, beta=-1, out=target) is target
    np.testing.assert_array_equal(out, 0)
    plan = gett.plan("ij,jk", Exporter(a), Exporter(b))
    assert plan.arch == "sm_90a"
    np.testing.assert_array_equal(plan(Exporter(a), Capsule(b)).host, wanted)
    np.testing.assert_array_equal(gett.tensordot(Exporter(a), Exporter(b), 1).host, wanted)
    np.testing.assert_array_equal(gett.transpose(Exporter(a)).host, a.T)
    np.testing.assert_array_equal(gett.einsum("ij,jk", Exporter(a), View.of(b, 0)).host, wanted)
    np.testing.assert_array_equal(gett.einsum(",ij", 3, Exporter(a)).host, 3 * a)
    np.testing.assert_array_equal(gett.einsum("ij,jk", Exporter(a[:, :0]), Exporter(b[:0])).host, 0 * wanted)


def test_streams_of_exporters_are_waited_for_and_wait(cupy: Any) -> None:
    a = integers(3, 3)
    gett.einsum("ij,jk", Exporter(a, stream=0x77), Exporter(a, stream=1))  # 1 is the default stream, CuPy's current one
    assert cupy.log == [("record", 0x77), ("wait", 0), ("launch", 0), ("record", 0), ("wait", 0x77)]
    cupy.log.clear()
    cupy.current.ptr = 0x77
    gett.einsum("ij,jk", Exporter(a, stream=0x77), Exporter(a, stream=1))
    assert cupy.log == [("record", 1), ("wait", 0x77), ("launch", 0x77), ("record", 0x77), ("wait", 1)]


def test_exporters_that_do_not_fit(cupy: Any) -> None:
    a = integers(2, 2)
    with pytest.raises(gett.MixedArraysError, match="operand 0 is a CuPy array, operand 1 is a numpy"):
        gett.einsum("ij,jk", Exporter(a), a)
    address = a.__array_interface__["data"][0]
    with pytest.raises(gett.OutputError, match="out is read-only"):
        gett.einsum("ij,jk", View.of(a, 0), View.of(a, 0), out=Exporter(a, data=(address, True)))
    with pytest.raises(gett.DTypeError, match=r"operand 1 .*masked"):
        gett.einsum("ij,jk", View.of(a, 0), Exporter(a, mask=Exporter(a)))
    with pytest.raises(
        gett.DTypeError, match=r"operand 0 .*Capsule cannot become .*; for bfloat16, .*torch\.from_dlpack"
    ):
        gett.einsum("ij,jk", Capsule(a.view("V4")), View.of(a, 0))
    with pytest.raises(gett.DTypeError, match="CuPy has no arrays of dtype bfloat16"):
        gett.einsum("ij,jk", View.of(a, 0), View.of(a, 0), dtype="bfloat16", casting="same_kind")
    before, out = a.copy(), Exporter(a)
    assert gett.einsum("ij,jk", Exporter(a), View.of(a.copy(), 0), out=out) is out
    np.testing.assert_array_equal(a, before @ before)


def test_host_memory_through_dlpack_is_numpys(cupy: Any) -> None:
    a = integers(2, 2)
    result = gett.einsum("ij,jk", Capsule(a, device_type=1), a)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, a @ a)


def test_tensors_and_exporters_do_not_mix(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_arrays, "_library", torch_arrays.TorchLibrary(make_torch()))
    a = integers(2, 2)
    with pytest.raises(gett.MixedArraysError, match=r"operand 0 is a PyTorch tensor, operand 1 is a .*Exporter"):
        gett.einsum("ij,jk", tensor(a), Exporter(a))


# PyTorch's CPU tensors: for real in a process of their own, where PyTorch is installed

CPU_TENSORS = """
import numpy as np, opt_einsum, sys, gett
assert "torch" not in sys.modules
import torch
from tests.cpu.torch_cpu import check
check(torch)
assert "cupy" not in sys.modules
print("all", "right")
"""


if HAS_TORCH:

    def test_cpu_tensors() -> None:
        done = subprocess.run(
            [sys.executable, "-c", CPU_TENSORS], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["all", "right"], done.stderr
