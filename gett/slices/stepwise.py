"""Networks whose steps devices share one by one: each large step in the cut that is best for it and its neighbours.

Owns the choice, by dynamic programming over the tree: the cost of each tensor for each way in which it may lie on the
devices. Steps that one GPU computes soon stay on the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gett.ir.subscripts import parse
from gett.ir.tensors import TensorSpec, dense_strides, sum_dtype
from gett.network.request import PlanRequest
from gett.network.slicing import Network
from gett.network.steps import PathStep
from gett.plans.contraction_plan import ContractionPlan
from gett.slices.cuts import SHARING_US, Costs, Lengths, Modes, operand_traffic, sums_traffic
from gett.slices.distributed_plan import Job
from gett.slices.engine import DeviceEngine
from gett.slices.finder import find_plan
from gett.slices.limited import network_of
from gett.slices.links import Link
from gett.slices.recipe import Recipe
from gett.slices.shared import Shared, gathered
from gett.slices.views import SliceGrid

Layout = int | None
"""The mode along which a tensor is sharded; None where it is an array of the first device."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """How a step is computed for one layout of its result.

    Attributes:
        cost: Of it and all that is before it.
        lengths: The cut, of the modes of the step's own contraction; none for the first device alone.
        inputs: The layout of each input.
    """

    cost: float
    lengths: Lengths
    inputs: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class SharedStep:
    """A step as it runs.

    Attributes:
        step: Its tensors.
        plan: What computes it on the first device; None where all share it.
        shared: What computes it on all.
        lengths: The cut of a shared one.
        done: Tensors that no later step reads.
    """

    step: PathStep
    plan: ContractionPlan | None
    shared: Shared | None
    lengths: Lengths
    done: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stepwise:
    """A network that devices share step by step.

    Attributes:
        steps: In order.
        cost: Microseconds on GPUs, products on the CPU.
        home: The first device.
        link: Moves arrays.
        count: How many steps all devices share.
    """

    steps: tuple[SharedStep, ...]
    cost: float
    home: int
    link: Link

    @property
    def count(self) -> int:
        """How many steps the devices share."""
        return sum(s.shared is not None for s in self.steps)

    def compute(self, operands: Sequence[Any]) -> Any:
        """The result: an array of the first device, or a sharded tensor."""
        tensors: dict[int, Any] = dict(enumerate(operands))
        link = self.link
        for s in self.steps:
            inputs = [tensors[i] for i in s.step.inputs]
            if s.shared is not None:
                found = s.shared.compute(inputs)
            else:
                assert s.plan is not None
                whole = [gathered(link, x, self.home) for x in inputs]
                with link.on(self.home):
                    found = s.plan.run(link.kind_on(self.home), link.number(self.home), whole)
                    found = np.asarray(found) if isinstance(found, np.generic) else found
            tensors[s.step.output] = found
            for i in s.done:
                del tensors[i]
        return tensors[self.steps[-1].step.output]


@dataclass(frozen=True, slots=True)
class _Pair:
    """One step as a contraction of its own.

    Attributes:
        request: It.
        network: What it amounts to.
        inputs: Modes of each input, as the contraction numbers them.
        names: The network's mode for each of them.
    """

    request: PlanRequest
    network: Network
    inputs: tuple[tuple[int, ...], ...]
    names: tuple[int, ...]


class _Search:
    """The steps of a network, what each takes, and what is best."""

    def __init__(self, bare: PlanRequest, network: Network, inputs: Sequence[Sequence[int]], devices: int) -> None:
        self.network, self.n = network, devices
        assert isinstance(bare.dtype, np.dtype)
        self.dtype = bare.dtype
        self.modes: dict[int, tuple[int, ...]] = {**network.modes, **dict(enumerate(map(tuple, inputs)))}
        self.specs = dict(enumerate(bare.operands))
        for s in network.steps:
            shape = tuple(network.extents[m] for m in s.modes)
            self.specs[s.output] = TensorSpec(shape, dense_strides(shape, self.dtype.itemsize), self.dtype)
        self.pairs = {s.output: self._pair(bare, s) for s in network.steps}
        self.choices: dict[int, dict[Layout, _Choice]] = {}

    def _pair(self, bare: PlanRequest, step: PathStep) -> _Pair:
        flags = bare.conj
        conj = None if flags is None else tuple(i < len(flags) and flags[i] for i in step.inputs)
        inputs = [self.modes[i] for i in step.inputs]
        request = replace(
            bare, spec=(*inputs, step.modes), optimize=True, operands=tuple(self.specs[i] for i in step.inputs),
            conj=conj if conj and any(conj) else None,
        )  # fmt: skip
        numbered = parse(request.spec, list(map(len, inputs))).inputs
        names = tuple(dict.fromkeys(m for t in inputs for m in t))
        return _Pair(request, network_of(request, True)[0], numbered, names)

    def run(self, layout: Modes) -> None:
        """Find what is best for each layout of each step's result."""
        for i, mode in enumerate(layout):
            self.choices[i] = {mode: _Choice(0.0, (), ())}
        for step in self.network.steps:
            self.choices[step.output] = self._step(step)

    def _step(self, step: PathStep) -> dict[Layout, _Choice]:
        pair = self.pairs[step.output]
        inputs = [self.modes[i] for i in step.inputs]
        costs = Costs(pair.request, pair.network, pair.inputs, self.specs[step.output], self.n)
        found: dict[Layout, _Choice] = {}
        ways: list[Lengths] = [()]
        if pair.request.arch == "cpu" or costs.compute(()) > 2 * SHARING_US:
            ways += costs.promising([None] * len(inputs))
        for way in ways:
            cut = [pair.names[m] for m, _ in way]
            total, chosen = costs.compute(way), []
            for i, modes in zip(step.inputs, inputs, strict=True):
                nbytes = self.specs[i].nbytes
                moves = {
                    at: operand_traffic(nbytes, self.n, cut, modes, at, costs.gathering).busiest
                    for at in self.choices[i]
                }
                best = min(
                    ((c.cost + costs.crossing(moves[at]), at) for at, c in self.choices[i].items()), key=lambda x: x[0]
                )
                total += best[0]
                chosen.append(best[1])
            kept = cut[0] if cut and cut[0] in step.modes else None
            if cut and kept is None:
                total += costs.crossing(sums_traffic(self.specs[step.output].nbytes, self.n, costs.gathering).busiest)
            if kept not in found or total < found[kept].cost:
                found[kept] = _Choice(total, way, tuple(chosen))
        return found

    def shared(self, step: PathStep, way: Lengths, axis: int | None, devices: Sequence[int], link: Link) -> Shared:
        """What computes a step on all devices, in a cut of its own modes."""
        pair = self.pairs[step.output]
        grid = SliceGrid.of(way, pair.network.extents, pair.network.output)
        terms = min(len(devices), grid.summed)
        recipe = Recipe(pair.request, way, False, sum_dtype(self.dtype).name, "C", terms)
        return Shared(DeviceEngine(devices, link, pair.inputs), Job(recipe, grid, 0), self.dtype, "C", axis)


