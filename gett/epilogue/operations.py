"""`OPERATIONS`: the one table of what an epilogue can compute, each with its NumPy form and its C++ form.

A new operation is a new entry here; tracing, types, evaluation and printing read the table. Knows neither expressions
nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gett.epilogue.special import erf

Result = Literal["same", "truth", "real"]
Derivative = Callable[..., tuple[Any, ...]]

_NAN_MAX = "{0} >= {1} || {0} != {0} ? {0} : {1}"
_NAN_MIN = "{0} <= {1} || {0} != {0} ? {0} : {1}"

# Smith's method (Robert L. Smith, "Algorithm 116: Complex division", 1962), as NumPy's: no square of a part overflows.
_DIVIDE = """template <class C> GETT_DEVICE C complex_divide(C a, C b) {
  if ((b.re < 0 ? -b.re : b.re) >= (b.im < 0 ? -b.im : b.im)) {
    if (b.re == 0 && b.im == 0) return {a.re / b.re, a.im / b.re};
    const auto ratio = b.im / b.re;
    const auto scale = 1 / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  const auto ratio = b.re / b.im;
  const auto scale = 1 / (b.im + b.re * ratio);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}
"""
# The root with a real part of at least 0, whose smaller part is found without cancellation.
_SQRT = """GETT_DEVICE float real_sqrt(float x) { return sqrtf(x); }
GETT_DEVICE double real_sqrt(double x) { return sqrt(x); }
GETT_DEVICE float modulus(float x, float y) { return hypotf(x, y); }
GETT_DEVICE double modulus(double x, double y) { return hypot(x, y); }
template <class C> GETT_DEVICE C complex_sqrt(C z) {
  if (z.re == 0 && z.im == 0) return {z.re * z.re, z.im};
  const auto size = z.re < 0 ? -z.re : z.re;
  const auto larger = real_sqrt((size + modulus(z.re, z.im)) / 2);
  const auto smaller = z.im / (2 * larger);
  if (z.re >= 0) return {larger, smaller};
  return {smaller < 0 ? -smaller : smaller, z.im < 0 ? -larger : larger};
}
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """An element-wise operation.

    The operands are first brought to their common type: a truth (`b`), an integer (`i` signed, `u` unsigned), a real
    number (`f`) or a complex one (`c`).

    Attributes:
        numpy: The NumPy form.
        cpp: The C++ form by the kinds of the common type, which are those that the operation is defined for. `{0}`,
            `{1}`, `{2}` are names of values, `{T}` is their type, `{U}` its unsigned counterpart, `{f}` the end
            of a function's name (`f` for float, nothing for double).
        arity: Number of operands.
        result: Type of the result: the operands' common type, a truth, or a real number.
        aliases: Further names of NumPy's functions that it stands for.
        condition: Whether the first operand is a truth that takes no part in the common type.
        helper: C++ functions that the form for complex numbers calls.
        derivative: From the gradient of the result, the result and the operands to the gradient of each operand, None
            for one that has none. It is made of these operations. Where the operation has no derivative it is None.
    """

    numpy: Callable[..., Any]
    cpp: Mapping[str, str]
    arity: int = 1
    result: Result = "same"
    aliases: tuple[str, ...] = ()
    condition: bool = False
    helper: str = field(default="", repr=False)
    derivative: Derivative | None = field(default=None, repr=False)

    def form(self, kind: str) -> str | None:
        """The C++ form for operands of a kind, None where the operation is not defined for it."""
        return next((text for kinds, text in self.cpp.items() if kind in kinds), None)


def _function(numpy: Callable[..., Any], name: str, complex_form: str = "", helper: str = "") -> Operation:
    """A function of C's library, which has the same name for float with an f at its end."""
    forms = {"f": name + "{f}({0})"} | ({"c": complex_form} if complex_form else {})
    return Operation(numpy, forms, helper=helper)


def _compare(numpy: Callable[..., Any], sign: str, complex_form: str = "") -> Operation:
    forms = {"biuf": "{0} " + sign + " {1}"} | ({"c": complex_form} if complex_form else {})
    return Operation(numpy, forms, 2, "truth")


# Signed integers wrap around, which in C++ only unsigned ones do.
OPERATIONS: dict[str, Operation] = {
    "add": Operation(
        np.add,
        {
            "b": "{0} || {1}",
            "i": "({T})(({U})({0}) + ({U})({1}))",
            "uf": "{0} + {1}",
            "c": "{T}{{{0}.re + {1}.re, {0}.im + {1}.im}}",
        },
        2,
    ),
    "subtract": Operation(
        np.subtract,
        {
            "i": "({T})(({U})({0}) - ({U})({1}))",
            "uf": "{0} - {1}",
            "c": "{T}{{{0}.re - {1}.re, {0}.im - {1}.im}}",
        },
        2,
    ),
    "multiply": Operation(
        np.multiply,
        {
            "b": "{0} && {1}",
            "i": "({T})(({U})({0}) * ({U})({1}))",
            "uf": "{0} * {1}",
            "c": "{T}{{{0}.re * {1}.re - {0}.im * {1}.im, {0}.re * {1}.im + {0}.im * {1}.re}}",
        },
        2,
    ),
    "divide": Operation(
        np.divide,
        {"f": "{0} / {1}", "c": "complex_divide({0}, {1})"},
        2,
        aliases=("true_divide",),
        helper=_DIVIDE,
    ),
    "negative": Operation(
        np.negative, {"i": "({T})(({U})(0) - ({U})({0}))", "u": "0 - {0}", "f": "-{0}", "c": "{T}{{-{0}.re, -{0}.im}}"}
    ),
    "abs": Operation(
        np.abs,
        {
            "i": "{0} < 0 ? ({T})(({U})(0) - ({U})({0})) : {0}",
            "bu": "{0}",
            "f": "fabs{f}({0})",
            "c": "hypot{f}({0}.re, {0}.im)",
        },
        result="real",
        aliases=("absolute", "fabs"),
    ),
    "maximum": Operation(np.maximum, {"b": "{0} || {1}", "iu": "{0} > {1} ? {0} : {1}", "f": _NAN_MAX}, 2),
    "minimum": Operation(np.minimum, {"b": "{0} && {1}", "iu": "{0} < {1} ? {0} : {1}", "f": _NAN_MIN}, 2),
    "sign": Operation(
        np.sign,
        {
            "i": "({0} > 0) - ({0} < 0)",
            "u": "{0} != 0 ? ({T})(1) : ({T})(0)",
            "f": "{0} != {0} ? {0} : ({T})(({0} > 0) - ({0} < 0))",
        },
    ),
    "floor": _function(np.floor, "floor"),
    "ceil": _function(np.ceil, "ceil"),
    "rint": _function(np.rint, "rint"),
    "sqrt": _function(np.sqrt, "sqrt", "complex_sqrt({0})", _SQRT),
    "exp": _function(np.exp, "exp", "{T}{{exp{f}({0}.re) * cos{f}({0}.im), exp{f}({0}.re) * sin{f}({0}.im)}}"),
    "expm1": _function(np.expm1, "expm1"),
    "log": _function(np.log, "log", "{T}{{log{f}(hypot{f}({0}.re, {0}.im)), atan2{f}({0}.im, {0}.re)}}"),
    "log1p": _function(np.log1p, "log1p"),
    "sin": _function(np.sin, "sin"),
    "cos": _function(np.cos, "cos"),
    "tanh": _function(np.tanh, "tanh"),
    "erf": _function(erf, "erf"),
    "conj": Operation(np.conj, {"iuf": "{0}", "c": "{T}{{{0}.re, -{0}.im}}"}, aliases=("conjugate",)),
    "real": Operation(np.real, {"biuf": "{0}", "c": "{0}.re"}, result="real"),
    "imag": Operation(np.imag, {"b": "false", "iuf": "({T})(0)", "c": "{0}.im"}, result="real"),
    "less": _compare(np.less, "<"),
    "less_equal": _compare(np.less_equal, "<="),
    "greater": _compare(np.greater, ">"),
    "greater_equal": _compare(np.greater_equal, ">="),
    "equal": _compare(np.equal, "==", "{0}.re == {1}.re && {0}.im == {1}.im"),
    "not_equal": _compare(np.not_equal, "!=", "{0}.re != {1}.re || {0}.im != {1}.im"),
    "isnan": Operation(
        np.isnan, {"biu": "false", "f": "{0} != {0}", "c": "{0}.re != {0}.re || {0}.im != {0}.im"}, 1, "truth"
    ),
    "truth": Operation(
        lambda x: np.not_equal(x, 0), {"b": "{0}", "iuf": "{0} != 0", "c": "{0}.re != 0 || {0}.im != 0"}, 1, "truth"
    ),
    "bitwise_and": Operation(np.bitwise_and, {"b": "{0} && {1}", "iu": "{0} & {1}"}, 2),
    "bitwise_or": Operation(np.bitwise_or, {"b": "{0} || {1}", "iu": "{0} | {1}"}, 2),
    "bitwise_xor": Operation(np.bitwise_xor, {"b": "{0} != {1}", "iu": "{0} ^ {1}"}, 2),
    "invert": Operation(np.invert, {"b": "!{0}", "iu": "~{0}"}, aliases=("bitwise_not",)),
    "where": Operation(np.where, {"biufc": "{0} ? {1} : {2}"}, 3, condition=True),
}


def _larger(g: Any, d: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Of equal operands the second has the gradient, so that of `relu` at 0 is 0."""
    return np.where(x > y, g, 0), np.where(x > y, 0, g)


def _smaller(g: Any, d: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return np.where(x < y, g, 0), np.where(x < y, 0, g)


def _direction(g: Any, d: Any, x: Any) -> tuple[Any, ...]:
    """Of an absolute value; 0 at 0."""
    return (g * np.where(d == 0, 0, x / np.where(d == 0, 1, d)),)


# A gradient of a complex operand is PyTorch's: the conjugate of the derivative, times that of the result.
DERIVATIVES: dict[str, Derivative] = {
    "add": lambda g, d, x, y: (g, g),
    "subtract": lambda g, d, x, y: (g, -g),
    "multiply": lambda g, d, x, y: (g * np.conj(y), g * np.conj(x)),
    "divide": lambda g, d, x, y: (g / np.conj(y), -g * np.conj(d / y)),
    "negative": lambda g, d, x: (-g,),
    "abs": _direction,
    "maximum": _larger,
    "minimum": _smaller,
    "sqrt": lambda g, d, x: (g / np.conj(2 * d),),
    "exp": lambda g, d, x: (g * np.conj(d),),
    "expm1": lambda g, d, x: (g * (d + 1),),
    "log": lambda g, d, x: (g / np.conj(x),),
    "log1p": lambda g, d, x: (g / (x + 1),),
    "sin": lambda g, d, x: (g * np.cos(x),),
    "cos": lambda g, d, x: (-g * np.sin(x),),
    "tanh": lambda g, d, x: (g * (1 - d * d),),
    "erf": lambda g, d, x: (g * (2 / math.sqrt(math.pi)) * np.exp(-x * x),),
    "conj": lambda g, d, x: (np.conj(g),),
    "real": lambda g, d, x: (g,),
    "imag": lambda g, d, x: (g * 1j,),  # of a complex operand
    "where": lambda g, d, c, x, y: (None, np.where(c, g, 0), np.where(c, 0, g)),
}
OPERATIONS.update({name: replace(OPERATIONS[name], derivative=found) for name, found in DERIVATIVES.items()})

#: The operation that rounds to a dtype on the way; its forms follow from the two types.
CAST = "cast"
