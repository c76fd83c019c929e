"""Drawn contractions: values, gradients and tangents of `gett.jax` are those of `jnp.einsum`, to the last bit.

Operands, cotangents and tangents are small integers, so every sum is exact in float64 and complex128.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.sampling import slow_but

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
gj = pytest.importorskip("gett.jax")
pytestmark = pytest.mark.usefixtures("wide_jax")

COUNT, TOGETHER = 1000, 20
LABELS = "abcde"


@dataclass(frozen=True)
class Drawn:
    """A contraction: subscripts, shapes, dtypes, which operands are conjugated, and whether an axis broadcasts."""

    subscripts: str
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    conj: tuple[bool, ...]
    broadcasts: bool


def draw(seed: int) -> Drawn:
    """The contraction of a seed."""
    r = random.Random(seed)
    extents = {x: r.choice((0, 1, 2, 2, 3, 3, 4)) for x in LABELS}
    batch = [r.choice((0, 1, 2, 2, 3)) for _ in range(r.choice((0, 0, 0, 1, 2)))]  # of the ellipsis
    terms, shapes, broadcasts = [], [], False
    for _ in range(r.choice((1, 2, 2, 2, 3, 4))):
        labels = r.choices(LABELS, k=r.randint(0, 3))
        own = {x: 1 if r.random() < 0.1 else extents[x] for x in LABELS}
        part = [1 if r.random() < 0.3 else n for n in batch[len(batch) - r.randint(0, len(batch)) :]]
        broadcasts |= any(own[x] != extents[x] for x in labels) or part != batch
        at = r.randint(0, len(labels))
        terms.append("".join(labels[:at]) + ("..." if batch else "") + "".join(labels[at:]))
        shapes.append((*(own[x] for x in labels[:at]), *part, *(own[x] for x in labels[at:])))
    present = sorted({x for term in terms for x in term if x != "."})
    output = r.sample(present, r.randint(0, len(present)))
    if batch:
        output.insert(r.randint(0, len(output)), "...")
    subscripts = ",".join(terms) + ("" if r.random() < 0.15 else "->" + "".join(output))
    dtypes = [r.choice(("float64", "complex128", "complex128")) for _ in terms]
    return Drawn(subscripts, shapes, dtypes, tuple(r.random() < 0.5 for _ in terms), broadcasts)


def test_drawn_contractions_have_what_may_go_wrong() -> None:
    """Of all of them, and of those that are quick tests, so many have it."""
    kinds: dict[str, Callable[[Drawn], bool]] = {
        "conj": lambda x: any(flag and t == "complex128" for flag, t in zip(x.conj, x.dtypes, strict=True)),
        "real and complex": lambda x: len({*x.dtypes}) == 2,
        "diagonal": lambda x: any(len({*t} - {"."}) < len(t.replace(".", "")) for t in operands_of(x)),
        "ellipsis": lambda x: "..." in x.subscripts,
        "broadcasts": lambda x: x.broadcasts,
        "extent 0": lambda x: any(0 in s for s in x.shapes),
        "extent 1": lambda x: any(1 in s for s in x.shapes),
        "rank 0": lambda x: () in x.shapes,
        "implicit output": lambda x: "->" not in x.subscripts,
        "network": lambda x: len(x.shapes) > 2,
    }
    for count, least in ((COUNT, 100), (TOGETHER, 1)):
        found = [draw(seed) for seed in range(count)]
        assert {name: sum(map(kind, found)) >= least for name, kind in kinds.items()} == dict.fromkeys(kinds, True)


def operands_of(x: Drawn) -> list[str]:
    return x.subscripts.partition("->")[0].split(",")


@pytest.mark.parametrize("first", slow_but(range(0, COUNT, TOGETHER), quick=[0]))
def test_derivatives_of_drawn_contractions_are_jaxs(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        x = draw(seed)
        generator = np.random.default_rng(seed)

        def own(*operands: Any, x: Drawn = x) -> Any:
            return gj.einsum(x.subscripts, *operands, conj=x.conj)

        def reference(*operands: Any, x: Drawn = x) -> Any:
            return jnp.einsum(
                x.subscripts, *(jnp.conj(y) if flag else y for y, flag in zip(operands, x.conj, strict=True))
            )

        operands, tangents = (
            [integers(generator, shape, dtype) for shape, dtype in zip(x.shapes, x.dtypes, strict=True)] for _ in "ab"
        )
        d = jax.eval_shape(reference, *operands)
        weight = integers(generator, d.shape, d.dtype.name)
        results = [jax.jit(everything, static_argnums=(0, 1))(f, seed % 4 == 0, operands, tangents, weight)
                   for f in (own, reference)]  # fmt: skip
        for found, wanted in zip(*map(jax.tree.leaves, results), strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), x
            np.testing.assert_array_equal(found, wanted, err_msg=str(x))


def integers(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    x = generator.integers(-2, 3, shape) + (1j * generator.integers(-2, 3, shape) if dtype == "complex128" else 0)
    return jnp.asarray(x, dtype)


def everything(f: Callable[..., Any], second: bool, operands: Any, tangents: Any, weight: Any) -> Any:
    """The value, its tangent and its gradients; of the second order, gradients and tangents of these."""

    def gradients(weight: Any, *x: Any) -> Any:
        return jax.vjp(f, *x)[1](weight)

    found = [jax.jvp(f, tuple(operands), tuple(tangents)), gradients(weight, *operands)]
    if second:
        point = (weight, *operands)
        found += [jax.jvp(gradients, point, (weight, *tangents)), jax.vjp(gradients, *point)[1](tuple(tangents))]
    return found
