"""Array kinds: NumPy and CuPy behind one small interface; overlap of strided arrays.

Owns what the public functions need of an array library (describe, allocate, convert, fill); PyTorch's side of it is
`gett.arrays.torch`. Imports CuPy never by itself: whoever has a CuPy array has imported it. Knows neither subscripts
nor plans.
"""

# ruff: noqa: D102 - the protocol documents the methods of every kind

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from gett.arrays.dynamo import leaves_tracing
from gett.errors import OutOfMemoryError, ShapeError
from gett.ir.tensors import ALIGNMENT_LIMIT, MAX_AXES, TensorSpec, own_dtype, packed_axes

CPU = -1  # device number of arrays in the host's memory
ALIGNMENT = tuple((i & -i) or ALIGNMENT_LIMIT for i in range(ALIGNMENT_LIMIT))  # by address modulo the limit
_SMALL_COPY = 1 << 16  # elements that are copied in one call
_MAX_SOLVER_WORK = 100_000
_MAX_ENUMERATED = 1_000_000


class ArrayKind(Protocol):
    """What the public functions ask of an array library."""

    name: str

    @property
    def launch(self) -> Any:
        """`launch(executable, a, b, c, d, alpha, beta, extras)`, or None where executables take arrays themselves."""

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

    def memory(self, device: int) -> int:
        """Bytes of memory that a device has in all."""

    def free(self, device: int) -> int:
        """Bytes of memory that arrays could take on a device now."""

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        """A view with the axes in another order."""

    def base(self, array: Any) -> Any:
        """The array of the numbers that memory holds: without a conjugation that PyTorch has only marked."""

    def to_host(self, array: Any) -> Any:
        """The numbers that memory holds as a dense NumPy array."""

    def from_host(self, array: Any) -> Any:
        """A NumPy array as one of this kind on the current device."""

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        """A context that makes `device` current, or None where it is current already."""

    def arch(self, device: int) -> str:
        """What to plan for on a device: `"cpu"` or e.g. `"sm_90a"`."""

    def stream(self) -> int:
        """The handle of the current stream; 0 where there are none."""


class NumpyKind:
    """NumPy arrays."""

    name = "NumPy"
    launch: Any = None

    def describe(self, array: Any) -> TensorSpec:
        return TensorSpec(array.shape, array.strides, own_dtype(array.dtype), 1)

    def device(self, array: Any) -> int:
        return CPU

    def pointer(self, array: Any) -> int:
        return int(array.__array_interface__["data"][0])

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Any:
        try:
            return np.empty(shape, dtype, order)  # type: ignore[call-overload]
        except (MemoryError, ValueError) as error:  # ValueError: more bytes than an address has, or too many axes
            raise out_of_memory(shape, dtype, "host") from error

    def copy(self, target: Any, source: Any) -> None:
        if target.size <= _SMALL_COPY:
            np.copyto(target, source, casting="unsafe")
            return
        from gett.cpu.moving import move

        move(target, np.broadcast_to(source, target.shape))  # in parts, between which Ctrl-C is heard

    def memory(self, device: int) -> int:
        return _host_memory()

    def free(self, device: int) -> int:
        return _free_host_memory()

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        return array.transpose(axes)

    def base(self, array: Any) -> Any:
        return array

    def to_host(self, array: Any) -> Any:
        return np.asarray(array, order="C")

    def from_host(self, array: Any) -> Any:
        return array

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        return None

    def arch(self, device: int) -> str:
        return "cpu"

    def stream(self) -> int:
        return 0


