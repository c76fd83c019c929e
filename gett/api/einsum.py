"""The public functions `einsum` and `plan`.

Owns the warm path: from raw arguments to a cached plan in few attribute reads. Everything cold is elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gett.api.checks import check_holds, check_out
from gett.api.contraction_plan import ContractionPlan
from gett.api.epilogue import argument_names, check_arguments, gradient_error, trace_epilogue
from gett.api.numpy_route import is_numpys, numpy_contraction
from gett.api.plan_cache import plan_cache
from gett.api.planner import find_plan, make_plan, resolve
from gett.api.precision import usual_precision
from gett.arrays.interop import borrow, gather
from gett.arrays.kinds import ALIGNMENT, CPU, NUMPY, ArrayKind, check_room, cupy_kind
from gett.arrays.torch import torch_library
from gett.errors import DTypeError, GradientError, OptionError, ShapeError, SubscriptsError
from gett.ir.subscripts import Spec, split_arguments
from gett.ir.tensors import ALIGNMENT_LIMIT, MAX_AXES, Casting, TensorSpec, dense_strides, parse_dtype
from gett.network.path import AUTOTUNE, freeze_optimize
from gett.network.steps import PlanRequest, Step

__all__ = ["ContractionPlan", "Step", "einsum", "plan"]

_GPU_ARCH = re.compile(r"sm_[1-9]\d{1,2}[af]?")


def einsum(
    subscripts: Any = None,
    /,
    *operands: Any,
    out: Any = None,
    dtype: npt.DTypeLike | None = None,
    order: str | None = "K",
    casting: Casting = "safe",
    optimize: Any = True,
    precision: str | None = None,
) -> Any:
    """Contract tensors as `numpy.einsum` does, without transposed copies.

    Every form that NumPy takes: implicit and explicit output, ellipsis, broadcasting of axes of extent 1, repeated
    labels, sums over modes of one operand, the interleaved form `einsum(a, [0, 1], b, [1, 2], [0, 2])` with any
    hashable labels; labels are ASCII letters or any characters beyond ASCII. NumPy arrays (and lists and scalars) run
    on the CPU, CuPy arrays on their GPU in its current stream. Strides are free; the only copies are conversions of
    operands whose dtype is not the common one. NumPy arrays of dtype object, longdouble or clongdouble go to NumPy's
    einsum, with all options but more than 52 labels.

    Args:
        subscripts: Such as `"ij,jk->ik"`, or the first operand of the interleaved form.
        operands: Arrays of any strides.
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
            error. Intermediates have the dtype of the result.
        precision: How products are formed at least: `"ieee"`, by fused multiply-adds or the dtype's own tensor-core
            product; for float32 also `"bf16x6"` (the default there), six products of bfloat16 planes where they are
            faster, whose errors are at most 13 + k / 16 units of 2^-24 of a sum's magnitudes and mostly below those of
            `"ieee"`, or `"tf32"`, of factors rounded to the nearest of 10 bits (2^-11 of each). By default that of
            `gett.precision`. The CPU computes as `"ieee"` says.

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
    """
    if subscripts.__class__ is not str:
        subscripts, operands = split_arguments(subscripts, operands)
    return einsum_spec(subscripts, operands, out, dtype, order, casting, optimize, precision)


def einsum_spec(
    spec: Spec,
    operands: Sequence[Any],
    out: Any,
    dtype: Any,
    order: Any,
    casting: Any,
    optimize: Any,
    precision: Any,
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
            return _einsum_other(spec, operands, out, dtype, order, casting, optimize, precision)
    if out is not None:
        parts.append("out")
    key = tuple(parts)
    try:
        found: ContractionPlan | None = plan_cache.get(key)
    except TypeError:  # an option that cannot be hashed
        return _einsum_cold(None, spec, operands, out, dtype, order, casting, optimize, precision)
    if found is None:
        return _einsum_cold(key, spec, operands, out, dtype, order, casting, optimize, precision)
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
) -> Any:
    """`einsum_spec` where an argument is neither a NumPy nor a CuPy array; the warm path of PyTorch's tensors."""
    torch = torch_library()
    warm = None if torch is None else torch.layouts(operands if out is None else [*operands, out])
    if torch is None or warm is None:
        loan = borrow(operands, None, out, dtype, casting)
        if loan is None:
            return _einsum_cold(None, spec, operands, out, dtype, order, casting, optimize, precision)
        found = einsum_spec(spec, loan.operands, loan.out, loan.dtype, order, casting, optimize, precision)
        return loan.finish(found)
    device, parts = warm
    key: Any = (spec, dtype, order, casting, optimize, precision, out is not None, *parts)
    try:
        plan: ContractionPlan | None = plan_cache.get(key)
    except TypeError:  # an option that cannot be hashed
        key = plan = None
    if plan is None:
        return _einsum_cold(key, spec, operands, out, dtype, order, casting, optimize, precision)
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
) -> Any:
    """Convert arguments, plan, run; keep the plan under `key` unless that is None."""
    if not operands:
        raise SubscriptsError("einsum needs at least one operand")
    names = [f"operand {i}" for i in range(len(operands))]
    kind, device, arrays = gather(operands, names)
    out_spec = None if out is None else check_out(out, kind, device)
    if kind is NUMPY and is_numpys(arrays if out is None else [*arrays, out], dtype):
        return numpy_contraction(spec, arrays, out, dtype, order, casting, optimize, precision)
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


