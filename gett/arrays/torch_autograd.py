"""Derivatives of contractions in PyTorch: one autograd function, whose derivatives are contractions again.

Owns which contraction each derivative is, and how `torch.func.vmap` adds a label. Every order and every composition of
transformations follows, since derivatives go through the same function. How a contraction is computed it is told:
`Product.run`. Knows tensors and labels; knows neither plans nor paths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from gett.arrays.derivatives import gradient_factor, gradient_flags, gradient_terms, mapped_terms
from gett.arrays.torch import TorchLibrary, torch_library
from gett.arrays.torch_operator import define, spell_precision
from gett.ir.tensors import UsualPrecision

LAUNCHER = "from gett.api.launching import launcher as gett_launcher"
"""The line that gives compiled code what launches products in it."""


@dataclass(frozen=True, slots=True)
class Product:
    """`alpha * op(A) op(B) + beta * C` without arrays; `op` conjugates or does nothing.

    Attributes:
        terms: Labels of A, and of B where there is one; each label once in a term.
        output: Labels of D, each of which a term has.
        conj: For each operand whether it is conjugated.
        alpha: Factor of the product.
        beta: Factor of C, whose axes are D's last ones and broadcast.
        dtype: PyTorch's dtype of D, and of C.
        order: Memory order of D, `"C"` or `"F"`.
        precision: How products are formed.
        limit: Most bytes of workspace.
        run: From the record, the operands and C to D, without derivatives.
    """

    terms: tuple[str, ...]
    output: str
    conj: tuple[bool, ...]
    alpha: Any
    beta: Any
    dtype: Any
    order: str
    precision: Any
    limit: int
    run: Callable[[Product, Sequence[Any], Any], Any]

    @property
    def subscripts(self) -> str:
        """The explicit form, e.g. `"ij,jk->ik"`."""
        return f"{','.join(self.terms)}->{self.output}"

    @property
    def is_view(self) -> bool:
        """Whether D is one tensor, permuted or conjugated and no more."""
        return len(self.terms) == 1 and self.alpha == 1 and len(self.output) == len(self.terms[0])

    def alone(self, terms: tuple[str, ...], output: str, conj: tuple[bool, ...], alpha: Any, dtype: Any) -> Product:
        """Another product with the same options, without C."""
        precision = UsualPrecision(self.precision) if isinstance(self.precision, str) else self.precision
        return Product(terms, output, conj, alpha, 0, dtype, "C", precision, self.limit, self.run)


def contracted(product: Product, operands: Sequence[Any], c: Any = None) -> Any:
    """D of a product, which PyTorch may differentiate and map over.

    Args:
        product: What to compute.
        operands: One or two tensors, without repeated labels; none broadcasts.
        c: What is added, of D's dtype, or None.
    """
    second = operands[1] if len(operands) == 2 else None
    library = torch_library()
    assert library is not None
    if library.modes.traces((*operands, c)):
        return operator_of(library, product.run)(operands[0], second, c, *arguments(product))
    tensors = (*operands, c)
    if not library.modes.wraps(tensors) and not library.modes.records(tensors):  # a backward that nobody records
        return product.run(product, operands, c)
    if library.functions is None:
        library.functions = _functions(library.module)
    plain, transformed = library.functions
    function = transformed if library.modes.transforms() else plain
    return function.apply(product, operands[0], second, c)


def arguments(product: Product) -> tuple[Any, ...]:
    """What the operator `gett::contract` takes behind its tensors."""
    precision, usual = spell_precision(product.precision)
    return (
        product.subscripts, list(product.conj), product.alpha, product.beta, product.dtype, product.order, precision,
        usual, product.limit,
    )  # fmt: skip


def operator_of(library: TorchLibrary, run: Callable[[Product, Sequence[Any], Any], Any]) -> Any:
    """The operator `gett::contract`; `run` computes it, and that of the first call is kept."""
    if library.operator is not None:
        return library.operator

    def product_of(*described: Any) -> Product:
        return described_product(run, *described)

    def compute(a: Any, b: Any, c: Any, *rest: Any) -> Any:
        return run(product_of(*rest), (a,) if b is None else (a, b), c)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        _save(ctx, product_of(*inputs[3:]), *inputs[:3])

    def backward(ctx: Any, gradient: Any) -> Any:
        return (*_gradients(ctx, gradient, ctx.needs_input_grad[:3]), *[None] * 9)

    def mapped(info: Any, dims: Any, a: Any, b: Any, c: Any, *rest: Any) -> Any:
        return _mapped(product_of(*rest), [a] if b is None else [a, b], c, dims[:2], dims[2]), 0

    library.operator = define(library.module, compute, backward, setup, mapped, LAUNCHER)
    return library.operator


def described_product(
    run: Callable[[Product, Sequence[Any], Any], Any], subscripts: str, conj: Sequence[bool], alpha: Any, beta: Any,
    dtype: Any, order: str, precision: str | None, usual: bool, limit: int,
) -> Product:  # fmt: skip
    """The product that `arguments` describes."""
    left, _, output = subscripts.partition("->")
    asked = UsualPrecision(precision) if usual and precision is not None else precision
    return Product(tuple(left.split(",")), output, tuple(conj), alpha, beta, dtype, order, asked, limit, run)


def _functions(module: Any) -> tuple[Any, Any]:
    """The autograd functions of a product: without transformations of `torch.func`, and within them.

    PyTorch binds the arguments of the second one by name at each call, which takes longer than all else here.
    Classes are made once PyTorch is there.
    """

    class Contraction(module.autograd.Function):  # type: ignore[misc]
        """`contracted(product, (a, b), c)`."""

        @staticmethod
        def forward(ctx: Any, product: Product, a: Any, b: Any, c: Any) -> Any:
            found = product.run(product, (a,) if b is None else (a, b), c)
            keep(ctx, (product, a, b, c), found)
            return found

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return None, *_gradients(ctx, gradient, ctx.needs_input_grad[1:])

        @staticmethod
        def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
            operands = [x for x in ctx.saved_tensors if x is not None]
            return _tangent(ctx.product, operands, tangents[: len(operands)], tangents[2], ctx.shape)

        @staticmethod
        def vmap(info: Any, dims: Any, product: Product, a: Any, b: Any, c: Any) -> Any:
            operands = [a] if b is None else [a, b]
            return _mapped(product, operands, c, dims[1:3], dims[3]), 0

    class TransformedContraction(Contraction):
        """The same within transformations."""

        @staticmethod
        def forward(product: Product, a: Any, b: Any, c: Any) -> Any:  # type: ignore[override]
            return product.run(product, (a,) if b is None else (a, b), c)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, inputs, output)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        product, a, b, c = inputs
        ctx.set_materialize_grads(False)
        ctx.shape = output.shape
        _save(ctx, product, a, b, c)
        ctx.save_for_forward(a, b)

    return Contraction, TransformedContraction


def _save(ctx: Any, product: Product, a: Any, b: Any, c: Any) -> None:
    """Keep what derivatives read: the operands, never the result."""
    ctx.product, ctx.c_shape = product, None if c is None else c.shape
    ctx.save_for_backward(a, b)


def _gradients(ctx: Any, gradient: Any, needs: Sequence[bool]) -> list[Any]:
    """The gradients of A, B and C, None for one that nobody needs."""
    found: list[Any] = [None, None, None]
    if gradient is None:
        return found
    operands = [x for x in ctx.saved_tensors if x is not None]
    for i in range(len(operands)):
        if needs[i]:
            found[i] = operand_gradient(ctx.product, operands, i, gradient)
    if needs[2]:
        found[2] = _addend_gradient(ctx.product, ctx.c_shape, gradient)
    return found


class Gradient(NamedTuple):
    """The gradient of an operand: a product of D's gradient and the other operand, and what is done to its result.

    Attributes:
        product: Its labels are those of the operand that are not its alone.
        real: Whether the real part is the gradient.
        dtype: PyTorch's of the operand.
        alone: Axes of labels that the operand alone has. Along them the gradient is a view of stride 0.
    """

    product: Product
    real: bool
    dtype: Any
    alone: tuple[int, ...]

    def finish(self, found: Any, shape: Sequence[int]) -> Any:
        """The gradient of an operand of a shape, of what the product gives."""
        if self.real:
            found = found.real
        if found.dtype is not self.dtype:
            found = found.to(self.dtype)
        for axis in self.alone:
            found = found.unsqueeze(axis)
        return found.expand(shape) if self.alone else found

    @property
    def is_finished(self) -> bool:
        """Whether the product's result is the gradient."""
        return not (self.real or self.alone) and self.product.dtype is self.dtype


