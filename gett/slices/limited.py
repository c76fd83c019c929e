"""Plans that keep to a limit of memory: another path, or slices, whichever takes fewest operations.

Owns the choice among ways, and the error where there is none. The model of what a way holds is
`gett.network.slicing`'s; what its plan holds, the plan itself says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gett.console.formatting import format_bytes
from gett.errors import OptionError
from gett.ir.build import resolve_extents
from gett.ir.subscripts import Subscripts, parse
from gett.network.limits import Elements
from gett.network.optimize import Bytes, Limited, SlicedPath, check_optimize
from gett.network.path import NEVER, Path, find_steps
from gett.network.request import PlanRequest
from gett.network.slicing import (
    GPU_STEP,
    STEP,
    Network,
    Slicing,
    cotengra_slicings,
    count_slices,
    narrower,
    slicing,
    slicings,
)
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.sliced_plan import SlicedPlan, Subject

Find = Callable[..., ContractionPlan]
_Choice = tuple[int, Callable[[], ContractionPlan]]
"""The work of a way that keeps the limit but for what its plan takes besides, and what makes that plan."""
_SHARES = (1, 2, 4, 8)  # of the room for intermediates, that a path is asked to keep its largest one to
_MOST = 1 << 12  # slices for which paths of their own are searched
_PLANNED = 4  # ways of one kind that may be planned
_TRIED = 24  # plans of slices that are made before the search ends with the tightest


def plan_within(request: PlanRequest, find: Find) -> ContractionPlan:
    """The plan of a request with a limit of memory, or with slices.

    Args:
        request: What is asked for.
        find: Finds the plan of a request without either.

    Raises:
        OptionError: No way keeps the limit; the text says which limit would do.
    """
    count, given = len(request.operands), request.optimize if isinstance(request.optimize, SlicedPath) else None
    optimize = request.optimize
    if given is not None:
        check_optimize(given, count)
        optimize = given.path if count > 2 else True
    free = find(replace(request, memory_limit=None, optimize=optimize, waits=True))
    limit = _Limit.of(request)
    if given is None and limit.need(free) <= limit.most:
        return free.under(request)
    subscripts, extents = _modes(request)
    if 0 in extents:
        if limit.need(free) > limit.most:
            raise limit.refused(free)
        return free.under(request)
    new = request.out is None or request.out.dtype != free.dtype
    find_network = partial(network_of, request, new=new, by_size=limit.in_elements)
    network, path = find_network(free.path if count > 2 else True)

    def sliced(way: Slicing, network: Network = network, path: Path = path) -> ContractionPlan:
        return SlicedPlan(request, Subject(free, path, network, way), find)

    itemsize = 1 if limit.in_elements else free.dtype.itemsize
    if given is not None:
        modes = {_mode(subscripts.inputs, i, axis) for i, axis in given.axes}
        start = {m: 1 for m in modes if extents[m] > 1}
        if not start and limit.most == math.inf:
            return free.under(request)
        return _narrowed(network, start, limit, itemsize, free, sliced)[1]
    fitting = _first_ways(network, limit.most / itemsize)
    choices: list[_Choice] = [(way.work, partial(sliced, way)) for way in fitting]
    taken = 0 if limit.in_elements or not new else free.result.d.nbytes
    room = int(limit.most - taken) // itemsize
    if room >= 1 and count > 2:
        choices += _other_paths(request, find_network, limit, itemsize, room, find)
        choices += _other_slices(network, path, limit, itemsize, room, sliced)
        choices += _paths_of_slices(request, network, limit, itemsize, sliced)
    fits: tuple[int, ContractionPlan] | None = None
    for n, (work, make) in enumerate(sorted(choices, key=lambda choice: choice[0])[:_TRIED]):
        plan = make()
        if limit.need(plan) <= limit.most:
            fits = work, plan
            if n == 0:
                return plan
            break
    # Workspaces kept some ways above the limit: slices that are narrowed until they fit may take less than what did.
    try:
        narrowed = _narrowed(network, {}, limit, itemsize, free, sliced)
    except OptionError:
        if fits is None:
            raise
        return fits[1]
    return narrowed[1] if fits is None or narrowed[0] < fits[0] else fits[1]


def _modes(request: PlanRequest) -> tuple[Subscripts, tuple[int, ...]]:
    """The subscripts of a request, and the extents of their modes."""
    shapes, out = [t.shape for t in request.operands], request.out
    subscripts = parse(request.spec, list(map(len, shapes)))
    return subscripts, resolve_extents(subscripts, shapes, None if out is None else out.shape)


def network_of(request: PlanRequest, optimize: Any, *, new: bool = True, by_size: bool = False) -> tuple[Network, Path]:
    """What a path of a request amounts to, and the path.

    Args:
        request: What is asked for.
        optimize: A path, or what finds one.
        new: As `Network` has it, and so is `by_size`.
        by_size: See `new`.
    """
    subscripts, extents = _modes(request)
    terms = tuple(
        tuple(dict.fromkeys(m for m, e in zip(modes, t.shape, strict=True) if e == extents[m]))
        for modes, t in zip(subscripts.inputs, request.operands, strict=True)
    )
    steps, path = find_steps(terms, subscripts.output, extents, terms, optimize, NEVER)
    step = STEP if request.arch == "cpu" else GPU_STEP
    return Network(terms, subscripts.output, extents, steps, new, by_size, step), path


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


def _narrowed(
    network: Network,
    start: dict[int, int],
    limit: _Limit,
    itemsize: int,
    free: ContractionPlan,
    make: Callable[[Slicing], ContractionPlan],
) -> tuple[int, ContractionPlan]:
    """The first way to slice that keeps the limit, each way with less held than the one before: its work, its plan.

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


