"""`gett::contract` in code that PyTorch's compiler, Inductor, generates: a call of a launcher, without the dispatcher.

The dispatcher takes longer for an operator that is written in Python than a launch does. So the code has a line for
each product that makes its launcher, and calls that with the tensors and the memory that Inductor took for the result.
Inductor keeps code on disk, which then meets later versions: a launcher's arguments are the operator's, and stay.
Inductor has no public interface for this: where it is not as expected, the operator stays in the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from typing import Any


def lower(operator: Any, launcher: str) -> None:
    """Tell Inductor, if it has been imported, how it spells the operator.

    Args:
        operator: `torch.ops.gett.contract.default`.
        launcher: An import that gives code the name `gett_launcher`: from the operator's arguments behind its tensors,
            and whether all extents are known, to what computes on tensors.
    """
    module = sys.modules.get("torch._inductor.lowering")
    known = getattr(module, "lowerings", None)
    if known is None or operator in known or not hasattr(module, "fallback_handler"):
        return
    with suppress(AttributeError, ImportError):  # a version of Inductor that is built otherwise
        known[operator] = _lowering(module, operator, launcher)


def _lowering(module: Any, operator: Any, launcher: str) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    otherwise = module.fallback_handler(operator, add_to_fallback_set=False)

    class Launched(ir.ExternKernelOut):  # type: ignore[misc]
        """The call of a launcher; the code has a line that makes that."""

        def codegen(self, wrapper: Any) -> None:
            wrapper.add_import_once(launcher)
            wrapper.add_import_once(f"{self.python_kernel_name} = gett_launcher({self.described})")
            super().codegen(wrapper)

    def lowered(a: Any, b: Any, c: Any, *rest: Any) -> Any:
        """The product as a call into memory that Inductor takes; an operator where there is more to it."""
        subscripts, conj, alpha, beta, dtype, order, precision, usual, limit = rest
        graph, tensors = V.graph, [a] if b is None else [a, b]
        meta = graph.current_node.meta
        exact = "eager_input_vals" in meta  # then operands have the strides that they had while they were traced
        given = meta["eager_input_vals"][0] if exact else [x.meta["val"] for x in graph.current_node.args[:2]]
        given = given[: len(tensors)]
        plain = all(x.__class__ is int or (x.__class__ is float and isfinite(x)) for x in (alpha, beta, limit))
        lazy = any(x.is_complex() or x.is_neg() for x in given)
        if c is not None or lazy or dtype.is_complex or not plain or graph.cpp_wrapper:
            return otherwise(a, b, c, *rest)
        extents: dict[str, Any] = {}
        for term, x in zip(subscripts.partition("->")[0].split(","), tensors, strict=True):
            extents |= dict(zip(term, x.get_size(), strict=True))
        size = [extents[x] for x in subscripts.partition("->")[2]]
        alike = exact and all(n.__class__ is int and n for x in given for n in x.shape)
        described = subscripts, list(conj), alpha, beta, dtype, order, precision, usual, limit
        text = f"{', '.join(map(repr, described))}, alike={alike}"
        place = [(x.device, *x.shape, *x.stride()) for x in given]  # a launcher for each, as it may know them
        made = Launched(
            ir.FixedLayout(a.get_device(), dtype, size, _dense(size, order)),
            [ir.ExternKernel.realize_input(x) for x in tensors],
            python_kernel_name=f"gett_{sha256(f'{text} {place}'.encode()).hexdigest()[:16]}",
        )
        made.described = text
        return ir.TensorBox.create(made)

    return lowered


def _dense(size: list[Any], order: str) -> list[Any]:
    """Strides in elements, as plans lay new results out, of extents that may be symbols."""
    strides: list[Any] = []
    step: Any = 1
    for extent in size if order == "F" else reversed(size):
        strides.append(step)
        step = step * extent
    return strides if order == "F" else strides[::-1]
