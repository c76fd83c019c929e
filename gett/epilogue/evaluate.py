"""Epilogues on NumPy arrays, in the types that a kernel computes in.

Knows expressions and the operations' NumPy forms; knows neither plans nor tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gett.epilogue.expression import Expression
from gett.epilogue.operations import CAST, OPERATIONS
from gett.epilogue.special import round_bfloat16
from gett.epilogue.types import TRUTH, common_type, rounds


class Evaluator:
    """An expression ready to be computed many times.

    Args:
        expression: What to compute.
        types: `gett.epilogue.types.value_types` of it; the first is the accumulator's.
    """

    def __init__(self, expression: Expression, types: Sequence[str]) -> None:
        first = 1 + len(expression.extras)
        self._inputs = [np.dtype(t) for t in types[:first]]
        self._constants = [as_type(k.value, t) for k, t in zip(expression.constants, types[first:], strict=False)]
        self._result = expression.result
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...], list[str | None], np.dtype[Any], list[int]]] = []
        numbers = range(first + len(self._constants), len(types))
        last = {i: n for n, step in zip(numbers, expression.instructions, strict=True) for i in step.inputs}
        for n, step in zip(numbers, expression.instructions, strict=True):
            given: list[str | None] = [None] * len(step.inputs)
            if step.operation == CAST:
                function: Callable[..., Any] = partial(rounded, dtype=step.dtype, kept=types[n])
            else:
                operation = OPERATIONS[step.operation]
                function = operation.numpy
                common = common_type(step.operation, [types[i] for i in step.inputs], types[0])
                for k in range(operation.condition, len(given)):
                    given[k] = None if types[step.inputs[k]] == common else common
            dead = [i for i in {*step.inputs} if last[i] == n and i != self._result]
            self._steps.append((function, step.inputs, given, np.dtype(types[n]), dead))

    def __call__(self, d: Any, extras: Sequence[Any]) -> Any:
        """The result for arrays that broadcast against each other.

        Args:
            d: Value 0.
            extras: One array for each of the expression's extras, seen through its index.
        """
        given = zip([d, *extras], self._inputs, strict=True)
        values: list[Any] = [x if x.dtype == t else as_type(x, t.name) for x, t in given]
        values += self._constants
        with np.errstate(all="ignore"):  # a kernel gives no warnings either
            for function, inputs, targets, dtype, dead in self._steps:
                operands = [
                    values[i] if t is None else as_type(values[i], t) for i, t in zip(inputs, targets, strict=True)
                ]
                found = function(*operands)
                values.append(found if found.dtype == dtype else as_type(found, dtype.name))
                for i in dead:  # so that its memory serves the next value
                    values[i] = None
        return values[self._result]


def as_type(x: Any, dtype: str) -> Any:
    """An array or a number in another type; truths are what is not 0."""
    found = np.asarray(x)
    if dtype == TRUTH and found.dtype != bool:
        return np.not_equal(found, 0)
    return found.astype(dtype, copy=False)


def rounded(x: Any, dtype: str, kept: str) -> Any:
    """Values as another dtype holds them, in the type `kept`."""
    if not rounds(kept, dtype):
        return as_type(x, kept)
    if dtype == "bfloat16":
        return as_type(round_bfloat16(as_type(x, "float32")), kept)
    return as_type(as_type(x, dtype), kept)
