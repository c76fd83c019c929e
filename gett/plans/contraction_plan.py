"""`ContractionPlan`: a planned contraction as users hold it, and its calls.

Owns checking the arrays of a call against what was planned. How steps run is `gett.plans.bound_steps`', what a plan
says of itself `gett.plans.plan_text`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from gett.arrays.dynamo import untraced
from gett.arrays.interop import lend_bfloat16
from gett.arrays.kinds import CPU, NUMPY
from gett.arrays.torch import torch_library
from gett.errors import (
    CompileError,
    DeviceError,
    GradientError,
    MissingPackageError,
    OptionError,
    OutputError,
    ShapeError,
)
from gett.hw.dtypes import is_complex
from gett.ir.tensors import TensorSpec
from gett.network.path import Path
from gett.network.request import PlanRequest
from gett.network.steps import Step
from gett.plans.call import NO_ARGUMENTS, NO_DERIVATIVES, Call, finished, make_call
from gett.plans.checks import any_complex, check_factors, check_fits, check_out, check_planned, resolve_addend
from gett.plans.compiling import compile_parts, settle_parts, unsettled
from gett.plans.fit import Fit
from gett.plans.plan_text import PlanText

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from gett.plans.plan_graph import PlanGraph
    from gett.typing import CallOptions, DeviceArrayT, NumPyOperand, Size, SupportsArray


class ContractionPlan(PlanText):
    """A planned contraction, to be run many times: `plan(a, b, out=d)`.

    Attributes:
        subscripts: The explicit form, e.g. `"ij,jk->ik"`.
        arch: `"cpu"`, or the GPU architecture that it is planned for, e.g. `"sm_90a"`.
        path: For each contraction the positions of the tensors that it takes, as opt_einsum's paths have them. On a GPU
            small tensors of neighbouring contractions may be multiplied first: `steps` are what runs.
        shape: Shape of the result.
        dtype: dtype in which products are formed; the result's, unless `out` was given in another.
    """

    __slots__ = ("_fit", "_read", "_real_factors")

    def __init__(
        self,
        request: PlanRequest,
        subscripts: str,
        steps: tuple[Step, ...],
        path: Path,
        d: TensorSpec,
        order: str,
        read: Sequence[np.dtype[Any]],
        replan: Callable[..., ContractionPlan],
    ) -> None:
        """Made by `gett.plan`.

        Args:
            request: What was asked for.
            subscripts: The explicit form.
            steps: The contractions.
            path: Of all operands.
            d: The array that the last step writes.
            order: Memory order of a new result, `"C"` or `"F"`.
            read: The dtype in which each operand is read.
            replan: Makes the plan of another request; with `keep=False` the plan cache does not keep it.
        """
        super().__init__(request, steps, d, order, read, replan)
        self.subscripts = subscripts
        self.path = path
        self._read = read
        # Where the last step of a complex result computes in real numbers, complex factors take another plan.
        last = steps[-1].gemm.contraction.dtype if steps else d.dtype.name
        self._real_factors = is_complex(d.dtype.name) and not is_complex(last)
        self._fit = Fit(request, d)

    def under(self, request: PlanRequest) -> ContractionPlan:
        """The same steps for a request with a limit that they keep, which later calls keep too."""
        made = ContractionPlan(request, self.subscripts, self.steps, self.path, *self.result, self._read, self._replan)
        made._settled = self._settled
        return made

    def compile(self) -> ContractionPlan:
        """Compile the kernels of a plan that was made for an architecture, whether or not there is such a GPU.

        A candidate whose kernel turns out poor gives way to the next, so from then on `steps` and the plan's text show
        the schedules that run. Kernels stay in the cache on disk. Nothing is done twice, and nothing on the CPU.

        Returns:
            The plan itself.

        Raises:
            MissingPackageError: NVRTC or CUDA's headers are not installed.
            CompileError: A kernel cannot be compiled, or the compiler does not know the architecture.

        Example:
            >>> import gett
            >>> plan = gett.plan("ij->ji", ((512, 512), "float16"), arch="sm_90a")
            >>> plan.compile() is plan
            True
        """
        parts = unsettled(self.parts)
        settle_parts(parts, compile_parts(parts))
        return self

    @property
    def parts(self) -> tuple[ContractionPlan, ...]:
        """The plans that a call runs, whose kernels it needs: this one, where nothing is sliced."""
        return (self,)

    def graph(self, *operands: Any, out: Any = None, alpha: Any = 1) -> PlanGraph:
        """A call on given arrays as one CUDA graph, to be launched by hand; the call itself is made once, too.

        From the second call on, a plan of three steps or more plays such a graph by itself. By hand a graph is played
        on any stream, whatever memory it takes, and without a look at the arrays.

        Args:
            operands: As for a call. The graph keeps them.
            out: Where the result goes; default: a new array, which each launch writes.
            alpha: Factor of the contraction.

        Returns:
            What `launch()` plays on the current stream, and `update(...)` gives other arrays.

        Raises:
            DeviceError: The plan is for the CPU, or the driver does not record.
            OptionError: A call of the plan does more than launch kernels; or the arrays are not CuPy's or PyTorch's.

        Example:
            >>> import gett
            >>> gett.plan("ij->ji", ((2, 3), "float64")).graph(...)
            Traceback (most recent call last):
            gett.errors.DeviceError: graph() records the kernels of arrays on a GPU, and the plan is for cpu
        """
        from gett.plans.plan_graph import PlanGraph  # late: few programs launch by hand

        home = self._request.device
        if home is None or home == CPU:
            raise DeviceError(f"graph() records the kernels of arrays on a GPU, and the plan is for {self.arch}")
        given = self.compile()(*operands, out=out, alpha=alpha)
        kind = self._fit.kind_of(operands, given, alpha, 0)
        if kind is None:
            raise OptionError("graph() takes arrays of CuPy or PyTorch that lie as the plan has them, and no c")
        return PlanGraph(self, self._request.operands, kind, home, operands, given, alpha)

    def settle(self) -> ContractionPlan:
        """`compile` where this machine has a compiler that knows the architecture; else the first choices stand."""
        with contextlib.suppress(MissingPackageError, CompileError):
            self.compile()
        return self

    @overload
    def __call__(self, *operands: Any, alpha: Any = 1, strip_exponent: Literal[True]) -> tuple[Any, Any]: ...
    @overload
    def __call__(
        self,
        *operands: NDArray[Any] | np.generic | complex,
        out: NDArray[Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, *operands: DeviceArrayT | complex, out: DeviceArrayT | None = None, **options: Unpack[CallOptions]
    ) -> DeviceArrayT: ...
    @overload
    def __call__(
        self, *operands: SupportsArray | NumPyOperand, out: NDArray[Any] | None = None, **options: Unpack[CallOptions]
    ) -> NDArray[Any]: ...
    @overload
    def __call__(self, *operands: Any, alpha: Any = 1, strip_exponent: bool) -> Any: ...
    @untraced
    def __call__(
        self,
        *operands: Any,
        c: Any = None,
        out: Any = None,
        alpha: Any = 1,
        beta: Any = None,
        epilogue_args: Sequence[Any] = NO_ARGUMENTS,
        checkpoint: Size | None = None,
        strip_exponent: bool = False,
        changed: Sequence[int] | None = None,
    ) -> Any:
        """Compute `alpha * (contraction) + beta * c`, and the plan's epilogue of that.

        Args:
            operands: Arrays of the shapes, strides, dtypes and alignment that the plan was made for.
            c: Added after scaling; it broadcasts to the result.
            out: Where the result goes; dense in the plan's order, or as `out` was when the plan was made. It may
                overlap anything that is read.
            alpha: Factor of the contraction.
            beta: Factor of `c`: 1 by default where there is a `c`. Without `c` it is the factor of what `out` holds
                (`beta=1` accumulates), and 0 by default.
            epilogue_args: As many as the plan was made with, each of as many axes as there.
            checkpoint: As for `einsum`.
            strip_exponent: As for `einsum`, without `c`, `out` and an epilogue.
            changed: Of a plan with `remember=True`, the places of the operands that changed since this thread's call
                before: only steps that depend on them run, and the last one. None stands for all.

        Raises:
            ShapeError, DTypeError, MixedArraysError, OutputError: An array does not fit the plan.
            OptionError: beta is not 0, and there is neither `c` nor `out`; a factor is beyond the dtype's range;
                `checkpoint` is no limit; or `changed` is given to a plan that keeps no intermediates.
            EpilogueError: `epilogue_args` do not fit the epilogue.
            DeviceError: The plan is for another device than the arrays'.

        Example:
            >>> import gett, numpy as np
            >>> a, r = np.ones((2, 3)), np.zeros((2, 2))
            >>> plan = gett.plan("ik,jk->ij", a, a)
            >>> plan(a, a, beta=1, out=r) is r
            True
            >>> plan(a, a, c=r, alpha=2)
            array([[9., 9.],
                   [9., 9.]])
        """
        if changed is not None:
            raise OptionError("changed= names operands of a plan that keeps intermediates: gett.plan(remember=True)")
        plain = c is None and epilogue_args is NO_ARGUMENTS and checkpoint is None and strip_exponent is False
        kind = self._fit.kind_of(operands, out, alpha, beta) if plain else None
        if kind is not None:
            home = self._request.device
            assert home is not None
            if out is None:
                d = self.run(kind, home, operands, None, None, alpha, 0)
                if self._fit.shapes_hold(kind, operands):
                    return d
            elif self._fit.shapes_hold(kind, operands):
                into = self.run_into if self.is_near(kind, operands, out) else self.run
                return into(kind, home, operands, None, out, alpha, 0)
        c, beta = resolve_addend(c, beta, out)
        request = self._request
        call = make_call(
            request.spec, operands, out, casting=request.casting, precision=request.precision, c=c, alpha=alpha,
            beta=beta, epilogue=request.epilogue, extras=epilogue_args, checkpoint=checkpoint, strip=strip_exponent,
        )  # fmt: skip
        return self._check_and_run(call)

    def _check_and_run(self, call: Call, lazy: tuple[bool, ...] = ()) -> Any:
        """Run a call, of whose operands some may stand for tensors that are conjugated lazily."""
        request, out = self._request, call.out
        torch = torch_library()
        if torch is not None and torch.modes.records([*call.operands, call.c, out, *call.extras]):
            if call.strip:
                raise GradientError(NO_DERIVATIVES)
            from gett.plans.recording import record_planned  # late, as few programs differentiate

            return record_planned(call, request, self.path, self._order, self.dtype, self._replan)
        loan = call.borrowed()
        if loan is not None:
            return finished(loan, call, self._check_and_run(call.lent(loan), loan.lazy))
        kind, device, inputs, c, extras = call.gathered()
        loan = lend_bfloat16(inputs, c, out, None, call.casting, extras) if kind is NUMPY else None
        if loan is not None:
            if out is not None:
                check_out(out, kind, device)
            return finished(loan, call, self._check_and_run(call.lent(loan), lazy))
        if len(inputs) != len(request.operands):
            raise ShapeError(
                f"the plan {self.subscripts} takes {len(request.operands)} operands, {len(inputs)} were given"
            )
        if (self.arch == "cpu") is not (kind is NUMPY):
            raise DeviceError(f"the plan was made for {self.arch}, the operands are {kind.name} arrays")
        found = [kind.describe(x) for x in inputs]
        for i, (want, have) in enumerate(zip(request.operands, found, strict=True)):
            check_fits(f"operand {i}", want, have, ShapeError, kind is not NUMPY)
        specs = tuple(map(kind.describe, extras))
        check_planned(request.epilogue_args, specs)
        if out is not None:
            want = request.out or self._d
            check_fits("out", want, check_out(out, kind, device), OutputError, kind is not NUMPY)
        alpha, beta = check_factors(call.alpha, call.beta, self.dtype)
        c_spec = None if c is None or beta == 0 else kind.describe(c)
        factors = request.complex_factors or (self._real_factors and any_complex(alpha, beta))
        plan, planned_out, flags = self, None if out is None else request.out, lazy or tuple([x.conj for x in found])
        made = request.c, request.out, request.epilogue_args, request.complex_factors
        if (c_spec, planned_out, specs, factors, flags) != (*made, tuple([x.conj for x in request.operands])):
            planned = tuple(replace(x, conj=y) for x, y in zip(request.operands, flags, strict=True))
            request = replace(request, operands=planned, c=c_spec, out=planned_out, epilogue_args=specs)
            plan = self._replan(replace(request, complex_factors=factors, dtype=self.dtype))
        c = None if c_spec is None else c
        if call.strip:
            return plan.stripped(kind, device, inputs, alpha)
        if out is not None:
            return plan.run_into(kind, device, inputs, c, out, alpha, beta, extras)
        return plan.run(kind, device, inputs, c, None, alpha, beta, extras)
