"""What `optimize=` asks for: an algorithm of opt_einsum or a path, and a limit on intermediates. Checks it; finds none.

Knows neither modes nor extents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from gett.errors import OptionError, PathError

AUTOTUNE = "autotune"  # asks for measured kernels; the path is found as by default
_WITHOUT_LOOKUP = ("auto", "greedy", "optimal")


def freeze_optimize(optimize: Any) -> Any:
    """`optimize=` as it stands in a key, where 1 would equal True: checked, with paths and limits as tuples.

    Raises:
        OptionError: As `check_optimize`, which looks at names later.
    """
    if optimize is True or optimize is False or optimize is None or isinstance(optimize, str):
        return optimize
    method, limit = check_optimize(optimize)
    return method if limit is None else (method, limit)


def check_optimize(optimize: Any, count: int | None = None) -> tuple[Any, int | str | None]:
    """What opt_einsum is asked for: an algorithm or a path, and a limit on intermediates in elements.

    False and None ask for no optimisation: pairs from left to right, returned as False.

    Args:
        optimize: What `gett.einsum` takes.
        count: How many operands a path must contract; None where that is not known yet.

    Raises:
        OptionError: The value means nothing to NumPy or opt_einsum, or its path does not fit the operands.
        PathError: Its path leaves tensors uncontracted.
    """
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
            return check_optimize(parts[0])[0], _limit(parts[1])
        if parts and isinstance(parts[0], str) and parts[0] == "einsum_path":
            parts = parts[1:]
        if all(isinstance(p, (tuple, list)) and p and all(isinstance(i, Integral) for i in p) for p in parts):
            path = tuple(tuple(map(int, p)) for p in parts)
            if count is not None:
                _check_path(path, count)
            return path, None
    elif callable(optimize):
        return optimize, None
    raise OptionError(
        f"optimize={optimize!r}; it must be True, False, a name such as 'greedy', a path such as [(0, 1), (0, 1)], "
        "a name with a limit on intermediates such as ('greedy', 1000000), or a PathOptimizer of opt_einsum"
    )


def _limit(value: Any) -> int | str | None:
    """The most elements of an intermediate; None, -1 and infinity are no limit, as in opt_einsum."""
    if value is None or (isinstance(value, str) and value == "max_input"):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        number: Any = value
        if number in (-1, math.inf):
            return None
        if number >= 1:
            return int(number)
    raise OptionError(
        f"optimize limits intermediates to {value!r} elements; it must be a number of at least 1, -1 or infinity for "
        "no limit, or 'max_input'"
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
