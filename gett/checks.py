"""Checks of the arrays and factors of a call: what may be written, what may overlap, what fits a plan.

Knows array kinds; knows neither subscripts nor how anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.arrays import CPU, NUMPY, ArrayKind, bounds, overlap, overlaps_itself
from gett.errors import DTypeError, MixedArraysError, OptionError, OutputError, ShapeError
from gett.exchange import gather
from gett.frontend.tensors import BFLOAT16, TensorSpec
from gett.torch_arrays import torch_library


def check_out(out: Any, kind: ArrayKind, device: int) -> TensorSpec:
    """Describe `out`, or say why it cannot be written.

    Raises:
        MixedArraysError: It is no array of the operands' kind, or on another device.
        OutputError: It is read-only, or elements of it overlap.
    """
    torch = torch_library()
    home, where, array = None, CPU, None
    if hasattr(out, "strides") or (torch is not None and isinstance(out, torch.tensor)):
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


def check_overlap(out: Any, kind: ArrayKind, inputs: Sequence[tuple[str, Any]]) -> None:
    """Refuse an `out` that shares memory with an input; only `c` may be `out` itself.

    Raises:
        OutputError: It does; the text names the input.
    """
    spec, address = kind.describe(out), kind.pointer(out)
    low, high = bounds(spec)
    for name, array in inputs:
        if array is None:
            continue
        other, start = kind.describe(array), kind.pointer(array)
        lo, hi = bounds(other)
        if address + high <= start + lo or start + hi <= address + low:
            continue
        if name == "c" and address == start and other == spec:
            continue
        if overlap(address, spec, start, other):
            raise OutputError(f"out overlaps {name}: give another out, or a copy of {name}")


def check_factors(alpha: Any, beta: Any, c: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Alpha and beta as Python scalars that `dtype` can hold.

    Raises:
        DTypeError: A factor is no scalar, or complex or fractional where the dtype is not.
        OptionError: beta is not 0 and there is no `c`.
    """
    factors = _factor(alpha, "alpha", dtype), _factor(beta, "beta", dtype)
    if c is None and factors[1] != 0:
        raise OptionError(f"beta={beta!r} scales c, but no c is given")
    return factors


def _factor(value: Any, name: str, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        raise DTypeError(f"{name} must be a number, not {type(value).__name__}")
    if isinstance(value, complex) and dtype.kind != "c":
        if value.imag:
            raise DTypeError(f"{name}={value!r} is complex, the contraction is in {dtype}")
        value = value.real
    if dtype.kind in "biu" and not isinstance(value, (bool, int)):
        if not value.is_integer():
            raise DTypeError(f"{name}={value!r} is no integer, the contraction is in {dtype}")
        value = int(value)
    return value


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
