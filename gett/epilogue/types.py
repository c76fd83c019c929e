"""Which type each value of an epilogue has, from the accumulator's type and those of the tensors that it reads.

A value is a truth, or a number of the accumulator's type; beside a complex accumulator a value can also be real. Owns
what may be combined. Knows neither tracing nor texts of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gett.epilogue.expression import Constant, Expression
from gett.epilogue.operations import CAST, OPERATIONS
from gett.errors import EpilogueError

TRUTH = "bool"
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # from narrow to wide
_REAL = {"complex64": "float32", "complex128": "float64"}


def kind_of(dtype: str) -> str:
    """The kind that `Operation` knows a type by: `b`, `i`, `u`, `f` or `c`."""
    return "f" if dtype == "bfloat16" else np.dtype(dtype).kind


def real_type(dtype: str) -> str:
    """The type of a complex type's parts; any other type itself."""
    return _REAL.get(dtype, dtype)


def extra_type(dtype: str, accumulator: str, name: str) -> str:
    """The type in which a tensor that the function reads takes part.

    Raises:
        EpilogueError: Its kind is above the accumulator's; integers wrap around in each other.
    """
    if dtype == TRUTH:
        return TRUTH
    given, known = _KINDS[kind_of(dtype)], _KINDS[kind_of(accumulator)]
    if given > known:
        raise EpilogueError(
            f"{name} has dtype {dtype}, but the epilogue computes in {accumulator}: truths, integers, real and complex "
            "numbers may stand beside their own kind and those behind it"
        )
    return accumulator if kind_of(dtype) == "c" else real_type(accumulator)


def constant_type(constant: Constant, accumulator: str) -> str:
    """The type that a number in the function takes: as in NumPy, the tensors' where its kind allows.

    Raises:
        EpilogueError: The accumulator cannot hold it.
    """
    kind = kind_of(accumulator)
    if constant.kind == "b":
        return TRUTH
    if constant.kind == "c" and kind != "c":
        raise EpilogueError(f"epilogue: the constant {constant.value!r} is complex, but it computes in {accumulator}")
    if kind == "b" or (constant.kind == "f" and kind in "iu"):
        raise EpilogueError(f"epilogue: the constant {constant.value!r} is no {accumulator}, in which it computes")
    if kind in "iu":
        limits = np.iinfo(accumulator)
        if not limits.min <= constant.value <= limits.max:
            raise EpilogueError(f"epilogue: the constant {constant.value!r} is beyond the range of {accumulator}")
    return accumulator if constant.kind == "c" else real_type(accumulator)


def value_types(expression: Expression, accumulator: str, extras: Sequence[str]) -> tuple[str, ...]:
    """The type of each value.

    Args:
        expression: What is computed.
        accumulator: dtype of the result as it comes, and in which all is computed.
        extras: dtype of each of the expression's extras.

    Raises:
        EpilogueError: An operation is not defined for its operands; the text names it.
    """
    types = [accumulator]
    for extra, dtype in zip(expression.extras, extras, strict=True):
        types.append(extra_type(dtype, accumulator, f"epilogue_args[{extra.argument}]"))
    types += [constant_type(constant, accumulator) for constant in expression.constants]
    for step in expression.instructions:
        inputs = [types[i] for i in step.inputs]
        if step.operation == CAST:
            types.append(_cast_type(inputs[0], step.dtype, accumulator))
            continue
        common = common_type(step.operation, inputs, accumulator)
        result = OPERATIONS[step.operation].result
        types.append(TRUTH if result == "truth" else real_type(common) if result == "real" else common)
    return tuple(types)


def common_type(name: str, inputs: Sequence[str], accumulator: str) -> str:
    """The type that the operands of an operation are brought to; a truth counts 0 or 1 where numbers are needed.

    Raises:
        EpilogueError: The operation is not defined for it.
    """
    operation = OPERATIONS[name]
    ranks = [TRUTH, real_type(accumulator), accumulator]
    common = max(inputs[operation.condition :], key=ranks.index)
    if common == TRUTH and operation.form("b") is None:
        common = real_type(accumulator)
    if operation.form(kind_of(common)) is None:
        known = " or ".join(sorted({_WORDS[kind] for kinds in operation.cpp for kind in kinds}))
        raise EpilogueError(f"epilogue: {name} is not defined for {common}; it takes {known}")
    return common


_WORDS = {"b": "truths", "i": "integers", "u": "integers", "f": "real numbers", "c": "complex numbers"}


def _cast_type(source: str, target: str, accumulator: str) -> str:
    """The type of a value after rounding: it stays in the accumulator's type, but a truth is one.

    Raises:
        EpilogueError: The accumulator's type cannot hold what the cast gives.
    """
    if target == TRUTH:
        return TRUTH
    kind, given = kind_of(target), kind_of(source)
    if source == TRUTH:
        source = real_type(accumulator)
        given = kind_of(source)
    if given in "iu" and kind in "fc":
        raise EpilogueError(f"epilogue: cast to {target} leaves {accumulator}, in which the epilogue computes")
    if given == "c" and kind != "c":
        raise EpilogueError(f"epilogue: cast of a complex value to {target}; take its real part, its imag or its abs")
    if kind == "c" and kind_of(accumulator) != "c":
        raise EpilogueError(f"epilogue: cast to {target}, but the epilogue computes in {accumulator}")
    return accumulator if kind == "c" else source


def rounds(kept: str, target: str) -> bool:
    """Whether a value of one type changes when it is rounded to another: a wider one holds it as it is."""
    return target == "bfloat16" or not np.can_cast(kept, target, "safe")
