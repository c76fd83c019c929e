"""From what users pass to arrays of one kind: scalars, lists, PyTorch tensors, and whatever exports its memory.

Owns which libraries may meet in a call, and the way back: a result is what the operands were. Nothing is copied but
scalars, tensors that PyTorch negates lazily, others than operands that it conjugates lazily, and bfloat16 on the CPU.
Knows neither subscripts nor plans.

On a GPU, NumPy's counterpart is CuPy: objects with `__cuda_array_interface__` or `__dlpack__` become CuPy arrays on the
same memory, and so do their results. PyTorch's CUDA tensors stay what they are (`gett.arrays.torch`), its CPU tensors
become NumPy arrays on the same memory and their results tensors again. What JAX's arrays give is a JAX array.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.arrays.bfloat16 import FLOAT32, computed, numpy_bfloat16, widened
from gett.arrays.exported import as_numpy, from_array, order_streams, spell, way_in
from gett.arrays.jax import is_jax, to_jax
from gett.arrays.kinds import CPU, NUMPY, ArrayKind, conversion, convert, cupy_kind
from gett.arrays.torch import TorchLibrary, torch_library
from gett.errors import DTypeError, MixedArraysError, OutputError
from gett.ir.tensors import BFLOAT16, Casting, parse_dtype

SCALARS = (bool, int, float, complex, np.generic)


def gather(operands: Sequence[Any], names: Sequence[str], factors: int = 0) -> tuple[ArrayKind, int, list[Any]]:
    """Bring arguments to arrays of one kind on one device. No array is copied or moved.

    NumPy arrays, lists, scalars and whatever `numpy.asarray` takes are NumPy arrays; beside CuPy arrays and PyTorch's
    CUDA tensors, scalars become arrays of rank 0 there. What `borrow` converts must have been converted.

    Args:
        operands: The arguments.
        names: How messages call them.
        factors: How many of them, the first, may be tensors that PyTorch conjugates lazily; others are copied.

    Returns:
        The kind, the device number and the arrays.

    Raises:
        MixedArraysError: Arrays of two libraries or on two devices; the text names the operands.
        DTypeError, OperandError: An operand cannot become an array.
    """
    torch = torch_library()
    if torch is not None and any(isinstance(x, torch.tensor) for x in operands):
        return _gather_tensors(torch, operands, names, factors)
    cupy = cupy_kind()
    on_gpu = [i for i, x in enumerate(operands) if cupy is not None and isinstance(x, cupy.type)]
    if cupy is None or not on_gpu:
        return NUMPY, CPU, [as_numpy(x, n) for x, n in zip(operands, names, strict=True)]
    first = on_gpu[0]
    device = cupy.device(operands[first])
    arrays: list[Any] = []
    for x, name in zip(operands, names, strict=True):
        if isinstance(x, cupy.type):
            other = cupy.device(x)
            if other != device:
                raise MixedArraysError(f"{names[first]} is on GPU {device}, {name} on GPU {other}")
            arrays.append(x)
        elif isinstance(x, SCALARS):
            arrays.append(cupy.asarray(x, device))
        else:
            raise MixedArraysError(
                f"{names[first]} is a CuPy array, {name} is a {spell(x)}; "
                "move one of them with cupy.asarray or cupy.asnumpy"
            )
    return cupy, device, arrays


def _gather_tensors(
    torch: TorchLibrary, operands: Sequence[Any], names: Sequence[str], factors: int
) -> tuple[ArrayKind, int, Any]:
    tensors = _tensors(torch, operands, names, factors)
    device = int(next(x for x in operands if isinstance(x, torch.tensor)).get_device())
    return torch.kind(device), device, tensors


def gather_recorded(things: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Tensors of one device out of tensors and scalars, of which PyTorch records derivatives.

    Raises:
        MixedArraysError, DTypeError, OperandError: As `gather`.
    """
    torch = torch_library()
    assert torch is not None
    return _tensors(torch, things, names, len(things), recorded=True)


