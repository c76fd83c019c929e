"""The public function `contract`: a contraction with factors, and a tensor that is added.

Owns which of its arguments is `c`, and what a factor of 0 leaves unread. Knows nothing of how plans run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, overload

from gett.api.einsum import compute
from gett.api.tracing import traced_contract
from gett.arrays.dynamo import traced_as, untraced
from gett.errors import OptionError, SubscriptsError
from gett.ir.subscripts import Spec, operand_count, split_arguments
from gett.plans.call import NO_ARGUMENTS, make_call
from gett.plans.checks import resolve_addend

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

_operand_count = lru_cache(maxsize=1024)(operand_count)


@overload
def contract(subscripts: Any, /, *operands: Any, strip_exponent: Literal[True], **options: Any) -> tuple[Any, Any]: ...
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
@overload
def contract(subscripts: Any, /, *operands: Any, strip_exponent: bool, **options: Any) -> Any: ...
@traced_as(traced_contract(compute))
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
    epilogue_args: Sequence[Any] = NO_ARGUMENTS,
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    memory_limit: Size | float | None = None,
    checkpoint: Size | None = None,
    devices: Sequence[int] | None = None,
    shard: str | None = None,
    strip_exponent: bool = False,
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
        checkpoint: As for `einsum`.
        devices: As for `einsum`.
        shard: As for `einsum`.
        strip_exponent: As for `einsum`, without `c`, `out` and an epilogue.

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
    spec, factors, c = split_factors(subscripts, operands, c)
    c, beta = resolve_addend(c, beta, out)
    call = make_call(
        spec, factors, out, None, "K", "safe", optimize, precision, conj, workspace_limit, memory_limit, c, alpha, beta,
        epilogue, epilogue_args, checkpoint, strip_exponent,
    )  # fmt: skip
    if devices is not None or shard is not None:
        if call.strip:
            raise OptionError("strip_exponent= is not for several devices: leave out devices= and shard=")
        from gett.api.devices import compute_over  # late: few programs have several GPUs
        from gett.api.plan import plan_call

        return compute_over(call, plan_call, devices, shard)
    return compute(call)


def split_factors(subscripts: Any, operands: Sequence[Any], c: Any) -> tuple[Spec, Sequence[Any], Any]:
    """The subscripts, the factors, and `c`, which may stand behind them."""
    if subscripts.__class__ is str and (further := len(operands) - _operand_count(subscripts)) in (0, 1):
        if not further:
            return subscripts, operands, c
        if c is None:
            return subscripts, operands[:-1], operands[-1]
    spec, found = split_arguments(subscripts, operands)
    if not isinstance(spec, str):
        return spec, found, c
    count = _operand_count(spec)
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
