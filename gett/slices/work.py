"""`SliceWork`: the slices of a contraction as work: what runs once, the plan of a slice, and sums of slices.

Owns the requests of these plans and the arrays that slices read. What is done with the sums is `SlicedPlan`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gett.arrays.exponents import larger, scale
from gett.arrays.kinds import NUMPY, ArrayKind
from gett.graphs.replay import Arena
from gett.ir.subscripts import Spec, Subscripts, parse
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec, dense_strides, factor_dtype
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
        variable: Operands of which a slice reads a part or all, the others are read by `once`.
        axes: The sliced axes of each of `variable`.
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
        self.once, self.variable, self._bare = _divided(bare, parsed, network, way, replan)
        self.axes = tuple(sliced_axes(parsed.inputs[i], shapes[i], network.extents, way) for i in self.variable)
        self._plans: dict[Any, ContractionPlan] = {}

    @property
    def read_once(self) -> set[int]:
        """Operands that `once` reads."""
        return {i for x in self.once for i in x.places}

    def part(
        self, lengths: Mapping[int, int], sums: TensorSpec, *, add: bool, dense: frozenset[int] = frozenset()
    ) -> ContractionPlan:
        """The plan of a slice of some extents, which writes its sums or adds to them.

        Args:
            lengths: Each sliced mode with its extent.
            sums: Where the sums are formed.
            add: Whether it adds.
            dense: Which of `variable` are there slice by slice, each a dense array.
        """
        key = sums, add, dense, *lengths.items()
        plan = self._plans.get(key)
        return self._plans.setdefault(key, self._part(lengths, sums, add, dense)) if plan is None else plan

    def _part(self, lengths: Mapping[int, int], sums: TensorSpec, add: bool, dense: frozenset[int]) -> ContractionPlan:
        place = {m: slice(0, n) for m, n in lengths.items()}
        given = self._bare.operands
        specs = [part_spec(x, axes, place, self.lengths) for x, axes in zip(given, self.axes, strict=False)]
        specs = [packed(x) if i in dense else x for i, x in enumerate(specs)]
        made = replace(
            self._bare, operands=(*specs, *given[len(specs) :]), c=sums if add else None, out=sums, sums=True
        )
        return self.replan(made)

    def keep(self, kind: ArrayKind, device: int, operands: Sequence[Any]) -> list[Any]:
        """What all slices read: results of what runs once."""
        with Arena(records=False):  # what they would keep lies beside the slices
            kept = [x.plan.run(kind, device, [operands[i] for i in x.places]) for x in self.once]
        return [np.asarray(x) if kind is NUMPY else x for x in kept]  # of rank 0 a plan gives a scalar

    def keep_stripped(self, kind: ArrayKind, device: int, operands: Sequence[Any]) -> tuple[list[Any], Any]:
        """`keep`, each result divided by a power of two; the sum of these powers."""
        kept, powers = [], []
        for x in self.once:
            d = kind.empty(x.plan.shape, x.plan.dtype)
            powers.append(x.plan.write_stripped(kind, device, [operands[i] for i in x.places], d))
            kept.append(d)
        return kept, sum(powers)

    def reading(
        self, kind: ArrayKind, device: int, operands: Sequence[Any], kept: Sequence[Any] | None = None
    ) -> SliceRun:
        """The slices of some operands; what runs once is computed here, unless it is given."""
        read = [(operands[i], axes) for i, axes in zip(self.variable, self.axes, strict=True)]
        views = partial(_views, read)
        return SliceRun(self, kind, device, self.keep(kind, device, operands) if kept is None else kept, views)


def packed(spec: TensorSpec) -> TensorSpec:
    """The description of a new dense array with the same elements."""
    return replace(spec, strides=dense_strides(spec.shape, spec.dtype.itemsize), alignment=ALIGNMENT_LIMIT)


def order_of(spec: TensorSpec) -> str:
    """The memory order of a new array of a dense one's strides."""
    return "C" if spec.strides == dense_strides(spec.shape, spec.dtype.itemsize) else "F"


def _views(read: Sequence[tuple[Any, Sequence[tuple[int, int]]]], place: Place) -> list[Any]:
    return [view(x, axes, place) for x, axes in read]


class SliceRun:
    """The slices of a contraction of some arrays."""

    def __init__(
        self,
        work: SliceWork,
        kind: ArrayKind,
        device: int,
        kept: Sequence[Any],
        views: Callable[[Place], Sequence[Any]],
        dense: frozenset[int] = frozenset(),
    ) -> None:
        """Made by `SliceWork.reading`, or where slices are not views of operands.

        Args:
            work: The slices.
            kind: Of the arrays.
            device: Where they are.
            kept: What all slices read.
            views: What a slice reads of each of `SliceWork.variable`.
            dense: As `SliceWork.part` has it.
        """
        self._work, self._kind, self._device = work, kind, device
        self._kept, self._views, self._dense = kept, views, dense
        self._arena = Arena()

    def sum(self, outer: Place, numbers: Iterable[int], sums: Any, *, adds: bool = False, factor: Any = 1) -> None:
        """Write the sum of some slices of a part of the result, one after the other.

        Args:
            outer: The part.
            numbers: Which of its slices.
            sums: Where they are summed.
            adds: Whether what `sums` holds counts.
            factor: Of what `sums` holds.
        """
        for number in numbers:
            self.add(outer, number, sums, adds=adds, factor=factor)
            adds, factor = True, 1

    def sum_stripped(self, outer: Place, numbers: Iterable[int], sums: Any) -> Any:
        """Write the sum of some slices of a part of the result, divided by a power of two; returns the power.

        Each slice has a power of its own. Of two the one of lower power is scaled before they are added.
        """
        kind, total, one = self._kind, None, None
        described = kind.describe(sums)
        for number in numbers:
            place = {**outer, **self._work.grid.slice(number)}
            lengths = {m: x.stop - x.start for m, x in place.items()}
            plan = self._work.part(lengths, described, add=False, dense=self._dense)
            operands = [*self._views(place), *self._kept]
            if total is None:
                total = plan.write_stripped(kind, self._device, operands, sums)
                continue
            one = kind.empty(sums.shape, described.dtype, order_of(described)) if one is None else one
            power = plan.write_stripped(kind, self._device, operands, one)
            most = larger(kind, total, power)
            scale(kind, sums, total - most)
            scale(kind, one, power - most)
            sums += one
            total = most
        return total

    def add(self, outer: Place, number: int, sums: Any, *, adds: bool, factor: Any = 1) -> None:
        """Write one slice of a part of the result, or add it to what `sums` holds times a factor."""
        place = {**outer, **self._work.grid.slice(number)}
        lengths = {m: x.stop - x.start for m, x in place.items()}
        plan = self._work.part(lengths, self._kind.describe(sums), add=adds, dense=self._dense)
        operands = [*self._views(place), *self._kept]
        with self._arena:
            plan.run(self._kind, self._device, operands, sums if adds else None, sums, 1, factor if adds else 0)


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
