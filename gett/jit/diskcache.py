"""The kernel cache: compiled kernels on disk, and in memory in front of it.

Owns the directory, its size, and what happens when disks fail or processes race. Contents are opaque bytes under a key
of 32 bytes; `entries.py` says what a file looks like, and what goes into a key is the compiler's to say.

A file is written under another name and renamed, so a reader sees a whole file or none; whatever is not exactly such a
file counts as absent and is written anew. Two processes that miss at once both build, and the later rename wins with
equal contents.

A kernel is machine code that this process will run, so it comes only from files that nobody else may have written
(`private.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gett.env import Environment, read_environment
from gett.errors import KernelCacheWarning
from gett.jit.entries import pack_entry, unpack_entry
from gett.jit.private import open_new, open_regular, strangers

_ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.kernel")
_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{64}\.\d+\.[0-9a-f]{16}\.tmp")
_STALE_SECONDS = 3600.0  # a file half written by a process that died; also how coarsely uses are recorded
_DISK_LOST = "kernels are kept in memory and compiled again by each process"
_ENTRY_LOST = "that kernel is compiled again"
_SCAN_EVERY = 64  # publications after which the directory is looked at again for what other processes wrote
_KEEP = 0.8  # share of the limit that pruning leaves, so that it is not due again at once
_MEMORY_LIMIT = 64 << 20

_warned = False
_warn_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the cache as a look at the directory found it; `used` is the time by which pruning goes."""

    path: Path
    size: int
    used: float
    unfinished: bool


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
        self.directory = directory
        self.limit = limit
        self._memory: OrderedDict[bytes, bytes] = OrderedDict()
        self._memory_bytes = 0
        self._lock = threading.Lock()
        self._building: dict[bytes, threading.Lock] = {}
        self._hits = [0, 0, 0]  # memory, disk, misses
        self._disk_bytes: int | None = None
        self._published = 0

    @property
    def distrust(self) -> str:
        """Why the directory is not used, who else may write it; empty where it is, or is still to be made."""
        try:
            return "" if self.directory is None else strangers(os.stat(self.directory))
        except OSError:  # whoever reads or writes there meets it again
            return ""

    def get(self, key: bytes) -> bytes | None:
        """Return the payload of `key`, or None."""
        payload = self._recall(key)
        if payload is not None:
            return payload
        payload = self._load(key)
        if payload is not None:
            self._remember(key, payload)
        with self._lock:
            self._hits[1 if payload is not None else 2] += 1
        return payload

    def put(self, key: bytes, payload: bytes) -> None:
        """Keep `payload` under `key`, in memory and on disk; an older entry is replaced."""
        self._remember(key, payload)
        self._publish(key, payload)

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
        files = self._scan()
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
            self._disk_bytes = None
        files = self._scan()
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)
        return sum(not file.unfinished for file in files)

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

    def _path(self, key: bytes) -> Path | None:
        return None if self.directory is None else self.directory / f"{key.hex()}.kernel"

    def _trusts_directory(self) -> bool:
        reason = self.distrust
        if reason:
            _warn(f"the kernel cache in {self.directory} is not used, since {reason}")
        return not reason

    def _load(self, key: bytes) -> bytes | None:
        path = self._path(key)
        if path is None or not self._trusts_directory():
            return None
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                reason = strangers(status)
                data = b"" if reason or status.st_size > self.limit else file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(f"cannot read the kernel cache in {self.directory} ({error})")
            return None
        if reason:
            _warn(f"the cached kernel {path} is not used, since {reason}", _ENTRY_LOST)
        age = time.time() - status.st_mtime
        payload = unpack_entry(key, data)
        if payload is not None and age > _STALE_SECONDS:
            # Access times are often switched off, so a use is recorded in the time by which pruning goes.
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def _publish(self, key: bytes, payload: bytes) -> None:
        path = self._path(key)
        data = pack_entry(key, payload)
        if path is None or len(data) > self.limit or not self._trusts_directory():
            return
        temporary = path.with_name(f".{key.hex()}.{os.getpid()}.{os.urandom(8).hex()}.tmp")
        failure: OSError | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_new(temporary) as file:
                file.write(data)
            # Another process may have pruned it, to keep the limit: then this kernel is not cached, and no more.
            with contextlib.suppress(FileNotFoundError):
                os.replace(temporary, path)
        except OSError as error:
            failure = error
        finally:
            # Gone already unless something failed, an interrupt included.
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if failure is not None:
            _warn(f"cannot write the kernel cache in {self.directory} ({failure})")
            return
        self._account(path, len(data))

    def _account(self, published: Path, size: int) -> None:
        """Count a publication, and prune when the limit is passed. The directory is read once in a while only."""
        with self._lock:
            self._published += 1
            if self._disk_bytes is not None:
                self._disk_bytes += size
            due = self._disk_bytes is None or self._disk_bytes > self.limit or self._published % _SCAN_EVERY == 0
        if due:
            total = self._prune(keep=published)
            with self._lock:
                self._disk_bytes = total

    def _prune(self, keep: Path) -> int:
        """Remove files if the limit is passed, and return the bytes left.

        What processes left unfinished goes first, then the entries used longest ago. A process that is still writing
        its file does without; where the limit is kept, files of an hour ago are nobody's any more.
        """
        files = sorted(self._scan(), key=lambda file: (not file.unfinished, file.used))
        total = sum(file.size for file in files)
        aim = total if total <= self.limit else _KEEP * self.limit
        oldest = time.time() - _STALE_SECONDS
        for file in files:
            stale = file.unfinished and file.used <= oldest
            if (total > aim or stale) and file.path != keep:
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
                total -= file.size
        return total

    def _scan(self) -> list[_File]:
        """Return the files in the directory that are the cache's, unfinished ones included."""
        found: list[_File] = []
        if self.directory is None:
            return found
        with contextlib.suppress(OSError), os.scandir(self.directory) as listing:
            for item in listing:
                unfinished = _TEMPORARY_NAME.fullmatch(item.name) is not None
                if not unfinished and _ENTRY_NAME.fullmatch(item.name) is None:
                    continue
                with contextlib.suppress(OSError):  # another process may have removed it
                    stat = item.stat(follow_symlinks=False)
                    found.append(_File(Path(item.path), stat.st_size, stat.st_mtime, unfinished))
        return found


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
        _warn("there is no home directory for the kernel cache")
    return directory


def default_directory(environment: Environment) -> Path | None:
    """Return `gett` in the user's cache directory, or None if the user has no home."""
    base = environment.xdg_cache_home
    if base is None and not sys.platform.startswith("linux"):
        with contextlib.suppress(ImportError):
            # On Linux it says what stands below, for 15 ms of import.
            from platformdirs import user_cache_path

            return user_cache_path("gett", appauthor=False)
    if base is None:
        base = Path(os.path.expanduser("~"), ".cache")
    return base / "gett" if base.is_absolute() else None


def _warn(reason: str, effect: str = _DISK_LOST) -> None:
    global _warned
    with _warn_lock:
        first, _warned = not _warned, True
    if first:
        warnings.warn(
            f"{reason}; {effect}. "
            "Set GETT_CACHE_DIR to a directory that you alone may write, or GETT_CACHE_DISABLE=1 for no cache on disk",
            KernelCacheWarning,
            stacklevel=4,
        )
