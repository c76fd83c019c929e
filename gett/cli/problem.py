"""What the user asked for on the command line: subscripts with extents and a dtype, and random data for them.

Knows neither plans nor devices.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.errors import DTypeError, OptionError, SubscriptsError
from gett.ir.tensors import check_supported, parse_dtype

MOST = (1 << 63) - 1  # of an extent, and of the bytes of a tensor


@dataclass(frozen=True, slots=True)
class Problem:
    """An einsum with extents.

    Attributes:
        inputs: Labels of each operand.
        output: Labels of the result.
        extents: Extent of each label.
        dtype: Name of the dtype of all operands, NumPy's or `"bfloat16"`.
    """

    inputs: tuple[str, ...]
    output: str
    extents: dict[str, int]
    dtype: str

    @property
    def subscripts(self) -> str:
        """The explicit form, without white space."""
        return ",".join(self.inputs) + "->" + self.output

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each operand."""
        return tuple(self.shape(term) for term in self.inputs)

    def shape(self, term: str) -> tuple[int, ...]:
        """Extents of the labels of one term."""
        return tuple(self.extents[label] for label in term)

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result together."""
        shapes = (*self.shapes, self.shape(self.output))
        return sum(map(math.prod, shapes)) * parse_dtype(self.dtype).itemsize


def parse_problem(subscripts: str, extents: str, dtype: str) -> Problem:
    """Build a problem from the command line's texts.

    Raises:
        SubscriptsError: An ellipsis, whose modes have no names to give extents to, or a malformed string.
        OptionError: An extent is missing, superfluous, negative or no number, or a tensor is larger than memory can be.
        DTypeError: There is no such dtype.
    """
    inputs, output = _split(subscripts)
    labels = sorted(set("".join(inputs)))
    try:
        found = parse_dtype(dtype)
    except (DTypeError, ValueError, SyntaxError):
        raise DTypeError(f"--dtype: there is no dtype named '{dtype}'") from None
    check_supported(found, f"--dtype '{dtype}'")
    problem = Problem(inputs, output, _parse_extents(extents, labels), found.name)
    if problem.bytes > MOST:
        raise OptionError(f"--extents: the tensors have {float(problem.bytes):.3g} bytes; the most is 2**63 - 1")
    return problem


def _split(subscripts: str) -> tuple[tuple[str, ...], str]:
    text = "".join(subscripts.split())
    if "." in text:
        raise SubscriptsError(f"'{subscripts}': name the modes here instead of an ellipsis, so that they have extents")
    left, arrow, output = text.partition("->")
    inputs = tuple(left.split(","))
    for term in (*inputs, output):
        bad = next((x for x in term if not x.isalpha()), None)
        if bad is not None:
            raise SubscriptsError(f"'{subscripts}': '{bad}' is not a mode label")
    counts = Counter("".join(inputs))
    if not arrow:
        return inputs, "".join(sorted(x for x, n in counts.items() if n == 1))
    for label, n in Counter(output).items():
        if label not in counts:
            raise SubscriptsError(f"'{subscripts}': mode '{label}' of the result is in no operand")
        if n > 1:
            raise SubscriptsError(f"'{subscripts}': mode '{label}' occurs {n} times in the result")
    return inputs, output


def _parse_extents(text: str, labels: list[str]) -> dict[str, int]:
    extents: dict[str, int] = {}
    rest: int | None = None
    for part in filter(None, "".join(text.split()).split(",")):
        label, equals, digits = part.rpartition("=")
        if not digits.isdecimal() or (equals and not label):
            raise OptionError(f"--extents: '{part}' is not of the form a=24 (or a bare number for all other modes)")
        if len(digits) > len(str(MOST)) or int(digits) > MOST:
            raise OptionError(f"--extents: '{part[:30]}' is more than 2**63 - 1")
        if not equals:
            rest = int(digits)
        elif label not in labels:
            raise OptionError(f"--extents: the subscripts have no mode '{label}'; they have {', '.join(labels)}")
        elif extents.setdefault(label, int(digits)) != int(digits):
            raise OptionError(f"--extents: mode '{label}' has two extents, {extents[label]} and {digits}")
    missing = [x for x in labels if x not in extents]
    if missing and rest is None:
        raise OptionError(f"--extents: no extent for {_modes(missing)} (add {missing[0]}=..., or one bare number)")
    return {x: extents.get(x, rest if rest is not None else 0) for x in labels}


def _modes(labels: list[str]) -> str:
    return ("mode '" if len(labels) == 1 else "modes '") + "', '".join(labels) + "'"


def random_operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Random data: uniform in [-1, 1] (both parts of a complex), small integers, or booleans."""
    if dtype == "bfloat16":
        raise DTypeError("--dtype: NumPy has no bfloat16 of its own to make data of; explain plans it, for GPUs")
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind in "iu":
        # Small enough that a float64 sum of a few thousand million products of two operands is exact.
        return rng.integers(-4 if kind == "i" else 0, 5, shape).astype(dtype)
    if kind not in "fc":
        raise DTypeError(f"--dtype: tensors of dtype '{dtype}' cannot be contracted")
    values = np.empty(shape, dtype)
    single = np.float64 if values.real.dtype == np.float64 else np.float32
    for part in (values.real, values.imag) if kind == "c" else (values,):
        part[...] = rng.random(shape, dtype=single) * 2 - 1
    return values
