"""Plans that keep to a limit of memory: another path, or slices, whichever takes fewest operations.

Owns the choice among ways, and the error where there is none. The model of what a way holds is
`gett.network.slicing`'s; what its plan holds, the plan itself says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gett.api.contraction_plan import ContractionPlan
from gett.api.sliced_plan import SlicedPlan
from gett.console.formatting import format_bytes
from gett.errors import OptionError
from gett.ir.build import resolve_extents
from gett.ir.subscripts import parse
from gett.network.limits import Elements
from gett.network.optimize import Bytes, Limited, SlicedPath, check_optimize
from gett.network.path import NEVER, Path, find_steps
from gett.network.request import PlanRequest
from gett.network.slicing import Network, Slicing, cotengra_slicings, slicing, slicings

Find = Callable[..., ContractionPlan]
_SHARES = (1, 2, 4, 8)  # of the room for intermediates, that a path is asked to keep its largest one to
_TRIED = 24  # plans of slices that are made before the search ends with the tightest


def plan_within(request: PlanRequest, find: Find) -> ContractionPlan:
    """The plan of a request with a limit of memory, or with slices.

    Args:
        request: What is asked for.
        find: Finds the plan of a request without either.

    Raises:
        OptionError: No way keeps the limit; the text says which limit would do.
    """
    optimize, given = request.optimize, request.optimize if isinstance(request.optimize, SlicedPath) else None
    if given is not None:
        optimize = check_optimize(given, len(request.operands))[0].path if len(request.operands) > 2 else True
    plain = replace(request, memory_limit=None, optimize=optimize)
    free = find(plain)
    limit = _Limit.of(request)
    if given is None and limit.need(free) <= limit.most:
        return free.under(request)
    subscripts = parse(request.spec, [len(t.shape) for t in request.operands])
    shapes = [t.shape for t in request.operands]
    extents = resolve_extents(subscripts, shapes, None if request.out is None else request.out.shape)
    if 0 in extents:
        if given is not None:
            return free.under(request)
        raise limit.refused(free)
    terms = tuple(
        tuple(dict.fromkeys(m for m, e in zip(modes, shape, strict=True) if e == extents[m]))
        for modes, shape in zip(subscripts.inputs, shapes, strict=True)
    )

    def network_of(method: Any) -> tuple[Network, Path]:
        steps, path = find_steps(terms, subscripts.output, extents, terms, method, NEVER)
        return Network(terms, subscripts.output, extents, steps, request.out is None, limit.in_elements), path

    network, path = network_of(free.path if len(terms) > 2 else True)
    start = {}
    if given is not None:
        start = {m: 1 for i, axis in given.axes if extents[m := _mode(subscripts.inputs, i, axis)] > 1}
        if limit.most == math.inf:
            way = slicing(network, start)
            return SlicedPlan(request, free, path, network, way, find) if start else free.under(request)

    def made(way: Slicing) -> ContractionPlan:
        return SlicedPlan(request, free, path, network, way, find)

    choices: list[tuple[int, ContractionPlan]] = []
    refusal: OptionError | None = None
    itemsize = 1 if limit.in_elements else free.dtype.itemsize
    try:
        choices.append(_sliced(network, start, limit, itemsize, free, made))
    except OptionError as error:
        refusal = error
    room = (limit.most - free.result.d.nbytes * network.new) / itemsize if itemsize > 1 else limit.most
    method = check_optimize(optimize)[0]
    if given is None and len(terms) > 2 and not isinstance(method, tuple) and room >= 1:
        choices += _other_paths(request, network_of, method, limit, itemsize, room, find)
    if given is None and room >= 1:
        for way in cotengra_slicings(network, path, int(room)):
            if way.peak * itemsize <= limit.most and all(way.work < work for work, _ in choices):
                plan = made(way)
                if limit.need(plan) <= limit.most:
                    choices.append((way.work, plan))
                    break
    if not choices:
        assert refusal is not None
        raise refusal
    return min(choices, key=lambda choice: choice[0])[1]


def _mode(inputs: Any, operand: int, axis: int) -> int:
    """The mode that an axis has.

    Raises:
        OptionError: There is no such axis.
    """
    if operand >= len(inputs) or axis >= len(inputs[operand]):
        raise OptionError(f"the slices of optimize= name axis {axis} of operand {operand}, which there is not")
    return int(inputs[operand][axis])


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit as plans are compared with it.

    Attributes:
        most: Bytes, or elements of an intermediate; infinity for none.
        in_elements: Which of the two.
    """

    most: float
    in_elements: bool

    @classmethod
    def of(cls, request: PlanRequest) -> _Limit:
        """That of a request."""
        limit = request.memory_limit
        if isinstance(limit, Bytes):
            return cls(limit.size, False)
        if isinstance(limit, Elements):
            return cls(limit.count or max((math.prod(t.shape) for t in request.operands), default=1), True)
        return cls(math.inf, False)

    def need(self, plan: ContractionPlan) -> int:
        """What a plan needs, in the limit's unit."""
        return plan.largest_intermediate if self.in_elements else plan.peak_bytes

    def refused(self, plan: ContractionPlan) -> OptionError:
        """The error where this plan needs least."""
        least = self.need(plan)
        if self.in_elements:
            return OptionError(
                f"memory_limit= limits intermediates to {self.most} elements, and no slices keep it: the least that "
                f"would do is {least}"
            )
        new = plan.result.d.nbytes
        return OptionError(
            f"memory_limit= limits a call to {self.most} bytes, and no slices keep it: the least that would do is "
            f"{least} bytes ({format_bytes(least)}), of which a new result takes {new}; out= is memory of the caller"
        )


def _sliced(
    network: Network,
    start: dict[int, int],
    limit: _Limit,
    itemsize: int,
    free: ContractionPlan,
    make: Callable[[Slicing], ContractionPlan],
) -> tuple[int, ContractionPlan]:
    """The first way to slice whose plan keeps the limit, with its work.

    Raises:
        OptionError: There is none.
    """
    budget, tried = limit.most, 0
    tightest: Slicing | None = None
    for way in _with_slices(slicings(network, start)):
        if tightest is None or way.peak < tightest.peak:
            tightest = way
        if way.peak * itemsize > budget or tried > _TRIED:
            continue
        plan = make(way)
        tried += 1
        need = limit.need(plan)
        if need <= limit.most:
            return way.work, plan
        budget = way.peak * itemsize * max(0.5, limit.most / need)  # scratch shrinks with the slices
    plan = free if tightest is None else make(tightest)
    if tightest is None or limit.need(plan) > limit.most:
        raise limit.refused(plan)
    return tightest.work, plan


def _with_slices(ways: Iterator[Slicing]) -> Iterator[Slicing]:
    return (way for way in ways if way.lengths)


def _other_paths(
    request: PlanRequest,
    network_of: Callable[[Any], tuple[Network, Path]],
    method: Any,
    limit: _Limit,
    itemsize: int,
    room: float,
    find: Find,
) -> Iterator[tuple[int, ContractionPlan]]:
    """A path of opt_einsum's whose intermediates are small enough, with its work; nothing where there is none."""
    for share in _SHARES[:1] if limit.in_elements else _SHARES:
        try:
            network, path = network_of(Limited(method, max(1, int(room) // share)))
        except OptionError:
            continue
        way = slicing(network, {})
        if way.peak * itemsize <= limit.most:
            plan = find(replace(request, memory_limit=None, optimize=path))
            if limit.need(plan) <= limit.most:
                yield way.work, plan.under(request)
                return
