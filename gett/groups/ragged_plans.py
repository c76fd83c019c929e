"""A ragged contraction as a batched matrix product: of all rows, and of the share that a problem has in the mean.

The problems are its slowest batch mode. With all rows, each problem begins at the first one: tensors that have the
ragged mode do not vary along the problems, and a kernel finds its rows by itself. Knows neither tiles nor kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gett.groups.layouts import Arithmetic
from gett.groups.ragged import RaggedModes
from gett.ir.build import address, make_contraction
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import A, B, D, GemmPlan, make_gemm_plan
from gett.ir.tensors import TensorSpec
from layouts.modes import Strided

SHORTEST = 32
"""Rows of a problem, at least, for which a tile is chosen."""
WHOLE = 64
"""Rows to whose multiples more are rounded up, as whole rows of a swizzle."""


@dataclass(frozen=True, slots=True)
class RaggedPlans:
    """A ragged contraction.

    Attributes:
        whole: The product of all rows. The ragged mode's strides are 16 bytes more than they are in tensors whose maps
            are clipped: those of sums in A and B, of others in D. So no map has it in one dimension with another mode.
        usual: The same where each problem has its share of the rows, rounded up; strides are as they are.
        group: The group that has the ragged mode and no other.
        row_length: Elements of that mode for each row: modes inside of it are fused with it.
    """

    whole: GemmPlan
    usual: GemmPlan
    group: Literal["m", "n", "k"]
    row_length: int


def ragged_contraction(modes: RaggedModes, tensors: Sequence[TensorSpec], arithmetic: Arithmetic) -> Contraction:
    """The contraction of one problem that has all rows."""
    names = tuple(dict.fromkeys("".join(modes.terms).replace(modes.problem, "")))
    extents = [0] * len(names)
    operands = []
    for term, x in zip(modes.terms, tensors, strict=True):
        axes = [i for i, label in enumerate(term) if label != modes.problem]
        numbers = [names.index(term[i]) for i in axes]
        one = replace(x, shape=tuple(x.shape[i] for i in axes), strides=tuple(x.strides[i] for i in axes))
        for number, extent in zip(numbers, one.shape, strict=True):
            extents[number] = extent
        operands.append((numbers, one))
    first, second, own = (address(numbers, x, extents, x.conj and x.dtype.kind == "c") for numbers, x in operands)
    return make_contraction(names, extents, first, second, own, None, arithmetic.dtype, arithmetic.precision)


def problem_steps(modes: RaggedModes, tensors: Sequence[TensorSpec]) -> tuple[int, int, int]:
    """Bytes from problem to problem in the operands and in the result, 0 where these do not vary."""
    found = [
        x.strides[term.index(modes.problem)] if modes.problem in term and x.shape[term.index(modes.problem)] > 1 else 0
        for term, x in zip(modes.terms, tensors, strict=True)
    ]
    return found[0], found[1], found[2]


def ragged_plans(
    modes: RaggedModes, tensors: Sequence[TensorSpec], arithmetic: Arithmetic, count: int
) -> RaggedPlans | None:
    """The products; None where a mode is empty, or the ragged one has one row, or others are summed apart from it."""
    contraction = ragged_contraction(modes, tensors, arithmetic)
    if count == 0 or 0 in contraction.extents:
        return None
    plan = make_gemm_plan(contraction)
    ragged = contraction.names.index(modes.ragged)
    groups: tuple[tuple[Literal["m", "n", "k"], tuple[Strided, ...]], ...]
    groups = (("m", plan.m), ("n", plan.n), ("k", plan.k))
    found = next(((group, own, s) for group, own in groups for s in own if ragged in s.labels), None)
    if found is None:
        return None
    group, own, mode = found
    rows, outer = _cut_behind(mode, ragged, contraction.extents)
    row_length = rows.extent // contraction.extents[ragged]
    rest = [s for s in own if s is not mode] + ([outer] if outer is not None else [])
    if group == "k" and rest:
        return None
    steps = problem_steps(modes, tensors)
    if plan.swapped:
        steps = steps[1], steps[0], steps[2]
    share = max(SHORTEST, -(-contraction.extents[ragged] // count))
    share = share if share <= SHORTEST else -(-share // WHOLE) * WHOLE
    plans = []
    for extent, shift in ((rows.extent, 16), (share * row_length, 0)):
        strides = list(rows.strides)
        for tensor in (A, B) if group == "k" else (D,):
            strides[tensor] += shift
        along = [0 if shift else x * extent for x in rows.strides]
        problem = [step or x for step, x in zip((*steps, 0), along, strict=True)]
        numbered = _numbered(contraction, problem, ragged, share, count)
        batches = (*plan.l, *rest, Strided((len(contraction.names),), count, tuple(problem)))
        own = (Strided(rows.labels, extent, tuple(strides)),)
        made = replace(plan, contraction=numbered, l=batches)
        plans.append(replace(made, **{group: own}))  # type: ignore[arg-type]
    return RaggedPlans(plans[0], plans[1], group, row_length)


def _cut_behind(mode: Strided, label: int, extents: Sequence[int]) -> tuple[Strided, Strided | None]:
    """A fused mode up to one of its labels, and what lies outside of that."""
    at = mode.labels.index(label) + 1
    extent = math.prod(extents[x] for x in mode.labels[:at] if isinstance(x, int))
    if extent == mode.extent:
        return mode, None
    outer = Strided(mode.labels[at:], mode.extent // extent, tuple(x * extent for x in mode.strides))
    return Strided(mode.labels[:at], extent, mode.strides), outer


def _numbered(contraction: Contraction, steps: Sequence[int], ragged: int, share: int, count: int) -> Contraction:
    """The contraction of problems that have equal shares of the rows, numbered by one more mode."""
    extents = [share if i == ragged else x for i, x in enumerate(contraction.extents)]
    number = len(extents)

    def with_number(x: Operand, step: int) -> Operand:
        return replace(x, modes=(*x.modes, number), strides=(*x.strides, step))

    a, b, d = contraction.a, contraction.b, contraction.d
    assert b is not None
    return replace(
        contraction,
        names=(*contraction.names, "#"),
        extents=(*extents, count),
        a=with_number(a, steps[A]),
        b=with_number(b, steps[B]),
        d=with_number(d, steps[D]),
    )
