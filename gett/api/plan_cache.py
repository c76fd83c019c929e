"""The plan cache: thread-safe, least recently used goes first, with counters.

Knows nothing of what it holds but a rough size.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections import OrderedDict
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
    """Plans by everything that they depend on: subscripts, layouts, dtypes, alignment, device, options."""

    __slots__ = ("_entries", "_hits", "_lock", "_maxsize", "_misses")

    def __init__(self, maxsize: int = DEFAULT_SIZE) -> None:
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._maxsize = maxsize
        self._hits = self._misses = 0

    def get(self, key: Hashable) -> Any:
        """The plan under a key, or None; counts a hit or a miss. TypeError if the key cannot be hashed."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._entries.move_to_end(key)
            return found

    def put(self, key: Hashable, plan: Any) -> Any:
        """Keep a plan; where another thread was first, its plan is kept and returned."""
        with self._lock:
            if self._maxsize == 0:
                return plan
            kept = self._entries.setdefault(key, plan)
            while len(self._entries) > self._maxsize:
                self._entries.popitem(last=False)
            return kept

    def info(self) -> CacheInfo:
        """Counters, sizes, and an estimate of the host memory that the plans hold."""
        with self._lock:
            entries = list(self._entries.items())
            hits, misses, maxsize = self._hits, self._misses, self._maxsize
        seen: set[int] = set()
        total = sum(_size(key, seen) + _size(plan, seen) for key, plan in entries)
        return CacheInfo(hits, misses, len(entries), maxsize, total)

    def discard(self, unwanted: Callable[[Any], bool]) -> int:
        """Forget the plans of which `unwanted` is true; returns how many."""
        with self._lock:
            keys = [key for key, plan in self._entries.items() if unwanted(plan)]
            for key in keys:
                del self._entries[key]
            return len(keys)

    def clear(self) -> None:
        """Forget all plans and counters."""
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0

    def resize(self, maxsize: int) -> None:
        """Hold at most `maxsize` plans (0: none) and drop the least recently used beyond that.

        Raises:
            OptionError: `maxsize` is no integer of at least 0.
        """
        if not isinstance(maxsize, int) or maxsize < 0:
            raise OptionError(f"the plan cache holds an integer number of plans of at least 0, not {maxsize!r}")
        with self._lock:
            self._maxsize = maxsize
            while len(self._entries) > maxsize:
                self._entries.popitem(last=False)


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