def stepwise(
    bare: PlanRequest,
    network: Network,
    inputs: Sequence[Sequence[int]],
    layout: Modes,
    shard: int | None,
    devices: Sequence[int],
    link: Link,
    given: Sequence[TensorSpec],
    device: int | None,
) -> Stepwise | None:
    """The network step by step, or None where no step is worth sharing.

    Args:
        bare: The contraction alone, of dense operands, on no device.
        network: What its path amounts to.
        inputs: Modes of each operand in order.
        layout: Of the operands.
        shard: The mode along which the result is wanted sharded.
        devices: Numbers of GPUs.
        link: Moves arrays between them.
        given: The operands as they lie in memory.
        device: The first one as plans have it, None where there are none here.
    """
    search = _Search(bare, network, inputs, len(devices))
    search.run(layout)
    last = network.steps[-1].output
    found = search.choices[last]
    if shard in found:
        at: Layout = shard
    else:
        at = None if None in found else min(found, key=lambda m: found[m].cost)
    wanted = {last: at}
    for step in reversed(network.steps):
        choice = search.choices[step.output][wanted[step.output]]
        wanted |= dict(zip(step.inputs, choice.inputs, strict=True))
    if not any(search.choices[s.output][wanted[s.output]].lengths for s in network.steps):
        return None
    uses = {i: s.output for s in network.steps for i in s.inputs}
    steps = []
    for step in network.steps:
        pair, way = search.pairs[step.output], search.choices[step.output][wanted[step.output]].lengths
        done = tuple(i for i in dict.fromkeys(step.inputs) if uses[i] == step.output)
        if way:
            kept = wanted[step.output]
            axis = None if kept is None else step.modes.index(kept)
            lengths = tuple((pair.names[m], n) for m, n in way)
            steps.append(SharedStep(step, None, search.shared(step, way, axis, devices, link), lengths, done))
        else:
            read = tuple(
                given[i] if i < len(given) and layout[i] is None else x
                for i, x in zip(step.inputs, pair.request.operands, strict=True)
            )
            plan = find_plan(replace(pair.request, operands=read, device=device, waits=True))
            steps.append(SharedStep(step, plan, None, (), done))
    return Stepwise(tuple(steps), found[at].cost, devices[0], link)
