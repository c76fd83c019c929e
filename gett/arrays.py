"""Array kinds: NumPy and CuPy behind one small interface; overlap of strided arrays.

Owns every call into an array library that the public functions need (describe, allocate, convert, fill). Imports CuPy
never by itself: whoever has a CuPy array has imported it. Knows neither subscripts nor plans.
"""

# ruff: noqa: D102 - the protocol documents the methods of every kind

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from gett.errors import DTypeError, MissingPackageError, MixedArraysError, OutOfMemoryError
from gett.frontend.tensors import ALIGNMENT_LIMIT, TensorSpec, packed_axes

CPU = -1  # device number of NumPy arrays
ALIGNMENT = tuple((i & -i) or ALIGNMENT_LIMIT for i in range(ALIGNMENT_LIMIT))  # by address modulo the limit
_SCALARS = (bool, int, float, complex, np.generic)
_MAX_SOLVER_WORK = 100_000
_MAX_ENUMERATED = 1_000_000


class ArrayKind(Protocol):
    """What the public functions ask of an array library."""

    name: str

    def describe(self, array: Any) -> TensorSpec:
        """Shape, strides, dtype and alignment of an array."""

    def device(self, array: Any) -> int:
        """Device number of an array, `CPU` for NumPy."""

    def pointer(self, array: Any) -> int:
        """Address of the first coordinate."""

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        """A new dense array on the current device."""

    def copy(self, target: Any, source: Any) -> None:
        """Write `source`, broadcast and converted without a check, into `target`."""

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        """A context that makes `device` current, or None where it is current already."""

    def arch(self, device: int) -> str:
        """What to plan for on a device: `"cpu"` or e.g. `"sm_90a"`."""


class NumpyKind:
    """NumPy arrays."""

    name = "NumPy"

    def describe(self, array: Any) -> TensorSpec:
        return TensorSpec(array.shape, array.strides, array.dtype, 1)

    def device(self, array: Any) -> int:
        return CPU

    def pointer(self, array: Any) -> int:
        return int(array.__array_interface__["data"][0])

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        try:
            return np.empty(shape, dtype, order)  # type: ignore[call-overload]
        except MemoryError as error:
            raise _out_of_memory(shape, dtype, "host") from error

    def copy(self, target: Any, source: Any) -> None:
        np.copyto(target, source, casting="unsafe")

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        return None

    def arch(self, device: int) -> str:
        return "cpu"


class CupyKind:
    """CuPy arrays; made only when the CuPy module is loaded."""

    name = "CuPy"

    def __init__(self, module: Any) -> None:
        self._cupy = module
        self.type: type = module.ndarray
        self._current: Callable[[], int] = module.cuda.runtime.getDevice

    def describe(self, array: Any) -> TensorSpec:
        return TensorSpec(array.shape, array.strides, array.dtype, ALIGNMENT[array.data.ptr % ALIGNMENT_LIMIT])

    def device(self, array: Any) -> int:
        return int(array.data.device_id)

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        try:
            return self.type(shape, dtype, None, None, order)
        except MemoryError as error:
            raise _out_of_memory(shape, dtype, "device") from error

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source  # CuPy converts on assignment, and keeps complex to real an error of ours beforehand

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        if self._current() == device:
            return None
        context: AbstractContextManager[Any] = self._cupy.cuda.Device(device)
        return context

    def arch(self, device: int) -> str:
        from gett.runtime.device import device_facts

        return device_facts(device).arch

    def asarray(self, value: Any, device: int) -> Any:
        """A scalar as a 0-d array on a device."""
        with self._cupy.cuda.Device(device):
            return self._cupy.asarray(value)


NUMPY = NumpyKind()
_cupy_kind: CupyKind | None = None


def cupy_kind() -> CupyKind | None:
    """The CuPy kind if CuPy has been imported (by anybody), else None."""
    global _cupy_kind
    if _cupy_kind is None:
        module = sys.modules.get("cupy")
        if module is not None and hasattr(module, "ndarray"):
            _cupy_kind = CupyKind(module)
    return _cupy_kind


def kind_of_device(device: int) -> ArrayKind:
    """The kind whose arrays live on a device.

    Raises:
        MissingPackageError: The device is a GPU and CuPy is not loaded.
    """
    if device == CPU:
        return NUMPY
    kind = cupy_kind()
    if kind is None:
        raise MissingPackageError("GPU arrays need CuPy: pip install cupy-cuda13x (or cupy-cuda12x)")
    return kind


