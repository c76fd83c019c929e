"""Launches of a graph that run side by side: in which order they begin, and which ones each must wait for.

Branches of a network do not need each other, and a launch of few blocks leaves multiprocessors idle. Owns the order and
the edges of a graph. Knows neither arrays nor the driver.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, groupby

import numpy as np

from gett.graphs.places import ARENA_LIMIT, Places, places_of
from gett.network.running import Turn

BRANCHES = 3
"""Launches that are expected to run side by side at most."""
ROOM = 64 << 20
"""Bytes that intermediates may take beyond what they take one by one: those of several branches are alive. Beyond
`ARENA_LIMIT` they take no more, since no plan keeps it."""
GAIN = 0.97
"""Share of the time of all launches from which on they stay one behind the other."""


@dataclass(frozen=True, slots=True)
class Order:
    """How the turns of a plan become launches of a graph.

    Attributes:
        launches: The numbers of the turns of each, in the order in which they begin.
        places: Where intermediates and workspaces lie.
        after: For each launch the ones that it waits for; None where each waits for the one before it.
    """

    launches: tuple[tuple[int, ...], ...]
    places: Places
    after: tuple[tuple[int, ...], ...] | None = None


def one_by_one(turns: Sequence[Turn], workspaces: Sequence[int]) -> Order:
    """Each launch waits for the one before it.

    Args:
        turns: Of a plan, in order.
        workspaces: Bytes that each takes while it runs.
    """
    return Order(_launches(turns), places_of(turns, workspaces))


def side_by_side(turns: Sequence[Turn], workspaces: Sequence[int], us: Sequence[float]) -> Order:
    """Launches wait for what they read, and for those whose memory they write; one by one where little is gained.

    Args:
        turns: Of a plan, in order.
        workspaces: Bytes that each takes while it runs.
        us: How long each is expected to run; those that are one launch have one time.
    """
    alone = one_by_one(turns, workspaces)
    needs = _needs(turns, alone.launches)
    times = [us[launch[0]] for launch in alone.launches]
    begins = _begins(needs, times)
    ends = [begin + time for begin, time in zip(begins, times, strict=True)]
    if max(ends) > GAIN * sum(times):
        return alone
    order = sorted(range(len(times)), key=begins.__getitem__)
    launches = tuple(alone.launches[k] for k in order)
    # The last turn that begins before a launch ends, by its place in that order.
    in_order, last = [begins[k] for k in order], [n - 1 for n in accumulate(map(len, launches))]
    until: list[int] = []
    for launch, k in zip(launches, order, strict=True):
        until += [last[bisect_left(in_order, ends[k]) - 1]] * len(launch)
    ordered = [n for launch in launches for n in launch]
    placed = places_of([turns[n] for n in ordered], [workspaces[n] for n in ordered], until)
    if placed.nbytes > max(alone.places.nbytes, min(alone.places.nbytes + ROOM, ARENA_LIMIT)):
        return alone
    found = dict(zip(ordered, placed.workspaces, strict=True))
    places = replace(placed, workspaces=tuple(found[n] for n in range(len(turns))))
    place = {k: n for n, k in enumerate(order)}
    moved = [{place[x] for x in needs[k]} for k in order]
    return Order(launches, places, tuple(_edges(turns, workspaces, launches, places, moved)))


def _launches(turns: Sequence[Turn]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(numbers) for _, numbers in groupby(range(len(turns)), key=lambda n: turns[n].launch))


def _needs(turns: Sequence[Turn], launches: Sequence[Sequence[int]]) -> list[set[int]]:
    """For each launch those that write what it reads; the result is written behind all others."""
    writers: dict[int, set[int]] = {}
    needs: list[set[int]] = []
    for k, launch in enumerate(launches):
        found = {w for n in launch for i in turns[n].inputs for w in writers.get(i, ())}
        if any(turns[n].is_last for n in launch):
            found |= set(range(k))
        needs.append(found)
        for n in launch:
            writers.setdefault(turns[n].output, set()).add(k)
    return needs


def _begins(needs: Sequence[set[int]], times: Sequence[float]) -> list[float]:
    """When each launch begins where some run side by side: of those that may, what most comes behind goes first."""
    count = len(times)
    behind = [0.0] * count
    readers: list[list[int]] = [[] for _ in range(count)]
    for k in reversed(range(count)):
        behind[k] = times[k] + max((behind[r] for r in readers[k]), default=0.0)
        for n in needs[k]:
            readers[n].append(k)
    waits, begins = [len(n) for n in needs], [0.0] * count
    ready = [(-behind[k], k) for k in range(count) if not waits[k]]
    heapify(ready)
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < BRANCHES:
            _, k = heappop(ready)
            begins[k] = now
            running.append((now + times[k], k))
        now, k = min(running)
        running.remove((now, k))
        for r in readers[k]:
            waits[r] -= 1
            if not waits[r]:
                heappush(ready, (-behind[r], r))
    return begins


def _edges(
    turns: Sequence[Turn],
    workspaces: Sequence[int],
    launches: Sequence[Sequence[int]],
    places: Places,
    needs: Sequence[set[int]],
) -> Iterator[tuple[int, ...]]:
    """For each launch the ones that it waits for, without those that these wait for; `needs` are those it reads of."""
    sizes = {t.output: t.nbytes for t in turns}
    most = 3 * len(turns) + sum(map(bool, workspaces))
    users, count = np.zeros((3, most), np.int64), 0  # of the memory: first byte, end, launch
    earlier: list[int] = []  # of each launch all that come before it, as bits
    for k, launch in enumerate(launches):
        read: list[tuple[int, int]] = []  # first byte and length
        written: list[tuple[int, int]] = []
        for n in launch:
            turn = turns[n]
            read += [(places.tensors[i], sizes[i]) for i in turn.inputs if i in places.tensors]
            if not turn.is_last:
                written.append((places.tensors[turn.output], sizes[turn.output]))
            if workspaces[n]:
                written.append((places.workspaces[n], workspaces[n]))
        found = set(needs[k])
        first, end, user = users[:, :count]
        for start, nbytes in written:
            found.update(user[(first < start + nbytes) & (end > start)].tolist())
        for start, nbytes in (*written, *read):
            users[:, count] = start, start + nbytes, k
            count += 1
        direct, reached = [], 0
        for other in sorted(found, reverse=True):
            if not reached >> other & 1:
                direct.append(other)
                reached |= earlier[other] | 1 << other
        earlier.append(reached)
        yield tuple(direct)
