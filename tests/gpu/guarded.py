"""Arrays on the device with unmapped pages before and behind them: what touches those is an error of the device.

Calls follow the CUDA Driver API reference manual (Virtual Memory Management).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.runtime.driver import load_driver

PAGE = 2 << 20
LINE = 128
READ_AND_WRITE = 3


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def guarded(values: NDArray[Any], at_end: bool) -> Any:
    """A CuPy array of the values, at the begin or the end of its pages; they stay mapped until the process ends."""
    import cupy

    def call(name: str, *arguments: Any) -> None:
        code = load_driver().function(name)(*arguments)
        assert code == 0, (name, code)

    cupy.zeros(1)  # makes the context
    size = -(-values.nbytes // PAGE) * PAGE
    base, handle, zero = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64(0)
    pages = ctypes.c_size_t(size + 2 * PAGE)
    call("cuMemAddressReserve", ctypes.byref(base), pages, ctypes.c_size_t(PAGE), zero, zero)
    here = _Location(1, cupy.cuda.runtime.getDevice())
    call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(_Properties(1, 0, here)), zero)
    first = base.value + PAGE
    call("cuMemMap", ctypes.c_uint64(first), ctypes.c_size_t(size), ctypes.c_size_t(0), handle, zero)
    access = _Access(here, READ_AND_WRITE)
    call("cuMemSetAccess", ctypes.c_uint64(first), ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
    address = first + (size - -(-values.nbytes // LINE) * LINE if at_end else 0)
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, values.nbytes, None), 0)
    made = cupy.ndarray(values.shape, values.dtype, memptr=memory)
    made.set(np.ascontiguousarray(values))
    return made
