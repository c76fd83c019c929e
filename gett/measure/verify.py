"""Is a result right? Compares it, element by element, with the array library's own einsum in double precision.

Owns the error bound. Works on NumPy and CuPy arrays alike; bfloat16, which they lack, lies in their 16-bit integers.
Knows nothing of how the result was computed but the lengths of its sums and the precision of its products.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gett.errors import OptionError

CHUNK_BYTES = 1 << 28  # of the reference at a time; the result may be as large as the memory allows
_TF32_FACTORS = 2.0**-9  # both factors cut to 10 bits of mantissa: at most 2 * 2**-10 of each product


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the worst element is off.

    Attributes:
        ratio: Largest error divided by its bound; where equality was demanded 0 or infinity. NaN counts as infinity.
        exact: Whether equality was demanded.
        differing: How many elements differ, where equality was demanded.
    """

    ratio: float
    exact: bool
    differing: int = 0

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound."""
        return self.ratio <= 1.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The bound `|D - R| <= output |R| + product P + tiny`, P the contraction of the operands' absolute values.

    Attributes:
        output: Unit roundoff of the result's own dtype.
        product: What sums, factors and intermediates may be off, relative to P.
        tiny: Smallest subnormal of the result's dtype: below the normal range results are rounded to a fixed distance.
    """

    output: float
    product: float
    tiny: float


def make_tolerance(lengths: Sequence[int], dtype: str, precision: str | None = None) -> Tolerance:
    """The tolerance for sums of the given lengths (K of each step in turn) with operands and results of `dtype`.

    A sum of K products may be off by `2 sqrt(K) eps` of the sum of their absolute values, since rounding errors of
    independent signs grow with the root of the number of additions (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd edition, section 2.8). The worst case, K, would accept anything once K reaches 1 / eps. 16-bit types
    are summed in float32 by tensor cores, which truncate: that doubles eps. Complex products double it too.
    """
    short = dtype in ("float16", "bfloat16")
    info = np.finfo(np.float32 if dtype == "bfloat16" else np.dtype(dtype))
    # bfloat16 is float32 without its lower half.
    output = 2.0**-8 if dtype == "bfloat16" else float(info.eps) / 2
    tiny = float(info.smallest_subnormal) * (2.0**16 if dtype == "bfloat16" else 1.0)
    twice = 2.0 if dtype.startswith("complex") else 1.0
    summed = 2.0**-23 if short else output
    factors = _TF32_FACTORS * twice if precision == "tf32" else 0.0
    product = sum(2 * math.sqrt(k) * summed * twice + factors for k in lengths) + output * (len(lengths) - 1)
    return Tolerance(output, product, tiny)


def verify(
    subscripts: str,
    operands: Sequence[Any],
    result: Any,
    lengths: Sequence[int],
    xp: ModuleType,
    *,
    dtype: str | None = None,
    precision: str | None = None,
    exact: bool | None = None,
) -> Verdict:
    """Compare `result` with the einsum of the operands in float64 or complex128.

    Args:
        subscripts: The explicit form, a character a mode.
        operands: Arrays of `xp`, as they were given to what is verified.
        result: An array of `xp` of the same dtype.
        lengths: Of the sums, in turn.
        xp: `numpy` or `cupy`.
        dtype: What the elements are; by default what the result says. `"bfloat16"` lies in 16-bit integers.
        precision: Of the products, `"tf32"` or None.
        exact: Whether equality is demanded; by default for integers and booleans. Operands of small integers give it
            in every type, since only the final rounding is left.

    Raises:
        OptionError: The library's einsum does not take so many modes.
    """
    name = dtype or result.dtype.name
    whole = name != "bfloat16" and np.dtype(name).kind in "biu"
    demanded = whole if exact is None else exact
    # Products of many integers outgrow float64's 53 bits; int64 wraps as the result's dtype does, but has no BLAS.
    wide = "complex128" if name.startswith("complex") else "int64" if whole and len(operands) > 2 else "float64"
    tolerance = None if demanded else make_tolerance(lengths, name, precision)
    worst, differing = 0.0, 0
    for parts, piece in _chunks(subscripts, operands, result):
        if piece.size == 0:
            continue
        reference = _einsum(subscripts, [widened(p, name, wide, xp) for p in parts])
        if tolerance is None:
            wanted, got = rounded(reference, name, xp), piece
            if name == "bfloat16":  # as numbers: there are two zeros
                wanted, got = (widened(x, name, "float32", xp) for x in (wanted, got))
            differing += int(xp.count_nonzero(got != wanted))
        else:
            magnitude = _einsum(subscripts, [xp.abs(widened(p, name, wide, xp)) for p in parts])
            worst = max(worst, largest_error(widened(piece, name, wide, xp), reference, magnitude, tolerance, xp))
    return Verdict(math.inf if differing else worst, demanded, differing)


