"""Epilogues as C++: a functor whose statements are the expression's values.

Owns the text. Types' names are the caller's; `GETT_DEVICE` and `gett::convert` are those of `kernels/common.cuh`.
Knows neither kernels nor where the values lie.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from gett.epilogue.expression import Constant, Expression
from gett.epilogue.operations import CAST, OPERATIONS
from gett.epilogue.types import TRUTH, common_type, kind_of, real_type, rounds

Spell = Callable[[str], str]


def print_functor(expression: Expression, types: Sequence[str], spell: Spell, name: str = "EpilogueOp") -> str:
    """C++ text of `struct name` with a static member `apply(d, x0, x1, ...)`, after the helpers that it calls.

    Args:
        expression: What to compute.
        types: `gett.epilogue.types.value_types` of it. Arguments and the result have these types, a truth is a `bool`.
        spell: From a dtype to its C++ name.
        name: Of the struct.
    """

    def cpp(dtype: str) -> str:
        return "bool" if dtype == TRUTH else spell(dtype)

    names = expression.names
    given = 1 + len(expression.extras)
    lines = []
    for i, constant in enumerate(expression.constants, given):
        lines.append(f"const {cpp(types[i])} {names[i]} = {_literal(constant, types[i], cpp)};")
    helpers: dict[str, None] = {}
    for i, step in enumerate(expression.instructions, given + len(expression.constants)):
        inputs = [types[j] for j in step.inputs]
        operands = [names[j] for j in step.inputs]
        if step.operation == CAST:
            text = _cast(operands[0], inputs[0], step.dtype, types[i], cpp)
        else:
            operation = OPERATIONS[step.operation]
            common = common_type(step.operation, inputs, types[0])
            operands = [
                x if n < operation.condition else _converted(x, t, common, cpp)
                for n, (x, t) in enumerate(zip(operands, inputs, strict=True))
            ]
            form = operation.form(kind_of(common))
            assert form is not None
            if kind_of(common) == "c":
                helpers[operation.helper] = None
            text = _fill(form, operands, common, cpp)
        lines.append(f"const {cpp(types[i])} {names[i]} = {text};")
    arguments = ", ".join(f"{cpp(t)} {n}" for t, n in zip(types[:given], names[:given], strict=True))
    body = "".join(f"    {line}\n" for line in [*lines, f"return {names[expression.result]};"])
    result = cpp(types[expression.result])
    return (
        "".join(helpers) + f"struct {name} {{\n  static GETT_DEVICE {result} apply({arguments}) {{\n{body}  }}\n}};\n"
    )


def _fill(form: str, operands: Sequence[str], common: str, cpp: Spell) -> str:
    unsigned = f"u{common}" if kind_of(common) == "i" else common
    suffix = "f" if real_type(common) == "float32" else ""
    return form.format(*operands, T=cpp(common), U=cpp(unsigned), f=suffix)


def _converted(name: str, source: str, target: str, cpp: Spell) -> str:
    if source == target:
        return name
    if kind_of(target) == "c":
        real = cpp(real_type(target))
        return f"({cpp(target)}{{{real}({name}), {real}(0)}})"
    return f"({name} != 0)" if target == TRUTH else f"({cpp(target)})({name})"


def _cast(name: str, source: str, target: str, kept: str, cpp: Spell) -> str:
    """Rounding goes through the target's type and back."""
    if target == TRUTH:
        return _converted(name, source, TRUTH, cpp) if kind_of(source) != "c" else f"{name}.re != 0 || {name}.im != 0"
    start = _converted(name, source, kept, cpp)
    return f"gett::convert<{cpp(kept)}>(gett::convert<{cpp(target)}>({start}))" if rounds(kept, target) else start


def _literal(constant: Constant, dtype: str, cpp: Spell) -> str:
    """A number as C++ text, exactly."""
    value = constant.value
    if dtype == TRUTH:
        return "true" if value else "false"
    kind = kind_of(dtype)
    if kind == "c":
        real = real_type(dtype)
        parts = (_real_literal(part, real) for part in (complex(value).real, complex(value).imag))
        return f"{cpp(dtype)}{{{', '.join(parts)}}}"
    if kind == "f":
        return _real_literal(float(value), dtype)
    if kind == "u":
        return f"{value}ull"
    return f"({value + 1}ll - 1)" if value < 0 else f"{value}ll"  # the least has no literal


def _real_literal(value: float, dtype: str) -> str:
    """Bits for what no literal spells; a float beyond float32's range is infinite there, as in NumPy."""
    if dtype == "float32":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if math.isfinite(value):
        return f"{value.hex()}{'f' if dtype == 'float32' else ''}"
    if dtype == "float32":
        return f"__int_as_float({struct.unpack('<i', struct.pack('<f', value))[0]})"
    return f"__longlong_as_double({struct.unpack('<q', struct.pack('<d', value))[0]}ll)"
