"""Epilogues on NumPy arrays, in the types that a kernel computes in.

Knows expressions and the operations' NumPy forms; knows neither plans nor tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.epilogue.expression import Expression
from gett.epilogue.operations import CAST, OPERATIONS
from gett.epilogue.special import round_bfloat16
from gett.epilogue.types import TRUTH, common_type, rounds


def evaluate(expression: Expression, types: Sequence[str], d: Any, extras: Sequence[Any]) -> Any:
    """The result for arrays that broadcast against each other.

    Args:
        expression: What to compute.
        types: `gett.epilogue.types.value_types` of it; the first is the accumulator's.
        d: Value 0.
        extras: One array for each of the expression's extras, seen through its index.
    """
    constants = [constant.value for constant in expression.constants]
    values: list[Any] = [as_type(x, t) for x, t in zip([d, *extras, *constants], types, strict=False)]
    with np.errstate(all="ignore"):  # a kernel gives no warnings either
        for step in expression.instructions:
            inputs = [values[i] for i in step.inputs]
            if step.operation == CAST:
                values.append(rounded(inputs[0], step.dtype, types[len(values)]))
                continue
            operation = OPERATIONS[step.operation]
            common = common_type(step.operation, [types[i] for i in step.inputs], types[0])
            given = [x if i < operation.condition else as_type(x, common) for i, x in enumerate(inputs)]
            values.append(as_type(operation.numpy(*given), types[len(values)]))
    return values[expression.result]


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
