"""What array libraries have beside contractions, where this package is the backend: `autoray.do(..., like="gett")`.

autoray, below quimb and cotengra, looks for each function that it is asked for in the module that a backend's name
names. Contractions are this package's; the rest is done by the arrays' own library, so that these are no public names.
Owns which functions there are, and whose they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from gett.api.einsum import einsum
from gett.arrays.exported import as_numpy
from gett.arrays.interop import SCALARS
from gett.errors import OptionError

_THEIRS = ("abs", "conj", "log10", "max", "multiply", "reshape", "stack", "sum")
_MODULES = {"jax": "jax.numpy", "jaxlib": "jax.numpy"}  # where a library has them, if not under its own name


def find_function(name: str) -> Callable[..., Any] | None:
    """The function of a name, None if there is none."""
    if name in _THEIRS:
        return lambda *args, **options: _call(name, *args, **options)
    return _FUNCTIONS.get(name)


def _call(name: str, first: Any, *args: Any, **options: Any) -> Any:
    """A function of the library of its first argument, or of the first array in a list of such."""
    array = first[0] if isinstance(first, (list, tuple)) and first else first
    library = type(array).__module__.partition(".")[0]
    known = library in sys.modules and library in ("torch", "cupy", *_MODULES)
    module = import_module(_MODULES.get(library, library)) if known else np
    return getattr(module, name)(first, *args, **options)


def _array(x: Any) -> Any:
    """An array itself; a NumPy array of what is none."""
    library = type(x).__module__.partition(".")[0]
    return x if library in ("torch", "cupy", *_MODULES) and not isinstance(x, SCALARS) else as_numpy(x, "the argument")


def _matmul(a: Any, b: Any) -> Any:
    """The product of matrices, or of stacks of them that broadcast, or of vectors with them."""
    a, b = _array(a), _array(b)
    if not a.ndim or not b.ndim:
        raise OptionError(f"matmul takes arrays of one axis at least, not of {a.ndim} and {b.ndim}")
    rows, columns = "i" * (a.ndim > 1), "j" * (b.ndim > 1)
    left, right = ("..." if x.ndim > 2 else "" for x in (a, b))
    batch = "..." if left or right else ""
    return einsum(f"{left}{rows}k,{right}k{columns}->{batch}{rows}{columns}", a, b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {"array": _array, "asarray": _array, "matmul": _matmul}
