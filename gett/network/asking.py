"""Asking optimisers for paths: callables of opt_einsum's form, and what has a `search`, as cotengra's optimisers have.

Owns what they are called with. Knows neither modes' meaning nor which paths are good.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gett.errors import OptionError
from gett.network.optimize import SlicedPath, check_optimize

LIMIT = "memory_limit"


def asked_path(
    optimizer: Any,
    terms: Sequence[Sequence[str]],
    output: Sequence[str],
    sizes: Mapping[str, int],
    limit: int | str | None,
) -> tuple[tuple[int, ...], ...]:
    """The path that an optimiser finds.

    Args:
        optimizer: Called with `(inputs, output, size_dict, memory_limit)`, the last only if it takes it; else its
            `search` is, which returns what has a `get_path`.
        terms: Labels of each operand, each label once.
        output: Labels of the result.
        sizes: Extents by label.
        limit: Most elements of an intermediate, `"max_input"` for those of the largest operand, or None.

    Raises:
        OptionError, PathError: It takes no limit but is given one, or what it returns is no path of these operands.
    """
    if not callable(optimizer):
        tree = optimizer.search([tuple(x) for x in terms], tuple(output), dict(sizes))
        return _checked(tree.get_path(), len(terms))
    if limit == "max_input":
        limit = max(math.prod(sizes[x] for x in term) for term in terms)
    call = [frozenset(x) for x in terms], frozenset(output), dict(sizes)
    named, fourth = _takes_limit(optimizer)
    if fourth:
        return _checked(optimizer(*call, limit), len(terms))
    if limit is None:
        return _checked(optimizer(*call), len(terms))
    if not named:
        raise OptionError(f"optimize={optimizer!r} takes no memory_limit, but intermediates are limited to {limit}")
    return _checked(optimizer(*call, memory_limit=limit), len(terms))


def searched_slices(
    optimizer: Any, inputs: Sequence[Sequence[int]], output: Sequence[int], extents: Sequence[int]
) -> SlicedPath | tuple[tuple[int, ...], ...]:
    """The path and the slices that an optimiser's `search` finds; the path alone where it finds no slices.

    Args:
        optimizer: Searches slices.
        inputs: Modes of each operand's axes.
        output: Modes of the result, all of them in `inputs`.
        extents: Of all modes.
    """
    terms = [tuple(dict.fromkeys(modes)) for modes in inputs]
    sizes = {m: extents[m] for term in terms for m in term}
    found = check_optimize(optimizer.search(terms, tuple(output), sizes), len(inputs))[0]
    if not isinstance(found, SlicedPath):
        path: tuple[tuple[int, ...], ...] = found
        return path
    axes = tuple((i, list(inputs[i]).index(terms[i][axis])) for i, axis in found.axes)
    return SlicedPath(found.path, axes)


def _takes_limit(optimizer: Any) -> tuple[bool, bool]:
    """Whether a limit may be given to a callable by its name, and as the fourth argument."""
    try:
        parameters = inspect.signature(optimizer).parameters.values()
    except (TypeError, ValueError):  # of compiled code, whose form is that of opt_einsum
        return True, True
    places = [x for x in parameters if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    fourth = len(places) > 3 or any(x.kind is x.VAR_POSITIONAL for x in parameters)
    return any(x.name == LIMIT for x in parameters), fourth


def _checked(path: Any, count: int) -> tuple[tuple[int, ...], ...]:
    found: tuple[tuple[int, ...], ...] = check_optimize([tuple(map(int, group)) for group in path], count)[0]
    return found
