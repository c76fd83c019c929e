"""The public function `einsum`.

Owns the warm path: from raw arguments to a cached plan in few attribute reads. Everything cold is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gett.api.checks import check_holds, check_out, check_workspace_limit
from gett.api.conjugation import Conj, check_conj, flipped, of_complex
from gett.api.contraction_plan import ContractionPlan
from gett.api.numpy_route import is_numpys, numpy_contraction
from gett.api.plan_cache import plan_cache
from gett.api.planner import find_plan, make_plan, resolve
from gett.api.precision import usual_precision
from gett.arrays.dynamo import untraced
from gett.arrays.interop import borrow, gather, lend_bfloat16
from gett.arrays.kinds import ALIGNMENT, CPU, NUMPY, ArrayKind, check_room, cupy_kind
from gett.arrays.torch import torch_library
from gett.errors import SubscriptsError
from gett.hw.archs import WORKSPACE_LIMIT
from gett.ir.subscripts import Spec, listed, split_arguments
from gett.ir.tensors import ALIGNMENT_LIMIT, Casting, parse_dtype
from gett.network.optimize import freeze_optimize, with_limit
from gett.network.request import PlanRequest

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

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
    memory_limit: Size | None = None,
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
            right. A path must fit any number of operands. `("greedy", n)` limits intermediates to n elements, or is an
            error; `("greedy", "1GiB")` to so many bytes. Intermediates have the dtype of the result. A ContractionTree
            of cotengra stands for its path; nested paths and slices are an error.
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
            or as `"1GiB"`; 256 MiB by default, 0 forbids both. `print(plan)` shows what it takes. The CPU takes none.
        memory_limit: Largest intermediate: a number of elements, as opt_einsum has it, or bytes as `"1GiB"`;
            `"max_input"` is the largest operand, None and -1 no limit. A limit that no path was found for is an error.

    Returns:
        A new array, never a view (NumPy's may be one); of rank 0, a NumPy scalar, CuPy array or tensor. `out` if given.

    Raises:
        SubscriptsError, ShapeError, OutputError, OptionError, PrecisionError: (ValueError) The argument is at fault.
        PathError: (ValueError and RuntimeError) The path of `optimize` leaves tensors uncontracted.
        DTypeError, MixedArraysError: (TypeError) Unsupported dtypes, forbidden casts, arrays of two libraries.
        GradientError: (RuntimeError) A tensor requires a gradient outside `torch.no_grad()`.
        OutOfMemoryError: (MemoryError) There is no room for the result.

    Example:
        >>> import gett, numpy as np
        >>> a, b = np.arange(6.0).reshape(2, 3), np.ones((4, 3))
        >>> gett.einsum("ik,jk->ij", a, b)
        array([[ 3.,  3.,  3.,  3.],
               [12., 12., 12., 12.]])
        >>> z = np.array([[1 + 2j, 3j]])
        >>> gett.einsum("ik,jk->ij", z, z, conj=(True, False))
        array([[14.+0.j]])
    """
    if subscripts.__class__ is not str:
        subscripts, operands = split_arguments(subscripts, operands)
    if conj is not None:
        operands = listed(subscripts, operands)
        conj = of_complex(check_conj(conj, len(operands)), operands)
    if memory_limit is not None:
        optimize = with_limit(optimize, memory_limit)
    limit = WORKSPACE_LIMIT if workspace_limit is None else check_workspace_limit(workspace_limit)
    return einsum_spec(subscripts, operands, out, dtype, order, casting, optimize, precision, conj, limit)


def einsum_spec(
    spec: Spec,
    operands: Sequence[Any],
    out: Any,
    dtype: Any,
    order: Any,
    casting: Any,
    optimize: Any,
    precision: Any,
    conj: Conj | None,
    limit: int = WORKSPACE_LIMIT,
) -> Any:
    """`einsum` of split arguments: the warm path, which reads little and asks the plan cache."""
    if optimize is not True:
        optimize = freeze_optimize(optimize)
    if precision is None:
        precision = usual_precision()
    parts: list[Any] = [spec, dtype, order, casting, optimize, precision]
    kind: ArrayKind = NUMPY
    device = CPU
    cupy: Any = cupy_kind()
    cupy_type = None if cupy is None else cupy.type
    for x in operands if out is None else [*operands, out]:
        array_type: Any = x.__class__
        if array_type is np.ndarray:
            parts += (x.shape, x.strides, x.dtype)
        elif array_type is cupy_type:
            data = x.data
            device = data.device_id
            parts += (x.shape, x.strides, x.dtype, device, ALIGNMENT[data.ptr % ALIGNMENT_LIMIT])
            kind = cupy
        else:
            return _einsum_other(spec, operands, out, dtype, order, casting, optimize, precision, conj, limit)
    if out is not None:
        parts.append("out")
    if conj is not None:
        parts.append(conj)
    if limit != WORKSPACE_LIMIT:
        parts.append(("workspace", limit))
    key = tuple(parts)
    try:
        found: ContractionPlan | None = plan_cache.get(key)
    except TypeError:  # an option that cannot be hashed
        return _einsum_cold(None, spec, operands, out, dtype, order, casting, optimize, precision, conj, limit)
    if found is None:
        return _einsum_cold(key, spec, operands, out, dtype, order, casting, optimize, precision, conj, limit)
    if out is not None and found.is_near(kind, operands, out):  # its layout is in the key and was checked then
        return found.run_into(kind, device, operands, None, out)
    return found.run(kind, device, operands, None, out)