def plan(
    subscripts: Any,
    /,
    *operands: Any,
    c: Any = None,
    out: Any = None,
    dtype: npt.DTypeLike | None = None,
    order: str | None = "K",
    casting: Casting = "safe",
    optimize: Any = True,
    precision: str | None = None,
    arch: str | None = None,
    epilogue: Callable[..., Any] | None = None,
    epilogue_args: Sequence[Any] = (),
) -> ContractionPlan:
    """Plan a contraction, to run it many times or to look at it: `print(gett.plan(...))`.

    Args:
        subscripts: As for `einsum`, the interleaved form included.
        operands: Arrays, or `(shape, dtype)` pairs, which stand for C-contiguous, aligned arrays.
        c: Array or pair that calls will add with `beta`; calls may also bring a `c` that was not announced.
        out: Array or pair that stands for the `out` of calls; without it, results are dense in `order`.
        dtype: As for `einsum`.
        order: As for `einsum`.
        casting: As for `einsum`.
        optimize: As for `einsum`.
        precision: As for `einsum`.
        arch: `"cpu"`, or an architecture such as `"sm_90a"`, to plan for it whether or not there is such a GPU. By
            default the GPU of the operands, or the CPU for NumPy arrays and pairs.
        epilogue: As for `contract`: a function of the result, which is traced here, once.
        epilogue_args: Arrays, pairs or numbers that stand for the `epilogue_args` of calls.

    Raises:
        GettError: As `einsum`; ScheduleError and CompileError if no kernel can be made; OptionError for a bad `arch`;
            EpilogueError as `contract`.

    Example:
        >>> import gett, numpy as np
        >>> plan = gett.plan("ik,kj->ij", ((2, 3), "float64"), ((3, 2), "float64"))
        >>> plan(np.ones((2, 3)), np.ones((3, 2)))
        array([[3., 3.],
               [3., 3.]])
        >>> plan = gett.plan(
        ...     "ik,kj->ij", ((2, 3), "float64"), ((3, 2), "float64"),
        ...     epilogue=lambda d, bias: gett.ops.silu(d + bias), epilogue_args=(((2,), "float64"),),
        ... )
        >>> plan(np.ones((2, 3)), np.ones((3, 2)), epilogue_args=(np.array([-3.0, -3.0]),))
        array([[0., 0.],
               [0., 0.]])
    """
    spec, found = split_arguments(subscripts, operands)
    arguments = check_arguments(epilogue, epilogue_args)
    try:
        loan = borrow(found, c, out, dtype, casting, arguments)
        if loan is not None:  # the plan is one of the memory's layout, and calls come here again
            found, c, out, dtype, arguments = tuple(loan.operands), loan.c, loan.out, loan.dtype, tuple(loan.extras)
        return _plan(spec, found, c, out, dtype, order, casting, optimize, precision, arch, epilogue, arguments)
    except GradientError as error:
        raise gradient_error(error, epilogue) from None


