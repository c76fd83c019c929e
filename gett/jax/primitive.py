"""JAX's primitive for a product of two arrays, whose derivatives and batches are products again.

Owns the rules of the primitive: abstract values, tangents, transposes, batches. It is bilinear in the two operands, and
an array may be added. How a product is computed is told by the lowerings that are registered for `PRODUCT`. Knows
labels; knows neither plans nor paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching
from jax.sharding import NamedSharding, PartitionSpec

from gett.arrays.derivatives import gradient_factor, gradient_flags, gradient_terms, mapped_terms
from gett.ir.tensors import UsualPrecision, factor_dtype, own_dtype, resolve_precision

PRODUCT = Primitive("gett_product")


@dataclass(frozen=True, slots=True)
class Product:
    """`alpha * op(A) op(B) + beta * C` without arrays; `op` conjugates or does nothing.

    Attributes:
        terms: Labels of A and of B, each label once in a term.
        output: Labels of D, each of which a term has.
        conj: For each operand whether it is conjugated.
        alpha: Factor of the product.
        beta: Factor of C, whose axes are D's last ones and broadcast.
        dtype: JAX's dtype of D, and of C.
        precision: How products are formed.
        limit: Most bytes of workspace.
    """

    terms: tuple[str, ...]
    output: str
    conj: tuple[bool, ...]
    alpha: Any
    beta: Any
    dtype: Any
    precision: Any
    limit: int

    @property
    def subscripts(self) -> str:
        """The explicit form, e.g. `"ij,jk->ik"`."""
        return f"{','.join(self.terms)}->{self.output}"

    def alone(self, terms: tuple[str, ...], output: str, conj: tuple[bool, ...], alpha: Any, dtype: Any) -> Product:
        """Another product with the same options, without C."""
        precision = UsualPrecision(self.precision) if isinstance(self.precision, str) else self.precision
        return Product(terms, output, conj, alpha, 0, jnp.dtype(dtype), precision, self.limit)

    def shape(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """Extents of D."""
        extents: dict[str, int] = {}
        for term, x in zip(self.terms, operands, strict=False):
            extents.update(zip(term, x.shape, strict=True))
        return tuple(extents[x] for x in self.output)


def jax_dtype(dtype: Any) -> Any:
    """JAX's dtype for one of planning's."""
    return jnp.dtype(dtype.name)


def contracted(product: Product, operands: Sequence[Any], c: Any = None) -> Any:
    """D of a product, in which JAX's transformations may be.

    Args:
        product: What to compute.
        operands: One or two arrays without repeated labels, which do not broadcast.
        c: What is added, of D's dtype, or None.
    """
    shape = product.shape(operands)
    if len(operands) == 1:
        return _plus(product, _summed(product, operands[0]), c)
    if 0 in shape or any(0 in x.shape for x in operands):  # XLA makes no calls for empty buffers
        return _plus(product, jnp.zeros(shape, product.dtype), c)
    a, b = _alike(*_read(product, operands))
    return PRODUCT.bind(a, b, product=product) if c is None else PRODUCT.bind(*_alike(a, b, c), product=product)


def _plus(product: Product, d: Any, c: Any) -> Any:
    """The sum of a result and `beta * c`."""
    return d if c is None else d + _scaled(c, product.beta)


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor.__class__ is int and factor == 1 else x * jnp.asarray(factor, x.dtype)


def _summed(product: Product, x: Any) -> Any:
    """A product of one operand, by JAX: a sum and a permutation, which XLA joins with what is around them."""
    (term,), dtype = product.terms, product.dtype
    x = x.astype(factor_dtype(own_dtype(x.dtype), dtype) if dtype.kind == "c" else dtype)
    axes = tuple(i for i, label in enumerate(term) if label not in product.output)
    if axes:
        x = jnp.any(x, axes) if dtype.kind == "b" else jnp.sum(x, axes, dtype=x.dtype)
    left = [label for label in term if label in product.output]
    x = lax.transpose(x, [left.index(label) for label in product.output]).astype(dtype)
    return _scaled(jnp.conj(x) if product.conj[0] else x, product.alpha)


def _read(product: Product, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The operands in dtypes that a kernel reads as they are; XLA converts the others."""
    dtype = own_dtype(product.dtype)
    have = [own_dtype(x.dtype) for x in operands]
    same = have[0] is have[1] or have[0] == have[1]
    short = same and have[0].kind == "f" and have[0].itemsize == 2 and product.dtype == jnp.float32
    if short and resolve_precision(product.precision, dtype) != "ieee":
        return tuple(operands)
    return tuple(x.astype(jax_dtype(factor_dtype(t, dtype))) for x, t in zip(operands, have, strict=True))


def _alike(*arrays: Any) -> tuple[Any, ...]:
    """The arrays, of which those that `shard_map` knows to be equal on all devices are marked as the others."""
    varying = [_varying(jax.typeof(x)) for x in arrays]
    every = frozenset().union(*varying)
    return tuple(x if have == every else _vary(x, tuple(every - have)) for x, have in zip(arrays, varying, strict=True))


