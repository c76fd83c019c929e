"""The one skeleton of all searches: enumerate choices, estimate each, lower the best to schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from gett.schedule.cost.estimate import Estimate
from gett.schedule.spec.schedule import Schedule

Choice = TypeVar("Choice")


class Search(Protocol[Choice]):
    """What may be tried for one plan in one assignment of roles to A and B."""

    def choices(self) -> Iterator[Choice]:
        """Tiles, boxes and loaders, before anything is worked out in full."""

    def estimate(self, choice: Choice) -> Estimate:
        """Expected time of a choice."""

    def lower(self, choice: Choice, estimate: Estimate) -> Iterable[Schedule]:
        """The schedules of a choice: none where a rule of the hardware forbids it, several where details vary."""


def best_schedules(searches: Sequence[Search[Choice]], limit: int) -> list[Schedule]:
    """The most promising schedules of some searches, at most `limit`, best first.

    Choices are lowered in the order of their estimates; what lowering finds out may change the order once more.
    """
    ranked = [
        (estimate.us, i, search, choice, estimate)
        for search in searches
        for i, choice in enumerate(search.choices())
        for estimate in (search.estimate(choice),)
    ]
    ranked.sort(key=lambda r: r[:2])
    found: dict[Schedule, None] = {}
    for _, _, search, choice, estimate in ranked:
        found.update(dict.fromkeys(search.lower(choice, estimate)))
        if len(found) >= limit:
            break
    return sorted(found, key=lambda s: s.forecast.us)
