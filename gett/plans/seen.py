"""Operands that a call has again: arrays that were found to fit need no closer look the next time.

Owns when arrays count as the same: they are the same objects, of the same shapes. What else a plan asks of CuPy's
arrays does not change while one lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import is_
from typing import Any

LEAST = 8
"""Operands of a plan from which it pays to remember them."""


class Seen:
    """The operands of a plan's calls, which this does not keep alive."""

    __slots__ = ("_found", "_numbers")

    def __init__(self) -> None:
        """Nothing is seen."""
        self._numbers: list[int] = []
        self._found: tuple[list[weakref.ref[Any]], list[Any]] | None = None

    def again(self, operands: Sequence[Any]) -> bool:
        """Whether these are the operands that two calls in a row had before."""
        found = self._found
        if found is None:
            return False
        before, shapes = found
        return all(map(is_, operands, [x() for x in before])) and [x.shape for x in operands] == shapes

    def note(self, operands: Sequence[Any]) -> None:
        """Remember operands that fit, the second time that a call has them: others may come only once."""
        numbers = [*map(id, operands)]
        if numbers == self._numbers:
            self._found = [weakref.ref(x) for x in operands], [x.shape for x in operands]
        self._numbers = numbers
