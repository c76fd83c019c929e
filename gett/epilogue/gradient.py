"""Derivatives of an epilogue as epilogues: made from its own expression and the derivatives of the operations.

Owns the walk from the result back to a value. A derivative is an expression of the same operations, so it has
derivatives too. Knows neither arrays nor plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gett.epilogue import ops  # noqa: F401  (gives NumPy's functions their meaning on traced tensors)
from gett.epilogue.expression import Constant, Expression, Extra
from gett.epilogue.operations import CAST, OPERATIONS
from gett.epilogue.traced import Trace, Value, apply
from gett.epilogue.types import TRUTH, kind_of, value_types


@lru_cache(maxsize=256)
def gradient(
    expression: Expression, accumulator: str, extras: tuple[str, ...], value: int, rank: int
) -> Expression | None:
    """The gradient of a value, element by element, of the result's gradient, which is one more argument.

    Args:
        expression: The function.
        accumulator: dtype in which it computes.
        extras: dtype of each of its extras.
        value: Number of the result (0), or of an extra.
        rank: Axes of the result.

    Returns:
        The expression; None where the function does not depend on the value.
    """
    trace = Trace()
    values, types = _copied(trace, expression, accumulator, extras)
    seed = Value(trace, trace.add(Extra(expression.arguments, tuple(range(rank)))))
    found = _pulled(expression, types, values, seed, value)
    return None if found is None else trace.expression(expression.arguments + 1, found._place)


@lru_cache(maxsize=256)
def tangent(
    expression: Expression, accumulator: str, extras: tuple[str, ...], value: int, rank: int
) -> Expression | None:
    """The tangent of the result, of the tangent of a value, which is one more argument and has the value's shape.

    A gradient is linear in the result's gradient, and the gradient of that linear function is the tangent.
    """
    back = gradient(expression, accumulator, extras, value, rank)
    if back is None:
        return None
    given = dict(zip((x for x in expression.extras), extras, strict=True))
    read = tuple(given.get(x, accumulator) for x in back.extras)
    seeds = [i for i, x in enumerate(back.extras, 1) if x.argument == expression.arguments]
    found = gradient(back, accumulator, read, seeds[0], rank) if seeds else None
    if found is None:
        return None
    axes = tuple(range(rank)) if value == 0 else expression.extras[value - 1].axes
    place = expression.arguments
    views = [Extra(place, axes) if x.argument == place + 1 else x for x in found.extras]
    assert all(x.argument <= place for x in views)
    return replace(found, arguments=place + 1, extras=tuple(views))


def batched(expression: Expression, mapped: Sequence[bool], rank: int) -> Expression:
    """The function where some of the arguments have one axis more, the first, as the result has.

    Args:
        expression: The function.
        mapped: For each argument whether it has the axis.
        rank: Axes of the result without it.
    """

    def view(extra: Extra) -> Extra:
        if not mapped[extra.argument]:
            return extra
        rest = tuple(-1 if axis < 0 else axis + 1 for axis in extra.axes)
        return Extra(extra.argument, (0, *[-1] * (rank - len(rest)), *rest))

    return replace(expression, extras=tuple(map(view, expression.extras)))


def _copied(
    trace: Trace, expression: Expression, accumulator: str, extras: Sequence[str]
) -> tuple[list[Value], tuple[str, ...]]:
    """The values of an expression in a trace, and their types."""
    values = [Value(trace, 0)]
    leaves: list[Extra | Constant] = [*expression.extras, *expression.constants]
    values += [Value(trace, trace.add(x)) for x in leaves]
    for step in expression.instructions:
        inputs = [values[i] for i in step.inputs]
        values.append(apply(step.operation, *inputs, dtype=step.dtype))
    return values, value_types(expression, accumulator, extras)


def _pulled(
    expression: Expression, types: Sequence[str], values: Sequence[Value], seed: Value, value: int
) -> Value | None:
    """The gradient of a value in the trace, of the result's, which is `seed`."""
    is_complex = kind_of(types[0]) == "c"
    gradients: dict[int, Any] = {}

    def add(i: int, found: Any) -> None:
        if found is None or types[i] == TRUTH or kind_of(types[i]) in "iu":
            return
        if is_complex and kind_of(types[i]) != "c":
            found = apply("real", found)
        gradients[i] = found if i not in gradients else gradients[i] + found

    add(expression.result, seed)
    first = len(values) - len(expression.instructions)
    for number in range(len(values) - 1, first - 1, -1):
        step, g = expression.instructions[number - first], gradients.get(number)
        if g is None:
            continue
        if step.operation == CAST:
            add(step.inputs[0], g if kind_of(step.dtype) in "fc" else None)
            continue
        derivative = OPERATIONS[step.operation].derivative
        if derivative is None or (step.operation == "imag" and kind_of(types[step.inputs[0]]) != "c"):
            continue
        for i, found in zip(step.inputs, derivative(g, values[number], *(values[i] for i in step.inputs)), strict=True):
            add(i, found)
    return gradients.get(value)
