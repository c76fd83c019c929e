"""A network divided into parts whose results are kept, and the rest, which is an ordinary contraction.

Owns the requests of both. Which parts there are is the plans'.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.ir.build import choose_order
from gett.ir.tensors import TensorSpec, factor_dtype
from gett.network.limits import Elements
from gett.network.optimize import Bytes, SlicedPath, in_elements
from gett.network.path import Path, path_of
from gett.network.request import PlanRequest
from gett.plans.contraction_plan import ContractionPlan
from gett.plans.planner import resolve
from gett.slices.finder import find_plan
from gett.slices.limited import network_of
from gett.slices.sliced_plan import bare_request

Limit = Bytes | Elements | None
Contractions = Sequence[tuple[int, ...]]
"""Each the numbers of its tensors, the result's last."""


@dataclass(frozen=True, slots=True)
class Part:
    """A contraction whose result is kept.

    Attributes:
        inputs: Numbers of the tensors that it takes, as the network has them.
        output: Number of its result.
        plan: Contracts them.
    """

    inputs: tuple[int, ...]
    output: int
    plan: ContractionPlan


class Division:
    """The tensors of a network as they become known: operands, then results of parts.

    Attributes:
        network: Steps, without slices.
        path: That they follow; all of it is in one step where the network sums over nothing.
        subscripts: Of the request.
        dtype: In which the contraction is computed.
        empty: Whether there is a mode of extent 0: no parts are worth it.
    """

    def __init__(self, request: PlanRequest) -> None:
        """Find the path of a request.

        Raises:
            GettError: As `gett.plan`.
        """
        self._request = request
        self.subscripts, extents, self.dtype = resolve(request)
        self.empty = 0 in extents
        optimize: Any = request.optimize
        axes: tuple[tuple[int, int], ...] = ()
        if isinstance(optimize, SlicedPath):
            optimize, axes = optimize.path, optimize.axes
        optimize = True if self.empty else in_elements(optimize, self.dtype.itemsize)
        self.network, self.path = network_of(request, optimize)
        inputs = self.subscripts.inputs
        self._sliced = tuple(dict.fromkeys(inputs[i][axis] for i, axis in axes))
        self._modes: dict[int, tuple[int, ...]] = dict(enumerate(inputs))
        self._specs: dict[int, TensorSpec] = dict(enumerate(request.operands))
        self._conj = dict(enumerate(request.conj or (False,) * len(inputs)))
        self._order = choose_order(request.order, request.operands)
        self._bare = bare_request(request, self.dtype)
        self._plans: dict[PlanRequest, ContractionPlan] = {}

    def contractions(self, steps: Collection[int]) -> Contractions:
        """Those of the network whose results have these numbers."""
        return [(*s.inputs, s.output) for s in self.network.steps if s.output in steps]

    def part(
        self, inputs: Sequence[int], contractions: Contractions, modes: tuple[int, ...], output: int, limit: Limit
    ) -> Part:
        """Plan a part, whose result may be an input from now on.

        Args:
            inputs: Numbers of tensors that are known.
            contractions: Of them.
            modes: Of the result.
            output: Its number.
            limit: Of the part's memory.
        """
        real = all(self._specs[i].dtype.kind != "c" for i in inputs)
        dtype = factor_dtype(np.dtype(float), self.dtype) if real else self.dtype
        request = replace(self._bare, **self._taken(inputs, contractions, modes), dtype=dtype, memory_limit=limit)
        plan = self._plans.get(request)
        if plan is None:  # the cache is for what users ask for: many parts would push that out
            plan = self._plans[request] = find_plan(request, keep=False)
        self._specs[output], self._modes[output], self._conj[output] = plan.result.d, modes, False
        return Part(tuple(inputs), output, plan)

    def rest(self, inputs: Sequence[int], contractions: Contractions, limit: Limit) -> PlanRequest:
        """The request of what is left, with all that the whole one has beside its operands."""
        taken = self._taken(inputs, contractions, self.subscripts.output)
        return replace(self._request, **taken, dtype=self.dtype, order=self._order, memory_limit=limit, waits=True)

    def modes(self, tensor: int) -> tuple[int, ...]:
        """The modes of a tensor that is known."""
        return self._modes[tensor]

    def _taken(self, inputs: Sequence[int], contractions: Contractions, modes: tuple[int, ...]) -> dict[str, Any]:
        flags = tuple(self._conj[i] and self._specs[i].dtype.kind == "c" for i in inputs)
        optimize: Any = True if self.empty else path_of(inputs, contractions)
        terms = [self._modes[i] for i in inputs]
        axes = [next(((i, t.index(m)) for i, t in enumerate(terms) if m in t), None) for m in self._sliced]
        found = tuple(x for x in axes if x is not None)
        if found:  # cotengra's slices, of the labels that are here
            optimize = SlicedPath(_as_path(optimize, len(inputs)), found)
        return {
            "spec": (*terms, modes),
            "operands": tuple(self._specs[i] for i in inputs),
            "optimize": optimize,
            "conj": flags if any(flags) else None,
        }


def _as_path(optimize: Any, count: int) -> Path:
    return optimize if isinstance(optimize, tuple) else (tuple(range(count)),)
