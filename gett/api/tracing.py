"""What `torch.compile` traces in place of `einsum`, `contract` and `tensordot`: operators that a graph can hold.

TorchDynamo reads the functions here and runs none of them, but for those marked as constant: these are called with
numbers and texts while it traces. Whatever has no operator (`out=`, an epilogue, arrays of other libraries) breaks the
graph, and the call runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from gett.arrays.dynamo import constant, untraced

if TYPE_CHECKING:
    from gett.arrays.torch import TorchLibrary
    from gett.ir.tensors import TensorSpec
    from gett.plans.call import Call


def traced_einsum(compute: Callable[[Call], Any]) -> Callable[..., Any]:
    """What stands for `einsum` while it is traced; `compute` computes the graph's products."""
    prepared = _prepared(compute)

    def einsum(
        subscripts: Any = None,
        /,
        *operands: Any,
        out: Any = None,
        dtype: Any = None,
        order: Any = "K",
        casting: Any = "safe",
        optimize: Any = True,
        precision: Any = None,
        conj: Any = None,
        workspace_limit: Any = None,
        memory_limit: Any = None,
        checkpoint: Any = None,  # what a graph keeps, its compiler decides
        devices: Any = None,
        shard: Any = None,
        strip_exponent: Any = False,
    ) -> Any:
        if (
            out is not None
            or devices is not None
            or shard is not None
            or strip_exponent
            or not _are_tensors(subscripts, operands)
        ):
            return _leave_graph()
        options = (dtype, order, casting, optimize, precision, conj, workspace_limit, memory_limit)
        return _traced(prepared, subscripts, operands, None, 1, 0, options)

    return einsum


def traced_contract(compute: Callable[[Call], Any]) -> Callable[..., Any]:
    """What stands for `contract`."""
    prepared = _prepared(compute)

    def contract(
        subscripts: Any = None,
        /,
        *operands: Any,
        c: Any = None,
        alpha: Any = 1,
        beta: Any = None,
        out: Any = None,
        optimize: Any = True,
        precision: Any = None,
        epilogue: Any = None,
        epilogue_args: Any = (),
        conj: Any = None,
        workspace_limit: Any = None,
        memory_limit: Any = None,
        checkpoint: Any = None,  # what a graph keeps, its compiler decides
        devices: Any = None,
        shard: Any = None,
        strip_exponent: Any = False,
    ) -> Any:
        if (
            any(x is not None for x in (out, epilogue, devices, shard))
            or strip_exponent
            or not isinstance(subscripts, str)
        ):
            return _leave_graph()
        if c is None and len(operands) == subscripts.partition("->")[0].count(",") + 2:
            c = operands[-1]
            operands = operands[:-1]
        if not _are_tensors(subscripts, operands if c is None else (*operands, c)):
            return _leave_graph()
        if beta is None:
            beta = 0 if c is None else 1
        options = (None, "K", "safe", optimize, precision, conj, workspace_limit, memory_limit)
        return _traced(prepared, subscripts, operands, c, alpha, beta, options)

    return contract


def _prepared(compute: Callable[[Call], Any]) -> Callable[..., Any]:
    @constant
    def prepared(*facts: Any) -> Any:
        return _prepare(compute, *facts)

    return prepared


def _are_tensors(subscripts: Any, operands: Any) -> bool:
    import torch

    return isinstance(subscripts, str) and len(operands) > 0 and all([isinstance(x, torch.Tensor) for x in operands])


def _traced(prepared: Any, subscripts: Any, operands: Any, c: Any, alpha: Any, beta: Any, options: Any) -> Any:
    """The operators of a call."""
    import torch

    optimize, memory_limit = options[3], options[7]
    device = operands[0].device.type
    lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    # TorchDynamo guards branches and indices; a comparison or an extent alone would stay symbolic.
    ones = tuple([tuple([1 if n == 1 else 0 for n in x.shape]) for x in operands])
    sizes = None
    if len(operands) > 2 or memory_limit is not None:
        size = index if memory_limit is not None or isinstance(optimize, (tuple, list)) else _power
        sizes = tuple([tuple([size(n) for n in x.shape]) for x in operands])
    dense = tuple([(x.is_contiguous(), x.permute(list(range(x.ndim))[::-1]).is_contiguous()) for x in operands])
    dtypes = tuple([x.dtype for x in operands])
    added = None if c is None else c.dtype
    known = prepared(subscripts, ones, sizes, dense, dtypes, added, device, lowered, alpha, beta, options)
    if known is None:
        return _leave_graph()
    readings, factors, own, read, alpha, beta, order, *rest = known
    tensors = []
    for i in range(len(operands)):
        x = operands[i]
        for axis in readings[i][0]:
            x = x.squeeze(axis)
        for first, second in readings[i][1]:
            x = x.diagonal(dim1=first, dim2=second)
        tensors.append(x if x.dtype == read[i] else x.to(read[i]))
    run = torch.ops.gett.contract
    for inputs, spec, conj, kept in factors[:-1]:
        second = tensors[inputs[1]] if len(inputs) == 2 else None
        tensors.append(run(tensors[inputs[0]], second, None, spec, conj, 1, 0, kept, "C", *rest))
    inputs, spec, conj, _ = factors[-1]
    second = tensors[inputs[1]] if len(inputs) == 2 else None
    c = None if c is None or beta == 0 else c if c.dtype == own else c.to(own)
    return run(tensors[inputs[0]], second, c, spec, conj, alpha, beta, own, order, *rest)


