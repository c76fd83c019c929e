"""What the tuner's clock and scratch tensors use of CuPy, on memory of the host, and runs that compute there."""

from __future__ import annotations

import ctypes
import types
from dataclasses import dataclass

import numpy as np

from gett.ir.tensors import ALIGNMENT_LIMIT


class HostArray:
    """A CuPy array whose memory is NumPy's."""

    def __init__(self, values):
        self.values = values
        self.data = types.SimpleNamespace(ptr=values.__array_interface__["data"][0])
        self.size = values.size

    def __getitem__(self, key):
        return HostArray(self.values[key])

    def __setitem__(self, key, value):
        self.values[key] = value.values if isinstance(value, HostArray) else value

    def __ne__(self, other):
        return HostArray(self.values != other.values)

    __hash__ = None

    def view(self, dtype):
        return HostArray(self.values.view(dtype))

    def any(self):
        return self.values.any()


class HostCupy:
    """What `Bench` uses of CuPy, on NumPy; the device's clock advances by what the runs say they take."""

    def __init__(self, room=1 << 40):
        self.room, self.now, self.waits = room, 0.0, []
        outer = self

        class Event:
            def record(self, stream):
                self.at = outer.now

            def synchronize(self):
                pass

        stream = types.SimpleNamespace(synchronize=lambda: None)
        self.cuda = types.SimpleNamespace(
            Event=Event,
            get_current_stream=lambda: stream,
            get_elapsed_time=lambda e0, e1: (e1.at - e0.at) / 1e3,
        )

    def empty(self, size, dtype):
        self.room -= size
        if self.room < 0:
            raise MemoryError("out of memory")
        raw = np.full(size + 256, 0xAB, dtype)
        skip = -raw.__array_interface__["data"][0] % 256
        return HostArray(raw[skip : skip + size])

    def asarray(self, values):
        return HostArray(values)

    def RawKernel(self, text, name):
        assert name in text
        return lambda grid, block, arguments: self.waits.append(int(arguments[0]))


@dataclass(eq=False)
class HostRun:
    """Computes a contraction at the addresses that it is given, as a kernel would; `spoil` makes it wrong."""

    contraction: object
    cupy: HostCupy
    us: float = 10.0
    spoil: int = 0
    calls: int = 0
    seen: tuple = ()

    def array(self, operand, tensor):
        size = np.dtype(operand.dtype).itemsize
        assert tensor.data.ptr % 256 == (operand.alignment if operand.alignment < ALIGNMENT_LIMIT else 0)
        shape = tuple(self.contraction.extents[m] for m in operand.modes)
        reach = [s * (e - 1) for s, e in zip(operand.strides, shape, strict=True)]
        low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + size
        memory = np.frombuffer((ctypes.c_char * (high - low)).from_address(tensor.data.ptr + low), np.uint8)
        start = memory[-low : -low + size].view(operand.dtype)
        return np.lib.stride_tricks.as_strided(start, shape, operand.strides)

    def __call__(self, a, b, c, d, alpha, beta):
        k = self.contraction
        x, y, out = self.array(k.a, a), self.array(k.b, b), self.array(k.d, d)
        exact = np.einsum(x.astype("float64"), k.a.modes, y.astype("float64"), k.b.modes, k.d.modes)
        if k.c is not None:
            assert beta == 1
            exact = exact + self.array(k.c, c).astype("float64").reshape(exact.shape)
        out[...] = exact
        if self.spoil:
            out[(0,) * out.ndim] += self.spoil
        self.seen = (x.copy(), y.copy())
        self.calls += 1
        self.cupy.now += self.us
