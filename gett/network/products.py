"""From subscripts to products of one or two tensors, each label once: what derivatives are formed of.

Owns how each operand is viewed before the first product (diagonals, axes that broadcast), and the labels of every
product of a network. Knows ranks and extents, but neither arrays nor dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from gett.ir.subscripts import Spec, Subscripts, parse, symbols
from gett.network.path import NEVER, find_steps
from gett.network.steps import PathStep


class Reading(NamedTuple):
    """How an operand is viewed, so that it has each label once and broadcasts along none.

    Attributes:
        dropped: Axes of extent 1 along which it broadcasts, the last first.
        diagonals: Pairs of the axes left, of which one diagonal after the other is taken; it becomes the last axis.
        labels: Of the axes of the view.
    """

    dropped: tuple[int, ...]
    diagonals: tuple[tuple[int, int], ...]
    labels: str


class Factor(NamedTuple):
    """A product of one or two tensors.

    Attributes:
        inputs: Numbers below the count of operands are operands, the others results of products in their order.
        terms: Labels of each input.
        output: Labels of the result.
    """

    inputs: tuple[int, ...]
    terms: tuple[str, ...]
    output: str

    @property
    def subscripts(self) -> str:
        """The explicit form, e.g. `"ij,jk->ik"`."""
        return f"{','.join(self.terms)}->{self.output}"


class Products(NamedTuple):
    """A contraction as products.

    Attributes:
        readings: One for each operand.
        factors: The products in order; the last has the result.
    """

    readings: tuple[Reading, ...]
    factors: tuple[Factor, ...]


def products_of(spec: Spec, shapes: Sequence[tuple[int, ...]], optimize: Any) -> Products:
    """The products of a contraction, whose subscripts and extents have been checked.

    Args:
        spec: The subscripts.
        shapes: Of the operands.
        optimize: What `gett.einsum` takes, with no limit in bytes.

    Raises:
        PathError: `optimize` has slices.
    """
    ones = tuple(tuple(e == 1 for e in shape) for shape in shapes)
    if len(shapes) < 3:
        return pair_products(spec, ones)
    sizes = tuple(tuple(map(int, shape)) for shape in shapes)
    try:
        return _network_products(spec, sizes, ones, optimize)
    except TypeError:  # an optimiser that cannot be hashed
        return _network_products.__wrapped__(spec, sizes, ones, optimize)


@lru_cache(maxsize=1024)
def pair_products(spec: Spec, ones: tuple[tuple[bool, ...], ...]) -> Products:
    """The product of one or two operands, of whose axes `ones` tells which have extent 1."""
    subscripts = parse(spec, list(map(len, ones)))
    return _spelled(subscripts, ones, [2] * len(subscripts.names), True)


@lru_cache(maxsize=1024)
def _network_products(
    spec: Spec, shapes: tuple[tuple[int, ...], ...], ones: tuple[tuple[bool, ...], ...], optimize: Any
) -> Products:
    subscripts = parse(spec, list(map(len, shapes)))
    extents = [1] * len(subscripts.names)
    for modes, shape in zip(subscripts.inputs, shapes, strict=True):
        for mode, extent in zip(modes, shape, strict=True):
            extents[mode] = max(extents[mode], extent)  # 0 counts as 1, which no path objects to
    return _spelled(subscripts, ones, extents, optimize)


def _spelled(subscripts: Subscripts, ones: Sequence[Sequence[bool]], extents: Sequence[int], optimize: Any) -> Products:
    """The products, with labels that any string of subscripts may have."""
    letters = tuple(islice(symbols(), len(subscripts.names)))
    flagged = [*zip(subscripts.inputs, ones, strict=True)]
    spread = {m for modes, flags in flagged for m, one in zip(modes, flags, strict=True) if not one}
    views = [_reading(modes, flags, spread) for modes, flags in flagged]
    terms = [modes for _, _, modes in views]
    steps, _ = find_steps(terms, subscripts.output, extents, terms, optimize, NEVER)

    def spell(modes: Sequence[int]) -> str:
        return "".join(letters[m] for m in modes)

    labels = dict(enumerate(map(spell, terms))) | {s.output: spell(s.modes) for s in steps}
    readings = tuple(Reading(dropped, diagonals, spell(modes)) for dropped, diagonals, modes in views)
    return Products(readings, tuple(_factor(s, labels) for s in steps))


def _factor(step: PathStep, labels: dict[int, str]) -> Factor:
    return Factor(step.inputs, tuple(labels[i] for i in step.inputs), labels[step.output])


def _reading(
    modes: Sequence[int], ones: Sequence[bool], spread: set[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
    """A `Reading` with modes in place of labels."""
    dropped = tuple(i for i in reversed(range(len(modes))) if ones[i] and modes[i] in spread)
    left = [m for i, m in enumerate(modes) if i not in dropped]
    diagonals = []
    while len(set(left)) < len(left):
        second = next(i for i, m in enumerate(left) if m in left[:i])
        first = left.index(left[second])
        diagonals.append((first, second))
        left = [m for i, m in enumerate(left) if i not in (first, second)] + [left[first]]
    return dropped, tuple(diagonals), tuple(left)
