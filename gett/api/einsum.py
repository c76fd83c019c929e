"""The public function `einsum`, and what every call of a public function goes through: `compute`.

Owns the warm path, from a call to a cached plan in few attribute reads, and the cold one, which asks for that plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from gett.api.numpy_route import is_numpys, numpy_contraction
from gett.api.tracing import traced_einsum
from gett.arrays.dynamo import traced_as, untraced
from gett.arrays.interop import lend_bfloat16
from gett.arrays.kinds import ALIGNMENT, CPU, NUMPY, ArrayKind, cupy_kind
from gett.arrays.torch import torch_library
from gett.errors import DTypeError, GradientError, OptionError, SubscriptsError
from gett.hw.archs import WORKSPACE_LIMIT
from gett.ir.build import address_c
from gett.ir.subscripts import listed, split_arguments
from gett.ir.tensors import ALIGNMENT_LIMIT, Casting
from gett.plans.call import NO_DERIVATIVES, ONE, ZERO, Call, finished, make_call, product_call
from gett.plans.checks import check_factors, check_out
from gett.plans.contraction_plan import ContractionPlan
from gett.plans.plan_cache import plan_cache
from gett.plans.planner import resolve
from gett.slices.finder import plan_on_device

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from gett.arrays.torch_autograd import Product
    from gett.network.steps import Step
    from gett.typing import (
        DeviceArrayT,
        DType,
        EinsumOptions,
        Labels,
        NumPyOperand,
        Optimize,
        Order,
        Precision,
        Size,
        SupportsArray,
    )


@overload
def einsum(subscripts: Any, /, *operands: Any, strip_exponent: Literal[True], **options: Any) -> tuple[Any, Any]: ...
@overload
def einsum(
    subscripts: str | NDArray[Any],
    /,
    *operands: NumPyOperand,
    out: NDArray[Any] | None = None,
    **options: Unpack[EinsumOptions],
) -> NDArray[Any]: ...
@overload
def einsum(  # type: ignore[overload-overlap]
    subscripts: str | DeviceArrayT,
    /,
    *operands: DeviceArrayT | complex | Labels,
    out: DeviceArrayT | None = None,
    **options: Unpack[EinsumOptions],
) -> DeviceArrayT: ...
@overload
def einsum(
    subscripts: str | SupportsArray,
    /,
    *operands: SupportsArray | NumPyOperand,
    out: NDArray[Any] | None = None,
    **options: Unpack[EinsumOptions],
) -> NDArray[Any]: ...
@overload
def einsum(subscripts: str, /, *operands: Sequence[Any], out: Any = None, **options: Unpack[EinsumOptions]) -> Any: ...
@overload
def einsum(subscripts: Any, /, *operands: Any, strip_exponent: bool, **options: Any) -> Any: ...
@traced_as(traced_einsum(lambda call: compute(call)))
@untraced
def einsum(
    subscripts: Any = None,
    /,
    *operands: Any,
    out: Any = None,
    dtype: DType = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    optimize: Optimize = True,
    precision: Precision | None = None,
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    memory_limit: Size | float | None = None,
    checkpoint: Size | None = None,
    devices: Sequence[int] | None = None,
    shard: str | None = None,
    strip_exponent: bool = False,
) -> Any:
    """Contract tensors as `numpy.einsum` does, without transposed copies.

    Every form that NumPy takes: implicit and explicit output, ellipsis, broadcasting of axes of extent 1, repeated
    labels, sums over modes of one operand, the interleaved form `einsum(a, [0, 1], b, [1, 2], [0, 2])` with any
    hashable labels; labels are ASCII letters or any characters beyond ASCII. NumPy arrays (and lists and scalars) run
    on the CPU, CuPy arrays on their GPU in its current stream. Strides are free; the only copies are conversions of
    operands whose dtype is neither the common one nor its real part: real operands beside complex ones are multiplied
    as they are. NumPy arrays of dtype object, longdouble or clongdouble go to NumPy's
    einsum, with all options but more than 52 labels.

    Args:
        subscripts: Such as `"ij,jk->ik"`, or the first operand of the interleaved form.
        operands: Arrays of any strides, in one list if need be.
        out: Array to write, of any strides. It may overlap operands: the result is that of operands apart from it. Its
            own elements may not overlap.
        dtype: dtype in which to compute, NumPy's or PyTorch's; by default NumPy's promotion of the operands and `out`,
            where bfloat16 takes part PyTorch's.
        order: Memory order of a new result: `"C"`, `"F"`; `"A"` is F if all operands are F-contiguous, else C; `"K"`
            likewise, where axes are at least two and the operands not C-contiguous as well. Unlike in NumPy, `"K"`
            never gives a permuted order. An `out` keeps its own order.
        casting: NumPy's rule for conversions of operands and of the result into `out`.
        optimize: For more than two operands: what `opt_einsum.contract` or NumPy take; False contracts from left to
            right, True and "auto" try random greedy paths as well where contracting takes longer than that. A path
            must fit any number of operands. `("greedy", n)` limits intermediates to n elements, or is an error;
            `("greedy", "1GiB")` to so many bytes. Intermediates have the dtype of the result. A ContractionTree of
            cotengra stands for its path and its slices, and its optimisers are asked for both. So are callables of
            opt_einsum's form `(inputs, output, size_dict, memory_limit)` for paths. Nested paths are an error.
        precision: How products are formed at least: `"ieee"`, by fused multiply-adds or the dtype's own tensor-core
            product; for float32 also `"bf16x6"` (the default there), six products of bfloat16 planes where they are
            faster, whose errors are at most 13 + k / 16 units of 2^-24 of a sum's magnitudes and mostly below those of
            `"ieee"`; `"fp16x3"`, three products of scaled float16 planes, whose errors are at most 28 + k / 32 units
            where no number is far below its neighbours; `"bf16x3"`, three of two bfloat16 planes, at most
            791 + k / 32; or `"tf32"`, of factors rounded to the nearest of 10 bits. complex64 has them too. By default
            that of `gett.precision`. Operands of 16 bits whose result is float32 are multiplied as they are, which is
            exact, and summed in float32 by tensor cores, with errors of at most k units; under `"ieee"` by fused
            multiply-adds. The CPU computes as `"ieee"` says.
        conj: One bool for each operand: whether it is replaced by its complex conjugate, which is not written anywhere.
            Of a real operand that is the operand itself. PyTorch's `x.conj()` does the same.
        workspace_limit: Most device memory that a call may take for partial sums or packed copies of tensors, in bytes
            or as `"256MiB"`; 1 GiB by default, 0 forbids both. `print(plan)` shows what it takes. The CPU takes none.
        memory_limit: Most memory that a call may take for intermediates, workspace and a new result: `"8GiB"`, or a
            share such as 0.5 of what is free on the device. Where no path keeps it, slices of the contraction run one
            after the other. An integer is a number of elements of the largest intermediate, as opt_einsum has it, and
            `"max_input"` that of the largest operand. None is `GETT_MEMORY_LIMIT`, -1 no limit. A limit that no slices
            keep is an error, which says the least that would do.
        checkpoint: Most memory for intermediates that a network keeps for derivatives, in bytes or as `"1GiB"`; others
            are computed again in PyTorch's `backward`. By default all are kept.
        devices: Numbers of GPUs that share the contraction, such as `[0, 1]`: each computes slices of it. Arrays are on
            the first, and so is the result; operands may be `gett.Sharded`. Where one GPU takes less time, it computes
            alone. NumPy's arrays are computed in the same slices on the CPU, one after the other.
        shard: A label of the result, which is then `gett.Sharded` along it over `devices`.
        strip_exponent: For results beyond the range of their dtype, as in cotengra: a pair `(mantissa, exponent)` is
            returned, and the result is `mantissa * 10**exponent`. Each step's result is scaled by a power of two, so
            the mantissa has the digits of the plain result, and its largest part lies in [0.5, 1). Zeros have the
            exponent 0; infinities and NaN stay what they are. There is no `out=` then.

    Returns:
        A new array, never a view (NumPy's may be one); of rank 0, a NumPy scalar, CuPy array or tensor. `out` if given.
        With `strip_exponent` the mantissa, and the exponent in float64: a number, on a GPU an array of rank 0.

    Raises:
        SubscriptsError, ShapeError, OutputError, OptionError, PrecisionError: (ValueError) The argument is at fault.
        PathError: (ValueError and RuntimeError) The path of `optimize` leaves tensors uncontracted.
        DTypeError, MixedArraysError: (TypeError) Unsupported dtypes, forbidden casts, arrays of two libraries.
        GradientError: (RuntimeError) PyTorch records derivatives of what has none: `out=`, an integer result.
        OutOfMemoryError: (MemoryError) There is no room for the result.

    Example:
        >>> import gett, numpy as np
        >>> a, b = np.arange(6.0).reshape(2, 3), np.ones((4, 3))
        >>> gett.einsum("ik,jk->ij", a, b)
        array([[ 3.,  3.,  3.,  3.],
               [12., 12., 12., 12.]])
        >>> tiny = np.full((2, 2), 1e-17, "float32")
        >>> mantissa, exponent = gett.einsum("ij,jk,kl->il", tiny, tiny, tiny, strip_exponent=True)
        >>> float(round(mantissa[0, 0] * 10 ** (exponent + 51), 3))  # 4e-51, of which float32 has nothing left
        4.0
        >>> z = np.array([[1 + 2j, 3j]])
        >>> gett.einsum("ik,jk->ij", z, z, conj=(True, False))
        array([[14.+0.j]])
    """
    if subscripts.__class__ is not str:
        subscripts, operands = split_arguments(subscripts, operands)
    if conj is not None:
        operands = listed(subscripts, operands)
    call = make_call(
        subscripts, operands, out, dtype, order, casting, optimize, precision, conj, workspace_limit, memory_limit,
        checkpoint=checkpoint, strip=strip_exponent,
    )  # fmt: skip
    if devices is not None or shard is not None:
        if call.strip:
            raise OptionError("strip_exponent= is not for several devices: leave out devices= and shard=")
        from gett.api.devices import compute_over  # late: few programs have several GPUs
        from gett.api.plan import plan_call

        return compute_over(call, plan_call, devices, shard)
    return compute(call)


def compute(call: Call) -> Any:
    """What a call asks for: the warm path, which reads little and asks the plan cache."""
    if call.epilogue is not None or call.strip:  # one is traced at every call, since what it holds may have changed
        return _compute_other(call)
    operands, c, out, alpha, beta = call.operands, call.c, call.out, call.alpha, call.beta
    parts: list[Any] = [call.spec, call.dtype, call.order, call.casting, call.optimize, call.precision]
    kind: ArrayKind = NUMPY
    device, recorded = CPU, False
    cupy: Any = cupy_kind()
    cupy_type = None if cupy is None else cupy.type
    tensors = operands if out is None else [*operands, out]
    if c is not None:
        tensors = [*tensors, c]
    for x in tensors:
        array_type: Any = x.__class__
        if array_type is np.ndarray:
            parts += (x.shape, x.strides, x.dtype)
        elif array_type is cupy_type:
            data = x.data
            device = data.device_id
            parts += (x.shape, x.strides, x.dtype, device, ALIGNMENT[data.ptr % ALIGNMENT_LIMIT])
            kind = cupy
        else:
            torch = torch_library()
            warm = None if torch is None else torch.layouts(tensors)
            if torch is None or warm is None or (c is not None and c.is_conj()):
                return _compute_other(call)
            if call.dtype is None and out is None and torch.casts() and torch.autocast(call.spec, tensors) is not None:
                return _compute_other(call)
            device, layouts, recorded = warm  # all are tensors, so that nothing was added to the parts yet
            parts += layouts
            kind = torch.kind(device)
            break
    if out is not None:
        parts.append("out")
    if call.conj is not None:
        parts.append(call.conj)
    if call.limit != WORKSPACE_LIMIT:
        parts.append(("workspace", call.limit))
    if call.memory is not None:
        if recorded:
            return _compute_other(call)
        parts.append(("memory", call.memory_on(kind, device)))
    plain = c is None and alpha is ONE and beta is ZERO
    if recorded:
        if not plain or out is not None or call.checkpoint is not None:
            return _compute_other(call)
        parts.append("recorded")
    if not plain:
        if c is not None:
            parts.append("c")
            if call.leaves_c_unread():
                parts.append("unread")
                c = None
        if call.mixes_complex_factors(operands):
            parts.append("complex")
    key: Any = tuple(parts)
    try:
        plan: ContractionPlan | None = plan_cache.get(key)
    except TypeError:  # an option that cannot be hashed
        key = plan = None
    if plan is None:
        return _record_cold(key, call, kind, device) if recorded else _compute_cold(key, call)
    if not plain:
        alpha, beta = check_factors(alpha, beta, plan.dtype)
    if out is not None:  # its layout is in the key and was checked then
        read = operands if c is None or c is out else [*operands, c]
        if plan.is_near(kind, read, out):
            return plan.run_into(kind, device, operands, c, out, alpha, beta)
    return plan.run(kind, device, operands, c, out, alpha, beta)


def _compute_other(call: Call) -> Any:
    """`compute` where arguments need a closer look: an epilogue, lists, scalars, arrays that lend their memory."""
    torch, operands = torch_library(), call.operands
    if len(operands) == 1 and len(apart := listed(call.spec, operands)) > 1:
        return compute(call.changed(operands=apart))
    if torch is not None and call.dtype is None and call.out is None:
        asked = torch.autocast(call.spec, [*operands, call.c])
        if asked is not None:
            return compute(call.changed(dtype=asked, casting="same_kind"))
    if torch is not None and torch.modes.records([*operands, call.c, call.out, *call.extras]):
        if call.strip:
            raise GradientError(NO_DERIVATIVES)
        from gett.plans.recording import record  # late, as few programs differentiate

        return record(call, compute)
    loan = call.borrowed()
    return _compute_cold(None, call) if loan is None else finished(loan, call, compute(call.lent(loan)))


def _record_cold(key: Any, call: Call, kind: ArrayKind, device: int) -> Any:
    """Bind what a call asks for, of whose tensors PyTorch records derivatives, and keep it under `key`; run it."""
    from gett.plans.recording import record_bound  # late, as few programs differentiate

    def bind(product: Product, operands: Sequence[Any]) -> tuple[Any, Sequence[Step]]:
        plan = _plan_product(product, kind, device, operands)
        return plan.bound(kind, device, product.alpha), plan.steps

    made = record_bound(call, compute, bind)
    return (made if key is None else plan_cache.put(key, made)).run(kind, device, call.operands)


def _plan_product(product: Product, kind: ArrayKind, device: int, operands: Sequence[Any]) -> ContractionPlan:
    """The plan of a product of tensors on one GPU, whose kernels are bound for later calls: it waits for its own."""
    call, described = product_call(product, operands), tuple(map(kind.describe, operands))
    request = call.request(kind, described, None, None, (), kind.arch(device), device)
    return plan_on_device(kind, replace(request, waits=True), runs=True)


def _compute_cold(key: Any, call: Call) -> Any:
    """Convert arguments, plan, run; keep the plan under `key` unless that is None."""
    if not call.operands:
        raise SubscriptsError("einsum needs at least one operand")
    kind, device, operands, c, extras = call.gathered()
    out = None if call.out is None else check_out(call.out, kind, device)
    if kind is NUMPY:
        if is_numpys([x for x in (*operands, c, call.out) if x is not None], call.dtype):
            if call.strip:
                raise DTypeError("strip_exponent= takes no arrays of dtype object, longdouble or clongdouble")
            return numpy_contraction(call.changed(operands=operands, c=c))
        loan = lend_bfloat16(operands, c, call.out, call.dtype, call.casting, extras)
        if loan is not None:
            return finished(loan, call, compute(call.lent(loan)))
    described, arguments = tuple(map(kind.describe, operands)), tuple(map(kind.describe, extras))
    added = None if c is None else kind.describe(c)
    request = call.request(kind, described, added, out, arguments, kind.arch(device), device)
    if added is not None and call.leaves_c_unread():  # it is checked, and takes part in the promotion
        subscripts, extents, dtype = resolve(request)
        address_c(subscripts.output, added, extents)
        request, c = replace(request, c=None, dtype=dtype), None
    plan = plan_on_device(kind, request, key, runs=True)
    alpha, beta = check_factors(call.alpha, call.beta, plan.dtype)
    if call.strip:
        return plan.stripped(kind, device, operands, alpha)
    if out is not None:
        return plan.run_into(kind, device, operands, c, call.out, alpha, beta, extras)
    return plan.run(kind, device, operands, c, None, alpha, beta, extras)
