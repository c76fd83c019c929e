"""Running the steps of a plan one after the other on arrays.

Owns the intermediates: when each is made, converted and dropped. Knows neither subscripts nor what an executable does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gett.arrays.kinds import ArrayKind, Conversion, convert
from gett.ir.tensors import parse_dtype
from gett.network.steps import Step, last_uses, launch_numbers


@dataclass(frozen=True, slots=True)
class Turn:
    """One step as it runs, worked out once for all calls.

    Attributes:
        first: Number of the tensor that it takes.
        second: Of the other one, None where there is none.
        output: Of what it writes.
        is_last: Whether it writes the result: `c`, the factors and the epilogue are its.
        shape: Of what it writes.
        dtype: Of what it writes.
        converted: Which of its inputs are operands that are read in another dtype, and needed here first.
        extras: Which of the `epilogue_args` it reads, if it is the last.
        done: Tensors that no later step reads.
        launch: Number of the launch; turns that are made together have one.
        together: Whether the launch is one for steps that are made together.
    """

    first: int
    second: int | None
    output: int
    is_last: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    converted: tuple[int, ...]
    extras: tuple[int, ...]
    done: tuple[int, ...]
    launch: int
    together: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the one or two tensors that it takes."""
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def nbytes(self) -> int:
        """Of what it writes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Ending(NamedTuple):
    """What the last step of a call takes beside its operands.

    Attributes:
        c: What is added to the result, or None.
        d: The result, written in place.
        alpha: Factor of the contraction.
        beta: Factor of `c`.
        extras: The `epilogue_args`.
    """

    c: Any
    d: Any
    alpha: Any = 1
    beta: Any = 0
    extras: Sequence[Any] = ()


def turns_of(steps: Sequence[Step], foreign: Sequence[Conversion | None]) -> tuple[Turn, ...]:
    """The turns of steps; `foreign` has for each operand how it is converted, None where it is read as it is."""
    turns, waiting = [], {i for i, how in enumerate(foreign) if how is not None}
    for step, done, launch in zip(steps, last_uses(steps), launch_numbers(steps), strict=True):
        first, second = (*step.inputs, None)[:2]
        assert first is not None
        converted = tuple(i for i in dict.fromkeys(step.inputs) if i in waiting)
        waiting.difference_update(converted)
        d, function = step.gemm.contraction.d, step.gemm.contraction.epilogue
        extras = () if function is None else tuple(x.argument for x in function.extras)
        is_last = step.output == steps[-1].output
        dtype, together = parse_dtype(d.dtype), step.together is not None
        turns.append(
            Turn(first, second, step.output, is_last, step.shape, dtype, converted, extras, done, launch, together)
        )
    return tuple(turns)


def run_steps(
    turns: Sequence[Turn],
    executables: Sequence[Any],
    kind: ArrayKind,
    operands: Sequence[Any],
    foreign: Sequence[Conversion | None],
    ending: Ending,
    written: Callable[[Any], None] | None = None,
) -> None:
    """Call every step's executable.

    Args:
        turns: Of at least one step; those of the last one's output write the result.
        executables: One for each step.
        kind: Of the arrays.
        operands: Arrays.
        foreign: As `turns_of` was given them. An array that stands for several operands is converted once.
        ending: The result, and what is done with it.
        written: Called with each tensor once all of it is written, and before it is read.
    """
    last = {turn.output: n for n, turn in enumerate(turns)} if written is not None else {}
    tensors: dict[int, Any] = dict(enumerate(operands))
    c, d, alpha, beta, extras = ending
    read = turns[-1].extras
    result = (c, d, alpha, beta, [extras[i] for i in read]) if read else (c, d, alpha, beta)
    launch = kind.launch
    addresses: list[tuple[int, ...]] = []  # of the turns of a launch, and what they write
    made: list[Any] = []
    for n, (turn, executable) in enumerate(zip(turns, executables, strict=True)):
        for i in turn.converted:
            array, how = operands[i], foreign[i]
            if tensors[i] is array and how is not None:  # not converted beside another operand yet
                copy = convert(kind, kind.base(array), how)
                tensors |= {j: copy for j, x in enumerate(operands) if x is array and foreign[j] == how}
                del copy
        if turn.is_last:
            rest = result
        else:
            if turn.output not in tensors:
                tensors[turn.output] = kind.empty(turn.shape, turn.dtype)
            rest = None, tensors[turn.output], 1, 0
        inputs = tensors[turn.first], None if turn.second is None else tensors[turn.second]
        made.append(rest[1])
        if turn.together:
            addresses.append((*map(kind.pointer, inputs), 0, kind.pointer(rest[1])))
            if n + 1 < len(turns) and turns[n + 1].launch == turn.launch:
                continue
            executable.run_together(addresses, kind.stream())
            addresses = []
        else:
            run = executable if launch is None else partial(launch, executable)
            run(*inputs, *rest)
        if written is not None and last[turn.output] == n:
            for x in made:
                written(x)
        made = []
        del inputs, rest  # memory goes as soon as its last consumer was called, before the next turn takes any
        for i in turn.done:
            del tensors[i]
