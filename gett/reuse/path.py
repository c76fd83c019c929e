"""The path of a network some of whose operands are constants: contractions of constants alone take no time.

Owns the choice between two paths. How paths are found is `gett.network.path`'s.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from gett.network.path import NEVER, Path, find_steps, path_of
from gett.network.request import PlanRequest
from gett.network.slicing import Network
from gett.plans.planner import resolve
from gett.slices.limited import network_of

ROOM = 4  # times the largest tensor of the usual path, that a result of constants may have


def with_constants(request: PlanRequest, constants: Collection[int]) -> PlanRequest:
    """The request with the path of which calls do fewer products, where gett searches one.

    Compared are the path of the whole network, and one that contracts all connected constants first.
    """
    count = len(request.operands)
    if count < 3 or not 1 < len(constants) < count:
        return request
    if not (request.optimize is True or request.optimize == "auto") or request.memory_limit is not None:
        return request
    extents = resolve(request)[1]
    if 0 in extents:
        return request
    usual, path = network_of(request, request.optimize)
    other = _constants_first(usual, constants)
    first, found = network_of(request, other)
    most = ROOM * max(_size(modes, extents) for modes in usual.modes.values())
    alone = _alone(first, constants)
    if any(_size(s.modes, extents) > most for s in first.steps if s.output in alone):
        return replace(request, optimize=path)
    better = _work(first, constants) < _work(usual, constants)
    return replace(request, optimize=found if better else path)


def _constants_first(network: Network, constants: Collection[int]) -> Path:
    """The path that contracts constants that share modes, then their results with the other operands."""
    terms, extents = network.terms, network.extents
    groups: list[tuple[list[int], set[int]]] = []
    for i in sorted(constants):
        near = [g for g in groups if g[1] & set(terms[i])]
        groups = [g for g in groups if g not in near]
        groups.append(([*(x for g in near for x in g[0]), i], set(terms[i]).union(*(g[1] for g in near))))
    contractions: list[tuple[int, ...]] = []
    fresh = len(terms)
    left: dict[int, tuple[int, ...]] = {i: t for i, t in enumerate(terms) if i not in constants}

    def contract(numbers: list[int], found: dict[int, tuple[int, ...]], output: tuple[int, ...]) -> int:
        """Add the contractions of some tensors; the number of their result."""
        nonlocal fresh
        if len(numbers) == 1:
            return numbers[0]
        modes = [found[i] for i in numbers]
        path = find_steps(modes, output, extents, modes, True, NEVER)[1]
        live = list(numbers)
        for positions in path:
            group = [live[p] for p in positions]
            contractions.append((*group, fresh))
            live = [i for i in live if i not in group] + [fresh]
            fresh += 1
        return live[0]

    for members, modes in groups:
        others = set(network.output).union(*(t for i, t in enumerate(terms) if i not in members))
        kept = tuple(sorted(modes & others)) if len(members) > 1 else terms[members[0]]
        left[contract(members, dict(enumerate(terms)), kept)] = kept
    contract(list(left), left, network.output)
    found: Path = path_of(range(len(terms)), contractions)
    return found


def _alone(network: Network, constants: Collection[int]) -> set[int]:
    """Tensors of constants alone."""
    found = set(constants)
    for step in network.steps:
        if all(i in found for i in step.inputs):
            found.add(step.output)
    return found


def _work(network: Network, constants: Collection[int]) -> int:
    """Products of the steps that each call runs."""
    alone, modes = _alone(network, constants), network.modes
    later = [s for s in network.steps if s.output not in alone]
    return sum(_size(set().union(*(modes[i] for i in s.inputs)), network.extents) + network.step for s in later)


def _size(modes: Collection[int], extents: tuple[int, ...]) -> int:
    return math.prod(extents[m] for m in modes)
