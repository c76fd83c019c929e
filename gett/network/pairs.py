"""Pairs of steps that one kernel makes: `(T s) t` as `T (s t)`, where both small tensors have little to multiply.

A gate on a gate, or an MPO on a site: what a step of little arithmetic takes is the time of its large tensor's bytes.
Two of them, one after the other, write a large intermediate and read it again. The product of the small tensors first
saves that pass, and the matrix it makes is still small. Knows mode sets and extents, no orders and no kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gett.network.steps import PathStep

SMALL_BYTES = 1 << 16
"""Of a small tensor at most; what is smaller is read from caches."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How long steps take.

    Attributes:
        bytes_per_us: Of memory.
        products_per_us: Of elements.
        launch_us: What a step takes however small it is.
        itemsize: Bytes of an element.
    """

    bytes_per_us: float
    products_per_us: float
    launch_us: float
    itemsize: int


def paired(
    steps: Sequence[PathStep], terms: Sequence[tuple[int, ...]], extents: Sequence[int], rates: Rates
) -> list[PathStep]:
    """Steps of which the second of some pairs multiplies the product of what both had beside the large tensor.

    A chain is taken pair by pair. There are as many steps as before, and the last one makes the same result.

    Args:
        steps: In order, each with the modes of its result in any order.
        terms: Modes of each operand.
        extents: Of each mode.
        rates: Whether it pays.
    """
    pairs = _Pairs(terms, extents, rates)
    for step in steps:
        pairs.add(step)
    return _renumbered(pairs.steps.values(), len(terms))


class _Pairs:
    """The steps up to one of a path, by the number of their result."""

    def __init__(self, terms: Sequence[tuple[int, ...]], extents: Sequence[int], rates: Rates) -> None:
        self.steps: dict[int, PathStep] = {}
        self._modes = {i: frozenset(term) for i, term in enumerate(terms)}
        self._extents, self._rates = extents, rates

    def add(self, step: PathStep) -> None:
        """The next step, and the pairs that it makes with those before it."""
        self._modes[step.output] = frozenset(step.modes)
        while (pair := self._pair(step)) is not None:
            small, step = pair
            del self.steps[small.output]  # its factors may be made later than the pair's first step was
            self.steps[small.output] = small
            self._modes[small.output] = frozenset(small.modes)
        self.steps[step.output] = step

    def _pair(self, step: PathStep) -> tuple[PathStep, PathStep] | None:
        """The product of small tensors and the step that takes it, where they are sooner done than the pair."""
        if len(step.inputs) != 2 or step.wide:
            return None
        for number, other in (step.inputs, step.inputs[::-1]):
            first = self.steps.get(number)
            if first is None or len(first.inputs) != 2 or first.wide or not self._small(self._modes[other]):
                continue
            for large, inner in (first.inputs, first.inputs[::-1]):
                if self._small(self._modes[inner]) and not self._small(self._modes[large]):
                    found = self._together(first, step, large, inner, other)
                    if found is not None:
                        return found
        return None

    def _together(
        self, first: PathStep, step: PathStep, large: int, inner: int, other: int
    ) -> tuple[PathStep, PathStep] | None:
        modes, result = self._modes, frozenset(step.modes)
        small = (modes[inner] | modes[other]) & (modes[large] | result)
        if not self._small(small):
            return None
        before = self._us(modes[large], modes[inner], frozenset(first.modes))
        before += self._us(frozenset(first.modes), modes[other], result)
        # Small products are many, and a launch makes all that do not need each other.
        after = self._us(modes[large], small, result)
        after += self._volume(modes[inner] | modes[other]) / self._rates.products_per_us
        if after >= before:
            return None
        return PathStep((inner, other), first.output, tuple(sorted(small))), replace(step, inputs=(large, first.output))

    def _volume(self, modes: Iterable[int]) -> int:
        return math.prod(self._extents[m] for m in modes)

    def _small(self, modes: Iterable[int]) -> bool:
        return self._volume(modes) * self._rates.itemsize <= SMALL_BYTES

    def _us(self, a: frozenset[int], b: frozenset[int], d: frozenset[int]) -> float:
        """Of a product: the time of its bytes or of its arithmetic."""
        moved = sum(map(self._volume, (a, b, d))) * self._rates.itemsize / self._rates.bytes_per_us
        return self._rates.launch_us + max(moved, self._volume(a | b) / self._rates.products_per_us)


def _renumbered(steps: Iterable[PathStep], operands: int) -> list[PathStep]:
    """Steps whose results are numbered in their order, behind the operands."""
    numbers: dict[int, int] = {}
    found = []
    for number, step in enumerate(steps, operands):
        inputs = tuple(numbers.get(i, i) for i in step.inputs)
        numbers[step.output] = number
        found.append(replace(step, inputs=inputs, output=number))
    return found