def operand_gradient(product: Product, operands: Sequence[Any], i: int, gradient: Any) -> Any:
    """The gradient of operand `i`: of D's gradient and the other operand's conjugate."""
    others = [x for n, x in enumerate(operands) if n != i]
    form = gradient_form(product, i, operands[i].dtype, (gradient.dtype, *[x.dtype for x in others]))
    return form.finish(contracted_or_view(form.product, [gradient, *others]), operands[i].shape)


@lru_cache(maxsize=4096)
def gradient_form(product: Product, i: int, dtype: Any, dtypes: tuple[Any, ...]) -> Gradient:
    """The gradient of operand `i`, which has a dtype, of D's gradient and the other operand with these dtypes."""
    terms, kept = gradient_terms(product.terms, product.output, i)
    flags = gradient_flags(product.conj, i, hermitian=True)
    alpha = gradient_factor(product.alpha, product.conj[i], hermitian=True)
    wanted = product.alone(terms, kept, flags, alpha, reduce(_module().promote_types, dtypes))
    alone = tuple(axis for axis, label in enumerate(product.terms[i]) if label not in kept)
    return Gradient(wanted, wanted.dtype.is_complex and not dtype.is_complex, dtype, alone)


def _addend_gradient(product: Product, shape: Sequence[int], gradient: Any) -> Any:
    """The gradient of C: D's gradient, summed over the axes along which C broadcasts."""
    labels = product.output[len(product.output) - len(shape) :]
    given = gradient.shape[len(product.output) - len(shape) :]
    kept = "".join(x for x, n, m in zip(labels, shape, given, strict=True) if n == m)
    found = product.alone(
        (product.output,), kept, (False,), gradient_factor(product.beta, False, hermitian=True), gradient.dtype
    )
    return contracted_or_view(found, [gradient]).reshape(shape)


