"""Operands that a call has again: what was found out about them need not be found out the next time.

Owns when arrays count as the same: they are the same objects. What CuPy's arrays have does not change while one lives,
but for their shapes. The numbers of hundreds of objects are read as one piece of memory, since a loop over them takes
longer than the launch of a graph.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LEAST = 8
"""Operands of a plan from which it pays to remember them."""


def _stored(things: tuple[Any, ...]) -> bytes:
    """The numbers of objects as CPython's tuple has them: behind its head, a pointer for each."""
    return ctypes.string_at(id(things) + tuple.__basicsize__, len(things) * struct.calcsize("P"))


def _asked(things: tuple[Any, ...]) -> bytes:
    """The same by `id`, which takes twenty times as long."""
    return struct.pack(f"{len(things)}P", *map(id, things))


def _numbers_of() -> Callable[[tuple[Any, ...]], bytes]:
    """The quicker one where it tells the same."""
    known = (object(), object())
    return _stored if sys.implementation.name == "cpython" and _stored(known) == _asked(known) else _asked


_numbers = _numbers_of()


class Seen(Generic[T]):
    """The operands of a plan's calls, which this does not keep alive, and what is known of them."""

    __slots__ = ("_found", "_last")

    def __init__(self) -> None:
        """Nothing is seen."""
        self._last = b""
        self._found: list[tuple[bytes, T, list[weakref.ref[Any]]]] = []  # one; emptied when an operand goes

    def known(self, operands: Sequence[Any]) -> T | None:
        """What was noted of these operands; None where that was of others, or one of them has gone."""
        for numbers, known, _ in self._found:
            if numbers == _numbers(tuple(operands)):
                return known
        return None

    def note(self, operands: Sequence[Any], known: T) -> None:
        """Remember what is known, the second time that a call has these operands: others may come only once."""
        numbers = _numbers(tuple(operands))
        if numbers == self._last:
            found: list[tuple[bytes, T, list[weakref.ref[Any]]]] = []

            def forget(_: object) -> None:
                found.clear()

            found.append((numbers, known, [weakref.ref(x, forget) for x in operands]))
            self._found = found
        self._last = numbers
