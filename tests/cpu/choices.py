"""All choices of a search, those that are made later too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from gett.schedule.search.base import Later, Search

Choice = TypeVar("Choice")


def bounded_choices(search: Search[Choice]) -> Iterator[tuple[float, Choice]]:
    """Choices with the bounds under which they come."""
    for choice in search.choices():
        if isinstance(choice, Later):
            yield from ((choice.least_us, x) for x in choice.choices())
        else:
            yield search.least_us(choice), choice