def _tangent(product: Product, operands: Sequence[Any], tangents: Sequence[Any], added: Any, shape: Any) -> Any:
    """The tangent of D: a product for each operand that has one, each added to the sum of those before."""
    total = added
    beta = product.beta
    for i, tangent in enumerate(tangents):
        if tangent is None:
            continue
        factors = [tangent if n == i else x for n, x in enumerate(operands)]
        total = contracted(replace(product, beta=0 if total is None else beta), factors, total)
        beta = 1
    return (added * beta).expand(shape) if total is added and added is not None else total


def _mapped(product: Product, operands: Sequence[Any], c: Any, dims: Sequence[int | None], c_dim: int | None) -> Any:
    """D with the mapped axis first: the operands that are mapped over have one label more."""
    if c is not None and all(d is None for d in dims[: len(operands)]):
        added = c.movedim(c_dim, 0) * product.beta
        plain = contracted(replace(product, beta=0), operands)
        return plain + added.reshape(added.shape[0], *[1] * (plain.ndim + 1 - added.ndim), *added.shape[1:])
    terms, output = mapped_terms(product.terms, product.output, dims[: len(operands)])
    if c is not None and c_dim is not None:
        c = c.movedim(c_dim, 0)
        c = c.reshape(c.shape[0], *[1] * (len(product.output) + 1 - c.ndim), *c.shape[1:])
    return contracted(replace(product, terms=terms, output=output), operands, c)


def contracted_or_view(product: Product, operands: Sequence[Any]) -> Any:
    """D of a product; a view where one tensor is permuted and no more."""
    if not product.is_view:
        return contracted(product, operands)
    found = operands[0].permute([product.terms[0].index(x) for x in product.output])
    return found.conj() if product.conj[0] else found


def _module() -> Any:
    library = torch_library()
    assert library is not None
    return library.module