def gather(operands: Sequence[Any], names: Sequence[str]) -> tuple[ArrayKind, int, list[Any]]:
    """Bring arguments to arrays of one kind on one device. No array is copied or moved.

    NumPy arrays, lists, scalars and whatever `numpy.asarray` takes are NumPy arrays; beside CuPy arrays, scalars
    become 0-d CuPy arrays.

    Returns:
        The kind, the device number and the arrays.

    Raises:
        MixedArraysError: NumPy beside CuPy arrays, or two devices; the text names the operands.
        DTypeError: An operand cannot become an array.
    """
    cupy = cupy_kind()
    on_gpu = [i for i, x in enumerate(operands) if cupy is not None and isinstance(x, cupy.type)]
    if cupy is None or not on_gpu:
        return NUMPY, CPU, [_as_numpy(x, n) for x, n in zip(operands, names, strict=True)]
    first = on_gpu[0]
    device = cupy.device(operands[first])
    arrays: list[Any] = []
    for x, name in zip(operands, names, strict=True):
        if isinstance(x, cupy.type):
            other = cupy.device(x)
            if other != device:
                raise MixedArraysError(f"{names[first]} is on GPU {device}, {name} on GPU {other}")
            arrays.append(x)
        elif isinstance(x, _SCALARS):
            arrays.append(cupy.asarray(x, device))
        else:
            raise MixedArraysError(
                f"{names[first]} is a CuPy array, {name} is a {type(x).__module__}.{type(x).__name__}; "
                "move one of them with cupy.asarray or cupy.asnumpy"
            )
    return cupy, device, arrays


def _as_numpy(x: Any, name: str) -> Any:
    if type(x) is np.ndarray:
        return x
    if hasattr(x, "__cuda_array_interface__") and not hasattr(x, "__array_interface__"):
        raise DTypeError(f"{name} is a {type(x).__name__} on a GPU; wrap it with cupy.asarray first")
    try:
        return np.asarray(x)
    except TypeError as error:
        raise DTypeError(f"{name} of type {type(x).__name__} cannot become an array: {error}") from error


def allocate(kind: ArrayKind, shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int]) -> Any:
    """A dense array whose axes lie in memory as `order` lists them, slowest first; other axes have extent 1."""
    rest = [i for i in range(len(shape)) if i not in order]
    axes = [*rest, *order]
    base = kind.empty([1] * len(rest) + [shape[i] for i in order], dtype)
    return base.transpose([axes.index(i) for i in range(len(shape))])


def convert(kind: ArrayKind, array: Any, dtype: np.dtype[Any]) -> Any:
    """A copy in another dtype, laid out as `gett.frontend.tensors.converted` says."""
    spec = kind.describe(array)
    axes = packed_axes(spec)
    index = tuple(slice(None) if i in axes else slice(0, 1) for i in range(len(spec.shape)))
    source = array[index] if index else array
    target = allocate(kind, source.shape, dtype, axes)
    kind.copy(target, source)
    return target


def bounds(spec: TensorSpec) -> tuple[int, int]:
    """First and one past the last byte that a tensor touches, relative to its first coordinate; (0, 0) if empty."""
    if 0 in spec.shape:
        return 0, 0
    ends = [(e - 1) * s for e, s in zip(spec.shape, spec.strides, strict=True)]
    return sum(x for x in ends if x < 0), sum(x for x in ends if x > 0) + spec.dtype.itemsize


class _Region:
    """A strided region of an address space, only ever looked at, never read."""

    def __init__(self, address: int, spec: TensorSpec) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": spec.shape,
            "strides": spec.strides,
            "typestr": f"|V{spec.dtype.itemsize}",
            "version": 3,
        }


def overlap(address: int, spec: TensorSpec, other_address: int, other: TensorSpec) -> bool:
    """Whether two strided arrays share a byte. Exact, but for cases beyond a work limit, which count as sharing."""
    (lo, hi), (other_lo, other_hi) = bounds(spec), bounds(other)
    if address + hi <= other_address + other_lo or other_address + other_hi <= address + lo or lo == hi:
        return False
    x, y = np.asarray(_Region(address, spec)), np.asarray(_Region(other_address, other))
    try:
        return bool(np.shares_memory(x, y, max_work=_MAX_SOLVER_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(spec: TensorSpec) -> bool:
    """Whether two coordinates of an array share a byte."""
    if 0 in spec.shape:
        return False
    axes = sorted((abs(s), e) for e, s in zip(spec.shape, spec.strides, strict=True) if e > 1)
    reach = spec.dtype.itemsize
    nested = True
    for stride, extent in axes:
        nested = nested and stride >= reach
        reach += stride * (extent - 1)
    if nested:
        return False
    if any(stride == 0 for stride, _ in axes) or math.prod(spec.shape) > _MAX_ENUMERATED:
        return True
    offsets = np.zeros(1, np.int64)
    for stride, extent in axes:
        offsets = np.add.outer(offsets, stride * np.arange(extent)).ravel()
    offsets.sort()
    return bool((np.diff(offsets) < spec.dtype.itemsize).any())


def _out_of_memory(shape: Sequence[int], dtype: np.dtype[Any], where: str) -> OutOfMemoryError:
    nbytes = math.prod(shape) * dtype.itemsize
    return OutOfMemoryError(f"cannot allocate {nbytes} bytes of {where} memory for an array of shape {tuple(shape)}")
