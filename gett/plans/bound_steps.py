"""`BoundSteps`: how the steps of a plan, bound to the devices where they run, run on arrays that fit.

Owns allocation of the result, what happens where `out` overlaps what is read, and the order of calls. Knows no
subscripts, checks no array against a plan but `out`, and makes no decision about kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from gett.arrays.exponents import in_tens, take_power
from gett.arrays.kinds import CPU, NUMPY, ArrayKind, allocate, bounds, conversion, convert
from gett.errors import OptionError
from gett.graphs.replay import Replay, may_replay
from gett.ir.tensors import BFLOAT16, TensorSpec, packed_axes
from gett.network.request import PlanRequest
from gett.network.running import Ending, run_steps, turns_of
from gett.network.steps import Executable, Step, own_places
from gett.plans.bindings import Bindings
from gett.plans.checks import check_out, is_apart


class BoundSteps(Bindings):
    """The steps of a plan, and how they run on arrays.

    Attributes:
        arch: `"cpu"`, or the GPU architecture that it is planned for, e.g. `"sm_90a"`.
        steps: The contractions in order; none where the result has no elements.
        shape: Shape of the result.
        dtype: dtype in which products are formed; the result's, unless `out` was given in another.
    """

    __slots__ = (
        "_d", "_direct", "_order", "_own_place", "_replan", "_replays", "_scalar", "_span", "_spans", "_through_copy",
        "dtype", "shape",
    )  # fmt: skip

    def __init__(
        self,
        request: PlanRequest,
        steps: tuple[Step, ...],
        d: TensorSpec,
        order: str,
        read: Sequence[np.dtype[Any]],
        replan: Callable[..., Any],
    ) -> None:
        """Made with a plan, which has the same arguments."""
        operands, out = request.operands, request.out
        changed = [(t, x, t.dtype != x) for t, x in zip(operands, read, strict=True)]
        super().__init__(request, steps, [conversion(t, x) if differs else None for t, x, differs in changed])
        self.shape, self.dtype, self._scalar = d.shape, d.dtype, not d.shape
        self._d, self._order, self._replan = d, order, replan
        self._span = bounds(out or d)
        self._spans = tuple(map(bounds, operands if request.c is None else (*operands, request.c)))
        self._through_copy = out is not None and out.dtype != d.dtype
        converted = any(x is not None for x in self._convert) or (request.c is not None and request.c.dtype != d.dtype)
        given = tuple(range(len(operands)))
        self._direct = len(steps) == 1 and steps[0].inputs == given and not converted and not request.epilogue_args
        self._own_place = own_places(request, steps)
        self._replays: dict[tuple[int, str], Replay | None] = {}

    def __reduce__(self) -> Any:
        """Another process makes the plan again: kernels, which are a process's own, come from the cache on disk."""
        return _again, (self._replan, self._request)

    def executable_on(self, device: int) -> Any:
        """The one executable that runs the plan on arrays of a device, on operands and into `out` as they are.

        None where more is done: intermediates, conversions, several launches with an order.

        Args:
            device: One that the plan is bound to.
        """
        return self._own(device)[0] if self._direct and not self._through_copy else None

    def is_near(self, kind: ArrayKind, read: Sequence[Any], out: Any) -> bool:
        """Whether `out` is read-only or may share memory with what is read; all fit the plan otherwise.

        Args:
            kind: Of the arrays.
            read: Operands and, behind them, `c` where the plan has one that is not `out` itself.
            out: The array to write.
        """
        if kind is NUMPY:
            return not out.flags.writeable or any([np.may_share_memory(out, x) for x in read])
        if kind.launch is None:  # CuPy's: without a call for each address
            addresses, start = [x.data.ptr for x in read], out.data.ptr
        else:
            addresses, start = [kind.pointer(x) for x in read], kind.pointer(out)
        low, high = self._span
        low, high = low + start, high + start
        return any([x + lo < high and low < x + hi for x, (lo, hi) in zip(addresses, self._spans, strict=False)])

    def run_into(
        self,
        kind: ArrayKind,
        device: int,
        operands: Sequence[Any],
        c: Any,
        out: Any,
        alpha: Any = 1,
        beta: Any = 0,
        extras: Sequence[Any] = (),
    ) -> Any:
        """`run` where `out` may overlap what is read: the result is then formed in an array of its own and copied.

        That is not needed where the result is converted into `out` anyway, or where each element of `out` depends only
        on what lay in its own place: `out` is `c` itself, or an operand of an element-wise product.

        Raises:
            OutputError: `out` is read-only, or elements of it overlap.
        """
        context = kind.on(device)
        if context is not None:
            with context:
                return self.run_into(kind, device, operands, c, out, alpha, beta, extras)
        spec = check_out(out, kind, device)
        function = self._request.epilogue
        added = [(extras[x.argument], False) for x in function.extras] if function is not None else []
        added += [] if c is None else [(c, True)]
        if self._through_copy or is_apart(kind, out, spec, operands, self._own_place, added):
            return self.run(kind, device, operands, c, out, alpha, beta, extras)
        buffer = allocate(kind, spec.shape, spec.dtype, packed_axes(spec))
        dense, plan = kind.describe(buffer), self
        if dense != (self._request.out or self._d):
            plan = self._replan(replace(self._request, out=dense, dtype=self.dtype))
        kind.copy(out, plan.run(kind, device, operands, c, buffer, alpha, beta, extras))
        return out

    def run(
        self,
        kind: ArrayKind,
        device: int,
        operands: Sequence[Any],
        c: Any = None,
        out: Any = None,
        alpha: Any = 1,
        beta: Any = 0,
        extras: Sequence[Any] = (),
    ) -> Any:
        """Compute, for arrays that are known to fit the plan."""
        context = None if device == CPU else kind.on(device)
        if context is not None:
            with context:
                return self.run(kind, device, operands, c, out, alpha, beta, extras)
        new = out is None or self._through_copy
        d = kind.empty(self.shape, self.dtype, self._order) if new else out
        own = self._bound.get(device) if self._direct else None
        if own is not None:
            second, launch = operands[1] if len(operands) == 2 else None, kind.launch
            if launch is None:
                own[0](operands[0], second, c, d, alpha, beta)
            else:
                launch(own[0], operands[0], second, c, d, alpha, beta)
        else:
            self._write(kind, device, operands, Ending(c, d, alpha, beta, extras))
        if out is None:
            return d[()] if self._scalar and kind is NUMPY else d
        if d is not out:
            kind.copy(out, d)
        return out

    def stripped(self, kind: ArrayKind, device: int, operands: Sequence[Any], alpha: Any = 1) -> tuple[Any, Any]:
        """`run` for results beyond the range of their dtype: the result divided by a power of ten, and its exponent.

        Raises:
            OptionError: The result is no floating-point number.
        """
        if self.dtype is not BFLOAT16 and self.dtype.kind not in "fc":
            raise OptionError(f"strip_exponent= scales floating-point numbers, but the contraction is in {self.dtype}")
        context = None if device == CPU else kind.on(device)
        with context or nullcontext():
            d = kind.empty(self.shape, self.dtype, self._order)
            power = self.write_stripped(kind, device, operands, d, alpha)
            exponent = in_tens(kind, power)
        return (d[()] if self._scalar and kind is NUMPY else d), exponent

    def write_stripped(self, kind: ArrayKind, device: int, operands: Sequence[Any], d: Any, alpha: Any = 1) -> Any:
        """Write the result divided by a power of two, so that its largest part is below 1; returns the power.

        Each step's result is scaled before the next one reads it. Powers of two change no digit of it.
        """
        turns, executables, _ = self._form(kind, device, alpha)
        powers: list[Any] = []
        if turns:
            ending = Ending(None, d, alpha)
            run_steps(
                turns, executables, kind, operands, self._convert, ending, lambda x: powers.append(take_power(kind, x))
            )
        return sum(powers)

    def _write(self, kind: ArrayKind, device: int, operands: Sequence[Any], ending: Ending) -> None:
        """Write the result where that takes more than one executable, on the current device."""
        turns, executables, own = self._form(kind, device, ending.alpha)
        c = ending.c
        if c is not None and kind.describe(c).dtype != self.dtype:
            ending = ending._replace(c=convert(kind, c, conversion(kind.describe(c), self.dtype)))
        if turns and not (own and self._replayed(kind, device, executables, operands, ending)):
            run_steps(turns, executables, kind, operands, self._convert, ending)

    def _replayed(
        self, kind: ArrayKind, device: int, executables: Sequence[Executable], operands: Sequence[Any], ending: Ending
    ) -> bool:
        """Run the steps as one launch, from the second call on; whether that was possible.

        A plan with a limit of memory keeps none between calls.
        """
        if device == CPU or self._request.memory_limit is not None:
            return False
        key = device, kind.name
        if key not in self._replays:
            fit = may_replay(self._turns, executables)
            self._replays[key] = Replay(kind, device, self._turns, executables, len(operands)) if fit else None
            return False
        replay = self._replays[key]
        return replay is not None and replay(operands, ending)

    def played_by_hand(self, kind: ArrayKind, device: int) -> Replay | None:
        """What plays the steps where and when a caller wants; None where a call does more than launch kernels.

        Args:
            kind: Of the arrays.
            device: Where they are; the plan has run there.
        """
        executables = self._bound.get(device)
        if not executables or self._through_copy:
            return None
        turns = turns_of(self.steps, self._convert)
        if not may_replay(turns, executables, by_hand=True):
            return None
        return Replay(kind, device, turns, executables, len(self._convert), by_hand=True)

    def sole(self, kind: ArrayKind, device: int) -> Executable | None:
        """The executable that is all of the plan, to be launched on what fits; None where a call does more than that.

        Args:
            kind: Of the arrays, whose `only` says whether there is no other device.
            device: Where they are.
        """
        if not self._direct or not getattr(kind, "only", False) or self._request.c is not None:
            return None
        return self._own(device)[0]

    def bound(self, kind: ArrayKind, device: int, alpha: Any = 1) -> Callable[[Any, Any], Any]:
        """`run` for one or two operands, the second None for one: what depends on neither is worked out here."""
        executable = self.sole(kind, device)
        if executable is None:
            return lambda a, b: self.run(kind, device, (a,) if b is None else (a, b), None, None, alpha, 0)
        empty, launch, shape, dtype, order = kind.empty, kind.launch, self.shape, self.dtype, self._order

        def run(a: Any, b: Any) -> Any:
            d = empty(shape, dtype, order)
            launch(executable, a, b, None, d, alpha, 0)
            return d

        return run

    def forget(self) -> None:
        """Give back the memory that is kept between calls: that of CUDA graphs, and what the plan holds.

        The next call makes anew what it needs. On a GPU, streams must have ended the calls of the plan before.

        Example:
            >>> import gett
            >>> gett.plan("ij->ji", ((2, 3), "float64")).forget()
        """
        replays, self._replays = self._replays, {}
        for replay in replays.values():
            if replay is not None:
                replay.forget()


def _again(replan: Callable[..., Any], request: PlanRequest) -> Any:
    return replan(request)
