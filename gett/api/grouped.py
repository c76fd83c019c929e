"""The public functions `grouped`, `plan_grouped` and `ragged`: many contractions in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from gett.api.einsum import compute
from gett.arrays.dynamo import untraced
from gett.arrays.interop import borrow, gather
from gett.arrays.kinds import ALIGNMENT, CPU, NUMPY, ArrayKind, bounds, cupy_kind
from gett.arrays.torch import torch_library
from gett.errors import DTypeError, GradientError, MixedArraysError, OutputError, ShapeError
from gett.groups.layouts import Asked, arithmetic_of
from gett.groups.plan import GroupedPlan
from gett.groups.ragged import check_ends, check_ragged, host_ends, ragged_modes, run_ragged
from gett.groups.ragged_launch import RaggedLaunch
from gett.groups.reading import check_outs, check_problems
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec, dense_strides
from gett.plans.checks import check_out, shares_memory
from gett.plans.plan_cache import plan_cache
from gett.plans.precision import usual_precision
from gett.typing import Precision


@untraced
def grouped(
    problems: Sequence[tuple[str, Any, Any]],
    *,
    out: Sequence[Any] | None = None,
    precision: Precision | None = None,
) -> list[Any]:
    """Compute many contractions of two operands at once: on a GPU in one launch for each class of them.

    Problems may differ in subscripts, extents, strides and dtypes. Those of the same dtypes share a kernel, which finds
    each problem in a table in the device's memory. NumPy arrays are contracted one after the other on the CPU.

    Args:
        problems: A list of (subscripts, a, b), such as `("ij,jk->ik", a, b)`, with arrays of any strides, which are all
            of one library on one device. The list may be empty, and so may problems.
        out: An array for each problem, or None for new ones. An array that stands there several times becomes the sum
            of its problems, added in the order of the list: float16 and bfloat16 in float32, rounded once. Arrays must
            lie apart from all operands and from one another.
        precision: As for `einsum`. On a GPU tables multiply float32 and complex64 by fused multiply-adds, and float32
            in TF32 where that is asked for.

    Returns:
        The results in a list, those of `out` where it is given.

    Raises:
        SubscriptsError, ShapeError, OutputError, DTypeError, PrecisionError: A problem is at fault; the text numbers it
            and names the mode.
        OptionError: `problems` or `out` is no list of the right length.

    Example:
        >>> import gett, numpy as np
        >>> a, b = np.ones((2, 3)), np.ones((3, 4))
        >>> one, two = gett.grouped([("ij,jk->ik", a, b), ("ij,kj->ki", a, b.T)])
        >>> one.shape, two.shape
        ((2, 4), (4, 2))
        >>> d = np.empty((2, 4))
        >>> gett.grouped([("ij,jk->ik", a, b), ("ij,jk->ik", a, b)], out=[d, d])[0]
        array([[6., 6., 6., 6.],
               [6., 6., 6., 6.]])
    """
    return plan_grouped(problems, out=out, precision=precision)()


@untraced
def plan_grouped(
    problems: Sequence[tuple[str, Any, Any]],
    *,
    out: Sequence[Any] | None = None,
    precision: Precision | None = None,
) -> GroupedPlan:
    """Plan what `grouped` computes, to run it many times: `plan()`, or `plan(operands, out)` with other arrays.

    Tables are made and uploaded once. A plan holds its arrays, and without `out` it allocates results that every call
    writes again.

    Args:
        problems: As for `grouped`.
        out: As for `grouped`.
        precision: As for `grouped`.

    Raises:
        SubscriptsError, ShapeError, OutputError, DTypeError, PrecisionError, OptionError: As `grouped`.

    Example:
        >>> import gett, numpy as np
        >>> a, b = np.ones((2, 3)), np.ones((3, 4))
        >>> plan = gett.plan_grouped([("ij,jk->ik", a, b)] * 5)
        >>> print(plan)
        5 problems on the CPU
          5 problems one after the other
        >>> len(plan()), len(plan([(2 * a, b)] * 5))
        (5, 5)
    """
    found = check_problems(problems)
    return GroupedPlan(found, check_outs(out, len(found)), precision or usual_precision(), compute)


@untraced
def ragged(
    subscripts: str,
    a: Any,
    b: Any,
    offsets: Any,
    *,
    out: Any = None,
    precision: Precision | None = None,
) -> Any:
    """Contract the parts of a tensor, whose sizes stand on the device, each with a matrix of its own.

    In `"tk,ekn->tn"` rows of the first operand are sorted by problem e: those of problem e end before row `offsets[e]`
    and begin where the ones before it end. The mode e is the one that only one operand has, and the ragged mode is the
    first of the other operand. In `"tk,tn->ekn"` the rows of each problem are summed: e is a mode of the result alone,
    and the ragged mode is the first that both operands have and the result has not. On a GPU the host does not wait
    for the offsets, and a call launches one kernel.

    Args:
        subscripts: Letters, with an output.
        a: The first operand.
        b: The second.
        offsets: Where the rows of each problem end, ascending: int32 or int64 in one axis, on the operands' device.
            With NumPy's arrays any integers, which are checked; those on a GPU are only kept within the tensors.
        out: The array to write, apart from the operands.
        precision: As for `grouped`.

    Returns:
        The result, `out` where it is given. Rows behind the last offset are zeros.

    Raises:
        SubscriptsError: There is no ragged mode.
        ShapeError: Extents disagree; the text names the mode.
        DTypeError: Offsets are no integers, or kernels do not take the operands as they are.
        OptionError: Offsets do not ascend; the text numbers the problem.
        OutputError: `out` cannot be written, or shares memory with an operand.
        GradientError: PyTorch records derivatives, which this function has not.

    Example:
        >>> import gett, numpy as np
        >>> tokens, weights = np.ones((5, 3)), np.arange(2.0).reshape(2, 1, 1) * np.ones((2, 3, 4))
        >>> gett.ragged("tk,ekn->tn", tokens, weights, [2, 5])[:, 0]
        array([0., 0., 3., 3., 3.])
    """
    key = _key(subscripts, a, b, offsets, out, precision)
    bound: _Bound | None = None if key is None else plan_cache.get(key)
    if bound is None:
        torch = torch_library()
        if torch is not None and torch.modes.records([a, b, out]):
            raise GradientError(
                "gett.ragged has no derivatives: detach the tensors, or contract the parts by themselves"
            )
        loan = borrow([a, b], None, out)
        if loan is not None:
            x, y = loan.operands if not any(loan.lazy) else map(_conjugated, loan.operands, loan.lazy)
            return loan.finish(_ragged_numpy(subscripts, x, y, offsets, loan.out, precision))
        kind, device, (a, b) = gather([a, b], ["operand 0", "operand 1"], 2)
        if kind is NUMPY:
            return _ragged_numpy(subscripts, a, b, offsets, out, precision)
        with kind.on(device) or nullcontext():
            bound = _bind(kind, device, subscripts, (a, b), offsets, out, precision)
        if key is not None:
            bound = plan_cache.put(key, bound)
    return bound(a, b, offsets, out)


def _conjugated(array: Any, lazily: bool) -> Any:
    return array.conj() if lazily else array


def _ragged_numpy(subscripts: str, a: Any, b: Any, offsets: Any, out: Any, precision: Asked) -> Any:
    """`ragged` of NumPy's arrays."""
    modes, ends = ragged_modes(subscripts), host_ends(offsets)
    first, second = NUMPY.describe(a), NUMPY.describe(b)
    extents = check_ragged(modes, [first.shape, second.shape], len(ends))
    shape = tuple(extents[label] for label in modes.terms[2])
    given = None if out is None else check_out(out, NUMPY, CPU)
    _check_shape(shape, given)
    dtype = arithmetic_of(first, second, given, precision or usual_precision()).dtype
    d = NUMPY.empty(shape, dtype) if out is None else out
    _check_apart(NUMPY, d, (a, b))
    run_ragged(compute, modes, a, b, ends, d, precision)
    return d


