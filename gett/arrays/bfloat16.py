"""bfloat16 in the host's memory: computed in float32 on copies, each sum rounded once at the end.

Owns which arguments of a call become copies. NumPy has the dtype where the package ml_dtypes is loaded, as it is beside
JAX; PyTorch's CPU tensors have their own. Knows neither library's arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from gett.errors import DTypeError
from gett.ir.tensors import BFLOAT16, Casting, TensorSpec, parse_dtype, promote

FLOAT32 = np.dtype(np.float32)


def widened(
    things: Mapping[str, Any],
    specs: Mapping[str, TensorSpec],
    factors: Sequence[str],
    dtype: Any,
    casting: Casting,
    widen: Callable[[Any], Any],
) -> tuple[dict[str, Any], np.dtype[Any], Any] | None:
    """The arguments of a call with none of bfloat16 among them; None where there is none, and none is asked for.

    Args:
        things: The arguments by name: factors, `c`, `out`, and what an epilogue reads.
        specs: Their descriptions.
        factors: Names of the factors.
        dtype: What the caller asks for, or None.
        casting: NumPy's rule for conversions.
        widen: From an argument to its values, rounded to bfloat16, as a float32 copy.

    Returns:
        The arguments; the result's dtype, `BFLOAT16` where float32 stands for it; and, where `out` cannot be written
        directly, a NumPy array that stands for it, of the same shape: it checks and broadcasts as `out` does.

    Raises:
        DTypeError: As `promote`.
    """
    asked = None if dtype is None else parse_dtype(dtype)
    if asked is not BFLOAT16 and all(t.dtype is not BFLOAT16 for t in specs.values()):
        return None
    named = [("c", specs["c"])] if "c" in specs else []
    result = promote([specs[n] for n in factors], named, specs.get("out"), asked, casting)
    read = {*factors, "c"} if result is BFLOAT16 else set()
    found = {n: widen(x) if n != "out" and (n in read or specs[n].dtype is BFLOAT16) else x for n, x in things.items()}
    stand_in = None
    if "out" in specs and BFLOAT16 in (result, specs["out"].dtype):
        stand_in = found["out"] = np.empty(specs["out"].shape, FLOAT32 if result is BFLOAT16 else result)
    return found, result, stand_in


def computed(result: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype to compute in for a result's dtype."""
    return FLOAT32 if result is BFLOAT16 else result


def numpy_bfloat16() -> np.dtype[Any]:
    """NumPy's dtype of bfloat16.

    Raises:
        DTypeError: The package that adds it is not installed.
    """
    try:
        found: np.dtype[Any] = np.dtype(import_module("ml_dtypes").bfloat16)
    except ImportError as error:
        raise DTypeError("NumPy has no dtype bfloat16 unless the package ml_dtypes is installed") from error
    return found
