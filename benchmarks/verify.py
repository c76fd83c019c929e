"""Is gett's result right? An exact check on integers and a component-wise bound on the timed data.

Owns what is run before a result is compared; the comparison is `gett.measure.verify`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.cases import Case, ElementType
from gett.measure.verify import Verdict, poison, verify

Engine = Callable[[Any, Any, Any], object]  # engine(a, b, out)


def check_bound(case: Case, element: ElementType, engine: Engine, a: Any, b: Any, d: Any, xp: Any, tf32: bool) -> float:
    """Run the engine on poisoned `d` and return the largest error as a share of its bound; above 1 it is wrong."""
    return _verify(case, element, engine, (a, b, d), xp, "tf32" if tf32 else None, exact=False).ratio


def check_exact(case: Case, element: ElementType, engine: Engine, a: Any, b: Any, d: Any, xp: Any) -> int:
    """Run the engine on operands of small integers and count the elements of D that differ from the exact result.

    Products and sums of such operands are exact in every type that accumulates in 24 bits or more, so only the final
    rounding remains, and that is the reference's too. `a` and `b` must hold integers of magnitude 2 or less.
    """
    return _verify(case, element, engine, (a, b, d), xp, None, exact=True).differing


def _verify(
    case: Case,
    element: ElementType,
    engine: Engine,
    tensors: tuple[Any, Any, Any],
    xp: Any,
    precision: str | None,
    *,
    exact: bool,
) -> Verdict:
    poison(tensors[2].reshape(-1))
    engine(*tensors)
    fused = case.fused()  # the tensors are C-contiguous: the reshaped ones are views
    a, b, d = (x.reshape(s) for x, s in zip(tensors, fused.shapes, strict=True))
    return verify(fused.einsum, (a, b), d, [case.bmnk[3]], xp, dtype=element.name, precision=precision, exact=exact)