def _plan(
    spec: Spec,
    found: Sequence[Any],
    c: Any,
    out: Any,
    dtype: Any,
    order: Any,
    casting: Any,
    optimize: Any,
    precision: Any,
    arch: Any,
    epilogue: Any,
    arguments: tuple[Any, ...],
) -> ContractionPlan:
    """`plan` of arguments that were told apart."""
    names = [f"operand {i}" for i in range(len(found))] + argument_names(arguments)
    given = {"c": c, "out": out}
    extra = [n for n, x in given.items() if x is not None]
    things = [*found, *arguments, *(given[n] for n in extra)]
    pairs = [_pair(x, n) for x, n in zip(things, [*names, *extra], strict=True)]
    real = [x for x, p in zip(things, pairs, strict=True) if p is None]
    real_names = [n for n, p in zip([*names, *extra], pairs, strict=True) if p is None]
    kind, device, arrays = gather(real, real_names)
    if arch is not None:
        _check_arch(arch)
    if arch == "cpu" and kind is not NUMPY:
        raise OptionError(f"arch='cpu' cannot plan for {kind.name} arrays")
    target = arch or kind.arch(device)
    elsewhere = arch is not None and arch != "cpu" and (kind is NUMPY or arch != kind.arch(device))
    if elsewhere and isinstance(optimize, str) and optimize == AUTOTUNE:
        raise OptionError(f"optimize='autotune' measures on the GPU at hand, but arch={arch!r} plans without one")
    alignment = 1 if target == "cpu" else ALIGNMENT_LIMIT
    queue = list(arrays)

    def describe(pair: TensorSpec | None) -> TensorSpec:
        spec = pair if pair is not None else kind.describe(queue.pop(0))
        if pair is None and (kind is not NUMPY or target == "cpu"):
            return spec
        return TensorSpec(spec.shape, spec.strides, spec.dtype, alignment)

    specs = [describe(p) for p in pairs]
    if out is not None and pairs[-1] is None:
        check_out(out, kind, device)
    count = len(found) + len(arguments)
    argument_specs = tuple(specs[len(found) : count])
    extras = dict(zip(extra, specs[count:], strict=True))
    request = PlanRequest(
        spec=spec,
        operands=tuple(specs[: len(found)]),
        c=extras.get("c"),
        out=extras.get("out"),
        dtype=None if dtype is None else check_holds(kind, parse_dtype(dtype)),
        order=order,
        casting=casting,
        optimize=freeze_optimize(optimize),
        precision=usual_precision() if precision is None else precision,
        arch=target,
        device=None if elsewhere else device,
        epilogue=trace_epilogue(epilogue, argument_specs),
        epilogue_args=argument_specs,
    )
    return plan_on_device(kind, request)


def _check_arch(arch: Any) -> None:
    """Refuse what spells no architecture, and say which one was meant where that is plain.

    Raises:
        OptionError: It does not.
    """
    if isinstance(arch, str) and arch == "cpu":
        return
    from gett.hw.archs import ARCHS

    digits = "".join(re.findall(r"\d", str(arch)))
    meant = [known for known in ARCHS if digits and digits == "".join(re.findall(r"\d", known))]
    if isinstance(arch, str) and _GPU_ARCH.fullmatch(arch) and (arch in meant or not meant):
        return  # whether it is known, and what is, the schedules say
    hint = f": did you mean {meant[0]!r}?" if meant else ""
    raise OptionError(f"arch={arch!r}; it must be 'cpu' or an architecture such as 'sm_90a'{hint}")


def _pair(x: Any, name: str) -> TensorSpec | None:
    """The description that a `(shape, dtype)` pair stands for, None if `x` is no such pair."""
    if isinstance(x, tuple) and x and all(isinstance(e, (int, np.integer)) for e in x):
        raise ShapeError(
            f"{name} is {tuple(x)!r}, a shape without a dtype: a plan takes arrays or pairs (shape, dtype), such as "
            f"({tuple(x)!r}, 'float64')"
        )
    if not isinstance(x, tuple) or len(x) != 2 or not isinstance(x[0], (tuple, list)):
        return None
    try:
        dtype = parse_dtype(x[1])
    except DTypeError as error:
        raise DTypeError(f"{name}: {error}") from error
    if not all(isinstance(e, (int, np.integer)) and e >= 0 for e in x[0]):
        raise ShapeError(f"{name}: {x[0]!r} is no shape")
    shape = tuple(int(e) for e in x[0])
    if len(shape) > MAX_AXES:
        raise ShapeError(f"{name} has {len(shape)} axes; arrays have at most {MAX_AXES}")
    return TensorSpec(shape, dense_strides(shape, dtype.itemsize), dtype)