class CupyKind:
    """CuPy arrays; made only when the CuPy module is loaded."""

    name = "CuPy"
    launch: Any = None

    def __init__(self, module: Any) -> None:
        self.module = module
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
        except (MemoryError, ValueError) as error:
            raise out_of_memory(shape, dtype, "device") from error

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source  # CuPy converts on assignment, and keeps complex to real an error of ours beforehand

    def memory(self, device: int) -> int:
        from gett.runtime.device import device_facts

        return device_facts(device).memory_bytes

    def free(self, device: int) -> int:
        cuda = self.module.cuda
        with cuda.Device(device):
            pool = self.module.get_default_memory_pool()
            return int(cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        return array.transpose(axes)

    def base(self, array: Any) -> Any:
        return array

    def to_host(self, array: Any) -> Any:
        return np.asarray(array.get(), order="C")

    def from_host(self, array: Any) -> Any:
        return self.module.asarray(array)

    def on(self, device: int) -> AbstractContextManager[Any] | None:
        if self._current() == device:
            return None
        context: AbstractContextManager[Any] = self.module.cuda.Device(device)
        return context

    def arch(self, device: int) -> str:
        from gett.runtime.device import device_facts

        return device_facts(device).arch

    def stream(self) -> int:
        return int(self.module.cuda.get_current_stream().ptr)

    def asarray(self, value: Any, device: int) -> Any:
        """A scalar as a 0-d array on a device."""
        with self.module.cuda.Device(device):
            return self.module.asarray(value)


NUMPY = NumpyKind()
_cupy_kind: CupyKind | None = None


@leaves_tracing
def cupy_kind() -> CupyKind | None:
    """The CuPy kind if CuPy has been imported (by anybody), else None."""
    global _cupy_kind
    if _cupy_kind is None:
        module = sys.modules.get("cupy")
        if module is not None and hasattr(module, "ndarray"):
            _cupy_kind = CupyKind(module)
    return _cupy_kind


def allocate(kind: ArrayKind, shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int]) -> Any:
    """A dense array whose axes lie in memory as `order` lists them, slowest first; others have extent 1 or 0."""
    dense, axes = _memory_order(shape, order)
    base = kind.empty(dense, dtype)
    return base if axes is None else kind.permute(base, axes)


def _memory_order(shape: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shape in memory of what `allocate` makes, and the axes of a view of that; None where they are the same."""
    rest = [i for i in range(len(shape)) if i not in order]
    axes = [*rest, *order]
    dense = (*(min(1, shape[i]) for i in rest), *(shape[i] for i in order))
    return dense, None if axes == [*range(len(shape))] else tuple(axes.index(i) for i in range(len(shape)))


@dataclass(frozen=True, slots=True)
class Conversion:
    """How arrays of one layout are converted, worked out once: to copies as `gett.ir.tensors.converted` says.

    Attributes:
        dtype: Of the copy.
        index: What is copied: an axis of stride 0 once. None where that is all.
        shape: Of the copy in memory.
        axes: Of the view of it that takes the array's place; None where that is the copy itself.
    """

    dtype: np.dtype[Any]
    index: tuple[slice, ...] | None
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None


def conversion(spec: TensorSpec, dtype: np.dtype[Any]) -> Conversion:
    """The conversion of arrays that lie as `spec` says."""
    packed = packed_axes(spec)
    repeated = [i for i, e in enumerate(spec.shape) if i not in packed and e != 1]
    once = tuple(slice(0, 1) if i in repeated else slice(None) for i in range(len(spec.shape)))
    shape, axes = _memory_order(spec.shape, packed)
    return Conversion(dtype, once if repeated else None, shape, axes)


def convert(kind: ArrayKind, array: Any, how: Conversion) -> Any:
    """A copy in another dtype."""
    base = kind.empty(how.shape, how.dtype)
    target = base if how.axes is None else kind.permute(base, how.axes)
    kind.copy(target, array if how.index is None else array[how.index])
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


def out_of_memory(shape: Sequence[int], dtype: np.dtype[Any], where: str) -> OutOfMemoryError | ShapeError:
    """The error of an allocation that failed in `where` memory."""
    if len(shape) > MAX_AXES:
        return ShapeError(f"an intermediate has {len(shape)} modes; arrays have at most {MAX_AXES} axes")
    nbytes = math.prod(shape) * dtype.itemsize
    return OutOfMemoryError(f"cannot allocate {nbytes} bytes of {where} memory for an array of shape {tuple(shape)}")


def check_room(kind: ArrayKind, device: int, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Refuse a new array that is larger than all of a device's memory.

    Raises:
        OutOfMemoryError: It is.
    """
    if math.prod(shape) * dtype.itemsize > kind.memory(device):
        raise out_of_memory(shape, dtype, "host" if kind is NUMPY else "device")


@cache
def _host_memory() -> int:
    """Physical memory, or all that can be addressed where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def _free_host_memory() -> int:
    """Memory that programs could take now without swapping, as Linux estimates it; elsewhere the free pages, or all."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _host_memory()
