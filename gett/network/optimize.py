"""What `optimize=` and `memory_limit=` ask for: an algorithm of opt_einsum or a path, and a limit on intermediates.

Checks them; finds no path.

Knows neither modes nor extents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from gett.env import parse_size
from gett.errors import OptionError, PathError

AUTOTUNE = "autotune"  # asks for measured kernels; the path is found as by default
_WITHOUT_LOOKUP = ("auto", "greedy", "optimal")


@dataclass(frozen=True, slots=True)
class Bytes:
    """A limit that was given as a size: bytes, where a number counts elements."""

    size: int


@dataclass(frozen=True, slots=True)
class Limited:
    """What is asked for with a limit on intermediates.

    Attributes:
        method: As `freeze_optimize` gives it: a name, a path, an optimiser, or False.
        limit: Most elements of an intermediate, `"max_input"`, or bytes.
    """

    method: Any
    limit: int | str | Bytes


@dataclass(frozen=True, slots=True)
class SlicedPath:
    """A path and the labels that slices take one by one, as a sliced ContractionTree of cotengra has them.

    Attributes:
        path: For each contraction the positions of the tensors that it takes.
        axes: For each sliced label an operand that has it, and the axis.
    """

    path: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[int, int], ...]


def with_limit(optimize: Any, limit: Any) -> Any:
    """`optimize=` with the limit of `memory_limit=`; None, -1 and infinity are no limit.

    Raises:
        OptionError: The limit means nothing, or `optimize=` has one already or measures kernels.
    """
    most = _limit(limit, "memory_limit")
    found = freeze_optimize(optimize)
    if most is None:
        return found
    check_one_limit(found, limit)
    return Limited(check_optimize(found)[0], most)


def check_one_limit(optimize: Any, limit: Any) -> None:
    """Refuse a `memory_limit=` beside an `optimize=` that has one already or measures kernels.

    Raises:
        OptionError: It does.
    """
    if isinstance(optimize, Limited):
        raise OptionError(f"memory_limit={limit!r}, but optimize= limits intermediates already, to {optimize.limit}")
    if asks_autotune(optimize):
        raise OptionError("memory_limit limits a path, and optimize='autotune' asks for none: give one of them")


def asks_autotune(optimize: Any) -> bool:
    """Whether `optimize=` asks for measured kernels; arrays, which it may have, compare element by element."""
    return isinstance(optimize, str) and optimize == AUTOTUNE


def asks_slices(optimize: Any) -> bool:
    """Whether `optimize=` is an optimiser of cotengra's that searches slices too."""
    if not callable(getattr(optimize, "search", None)):
        return False
    given = getattr(optimize, "_suboptimizer_kwargs", {})  # of optimisers that keep what they found
    return any(getattr(optimize, x, None) or given.get(x) for x in ("slicing_opts", "slicing_reconf_opts"))


