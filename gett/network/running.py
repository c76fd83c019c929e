"""Running the steps of a plan one after the other on arrays.

Owns the intermediates: when each is made, converted and dropped. Knows neither subscripts nor what an executable does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gett.arrays.kinds import ArrayKind, Conversion, convert
from gett.ir.tensors import parse_dtype
from gett.network.steps import Executable, Step


def run_steps(
    steps: Sequence[Step],
    executables: Sequence[Executable],
    uses: Sequence[tuple[int, ...]],
    kind: ArrayKind,
    operands: Sequence[Any],
    foreign: Sequence[Conversion | None],
    c: Any,
    d: Any,
    alpha: Any,
    beta: Any,
    extras: Sequence[Any] = (),
) -> None:
    """Call every step's executable.

    Args:
        steps: At least one; those of the last one's output write `d`.
        executables: One for each step.
        uses: `gett.network.steps.last_uses` of them.
        kind: Of the arrays.
        operands: Arrays.
        foreign: For each operand how it is converted when it is needed first, None where it is read as it is. An array
            that stands for several operands is converted once.
        c: What is added to the result, or None.
        d: The result, written in place.
        alpha: Factor of the contraction.
        beta: Factor of `c`.
        extras: The `epilogue_args`.
    """
    result = steps[-1].output
    tensors: dict[int, Any] = {result: d}

    def take(i: int) -> Any:
        if i not in tensors:
            array, how = operands[i], foreign[i]
            if how is None:
                return array
            made = convert(kind, kind.base(array), how)
            for j in range(len(operands)):  # none of them was needed before this one
                if operands[j] is array and foreign[j] == how:
                    tensors[j] = made
        return tensors[i]

    for step, execute, done in zip(steps, executables, uses, strict=True):
        if step.output not in tensors:
            tensors[step.output] = kind.empty(step.shape, parse_dtype(step.gemm.contraction.d.dtype))
        second = take(step.inputs[1]) if len(step.inputs) == 2 else None
        added, factors = (c, (alpha, beta)) if step.output == result else (None, (1, 0))
        function = step.gemm.contraction.epilogue
        further = ([extras[x.argument] for x in function.extras],) if function is not None and function.extras else ()
        execute(take(step.inputs[0]), second, added, tensors[step.output], *factors, *further)
        for i in done:  # memory goes as soon as its last consumer was called
            tensors.pop(i, None)
        del second
