"""Is gett's result right? An exact check on integers and a component-wise bound on the timed data.

Works on NumPy and CuPy arrays alike; bfloat16 lies in their 16-bit integers. The reference is a transposed matrix
product in a wider type, made by the array library alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.cases import Case, ElementType
from gett.baselines.ttgt import Ttgt

Engine = Callable[[Any, Any, Any], object]  # engine(a, b, out)

_CHUNK = 1 << 24  # elements compared at a time: bounds the temporaries of a comparison
_TF32_INPUT = 2.0**-9  # both operands cut to 10 bits of mantissa: at most 2 * 2**-10 of each product


def widened(x: Any, element: ElementType, dtype: str, xp: Any) -> Any:
    """The values of an array in a wider type; the bits of bfloat16 are the upper half of float32's."""
    if element.name == "bfloat16":
        x = (x.astype(xp.uint32) << 16).view(xp.float32)
    return x.astype(dtype)


def rounded(values: Any, element: ElementType, xp: Any) -> Any:
    """What is stored for values: rounded to nearest, ties to even."""
    if element.name != "bfloat16":
        return values.astype(element.name)
    bits = values.astype(xp.float32).view(xp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(xp.uint16)


def poison(d: Any) -> None:
    """Fill `d` with NaN, so that an element that is never written shows; all bits but the sign are one in bfloat16."""
    d.fill(0x7FFF if d.dtype.kind == "u" else math.nan)


def reference(case: Case, a: Any, b: Any, xp: Any, dtype: str) -> Any:
    """The contraction of C-contiguous `a` and `b`, formed in `dtype`; D's shape, C order."""
    wide_a, wide_b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    product = Ttgt(case.einsum, wide_a, wide_b, xp)
    return product(wide_a, wide_b, xp.empty(product.shape, dtype))


def error_over_bound(
    d: Any, exact: Any, magnitude: Any, element: ElementType, depth: int, tf32: bool, xp: Any
) -> float:
    """The largest `|D - R| / (eps_out |R| + c (|A| |B|) + tiny)` over all elements; above 1 the result is wrong.

    `tiny` is the smallest subnormal number of D's dtype: below the normal range results are rounded to a fixed
    distance.

    `c` is `2 sqrt(K) eps_acc`: rounding errors of independent signs grow with the root of the number of additions. The
    worst case, K, would accept anything once K reaches 10**5. NaN in D counts as infinity.

    Args:
        d: The result, C-contiguous.
        exact: The reference R, of D's shape.
        magnitude: `|A| |B|` summed over k, of D's shape.
        element: The dtype of D.
        depth: K, the number of products summed.
        tf32: Whether the operands may be rounded to TF32.
        xp: The array module.
    """
    factor = 2 * math.sqrt(depth) * element.eps_acc * (element.flops / 2)
    factor += _TF32_INPUT if tf32 else 0.0
    if element.name == "bfloat16":  # float32's without its lower half
        tiny = float(numpy.finfo("float32").smallest_subnormal) * 2**16
    else:
        tiny = float(numpy.finfo(element.name).smallest_subnormal)
    flat, r, s = d.reshape(-1), exact.reshape(-1), magnitude.reshape(-1)
    worst = 0.0
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        error = xp.abs(widened(flat[part], element, r.dtype, xp) - r[part])
        products = s[part]
        bound = element.eps_out * xp.abs(r[part]) + factor * products + xp.where(products == 0, 0.0, tiny)
        if bool(xp.isnan(error).any()):
            return math.inf
        # An element whose products are all zero has bound 0 and must be exact.
        ratio = xp.where(error == 0, 0.0, error / xp.maximum(bound, 1e-300))
        worst = max(worst, float(ratio.max()))
    return worst


def check_bound(case: Case, element: ElementType, engine: Engine, a: Any, b: Any, d: Any, xp: Any, tf32: bool) -> float:
    """Run the engine on poisoned `d` and return `error_over_bound`."""
    poison(d)
    engine(a, b, d)
    exact = reference(case, *(widened(x, element, element.wide, xp) for x in (a, b)), xp, element.wide)
    sizes = (xp.abs(widened(x, element, element.wide, xp)) for x in (a, b))
    magnitude = reference(case, *sizes, xp, "float64")
    return error_over_bound(d, exact, magnitude, element, case.bmnk[3], tf32, xp)


def check_exact(case: Case, element: ElementType, engine: Engine, a: Any, b: Any, d: Any, xp: Any) -> int:
    """Run the engine on operands of small integers and count the elements of D that differ from the exact result.

    Products and sums of such operands are exact in every type that accumulates in 24 bits or more, so only the final
    rounding remains, and that is the reference's too. `a` and `b` must hold integers of magnitude 2 or less.
    """
    poison(d)
    engine(a, b, d)
    exact = reference(case, *(widened(x, element, element.wide, xp) for x in (a, b)), xp, element.wide)
    wanted = rounded(exact, element, xp)
    if element.name == "bfloat16":  # as numbers: there are two zeros
        d, wanted = (widened(x, element, "float32", xp) for x in (d, wanted))
    return int(xp.count_nonzero(d != wanted))
