"""The plan cache: thread-safe, least recently used goes first, with counters.

Knows nothing of what it holds but a rough size.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from gett.errors import OptionError

DEFAULT_SIZE = 1024


class CacheInfo(NamedTuple):
    """State of the cache: lookups that hit and missed, plans held, limit, host bytes held (an estimate)."""

    hits: int
    misses: int
    size: int
    maxsize: int
    bytes: int


class PlanCache:
    """Plans by everything that they depend on: subscripts, layouts, dtypes, alignment, device, options.

    Attributes:
        drops: How often plans were forgotten by request, which whoever holds some apart has to notice.
    """

    __slots__ = ("_entries", "_lock", "_maxsize", "_misses", "_others", "_uses", "drops")

    def __init__(self, maxsize: int = DEFAULT_SIZE) -> None:
        self._lock = threading.Lock()
        self._maxsize = maxsize
        self.drops = 0
        self._begin()

    def _begin(self) -> None:
        # [plan, number of its last use, the same when the order was made], in the order of the latter.
        self._entries: dict[Hashable, list[Any]] = {}
        self._uses = itertools.count(1)  # a number for each hit, and for what is counted in `_others`
        self._misses = self._others = 0

    def get(self, key: Hashable) -> Any:
        """The plan under a key, or None; counts a hit or a miss. TypeError if the key cannot be hashed."""
        entry = self._entries.get(key)
        if entry is None:
            with self._lock:
                self._misses += 1
            return None
        entry[1] = next(self._uses)  # one step of the interpreter, where a lock takes longer than all else here
        return entry[0]

    def _count(self) -> int:
        """A number of use that is no hit's; the lock is held."""
        self._others += 1
        return next(self._uses)

    def peek(self, key: Hashable) -> Any:
        """The plan under a key, or None; counts nothing, and is no use of it."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: Hashable, plan: Any) -> Any:
        """Keep a plan; where another thread was first, its plan is kept and returned."""
        with self._lock:
            if self._maxsize == 0:
                return plan
            now = self._count()
            kept = self._entries.setdefault(key, [plan, now, now])[0]
            self._shrink()
            return kept

    def _shrink(self) -> None:
        """Drop what was used least recently; the order is made anew only where it is no longer that of use."""
        while len(self._entries) > self._maxsize:
            first = next(iter(self._entries))
            _, used, placed = self._entries[first]
            if used != placed:
                self._entries = dict(sorted(self._entries.items(), key=lambda item: item[1][1]))
                for entry in self._entries.values():
                    entry[2] = entry[1]
                first = next(iter(self._entries))
            del self._entries[first]

    def info(self) -> CacheInfo:
        """Counters, sizes, and an estimate of the host memory that the plans hold."""
        with self._lock:
            entries = [(key, entry[0]) for key, entry in self._entries.items()]
            hits, misses, maxsize = self._count() - self._others, self._misses, self._maxsize
        seen: set[int] = set()
        total = sum(_size(key, seen) + _size(plan, seen) for key, plan in entries)
        return CacheInfo(hits, misses, len(entries), maxsize, total)

    def discard(self, unwanted: Callable[[Any], bool]) -> int:
        """Forget the plans of which `unwanted` is true; returns how many."""
        with self._lock:
            keys = [key for key, entry in self._entries.items() if unwanted(entry[0])]
            for key in keys:
                del self._entries[key]
            self.drops += 1
            return len(keys)

    def clear(self) -> None:
        """Forget all plans and counters."""
        with self._lock:
            self.drops += 1
            self._begin()

    def resize(self, maxsize: int) -> None:
        """Hold at most `maxsize` plans (0: none) and drop the least recently used beyond that.

        Raises:
            OptionError: `maxsize` is no integer of at least 0.
        """
        if not isinstance(maxsize, int) or maxsize < 0:
            raise OptionError(f"the plan cache holds an integer number of plans of at least 0, not {maxsize!r}")
        with self._lock:
            self._maxsize = maxsize
            self._shrink()


def _size(thing: Any, seen: set[int]) -> int:
    """Bytes of a record and the records, sequences, bytes and arrays below it; each object counts once."""
    if id(thing) in seen or isinstance(thing, type):
        return 0
    seen.add(id(thing))
    total = sys.getsizeof(thing, 0)
    if isinstance(thing, (tuple, list, set, frozenset)):
        return total + sum(_size(x, seen) for x in thing)
    if isinstance(thing, dict):
        return total + sum(_size(k, seen) + _size(v, seen) for k, v in thing.items())
    if dataclasses.is_dataclass(thing):
        return total + sum(_size(getattr(thing, f.name, None), seen) for f in dataclasses.fields(thing))
    if type(thing).__module__.split(".")[0] in ("gett", "layouts"):
        slots = getattr(type(thing), "__slots__", ())
        parts = [getattr(thing, s, None) for s in ((slots,) if isinstance(slots, str) else slots)]
        return total + sum(_size(x, seen) for x in [*parts, *getattr(thing, "__dict__", {}).values()])
    return total


plan_cache = PlanCache()
