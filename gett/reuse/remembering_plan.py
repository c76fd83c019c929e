"""`RememberingPlan`: a contraction that keeps its intermediates, so that calls compute again what a change touches.

Owns which steps depend on which operands, and what each thread keeps between its calls.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gett.arrays.bfloat16 import FLOAT32
from gett.arrays.dynamo import untraced
from gett.arrays.held import Mark, finish_device, follow, is_same, mark, refuse_recording, version
from gett.arrays.interop import borrow, gather
from gett.arrays.jax import is_jax
from gett.arrays.kinds import NUMPY
from gett.arrays.torch import torch_library
from gett.console.formatting import count, format_bytes, printable
from gett.errors import GradientError, OptionError, ShapeError
from gett.ir.tensors import BFLOAT16
from gett.network.limits import Elements
from gett.network.optimize import Bytes, SlicedPath
from gett.network.request import PlanRequest
from gett.plans.checks import check_fits, check_places
from gett.plans.contraction_plan import ContractionPlan
from gett.reuse.division import Division, Part
from gett.slices.finder import find_plan


class _State:
    """What one thread keeps of a plan between its calls."""

    __slots__ = ("__weakref__", "kept", "lock", "mark", "operands", "versions")

    def __init__(self) -> None:
        """Nothing yet."""
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.kept: dict[int, Any] = {}
        self.operands: tuple[Any, ...] | None = None
        self.versions: tuple[int, ...] = ()
        self.mark: Mark | None = None


class RememberingPlan(ContractionPlan):
    """A contraction whose intermediates stay, one set for each thread that calls it."""

    __slots__ = ("_all", "_below", "_last", "_local", "_nodes", "_reads")

    def __init__(self, request: PlanRequest) -> None:
        """Made by `gett.plan`.

        Raises:
            OptionError: The intermediates do not keep the limit of memory, or `optimize=` has slices.
        """
        if isinstance(request.optimize, SlicedPath):
            raise OptionError("remember=True keeps intermediates, and the slices of optimize= have none: give a path")
        division = Division(replace(request, memory_limit=None))
        steps = () if division.empty else division.network.steps
        if request.device is not None and request.arch != "cpu" and steps:
            # The kernels of all nodes are compiled side by side here, and found one by one below.
            optimize = division.path if len(steps) > 1 else True
            find_plan(replace(request, memory_limit=None, optimize=optimize, waits=True))
        self._nodes: tuple[Part, ...] = tuple(division.part(s.inputs, (), s.modes, s.output, None) for s in steps[:-1])
        self._reads = steps[-1].inputs if steps else tuple(range(len(request.operands)))
        self._last = find_plan(division.rest(self._reads, (), None))
        below = {i: 1 << i for i in range(len(request.operands))}  # operands below each tensor, as bits
        for node in self._nodes:
            below[node.output] = _union(below[i] for i in node.inputs)
        self._below = tuple(below[node.output] for node in self._nodes)
        read = [t.dtype for t in request.operands]
        super().__init__(request, str(division.subscripts), (), division.path, *self._last.result, read, find_plan)
        self._local = threading.local()
        self._all: weakref.WeakSet[_State] = weakref.WeakSet()
        self._show_steps()
        self._check_limit()

    def __reduce__(self) -> Any:
        """Another process makes the plan again; what was kept stays here."""
        return RememberingPlan, (self._request,)

    def _show_steps(self) -> None:
        self.steps = (*(s for x in self._nodes for s in x.plan.steps), *self._last.steps)

    def _check_limit(self) -> None:
        limit = self._request.memory_limit
        if isinstance(limit, Bytes) and self.peak_bytes > limit.size:
            raise OptionError(
                f"memory_limit= limits a call to {limit.size} bytes, but with remember=True it holds "
                f"{self.peak_bytes} bytes ({format_bytes(self.peak_bytes)}), of which intermediates take "
                f"{self.held_bytes}"
            )
        if isinstance(limit, Elements):
            most = limit.count or max((math.prod(t.shape) for t in self._request.operands), default=1)
            if self.largest_intermediate > most:
                raise OptionError(
                    f"memory_limit= limits intermediates to {most} elements, but with remember=True one has "
                    f"{self.largest_intermediate}"
                )

    # --- what it says of itself

    @property
    def held_steps(self) -> int:
        """How many steps have results that are kept between calls: all but the last."""
        return sum(len(x.plan.steps) for x in self._nodes)

    @property
    def held_bytes(self) -> int:
        """Bytes of the intermediates that each thread which calls the plan keeps."""
        return sum(x.plan.result.d.nbytes for x in self._nodes)

    @property
    def intermediate_bytes(self) -> int:
        """Bytes of all intermediates, which are kept."""
        return self.held_bytes

    @property
    def peak_bytes(self) -> int:
        """Most memory that a call holds at one time, what is kept included."""
        beside = [x.plan.peak_bytes - x.plan.result.d.nbytes for x in self._nodes]
        return self.held_bytes + max([*beside, self._last.peak_bytes])

    @property
    def largest_intermediate(self) -> int:
        """Elements of the largest intermediate."""
        return max((max(math.prod(x.plan.shape), x.plan.largest_intermediate) for x in self._nodes), default=0)

    def __repr__(self) -> str:
        return f"<RememberingPlan {printable(self.subscripts)} on {self.arch}, {count(len(self.steps), 'step')}>"

    # --- how it runs

    def compile(self) -> RememberingPlan:
        """Compile the kernels of all steps."""
        for plan in (*(x.plan for x in self._nodes), self._last):
            plan.compile()
        self._show_steps()
        return self

    def forget(self) -> None:
        """Give back what all threads keep: each has to contract everything again before it names changes."""
        for state in list(self._all):
            with state.lock:
                for array in [*state.kept.values()][:1]:
                    finish_device(array)
                state.clear()
        super().forget()

    @untraced
    def __call__(self, *operands: Any, changed: Sequence[int] | None = None, **options: Any) -> Any:
        """Compute the contraction, all of it or what depends on some operands.

        Args:
            operands: All of them, as for any plan.
            changed: Places of the operands that are other arrays than in this thread's call before, or were written
                to. Only steps that depend on them run, and the last one. None stands for all.
            options: As for any plan.

        Raises:
            OptionError: There was no call before, `changed` names no operand, another operand is another array, or a
                CUDA graph is recorded.
            GradientError: PyTorch records derivatives, or transforms the call.
            GettError: As a call of any plan.
        """
        if len(operands) != len(self._request.operands):
            raise ShapeError(
                f"the plan {self.subscripts} takes {len(self._request.operands)} operands, {len(operands)} were given"
            )
        _refuse_recorded(operands, options)
        model = next((x for x in operands if hasattr(x, "dtype")), operands[0])
        refuse_recording(model, "intermediates cannot be kept")
        state = self._state()
        with state.lock:
            follow(state.mark, model)
            try:
                self._refresh(state, operands, changed)
                tensors = (operands[i] if i < len(operands) else state.kept[i] for i in self._reads)
                return self._last(*tensors, **options)
            finally:
                state.mark = mark(model)

    def _write(self, *_: Any) -> None:
        raise NotImplementedError("a plan that keeps intermediates runs by its calls alone")

    def _state(self) -> _State:
        state: _State | None = getattr(self._local, "state", None)
        if state is None:
            state = self._local.state = _State()
            self._all.add(state)
        return state

    def _refresh(self, state: _State, operands: tuple[Any, ...], changed: Sequence[int] | None) -> None:
        """Compute the intermediates that depend on what changed, and keep them."""
        if changed is None:
            places = [*range(len(operands))]
        else:
            places = check_places(changed, len(operands), "changed")
            _check_others(state, operands, places)
        for i in places:
            self._check(i, operands[i])
        bits = _union(1 << i for i in places)
        try:
            for node, below in zip(self._nodes, self._below, strict=True):
                if not below & bits:
                    continue
                state.kept.pop(node.output, None)  # its memory goes before there is a new one
                made = node.plan(*(operands[i] if i < len(operands) else state.kept[i] for i in node.inputs))
                state.kept[node.output] = np.asarray(made) if isinstance(made, np.generic) else made
        except BaseException:
            state.clear()
            raise
        state.operands, state.versions = operands, tuple(map(version, operands))

    def _check(self, i: int, x: Any) -> None:
        """Refuse an operand of another layout than the plan's, by its own number: those of nodes are others.

        Raises:
            ShapeError, DTypeError: It does not fit.
        """
        want, name = self._request.operands[i], f"operand {i}"
        if x.__class__ is np.ndarray and (x.shape, x.strides, x.dtype) == (want.shape, want.strides, want.dtype):
            return
        shape = tuple(np.shape(x))
        if shape != want.shape:
            raise ShapeError(f"{name} has shape {shape}, the plan was made for {want.shape}")
        if is_jax(x):
            return
        loan = borrow([x])
        kind, _, (array,) = gather([x if loan is None else loan.operands[0]], [name], 1)
        have = kind.describe(array)
        if not (have.dtype is BFLOAT16 and want.dtype is FLOAT32):  # on the CPU, which converts it
            check_fits(name, want, have, ShapeError, kind is not NUMPY)


def _union(bits: Any) -> int:
    found = 0
    for x in bits:
        found |= x
    return found


def _check_others(state: _State, operands: Sequence[Any], changed: Sequence[int]) -> None:
    """Refuse a call of which other operands changed than it says, as far as that can be seen.

    Raises:
        OptionError: There was no call, or an operand is another array or has another version.
    """
    before = state.operands
    if before is None:
        raise OptionError(
            f"changed={list(changed)}: this thread has kept nothing of the plan yet: call it without changed= first"
        )
    named = set(changed)
    for i, (x, y) in enumerate(zip(operands, before, strict=True)):
        if i in named:
            continue
        if not is_same(x, y):
            raise OptionError(f"operand {i} is another array than in the call before: changed= must name it")
        if version(x) != state.versions[i]:
            raise OptionError(f"operand {i} was written to since the call before: changed= must name it")


def _refuse_recorded(operands: Sequence[Any], options: dict[str, Any]) -> None:
    """Refuse a call of which PyTorch would record derivatives, or which it transforms.

    Raises:
        GradientError: It would.
    """
    torch = torch_library()
    if torch is not None and torch.modes.records([*operands, *options.values(), *options.get("epilogue_args", ())]):
        raise GradientError(
            "derivatives are not recorded of intermediates that remember=True keeps: call within torch.no_grad(), or "
            "on x.detach()"
        )