def _bind(
    kind: ArrayKind,
    device: int,
    subscripts: str,
    operands: Sequence[Any],
    offsets: Any,
    out: Any,
    precision: Asked,
) -> _Bound:
    """The launch for arrays on a GPU that lie as these do."""
    modes = ragged_modes(subscripts)
    home, where, (ends,) = gather([offsets], ["offsets"])
    if (home.name, where) != (kind.name, device):
        raise MixedArraysError(f"offsets must be a {kind.name} array on GPU {device}, as the operands are")
    row = kind.describe(ends)
    check_ends(row.dtype.name, row.shape)
    if row.shape[0] > 1 and row.strides[0] != row.dtype.itemsize:
        raise ShapeError(f"offsets have a stride of {row.strides[0]} bytes; they must be contiguous")
    a, b = map(kind.describe, operands)
    extents = check_ragged(modes, [a.shape, b.shape], row.shape[0])
    shape = tuple(extents[label] for label in modes.terms[2])
    given = None if out is None else check_out(out, kind, device)
    _check_shape(shape, given)
    asked = precision or usual_precision()
    arithmetic = arithmetic_of(a, b, given, asked)
    if not arithmetic.whole:
        raise DTypeError(
            f"gett.ragged multiplies operands as they are, and not {a.dtype} with {b.dtype} in {arithmetic.dtype}: "
            "convert one of them"
        )
    d = given or TensorSpec(shape, dense_strides(shape, arithmetic.dtype.itemsize), arithmetic.dtype)
    launch = RaggedLaunch(kind, device, modes, (a, b, d), row.dtype.name, row.shape[0], asked)
    return _Bound(kind, device, launch, (a, b, d))


