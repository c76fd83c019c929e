"""How far a floating-point contraction may be from the exact one, element by element.

`|D - R| <= eps_out |R| + c K eps_acc (|A| |B|)`, where R is the contraction of the given (already rounded) operands in
higher precision, `|A| |B|` the same contraction of absolute values and K the number of products in a sum. The first
term is the rounding of the result to its type, the second what rounding of products and sums can add up to: at most K
additions, each off by `eps_acc` of a partial sum that `|A| |B|` bounds (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.1). A bound on a norm of all elements would not see a few wrong ones among many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Bound:
    """Constants of the bound.

    Attributes:
        eps_out: Unit roundoff of D's type.
        eps_acc: Relative error of one addition in the accumulator.
        eps_in: Relative error of one product because its factors are rounded once more; 0 where they are exact.
        c: Safety factor: complex products add twice as many terms, and split sums a few more.
    """

    eps_out: float
    eps_acc: float
    eps_in: float = 0.0
    c: float = 1.0


# Tensor cores add with truncation, hence twice the roundoff of float32 for float16 and tf32 (KB: 2**-23). TF32 keeps 10
# bits behind the point, so each factor is off by 2**-11, a product by 2**-10 and a little.
BOUNDS = {
    ("float16", "ieee"): Bound(2.0**-11, 2.0**-23, c=2.0),
    ("float32", "ieee"): Bound(2.0**-24, 2.0**-24, c=2.0),
    ("float32", "tf32"): Bound(2.0**-24, 2.0**-23, 2.0**-10 * 1.01, 2.0),
    ("float64", "ieee"): Bound(2.0**-53, 2.0**-53, c=2.0),
    ("complex64", "ieee"): Bound(2.0**-24, 2.0**-24, c=4.0),
    ("complex128", "ieee"): Bound(2.0**-53, 2.0**-53, c=4.0),
}


def allowed_error(reference: Any, magnitude: Any, depth: int, dtype: str, precision: str = "ieee") -> Any:
    """The bound for each element.

    Args:
        reference: R.
        magnitude: `|A| |B|` (complex: of moduli).
        depth: K.
        dtype: Type of operands and result.
        precision: How products are formed.
    """
    b = BOUNDS[dtype, precision]
    # Results below the normal range are rounded to a fixed distance.
    tiny = np.finfo(dtype).smallest_subnormal
    return b.eps_out * np.abs(reference) + (b.c * depth * b.eps_acc + b.eps_in) * magnitude + float(tiny)


def assert_within(got: Any, reference: Any, magnitude: Any, depth: int, dtype: str, precision: str = "ieee") -> float:
    """Check every element; returns the largest error as a share of what is allowed."""
    error = np.abs(np.asarray(got, reference.dtype) - reference)
    share = error / allowed_error(reference, magnitude, depth, dtype, precision)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(share), np.inf, share)), share.shape) if share.size else ()
    assert not share.size or share[worst] <= 1, (
        f"element {worst}: {np.asarray(got)[worst]} instead of {reference[worst]}, "
        f"{share[worst]:.3g} times the allowed error; {np.count_nonzero(~(share <= 1))} of {share.size} are wrong"
    )
    return float(share.max(initial=0.0))
