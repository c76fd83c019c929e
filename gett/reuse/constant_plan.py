"""`ConstantPlan`: a contraction of which some operands are constants, whose steps run once.

Owns which steps those are, their results on each device, and what calls then take. The rest is an ordinary plan.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from gett.arrays.dynamo import untraced
from gett.arrays.held import bring, finish, finish_device, place, refuse_recording
from gett.arrays.torch import torch_library
from gett.console.formatting import count, format_bytes, printable
from gett.errors import GradientError, OptionError, ShapeError
from gett.hw.archs import ArchFacts
from gett.network.limits import Elements
from gett.network.optimize import Bytes
from gett.network.request import PlanRequest
from gett.plans.contraction_plan import ContractionPlan
from gett.reuse.division import Contractions, Division, Limit, Part
from gett.reuse.path import with_constants
from gett.slices.finder import find_plan


class ConstantPlan(ContractionPlan):
    """A contraction of which some operands are held: calls take the others, in their order.

    `steps`, `flops` and `bytes` are those of a call. `request` and `path` are those of all operands.

    Attributes:
        constants: The held operands by their places.
    """

    __slots__ = ("_count", "_held", "_lock", "_parts", "_reads", "_rest", "constants")

    def __init__(self, request: PlanRequest, constants: Mapping[int, Any]) -> None:
        """Made by `gett.plan`.

        Args:
            request: What was asked for, of all operands.
            constants: Arrays by the places of their operands.

        Raises:
            OptionError: The limit of memory leaves nothing beside what is held.
        """
        division = Division(with_constants(request, constants))
        variables = [i for i in range(len(request.operands)) if i not in constants]
        self._parts: tuple[Part, ...]
        self._parts, self._reads, rest = _divided(division, request, constants, variables)
        self._rest = find_plan(rest)
        read = [t.dtype for t in request.operands]
        super().__init__(request, str(division.subscripts), (), division.path, *self._rest.result, read, find_plan)
        self.constants = dict(constants)
        self._count = len(variables)
        self._held: dict[Any, list[Any]] = {}
        self._lock = threading.Lock()
        self.steps = self._rest.steps

    def __reduce__(self) -> Any:
        """Constants travel; their results are computed again."""
        return ConstantPlan, (self._request, self.constants)

    # --- what it says of itself

    @property
    def held_steps(self) -> int:
        """How many steps run once, since they depend on constants alone."""
        return sum(len(x.plan.steps) for x in self._parts)

    @property
    def held_bytes(self) -> int:
        """Bytes of the results of constants that are kept between calls, on each device."""
        return sum(x.plan.result.d.nbytes for x in self._parts)

    @property
    def peak_bytes(self) -> int:
        """Most memory that a call holds at one time, what is held and the first call included."""
        held = most = 0
        for x in self._parts:
            most = max(most, held + x.plan.peak_bytes)
            held += x.plan.result.d.nbytes
        return max(most, held + self._rest.peak_bytes)

    @property
    def intermediate_bytes(self) -> int:
        """Most memory that intermediates hold at one time, those that are held among them."""
        return self.held_bytes + self._rest.intermediate_bytes

    @property
    def flops(self) -> int:
        """Floating-point operations of a call; what runs once does not count."""
        return self._rest.flops

    @property
    def bytes(self) -> int:
        """Least traffic of the steps of a call: each of their tensors once."""
        return self._rest.bytes

    @property
    def workspace_bytes(self) -> int:
        """Device memory for partial sums during a call."""
        return max(x.workspace_bytes for x in (self._rest, *(x.plan for x in self._parts)))

    @property
    def largest_intermediate(self) -> int:
        """Elements of the largest intermediate, held ones included."""
        parts = [max(int(np.prod(x.plan.shape)), x.plan.largest_intermediate) for x in self._parts]
        return max([*parts, self._rest.largest_intermediate])

    @property
    def slices(self) -> int:
        """How many slices a call computes one after the other."""
        return self._rest.slices

    @property
    def sliced(self) -> str:
        """The labels along which a call is sliced."""
        return self._rest.sliced

    @property
    def once(self) -> int:
        """How many steps of a call run once for all its slices."""
        return self._rest.once

    @property
    def overhead(self) -> float:
        """Floating-point operations of a call as a multiple of those without slices."""
        return self._rest.overhead

    def _told(self) -> PlanRequest:
        return self._rest.request

    def _facts(self) -> ArchFacts | None:
        return self._rest._facts()

    def __repr__(self) -> str:
        held = count(len(self.constants), "constant")
        return f"<ConstantPlan {printable(self.subscripts)} on {self.arch}, {held}, {count(len(self.steps), 'step')}>"

    # --- how it runs

    def settle(self) -> ConstantPlan:
        """Compile what runs once and calls where this machine has a compiler; nothing is computed."""
        for plan in (*(x.plan for x in self._parts), self._rest):
            plan.settle()
        self.steps = self._rest.steps
        return self

    def compile(self) -> ConstantPlan:
        """Compile the kernels of what runs once and of calls; on the device at hand, compute what runs once."""
        for part in self._parts:
            part.plan.compile()
        self._rest.compile()
        self.steps = self._rest.steps
        if self._request.device is not None and self.constants:
            self._held_for(next(iter(self.constants.values())))
        return self

    def forget(self) -> None:
        """Give back the results of constants, on every device: the next call computes them again."""
        with self._lock:
            held, self._held = self._held, {}
        for arrays in held.values():
            for array in arrays[:1]:
                finish_device(array)
        super().forget()

    @untraced
    def __call__(self, *operands: Any, **options: Any) -> Any:
        """Compute the contraction of arrays with the constants, as any plan does.

        Args:
            operands: Those that are no constants, in the order of the subscripts; messages count these alone.
            options: As for any plan.

        Raises:
            ShapeError: Another number of operands.
            GradientError: A constant requires a gradient.
            OptionError: The first call is recorded in a CUDA graph.
            GettError: As a call of any plan.
        """
        if len(operands) != self._count:
            raise ShapeError(
                f"the plan {self.subscripts} takes {count(self._count, 'operand')} beside "
                f"{count(len(self.constants), 'constant')}, {len(operands)} were given"
            )
        model = next((x for x in operands if hasattr(x, "dtype")), None)
        if model is None:
            model = np.asarray(operands[0]) if operands else next(iter(self.constants.values()), None)
        held = self._held.get(place(model))
        if held is None:
            held = self._held_for(model)
        return self._rest(*operands, *held, **options)

    def _write(self, *_: Any) -> None:
        raise NotImplementedError("a plan that holds constants runs by its calls alone")

    def _held_for(self, model: Any) -> list[Any]:
        """What calls read in the constants' place, in the library and on the device of an array."""
        key = place(model)
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = self._compute(model)
        return held

    def _compute(self, model: Any) -> list[Any]:
        torch = torch_library()
        for i, x in self.constants.items():
            if torch is not None and torch.modes.requires_gradient(x):
                raise GradientError(
                    f"constant {i} requires a gradient, but constants are contracted once: pass it in calls, or "
                    "x.detach()"
                )
        if self._parts:
            refuse_recording(model, "constants cannot be contracted")
        with nullcontext() if torch is None else torch.modes.untransformed():  # what is held outlives a transformation
            tensors = {i: bring(x, model) for i, x in self.constants.items()}
            for part in self._parts:
                made = part.plan(*(tensors[i] for i in part.inputs))
                tensors[part.output] = np.asarray(made) if isinstance(made, np.generic) else made
            found = [tensors[i] for i in self._reads]
            for array in found[:1]:
                finish(array)  # other streams read it
        return found