def _first_ways(network: Network, room: float) -> Iterator[Slicing]:
    """The first ways to slice that hold so many elements."""
    fitting = (way for way in _with_slices(slicings(network, {})) if way.peak <= room)
    return itertools.islice(fitting, _PLANNED)


def _with_slices(ways: Iterator[Slicing]) -> Iterator[Slicing]:
    return (way for way in ways if way.lengths)


def _other_paths(
    request: PlanRequest,
    find_network: Callable[[Any], tuple[Network, Path]],
    limit: _Limit,
    itemsize: int,
    room: int,
    find: Find,
) -> Iterator[_Choice]:
    """Paths of opt_einsum's whose intermediates are small enough."""
    method = check_optimize(request.optimize)[0]
    if isinstance(method, tuple):
        return

    def planned(path: Path) -> ContractionPlan:
        return find(replace(request, memory_limit=None, optimize=path, waits=True)).under(request)

    for share in _SHARES[:1] if limit.in_elements else _SHARES:
        try:
            network, path = find_network(Limited(method, max(1, room // share)))
        except OptionError:
            continue
        way = slicing(network, {})
        if way.peak * itemsize <= limit.most:
            yield way.work, partial(planned, path)


def _paths_of_slices(
    request: PlanRequest, network: Network, limit: _Limit, itemsize: int, make: Callable[..., ContractionPlan]
) -> list[_Choice]:
    """Slices with paths of their own: behind each cut a path is searched again, and the next cut is that path's."""
    method = check_optimize(request.optimize)[0]
    found: list[_Choice] = []
    if isinstance(method, tuple):
        return found
    room = limit.most / itemsize
    lengths: dict[int, int] | None = {}
    path: Path | None = None
    while len(found) < _PLANNED and lengths is not None:
        slices = count_slices(tuple(lengths.items()), network.extents)
        if slices > _MOST:
            break
        if lengths:
            extents = tuple(lengths.get(m, e) for m, e in enumerate(network.extents))
            steps, searched = find_steps(network.terms, network.output, extents, network.terms, method, NEVER, slices)
            changed = replace(network, steps=steps)

            def worth(x: Network, lengths: dict[int, int] = lengths) -> tuple[float, int]:
                way = slicing(x, lengths)
                return max(way.peak, room), way.work

            if worth(changed) < worth(network):
                network, path = changed, searched
        now = slicing(network, lengths)
        if path is not None:
            for way in (now, slicing(network, lengths, keeps=False)):
                if way.peak <= room:
                    found.append((way.work, partial(make, way, network, path)))
        lengths = narrower(network, now)
    return found


def _other_slices(
    network: Network,
    path: Path,
    limit: _Limit,
    itemsize: int,
    room: int,
    make: Callable[..., ContractionPlan],
) -> Iterator[_Choice]:
    """Cotengra's slices that keep the limit; nothing where it is not installed."""
    for way in cotengra_slicings(network, path, room):
        if way.lengths and way.peak * itemsize <= limit.most:
            yield way.work, partial(make, way)
