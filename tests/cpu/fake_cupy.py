"""As much of CuPy as dispatch touches, on NumPy's memory: arrays with a device, and the current device."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Pointer:
    ptr: int
    device_id: int


class State:
    """The stand-in's current device, and how many calls and bytes it allows."""

    device = 0
    limit = 1 << 30
    calls = 0


class GpuArray:
    """As much of `cupy.ndarray` as is used."""

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"):
        if int(np.prod(shape)) * np.dtype(dtype).itemsize > State.limit:
            raise MemoryError("out of device memory")
        self.host = np.empty(shape, dtype, order)
        self.device_id = State.device

    @classmethod
    def of(cls, host: np.ndarray, device: int) -> GpuArray:
        array = cls.__new__(cls)
        array.host, array.device_id = host, device
        return array

    @property
    def data(self) -> Pointer:
        return Pointer(self.host.__array_interface__["data"][0], self.device_id)

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "strides", "dtype", "ndim"):
            return getattr(self.host, name)
        raise AttributeError(name)

    def __getitem__(self, index: Any) -> GpuArray:
        return GpuArray.of(self.host[index], self.device_id)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.host[index] = value.host if isinstance(value, GpuArray) else value

    def transpose(self, axes: Any = None) -> GpuArray:
        return GpuArray.of(self.host.transpose(axes), self.device_id)

    def __mul__(self, factor: Any) -> GpuArray:
        return GpuArray.of(np.asarray(self.host * factor), self.device_id)


@contextlib.contextmanager
def use_device(number: int):
    before, State.device = State.device, number
    yield
    State.device = before