def _divided(
    division: Division, request: PlanRequest, constants: Collection[int], variables: Sequence[int]
) -> tuple[tuple[Part, ...], list[int], PlanRequest]:
    """What runs once; the numbers of what calls read in the constants' place; the request of calls."""
    limit = request.memory_limit
    if division.empty:
        return (), sorted(constants), division.rest([*variables, *sorted(constants)], (), limit)
    steps, operands = division.network.steps, len(request.operands)
    inputs: dict[int, tuple[int, ...]] = {i: (i,) for i in constants}  # constants below each tensor of constants alone
    inner: dict[int, tuple[int, ...]] = dict.fromkeys(constants, ())
    for s in steps:
        if all(i in inputs for i in s.inputs):
            inputs[s.output] = tuple(sorted(i for x in s.inputs for i in inputs[x]))
            inner[s.output] = (*(i for x in s.inputs for i in inner[x]), s.output)
    later = [s.output for s in steps if s.output not in inputs]
    taken = {i for s in steps if s.output not in inputs for i in s.inputs} or {steps[-1].output}
    modes = {s.output: s.modes for s in steps}
    parts, reads, fresh, held = [], [], operands + len(steps), 0
    contractions: list[tuple[int, ...]] = [*division.contractions(later)]
    for root in sorted(i for i in inputs if i in taken):
        number, kept = root, modes.get(root)
        if kept is None:
            kept = _needed(division, root)
            if kept == division.modes(root):
                reads.append(root)
                continue
            number, fresh = fresh, fresh + 1  # its sums and diagonals are taken once
            contractions = [tuple(number if i == root else i for i in c) for c in contractions]
        below = sorted(inputs[root])
        part = division.part(below, division.contractions(inner[root]), kept, number, left(limit, held))
        held += part.plan.result.d.nbytes
        parts.append(part)
        reads.append(number)
    rest: Contractions = contractions
    return tuple(parts), reads, division.rest([*variables, *reads], rest, left(limit, held))


def _needed(division: Division, operand: int) -> tuple[int, ...]:
    """The modes of an operand that other tensors have, or the result."""
    inputs, output = division.subscripts.inputs, division.subscripts.output
    others = set(output).union(*(x for i, x in enumerate(inputs) if i != operand))
    return tuple(dict.fromkeys(m for m in inputs[operand] if m in others))


def left(limit: Limit, held: int) -> Limit:
    """What a limit leaves beside bytes that are held.

    Raises:
        OptionError: Nothing.
    """
    if limit is None or isinstance(limit, Elements) or not held:
        return limit
    if held >= limit.size:
        raise OptionError(
            f"memory_limit= limits a call to {limit.size} bytes, but results of constants take {held} bytes "
            f"({format_bytes(held)}) between calls"
        )
    return replace(limit, size=limit.size - held) if isinstance(limit, Bytes) else limit
