"""Finding plans: in the plan cache, or by planning, in slices where there is a limit of memory.

Owns the way from a request to its plan, which everything above takes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from gett.arrays.kinds import ArrayKind, check_room
from gett.errors import GettError, OptionError
from gett.ir.build import resolve_extents
from gett.ir.subscripts import parse
from gett.network.asking import searched_slices
from gett.network.optimize import SlicedPath, asks_slices
from gett.network.request import PlanRequest
from gett.plans import planner
from gett.plans.contraction_plan import ContractionPlan
from gett.plans.plan_cache import plan_cache

PlanT = TypeVar("PlanT", bound=ContractionPlan)


def find_plan(
    request: PlanRequest, make: Callable[[PlanRequest], ContractionPlan] | None = None, *, keep: bool = True
) -> ContractionPlan:
    """The plan of a request, from the plan cache where it is there; else what `make` makes, by default `make_plan`.

    With `keep=False` the cache is neither asked nor given the plan.
    """
    make = make or make_plan
    return kept(request, partial(make, request)) if keep else make(request)


def kept(key: Any, make: Callable[[], PlanT]) -> PlanT:
    """What the plan cache has under a key; else what is made now and kept there."""
    try:
        found = plan_cache.get(key)
    except TypeError:  # a path function that cannot be hashed, or a bad option, which planning names
        return make()
    if found is None:
        found = plan_cache.put(key, make())
    plan: PlanT = found
    return plan


def make_plan(request: PlanRequest) -> ContractionPlan:
    """Plan a contraction from descriptions alone.

    Raises:
        GettError: As `gett.plans.planner.make_plan`; OptionError also if no slices keep the limit of memory.
    """
    if asks_slices(request.optimize):
        request = replace(request, optimize=_searched(request))
    if request.memory_limit is not None or isinstance(request.optimize, SlicedPath):
        from gett.slices.limited import plan_within  # late: few plans have a limit

        return plan_within(request, find_plan)
    return planner.make_plan(request, find_plan)


def _searched(request: PlanRequest) -> Any:
    """The slices and the path that an optimiser finds for a request, as `optimize=` takes them."""
    shapes, out = [t.shape for t in request.operands], request.out
    subscripts = parse(request.spec, list(map(len, shapes)))
    extents = resolve_extents(subscripts, shapes, None if out is None else out.shape)
    if len(shapes) < 2 or 0 in extents:
        return True
    present = set().union(*map(set, subscripts.inputs))
    output = [m for m in subscripts.output if m in present]
    try:
        return searched_slices(request.optimize, subscripts.inputs, output, extents)
    except GettError:
        raise
    except (TypeError, ValueError, LookupError, RuntimeError) as error:  # whatever an optimiser objects to
        raise OptionError(f"optimize={request.optimize!r} found no slices: {error}") from error


def plan_on_device(kind: ArrayKind, request: PlanRequest, key: Any = None, *, runs: bool = False) -> ContractionPlan:
    """Plan while the device that the arrays live on is current, since executables bind to that.

    Args:
        kind: Of the arrays.
        request: What is asked for.
        key: Where the plan is kept, instead of under the request; one that is kept there is taken.
        runs: Whether the plan is made for a call, which a result without room ends before it is planned and compiled.
    """

    def make(request: PlanRequest) -> ContractionPlan:
        if runs and request.out is None and request.device is not None:
            subscripts, extents, dtype = planner.resolve(request)
            check_room(kind, request.device, [extents[m] for m in subscripts.output], dtype)
        return make_plan(request)

    context = None if request.device is None else kind.on(request.device)
    with nullcontext() if context is None else context:
        if key is None:
            return find_plan(request, make)
        made: ContractionPlan = plan_cache.put(key, plan_cache.peek(request) or make(request))
        return made
