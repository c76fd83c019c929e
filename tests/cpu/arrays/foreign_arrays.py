"""Arrays of other libraries on NumPy's memory, and a stand-in for CuPy that takes them and keeps a log."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays import kinds
from gett.cpu import NumpyExecutable
from gett.plans import executables
from tests.cpu.fake_cupy import GpuArray, State, use_device
from tests.cpu.fake_torch import Region
from tests.cpu.strategies import integers_of

RNG = np.random.default_rng(5)
integers = integers_of(RNG, 3, "float32")


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


def logging_cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in in place of CuPy; `log` of it has what was waited for, recorded and launched on which stream."""
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
        ndarray=View, asarray=lambda x: View.of(np.asarray(x), State.device), empty=View,
        log=log, current=current,
        from_dlpack=lambda x: View.of(np.from_dlpack(x.host), 0) if x.host.dtype.kind != "V" else 1 / 0,
        cuda=types.SimpleNamespace(
            Device=use_device, ExternalStream=Stream, Event=Event, get_current_stream=lambda: current,
            UnownedMemory=lambda address, size, owner: types.SimpleNamespace(address=address, device_id=0),
            MemoryPointer=lambda memory, offset: memory.address + offset,
            runtime=types.SimpleNamespace(getDevice=lambda: State.device),
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
