"""Checks of the arrays and factors of a call: what may be written, what shares memory, what fits a plan.

Knows array kinds; knows neither subscripts nor how anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from gett.arrays.interop import gather
from gett.arrays.kinds import CPU, NUMPY, ArrayKind, overlap, overlaps_itself
from gett.arrays.torch import is_tensor
from gett.env import parse_size
from gett.errors import DTypeError, EpilogueError, MixedArraysError, OptionError, OutputError, ShapeError
from gett.hw.archs import WORKSPACE_LIMIT
from gett.ir.tensors import BFLOAT16, TensorSpec, is_numpy_only


def check_out(out: Any, kind: ArrayKind, device: int) -> TensorSpec:
    """Describe `out`, or say why it cannot be written.

    Raises:
        MixedArraysError: It is no array of the operands' kind, or on another device.
        OutputError: It is read-only, or elements of it overlap.
    """
    home, where, array = None, CPU, None
    if hasattr(out, "strides") or is_tensor(out):
        home, where, (array,) = gather([out], ["out"])
    if home is None or home.name != kind.name or (kind is NUMPY and not isinstance(out, np.ndarray)):
        raise MixedArraysError(f"out must be a {kind.name} array as the operands are, not {type(out).__name__}")
    if where != device:
        raise MixedArraysError(f"out is on device {where}, the operands are on {device}")
    if kind is NUMPY and not out.flags.writeable:
        raise OutputError("out is read-only")
    if kind is not NUMPY and array is not out:
        raise OutputError("out is a view that PyTorch conjugates or negates lazily: give its base")
    spec = kind.describe(out)
    if overlaps_itself(spec):
        raise OutputError(f"elements of out overlap each other (shape {spec.shape}, strides {spec.strides})")
    return spec


def check_holds(kind: ArrayKind, dtype: np.dtype[Any] | None) -> np.dtype[Any] | None:
    """Refuse a dtype that a kind's arrays cannot have.

    Raises:
        DTypeError: It is bfloat16, and the kind is CuPy's.
    """
    if dtype is BFLOAT16 and kind.name == "CuPy":
        raise DTypeError("CuPy has no arrays of dtype bfloat16: pass PyTorch tensors")
    return dtype


def shares_memory(kind: ArrayKind, out: Any, array: Any) -> bool:
    """Whether two arrays of one kind share a byte; cases that are too hard to tell count as sharing."""
    return overlap(kind.pointer(out), kind.describe(out), kind.pointer(array), kind.describe(array))


def is_apart(
    kind: ArrayKind,
    out: Any,
    spec: TensorSpec,
    operands: Sequence[Any],
    own_place: Sequence[bool],
    added: Sequence[tuple[Any, bool]],
) -> bool:
    """Whether writing `out` changes nothing that is read later.

    Args:
        kind: Of the arrays.
        out: What is written.
        spec: Its description.
        operands: What is read.
        own_place: For each operand whether it may be what is written, element by element.
        added: Further arrays, each with whether an element of it is read only for the same element of the result.
    """
    address = kind.pointer(out)
    for x, own in zip(operands, own_place, strict=True):
        if not (own and kind.pointer(x) == address) and shares_memory(kind, out, x):
            return False
    for x, own in added:
        itself = own and kind.pointer(x) == address and kind.describe(x) == spec
        if not itself and shares_memory(kind, out, x):
            return False
    return True


def resolve_addend(c: Any, beta: Any, out: Any) -> tuple[Any, Any]:
    """What beta scales, and beta: a `c` that is given counts once; without one, beta scales what `out` holds.

    Raises:
        DTypeError: beta is no number.
        OptionError: beta is not 0, and there is neither `c` nor `out`.
    """
    if beta is None:
        return c, 0 if c is None else 1
    if c is None and _number(beta, "beta") != 0:
        if out is None:
            raise OptionError(f"beta={beta!r} scales c or what out holds, but neither is given")
        return out, beta
    return c, beta


def check_workspace_limit(limit: Any) -> int:
    """The number of bytes, `WORKSPACE_LIMIT` for None.

    Raises:
        OptionError: It is neither an integer of at least 0 nor a size as text.
    """
    return WORKSPACE_LIMIT if limit is None else check_bytes(limit, "workspace_limit")


def check_bytes(size: Any, name: str) -> int:
    """The number of bytes that an option gives.

    Raises:
        OptionError: It is neither an integer of at least 0 nor a size as text.
    """
    if isinstance(size, str):
        return parse_size(size, name)
    if not is_integer(size) or size < 0:
        raise OptionError(
            f"{name}={size!r}; it must be a size such as '1GiB', a number of bytes of at least 0, or None"
        )
    return int(size)


def check_places(places: Any, count: int, name: str) -> list[int]:
    """The places of operands that an option names, in order; none for None.

    Raises:
        OptionError: One is no operand's.
    """
    try:
        found = [] if places is None else list(places)
    except TypeError as error:
        raise OptionError(f"{name}={places!r}; it must be a list of places, such as [0, 2]") from error
    for place in found:
        if not is_integer(place) or not 0 <= place < count:
            raise OptionError(f"{name}={places!r}: {place!r} is no place of {count} operands, counted from 0")
    return sorted(set(map(int, found)))


def is_integer(x: Any) -> bool:
    """Whether something is an integer of Python's or NumPy's, and no bool."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def is_shape(x: Any) -> bool:
    """Whether something is a tuple or a list of integers."""
    return isinstance(x, (tuple, list)) and all(isinstance(e, (int, np.integer)) for e in x)