def _varying(aval: Any) -> frozenset[Any]:
    """The axes of a mesh along which devices have different numbers, within `shard_map`."""
    manual = getattr(aval, "mat", None)  # JAX called it `vma` before
    return frozenset(getattr(aval, "vma", ()) if manual is None else manual.varying)


def _vary(x: Any, axes: tuple[Any, ...]) -> Any:
    return lax.pcast(x, axes, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, axes)


# --- the rules


def _abstract(a: Any, b: Any, *c: Any, product: Product) -> Any:
    """Shape and dtype of D; within `shard_map`, the axes along which it varies too."""
    shape, mesh = product.shape((a, b)), a.sharding.mesh
    if mesh.empty:
        return jax.core.ShapedArray(shape, product.dtype)
    varying = {"manual_axis_type": a.mat} if hasattr(a, "mat") else {"vma": a.vma}
    placed = NamedSharding(mesh, PartitionSpec())
    return jax.core.ShapedArray(shape, product.dtype, sharding=placed, **varying)


def _tangent(primals: Sequence[Any], tangents: Sequence[Any], *, product: Product) -> tuple[Any, Any]:
    """D and its tangent: a product for each operand that has one, each added to the sum of those before."""
    operands, c = primals[:2], primals[2] if len(primals) == 3 else None
    d = contracted(product, operands, c)
    total, beta = None, product.beta
    if c is not None and not isinstance(tangents[2], ad.Zero):
        total = tangents[2]
    only_c = total is not None
    for i, tangent in enumerate(tangents[:2]):
        if isinstance(tangent, ad.Zero):
            continue
        factors = [tangent if n == i else x for n, x in enumerate(operands)]
        total = contracted(replace(product, beta=0 if total is None else beta), factors, total)
        beta, only_c = 1, False
    if only_c:
        total = jnp.broadcast_to(_scaled(total, beta), d.shape)
    return d, ad.Zero.from_primal_value(d) if total is None else total


def _transpose(gradient: Any, *primals: Any, product: Product) -> list[Any]:
    """Cotangents of what is linear: one operand, and C. JAX's have no conjugate."""
    found: list[Any] = [None] * len(primals)
    if isinstance(gradient, ad.Zero):
        return found
    for i, x in enumerate(primals):
        if ad.is_undefined_primal(x):
            y = _addend_cotangent(product, x.aval, gradient) if i == 2 else _cotangent(product, primals, i, gradient)
            found[i] = _placed_as(y, x.aval)
    return found


def _placed_as(x: Any, aval: Any) -> Any:
    """An array, sharded as another one where sharding is part of its type."""
    if jax.typeof(x).sharding == aval.sharding or aval.sharding.mesh.empty:
        return x
    return jax.sharding.reshard(x, aval.sharding)


def _cotangent(product: Product, primals: Sequence[Any], i: int, gradient: Any) -> Any:
    own, aval, other = product.terms[i], primals[i].aval, primals[1 - i]
    terms, kept = gradient_terms(product.terms, product.output, i)
    flags = gradient_flags(product.conj, i, hermitian=False)
    alpha = gradient_factor(product.alpha, product.conj[i], hermitian=False)
    dtype = jnp.promote_types(gradient.dtype, other.dtype)
    found = contracted(product.alone(terms, kept, flags, alpha, dtype), (gradient, other))
    if dtype.kind == "c" and aval.dtype.kind != "c":
        found = found.real
    axes = [axis for axis, label in enumerate(own) if label in kept]
    return lax.broadcast_in_dim(found.astype(aval.dtype), aval.shape, axes)


def _addend_cotangent(product: Product, aval: Any, gradient: Any) -> Any:
    """D's cotangent, summed over the axes along which C broadcasts."""
    before = gradient.ndim - len(aval.shape)
    spread = [n for n, (m, e) in enumerate(zip(aval.shape, gradient.shape[before:], strict=True)) if m != e]
    axes = (*range(before), *(before + n for n in spread))
    summed = jnp.sum(gradient, axes).reshape(aval.shape) if axes else gradient
    return _scaled(summed, product.beta).astype(aval.dtype)


def _batched(arrays: Sequence[Any], dims: Sequence[int | None], *, product: Product) -> tuple[Any, int]:
    """D with the mapped axis first: the operands that have it get one label more, and there is no loop."""
    operands = arrays[:2]
    c, c_dim = (arrays[2], dims[2]) if len(arrays) == 3 else (None, None)
    if c is not None and c_dim is not None:
        c = jnp.moveaxis(c, c_dim, 0)
        c = c.reshape(c.shape[0], *[1] * (len(product.output) + 1 - c.ndim), *c.shape[1:])
    if dims[0] is None and dims[1] is None:
        return contracted(replace(product, beta=0), operands) + _scaled(c, product.beta), 0
    terms, output = mapped_terms(product.terms, product.output, dims[:2])
    return contracted(replace(product, terms=terms, output=output), operands, c), 0


PRODUCT.def_abstract_eval(_abstract)
ad.primitive_jvps[PRODUCT] = _tangent
ad.primitive_transposes[PRODUCT] = _transpose
batching.primitive_batchers[PRODUCT] = _batched
