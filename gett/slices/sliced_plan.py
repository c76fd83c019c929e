"""`SlicedPlan`: a contraction whose slices run one after the other, each by a plan of its own.

Owns the views that a slice reads and writes, what is computed once, and how results of slices become the result. Which
labels are sliced is `gett.network.slicing`'s and `gett.slices.limited`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.arrays.exponents import larger, scale, take_power
from gett.arrays.kinds import ArrayKind
from gett.console.formatting import count, printable
from gett.epilogue.expression import Extra
from gett.hw.dtypes import data_type
from gett.ir.subscripts import parse
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec, dense_strides, sum_dtype
from gett.network.path import Path
from gett.network.request import PlanRequest
from gett.network.running import Ending
from gett.network.slicing import Network, Slicing
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.views import Place, part_spec, view
from gett.slices.work import SliceWork


@dataclass(frozen=True, slots=True)
class Subject:
    """What is sliced, and how.

    Attributes:
        free: The plan without slices.
        path: Of all operands.
        network: What the path amounts to.
        way: How it is sliced.
    """

    free: ContractionPlan
    path: Path
    network: Network
    way: Slicing


class SlicedPlan(ContractionPlan):
    """A contraction that is cut along some labels, so that a call keeps to a limit of memory.

    `steps` are the contractions that run once, then those of one slice.

    Attributes:
        unsliced: The plan without slices.
    """

    __slots__ = (
        "_bare",
        "_first",
        "_network",
        "_parsed",
        "_sums_in",
        "_work",
        "unsliced",
    )

    def __init__(self, request: PlanRequest, subject: Subject, replan: Callable[..., ContractionPlan]) -> None:
        """Made by `gett.plan`.

        Args:
            request: What was asked for, with its limit.
            subject: What is sliced.
            replan: Finds the plan of another request.
        """
        free = subject.free
        self._network, self.unsliced = subject.network, free
        self._parsed = parse(request.spec, [len(t.shape) for t in request.operands])
        dtype = free.dtype
        # An epilogue sees sums in the accumulator's type; without one, sums of 16 bits are rounded once.
        wide = data_type(dtype.name).accumulator if request.epilogue is not None else sum_dtype(dtype).name
        self._sums_in = np.dtype(wide)
        bare = bare_request(request, dtype)
        self._bare, self._work = bare, SliceWork(bare, subject.network, subject.way, replan)
        read = [t.dtype for t in request.operands]
        super().__init__(request, free.subscripts, (), subject.path, *free.result, read, replan)
        self._own_place = (False,) * len(request.operands)  # a later slice reads what an earlier one would write over
        self._real_factors = False  # factors enter behind the products
        self._first = self._work.part(self.lengths, self._spec_of_sums, add=False)
        self._show_steps()

    @property
    def lengths(self) -> dict[int, int]:
        """Each sliced mode with its extent in a slice."""
        return self._work.lengths

    @property
    def _kept_apart(self) -> bool:
        """Whether sums are formed beside the result, as far as the request tells."""
        request = self._request
        itself = request.c is not None and request.c == request.out
        return self._sums_in != self.dtype or (itself and request.epilogue is not None)

    def _show_steps(self) -> None:
        self.steps = (*(s for x in self._work.once for s in x.plan.steps), *self._first.steps)

    # --- what it says of itself

    @property
    def slices(self) -> int:
        """How many slices a call computes one after the other."""
        return self._work.grid.parts * self._work.grid.summed

    @property
    def sliced(self) -> str:
        """The labels along which the contraction is sliced."""
        return self._parsed.spell(self.lengths)

    @property
    def once(self) -> int:
        """How many steps run once, since they depend on no sliced operand."""
        return sum(len(x.plan.steps) for x in self._work.once)

    @property
    def graphs(self) -> int:
        """How many CUDA graphs play the steps: one for each slice and for each part that runs once."""
        return sum(x.plan.graphs for x in self._work.once) + self.slices * self._first.graphs

    @property
    def overhead(self) -> float:
        """Floating-point operations as a multiple of those without slices."""
        return self.flops / self.unsliced.flops if self.unsliced.flops else 1.0

    @property
    def flops(self) -> int:
        """Floating-point operations of all steps of all slices."""
        return sum(x.plan.flops for x in self._work.once) + self.slices * self._first.flops

    @property
    def bytes(self) -> int:
        """Least traffic of all steps of all slices: each of their tensors once."""
        return sum(x.plan.bytes for x in self._work.once) + self.slices * self._first.bytes

    @property
    def intermediate_bytes(self) -> int:
        """Most memory that intermediates hold at one time, those that all slices read among them."""
        return self._kept_bytes + self._first.intermediate_bytes

    @property
    def largest_intermediate(self) -> int:
        """Elements of the largest intermediate."""
        parts = [max(math.prod(x.plan.shape), x.plan.largest_intermediate) for x in self._work.once]
        return max([*parts, self._first.largest_intermediate])

    @property
    def _kept_bytes(self) -> int:
        return sum(x.plan.result.d.nbytes for x in self._work.once)

    @property
    def peak_bytes(self) -> int:
        """Most memory that a call holds at one time: intermediates, what is kept, workspace, a new result."""
        held = most = 0
        for x in self._work.once:
            most = max(most, held + x.plan.peak_bytes)
            held += x.plan.result.d.nbytes
        sums, parts = self._spec_of_sums, [x.peak_bytes for x in self._slice_plans()]
        held += self._result_bytes + (sums.nbytes if self._kept_apart else 0)
        return max(most, held + max(parts))

    def _slice_plans(self) -> list[ContractionPlan]:
        """The plans of slices, and of what is done with their sums as far as the request tells."""
        adds = (False, True) if any(m not in self._network.output for m in self.lengths) else (False,)
        made = [self._work.part(x, self._sums_of(x), add=add) for x in self._some_lengths() for add in adds]
        request = self._request
        if request.c is not None or request.epilogue is not None:
            place = {m: slice(0, n) for m, n in self.lengths.items()}
            c = None if request.c is None else part_spec(request.c, self._last_axes(len(request.c.shape)), place)
            extras = [part_spec(request.epilogue_args[x.argument], axes, place) for x, axes in self._extras()]
            made.append(self._finish(self._spec_of_sums, c, extras))
        return made

    @property
    def parts(self) -> tuple[ContractionPlan, ...]:
        """What runs once, slices of all extents, and what is done with their sums."""
        adding = self._work.part(self.lengths, self._spec_of_sums, add=True)  # where `out` holds what is added
        return (*(x.plan for x in self._work.once), *self._slice_plans(), adding)

    @property
    def step_bytes(self) -> tuple[int, ...]:
        """What a call holds while each step of `steps` runs, those of one slice for all."""
        found: list[int] = []
        held = 0
        for x in self._work.once:
            found += [held + n for n in x.plan.step_bytes]
            held += x.plan.result.d.nbytes
        held += self._result_bytes + (self._spec_of_sums.nbytes if self._kept_apart else 0)
        return (*found, *(held + n for n in self._first.step_bytes))

    def compile(self) -> SlicedPlan:
        """Compile the kernels of what runs once, of slices, and of what is done with their sums."""
        super().compile()
        self._show_steps()
        return self

    def __repr__(self) -> str:
        return f"<SlicedPlan {printable(self.subscripts)} on {self.arch}, {count(self.slices, 'slice')}>"

    # --- how it runs

    def _write(self, kind: ArrayKind, device: int, operands: Sequence[Any], ending: Ending) -> None:
        """Write the result slice by slice."""
        c, d = ending.c, ending.d
        itself = c is not None and kind.pointer(c) == kind.pointer(d) and kind.describe(c) == kind.describe(d)
        plain = ending.alpha == 1 and self._request.epilogue is None
        apart = self._sums_in != self.dtype or (itself and not plain)
        finishes = apart or not plain or (c is not None and not itself)
        grid, run = self._work.grid, self._work.reading(kind, device, operands)
        for outer in map(grid.part, range(grid.parts)):
            target = view(d, self._output_axes, outer)
            sums = kind.empty(target.shape, self._sums_in, self._order) if apart else target
            run.sum(outer, range(grid.summed), sums, adds=itself and not apart, factor=ending.beta)
            if finishes:
                self._complete(kind, device, outer, sums, ending)
            if apart:
                kind.copy(target, sums)

    def write_stripped(self, kind: ArrayKind, device: int, operands: Sequence[Any], d: Any, alpha: Any = 1) -> Any:
        """Write the result divided by a power of two; parts of it, and slices, have powers of their own until then."""
        grid = self._work.grid
        kept, before = self._work.keep_stripped(kind, device, operands)
        run = self._work.reading(kind, device, operands, kept)
        parts, most = [], None
        for outer in map(grid.part, range(grid.parts)):
            target = view(d, self._output_axes, outer)
            sums = kind.empty(target.shape, self._sums_in, self._order)
            power = run.sum_stripped(outer, range(grid.summed), sums)
            if alpha != 1:
                self._complete(kind, device, outer, sums, Ending(None, d, alpha))
            power = power + take_power(kind, sums)
            kind.copy(target, sums)
            parts.append((target, power))
            most = power if most is None else larger(kind, most, power)
        for target, power in parts:
            scale(kind, target, power - most)
        return before + most

    def _complete(self, kind: ArrayKind, device: int, outer: Place, sums: Any, ending: Ending) -> None:
        """Make a part of the result of its sums, in place."""
        c, _, alpha, beta, extras = ending
        added = None if c is None else view(c, self._last_axes(len(c.shape)), outer)
        further = [view(extras[x.argument], axes, outer) for x, axes in self._extras()]
        described = None if added is None else kind.describe(added)
        last = self._finish(kind.describe(sums), described, map(kind.describe, further))
        last.run_into(kind, device, [sums], added, sums, alpha, beta, further)

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
        return self._work.replan(made)

    def _some_lengths(self) -> Iterator[dict[int, int]]:
        """The extents of a slice, and of those at the end of one mode or of all, whose kernels may need more."""
        extents = self._network.extents
        last = {m: extents[m] % n for m, n in self.lengths.items() if extents[m] % n}
        yield self.lengths
        for m, n in last.items():
            yield {**self.lengths, m: n}
        if len(last) > 1:
            yield {**self.lengths, **last}

    @property
    def _spec_of_sums(self) -> TensorSpec:
        """Where the sums of a part are formed: in the result, or beside it."""
        return self._sums_of(self.lengths)

    def _sums_of(self, lengths: Mapping[int, int]) -> TensorSpec:
        """The same for a part of other extents."""
        place = {m: slice(0, n) for m, n in lengths.items()}
        own = self._request.out
        spec = own if own is not None and not self._through_copy else self._d
        found = part_spec(spec, self._output_axes, place, self.lengths)
        if not self._kept_apart:
            return found
        strides = dense_strides(found.shape, self._sums_in.itemsize, self._order)
        return TensorSpec(found.shape, strides, self._sums_in, 1 if self.arch == "cpu" else ALIGNMENT_LIMIT)

    @property
    def _output_axes(self) -> tuple[tuple[int, int], ...]:
        return tuple((i, m) for i, m in enumerate(self._network.output) if m in self.lengths)

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


def bare_request(request: PlanRequest, dtype: np.dtype[Any]) -> PlanRequest:
    """The contraction of a request alone, in the dtype that it is computed in: no factors, `c`, `out` or epilogue."""
    return replace(
        request, c=None, out=None, order="C", casting="unsafe", epilogue=None, epilogue_args=(), memory_limit=None,
        dtype=dtype, complex_factors=False, waits=True,
    )  # fmt: skip
