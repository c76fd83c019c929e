"""The one skeleton of all searches: enumerate choices, bound and estimate them, lower the best to schedules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from gett.schedule.cost.estimate import Estimate
from gett.schedule.spec.schedule import Schedule

Choice = TypeVar("Choice")

MOST = 3  # times the schedules that are kept are lowered at most


@dataclass(frozen=True, slots=True)
class Later(Generic[Choice]):
    """Choices that are made when they may be among the best: the forecasts of all of them are at least `least_us`."""

    least_us: float
    choices: Callable[[], Iterable[Choice | Later[Choice]]]


class Search(ABC, Generic[Choice]):
    """What may be tried for one plan in one assignment of roles to A and B."""

    @abstractmethod
    def choices(self) -> Iterator[Choice | Later[Choice]]:
        """Tiles, boxes and loaders, before anything is worked out in full."""

    @abstractmethod
    def estimate(self, choice: Choice) -> Estimate:
        """Expected time of a choice."""

    @abstractmethod
    def lower(self, choice: Choice, estimate: Estimate) -> Iterable[Schedule]:
        """The schedules of a choice: none where a rule of the hardware forbids it, several where details vary."""

    def least_us(self, choice: Choice) -> float:
        """A time that the forecasts of a choice and of its variants are not below; cheap to find."""
        return 0.0

    def paced_us(self, choice: Choice, estimate: Estimate) -> float:
        """A time that the forecasts of its schedules are not below."""
        return estimate.us

    def lowered_us(self, choice: Choice, estimate: Estimate) -> float:
        """A closer one, asked where a single schedule is wanted before its choice is lowered."""
        return self.paced_us(choice, estimate)

    def variants(self, choice: Choice, estimate: Estimate) -> Iterable[Choice]:
        """Further choices that the estimate of one makes worth trying."""
        return ()


def best_schedules(
    searches: Sequence[Search[Choice]], limit: int, below: float | None = None, *, needed: bool = True
) -> list[Schedule]:
    """The most promising schedules of some searches, about `limit`, best first.

    Choices are estimated in the order of the least that they may take, and lowered in the order of their estimates, as
    far as no schedule's forecast is below; what lowering finds out may change the order once more. What is never among
    the best is never estimated.

    Args:
        searches: Of one kind of main loop.
        limit: Schedules that are kept.
        below: Where only the first schedule of all searches is wanted: the time of the best that is known. The first of
            these searches is then among the schedules if it takes less.
        needed: Whether one schedule must be among them in any case, if there is one.
    """
    # Of equal times the choice that comes first in its search goes first, then the search.
    queue: list[tuple[float, tuple[int, ...], Choice | Later[Choice], Estimate | None]] = [
        (_least_us(search, choice), (i, at), choice, None)
        for at, search in enumerate(searches)
        for i, choice in enumerate(search.choices())
    ]
    heapify(queue)
    found: dict[Schedule, None] = {}
    best, known = math.inf, math.inf if below is None else below
    # Lowering may find what makes all of the first few slow; then more are lowered, as long as they may be better.
    while queue and (len(found) < limit or (queue[0][0] < best and len(found) < MOST * limit)):
        if (found or not needed) and below is not None and queue[0][0] >= min(best, known):
            break
        _, key, choice, estimate = heappop(queue)
        search = searches[key[1]]
        if isinstance(choice, Later):
            for i, made_now in enumerate(choice.choices()):
                heappush(queue, (_least_us(search, made_now), (*key, i), made_now, None))
        elif estimate is None:
            estimate = search.estimate(choice)
            heappush(queue, (search.paced_us(choice, estimate), key, choice, estimate))
            for i, variant in enumerate(search.variants(choice, estimate), 1):
                heappush(queue, (_least_us(search, variant), (*key, i), variant, None))
        elif below is None or not (found or not needed) or search.lowered_us(choice, estimate) < min(best, known):
            made = list(search.lower(choice, estimate))
            found.update(dict.fromkeys(made))
            best = min([best, *(s.forecast.us for s in made)])
    return sorted(found, key=lambda s: s.forecast.us)[:limit]


def _least_us(search: Search[Choice], choice: Choice | Later[Choice]) -> float:
    return choice.least_us if isinstance(choice, Later) else search.least_us(choice)
