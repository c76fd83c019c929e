"""`gett::contract`: a product as an operator of PyTorch, for whatever traces calls instead of running them.

`torch.compile`, `torch.export` and fake tensors need an operator with a schema, and with a form that holds no values.
Eager calls do without it, since the dispatcher takes longer than a call of this package. Knows tensors and labels; what
a derivative is `gett.arrays.torch_autograd` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gett.arrays.torch_inductor import lower
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
    launcher: str,
) -> Any:
    """The operator, registered with PyTorch.

    `torch.library.custom_op` would wrap `run` in functions that take longer than a call of this package.

    Args:
        module: `torch`.
        run: From the operator's arguments to D, on tensors that have values.
        backward: Its derivative, as `torch.library.register_autograd` takes it.
        setup: What the derivative keeps, likewise.
        mapped: Its form under vmap, as `torch.library.register_vmap` takes it.
        launcher: What PyTorch's compiler calls in the operator's place: `gett.arrays.torch_inductor`.
    """
    names = ("needs_exact_strides", "pt2_compliant_tag")  # a compiler shall not copy operands into another order
    tags = tuple(getattr(module.Tag, name) for name in names if hasattr(module.Tag, name))
    made = module.library.Library("gett", "FRAGMENT")
    made.define(f"contract{SCHEMA}", tags=tags)
    made.impl("contract", run, "CompositeExplicitAutograd")
    operator = module.ops.gett.contract.default

    def fake(*arguments: Any) -> Any:
        lower(operator, launcher)  # the first that the compiler asks of an operator
        return _fake(module, *arguments)

    library, name = module.library, "gett::contract"
    library.register_fake(name, fake, lib=made)
    library.register_autograd(name, backward, setup_context=setup, lib=made)
    library.register_vmap(name, mapped, lib=made)
    _registered.append(made)
    return operator


_registered: list[Any] = []  # PyTorch forgets an operator with its library


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
