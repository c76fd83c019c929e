"""`constants=` and `remember=` of `plan`: what they mean, and which options they exclude.

Owns the checks. The plans are `gett.reuse`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gett.arrays.held import bring
from gett.arrays.kinds import ArrayKind
from gett.console.formatting import brief
from gett.errors import OptionError
from gett.network.optimize import asks_autotune
from gett.network.request import PlanRequest
from gett.plans.contraction_plan import ContractionPlan

Make = Callable[[ArrayKind, PlanRequest], ContractionPlan]
"""Makes the plan of a request, for arrays of a kind."""


def with_constants(operands: Sequence[Any], places: Sequence[int], is_pair: Callable[[Any, str], Any]) -> list[Any]:
    """The operands, constants in the library and on the device of the others.

    Args:
        operands: Arrays and pairs.
        places: Of the constants.
        is_pair: Whether something that has a name is a pair, or None.

    Raises:
        OptionError: A constant is no array.
        DTypeError: The others' library has no array of one.
    """
    arrays = [x for i, x in enumerate(operands) if i not in places and hasattr(x, "dtype")]
    found = list(operands)
    for i in places:
        if is_pair(found[i], f"operand {i}") is not None:
            raise OptionError(f"constants= names operand {i}, so it must be an array, not {brief(found[i])}")
        found[i] = bring(found[i], arrays[0] if arrays else None)
    return found


def maker(operands: Sequence[Any], constants: Sequence[int] | None, remember: Any, optimize: Any) -> Make:
    """What makes a plan that holds something between calls.

    Raises:
        OptionError: Options exclude each other.
    """
    if remember is not True and remember is not False:
        raise OptionError(f"remember={brief(remember)}; it must be True or False")
    option = "remember=True" if constants is None else "constants="
    if constants is not None and remember:
        raise OptionError("constants= holds operands and remember= intermediates: give one of them")
    if asks_autotune(optimize):
        raise OptionError(f"optimize='autotune' measures kernels, {option} finds a path: call gett.autotune first")

    def make(kind: ArrayKind, request: PlanRequest) -> ContractionPlan:
        from gett.reuse.making import plan_holding  # late: few plans hold anything

        return plan_holding(kind, request, None if constants is None else {i: operands[i] for i in constants})

    return make
