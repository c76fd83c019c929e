"""All choices of a search, those that are made later too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from gett.schedule.search.base import Later, Search

Choice = TypeVar("Choice")


def bounded_choices(search: Search[Choice]) -> Iterator[tuple[float, Choice]]:
    """Choices with the largest of the bounds under which they come."""
    yield from _bounded(search, search.choices(), 0.0)


def _bounded(
    search: Search[Choice], choices: Iterable[Choice | Later[Choice]], least: float
) -> Iterator[tuple[float, Choice]]:
    for choice in choices:
        if isinstance(choice, Later):
            yield from _bounded(search, choice.choices(), max(least, choice.least_us))
        else:
            yield max(least, search.least_us(choice)), choice
