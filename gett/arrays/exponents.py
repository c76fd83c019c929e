"""Powers of two taken out of arrays, in place and where they are: a GPU never waits for the host.

Owns how the largest magnitude of an array becomes a power, and how an array is scaled by one. Powers are integers of
the array's own library, one element each: Python's for NumPy, arrays and tensors of rank 0 for CuPy and PyTorch. Knows
neither steps nor plans.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Protocol

import numpy as np

from gett.arrays.kinds import ArrayKind

NOTHING = -(1 << 40)
"""The power of an array of zeros, below that of any other; sums of powers that have it are below half of it."""
_MOST = 2044  # beyond it every number is 0 or infinite, and half of it is the exponent of a normal float64


class _Library(Protocol):
    """What powers need of an array library."""

    def take(self, array: Any) -> Any: ...
    def scale(self, array: Any, power: Any) -> None: ...
    def larger(self, x: Any, y: Any) -> Any: ...
    def in_tens(self, power: Any) -> Any: ...


def take_power(kind: ArrayKind, array: Any) -> Any:
    """Scale an array by a power of two so that its largest part lies in [0.5, 1), and say which power it was.

    Parts are the numbers themselves, of complex ones the real and imaginary parts. Zeros have the power `NOTHING`, and
    what has an infinity or NaN stays as it is, with the power 0.
    """
    return 0 if 0 in array.shape else _LIBRARIES[kind.name].take(array)


def scale(kind: ArrayKind, array: Any, power: Any) -> None:
    """Multiply an array by 2 to a power, in place."""
    if 0 not in array.shape:
        _LIBRARIES[kind.name].scale(array, power)


def larger(kind: ArrayKind, x: Any, y: Any) -> Any:
    """The larger of two powers."""
    return _LIBRARIES[kind.name].larger(x, y)


def in_tens(kind: ArrayKind, power: Any) -> Any:
    """The exponent of ten that 2 to a power has, in float64; 0 where what it was taken from is zero."""
    return _NUMPY.in_tens(power) if isinstance(power, int) else _LIBRARIES[kind.name].in_tens(power)


def _parts(array: Any) -> tuple[Any, ...]:
    """Views of the real numbers in an array of NumPy or CuPy."""
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


class _Numpy:
    """Of NumPy arrays."""

    def take(self, array: Any) -> Any:
        ends = [float(x) for part in _parts(array) for x in (part.max(), part.min())]
        if not all(map(math.isfinite, ends)):
            return 0
        largest = max(map(abs, ends))
        if not largest:
            return NOTHING
        power = math.frexp(largest)[1]
        self.scale(array, -power)
        return power

    def scale(self, array: Any, power: Any) -> None:
        if not power:
            return
        power = max(-_MOST, min(_MOST, power))
        for part in _parts(array):
            limits = np.finfo(part.dtype)
            if limits.minexp <= power < limits.maxexp:
                np.multiply(part, part.dtype.type(2.0**power), out=part)
            else:  # the power is no normal number of the type, though the results may be
                np.ldexp(part, power, out=part)

    def larger(self, x: Any, y: Any) -> Any:
        return max(x, y)

    def in_tens(self, power: Any) -> Any:
        return np.float64(0 if power < NOTHING // 2 else power * math.log10(2))  # float32 times it is float64


class _Cupy:
    """Of CuPy arrays."""

    def take(self, array: Any) -> Any:
        xp = sys.modules["cupy"]
        sides = [xp.maximum(x.max(), -x.min()) for x in _parts(array)]
        largest = (sides[0] if len(sides) == 1 else xp.maximum(*sides)).astype(float)  # NaN wins
        found = largest > 0
        power = xp.where(found & xp.isfinite(largest), xp.frexp(largest)[1], 0).astype(np.int64)
        self.scale(array, -power)
        return xp.where(largest == 0, NOTHING, power)

    def scale(self, array: Any, power: Any) -> None:
        xp = sys.modules["cupy"]
        power = xp.clip(power, -_MOST, _MOST).astype(np.int32)
        for part in _parts(array):
            xp.ldexp(part, power, out=part)

    def larger(self, x: Any, y: Any) -> Any:
        return sys.modules["cupy"].maximum(x, y)

    def in_tens(self, power: Any) -> Any:
        return sys.modules["cupy"].where(power < NOTHING // 2, 0.0, power * math.log10(2))


class _Torch:
    """Of PyTorch's tensors."""

    def take(self, array: Any) -> Any:
        torch: Any = sys.modules["torch"]
        parts = torch.view_as_real(array) if array.is_complex() else array
        largest = torch.linalg.vector_norm(parts, math.inf).double()  # one reduction, in which NaN wins
        known = (largest > 0) & torch.isfinite(largest)
        power = torch.where(known, torch.frexp(largest).exponent.long(), 0)
        self.scale(array, -power)
        return torch.where(largest == 0, NOTHING, power)

    def scale(self, array: Any, power: Any) -> None:
        # `torch.ldexp` forms the power in the tensor's type, where it may be none. Each half of it is a number of every
        # type, made of its bits.
        torch: Any = sys.modules["torch"]
        parts = torch.view_as_real(array) if array.is_complex() else array
        power = torch.clamp(power, -_MOST, _MOST)
        half = torch.div(power, 2, rounding_mode="floor")
        for each in (half, power - half):
            parts.mul_(((each + 1023) << 52).view(torch.float64))

    def larger(self, x: Any, y: Any) -> Any:
        return sys.modules["torch"].maximum(x, y)

    def in_tens(self, power: Any) -> Any:
        return sys.modules["torch"].where(power < NOTHING // 2, 0.0, power.double() * math.log10(2))


_NUMPY = _Numpy()
_LIBRARIES: dict[str, _Library] = {"NumPy": _NUMPY, "CuPy": _Cupy(), "PyTorch": _Torch()}
