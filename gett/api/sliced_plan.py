"""`SlicedPlan`: a contraction whose slices run one after the other, each by a plan of its own.

Owns the views that a slice reads and writes, what is computed once, and how results of slices become the result. Which
labels are sliced is `gett.network.slicing`'s and `gett.api.limited`'s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.api.contraction_plan import ContractionPlan
from gett.api.slice_views import Place, part_spec, sliced_axes, view
from gett.arrays.kinds import NUMPY, ArrayKind
from gett.console.formatting import count, printable
from gett.epilogue.expression import Extra
from gett.hw.dtypes import data_type
from gett.ir.subscripts import Spec, Subscripts, parse
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec, dense_strides, factor_dtype, sum_dtype
from gett.network.path import Path, path_of
from gett.network.request import PlanRequest
from gett.network.slicing import Network, Slicing, count_slices, once


@dataclass(frozen=True, slots=True)
class _Once:
    """Operands that are contracted before the slices, which all read the result.

    Attributes:
        places: Of the operands.
        modes: Of the result.
        plan: Contracts them.
    """

    places: tuple[int, ...]
    modes: tuple[int, ...]
    plan: ContractionPlan


class SlicedPlan(ContractionPlan):
    """A contraction that is cut along some labels, so that a call keeps to a limit of memory.

    `steps` are the contractions that run once, then those of one slice.
    """

    __slots__ = (
        "_axes",
        "_bare",
        "_first",
        "_free_flops",
        "_network",
        "_once",
        "_parsed",
        "_sums_in",
        "_variable",
        "_way",
    )

    def __init__(
        self,
        request: PlanRequest,
        free: ContractionPlan,
        path: Path,
        network: Network,
        way: Slicing,
        replan: Callable[..., ContractionPlan],
    ) -> None:
        """Made by `gett.plan`.

        Args:
            request: What was asked for, with its limit.
            free: The plan without slices.
            path: Of all operands.
            network: What the path amounts to.
            way: How it is sliced.
            replan: Finds the plan of another request.
        """
        self._network, self._way, self._free_flops = network, way, free.flops
        self._parsed = parse(request.spec, [len(t.shape) for t in request.operands])
        dtype = free.dtype
        # An epilogue sees sums in the accumulator's type; without one, sums of 16 bits are rounded once.
        wide = data_type(dtype.name).accumulator if request.epilogue is not None else sum_dtype(dtype).name
        self._sums_in = np.dtype(wide)
        bare = replace(
            request, c=None, out=None, order="C", casting="unsafe", epilogue=None, epilogue_args=(), memory_limit=None,
            dtype=dtype, complex_factors=False,
        )  # fmt: skip
        self._once, self._variable, self._bare = _divided(bare, self._parsed, network, way, replan)
        shapes = [t.shape for t in request.operands]
        inputs = self._parsed.inputs
        self._axes = tuple(sliced_axes(inputs[i], shapes[i], network.extents, way) for i in self._variable)
        super().__init__(request, free.subscripts, (), path, *free.result, [t.dtype for t in request.operands], replan)
        self._own_place = (False,) * len(shapes)  # a later slice reads what an earlier one would write over
        self._real_factors = False  # factors enter behind the products
        self._first = self._part(self._lengths, self._spec_of_sums(self._lengths, self._kept_apart), add=False)
        self._show_steps()

    @property
    def _lengths(self) -> dict[int, int]:
        return dict(self._way.lengths)

    @property
    def _kept_apart(self) -> bool:
        """Whether sums are formed beside the result, as far as the request tells."""
        request = self._request
        itself = request.c is not None and request.c == request.out
        return self._sums_in != self.dtype or (itself and request.epilogue is not None)

    def _show_steps(self) -> None:
        self.steps = (*(s for x in self._once for s in x.plan.steps), *self._first.steps)

    # --- what it says of itself

    @property
    def slices(self) -> int:
        """How many slices a call computes one after the other."""
        return count_slices(self._way.lengths, self._network.extents)

    @property
    def sliced(self) -> str:
        """The labels along which the contraction is sliced."""
        return self._parsed.spell(self._lengths)

    @property
    def once(self) -> int:
        """How many steps run once, since they depend on no sliced operand."""
        return sum(len(x.plan.steps) for x in self._once)

    @property
    def overhead(self) -> float:
        """Floating-point operations as a multiple of those without slices."""
        return self.flops / self._free_flops if self._free_flops else 1.0

    @property
    def flops(self) -> int:
        """Floating-point operations of all steps of all slices."""
        return sum(x.plan.flops for x in self._once) + self.slices * self._first.flops

    @property
    def bytes(self) -> int:
        """Least traffic of all steps of all slices: each of their tensors once."""
        return sum(x.plan.bytes for x in self._once) + self.slices * self._first.bytes

    @property
    def intermediate_bytes(self) -> int:
        """Most memory that intermediates hold at one time, those that all slices read among them."""
        return self._kept_bytes + self._first.intermediate_bytes

    @property
    def largest_intermediate(self) -> int:
        """Elements of the largest intermediate."""
        parts = [max(math.prod(x.plan.shape), x.plan.largest_intermediate) for x in self._once]
        return max([*parts, self._first.largest_intermediate])

    @property
    def _kept_bytes(self) -> int:
        return sum(x.plan.result.d.nbytes for x in self._once)

    @property
    def peak_bytes(self) -> int:
        """Most memory that a call holds at one time: intermediates, what is kept, workspace, a new result."""
        held = most = 0
        for x in self._once:
            most = max(most, held + x.plan.peak_bytes)
            held += x.plan.result.d.nbytes
        sums = self._spec_of_sums(self._lengths, self._kept_apart)
        parts = [self._first.peak_bytes]
        if any(m not in self._network.output for m in self._lengths):
            parts.append(self._part(self._lengths, sums, add=True).peak_bytes)
        request = self._request
        if request.c is not None or request.epilogue is not None:
            place = {m: slice(0, n) for m, n in self._way.lengths}
            c = None if request.c is None else part_spec(request.c, self._last_axes(len(request.c.shape)), place)
            extras = [part_spec(request.epilogue_args[x.argument], axes, place) for x, axes in self._extras()]
            parts.append(self._finish(sums, c, extras).peak_bytes)
        held += self._result_bytes + (sums.nbytes if self._kept_apart else 0)
        return max(most, held + max(parts))

    def compile(self) -> SlicedPlan:
        """Compile the kernels of what runs once and of a slice."""
        for x in self._once:
            x.plan.compile()
        self._first.compile()
        self._part(self._lengths, self._spec_of_sums(self._lengths, self._kept_apart), add=True).compile()
        self._show_steps()
        return self

    def __repr__(self) -> str:
        return f"<SlicedPlan {printable(self.subscripts)} on {self.arch}, {count(self.slices, 'slice')}>"

    # --- how it runs

    def _write(
        self,
        kind: ArrayKind,
        device: int,
        operands: Sequence[Any],
        c: Any,
        d: Any,
        alpha: Any,
        beta: Any,
        extras: Sequence[Any],
    ) -> None:
        """Write the result slice by slice."""
        kept = [x.plan.run(kind, device, [operands[i] for i in x.places]) for x in self._once]
        kept = [np.asarray(x) if kind is NUMPY else x for x in kept]  # of rank 0 a plan gives a scalar
        variable = [operands[i] for i in self._variable]
        itself = c is not None and kind.pointer(c) == kind.pointer(d) and kind.describe(c) == kind.describe(d)
        plain = alpha == 1 and self._request.epilogue is None
        apart = self._sums_in != self.dtype or (itself and not plain)
        plans: dict[Any, ContractionPlan] = {}
        finishes = apart or not plain or (c is not None and not itself)
        for outer, places in self._places():
            target = view(d, self._output_axes, outer)
            sums = kind.empty(target.shape, self._sums_in, self._order) if apart else target
            spec = kind.describe(sums)
            for number, place in enumerate(places):
                views = [view(x, axes, place) for x, axes in zip(variable, self._axes, strict=True)]
                lengths = {m: x.stop - x.start for m, x in place.items()}
                adds = number > 0 or (itself and not apart)
                key = spec, adds, *lengths.values()
                plan = plans.get(key) or plans.setdefault(key, self._part(lengths, spec, add=adds))
                factor = 1 if number else beta
                plan.run(kind, device, [*views, *kept], sums if adds else None, sums, 1, factor if adds else 0)
            if finishes:
                added = None if c is None else view(c, self._last_axes(len(c.shape)), outer)
                further = [view(extras[x.argument], axes, outer) for x, axes in self._extras()]
                last = self._finish(spec, None if added is None else kind.describe(added), map(kind.describe, further))
                last.run_into(kind, device, [sums], added, sums, alpha, beta, further)
            if apart:
                kind.copy(target, sums)

    def _places(self) -> Iterator[tuple[Place, Iterator[Place]]]:
        """Each part of the result, with the slices that are summed into it, always in the same order."""
        ranges = {
            m: [slice(i, min(i + n, self._network.extents[m])) for i in range(0, self._network.extents[m], n)]
            for m, n in self._way.lengths
        }
        outer = [m for m in ranges if m in self._network.output]
        inner = [m for m in ranges if m not in self._network.output]
        for part in itertools.product(*(ranges[m] for m in outer)):
            place = dict(zip(outer, part, strict=True))
            summed = itertools.product(*(ranges[m] for m in inner))
            yield place, ({**place, **dict(zip(inner, x, strict=True))} for x in summed)

    def _part(self, lengths: Mapping[int, int], sums: TensorSpec, *, add: bool) -> ContractionPlan:
        """The plan of a slice of some extents, which writes its sums or adds to them."""
        place = {m: slice(0, n) for m, n in lengths.items()}
        steps = self._lengths
        given = self._bare.operands
        specs = [part_spec(x, axes, place, steps) for x, axes in zip(given, self._axes, strict=False)]
        made = replace(
            self._bare, operands=(*specs, *given[len(specs) :]), c=sums if add else None, out=sums, sums=True
        )
        found: ContractionPlan = self._replan(made)
        return found

    def _finish(self, sums: TensorSpec, c: TensorSpec | None, extras: Any) -> ContractionPlan:
        """The plan of what is done with the sums of all slices, in place: factors, `c` and the epilogue."""
        function, labels = self._request.epilogue, tuple(range(len(sums.shape)))
        if function is not None:
            read = tuple(Extra(i, x.axes) for i, x in enumerate(function.extras))
            function = replace(function, arguments=len(read), extras=read)
        made = replace(
            self._bare, spec=(labels, labels), operands=(sums,), c=c, out=sums, dtype=sums.dtype, conj=None,
            optimize=True, epilogue=function, epilogue_args=tuple(extras), precision=None,
        )  # fmt: skip
        found: ContractionPlan = self._replan(made)
        return found

    def _spec_of_sums(self, lengths: Mapping[int, int], apart: bool) -> TensorSpec:
        """Where the sums of a part are formed: in the result, or beside it."""
        place = {m: slice(0, n) for m, n in lengths.items()}
        own = self._request.out
        spec = own if own is not None and not self._through_copy else self._d
        found = part_spec(spec, self._output_axes, place, self._lengths)
        if not apart:
            return found
        strides = dense_strides(found.shape, self._sums_in.itemsize, self._order)
        return TensorSpec(found.shape, strides, self._sums_in, 1 if self.arch == "cpu" else ALIGNMENT_LIMIT)

    @property
    def _output_axes(self) -> tuple[tuple[int, int], ...]:
        return tuple((i, m) for i, m in enumerate(self._network.output) if m in self._lengths)

    def _last_axes(self, rank: int) -> tuple[tuple[int, int], ...]:
        """The sliced axes of a tensor of some rank that broadcasts to the result."""
        skipped = len(self._network.output) - rank
        return tuple((i - skipped, m) for i, m in self._output_axes if i >= skipped)

    def _extras(self) -> list[tuple[Extra, tuple[tuple[int, int], ...]]]:
        """The tensors that the epilogue reads, with the axes of each that are sliced."""
        function = self._request.epilogue
        if function is None:
            return []
        return [
            (x, tuple((x.axes[i], m) for i, m in self._last_axes(len(x.axes)) if x.axes[i] >= 0))
            for x in function.extras
        ]


def _divided(
    bare: PlanRequest,
    parsed: Subscripts,
    network: Network,
    way: Slicing,
    replan: Callable[..., ContractionPlan],
) -> tuple[tuple[_Once, ...], tuple[int, ...], PlanRequest]:
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
        parts.append(_Once(places, modes, replan(made)))
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