def check_factors(alpha: Any, beta: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Alpha and beta as Python scalars that `dtype` can hold.

    Raises:
        DTypeError: A factor is no scalar, or complex or fractional where the dtype is not.
        OptionError: A factor is beyond the dtype's range.
    """
    return _factor(alpha, "alpha", dtype), _factor(beta, "beta", dtype)


def any_complex(alpha: Any, beta: Any) -> bool:
    """Whether a factor has an imaginary part; what is no number is none that has."""
    plain = [_python_scalar(x) for x in (alpha, beta) if x.__class__ is not int and x.__class__ is not float]
    return bool(plain) and any(isinstance(x, (complex, np.clongdouble)) and x.imag != 0 for x in plain)


def _python_scalar(value: Any) -> Any:
    """A scalar of NumPy as one of Python; its longdouble, and numbers such as fractions, stay what they are."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 else value


def _number(value: Any, name: str) -> Any:
    value = _python_scalar(value)
    if not isinstance(value, (int, float, complex, Number)):
        raise DTypeError(f"{name} must be a number, not {type(value).__name__}")
    return value


def _factor(value: Any, name: str, dtype: np.dtype[Any]) -> Any:
    if (value.__class__ is int and 0 <= value < 128) or (value.__class__ is float and dtype.kind in "fc"):
        return value  # every dtype holds such an integer
    value = _number(value, name)
    if is_numpy_only(dtype):
        return value
    if isinstance(value, (np.longdouble, np.clongdouble)):
        value = complex(value)
    if not isinstance(value, (bool, int, float, complex)):
        raise DTypeError(f"{name} must be a number that {dtype} holds, not {type(value).__name__}")
    if isinstance(value, complex):
        if value.imag and dtype.kind != "c":
            raise DTypeError(f"{name}={value!r} is complex, the contraction is in {dtype}")
        value = value if value.imag else value.real
    if dtype.kind in "biu" and not isinstance(value, (bool, int)):
        if not value.is_integer():
            raise DTypeError(f"{name}={value!r} is no integer, the contraction is in {dtype}")
        value = int(value)
    if dtype.kind in "iu":
        return _wrapped(value, dtype)
    try:
        complex(value)
    except OverflowError as error:  # an integer beyond float64
        raise OptionError(f"{name} is beyond the range of {dtype}, in which the contraction is") from error
    return value


def _wrapped(value: int, dtype: np.dtype[Any]) -> int:
    """An integer modulo the dtype's word, as products and sums are."""
    word = 1 << (8 * dtype.itemsize)
    value %= word
    return value - word if dtype.kind == "i" and 2 * value >= word else value


def check_fits(
    name: str, want: TensorSpec, have: TensorSpec, error: type[ShapeError] | type[OutputError], aligned: bool
) -> None:
    """Refuse an array of another layout than a plan's; the text names the array and both values."""
    if have.shape != want.shape:
        raise error(f"{name} has shape {have.shape}, the plan was made for {want.shape}")
    if have.dtype != want.dtype:
        kind = OutputError if error is OutputError else DTypeError
        raise kind(f"{name} has dtype {have.dtype}, the plan was made for {want.dtype}")
    if 0 not in want.shape and any(
        e != 1 and h != w for e, h, w in zip(want.shape, have.strides, want.strides, strict=True)
    ):
        raise error(f"{name} has strides {have.strides}, the plan was made for {want.strides} (bytes)")
    if aligned and have.alignment < want.alignment:
        raise error(f"{name} is aligned to {have.alignment} bytes, the plan was made for {want.alignment}")


def check_planned(planned: Sequence[TensorSpec], given: Sequence[TensorSpec]) -> None:
    """Refuse `epilogue_args` that a plan's epilogue was not traced for.

    Raises:
        EpilogueError: Another number of them, or of one's axes.
    """
    if len(given) != len(planned):
        raise EpilogueError(f"the plan's epilogue takes {len(planned)} epilogue_args, {len(given)} were given")
    for i, (want, have) in enumerate(zip(planned, given, strict=True)):
        if len(want.shape) != len(have.shape):
            raise EpilogueError(
                f"epilogue_args[{i}] has shape {have.shape}, the plan was made for one of {len(want.shape)} axes"
            )
