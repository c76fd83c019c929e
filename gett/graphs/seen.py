"""Operands that a call has again: what was found out about them need not be found out the next time.

Owns when arrays count as the same: they are the same objects. What CuPy's arrays have does not change while one lives,
but for their shapes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import call, is_
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LEAST = 8
"""Operands of a plan from which it pays to remember them."""


class Seen(Generic[T]):
    """The operands of a plan's calls, which this does not keep alive, and what is known of them."""

    __slots__ = ("_found", "_numbers")

    def __init__(self) -> None:
        """Nothing is seen."""
        self._numbers: list[int] = []
        self._found: tuple[list[weakref.ref[Any]], T] | None = None

    def known(self, operands: Sequence[Any]) -> T | None:
        """What was noted of these operands; None where that was of others, or one of them has gone."""
        found = self._found
        if found is None or len(found[0]) != len(operands):
            return None
        return found[1] if all(map(is_, operands, map(call, found[0]))) else None

    def note(self, operands: Sequence[Any], known: T) -> None:
        """Remember what is known, the second time that a call has these operands: others may come only once."""
        numbers = [*map(id, operands)]
        if numbers == self._numbers:
            self._found = [*map(weakref.ref, operands)], known
        self._numbers = numbers