def largest_error(d: Any, reference: Any, magnitude: Any, tolerance: Tolerance, xp: ModuleType) -> float:
    """The largest error of an element divided by its bound; above 1 the result is wrong, NaN is infinite.

    An element whose products are all zero must be exact.
    """
    error = xp.abs(d - reference)
    if bool(xp.isnan(error).any()):
        return math.inf
    bound = tolerance.output * xp.abs(reference) + tolerance.product * magnitude
    bound = bound + xp.where(magnitude == 0, 0.0, tolerance.tiny)
    return float(xp.where(error == 0, 0.0, error / xp.maximum(bound, 1e-300)).max())


def widened(x: Any, name: str, dtype: str, xp: ModuleType) -> Any:
    """The values of an array of type `name` in a wider type; the bits of bfloat16 are the upper half of float32's."""
    if name == "bfloat16":
        x = (x.astype(xp.uint32) << 16).view(xp.float32)
    return x.astype(dtype)


def rounded(values: Any, name: str, xp: ModuleType) -> Any:
    """What an array of type `name` stores for values: rounded to nearest, ties to even; integers wrap."""
    if name == "bool":
        return values != 0
    if name == "bfloat16":
        bits = values.astype(xp.float32).view(xp.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(xp.uint16)
    return values.astype(xp.int64).astype(name) if np.dtype(name).kind in "iu" else values.astype(name)


def poison(d: Any) -> None:
    """Fill with what no contraction gives, so that an element that was never written shows.

    That is NaN; the largest value of an integer type; in bfloat16's 16-bit integers, NaN too.
    """
    if d.dtype.kind in "fc":
        d.fill(math.nan)
    elif d.dtype == np.uint16:
        d.fill(0x7FFF)
    elif d.dtype.kind != "b":
        d.fill(np.iinfo(d.dtype).max)


def _einsum(subscripts: str, operands: Sequence[Any]) -> Any:
    """The array library's einsum by way of opt_einsum, which spells any labels in letters, pair by pair."""
    try:
        return importlib.import_module("opt_einsum").contract(subscripts, *operands, optimize="greedy")
    except ValueError as error:
        raise OptionError(f"the result cannot be verified, since the reference does not take it: {error}") from error


def _chunks(subscripts: str, operands: Sequence[Any], result: Any) -> Iterator[tuple[list[Any], Any]]:
    """The operands and the result cut along the result's longest mode, so that a reference chunk stays small."""
    left, _, output = subscripts.partition("->")
    terms = left.split(",")
    if not output:
        yield list(operands), result
        return
    axis = max(range(len(output)), key=result.shape.__getitem__)
    label, extent = output[axis], result.shape[axis]
    count = max(1, min(extent, -(-result.size * 16 // CHUNK_BYTES)))
    step = max(1, -(-extent // count))
    for start in range(0, extent, step):
        window = slice(start, start + step)

        def cut(term: str, array: Any, window: slice = window) -> Any:
            return array[tuple(window if x == label else slice(None) for x in term)]

        yield [cut(t, o) for t, o in zip(terms, operands, strict=True)], cut(output, result)
