"""The public function `contract`: a contraction with factors, and a tensor that is added.

Owns which of its arguments is `c`, and what a factor of 0 leaves unread. Knows nothing of how plans run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gett.api.checks import any_complex, check_factors, check_out, check_workspace_limit, resolve_addend
from gett.api.conjugation import Conj, check_conj, flipped, of_complex
from gett.api.einsum import plan_on_device
from gett.api.epilogue import check_arguments, gather_call, gradient_error, trace_epilogue
from gett.api.numpy_route import is_numpys, numpy_contraction
from gett.api.planner import resolve
from gett.api.precision import usual_precision
from gett.arrays.dynamo import untraced
from gett.arrays.interop import borrow, lend_bfloat16
from gett.arrays.kinds import NUMPY
from gett.arrays.torch import torch_library
from gett.errors import DTypeError, GradientError, OptionError, SubscriptsError
from gett.ir.build import address_c
from gett.ir.subscripts import Spec, operand_count, split_arguments
from gett.ir.tensors import Casting, parse_dtype
from gett.network.optimize import freeze_optimize, with_limit
from gett.network.request import PlanRequest

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from gett.typing import (
        ContractOptions,
        DeviceArrayT,
        Labels,
        NumPyOperand,
        Optimize,
        Precision,
        Size,
        SupportsArray,
    )


@overload
def contract(
    subscripts: str | NDArray[Any],
    /,
    *operands: NumPyOperand,
    out: NDArray[Any] | None = None,
    **options: Unpack[ContractOptions],
) -> NDArray[Any]: ...
@overload
def contract(  # type: ignore[overload-overlap]
    subscripts: str | DeviceArrayT,
    /,
    *operands: DeviceArrayT | complex | Labels,
    out: DeviceArrayT | None = None,
    **options: Unpack[ContractOptions],
) -> DeviceArrayT: ...
@overload
def contract(
    subscripts: str | SupportsArray,
    /,
    *operands: SupportsArray | NumPyOperand,
    out: NDArray[Any] | None = None,
    **options: Unpack[ContractOptions],
) -> NDArray[Any]: ...
@overload
def contract(
    subscripts: str, /, *operands: Sequence[Any], out: Any = None, **options: Unpack[ContractOptions]
) -> Any: ...
@untraced
def contract(
    subscripts: Any = None,
    /,
    *operands: Any,
    c: Any = None,
    alpha: Any = 1,
    beta: Any = None,
    out: Any = None,
    optimize: Optimize = True,
    precision: Precision | None = None,
    epilogue: Callable[..., Any] | None = None,
    epilogue_args: Sequence[Any] = (),
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    memory_limit: Size | None = None,
) -> Any:
    """Compute `epilogue(alpha * einsum(subscripts, *operands) + beta * c, *epilogue_args)`.

    Args:
        subscripts: As for `einsum`, the interleaved form included.
        operands: Arrays, as many as the subscripts name. One array more is `c`: `contract("ij,jk->ik", a, b, c)` is
            `contract("ij,jk->ik", a, b, c=c)`; in the interleaved form `c` goes by its name.
        c: Added after scaling; its axes are the result's last ones and broadcast as NumPy's do. Where beta is 0 its
            values are not read, but its shape and dtype count.
        alpha: Number that the result's dtype can hold.
        beta: Likewise. It scales `c` and is 1 by default where there is a `c`. Without `c` it scales what `out` holds:
            `contract(..., beta=1, out=r)` is `r += ...`, as in BLAS; it is 0 by default then.
        out: Where the result goes. It may overlap `c` and the operands: the result is that of arrays apart from it.
        optimize: As for `einsum`.
        precision: As for `einsum`.
        epilogue: A function of the result, element by element, that is applied before the one store: operators, NumPy's
            ufuncs, `numpy.where` and `numpy.clip`, and the functions of `gett.ops`. It is called once with tensors
            that have no elements, so Python's `if` cannot ask for one: `gett.ops.where` chooses. Numbers in it are part
            of the plan. All is computed in the type that sums have (float32 for 16-bit types, 32 bits for small
            integers), then converted to the result's dtype.
        epilogue_args: Further tensors and numbers for the function. Their axes are the result's last ones, in its
            order, and broadcast as NumPy's do; in the function, `x[:, None]` adds an axis. Truths, integers, real and
            complex numbers may stand beside results of their own kind and of those behind it.
        conj: As for `einsum`, of the operands alone; a `c` behind them is none.
        workspace_limit: As for `einsum`.
        memory_limit: As for `einsum`.

    Returns:
        As `einsum`; the dtype is the promotion of the operands, c and `out`.

    Raises:
        GettError: As `einsum`; OptionError if beta is not 0 and there is neither `c` nor `out`, or a factor is beyond
            the dtype's range; EpilogueError if the epilogue does what it cannot, with the operation's name, or
            `epilogue_args` do not fit it.

    Example:
        >>> import gett, numpy as np
        >>> a, r = np.ones((2, 3)), np.ones((2, 2))
        >>> gett.contract("ik,jk->ij", a, a, r, alpha=2)
        array([[7., 7.],
               [7., 7.]])
        >>> gett.contract("ik,jk->ij", a, a, beta=1, out=r) is r
        True
        >>> bias = np.array([-4.0, 1.0])
        >>> gett.contract("ik,jk->ij", a, a, epilogue=lambda d, x: np.maximum(d + x, 0), epilogue_args=(bias,))
        array([[0., 4.],
               [0., 4.]])
        >>> e_i, e_a = np.array([-2.0, -1.0]), np.array([0.0, 2.0])  # energy denominators
        >>> gett.contract("ik,ka->ia", a, a.T, epilogue=lambda r, i, a: r / (i[:, None] - a), epilogue_args=(e_i, e_a))
        array([[-1.5 , -0.75],
               [-3.  , -1.  ]])
    """
    spec, factors, c = _split(subscripts, operands, c)
    c, beta = resolve_addend(c, beta, out)
    flags = None if conj is None else check_conj(conj, len(factors))
    fused = epilogue, check_arguments(epilogue, epilogue_args), flags, check_workspace_limit(workspace_limit)
    try:
        path = freeze_optimize(optimize) if memory_limit is None else with_limit(optimize, memory_limit)
        return _contract_spec(spec, factors, c, alpha, beta, out, path, precision, *fused)
    except GradientError as error:
        raise gradient_error(error, epilogue) from None


def _split(subscripts: Any, operands: Sequence[Any], c: Any) -> tuple[Spec, Sequence[Any], Any]:
    """The subscripts, the factors, and `c`, which may stand behind them."""
    spec, found = split_arguments(subscripts, operands)
    if not isinstance(spec, str):
        return spec, found, c
    count = operand_count(spec)
    if len(found) == count + 1:
        if c is not None and found[-1] is not None:
            raise OptionError("c is given twice: by its name, and as the array behind the operands")
        return spec, found[:-1], found[-1] if c is None else c
    if len(found) != count:
        raise SubscriptsError(
            f"the subscripts {spec!r} describe {count} operands, {len(found)} arrays were given; one array behind the "
            "operands would be c"
        )
    return spec, found, c


def _contract_spec(
    spec: Spec,
    operands: Sequence[Any],
    c: Any,
    alpha: Any,
    beta: Any,
    out: Any,
    optimize: Any,
    precision: Any,
    epilogue: Any,
    extras: Sequence[Any],
    conj: Conj | None,
    limit: int,
    dtype: Any = None,
    casting: Casting = "safe",
) -> Any:
    """`contract` of arguments that were told apart, and the dtype of `torch.autocast` where that holds."""
    torch = torch_library()
    if torch is not None and dtype is None and out is None:
        asked = torch.autocast(spec, (*operands, c))
        if asked is not None:
            dtype, casting = asked, "same_kind"
    loan = borrow(operands, c, out, dtype, casting, extras)
    if loan is not None:
        fused = epilogue, loan.extras, flipped(conj, loan.lazy), limit, loan.dtype, casting
        return loan.finish(
            _contract_spec(spec, loan.operands, loan.c, alpha, beta, loan.out, optimize, precision, *fused)
        )
    kind, device, arrays, c, extras = gather_call(operands, c, extras)
    if kind is NUMPY and is_numpys([*arrays, *(x for x in (c, out) if isinstance(x, np.ndarray))]):
        if epilogue is not None:
            raise DTypeError("epilogue= takes no arrays of object, longdouble or clongdouble, which NumPy contracts")
        factors: dict[str, Any] = {"c": c, "alpha": alpha, "beta": beta}
        return numpy_contraction(spec, arrays, out, optimize=optimize, precision=precision, conj=conj, **factors)
    loan = lend_bfloat16(arrays, c, out, dtype, casting, extras) if kind is NUMPY else None
    if loan is not None:
        if out is not None:
            check_out(out, kind, device)
        fused = epilogue, loan.extras, conj, limit, loan.dtype, casting
        return loan.finish(
            _contract_spec(spec, loan.operands, loan.c, alpha, beta, loan.out, optimize, precision, *fused)
        )
    arguments, described = tuple(map(kind.describe, extras)), tuple(map(kind.describe, arrays))
    request = PlanRequest(
        spec=spec,
        operands=described,
        c=None if c is None else kind.describe(c),
        out=None if out is None else check_out(out, kind, device),
        dtype=None if dtype is None else parse_dtype(dtype),
        casting=casting,
        optimize=optimize,
        precision=usual_precision() if precision is None else precision,
        arch=kind.arch(device),
        device=device,
        epilogue=trace_epilogue(epilogue, arguments),
        epilogue_args=arguments,
        conj=None if conj is None else of_complex(conj, arrays),
        workspace_limit=limit,
        complex_factors=any_complex(alpha, beta) and len({x.dtype.kind == "c" for x in described}) > 1,
    )
    if c is not None and beta.__class__ in (int, float) and beta == 0:
        request = _without_c(request)
        c = None
    plan = plan_on_device(kind, request, runs=True)
    alpha, beta = check_factors(alpha, beta, plan.dtype)
    if out is not None:
        return plan.run_into(kind, device, arrays, c, out, alpha, beta, extras)
    return plan.run(kind, device, arrays, c, None, alpha, beta, extras)


def _without_c(request: PlanRequest) -> PlanRequest:
    """The request for beta = 0: `c` is checked and takes part in the promotion, but is not read."""
    assert request.c is not None
    subscripts, extents, dtype = resolve(request)
    address_c(subscripts.output, request.c, extents)
    return replace(request, c=None, dtype=dtype)
