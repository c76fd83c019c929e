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
    """A ragged contraction whose rows are not summed.

    Attributes:
        whole: The product of all rows.
        usual: The same where each problem has its share of the rows, rounded up.
        group: The group that has the ragged mode and no other.
        row_length: Elements of that mode for each row: modes inside of it are fused with it.
        d_step: Bytes in D from element to element of the mode. In `whole` they are 16 more, so that no map of D has
            the mode in one dimension with another.
    """

    whole: GemmPlan
    usual: GemmPlan
    group: Literal["m", "n"]
    row_length: int
    d_step: int


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
    """The products; None where rows are summed, or one of the modes is empty, or the ragged one has one row."""
    contraction = ragged_contraction(modes, tensors, arithmetic)
    if modes.sums or count == 0 or 0 in contraction.extents:
        return None
    plan = make_gemm_plan(contraction)
    ragged = contraction.names.index(modes.ragged)
    group: Literal["m", "n"] = "m" if any(ragged in s.labels for s in plan.m) else "n"
    own = plan.m if group == "m" else plan.n
    mode = next((s for s in own if ragged in s.labels), None)
    if mode is None:
        return None
    rows, outer = _cut_behind(mode, ragged, contraction.extents)
    row_length = rows.extent // contraction.extents[ragged]
    rest = [s for s in own if s is not mode] + ([outer] if outer is not None else [])
    steps = problem_steps(modes, tensors)
    if plan.swapped:
        steps = steps[1], steps[0], steps[2]
    share = max(SHORTEST, -(-contraction.extents[ragged] // count))
    share = share if share <= SHORTEST else -(-share // WHOLE) * WHOLE
    plans = []
    for extent, shift in ((rows.extent, 16), (share * row_length, 0)):
        strides = list(rows.strides)
        strides[D] += shift
        along = [0 if shift else x * extent for x in rows.strides]
        problem = [step or x for step, x in zip((*steps, 0), along, strict=True)]
        numbered = _numbered(contraction, problem, ragged, share, count)
        batches = (*plan.l, *rest, Strided((len(contraction.names),), count, tuple(problem)))
        mode = Strided(rows.labels, extent, tuple(strides))
        made = replace(plan, contraction=numbered, l=batches)
        plans.append(replace(made, m=(mode,)) if group == "m" else replace(made, n=(mode,)))
    return RaggedPlans(plans[0], plans[1], group, row_length, rows.strides[D])


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