def _tensors(
    torch: TorchLibrary, things: Sequence[Any], names: Sequence[str], factors: int, *, recorded: bool = False
) -> list[Any]:
    """Tensors of one device out of tensors and scalars; the first `factors` may be conjugated lazily."""
    first = next(i for i, x in enumerate(things) if isinstance(x, torch.tensor))
    model, found = things[first], []
    if model.device.type not in (("cuda", "cpu", "meta") if recorded else ("cuda", "cpu")):
        raise DTypeError(f"{names[first]} is on the device {model.device}; there are CUDA and CPU tensors here")
    for i, (x, name) in enumerate(zip(things, names, strict=True)):
        if isinstance(x, torch.tensor):
            if x.device != model.device:
                raise MixedArraysError(f"{names[first]} is on {_place(model)}, {name} on {_place(x)}")
            found.append(torch.admit(x, name, lazily=i < factors, recorded=recorded))
        elif isinstance(x, SCALARS):
            found.append(torch.scalar(x, model))
        else:
            raise MixedArraysError(
                f"{names[first]} is a PyTorch tensor, {name} is a {spell(x)}; make one with torch.as_tensor"
            )
    return found


def _place(tensor: Any) -> str:
    return f"GPU {tensor.get_device()}" if tensor.is_cuda else f"the {str(tensor.device).upper()}"


@dataclass(slots=True)
class Loan:
    """Arguments of one call on the same memory in a library that the executors know.

    Attributes:
        operands: NumPy or CuPy arrays.
        c: The added operand, or None.
        out: The array to write, or None.
        dtype: What to ask for in place of the caller's `dtype=`.
        extras: What an epilogue reads.
        finish: From the result to what the caller gets: his own `out` where he gave one.
        lazy: For each operand whether it stands for a tensor that PyTorch conjugates lazily, so that its numbers are to
            be conjugated; empty where there are none.
    """

    operands: list[Any]
    c: Any
    out: Any
    dtype: Any
    extras: list[Any]
    finish: Callable[[Any], Any]
    lazy: tuple[bool, ...] = ()


def borrow(
    operands: Sequence[Any],
    c: Any = None,
    out: Any = None,
    dtype: Any = None,
    casting: Casting = "safe",
    extras: Sequence[Any] = (),
) -> Loan | None:
    """Turn arrays that no executor takes as they are into such that share their memory; None if there are none.

    Those are PyTorch's CPU tensors, JAX's arrays, and objects on a GPU that speak DLPack or the CUDA array interface.
    The work is ordered behind what their streams hold, and their streams wait for it. bfloat16 on the CPU is computed
    in float32 on copies and rounded once at the end. An `out` of a class derived from NumPy's is written as an array.

    Raises:
        MixedArraysError, DTypeError: As `gather`.
        OutputError: `out` cannot be written.
        MissingPackageError, DeviceError: An array lies on a GPU, and CuPy or a driver is missing.
    """
    things = [*operands, *extras, c, out]
    count = len(operands)
    names = _names(count, len(extras))
    torch = torch_library()
    if torch is not None and any(isinstance(x, torch.tensor) for x in things):
        if not any(isinstance(x, torch.tensor) and not x.is_cuda for x in things):
            return None
        return _borrow_tensors(torch, things, names, count, dtype, casting)
    cupy = cupy_kind()
    known: tuple[type, ...] = (np.ndarray, list, tuple, *SCALARS, *(() if cupy is None else (cupy.type,)))
    found = [None if x is None or isinstance(x, known) else way_in(x, n) for x, n in zip(things, names, strict=True)]
    if isinstance(out, np.ndarray) and type(out) is not np.ndarray:
        found[-1] = from_array
    if all(f is None for f in found):
        return None
    back = to_jax() if out is None and any(map(is_jax, things)) else None
    streams: list[tuple[int, int]] = []
    views = [x if view is None else view(x, n, streams) for x, n, view in zip(things, names, found, strict=True)]

    def finish(result: Any) -> Any:
        for device, stream in streams:
            order_streams(device, stream, first_is_current=True)
        if out is not None:
            return out
        return result if back is None else back(result)

    return Loan(views[:count], views[-2], views[-1], dtype, views[count:-2], finish)


