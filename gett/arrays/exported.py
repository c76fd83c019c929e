"""Memory that objects of other libraries export: the NumPy or CuPy array on it, and the streams that it waits for.

DLPack comes before the CUDA array interface, since it orders streams by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from gett.arrays.jax import check_jax, is_jax
from gett.arrays.kinds import CupyKind, cupy_kind
from gett.errors import DTypeError, OperandError, OutOfMemoryError, OutputError
from gett.ir.tensors import TensorSpec, dense_strides

_ON_CUDA = (2, 13)  # DLDeviceType of device and of managed memory (dlpack.h)
# From an object, its name and the streams to wait for, which it adds to, to an array on the object's memory.
_Way = Callable[[Any, str, list[tuple[int, int]]], Any]
_LEGACY_STREAM = 1  # the default stream's handle in the CUDA array interface, where 0 is forbidden


def spell(x: Any) -> str:
    """The type of an argument, for messages."""
    return f"{type(x).__module__}.{type(x).__name__}"


def check_eager(x: Any, name: str) -> None:
    """Refuse what stands for an array that has yet to be computed: converting it would do that, or record nothing.

    Such classes have a method `compute`: those of dask, cubed and autoray. xarray's have it too, and say by their
    chunks whether anything is left to compute.

    Raises:
        OperandError: It is one of them; the text names its class.
    """
    cls = type(x)
    if cls.__module__ == "torch.fx.proxy":
        raise OperandError(f"{name} is a {spell(x)}, which torch.fx traces with and which holds no values")
    if hasattr(cls, "compute") and getattr(x, "chunks", ()) is not None:
        raise OperandError(
            f"{name} is a {spell(x)}, a lazy array, which this package does not compute: pass its .compute(), or call "
            "this on its parts, as dask.array.map_blocks does"
        )


def as_numpy(x: Any, name: str) -> Any:
    """A NumPy array of an argument, on its memory where it has any.

    Raises:
        OperandError: It cannot become an array.
        OutOfMemoryError: There is no memory for one.
    """
    if type(x) is np.ndarray:
        return x
    check_eager(x, name)
    if hasattr(x, "toarray") and not isinstance(x, np.ndarray):
        raise OperandError(f"{name} is a {spell(x)}; sparse arrays are not supported: pass its .toarray()")
    try:
        array = np.from_dlpack(x) if hasattr(x, "__dlpack__") and not hasattr(x, "__array__") else np.asarray(x)
    except MemoryError as error:
        raise OutOfMemoryError(f"there is no memory to make an array of {name}: {error}") from error
    except Exception as error:  # whatever an object's own conversion raises
        raise OperandError(f"{name} of type {type(x).__name__} cannot become an array: {error}") from error
    if array.dtype == object and array.ndim and array.size and type(array.flat[0]) is type(x):
        raise OperandError(f"{name} is a {spell(x)}, of which NumPy makes an array of such objects: compute it first")
    if array.dtype == object and not array.ndim and not isinstance(x, (np.ndarray, Number)):
        raise OperandError(f"{name} of type {type(x).__name__} is no array")
    return array


def way_in(x: Any, name: str) -> _Way | None:
    """How an object of another library is reached; None where it needs no way of its own.

    Raises:
        DTypeError: It exports no memory.
    """
    check_eager(x, name)
    if not is_jax(x):
        return _on_gpu(x, name)
    check_jax(x, name)
    return _on_gpu(x, name) or from_array


def from_array(x: Any, name: str, streams: list[tuple[int, int]]) -> Any:
    """The way of an object on the CPU."""
    return as_numpy(x, name)


def _on_gpu(x: Any, name: str) -> _Way | None:
    """How an object's GPU memory is reached, None if it has none. DLPack comes first: it orders streams by itself."""
    interface = _interface(x)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__") and name != "out":
        try:
            device = x.__dlpack_device__()[0]
        except Exception as error:
            raise DTypeError(f"{name} of type {spell(x)} exports no memory through DLPack: {error}") from error
        if device in _ON_CUDA:
            return _from_dlpack
    return None if interface is None else from_interface


def _interface(x: Any) -> Any:
    try:
        return getattr(x, "__cuda_array_interface__", None)
    except Exception:  # e.g. a dtype that the interface cannot spell: DLPack may
        return None


def _from_dlpack(x: Any, name: str, streams: list[tuple[int, int]]) -> Any:
    cupy = required_cupy()
    try:
        return cupy.module.from_dlpack(x)
    except Exception as error:
        raise DTypeError(
            f"{name} of type {spell(x)} cannot become a CuPy array ({error}); for bfloat16, pass it through "
            "torch.from_dlpack"
        ) from error


def from_interface(x: Any, name: str, streams: list[tuple[int, int]]) -> Any:
    """A CuPy array by the CUDA array interface, version 3."""
    module = required_cupy().module
    facts = _interface(x)
    address, read_only = facts["data"]
    if name == "out" and read_only:
        raise OutputError(f"{name} is read-only")
    if facts.get("mask") is not None:
        raise DTypeError(f"{name} of type {spell(x)} is masked")
    dtype, shape = np.dtype(facts["typestr"]), tuple(facts["shape"])
    strides = facts.get("strides")
    spec = TensorSpec(shape, tuple(strides) if strides is not None else dense_strides(shape, dtype.itemsize), dtype)
    if 0 in shape or not address:
        return module.empty(shape, dtype)
    memory = module.cuda.UnownedMemory(address, spec.nbytes, x)
    with module.cuda.Device(memory.device_id):
        array = module.ndarray(shape, dtype, module.cuda.MemoryPointer(memory, 0), spec.strides)
    stream = facts.get("stream")
    if stream:
        streams.append((memory.device_id, stream))
        order_streams(memory.device_id, stream, first_is_current=False)
    return array


def order_streams(device: int, stream: int, first_is_current: bool) -> None:
    """Let one of two streams, CuPy's current one and another, wait for what the other one holds now."""
    cuda = required_cupy().module.cuda
    with cuda.Device(device):
        current = cuda.get_current_stream()
        if current.ptr == stream or (stream == _LEGACY_STREAM and not current.ptr):
            return
        other = cuda.ExternalStream(stream)
        first, second = (current, other) if first_is_current else (other, current)
        event = cuda.Event(disable_timing=True)
        event.record(first)
        second.wait_event(event)


def required_cupy() -> CupyKind:
    """CuPy, imported where nobody has done so yet.

    Raises:
        MissingPackageError, DeviceError: It is not installed, or there is no driver or GPU.
    """
    from gett.runtime.device import require_cupy

    if cupy_kind() is None:
        require_cupy()
    kind = cupy_kind()
    assert kind is not None
    return kind
