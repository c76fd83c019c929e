"""Tracing: a Python function is called once with symbolic values, and what it does with them becomes an `Expression`.

Owns `Value`, which stands for the result and for the tensors in the call, and what Python and NumPy ask of it. Knows
the operations by name only; types come later, with the plan.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gett.epilogue.expression import Constant, Expression, Extra, Instruction, view_axes
from gett.epilogue.operations import OPERATIONS
from gett.errors import EpilogueError, GettError

#: From NumPy's name of a function to what computes it on values; `gett.epilogue.ops` adds those made of several.
NUMPY_FUNCTIONS: dict[str, Callable[..., Any]] = {}
#: Of the functions in `gett.ops`, which adds its own.
NAMES = {*OPERATIONS}

_MOST = int(np.finfo(np.float64).max)  # of integers

_CONTROL_FLOW = (
    "epilogue: Python needs the value of an element here ({}), but the function is called once for all of them: use "
    "gett.ops.where(condition, x, y) in place of if, & | ~ in place of and, or, not"
)


# What arrays and tensors can besides, by the reason why an epilogue cannot.
_REDUCTIONS = (
    "all", "amax", "amin", "any", "argmax", "argmin", "cumsum", "dot", "logsumexp", "matmul", "max", "mean", "min",
    "norm", "prod", "softmax", "sort", "std", "sum", "var",
)  # fmt: skip
_SHAPES = (
    "H", "T", "mH", "mT", "broadcast_to", "expand_dims", "flatten", "ndim", "permute", "ravel", "reshape", "shape",
    "size", "squeeze", "strides", "swapaxes", "transpose", "unsqueeze", "view",
)  # fmt: skip
_TORCH_NAMES = {"clamp": "clip", "double": "cast", "float": "cast", "half": "cast", "to": "cast"}


class Trace:
    """The values of one traced call, each kept once."""

    def __init__(self) -> None:
        self.nodes: list[Extra | Constant | Instruction | None] = [None]  # the first is the result
        self._places: dict[Any, int] = {}

    def add(self, node: Extra | Constant | Instruction) -> int:
        """The number of a value, which is kept once."""
        place = self._places.get(node)
        if place is None:
            place = self._places[node] = len(self.nodes)
            self.nodes.append(node)
        return place

    def expression(self, arguments: int, result: int) -> Expression:
        """What the result needs, grouped as `Expression` numbers it."""
        needed = {0, result}
        for i in range(result, 0, -1):
            node = self.nodes[i]
            if i in needed and isinstance(node, Instruction):
                needed.update(node.inputs)
        groups: dict[type, list[int]] = {Extra: [], Constant: [], Instruction: []}
        for i in sorted(needed - {0}):
            groups[type(self.nodes[i])].append(i)
        groups[Extra].sort(key=lambda i: str(self.nodes[i]))
        order = [0, *groups[Extra], *groups[Constant], *groups[Instruction]]
        place = {i: number for number, i in enumerate(order)}
        found: dict[type, list[Any]] = {kind: [self.nodes[i] for i in numbers] for kind, numbers in groups.items()}
        return Expression(
            arguments,
            tuple(found[Extra]),
            tuple(found[Constant]),
            tuple(Instruction(x.operation, tuple(place[i] for i in x.inputs), x.dtype) for x in found[Instruction]),
            place[result],
        )


class Value:
    """A tensor of an epilogue while it is traced: it has operators, NumPy's functions and no elements."""

    __slots__ = ("_place", "_rank", "_trace")

    def __init__(self, trace: Trace, place: int, rank: int | None = None) -> None:
        """Made by `trace`.

        Args:
            trace: Where it belongs.
            place: Its number there.
            rank: Axes, of what may be indexed: one of the `epilogue_args`.
        """
        self._trace, self._place, self._rank = trace, place, rank

    def __pos__(self) -> Value:
        return self

    def __pow__(self, other: Any) -> Any:
        return NUMPY_FUNCTIONS["power"](self, other)

    def __rpow__(self, other: Any) -> Any:
        return NUMPY_FUNCTIONS["power"](other, self)

    @property
    def real(self) -> Any:
        """The real part."""
        return apply("real", self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return apply("imag", self)

    def conj(self) -> Any:
        """The complex conjugate."""
        return apply("conj", self)

    conjugate = conj

    def astype(self, dtype: Any) -> Any:
        """The value rounded to a dtype: `gett.ops.cast`."""
        return NUMPY_FUNCTIONS["astype"](self, dtype)

    def clip(self, min: Any = None, max: Any = None, **options: Any) -> Any:
        """The value within bounds, as NumPy's method: `gett.ops.clip`."""
        return _numpy_function("clip", (self, min, max), options)

    def round(self, decimals: int = 0, **options: Any) -> Any:
        """The nearest whole number, of two the even one, as NumPy's method: `gett.ops.rint`."""
        return _numpy_function("round", (self, decimals), options)

    def copy(self) -> Value:
        """The value: nothing can write it."""
        return self

    def __getitem__(self, key: Any) -> Value:
        if key is Ellipsis:
            return self
        if self._rank is None:
            raise EpilogueError(f"epilogue: [{key!r}] indexes a computed value; only epilogue_args can be indexed")
        source = self._trace.nodes[self._place]
        assert isinstance(source, Extra)
        axes = view_axes(key, self._rank, f"epilogue_args[{source.argument}]")
        view = source.indexed(axes)
        return Value(self._trace, self._trace.add(view), len(view.axes))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise EpilogueError("epilogue: its tensors cannot be written; the function returns what is stored")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return _numpy_function(name, inputs, options)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return _numpy_function(function.__name__, inputs, options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what libraries look for
            raise AttributeError(name)
        raise EpilogueError(f"epilogue: its tensors have no attribute {name!r}; {_hint(name)}")

    def __repr__(self) -> str:
        return f"<a tensor of an epilogue: {self._trace.expression(0, self._place)}>"

    __hash__ = None  # type: ignore[assignment]


def _operator(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    def operator(self: Value, *other: Any) -> Any:
        return apply(name, *other, self) if swapped else apply(name, self, *other)

    return operator


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: Value, *others: Any) -> Any:
        raise EpilogueError(_CONTROL_FLOW.format(name))

    return refuse


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "neg": "negative", "abs": "abs", "invert": "invert", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
for _name, _operation in _OPERATORS.items():
    setattr(Value, f"__{_name}__", _operator(_operation))
for _name in ("add", "sub", "mul", "truediv", "and", "or", "xor"):
    setattr(Value, f"__r{_name}__", _operator(_OPERATORS[_name], swapped=True))
for _name in ("bool", "int", "float", "complex", "index", "len", "iter", "contains", "array"):
    setattr(Value, f"__{_name}__", _refusal(f"__{_name}__"))


def _numpy_function(name: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    found = NUMPY_FUNCTIONS.get(name)
    given = {k: v for k, v in options.items() if v is not None}
    if found is None:
        known = _hint(name) if name in _REDUCTIONS + _SHAPES else f"there are {_known()}"
        raise EpilogueError(f"epilogue: numpy.{name} is no operation of an epilogue; {known}")
    if given and name not in ("clip", "astype", "round"):
        raise EpilogueError(f"epilogue: numpy.{name} takes no {', '.join(map(repr, given))} here")
    return found(*inputs, **given)


def _hint(name: str) -> str:
    """What to write in place of an attribute or a function that an epilogue lacks."""
    if name in _REDUCTIONS:
        return "it is computed element by element: sum over modes in the subscripts, or reduce the result of the call"
    if name in _SHAPES:
        return "it sees elements, no shape: name the modes in the subscripts, and index epilogue_args with None"
    name = _TORCH_NAMES.get(name, name)
    return f"write gett.ops.{name}(...)" if name in NAMES else "what there is stands in gett.ops"


def _known() -> str:
    return ", ".join(sorted(NUMPY_FUNCTIONS))


def apply(name: str, *operands: Any, dtype: str = "") -> Any:
    """The value of an operation; of plain arrays and numbers what NumPy gives.

    Args:
        name: In `OPERATIONS`, or `CAST`.
        operands: Values, and numbers, which become constants.
        dtype: What a cast rounds to.

    Raises:
        EpilogueError: An operand is neither a value of this trace nor a number, or there are too many or too few.
    """
    operation = OPERATIONS.get(name)
    if operation is not None and len(operands) != operation.arity:
        raise EpilogueError(f"epilogue: {name} takes {operation.arity} operands, {len(operands)} were given")
    found = [x for x in operands if isinstance(x, Value)]
    if operation is not None and not found:
        return operation.numpy(*operands)
    trace = found[0]._trace
    if any(x._trace is not trace for x in found):
        raise EpilogueError(f"epilogue: {name} of a tensor that belongs to another call")
    places = [x._place if isinstance(x, Value) else trace.add(_constant(x, name)) for x in operands]
    if operation is not None and operation.condition:
        places[0] = trace.add(Instruction("truth", (places[0],)))
    return Value(trace, trace.add(Instruction(name, tuple(places), dtype)))


def constant(beside: Value, number: Any) -> Value:
    """A number as a value of the same call."""
    trace = beside._trace
    return Value(trace, trace.add(_constant(number, "the function")))


def is_traced(*operands: Any) -> bool:
    """Whether a value of a traced call is among the operands."""
    return any(isinstance(x, Value) for x in operands)


def _constant(x: Any, where: str) -> Constant:
    """A number that the function holds.

    Raises:
        EpilogueError: It is none.
    """
    if isinstance(x, (np.generic, np.ndarray)) and x.ndim == 0:
        x = x.item() if x.dtype.char not in "gG" else complex(x) if x.dtype.char == "G" else float(x)
    if isinstance(x, (bool, int, float, complex)):
        if isinstance(x, int) and abs(x) > _MOST:
            raise EpilogueError(f"epilogue: {where} takes an integer of {x.bit_length()} bits, beyond float64's range")
        return Constant.of(x)
    if getattr(x, "shape", None):
        raise EpilogueError(
            f"epilogue: {where} takes a {type(x).__name__} of shape {tuple(x.shape)} that is no argument of the "
            "function: pass it in epilogue_args"
        )
    raise EpilogueError(f"epilogue: {where} takes tensors of the function and numbers, no {type(x).__name__}")


def trace(function: Any, ranks: Sequence[int]) -> Expression:
    """The expression of `function(d, *epilogue_args)`.

    Args:
        function: Called once.
        ranks: Number of axes of each of the `epilogue_args`.

    Raises:
        EpilogueError: It is no function of so many arguments, fails, does what an epilogue cannot, or returns neither
            one of its values nor a number.
    """
    if not callable(function):
        raise EpilogueError(f"epilogue must be a function of the result, not {type(function).__name__}")
    call = Trace()
    things = [Value(call, 0)]
    for i, rank in enumerate(ranks):
        things.append(Value(call, call.add(Extra(i, tuple(range(rank)))), rank))
    _check_count(function, len(ranks))
    try:
        found = function(*things)
        if not isinstance(found, Value):
            found = Value(call, call.add(_constant(found, "the function's result")))
    except GettError:
        raise
    except Exception as error:  # whatever the function's own code makes of such values
        raise EpilogueError(
            f"epilogue: the function failed when it was traced: {type(error).__name__}: {error}"
        ) from error
    if found._trace is not call:
        raise EpilogueError("epilogue: the function returns a tensor that belongs to another call")
    return call.expression(len(ranks), found._place)


def _check_count(function: Any, count: int) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C without one
        return
    try:
        signature.bind(*range(1 + count))
    except TypeError as error:
        raise EpilogueError(
            f"epilogue is called with the result and the {count} of epilogue_args, which it does not take: {error}"
        ) from error
