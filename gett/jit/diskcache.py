"""The kernel cache: compiled kernels on disk, and in memory in front of it.

Owns what is in memory, who builds what is absent, and the cache of the process. Files are `directory.py`'s; what goes
into a key is the compiler's to say.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gett.env import Environment, has_home, read_environment
from gett.jit.directory import CacheDirectory, warn

_MEMORY_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class KernelCacheInfo:
    """A look at the cache.

    Attributes:
        directory: On disk; None if kernels are kept in memory only.
        entries: On disk.
        bytes: On disk, unfinished files included.
        limit: Bytes on disk above which the oldest entries go.
        memory_entries, memory_bytes: Of this process.
        memory_hits, disk_hits, misses: Of this process, since it started.
    """

    directory: Path | None
    entries: int
    bytes: int
    limit: int
    memory_entries: int
    memory_bytes: int
    memory_hits: int
    disk_hits: int
    misses: int


class KernelCache:
    """Kernels by key: in memory, then on disk. Safe for threads and for processes.

    A disk that cannot be read or written, or that others may write, costs one `KernelCacheWarning` a process; the
    memory part goes on.

    Args:
        directory: Made when first needed; None to keep kernels in memory only.
        limit: Bytes on disk.
    """

    def __init__(self, directory: Path | None, limit: int) -> None:
        self._disk = CacheDirectory(directory, limit)
        self._memory: OrderedDict[bytes, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._lock = threading.Lock()
        self._building: dict[bytes, threading.Lock] = {}
        self._hits = [0, 0, 0]  # memory, disk, misses

    @property
    def directory(self) -> Path | None:
        """On disk; None if kernels are kept in memory only."""
        return self._disk.path

    @property
    def limit(self) -> int:
        """Bytes on disk above which the oldest entries go."""
        return self._disk.limit

    @property
    def distrust(self) -> str:
        """Why the directory is not used, who else may write it; empty where it is, or is still to be made."""
        return self._disk.distrust

    def get(self, key: bytes) -> bytes | None:
        """Return the payload of `key`, or None."""
        payload = self._recall(key)
        if payload is not None:
            return payload
        payload = self._disk.load(key)
        if payload is not None:
            self._remember(key, payload)
        with self._lock:
            self._hits[1 if payload is not None else 2] += 1
        return payload

    def put(self, key: bytes, payload: bytes) -> None:
        """Keep `payload` under `key`, in memory and on disk; an older entry is replaced."""
        self._remember(key, payload)
        self._disk.publish(key, payload)

    def get_or_build(self, key: bytes, build: Callable[[], bytes]) -> bytes:
        """Return the payload of `key`, from `build` if there is none.

        Threads that ask for one key at once wait for one build. If it raises, each of them tries for itself.
        """
        payload = self._recall(key)
        if payload is not None:
            return payload
        with self._lock:
            turn = self._building.setdefault(key, threading.Lock())
        try:
            with turn:
                payload = self.get(key)
                if payload is None:
                    payload = build()
                    self.put(key, payload)
                return payload
        finally:
            with self._lock:
                self._building.pop(key, None)

    def info(self) -> KernelCacheInfo:
        """Return what the cache holds and how it did."""
        files = self._disk.scan()
        with self._lock:
            return KernelCacheInfo(
                self.directory,
                sum(not file.unfinished for file in files),
                sum(file.size for file in files),
                self.limit,
                len(self._memory),
                self._memory_bytes,
                *self._hits,
            )

    def clear(self) -> int:
        """Remove every entry, in memory and on disk, and return how many were on disk. Other files stay.

        Raises:
            OSError: An entry cannot be removed.
        """
        with self._lock:
            self._memory.clear()
            self._memory_bytes = 0
        return self._disk.clear()

    def _recall(self, key: bytes) -> bytes | None:
        with self._lock:
            payload = self._memory.get(key)
            if payload is not None:
                self._memory.move_to_end(key)
                self._hits[0] += 1
            return payload

    def _remember(self, key: bytes, payload: bytes) -> None:
        with self._lock:
            self._memory_bytes += len(payload) - len(self._memory.pop(key, b""))
            self._memory[key] = payload
            while self._memory_bytes > _MEMORY_LIMIT and len(self._memory) > 1:
                _, old = self._memory.popitem(last=False)
                self._memory_bytes -= len(old)


_current: tuple[Environment, KernelCache] | None = None
_current_lock = threading.Lock()


def kernel_cache() -> KernelCache:
    """Return the process's cache, as the environment says now; a change of the environment starts another.

    Raises:
        OptionError: A variable of `gett.env` has a value that it does not take.
    """
    global _current
    environment = read_environment()
    with _current_lock:
        if _current is None or _current[0] != environment:
            _current = (environment, KernelCache(_directory(environment), environment.cache_limit))
        return _current[1]


def _directory(environment: Environment) -> Path | None:
    if environment.cache_disable:
        return None
    if environment.cache_dir is not None:
        return environment.cache_dir
    directory = default_directory(environment)
    if directory is None:
        warn("there is no home directory for the kernel cache")
    return directory


def default_directory(environment: Environment) -> Path | None:
    """Return `gett` in the user's cache directory, or None if the user has no home."""
    base = environment.xdg_cache_home
    if base is None and not has_home():
        return None
    if base is None and not sys.platform.startswith("linux"):
        with contextlib.suppress(ImportError):
            # On Linux it says what stands below, for 15 ms of import.
            from platformdirs import user_cache_path

            return user_cache_path("gett", appauthor=False)
    if base is None:
        base = Path(os.path.expanduser("~"), ".cache")
    return base / "gett" if base.is_absolute() else None
