"""`SumTree`: sums of many terms in an order that depends on neither who forms the terms nor when they come.

Owns the order. Knows neither arrays nor slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True, slots=True)
class Node:
    """Consecutive terms whose sum is one term of a later sum: `2**level` of them, fewer at the end.

    Attributes:
        part: Which sum, of several.
        level: How often terms are paired.
        index: Which node of its level, from the first term on.
    """

    part: int
    level: int
    index: int

    def terms(self, count: int) -> range:
        """Which of so many terms are summed."""
        return range(self.index << self.level, min(self.index + 1 << self.level, count))


class SumTree:
    """One sum of some terms: neighbours are added, then neighbouring sums, and so on.

    Attributes:
        held: What waits for its neighbour, by level and index.
    """

    def __init__(self, count: int, add: Callable[[Any, Any], Any]) -> None:
        """An empty sum.

        Args:
            count: How many terms there are.
            add: The sum of two neighbours; it may write over the first.
        """
        self.held: dict[tuple[int, int], Any] = {}
        self._count, self._add = count, add
        self._height = (count - 1).bit_length()

    def put(self, level: int, index: int, value: Any) -> None:
        """Add the sum of a node."""
        while level < self._height:
            if index % 2 or (index + 1) << level < self._count:
                other = self.held.pop((level, index ^ 1), None)
                if other is None:
                    break
                value = self._add(other, value) if index % 2 else self._add(value, other)
            level, index = level + 1, index // 2
        self.held[level, index] = value

    @property
    def total(self) -> Any:
        """The sum of all terms; None while some are missing."""
        return self.held.get((self._height, 0))


def nodes(part: int, terms: range, most: int, count: int) -> Iterator[Node]:
    """The fewest nodes of at most `2**most` terms that make up some consecutive terms.

    Args:
        part: Of the nodes.
        terms: Consecutive terms.
        most: Greatest level.
        count: How many terms there are in all.
    """
    first, last = terms.start, terms.stop
    most = min(most, (count - 1).bit_length())
    while first < last:
        level = most if first == 0 else min(most, (first & -first).bit_length() - 1)
        while level and min(first + (1 << level), count) > last:
            level -= 1
        yield Node(part, level, first >> level)
        first += 1 << level
