"""`gett.ops`: the functions of epilogues, on the tensors of a traced function and on arrays alike.

Every operation of `gett.epilogue.operations.OPERATIONS` is here by its name (`gett.ops.exp`), beside functions made of
several. On NumPy arrays they compute at once, so a function written with them can be tried on arrays. Owns only the
functions made of several, and under which of NumPy's names all of them are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gett.console.formatting import brief
from gett.epilogue.evaluate import rounded
from gett.epilogue.operations import CAST, OPERATIONS
from gett.epilogue.traced import NAMES, NUMPY_FUNCTIONS, apply, constant, is_traced
from gett.epilogue.types import TRUTH
from gett.errors import EpilogueError

_MOST = 16  # of the exponents of `power`, which multiplies


def bias(x: Any, b: Any) -> Any:
    """`x + b`."""
    return x + b


def scale(x: Any, factor: Any) -> Any:
    """`x * factor`."""
    return x * factor


def relu(x: Any) -> Any:
    """The larger of x and 0; NaN stays NaN."""
    return apply("maximum", x, 0)


def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))`."""
    return 1 / (1 + apply("exp", -x))


def silu(x: Any) -> Any:
    """`x * sigmoid(x)`."""
    return x / (1 + apply("exp", -x))


def gelu(x: Any, approximate: str = "none") -> Any:
    """`x * P(X <= x)` for a normal X, as PyTorch's: by the error function, or by tanh.

    Args:
        x: Real numbers.
        approximate: `"none"`, or `"tanh"` for `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`.

    Raises:
        EpilogueError: `approximate` is neither.
    """
    if approximate == "none":
        return 0.5 * x * (1 + apply("erf", x * math.sqrt(0.5)))
    if approximate != "tanh":
        raise EpilogueError(f"gett.ops.gelu: approximate={approximate!r}; it must be 'none' or 'tanh'")
    return 0.5 * x * (1 + apply("tanh", math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """The smaller of `high` and the larger of `low` and x; None is no bound. NaN stays NaN."""
    bounded = x if low is None else apply("maximum", x, low)
    return bounded if high is None else apply("minimum", bounded, high)


def square(x: Any) -> Any:
    """`x * x`."""
    return x * x


def reciprocal(x: Any) -> Any:
    """`1 / x`."""
    return 1 / x


def power(x: Any, exponent: Any) -> Any:
    """A tensor to a power that is a whole number from -16 to 16, 0.5 or -0.5; of arrays any that NumPy takes.

    Raises:
        EpilogueError: It is another power.
    """
    if not is_traced(x, exponent):
        return np.power(x, exponent)
    number = exponent.item() if isinstance(exponent, (np.generic, np.ndarray)) and exponent.ndim == 0 else exponent
    if not is_traced(x) or not isinstance(number, (int, float)) or abs(number) > _MOST or 2 * number % 1:
        raise EpilogueError(
            f"epilogue: power takes a tensor and a whole number from -{_MOST} to {_MOST}, 0.5 or -0.5, not "
            f"{'a tensor' if is_traced(exponent) else brief(exponent)}; exp(log(x) * y) is another way"
        )
    if number < 0:
        return 1 / power(x, -number)
    if number == 0.5:
        return apply("sqrt", x)
    if number % 1:
        raise EpilogueError(f"epilogue: power takes no exponent of {number!r}; sqrt(x) * x**n is another way")
    return _product(x, int(number))


def _product(x: Any, count: int) -> Any:
    """A tensor times itself, by squaring."""
    if count == 0:
        return constant(x, 1)
    half = _product(x, count // 2) if count > 1 else None
    if half is None:
        return x
    return half * half * x if count % 2 else half * half


def logical_and(x: Any, y: Any) -> Any:
    """Whether both are not 0."""
    return apply("bitwise_and", apply("truth", x), apply("truth", y))


def logical_or(x: Any, y: Any) -> Any:
    """Whether one is not 0."""
    return apply("bitwise_or", apply("truth", x), apply("truth", y))


def logical_xor(x: Any, y: Any) -> Any:
    """Whether exactly one is not 0."""
    return apply("bitwise_xor", apply("truth", x), apply("truth", y))


def logical_not(x: Any) -> Any:
    """Whether x is 0."""
    return apply("invert", apply("truth", x))


def cast(x: Any, dtype: Any) -> Any:
    """A tensor rounded to a dtype. It keeps the type that all is computed in; for `bool` it becomes a truth.

    A floating value loses its fraction in an integer type; what that type cannot hold is undefined, as in NumPy.

    Raises:
        EpilogueError: There is no such dtype.
    """
    name = _dtype_name(dtype)
    if is_traced(x):
        return apply(CAST, x, dtype=name)
    found = np.asarray(x)
    return apply("truth", found) if name == TRUTH else rounded(found, name, found.dtype.name)


def _dtype_name(dtype: Any) -> str:
    text = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
    if "bfloat16" in (text, getattr(dtype, "name", None)):
        return "bfloat16"
    try:
        found = np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise EpilogueError(f"epilogue: cast to {brief(dtype)}, which is no dtype: {error}") from error
    if found.char not in "?bBhHiIlLqQefdFD":
        raise EpilogueError(f"epilogue: cast to {found}, which kernels do not have")
    return found.newbyteorder("=").name


def _numpy_clip(x: Any, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Any:
    """`numpy.clip`, which has two names for each bound."""
    if ("min" in bounds and a_min is not None) or ("max" in bounds and a_max is not None):
        raise EpilogueError("epilogue: numpy.clip takes each bound once, a_min or min, a_max or max")
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    if bounds:
        raise EpilogueError(f"epilogue: numpy.clip takes no {', '.join(map(repr, bounds))} here")
    return clip(x, low, high)


def _numpy_round(x: Any, decimals: Any = 0, **options: Any) -> Any:
    """`numpy.round` to whole numbers."""
    if options or decimals != 0:
        given = ", ".join(map(repr, options)) or f"decimals={decimals!r}"
        raise EpilogueError(f"epilogue: numpy.round takes no {given} here; rint(x * 100) / 100 rounds to two")
    return apply("rint", x)


NUMPY_FUNCTIONS.update(
    {
        alias: partial(apply, name)
        for name, operation in OPERATIONS.items()
        for alias in (name, *operation.aliases)
        if hasattr(np, alias)
    }
)
NUMPY_FUNCTIONS.update(
    {f.__name__: f for f in (square, reciprocal, power, logical_and, logical_or, logical_xor, logical_not)}
)
NUMPY_FUNCTIONS.update(
    {"clip": _numpy_clip, "astype": cast, "round": _numpy_round, "around": _numpy_round, "positive": lambda x: x}
)

_COMPOSED = (
    "bias", "cast", "clip", "gelu", "logical_and", "logical_not", "logical_or", "logical_xor", "power", "reciprocal",
    "relu", "scale", "sigmoid", "silu", "square",
)  # fmt: skip


NAMES.update(_COMPOSED)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in OPERATIONS:
        raise AttributeError(f"gett.ops has no function {name!r}; there are {', '.join(__dir__())}")
    return _operation(name)


def _operation(name: str) -> Callable[..., Any]:
    def function(*operands: Any) -> Any:
        return apply(name, *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"NumPy's `{name}`, element by element; `truth(x)` is `x != 0`."
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted(NAMES)
