"""JAX arrays: what is one, and how a result becomes one. JAX is used only where one of its arrays was passed.

Knows neither subscripts nor plans. The way in is `gett.arrays.interop`'s: `numpy.asarray` for arrays in the host's
memory, DLPack for those on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gett.errors import DTypeError, MissingPackageError, OutputError


def is_jax(x: Any) -> bool:
    """Whether an object is JAX's: an array, or what stands for one while JAX traces a function."""
    return type(x).__module__.partition(".")[0] in ("jax", "jaxlib")


def check_jax(x: Any, name: str) -> None:
    """Refuse what no call can read or write.

    Raises:
        DTypeError: It is a tracer, which holds no values.
        OutputError: It is to be written.
    """
    if any(cls.__name__ == "Tracer" for cls in type(x).__mro__):
        raise DTypeError(
            f"{name} is a JAX tracer ({type(x).__name__}), which holds no values: within jit, grad and vmap, call "
            "gett.jax.einsum or gett.jax.contract (import gett.jax)"
        )
    if name == "out":
        raise OutputError("out is a JAX array, which cannot be written: take the result instead")


def to_jax() -> Callable[[Any], Any]:
    """A function from a NumPy or CuPy array to the JAX array of its values.

    Raises:
        MissingPackageError: `jax.numpy` cannot be imported.
    """
    try:
        import jax.numpy as jnp
    except ImportError as error:
        raise MissingPackageError(
            f"the operands are JAX arrays, but jax.numpy, which makes one of the result, cannot be imported ({error}); "
            "pass numpy.asarray of them to get NumPy's"
        ) from error

    def convert(array: Any) -> Any:
        return jnp.asarray(array) if isinstance(array, (np.ndarray, np.generic)) else jnp.from_dlpack(array)

    return convert
