"""Contractions that JAX traces, differentiates, batches and compiles: `gett.jax.einsum` and `gett.jax.contract`.

Importing this package imports JAX; `import gett` does not.
"""

from __future__ import annotations

from importlib.util import find_spec

from gett.errors import MissingPackageError

if find_spec("jax") is None:
    raise MissingPackageError("gett.jax needs JAX, which is not installed: pip install jax")

from gett.jax.functions import contract, einsum

__all__ = ["contract", "einsum"]
