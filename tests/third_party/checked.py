"""gett's functions for other libraries' tests: each result is compared with NumPy's, element by element.

Many of those tests compare two ways through one library. Where gett does both, they would not see what it does wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gett
from tests.tolerances import BOUNDS, allowed_error

# NumPy's own, whoever replaces them later.
_THEIRS = {"einsum": np.einsum, "tensordot": np.tensordot, "transpose": np.transpose}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

COUNTS: Counter[str] = Counter()  # contractions, and of these those that NumPy did too


def checked(name: str) -> Callable[..., Any]:
    """gett's function of a name, which counts its calls and compares each result with NumPy's."""
    ours: Callable[..., Any] = getattr(gett, name)

    def function(*args: Any, **options: Any) -> Any:
        before = _reference(name, args, options)
        result = ours(*args, **options)
        COUNTS["contractions"] += 1
        if before is not None:
            COUNTS["compared"] += 1
            _compare(name, _host(result), *before)
        return result

    return function


def _reference(name: str, args: Sequence[Any], options: dict[str, Any]) -> tuple[Any, ...] | None:
    """NumPy's result, the same of absolute values, and the number of products in a sum; None where it has none."""
    theirs = _THEIRS[name]
    options = {key: value for key, value in options.items() if key in ("axes", "dtype", "casting")}
    try:
        tensors, put = _split(name, args)
        host = [_host(x) for x in tensors]
        if name == "transpose":
            return (theirs(*put(host), **options),)
        wanted = np.asarray(theirs(*put(host), **options))
        if wanted.dtype.name not in {dtype for dtype, _ in BOUNDS}:
            return (wanted,)
        depth = theirs(*put([np.ones(x.shape) for x in host]), **options).max(initial=1)
        return wanted, theirs(*put([np.abs(x) for x in host]), **options), depth
    except Exception:  # what NumPy refuses, and what has no values: gett's own errors are the tests' to judge
        return None


def _split(name: str, args: Sequence[Any]) -> tuple[Sequence[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The arrays of a call, and its arguments from such."""
    if name == "transpose":
        return args[:1], lambda x: [*x, *args[1:]]
    if name == "tensordot":
        return args[:2], lambda x: [*x, *args[2:]]
    if isinstance(args[0], str):
        return args[1:], lambda x: [_ascii(args[0]), *x]
    count = len(args) // 2
    rest = args[2 * count :]
    labels = args[1 : 2 * count : 2]
    return args[: 2 * count : 2], lambda x: [y for pair in zip(x, labels, strict=True) for y in pair] + [*rest]


def _ascii(subscripts: str) -> str:
    """The same subscripts in the labels that NumPy takes; implicit outputs keep the order of their labels."""
    labels = sorted({x for x in subscripts if x not in " ,.->"})
    if all(x in _LETTERS for x in labels):
        return subscripts
    return "".join(dict(zip(labels, sorted(_LETTERS), strict=False)).get(x, x) for x in subscripts)


def _host(x: Any) -> np.ndarray[Any, Any]:
    """The values of an array of any library."""
    if hasattr(x, "detach"):
        x = x.detach().resolve_conj().resolve_neg().cpu().numpy()
    elif hasattr(x, "get"):
        x = x.get()
    return np.asarray(x)


def _compare(name: str, found: np.ndarray[Any, Any], wanted: Any, magnitude: Any = None, depth: float = 1) -> None:
    assert found.shape == wanted.shape, f"{name}: shape {found.shape} instead of {wanted.shape}"
    assert found.dtype == wanted.dtype, f"{name}: dtype {found.dtype} instead of {wanted.dtype}"
    if magnitude is None:
        close = (
            np.isclose(*(x.astype(complex) for x in (found, wanted)), equal_nan=True)
            if name != "transpose"
            else ((found == wanted) | ((found != found) & (wanted != wanted)))
        )
    else:  # both results are rounded
        allowed = 2 * allowed_error(wanted, magnitude, int(depth), wanted.dtype.name)
        close = (np.abs(found - wanted) <= allowed) | (found == wanted) | ~np.isfinite(magnitude)
    assert np.all(close), f"{name}: {found} instead of {wanted}"
