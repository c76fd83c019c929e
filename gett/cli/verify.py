"""Is a result right? Compares it with the array library's own einsum in double precision, element by element.

Knows nothing of how the result was computed but the lengths of its sums and the precision of its products.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gett.cli.problem import Problem
from gett.errors import OptionError

if TYPE_CHECKING:
    from gett.contraction_plan import ContractionPlan

# numpy.einsum's own default keeps intermediates below the largest operand, and takes a network all at once where it
# cannot: hours instead of milliseconds.
GREEDY = ("greedy", 1 << 62)
CHUNK_BYTES = 1 << 28  # of the reference at a time; the result may be as large as the memory allows


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the worst element is off.

    Attributes:
        ratio: Largest error divided by its bound; for integers 0 or infinity. NaN counts as infinity.
        exact: Whether equality was demanded (integers, booleans).
    """

    ratio: float
    exact: bool

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound."""
        return self.ratio <= 1.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The bound `|D - R| <= output |R| + product P + tiny`, P the contraction of the operands' absolute values.

    Attributes:
        output: Rounding of the result's own dtype.
        product: Sum over the steps of `c K eps_acc`, K products being summed in an accumulator of unit roundoff
            eps_acc; tf32 adds its rounding of both factors, an intermediate its own rounding.
        tiny: Smallest subnormal of the result's dtype.
    """

    output: float
    product: float
    tiny: float


def make_tolerance(lengths: Sequence[int], dtype: str, precision: str = "ieee") -> Tolerance:
    """The tolerance for sums of the given lengths (K of each step in turn) with operands and results of `dtype`.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1, gives K eps_acc for any order of
    summation and rounding to nearest. Tensor cores truncate, which doubles it; complex products double it again.
    """
    kind = np.dtype(dtype)
    eps = float(np.finfo(kind).eps) / 2
    accumulator = eps if kind != np.float16 else float(np.finfo(np.float32).eps) / 2
    c = 4.0 if kind.kind == "c" else 2.0
    # tf32 keeps 10 bits of each factor, and hardware may cut the rest off.
    factors = 2 * 2.0**-10 * (2 if kind.kind == "c" else 1) if precision == "tf32" else 0.0
    product = sum(c * k * accumulator + factors for k in lengths) + eps * (len(lengths) - 1)
    return Tolerance(eps, product, float(np.finfo(kind).smallest_subnormal))


def verify(
    problem: Problem,
    operands: Sequence[Any],
    result: Any,
    plan: ContractionPlan,
    xp: ModuleType,
    precision: str | None = None,
) -> Verdict:
    """Compare `result` with `xp.einsum` of the operands in float64 or complex128.

    Args:
        problem: What was computed.
        operands: Arrays of `xp`, as they were given to the plan.
        result: An array of `xp` of the problem's dtype.
        plan: Gives the lengths of the sums.
        xp: `numpy` or `cupy`.
        precision: As given to the plan.

    Raises:
        OptionError: The library's einsum does not take so many modes.
    """
    exact = np.dtype(problem.dtype).kind in "biu"
    lengths = [step.gemm.extent_k for step in plan.steps] or [1]
    tolerance = None if exact else make_tolerance(lengths, problem.dtype, precision or "ieee")
    worst = 0.0
    for parts, piece in _chunks(problem, operands, result):
        if piece.size == 0:
            continue
        # Products of many integers outgrow float64's 53 bits; int64 wraps as the result's dtype does, but has no BLAS.
        whole = xp.int64 if exact and len(parts) > 2 else xp.float64
        wide = xp.complex128 if piece.dtype.kind == "c" else whole
        reference = _einsum(problem, [p.astype(wide) for p in parts])
        if tolerance is None:
            expected = reference != 0 if piece.dtype.kind == "b" else reference.astype(xp.int64).astype(piece.dtype)
            worst = max(worst, 0.0 if bool((expected == piece).all()) else math.inf)
            continue
        size = _einsum(problem, [abs(p.astype(wide)) for p in parts])
        bound = tolerance.output * abs(reference) + tolerance.product * size + tolerance.tiny
        ratio = float((abs(piece.astype(wide) - reference) / bound).max())
        worst = max(worst, math.inf if math.isnan(ratio) else ratio)
    return Verdict(worst, exact)


def _einsum(problem: Problem, operands: Sequence[Any]) -> Any:
    """The array library's einsum by way of opt_einsum, which spells any labels in letters, pair by pair."""
    try:
        return importlib.import_module("opt_einsum").contract(problem.subscripts, *operands, optimize="greedy")
    except ValueError as error:
        raise OptionError(f"the result cannot be verified, since the reference does not take it: {error}") from error


def _chunks(problem: Problem, operands: Sequence[Any], result: Any) -> list[tuple[list[Any], Any]]:
    """The operands and the result cut along the result's longest mode, so that a reference chunk stays small."""
    if not problem.output:
        return [(list(operands), result)]
    label = max(problem.output, key=problem.extents.__getitem__)
    extent = problem.extents[label]
    count = max(1, min(extent, -(-result.size * 16 // CHUNK_BYTES)))
    step = max(1, -(-extent // count))
    chunks = []
    for start in range(0, extent, step):
        window = slice(start, start + step)

        def cut(term: str, array: Any, window: slice = window) -> Any:
            return array[tuple(window if x == label else slice(None) for x in term)]

        parts = [cut(t, o) for t, o in zip(problem.inputs, operands, strict=True)]
        chunks.append((parts, cut(problem.output, result)))
    return chunks
