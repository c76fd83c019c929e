"""What must hold for `gett.jax` on XLA's buffers, in a process of its own, since JAX takes memory for itself."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gett.jax

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "int32")
SUBSCRIPTS = (
    ("ij,jk->ik", {"i": 72, "j": 96, "k": 64}),
    ("aebf,dfce->abcd", {"a": 9, "b": 16, "c": 8, "d": 24, "e": 12, "f": 10}),
    ("ki,kj->ij", {"k": 3000, "i": 16, "j": 24}),  # split-K: takes a workspace
    ("ai,bi->ba", {"a": 100, "b": 70, "i": 1}),
)


def integers(labels: str, extents: dict[str, int], dtype: str, seed: int) -> Any:
    """Small integers, whose sums every dtype holds or rounds once."""
    generator = np.random.default_rng(seed)
    shape = [extents[x] for x in labels]
    x = generator.integers(-2, 3, shape)
    return x + 1j * generator.integers(-2, 3, shape) if dtype == "complex64" else x.astype("float64")


def check_products() -> None:
    """Values, gradients and batches, each compiled and called twice: a CUDA graph is recorded and replayed."""
    jax.config.update("jax_enable_x64", True)
    for subscripts, extents in SUBSCRIPTS:
        terms = subscripts.partition("->")[0].split(",")
        for dtype in DTYPES:
            exact = [integers(t, extents, dtype, i) for i, t in enumerate(terms)]
            operands = [jnp.asarray(x, dtype) for x in exact]
            wanted = np.einsum(subscripts, *exact)

            def call(*x: Any, subscripts: str = subscripts) -> Any:
                return gett.jax.contract(subscripts, *x, alpha=2)

            compiled = jax.jit(call)
            for _ in range(3):
                close(compiled(*operands), 2 * wanted, dtype)
            close(compiled(*(x + 0 for x in operands)), 2 * wanted, dtype)  # other buffers
            close(call(*operands), 2 * wanted, dtype)
            stacked = [jnp.stack([x, -x], 1) for x in operands]
            close(jax.jit(jax.vmap(call, 1))(*stacked)[1], 2 * wanted, dtype)
            if dtype == "int32":
                continue
            gradients = jax.jit(jax.grad(lambda *x, f=call: jnp.sum(f(*x).real.astype("float64")), (0, 1)))
            reference = jax.grad(lambda *x, s=subscripts: 2 * jnp.sum(jnp.einsum(s, *x).real), (0, 1))
            for _ in range(2):
                for found, right in zip(gradients(*operands), reference(*map(jnp.asarray, exact)), strict=True):
                    close(found, right, dtype)
    print("all", "right")


def close(found: Any, wanted: Any, dtype: str) -> None:
    """Equal but for one rounding of a result."""
    assert found.dtype == jnp.dtype(dtype)
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, 2.0**-20)
    np.testing.assert_allclose(
        np.asarray(found, complex), np.asarray(wanted, complex), rtol=unit, atol=unit * math.sqrt(8)
    )
