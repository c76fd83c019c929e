"""Labels and conjugations of a product's derivatives, which are products again: the algebra that libraries share.

Owns neither tensors nor dtypes. A product `alpha * op(A) op(B)` has each label once in a term; `op` conjugates or does
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gett.ir.subscripts import symbols


def gradient_terms(terms: Sequence[str], output: str, i: int) -> tuple[tuple[str, ...], str]:
    """The product that gives the gradient of operand `i`, of the result's gradient and the other operand.

    Returns:
        The terms, the result's gradient first, and the labels of the operand that these have. Along its other labels
        the gradient is constant.
    """
    others = tuple(t for n, t in enumerate(terms) if n != i)
    known = {*output}.union(*others)
    return (output, *others), "".join(x for x in terms[i] if x in known)


def gradient_flags(conj: Sequence[bool], i: int, *, hermitian: bool) -> tuple[bool, ...]:
    """Which factors of `gradient_terms` are conjugated.

    Args:
        conj: For each operand of the product whether it is.
        i: Of which operand the gradient is.
        hermitian: Whether a gradient is the conjugate of the derivative, as in PyTorch; in JAX it is not.
    """
    return (conj[i], *((f != conj[i]) is not hermitian for n, f in enumerate(conj) if n != i))


def gradient_factor(factor: complex, conj: bool, *, hermitian: bool) -> complex:
    """The factor of an operand's gradient, which is `alpha` or its conjugate.

    Args:
        factor: Alpha.
        conj: Whether the operand is conjugated.
        hermitian: As for `gradient_flags`.
    """
    return factor.conjugate() if isinstance(factor, complex) and conj is not hermitian else factor


def mapped_terms(terms: Sequence[str], output: str, dims: Sequence[int | None]) -> tuple[tuple[str, ...], str]:
    """The product over a mapped axis: the terms that have it get one label more, which is the output's first.

    Args:
        terms: Of the product.
        output: Its output.
        dims: For each term the place of the axis, or None.
    """
    label = next(x for x in symbols() if x not in output and not any(x in t for t in terms))
    found = tuple(t if d is None else t[:d] + label + t[d:] for t, d in zip(terms, dims, strict=True))
    return found, label + output
