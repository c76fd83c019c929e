"""`tensordot` and `transpose` with NumPy's semantics: what opt_einsum asks of a backend beside `einsum`.

Owns the meaning of `axes`. Knows nothing of plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gett.api import einsum_spec
from gett.errors import OptionError, ShapeError
from gett.exchange import borrow, gather
from gett.frontend.parser import Spec
from gett.torch_arrays import torch_library


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Contract axes of two tensors, as `numpy.tensordot` does.

    Args:
        a: First tensor.
        b: Second tensor.
        axes: A number N: the last N axes of `a` with the first N of `b`, in order; or two sequences of axes (or two
            numbers), paired in order; negative ones count from the end.

    Returns:
        The free axes of `a`, then those of `b`, in C order or as `einsum`'s `order="K"` says.

    Raises:
        ShapeError: Paired axes differ in extent or do not exist; nothing is broadcast here.
        GettError: As `einsum`.
    """
    loan = borrow([a, b])
    if loan is not None:
        return loan.finish(tensordot(loan.operands[0], loan.operands[1], axes))
    _, _, (a, b) = gather([a, b], ["operand 0", "operand 1"])
    pairs = axes if isinstance(axes, (int, np.integer)) else _axis_pairs(axes)
    spec, first, second = _tensordot_spec(a.ndim, b.ndim, pairs)
    for i, j in zip(first, second, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"tensordot pairs axis {i} of operand 0 with extent {a.shape[i]} and axis {j} of operand 1 with "
                f"extent {b.shape[j]}"
            )
    return einsum_spec(spec, (a, b), None, None, "K", "safe", True, None)


def _axis_pairs(axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        first, second = ((int(x),) if isinstance(x, (int, np.integer)) else tuple(map(int, x)) for x in axes)
    except (TypeError, ValueError) as error:
        raise OptionError(f"axes={axes!r}; it must be a number or two sequences of axes") from error
    if len(first) != len(second):
        raise ShapeError(f"axes={axes!r} pair {len(first)} axes of operand 0 with {len(second)} of operand 1")
    return first, second


@lru_cache(maxsize=1024)
def _tensordot_spec(
    rank_a: int, rank_b: int, axes: int | tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[Spec, tuple[int, ...], tuple[int, ...]]:
    """Label lists, and the paired axes counted from the front."""
    if isinstance(axes, tuple):
        first = tuple(_axis(x, rank_a, "operand 0") for x in axes[0])
        second = tuple(_axis(x, rank_b, "operand 1") for x in axes[1])
    else:
        if not 0 <= axes <= min(rank_a, rank_b):
            raise ShapeError(f"tensordot over {axes} axes of operands with {rank_a} and {rank_b} axes")
        first, second = tuple(range(rank_a - axes, rank_a)), tuple(range(axes))
    for name, found in (("operand 0", first), ("operand 1", second)):
        if len(set(found)) != len(found):
            raise ShapeError(f"tensordot names an axis of {name} twice: {found}")
    labels_a = list(range(rank_a))
    labels_b = list(range(rank_a, rank_a + rank_b))
    for i, j in zip(first, second, strict=True):
        labels_b[j] = labels_a[i]
    output = [x for i, x in enumerate(labels_a) if i not in first]
    output += [x for j, x in enumerate(labels_b) if j not in second]
    return (tuple(labels_a), tuple(labels_b), tuple(output)), first, second


def _axis(axis: int, rank: int, name: str) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} does not exist in {name} with {rank} axes")
    return axis % rank


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """A view of `a` with its axes permuted (reversed by default), as `numpy.transpose` gives; nothing is moved.

    Raises:
        ShapeError: `axes` is no permutation of the axes.
    """
    torch = torch_library()
    if torch is not None and isinstance(a, torch.tensor):
        array, permute = a, a.permute
    else:
        loan = borrow([a])
        _, _, (array,) = gather([a] if loan is None else loan.operands, ["operand 0"])
        permute = array.transpose
    if axes is None:
        return permute(tuple(reversed(range(array.ndim))))
    order = [_axis(int(x), array.ndim, "operand 0") for x in axes]
    if sorted(order) != list(range(array.ndim)):
        raise ShapeError(f"axes={tuple(axes)!r} is no permutation of the {array.ndim} axes of operand 0")
    return permute(order)
