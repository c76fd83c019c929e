"""`gett::contract`: a product as an operator of PyTorch, for whatever traces calls instead of running them.

`torch.compile`, `torch.export` and fake tensors need an operator with a schema, and with a form that holds no values.
Eager calls do without it, since the dispatcher takes longer than a call of this package. Knows tensors and labels; what
a derivative is `gett.arrays.torch_autograd` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gett.errors import ShapeError
from gett.ir.tensors import UsualPrecision, dense_strides

SCHEMA = (
    "(Tensor a, Tensor? b, Tensor? c, str subscripts, bool[] conj, Scalar alpha, Scalar beta, ScalarType dtype, "
    "str order, str? precision, bool usual, SymInt limit) -> Tensor"
)


def define(
    module: Any,
    run: Callable[..., Any],
    backward: Callable[..., Any],
    setup: Callable[..., Any],
    mapped: Callable[..., Any],
) -> Any:
    """The operator, registered with PyTorch.

    Args:
        module: `torch`.
        run: From the operator's arguments to D, on tensors that have values.
        backward: Its derivative, as `torch.library.register_autograd` takes it.
        setup: What the derivative keeps, likewise.
        mapped: Its form under vmap, as `torch.library.register_vmap` takes it.
    """
    tag = getattr(module.Tag, "needs_exact_strides", None)  # a compiler shall not copy operands into another order
    made = module.library.custom_op(
        "gett::contract", run, mutates_args=(), schema=SCHEMA, tags=() if tag is None else (tag,)
    )
    made.register_fake(partial(_fake, module))
    made.register_autograd(backward, setup_context=setup)
    made.register_vmap(mapped)
    return made


def spell_precision(precision: Any) -> tuple[str | None, bool]:
    """A precision as the operator's arguments `precision` and `usual`."""
    if isinstance(precision, UsualPrecision):
        return precision.name, True
    return precision, False


def _fake(
    module: Any, a: Any, b: Any, c: Any, subscripts: str, conj: Sequence[bool], alpha: Any, beta: Any, dtype: Any,
    order: str, precision: str | None, usual: bool, limit: int,
) -> Any:  # fmt: skip
    """D without values: its shape, its strides and its dtype.

    Raises:
        ShapeError: Extents disagree.
    """
    terms, _, output = subscripts.partition("->")
    extents: dict[str, Any] = {}
    for i, (term, x) in enumerate(zip(terms.split(","), (a, b), strict=False)):
        for label, extent in zip(term, x.shape, strict=True):
            if extents.setdefault(label, extent) != extent:
                raise ShapeError(f"mode {label!r} has extent {extents[label]} in operand 0 and {extent} in operand {i}")
    shape = tuple(extents[label] for label in output)
    if c is not None and (
        c.ndim > len(shape) or any(n not in (1, m) for n, m in zip(c.shape, shape[len(shape) - c.ndim :], strict=True))
    ):
        raise ShapeError(f"c of shape {tuple(c.shape)} does not broadcast to the result's shape {shape}")
    return module.empty_strided(shape, dense_strides(shape, 1, order), dtype=dtype, device=a.device)