def _einsum_other(
    spec: Spec,
    operands: Sequence[Any],
    out: Any,
    dtype: Any,
    order: Any,
    casting: Any,
    optimize: Any,
    precision: Any,
    conj: Conj | None,
    limit: int,
) -> Any:
    """`einsum_spec` where an argument is neither a NumPy nor a CuPy array; the warm path of PyTorch's tensors."""
    torch = torch_library()
    warm = None if torch is None else torch.layouts(operands if out is None else [*operands, out])
    if torch is None or warm is None:
        if len(operands) == 1 and len(apart := listed(spec, operands)) > 1:
            return einsum_spec(spec, apart, out, dtype, order, casting, optimize, precision, conj, limit)
        if torch is not None and dtype is None and out is None:
            asked = torch.autocast(spec, operands)
            if asked is not None:
                options = order, "same_kind", optimize, precision, conj, limit
                return einsum_spec(spec, operands, out, asked, *options)
        loan = borrow(operands, None, out, dtype, casting)
        if loan is None:
            return _einsum_cold(None, spec, operands, out, dtype, order, casting, optimize, precision, conj, limit)
        conj = flipped(conj, loan.lazy)
        options = order, casting, optimize, precision, conj, limit
        found = einsum_spec(spec, loan.operands, loan.out, loan.dtype, *options)
        return loan.finish(found)
    device, parts = warm
    if dtype is None and out is None and torch.casts():
        asked = torch.autocast(spec, operands)
        if asked is not None:
            return _einsum_other(spec, operands, out, asked, order, "same_kind", optimize, precision, conj, limit)
    key: Any = (spec, dtype, order, casting, optimize, precision, conj, limit, out is not None, *parts)
    try:
        plan: ContractionPlan | None = plan_cache.get(key)
    except TypeError:  # an option that cannot be hashed
        key = plan = None
    if plan is None:
        return _einsum_cold(key, spec, operands, out, dtype, order, casting, optimize, precision, conj, limit)
    kind = torch.kind(device)
    if out is not None and plan.is_near(kind, operands, out):
        return plan.run_into(kind, device, operands, None, out)
    return plan.run(kind, device, operands, None, out)


def _einsum_cold(
    key: Any,
    spec: Spec,
    operands: Sequence[Any],
    out: Any,
    dtype: Any,
    order: Any,
    casting: Any,
    optimize: Any,
    precision: Any,
    conj: Conj | None,
    limit: int,
) -> Any:
    """Convert arguments, plan, run; keep the plan under `key` unless that is None."""
    if not operands:
        raise SubscriptsError("einsum needs at least one operand")
    names = [f"operand {i}" for i in range(len(operands))]
    kind, device, arrays = gather(operands, names, len(names))
    out_spec = None if out is None else check_out(out, kind, device)
    if kind is NUMPY:
        if is_numpys(arrays if out is None else [*arrays, out], dtype):
            return numpy_contraction(spec, arrays, out, dtype, order, casting, optimize, precision, conj)
        loan = lend_bfloat16(arrays, None, out, dtype, casting)
        if loan is not None:
            options = order, casting, optimize, precision, conj, limit
            return loan.finish(einsum_spec(spec, loan.operands, loan.out, loan.dtype, *options))
    request = PlanRequest(
        spec=spec,
        operands=tuple(kind.describe(x) for x in arrays),
        out=out_spec,
        dtype=None if dtype is None else check_holds(kind, parse_dtype(dtype)),
        order=order,
        casting=casting,
        optimize=optimize,
        precision=precision,
        arch=kind.arch(device),
        device=device,
        conj=of_complex(conj, arrays),
        workspace_limit=limit,
    )
    made = plan_on_device(kind, request, key, runs=True)
    if out is not None:
        return made.run_into(kind, device, arrays, None, out)
    return made.run(kind, device, arrays)


def plan_on_device(kind: ArrayKind, request: PlanRequest, key: Any = None, *, runs: bool = False) -> ContractionPlan:
    """Plan while the device that the arrays live on is current, since executables bind to that.

    Args:
        kind: Of the arrays.
        request: What is asked for.
        key: Where the plan is kept, instead of under the request.
        runs: Whether the plan is made for a call, which a result without room ends before it is planned and compiled.
    """
    context = None if request.device is None else kind.on(request.device)
    if context is not None:
        with context:
            return plan_on_device(kind, request, key, runs=runs)

    def make(request: PlanRequest) -> ContractionPlan:
        if runs and request.out is None and request.device is not None:
            subscripts, extents, dtype = resolve(request)
            check_room(kind, request.device, [extents[m] for m in subscripts.output], dtype)
        return make_plan(request)

    if key is None:
        return find_plan(request, make)
    made: ContractionPlan = plan_cache.put(key, make(request))
    return made
