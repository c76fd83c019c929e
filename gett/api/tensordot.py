"""`tensordot` and `transpose` with NumPy's semantics: what opt_einsum asks of a backend beside `einsum`.

Owns the meaning of `axes`. Knows nothing of plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gett.api.einsum import compute
from gett.arrays.dynamo import untraced
from gett.arrays.interop import borrow, gather, gather_recorded
from gett.arrays.kinds import cupy_kind
from gett.arrays.torch import is_tensor, torch_library
from gett.console.formatting import brief
from gett.errors import OptionError, ShapeError
from gett.ir.subscripts import symbols
from gett.plans.call import check_conj, flipped, make_call

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gett.typing import DeviceArrayT, NumPyOperand, SupportsArray

_INTEGER = (int, np.integer)


class _Usual(int):
    """A number of axes that nobody gave."""


_USUAL = _Usual(2)


@overload
def tensordot(
    a: NDArray[Any], b: NDArray[Any], axes: Any = 2, *, conj: Sequence[bool] | None = None, dims: Any = None
) -> NDArray[Any]: ...
@overload
def tensordot(
    a: DeviceArrayT, b: DeviceArrayT, axes: Any = 2, *, conj: Sequence[bool] | None = None, dims: Any = None
) -> DeviceArrayT: ...
@overload
def tensordot(
    a: SupportsArray | NumPyOperand,
    b: SupportsArray | NumPyOperand,
    axes: Any = 2,
    *,
    conj: Sequence[bool] | None = None,
    dims: Any = None,
) -> NDArray[Any]: ...
@untraced
def tensordot(a: Any, b: Any, axes: Any = _USUAL, *, conj: Sequence[bool] | None = None, dims: Any = None) -> Any:
    """Contract axes of two tensors, as `numpy.tensordot` does.

    Args:
        a: First tensor.
        b: Second tensor.
        axes: A number N: the last N axes of `a` with the first N of `b`, in order; or two sequences of axes (or two
            numbers), paired in order; negative ones count from the end. Default: 2.
        conj: As for `einsum`, of `a` and of `b`.
        dims: PyTorch's name for `axes`.

    Returns:
        The free axes of `a`, then those of `b`, in C order or as `einsum`'s `order="K"` says.

    Raises:
        ShapeError: Paired axes differ in extent or do not exist; nothing is broadcast here.
        OptionError: `axes` is neither, or `dims` is given as well.
        GettError: As `einsum`.

    Example:
        >>> import gett, numpy as np
        >>> gett.tensordot(np.ones((2, 3, 4)), np.ones((4, 3)), axes=([1, 2], [1, 0]))
        array([12., 12.])
    """
    if dims is not None:
        if axes is not _USUAL:
            raise OptionError("tensordot takes axes= or dims=, which mean the same, not both")
        axes = dims
    pairs = axes if axes.__class__ is int or axes is _USUAL else _axis_pairs(axes)
    conj = check_conj(conj, 2)
    cls = a.__class__
    if b.__class__ is not cls or (cls is not np.ndarray and not _is_plain(cls)):
        torch, names = torch_library(), ["operand 0", "operand 1"]
        if torch is not None and torch.modes.records([a, b]):
            a, b = gather_recorded([a, b], names)
        else:
            loan = borrow([a, b])
            if loan is not None:
                return loan.finish(tensordot(loan.operands[0], loan.operands[1], axes, conj=flipped(conj, loan.lazy)))
            _, _, (a, b) = gather([a, b], names, 2)
    try:
        spec = _subscripts(pairs, a.shape, b.shape)
    except RuntimeError:  # a nested tensor has none
        gather([a, b], ["operand 0", "operand 1"], 2)
        raise
    return compute(make_call(spec, (a, b), conj=conj))


def _is_plain(cls: Any) -> bool:
    """Whether arrays of a class have their shape at hand: CuPy's and PyTorch's."""
    cupy, torch = cupy_kind(), torch_library()
    return (cupy is not None and cls is cupy.type) or (torch is not None and cls in torch.plain)


def _axis_pairs(axes: Any) -> int | tuple[tuple[int, ...], tuple[int, ...]]:
    """`axes=` as `_subscripts` takes it: with whole numbers only."""
    try:
        if isinstance(axes, _INTEGER):
            return int(axes)
        first, second = map(_integers, axes)
    except (TypeError, ValueError) as error:
        raise OptionError(f"axes={brief(axes)}; it must be a number or two sequences of axes") from error
    if len(first) != len(second):
        raise ShapeError(f"axes={brief(axes)} pair {len(first)} axes of operand 0 with {len(second)} of operand 1")
    return first, second


def _integers(axes: Any) -> tuple[int, ...]:
    """One axis, or several."""
    return (int(axes),) if isinstance(axes, _INTEGER) else tuple(map(index, axes))


@lru_cache(maxsize=1024)
def _subscripts(
    axes: int | tuple[tuple[int, ...], tuple[int, ...]], shape_a: tuple[int, ...], shape_b: tuple[int, ...]
) -> str:
    """`einsum`'s subscripts of a `tensordot` whose axes fit the shapes.

    Raises:
        ShapeError: They do not.
    """
    rank_a, rank_b = len(shape_a), len(shape_b)
    if isinstance(axes, tuple):
        first = tuple(_axis(x, rank_a, "operand 0") for x in axes[0])
        second = tuple(_axis(x, rank_b, "operand 1") for x in axes[1])
    else:
        if axes < 0:
            raise ShapeError(
                f"tensordot's axes={brief(axes)} must be at least 0; axes=(-1, -1) pairs the last axis of each"
            )
        if axes > min(rank_a, rank_b):
            raise ShapeError(f"tensordot over {brief(axes)} axes of operands with {rank_a} and {rank_b} axes")
        first, second = tuple(range(rank_a - axes, rank_a)), tuple(range(axes))
    for name, found in (("operand 0", first), ("operand 1", second)):
        if len(set(found)) != len(found):
            raise ShapeError(f"tensordot names an axis of {name} twice: {found}")
    for i, j in zip(first, second, strict=True):
        if shape_a[i] != shape_b[j]:
            raise ShapeError(
                f"tensordot pairs axis {i} of operand 0 with extent {shape_a[i]} and axis {j} of operand 1 with "
                f"extent {shape_b[j]}"
            )
    labels = list(islice(symbols(), rank_a + rank_b))
    labels_a, labels_b = labels[:rank_a], labels[rank_a:]
    for i, j in zip(first, second, strict=True):
        labels_b[j] = labels_a[i]
    output = [x for i, x in enumerate(labels_a) if i not in first]
    output += [x for j, x in enumerate(labels_b) if j not in second]
    return f"{''.join(labels_a)},{''.join(labels_b)}->{''.join(output)}"


def _axis(axis: int, rank: int, name: str) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {brief(axis)} does not exist in {name} with {rank} axes")
    return axis % rank


@overload
def transpose(a: NDArray[Any], axes: Sequence[int] | int | None = None) -> NDArray[Any]: ...
@overload
def transpose(a: DeviceArrayT, axes: Sequence[int] | int | None = None) -> DeviceArrayT: ...
@overload
def transpose(a: SupportsArray | NumPyOperand, axes: Sequence[int] | int | None = None) -> NDArray[Any]: ...
@untraced
def transpose(a: Any, axes: Sequence[int] | int | None = None) -> Any:
    """A view of `a` with its axes permuted (reversed by default), as `numpy.transpose` gives; nothing is moved.

    Of a JAX array, it is a JAX array.

    Args:
        a: An array with axes.
        axes: Which axis of `a` becomes the first, the second and so on; negative ones count from the end. For one axis
            a number will do.

    Raises:
        ShapeError: `axes` is no permutation of the axes.
        OptionError: `axes` holds something else than integers.

    Example:
        >>> import gett, numpy as np
        >>> gett.transpose(np.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    loan = None
    if is_tensor(a):
        array, permute = a, a.permute
    else:
        loan = borrow([a])
        _, _, (array,) = gather([a] if loan is None else loan.operands, ["operand 0"])
        permute = array.transpose
    view = permute(_order(axes, array.ndim))
    return view if loan is None else loan.finish(view)


def _order(axes: Any, rank: int) -> list[int]:
    """`transpose`'s axes counted from the front."""
    if axes is None:
        return list(reversed(range(rank)))
    try:
        given = list(_integers(axes))
    except TypeError as error:
        raise OptionError(f"axes={brief(axes)}; it must be a sequence of axes") from error
    order = [_axis(x, rank, "operand 0") for x in given]
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"axes={brief(given)} is no permutation of the {rank} axes of operand 0")
    return order
