"""Problems one after the other, by whatever contracts a single pair: on the CPU, and where no table holds them.

Pairs that sum into one block are added in their order. Sums of 16-bit numbers are kept in float32 until the last one,
as kernels keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gett.groups.layouts import Asked
from gett.groups.reading import Problem, of_problem
from gett.ir.tensors import parse_dtype, sum_dtype
from gett.plans.call import Call, make_call

Compute = Callable[[Call], Any]


def run_pairs(compute: Compute, problems: Sequence[Problem], numbers: Sequence[int], out: Any, precision: Asked) -> Any:
    """The sum of several problems, written to `out` where that is no None.

    Args:
        compute: What a call asks for.
        problems: All problems.
        numbers: Of those that are added, in their order.
        out: The array to write.
        precision: As it was asked for.

    Raises:
        GettError: A problem is at fault; the text numbers it.
    """
    target, dtype = out, None
    if len(numbers) > 1 and out is not None and sum_dtype(parse_dtype(out.dtype)) != parse_dtype(out.dtype):
        target, dtype = None, "float32"
    for i in numbers:
        spec, a, b = problems[i]
        with of_problem(i):
            if i == numbers[0]:
                call = make_call(spec, (a, b), target, dtype, precision=precision)
            else:
                call = make_call(spec, (a, b), target, dtype, precision=precision, c=target, beta=1)
            target = compute(call)
    if dtype is None:
        return target
    out[...] = target
    return out


def equal_arrays(outs: Sequence[Any]) -> list[list[int]]:
    """The numbers of problems by the array object that they write."""
    found: dict[int, list[int]] = {}
    for i, x in enumerate(outs):
        found.setdefault(id(x), []).append(i)
    return list(found.values())