def _power(extent: Any) -> int:
    """The least power of 2 that is not below an extent, so that a path holds for others near to it."""
    found = 1
    while found < extent:
        found *= 2
    return found


@untraced
def _leave_graph() -> Any:
    """Never run: TorchDynamo breaks the graph before it calls what is marked as untraced."""


def _prepare(
    compute: Callable[[Call], Any], spec: Any, ones: Any, sizes: Any, dense: Any, dtypes: Any, added: Any, device: str,
    lowered: Any, alpha: Any, beta: Any, options: Any,
) -> Any:  # fmt: skip
    """What is known of a call while it is traced, as plain tuples; None where the operator has no derivatives.

    Args:
        compute: Computes the products.
        spec: The subscripts.
        ones: For each axis of each operand whether its extent is 1.
        sizes: Extents of the operands, where a path depends on them.
        dense: For each operand whether it is C-contiguous, and F-contiguous.
        dtypes: PyTorch's, of the operands.
        added: That of `c`, or None.
        device: Its type.
        lowered: Autocast's dtype where that holds.
        alpha: Factor.
        beta: Factor.
        options: Of `einsum`, in its order.
    """
    from gett.arrays.torch import torch_library
    from gett.arrays.torch_autograd import operator_of
    from gett.arrays.torch_operator import spell_precision
    from gett.ir.subscripts import sums_products
    from gett.ir.tensors import TensorSpec
    from gett.network.optimize import in_elements
    from gett.network.products import products_of
    from gett.plans.call import make_call  # late, here and below: few programs are traced
    from gett.plans.recording import runner, settle, steps_of
    from gett.plans.unsliced import unsliced

    torch = torch_library()
    assert torch is not None
    if torch.modes.differentiates_traced():
        return None
    operator_of(torch, runner(compute))
    dtype, order, casting, optimize, precision, conj, workspace_limit, memory_limit = options
    operands = [_described(torch, *x) for x in zip(ones, dense, dtypes, strict=True)]
    c = None if added is None else TensorSpec((), (), torch.dtypes[added])
    given = dtypes if added is None else (*dtypes, added)
    if lowered is not None and dtype is None and torch.lowers(given) and (device == "cuda" or sums_products(spec)):
        dtype, casting = lowered, "same_kind"
    call = make_call(
        spec, operands, None, dtype, order, casting, optimize, precision, conj, workspace_limit, memory_limit, None,
        alpha, beta,
    )  # fmt: skip
    known, own = settle(call, operands, c), torch.own_dtypes
    shapes = sizes or [tuple(1 if one else 2 for one in flags) for flags in ones]
    if memory_limit is None:  # extents are rounded, with which no limit of the environment is compared
        call = call.changed(memory=None)
    call = unsliced(call, shapes, known.dtype.itemsize)
    products = products_of(spec, shapes, in_elements(call.optimize, known.dtype.itemsize))
    factors = [(x.inputs, x.subscripts, [*flags], own[t.name]) for x, flags, t in steps_of(products, known)]
    readings = [(x.dropped, x.diagonals) for x in products.readings]
    read = [own[x.name] for x in known.read]
    precision = spell_precision(call.precision)
    return (
        readings, factors, own[known.dtype.name], read, known.alpha, known.beta, known.order, *precision, call.limit
    )  # fmt: skip


def _described(torch: TorchLibrary, ones: Sequence[bool], dense: tuple[bool, bool], dtype: Any) -> TensorSpec:
    """A tensor of some shape that is contiguous as another is."""
    from gett.ir.tensors import TensorSpec, dense_strides

    shape = (1 if all(dense) else 2,) * len(ones)
    strides = dense_strides(shape, 1, "C" if dense[0] else "F") if any(dense) else (0,) * len(ones)
    return TensorSpec(shape, tuple(x * dtype.itemsize for x in strides), torch.dtypes[dtype], 1)
