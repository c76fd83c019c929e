"""What a dtype means for the NumPy executor: where products are formed, how results are finished.

Owns exact integer products through float64 BLAS. Knows neither plans nor views.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.cpu.views import Array
from gett.errors import DTypeError, OptionError

LIMB_BITS = 16
#: float64 holds sums of this many products of two 16-bit limbs exactly: 2**20 * (2**16 - 1)**2 < 2**53.
EXACT_K = 1 << 20

# GFLOP/s of a large product on one ordinary core; only ratios matter, for choosing between routes.
_RATES = {"f4": 120.0, "f8": 60.0, "c8": 120.0, "c16": 60.0}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How products of one compute dtype are formed.

    Attributes:
        compute: The contraction's dtype.
        work: dtype of packed tiles and accumulators.
        finish: dtype in which alpha, beta and C enter.
        limbs: 16-bit pieces an integer is cut into; 0 for what BLAS multiplies itself.
        blas: Whether arrays of dtype `work` go to BLAS as they are and the result is final.
    """

    compute: np.dtype[Any]
    work: np.dtype[Any]
    finish: np.dtype[Any]
    limbs: int
    blas: bool

    @property
    def rate(self) -> float:
        """Elementary products per nanosecond at best, for the cost model."""
        if self.limbs:
            return _RATES["f8"] / 2 / (self.limbs * (self.limbs + 1) // 2)
        flops = 8 if self.work.kind == "c" else 2
        return _RATES.get(self.work.str[1:], 1.0) / flops

    @property
    def tile_bytes(self) -> int:
        """Scratch per element of a packed tile, the limbs included."""
        return int(self.work.itemsize) + 8 * (self.limbs + 2 if self.limbs else 0)


def make_arithmetic(dtype: str) -> Arithmetic:
    """The arithmetic of a contraction's dtype.

    Raises:
        DTypeError: NumPy has no arithmetic for it (`bfloat16`, objects, strings).
    """
    if dtype == "bfloat16":
        raise DTypeError("this executor has no bfloat16: it is computed in float32, on copies")
    compute = np.dtype(dtype)
    if compute.kind == "b":
        # The sum of ones and zeros in float32 is positive exactly where one product is true.
        return Arithmetic(compute, np.dtype("f4"), compute, 0, False)
    if compute.kind in "iu":
        return Arithmetic(compute, compute, compute, max(1, compute.itemsize * 8 // LIMB_BITS), False)
    if compute == np.float16:
        return Arithmetic(compute, np.dtype("f4"), np.dtype("f4"), 0, False)
    if compute.kind in "fc":
        return Arithmetic(compute, compute, compute, 0, compute.str[1:] in _RATES)
    raise DTypeError(f"dtype {compute} cannot be contracted: it is neither boolean, integer, real nor complex")


def multiply(arithmetic: Arithmetic, a: Array, b: Array, out: Array) -> None:
    """`out = a @ b` for stacks of matrices of dtype `work`; integers wrap around as NumPy's do."""
    m, k, n = *a.shape[-2:], b.shape[-1]
    if not arithmetic.limbs or min(m, n, k) < 8:
        np.matmul(a, b, out=out)
        return
    assert k <= EXACT_K, "a tile's K must keep limb products exact in float64"
    a_limbs = _split(a, arithmetic.limbs)
    b_limbs = _split(b, arithmetic.limbs)
    # Limb products at or above the word's own size vanish in the wrap-around.
    for i, x in enumerate(a_limbs):
        for j, y in enumerate(b_limbs[: arithmetic.limbs - i]):
            # Through int64: a float64 out of a narrower integer's range would not wrap.
            part = np.matmul(x, y).astype(np.int64)
            part <<= LIMB_BITS * (i + j)
            if i == j == 0:
                np.copyto(out, part, casting="unsafe")
            else:
                np.add(out, part.astype(out.dtype), out=out)


def _split(x: Array, limbs: int) -> list[Array]:
    """The limbs of each element, lowest first, as float64; their sum is congruent to `x` modulo its word."""
    if limbs == 1:
        return [x.astype(np.float64)]
    mask, step = x.dtype.type((1 << LIMB_BITS) - 1), x.dtype.type(LIMB_BITS)
    return [((x >> (step * x.dtype.type(i))) & mask).astype(np.float64) for i in range(limbs)]


def finish(arithmetic: Arithmetic, acc: Array, alpha: Any, c: Array | None, beta: Any) -> Array:
    """`alpha * acc + beta * c` for one tile; may reuse `acc`. `c` may have more than acc's extent-1 dimensions."""
    if acc.dtype != arithmetic.finish:
        acc = acc.astype(arithmetic.finish)
    if alpha is not None:
        acc = np.multiply(acc, alpha, out=acc)
    if c is None:
        return acc
    wide = np.result_type(acc.dtype, c.dtype)
    added = c if beta is None else np.multiply(c, beta, dtype=wide, casting="unsafe")
    reuse = acc if acc.dtype == wide and acc.shape == c.shape else None
    result: Array = np.add(acc, added, out=reuse)
    return result


def factor(arithmetic: Arithmetic, value: Any, name: str, times: int = 1) -> Any:
    """A scalar of the finishing dtype, None where it is 1.

    Raises:
        OptionError: The value does not fit the dtype's kind (a fraction for integers, a complex number for reals).
    """
    if value is None or (isinstance(value, int) and value == 1 and times == 1):
        return None
    kind = arithmetic.finish.kind
    if kind == "b":
        return None if bool(value) else np.False_
    value = value.item() if isinstance(value, np.generic | np.ndarray) else value
    if kind != "c" and isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        if value.imag:
            raise OptionError(f"{name}={value} is complex, but the contraction's dtype is {arithmetic.compute}")
        value = value.real
    if kind in "iu":
        if int(value) != value:
            raise OptionError(f"{name}={value} is no integer, but the contraction's dtype is {arithmetic.compute}")
        word = 1 << (8 * arithmetic.finish.itemsize)
        return None if value * times == 1 else np.array(int(value) * times % word, "u8").astype(arithmetic.finish)[()]
    return None if value * times == 1 else arithmetic.finish.type(value * times)
