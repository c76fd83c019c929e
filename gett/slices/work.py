"""`SliceWork`: the slices of a contraction as work: what runs once, the plan of a slice, and sums of slices.

Owns the requests of these plans and the arrays that slices read. What is done with the sums is `SlicedPlan`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY, ArrayKind
from gett.ir.subscripts import Spec, Subscripts, parse
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec, factor_dtype
from gett.network.path import path_of
from gett.network.request import PlanRequest
from gett.network.slicing import Network, Slicing, once
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.views import Place, SliceGrid, part_spec, sliced_axes, view


@dataclass(frozen=True, slots=True)
class Once:
    """Operands that are contracted before the slices, which all read the result.

    Attributes:
        places: Of the operands.
        modes: Of the result.
        plan: Contracts them.
    """

    places: tuple[int, ...]
    modes: tuple[int, ...]
    plan: ContractionPlan


class SliceWork:
    """The slices of a contraction, without factors, `c` and epilogue.

    Attributes:
        grid: The slices in order.
        lengths: Each sliced mode with its extent in a slice.
        once: What runs before the slices.
        replan: Finds the plan of another request.
    """

    def __init__(
        self, bare: PlanRequest, network: Network, way: Slicing, replan: Callable[..., ContractionPlan]
    ) -> None:
        """Plan what runs once.

        Args:
            bare: The contraction alone, with the dtype that it is computed in.
            network: What its path amounts to.
            way: How it is sliced.
            replan: Finds the plan of another request.
        """
        parsed = parse(bare.spec, [len(t.shape) for t in bare.operands])
        shapes = [t.shape for t in bare.operands]
        self.replan = replan
        self.lengths = dict(way.lengths)
        self.grid = SliceGrid.of(way.lengths, network.extents, network.output)
        self.once, self._variable, self._bare = _divided(bare, parsed, network, way, replan)
        self._axes = tuple(sliced_axes(parsed.inputs[i], shapes[i], network.extents, way) for i in self._variable)

    def part(self, lengths: Mapping[int, int], sums: TensorSpec, *, add: bool) -> ContractionPlan:
        """The plan of a slice of some extents, which writes its sums or adds to them."""
        place = {m: slice(0, n) for m, n in lengths.items()}
        given = self._bare.operands
        specs = [part_spec(x, axes, place, self.lengths) for x, axes in zip(given, self._axes, strict=False)]
        made = replace(
            self._bare, operands=(*specs, *given[len(specs) :]), c=sums if add else None, out=sums, sums=True
        )
        return self.replan(made)

    def reading(self, kind: ArrayKind, device: int, operands: Sequence[Any]) -> SliceRun:
        """The slices of some operands; what runs once is computed here."""
        kept = [x.plan.run(kind, device, [operands[i] for i in x.places]) for x in self.once]
        kept = [np.asarray(x) if kind is NUMPY else x for x in kept]  # of rank 0 a plan gives a scalar
        return SliceRun(self, kind, device, [operands[i] for i in self._variable], kept, self._axes)


class SliceRun:
    """The slices of a contraction of some arrays."""

    def __init__(
        self,
        work: SliceWork,
        kind: ArrayKind,
        device: int,
        variable: Sequence[Any],
        kept: Sequence[Any],
        axes: Sequence[tuple[tuple[int, int], ...]],
    ) -> None:
        """Made by `SliceWork.reading`.

        Args:
            work: The slices.
            kind: Of the arrays.
            device: Where they are.
            variable: Operands of which a slice reads a part.
            kept: What all slices read.
            axes: The sliced axes of each of `variable`.
        """
        self._work, self._kind, self._device = work, kind, device
        self._variable, self._kept, self._axes = variable, kept, axes
        self._plans: dict[Any, ContractionPlan] = {}

    def sum(self, outer: Place, numbers: Iterable[int], sums: Any, *, adds: bool = False, factor: Any = 1) -> None:
        """Write the sum of some slices of a part of the result, one after the other.

        Args:
            outer: The part.
            numbers: Which of its slices.
            sums: Where they are summed.
            adds: Whether what `sums` holds counts.
            factor: Of what `sums` holds.
        """
        kind, spec = self._kind, self._kind.describe(sums)
        for number in numbers:
            place = {**outer, **self._work.grid.slice(number)}
            views = [view(x, axes, place) for x, axes in zip(self._variable, self._axes, strict=True)]
            lengths = {m: x.stop - x.start for m, x in place.items()}
            key = spec, adds, *lengths.items()
            plan = self._plans.get(key) or self._plans.setdefault(key, self._work.part(lengths, spec, add=adds))
            plan.run(kind, self._device, [*views, *self._kept], sums if adds else None, sums, 1, factor if adds else 0)
            adds, factor = True, 1


def _divided(
    bare: PlanRequest,
    parsed: Subscripts,
    network: Network,
    way: Slicing,
    replan: Callable[..., ContractionPlan],
) -> tuple[tuple[Once, ...], tuple[int, ...], PlanRequest]:
    """What runs once, the operands that slices read themselves, and the request of all slices as one.

    The operands of that request are those that slices read, then the results of what runs once.
    """
    count_operands = len(bare.operands)
    fixed = once(network, dict(way.lengths)) if way.keeps else frozenset[int]()
    later = [s for s in network.steps if s.output not in fixed]
    roots = sorted({i for s in later for i in s.inputs if i >= count_operands and i in fixed})
    steps = {s.output: s for s in network.steps}
    spec: Spec = bare.spec
    parts = []
    for root in roots:
        tree = [root]
        for i in tree:
            tree += steps[i].inputs if i in steps else ()
        places = tuple(sorted(i for i in tree if i < count_operands))
        inner = sorted(i for i in tree if i >= count_operands)
        modes = steps[root].modes
        operands = tuple(bare.operands[i] for i in places)
        real = all(t.dtype.kind != "c" for t in operands)
        assert isinstance(bare.dtype, np.dtype)
        made = replace(
            bare, spec=(*(parsed.inputs[i] for i in places), modes), operands=operands,
            dtype=factor_dtype(np.dtype(float), bare.dtype) if real else bare.dtype,
            optimize=path_of(places, [(*steps[i].inputs, i) for i in inner]), conj=_flags(bare.conj, places),
        )  # fmt: skip
        parts.append(Once(places, modes, replan(made)))
    taken = {i for x in parts for i in x.places}
    variable = tuple(i for i in range(count_operands) if i not in taken)
    if parts:
        spec = (*(parsed.inputs[i] for i in variable), *(x.modes for x in parts), parsed.output)
    alignment = 1 if bare.arch == "cpu" else ALIGNMENT_LIMIT
    results = [replace(x.plan.result.d, alignment=alignment) for x in parts]
    flags = _flags(bare.conj, variable)
    return (
        tuple(parts),
        variable,
        replace(
            bare, spec=spec, operands=(*(bare.operands[i] for i in variable), *results),
            optimize=path_of((*variable, *roots), [(*s.inputs, s.output) for s in later]),
            conj=None if flags is None else (*flags, *(False for _ in parts)),
        ),
    )  # fmt: skip


def _flags(conj: tuple[bool, ...] | None, places: Sequence[int]) -> tuple[bool, ...] | None:
    found = () if conj is None else tuple(conj[i] for i in places)
    return found if any(found) else None