def _borrow_tensors(
    torch: TorchLibrary, things: list[Any], names: list[str], count: int, dtype: Any, casting: Casting
) -> Loan:
    """CPU tensors as NumPy arrays; the first `count` are operands, the last two `c` and `out`."""
    out = things[-1]
    given = [(x, n) for x, n in zip(things, names, strict=True) if x is not None]
    if out is not None and not isinstance(out, torch.tensor):
        raise MixedArraysError(f"out must be a PyTorch tensor as the operands are, not {type(out).__name__}")
    admitted = _tensors(torch, [x for x, _ in given], [n for _, n in given], count)
    lazy = tuple(bool(x.is_conj()) for x in admitted[:count])
    tensors = dict(zip((n for _, n in given), map(torch.base, admitted), strict=True))
    if out is not None and tensors["out"] is not out:
        raise OutputError("out is a view that PyTorch conjugates or negates lazily: give its base")
    specs = {n: torch.describe(x) for n, x in tensors.items()}
    module = torch.module

    def widen(x: Any) -> Any:
        return x.to(module.bfloat16).to(module.float32)

    result, stand_in = None if dtype is None else parse_dtype(dtype), None
    wide = widened(tensors, specs, names[:count], dtype, casting, widen)
    if wide is not None:
        tensors, result, stand_in = wide
    arrays = {n: x if x is stand_in else torch.memory(x) for n, x in tensors.items()}

    def finish(array: Any) -> Any:
        if out is not None and stand_in is None:
            return out
        tensor = module.from_numpy(np.asarray(array))
        if result is BFLOAT16:
            tensor = tensor.to(module.bfloat16)
        return tensor if out is None else out.copy_(tensor)

    asked = None if result is None else computed(result)
    found = [arrays[n] for n in names[:-2]]
    lent = found[:count], arrays.get("c"), arrays.get("out"), asked, found[count:], finish
    return Loan(*lent, lazy if any(lazy) else ())


def lend_bfloat16(
    operands: Sequence[Any],
    c: Any = None,
    out: Any = None,
    dtype: Any = None,
    casting: Casting = "safe",
    extras: Sequence[Any] = (),
) -> Loan | None:
    """NumPy arrays in place of some whose dtype is bfloat16; None if there are none, and none is asked for.

    Raises:
        DTypeError: As `promote`, or NumPy has no such dtype.
    """
    if dtype is None and "ml_dtypes" not in sys.modules:
        return None  # nobody has given NumPy the dtype
    if out is not None and not isinstance(out, np.ndarray):
        return None  # which is refused later
    things = [*operands, *extras, c, out]
    if (dtype is None or not _is_bfloat16(dtype)) and not any([x is not None and x.dtype.kind == "V" for x in things]):
        return None
    count = len(operands)
    names = _names(count, len(extras))
    given = {n: x for n, x in zip(names, things, strict=True) if x is not None}
    specs = {n: NUMPY.describe(x) for n, x in given.items()}
    wide = widened(given, specs, names[:count], dtype, casting, _widen)
    if wide is None:
        return None
    arrays, result, stand_in = wide
    own = next((x.dtype for n, x in given.items() if specs[n].dtype is BFLOAT16), None) or numpy_bfloat16()

    def finish(array: Any) -> Any:
        if out is not None and stand_in is None:
            return out
        rounded = array.astype(own) if result is BFLOAT16 else array
        if out is None:
            return rounded
        np.copyto(out, rounded, casting="unsafe")
        return out

    found = [arrays[n] for n in names[:-2]]
    return Loan(found[:count], arrays.get("c"), arrays.get("out"), computed(result), found[count:], finish)


def _is_bfloat16(dtype: Any) -> bool:
    return parse_dtype(dtype) is BFLOAT16


def _widen(array: Any) -> Any:
    """The values of an array, rounded to bfloat16, as float32; laid out as a plan describes a converted copy."""
    for dtype in (numpy_bfloat16(), FLOAT32)[NUMPY.describe(array).dtype is BFLOAT16 :]:
        array = np.broadcast_to(convert(NUMPY, array, conversion(NUMPY.describe(array), dtype)), array.shape)
    return array


def _names(operands: int, extras: int) -> list[str]:
    """How messages call the arguments of a call."""
    return [*(f"operand {i}" for i in range(operands)), *(f"epilogue_args[{i}]" for i in range(extras)), "c", "out"]
