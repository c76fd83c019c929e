"""The public functions `einsum_path` and `contract_path`: the order in which a network would be contracted.

Owns what stands for a shape. Plans no kernels and reads no array's elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gett.api.plan import described_pair
from gett.arrays.interop import gather
from gett.errors import DTypeError, ShapeError
from gett.ir.build import address, resolve_extents
from gett.ir.subscripts import Spec, Subscripts, parse, split_arguments
from gett.ir.tensors import TensorSpec, dense_strides, parse_dtype, result_type
from gett.network.optimize import check_optimize, in_elements, with_limit
from gett.network.path import NEVER, Path, find_steps, path_info
from gett.plans.planner import drop_constant
from gett.typing import Optimize, Size


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Optimize = True) -> tuple[list[Any], str]:
    """The order in which operands would be contracted, as `numpy.einsum_path` gives it.

    Args:
        subscripts: As for `einsum`, the interleaved form included.
        operands: Arrays of any library, or `(shape, dtype)` pairs; elements are not read.
        optimize: As for `einsum`, and the same by default, where NumPy's default is `"greedy"`. False gives the order
            from left to right.

    Returns:
        What `optimize=` of `gett.einsum` and `numpy.einsum` takes, `["einsum_path", (0, 1), ...]`, and a table of the
        contractions with their cost.

    Raises:
        GettError: As `einsum`.

    Example:
        >>> import gett, numpy as np
        >>> a, b, c = np.ones((2, 9)), np.ones((9, 9)), np.ones((9, 1))
        >>> path, table = gett.einsum_path("ij,jk,kl->il", a, b, c)
        >>> path
        ['einsum_path', (1, 2), (0, 1)]
        >>> gett.einsum("ij,jk,kl->il", a, b, c, optimize=path)
        array([[81.],
               [81.]])
    """
    spec, found = split_arguments(subscripts, operands)
    _, path, info = find_network_path(spec, _describe(found), optimize, None)
    return ["einsum_path", *path], str(info)


def contract_path(
    subscripts: Any,
    /,
    *operands: Any,
    optimize: Optimize = True,
    memory_limit: Size | float | None = None,
    shapes: bool = False,
) -> tuple[list[tuple[int, ...]], Any]:
    """The order in which operands would be contracted, as `opt_einsum.contract_path` gives it.

    Args:
        subscripts: As for `einsum`, the interleaved form included.
        operands: Arrays of any library, or `(shape, dtype)` pairs; elements are not read.
        optimize: As for `einsum`.
        memory_limit: Largest intermediate of the path, which has no slices: a number of elements, or bytes as `"1GiB"`
            in the dtype that NumPy promotes the operands to, float64 where they have none.
        shapes: Whether the operands are given as shapes alone.

    Returns:
        The path, and opt_einsum's `PathInfo`, whose text is a table of the contractions with their cost.

    Raises:
        GettError: As `einsum`.

    Example:
        >>> import gett
        >>> path, info = gett.contract_path("ij,jk,kl->il", (2, 9), (9, 9), (9, 1), shapes=True)
        >>> path, int(info.opt_cost)
        ([(1, 2), (0, 1)], 198)
    """
    spec, found = split_arguments(subscripts, operands)
    _, path, info = find_network_path(spec, _describe(found, shapes), optimize, memory_limit)
    return list(path), info


def find_network_path(
    spec: Spec, tensors: Sequence[TensorSpec], optimize: Any, memory_limit: Any
) -> tuple[Subscripts, Path, Any]:
    """The subscripts, the path that a plan would follow, and opt_einsum's `PathInfo` of it.

    Args:
        spec: From `split_arguments`.
        tensors: The operands.
        optimize: What `gett.einsum` takes.
        memory_limit: Likewise.

    Raises:
        GettError: An argument is at fault.
    """
    known = parse(spec, [len(t.shape) for t in tensors])
    extents = resolve_extents(known, [t.shape for t in tensors])
    asked = with_limit(optimize, memory_limit)
    check_optimize(asked, len(tensors))
    path: Path = (tuple(range(len(tensors))),)
    if 0 not in extents or len(tensors) < 3:  # a plan takes a network that sums over nothing at once
        sources = drop_constant([address(m, t, extents) for m, t in zip(known.inputs, tensors, strict=True)])
        terms = [o.modes for o in sources]
        itemsize = result_type([t.dtype for t in tensors]).itemsize
        path = find_steps(terms, known.output, extents, terms, in_elements(asked, itemsize), NEVER)[1]
    return known, path, path_info(known, [t.shape for t in tensors], path)


def _describe(operands: Sequence[Any], shapes: bool = False) -> list[TensorSpec]:
    """The operands of a call, which are shapes alone where that was said."""
    return [(describe_shape if shapes else describe_operand)(x, f"operand {i}") for i, x in enumerate(operands)]


def describe_shape(shape: Any, name: str) -> TensorSpec:
    """What stands for an operand of a shape; without a dtype, its elements count as float64.

    Raises:
        ShapeError: It is no shape.
    """
    if not isinstance(shape, (tuple, list)):
        raise ShapeError(f"{name} is a {type(shape).__name__}; it must be a shape such as (3, 4)")
    found = described_pair((tuple(shape), "float64"), name)
    assert found is not None
    return found


def describe_operand(x: Any, name: str) -> TensorSpec:
    """As much of an array, or of a `(shape, dtype)` pair, as a path depends on.

    Raises:
        ShapeError: It is a shape alone.
        OperandError: It cannot become an array.
    """
    pair = described_pair(x, name)
    if pair is not None:
        return pair
    if not hasattr(x, "shape"):
        _, _, (x,) = gather([x], [name])
    shape = tuple(map(int, x.shape))
    try:
        dtype = parse_dtype(x.dtype)
    except (AttributeError, DTypeError):  # of a library that has its own; it counts for limits in bytes alone
        dtype = parse_dtype("float64")
    strides = x.strides if isinstance(x, np.ndarray) else dense_strides(shape, dtype.itemsize)
    return TensorSpec(shape, strides, dtype)
