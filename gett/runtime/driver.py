"""The CUDA driver through ctypes: modules, functions, launches, tensor maps, and what went wrong.

Owns the binding of `libcuda` and the mapping of its return codes to typed errors. Knows neither CuPy nor plans: handles
and addresses are plain integers. `DriverApi` is what the rest of the runtime needs of it, so that tests can stand in.

Calls follow the CUDA Driver API reference manual (Module, Execution Control and Tensor Map Object Management).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from gett.errors import DeviceError, OutOfMemoryError

# CUresult values with a meaning of their own here.
ERROR_OUT_OF_MEMORY = 2
ERROR_INVALID_CONTEXT = 201
ERROR_NO_BINARY_FOR_GPU = 209

CAPTURE_RELAXED = 2  # CUstreamCaptureMode: what might disturb a capture is allowed in this thread

# CUfunction_attribute values.
ATTRIBUTE_SHARED_BYTES = 1
ATTRIBUTE_REGISTERS = 4
ATTRIBUTE_MAX_DYNAMIC_SMEM = 8
ATTRIBUTE_SMEM_CARVEOUT = 9


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`: the first argument of `cuLaunchKernelEx`."""

    _fields_ = [
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    ]


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`, as far as it is used: a number, and a union whose first word is its value."""

    _fields_ = [
        ("number", ctypes.c_uint),
        ("pad", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    ]


ATTRIBUTE_PROGRAMMATIC_SERIALIZATION = 6  # the launch may start before the one ahead of it in the stream has ended


class DriverApi(Protocol):
    """What the runtime asks of a driver. All handles and addresses are integers.

    Attributes:
        launch: `cuLaunchKernelEx(config, function, params, extra)` over `ctypes.c_void_p` values; returns its code.
        encode_tiled: `cuTensorMapEncodeTiled` over ctypes values; returns its code.
        replace_address: `cuTensorMapReplaceAddress(map, address)` over ctypes values; returns its code.
    """

    launch: Callable[..., int]

    @property
    def encode_tiled(self) -> Callable[..., int]:
        """`cuTensorMapEncodeTiled`."""

    @property
    def replace_address(self) -> Callable[..., int]:
        """`cuTensorMapReplaceAddress`."""

    def load_module(self, cubin: bytes) -> int:
        """Load a cubin into the current context."""

    def unload_module(self, module: int) -> None:
        """Unload a module."""

    def get_function(self, module: int, name: str) -> int:
        """The handle of an `extern "C"` kernel."""

    def set_function_attribute(self, function: int, attribute: int, value: int, what: str) -> None:
        """Set an attribute; `what` names the kernel in an error."""

    def get_function_attribute(self, function: int, attribute: int) -> int:
        """Read an attribute."""

    def current_context(self) -> int:
        """The calling thread's context, 0 for none."""

    def set_context(self, context: int) -> None:
        """Make a context current in the calling thread."""

    def error(self, code: int, call: str, detail: str = "") -> DeviceError | OutOfMemoryError:
        """The typed error for a return code."""


class Driver:
    """`libcuda` bound through ctypes.

    Raises:
        DeviceError: The library is not found, does not initialise, or is older than CUDA 12.
    """

    def __init__(self, library: str | None = None) -> None:
        self._lib = _open(library)
        self._lib.cuGetErrorName.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        self._lib.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        self._check(self._lib.cuInit(0), "cuInit")
        try:
            self.launch: Callable[..., int] = self._lib.cuLaunchKernelEx
        except AttributeError:
            raise DeviceError(
                f"the NVIDIA driver (CUDA {self.version()}) has no cuLaunchKernelEx; gett needs a driver for CUDA 12 "
                "or newer (version 525 or newer)"
            ) from None
        # No argtypes: the launch passes prebuilt c_void_p values only, and ctypes is fastest without conversions.

    def function(self, name: str) -> Callable[..., int]:
        """A function of the driver over ctypes values, which returns its code.

        Raises:
            DeviceError: The driver is too old for it.
        """
        try:
            found: Callable[..., int] = getattr(self._lib, name)
        except AttributeError:
            raise DeviceError(f"the NVIDIA driver (CUDA {self.version()}) has no {name}") from None
        return found

    def version(self) -> str:
        """The newest CUDA version that the driver supports, e.g. `"13.0"`."""
        number = ctypes.c_int()
        self._check(self._lib.cuDriverGetVersion(ctypes.byref(number)), "cuDriverGetVersion")
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def device_count(self) -> int:
        """Number of visible GPUs."""
        number = ctypes.c_int()
        self._check(self._lib.cuDeviceGetCount(ctypes.byref(number)), "cuDeviceGetCount")
        return number.value

    @property
    def encode_tiled(self) -> Callable[..., int]:
        """`cuTensorMapEncodeTiled`, over ctypes values."""
        return self._tensor_map_call("cuTensorMapEncodeTiled")

    @property
    def replace_address(self) -> Callable[..., int]:
        """`cuTensorMapReplaceAddress`, over ctypes values."""
        return self._tensor_map_call("cuTensorMapReplaceAddress")

    def _tensor_map_call(self, name: str) -> Callable[..., int]:
        try:
            call: Callable[..., int] = getattr(self._lib, name)
        except AttributeError:
            raise DeviceError(f"the NVIDIA driver has no {name}; tensor maps need CUDA 12 or newer") from None
        return call

    def load_module(self, cubin: bytes) -> int:
        """Load a cubin into the current context, also while a graph is recorded; returns the module's handle."""
        module = ctypes.c_void_p()
        with self._allowed_while_recording():
            code = self._lib.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(cubin))
        detail = "the cubin is for another architecture" if code == ERROR_NO_BINARY_FOR_GPU else ""
        self._check(code, "cuModuleLoadData", detail)
        return module.value or 0

    @contextmanager
    def _allowed_while_recording(self) -> Iterator[None]:
        """Calls that are no part of the graph that this thread may be recording."""
        mode = ctypes.c_int(CAPTURE_RELAXED)
        self._check(
            self._lib.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)), "cuThreadExchangeStreamCaptureMode"
        )
        try:
            yield
        finally:
            self._lib.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def unload_module(self, module: int) -> None:
        """Unload a module; no kernel of it may be running or captured in a graph."""
        self._check(self._lib.cuModuleUnload(ctypes.c_void_p(module)), "cuModuleUnload")

    def get_function(self, module: int, name: str) -> int:
        """The handle of an `extern "C"` kernel."""
        function = ctypes.c_void_p()
        code = self._lib.cuModuleGetFunction(ctypes.byref(function), ctypes.c_void_p(module), name.encode())
        self._check(code, "cuModuleGetFunction", f"kernel {name!r}")
        return function.value or 0

    def set_function_attribute(self, function: int, attribute: int, value: int, what: str) -> None:
        """Set a `CUfunction_attribute`; `what` names the kernel in an error."""
        code = self._lib.cuFuncSetAttribute(ctypes.c_void_p(function), attribute, value)
        self._check(code, "cuFuncSetAttribute", what)

    def get_function_attribute(self, function: int, attribute: int) -> int:
        """Read a `CUfunction_attribute`."""
        value = ctypes.c_int()
        code = self._lib.cuFuncGetAttribute(ctypes.byref(value), attribute, ctypes.c_void_p(function))
        self._check(code, "cuFuncGetAttribute")
        return value.value

    def current_context(self) -> int:
        """The calling thread's context, 0 for none."""
        context = ctypes.c_void_p()
        self._check(self._lib.cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
        return context.value or 0

    def set_context(self, context: int) -> None:
        """Make a context current in the calling thread."""
        self._check(self._lib.cuCtxSetCurrent(ctypes.c_void_p(context)), "cuCtxSetCurrent")

    def error(self, code: int, call: str, detail: str = "") -> DeviceError | OutOfMemoryError:
        """The typed error for a return code, with the driver's own name and text for it."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._lib.cuGetErrorName(code, ctypes.byref(name))
        self._lib.cuGetErrorString(code, ctypes.byref(text))
        return describe_error(code, call, _decode(name) or "unknown error", _decode(text), detail)

    def _check(self, code: int, call: str, detail: str = "") -> None:
        if code:
            raise self.error(code, call, detail)


def describe_error(code: int, call: str, name: str, text: str, detail: str = "") -> DeviceError | OutOfMemoryError:
    """A typed error that names the call, the code, the driver's text for it and what was asked."""
    message = f"{call} failed: {name} ({code})" + (f": {text}" if text else "") + (f"; {detail}" if detail else "")
    return OutOfMemoryError(message) if code == ERROR_OUT_OF_MEMORY else DeviceError(message)


@cache
def load_driver() -> Driver:
    """The process's driver binding.

    Raises:
        DeviceError: There is no usable NVIDIA driver.
    """
    return Driver()


def _decode(text: Any) -> str:
    return text.value.decode(errors="replace") if text.value else ""


def _open(library: str | None) -> ctypes.CDLL:
    """`CDLL` (not `PyDLL`): it releases the interpreter's lock, as a launch waits while the device's queue is full."""
    names = (library,) if library else ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
    reason = ""
    for name in names:
        try:
            return ctypes.CDLL(os.fspath(name))
        except OSError as error:
            reason = reason or str(error)
    raise DeviceError(
        f"no NVIDIA driver was found ({reason}); install the driver for your GPU, or use NumPy arrays, which need none"
    )
