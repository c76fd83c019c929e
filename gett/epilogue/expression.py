"""`Expression`: an epilogue as data, the function of a result and of further tensors that a store applies.

Owns the record. It is a list of numbered values, each made from earlier ones, so equal functions are equal records
whatever Python code they came from. Knows neither the meaning of an operation nor any array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gett.errors import EpilogueError


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that the function holds. Its text tells 1 from 1.0, 0.0 from -0.0, and every NaN is the same.

    Attributes:
        kind: `"b"`, `"i"`, `"f"` or `"c"`, as NumPy's kinds.
        text: `repr` of a truth or an integer, `float.hex` of a float, two of these of a complex number.
    """

    kind: str
    text: str

    @classmethod
    def of(cls, value: bool | int | float | complex) -> Constant:
        """The record of a Python number."""
        if isinstance(value, bool):
            return cls("b", repr(value))
        if isinstance(value, int):
            return cls("i", repr(value))
        if isinstance(value, float):
            return cls("f", value.hex())
        return cls("c", f"{value.real.hex()} {value.imag.hex()}")

    @property
    def value(self) -> Any:
        """The Python number."""
        if self.kind == "c":
            real, imaginary = map(float.fromhex, self.text.split())
            return complex(real, imaginary)
        if self.kind == "b":
            return self.text == "True"
        return int(self.text) if self.kind == "i" else float.fromhex(self.text)


@dataclass(frozen=True, slots=True)
class Extra:
    """A further tensor that the function reads, seen through an index such as `x[:, None]`.

    Attributes:
        argument: Its position in `epilogue_args`.
        axes: Axis of the argument for each axis of the view, -1 for an axis of extent 1 that `None` adds.
    """

    argument: int
    axes: tuple[int, ...]

    def pick(self, values: Sequence[int], fill: int) -> tuple[int, ...]:
        """The view's extents or strides from the argument's; `fill` is that of an added axis."""
        return tuple(fill if axis < 0 else values[axis] for axis in self.axes)

    def __str__(self) -> str:
        """The argument's name and its index, such as `x0` or `x1[:, None]`."""
        index = "" if self.is_whole else f"[{', '.join('None' if axis < 0 else ':' for axis in self.axes)}]"
        return f"x{self.argument}{index}"

    @property
    def is_whole(self) -> bool:
        """Whether the view is the argument itself."""
        return self.axes == tuple(range(len(self.axes)))

    def indexed(self, axes: Sequence[int]) -> Extra:
        """A view of this view, by `view_axes` of its own axes."""
        return Extra(self.argument, tuple(-1 if axis < 0 else self.axes[axis] for axis in axes))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One application of an operation.

    Attributes:
        operation: Its name in `gett.epilogue.operations.OPERATIONS`.
        inputs: Numbers of the values that it takes.
        dtype: The dtype that `cast` rounds to; empty for every other operation.
    """

    operation: str
    inputs: tuple[int, ...]
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """A function of the result and of further tensors, element by element.

    Values are numbered: 0 is the result `d = alpha * AB + beta * C`, then come the extras, the constants and the values
    of the instructions.

    Attributes:
        arguments: How many `epilogue_args` the function takes.
        extras: The tensors that it reads.
        constants: The numbers in it.
        instructions: What is computed, in order.
        result: Number of the value that is stored.
    """

    arguments: int
    extras: tuple[Extra, ...]
    constants: tuple[Constant, ...]
    instructions: tuple[Instruction, ...]
    result: int

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each value: `d`, `x0`... for the extras, `k0`... for constants, `v0`... for what is computed."""
        groups = (("x", self.extras), ("k", self.constants), ("v", self.instructions))
        return ("d", *(f"{letter}{i}" for letter, group in groups for i in range(len(group))))

    def __str__(self) -> str:
        """Calls of operations, such as `maximum(add(d, x0), 0)`; what is used twice stands twice, up to a length."""
        texts = ["d", *map(str, self.extras), *(str(c.value) for c in self.constants)]
        for step in self.instructions:
            inner = ", ".join([*(texts[i] for i in step.inputs), *([step.dtype] if step.dtype else [])])
            text = f"{step.operation}({inner})"
            texts.append(text if len(text) <= 200 else f"{step.operation}(...)")
        return texts[self.result]


def view_axes(key: Any, rank: int, name: str) -> tuple[int, ...]:
    """`Extra.axes` of an index: `:`, `None` and one `...` only.

    Args:
        key: What stands in the brackets.
        rank: Axes of what is indexed.
        name: Of what is indexed, for messages.

    Raises:
        EpilogueError: Another index, or too many axes.
    """
    entries = list(key) if isinstance(key, tuple) else [key]
    for entry in entries:
        if not (entry is None or entry is Ellipsis or (isinstance(entry, slice) and entry == slice(None))):
            raise EpilogueError(
                f"epilogue: {name}[{entry!r}] selects elements, which an epilogue cannot; ':', None and '...' may index"
            )
    dots = sum(entry is Ellipsis for entry in entries)
    if dots > 1:
        raise EpilogueError(f"epilogue: the index of {name} has more than one '...'")
    given = sum(isinstance(entry, slice) for entry in entries)
    if given > rank:
        raise EpilogueError(f"epilogue: {name} has {rank} axes, its index takes {given}")
    if not dots:
        entries.append(Ellipsis)
    axes: list[int] = []
    rest = iter(range(rank))
    for entry in entries:
        count = rank - given if entry is Ellipsis else 1
        axes += [-1] if entry is None else [next(rest) for _ in range(count)]
    return tuple(axes)