def in_elements(optimize: Any, itemsize: int) -> Any:
    """`optimize=` as it stands in a key, with a limit in bytes as one in elements of so many bytes."""
    if isinstance(optimize, Limited) and isinstance(optimize.limit, Bytes):
        return replace(optimize, limit=max(1, optimize.limit.size // itemsize))
    return optimize


def freeze_optimize(optimize: Any) -> Any:
    """`optimize=` as it stands in a key, where 1 would equal True: checked, with paths as tuples and limits apart.

    Raises:
        OptionError: As `check_optimize`, which looks at names later.
    """
    if optimize is True or optimize is False or optimize is None or isinstance(optimize, (str, Limited, SlicedPath)):
        return optimize
    method, limit = check_optimize(optimize)
    return method if limit is None else Limited(method, limit)


def check_optimize(optimize: Any, count: int | None = None) -> tuple[Any, int | str | Bytes | None]:
    """What opt_einsum is asked for: an algorithm or a path, and a limit on intermediates.

    False and None ask for no optimisation: pairs from left to right, returned as False.

    Args:
        optimize: What `gett.einsum` takes.
        count: How many operands a path must contract; None where that is not known yet.

    Raises:
        OptionError: The value means nothing to NumPy or opt_einsum, or its path does not fit the operands.
        PathError: Its path leaves tensors uncontracted, is nested, or has slices.
    """
    if isinstance(optimize, SlicedPath):
        if count is not None:
            _check_path(optimize.path, count)
        return optimize, None
    if isinstance(optimize, Limited):
        return check_optimize(optimize.method, count)[0], optimize.limit
    if optimize is None or optimize is False:
        return False, None
    if optimize is True:
        return "auto", None
    if isinstance(optimize, str):
        if optimize == AUTOTUNE:
            return "auto", None
        if optimize not in _WITHOUT_LOOKUP:
            from opt_einsum.paths import get_path_fn

            try:
                get_path_fn(optimize)
            except KeyError as error:
                raise OptionError(f"optimize={optimize!r} is no path algorithm of opt_einsum: {error}") from error
        return optimize, None
    if isinstance(optimize, (tuple, list)):
        parts = list(optimize)
        if len(parts) == 2 and isinstance(parts[0], str) and parts[0] not in ("einsum_path", AUTOTUNE):
            return check_optimize(parts[0])[0], _limit(parts[1], "the limit of optimize")
        if parts and isinstance(parts[0], str) and parts[0] == "einsum_path":
            parts = parts[1:]
        if all(isinstance(p, (tuple, list)) and p and all(isinstance(i, Integral) for i in p) for p in parts):
            path = tuple(tuple(map(int, p)) for p in parts)
            if count is not None:
                _check_path(path, count)
            return path, None
        if _is_nested(parts):
            raise PathError(
                f"optimize={optimize!r} is a nested path; give the positions of each step, such as [(0, 1), (0, 1)]: "
                "what is contracted goes, and its result comes last"
            )
    elif callable(getattr(optimize, "get_path", None)) and hasattr(optimize, "sliced_inds"):  # cotengra's tree
        path = check_optimize(list(optimize.get_path()), count)[0]
        return (_sliced_path(optimize, path) if optimize.sliced_inds else path), None
    elif callable(optimize) or callable(getattr(optimize, "search", None)):
        if count is not None and asks_slices(optimize):
            raise PathError(
                f"optimize={type(optimize).__name__} searches slices while a path is asked for: einsum, contract and "
                "plan run slices, but not within derivatives"
            )
        return optimize, None
    raise OptionError(
        f"optimize={optimize!r}; it must be True, False, a name such as 'greedy', a path such as [(0, 1), (0, 1)], "
        "a name with a limit on intermediates such as ('greedy', 1000000) or ('greedy', '1GiB'), an optimiser of "
        "opt_einsum or cotengra, or a ContractionTree of cotengra"
    )


def _is_nested(parts: Sequence[Any]) -> bool:
    """Whether a path pairs pairs, as in `((0, 1), 2)` or `(((0, 1), 2), (3, 4))`."""
    groups = [p for p in parts if isinstance(p, (tuple, list))]
    known = all(isinstance(x, (tuple, list, Integral)) for p in groups for x in p)
    deep = any(isinstance(x, (tuple, list)) for p in groups for x in p)
    mixed = bool(groups) and len(groups) < len(parts) and all(isinstance(p, (tuple, list, Integral)) for p in parts)
    return known and (deep or mixed)


def _sliced_path(tree: Any, path: tuple[tuple[int, ...], ...]) -> SlicedPath:
    """The slices of cotengra's tree, by where operands have their labels.

    Raises:
        PathError: A label is fixed at one index, which is another contraction.
    """
    axes = []
    for label, info in tree.sliced_inds.items():
        if getattr(info, "project", None) is not None:
            raise PathError(f"optimize={type(tree).__name__} fixes {label!r} at one index: index the operands instead")
        axes.append(next((i, term.index(label)) for i, term in enumerate(map(list, tree.inputs)) if label in term))
    return SlicedPath(path, tuple(axes))


def _limit(value: Any, where: str) -> int | str | Bytes | None:
    """The most elements of an intermediate, or bytes; None, -1 and infinity are no limit, as in opt_einsum."""
    if value is None or (isinstance(value, str) and value == "max_input"):
        return value
    if isinstance(value, str):
        return Bytes(parse_size(value, where))
    if isinstance(value, Real) and not isinstance(value, bool):
        number: Any = value
        if number in (-1, math.inf):
            return None
        if number >= 1:
            return int(number)
    raise OptionError(
        f"{where} is {value!r}; it must be a number of elements of at least 1, a size in bytes such as '1GiB', -1 or "
        "infinity for no limit, or 'max_input'"
    )


def _check_path(path: Sequence[tuple[int, ...]], count: int) -> None:
    for group in path:
        if len(set(group)) != len(group) or not all(0 <= i < count for i in group):
            raise OptionError(
                f"optimize: the path step {group} does not fit the tensors that are left, {count} of them"
            )
        count += 1 - len(group)
    if count != 1:
        raise PathError(f"the path of optimize= leaves {count} tensors uncontracted")