class _Bound:
    """A launch with what a warm call needs: results, addresses, the device."""

    __slots__ = ("_bounds", "_device", "_dtype", "_kind", "_launch", "_pointer", "_shape")

    def __init__(self, kind: ArrayKind, device: int, launch: RaggedLaunch, tensors: Sequence[TensorSpec]) -> None:
        self._kind, self._device, self._launch = kind, device, launch
        self._shape, self._dtype, self._pointer = tensors[2].shape, tensors[2].dtype, kind.pointer
        self._bounds = tuple(map(bounds, tensors))

    def __call__(self, a: Any, b: Any, offsets: Any, out: Any) -> Any:
        context = self._kind.on(self._device)
        if context is not None:
            with context:
                return self._run(a, b, offsets, out)
        return self._run(a, b, offsets, out)

    def _run(self, a: Any, b: Any, offsets: Any, out: Any) -> Any:
        pointer = self._pointer
        at_a, at_b = pointer(a), pointer(b)
        if out is None:
            out = self._kind.empty(self._shape, self._dtype)
            at_d = pointer(out)
        else:
            at_d = pointer(out)
            low, high = self._bounds[2]
            for at, (first, end) in zip((at_a, at_b), self._bounds, strict=False):
                if at + first < at_d + high and at_d + low < at + end:  # bytes are compared only then
                    _check_apart(self._kind, out, (a, b))
        self._launch.run(at_a, at_b, at_d, pointer(offsets))
        return out


def _check_shape(shape: tuple[int, ...], given: TensorSpec | None) -> None:
    if given is not None and given.shape != shape:
        raise OutputError(f"out has shape {given.shape}, the result has shape {shape}")


def _check_apart(kind: ArrayKind, out: Any, operands: Sequence[Any]) -> None:
    for i, x in enumerate(operands):
        if shares_memory(kind, out, x):
            raise OutputError(f"out overlaps operand {i}: give an array apart from the operands")


def _key(subscripts: str, a: Any, b: Any, offsets: Any, out: Any, precision: Asked) -> Any:
    """What a launch depends on; None where arrays are none of a GPU, or need a closer look."""
    asked = precision or usual_precision()
    arrays = (a, b, offsets) if out is None else (a, b, offsets, out)
    cupy, torch = cupy_kind(), torch_library()
    if cupy is not None and a.__class__ is cupy.type:
        parts: list[Any] = []
        for x in arrays:
            if x.__class__ is not cupy.type:
                return None
            data = x.data
            parts += (x.shape, x.strides, x.dtype, data.device_id, ALIGNMENT[data.ptr % ALIGNMENT_LIMIT])
        return ("ragged", subscripts, asked, *parts)
    if torch is not None and isinstance(a, torch.tensor):
        found = torch.layouts(arrays)
        return None if found is None or found[2] else ("ragged", subscripts, asked, *found[1])
    return None
