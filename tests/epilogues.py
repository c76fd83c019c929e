"""Epilogues for contractions that are planned already: tensors whose strides leave the plan's groups as they are.

So a schedule of the catalogue stays one of the plan with an epilogue. Everything is exact: small integers, and a
function whose results every type holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.epilogue.traced import trace
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, itemsize, make_gemm_plan

Function = Callable[..., Any]
MOST = 1000  # of the results: exact in float16; bfloat16 holds integers up to 256


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a function reads.

    Attributes:
        along: Groups of the plan that it varies along, fastest first; `"-"` before one walks backwards along it. Empty
            for a number.
        dtype: Of its elements.
        every: Distance of neighbours in elements.
    """

    along: str
    dtype: str
    every: int = 1


#: Tensors of every kind: along rows, columns and batches, along all of them in either order, a number.
TENSORS = (
    Tensor("n", "float32"), Tensor("m", "float16", 2), Tensor("nml", "int8"), Tensor("-ml-n", "float32"),
    Tensor("l", "float16"), Tensor("", "float32"),
)  # fmt: skip


def clipped(most: int) -> Function:
    """A function of a result and of six tensors that is exact on small integers."""

    def function(d: Any, n: Any, m: Any, full: Any, turned: Any, batch: Any, number: Any) -> Any:
        return np.clip(np.where(full > turned, 2 * d + n * m, d - full) + batch * number, -most, most)

    return function


def most_of(dtype: str) -> int:
    """Largest result that a type holds exactly, or smaller."""
    return 250 if dtype == "bfloat16" else MOST


def with_epilogue(plan: GemmPlan, function: Function, tensors: Sequence[Tensor]) -> GemmPlan:
    """The plan with a function of its result and of tensors."""
    contraction = plan.contraction
    extras = tuple(_operand(plan, x) for x in tensors)
    expression = trace(function, [0] * len(tensors))  # which axes they have does not matter here
    used = tuple(extras[x.argument] for x in expression.extras)
    made = make_gemm_plan(replace(contraction, epilogue=expression, extras=used))
    groups = [[[(s.labels, s.extent) for s in g] for g in (p.l, p.m, p.n, p.k)] for p in (plan, made)]
    assert groups[0] == groups[1]
    return made


def _operand(plan: GemmPlan, tensor: Tensor) -> Operand:
    extents, size = plan.contraction.extents, itemsize(tensor.dtype)
    strides: dict[int, int] = {}
    step, sign = tensor.every * size, 1
    for letter in tensor.along:
        if letter == "-":
            sign = -1
            continue
        for mode in {"l": plan.l, "m": plan.m, "n": plan.n}[letter]:
            for label in mode.labels:
                assert isinstance(label, int)
                strides[label] = sign * step
                step *= extents[label]
        sign = 1
    return Operand(tuple(strides), tuple(strides.values()), tensor.dtype, size)


def buffer_of(operand: Operand, extents: Sequence[int], seed: int) -> tuple[Any, int]:
    """A flat array of small integers that holds a tensor, and the place of the element at coordinate 0."""
    size = itemsize(operand.dtype)
    ends = [s // size * (extents[m] - 1) for m, s in zip(operand.modes, operand.strides, strict=True)]
    start = -sum(min(0, e) for e in ends)
    values = np.random.default_rng(seed).integers(-3, 4, start + sum(max(0, e) for e in ends) + 1)
    return values.astype(operand.dtype), start


def as_result(operand: Operand, contraction: Contraction, buffer: Any, start: int) -> Any:
    """The tensor with D's modes as axes, where it does not vary of stride 0."""
    modes, size = contraction.d.modes, itemsize(operand.dtype)
    assert math.prod(contraction.extents[m] for m in modes) > 0
    return np.lib.stride_tricks.as_strided(
        buffer[start:],
        [contraction.extents[m] for m in modes],
        [operand.stride(m) // size * buffer.itemsize for m in modes],
    )
