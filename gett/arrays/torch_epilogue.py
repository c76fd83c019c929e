"""Derivatives of an epilogue in PyTorch: one autograd function, whose derivatives are epilogues again.

Owns which epilogue each derivative is, how gradients of arguments are summed over the axes along which they broadcast,
and how `torch.func.vmap` adds an axis. Knows tensors and expressions; how an epilogue is computed it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from gett.arrays.torch import TorchLibrary, torch_library
from gett.arrays.torch_autograd import Product, contracted_or_view
from gett.epilogue.expression import Expression, Extra
from gett.epilogue.gradient import batched, gradient, tangent
from gett.errors import OperandError
from gett.ir.subscripts import symbols


@dataclass(frozen=True, slots=True)
class Finish:
    """An epilogue of a tensor that has been contracted.

    Attributes:
        expression: The function.
        product: The options of the contraction; its dtype is the tensor's.
        run: From the record, the tensor and the arguments to the result, without derivatives.
    """

    expression: Expression
    product: Product
    run: Callable[[Finish, Any, Sequence[Any]], Any]


def finished(finish: Finish, d: Any, arguments: Sequence[Any]) -> Any:
    """The epilogue of a tensor, which PyTorch may differentiate and map over.

    Raises:
        OperandError: The call is traced; there is no operator for an epilogue.
    """
    library = torch_library()
    assert library is not None
    if library.modes.traces((d, *arguments)):
        raise OperandError(
            "epilogue= has no operator that a traced call could be, such as one of fake tensors: apply the function to "
            "the result"
        )
    if library.epilogue is None:
        library.epilogue = _function(library.module)
    return library.epilogue.apply(finish, d, *arguments)


def _function(module: Any) -> Any:
    """The autograd function of an epilogue; its class is made once PyTorch is there."""

    class Epilogue(module.autograd.Function):  # type: ignore[misc]
        """`finished(finish, d, arguments)`."""

        @staticmethod
        def forward(finish: Finish, d: Any, *arguments: Any) -> Any:
            return finish.run(finish, d, arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.finish, *tensors = inputs
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)

        @staticmethod
        def backward(ctx: Any, found: Any) -> Any:
            needs, (d, *arguments) = ctx.needs_input_grad[1:], ctx.saved_tensors
            if found is None:
                return (None, *[None] * len(needs))
            own = _gradient(ctx.finish, d, arguments, 0, found) if needs[0] else None
            rest = [
                _argument_gradient(ctx.finish, d, arguments, i, found) if need else None
                for i, need in enumerate(needs[1:])
            ]
            return (None, own, *rest)

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            d, *arguments = ctx.saved_tensors
            return _tangent(ctx.finish, d, arguments, tangents)

        @staticmethod
        def vmap(info: Any, dims: Any, finish: Finish, d: Any, *arguments: Any) -> Any:
            first, *rest = dims[1:]
            rank = d.ndim - (first is not None)
            d = d.unsqueeze(0).expand(info.batch_size, *d.shape) if first is None else d.movedim(first, 0)
            moved = [x if i is None else x.movedim(i, 0) for x, i in zip(arguments, rest, strict=True)]
            expression = batched(finish.expression, [i is not None for i in rest], rank)
            return finished(replace(finish, expression=expression), d, moved), 0

    return Epilogue


def _types(library: TorchLibrary, expression: Expression, d: Any, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What a derivative depends on: the accumulator's dtype, and that of each extra."""
    names = [library.dtypes[x.dtype].name for x in arguments]
    return library.dtypes[d.dtype].name, tuple(names[x.argument] for x in expression.extras)


def _gradient(finish: Finish, d: Any, arguments: Sequence[Any], value: int, found: Any) -> Any:
    """The gradient of a value of the expression, of the result's shape; None where there is none."""
    library = torch_library()
    assert library is not None
    types = _types(library, finish.expression, d, arguments)
    back = gradient(finish.expression, *types, value, d.ndim)
    return None if back is None else finished(replace(finish, expression=back), d, [*arguments, found])


def _argument_gradient(finish: Finish, d: Any, arguments: Sequence[Any], i: int, found: Any) -> Any:
    """The gradient of an argument: of each of its views, summed over the axes along which that broadcasts."""
    total = None
    for number, extra in enumerate(finish.expression.extras, 1):
        if extra.argument != i:
            continue
        whole = _gradient(finish, d, arguments, number, found)
        if whole is not None:
            part = _summed(finish, whole, extra, arguments[i])
            total = part if total is None else total + part
    return total


def _summed(finish: Finish, whole: Any, extra: Extra, argument: Any) -> Any:
    """A gradient of the result's shape, summed to an argument's shape and in its dtype."""
    labels = "".join(islice(symbols(), whole.ndim))
    last = labels[whole.ndim - len(extra.axes) :]
    extents = dict(zip(labels, whole.shape, strict=True))
    kept = "".join(
        x for x, axis in zip(last, extra.axes, strict=True) if axis >= 0 and argument.shape[axis] == extents[x]
    )
    found = contracted_or_view(finish.product.alone((labels,), kept, (False,), 1, whole.dtype), [whole])
    found = found.reshape(argument.shape)
    if found.is_complex() and not argument.is_complex():
        found = found.real
    return found if found.dtype == argument.dtype else found.to(argument.dtype)


def _tangent(finish: Finish, d: Any, arguments: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The tangent of the result: the sum of what each value that has one gives."""
    library = torch_library()
    assert library is not None
    types = _types(library, finish.expression, d, arguments)
    total = None
    values = [(0, tangents[0]), *((n, tangents[1 + x.argument]) for n, x in enumerate(finish.expression.extras, 1))]
    for value, given in values:
        ahead = None if given is None else tangent(finish.expression, *types, value, d.ndim)
        if ahead is not None:
            part = finished(replace(finish, expression=ahead), d, [*arguments, given])
            total = part if total is None else total + part
    return library.module.zeros_like(d) if total is None else total
