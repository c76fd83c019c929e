"""The directory of the kernel cache: files of entries, their bytes, and what happens when disks fail or processes race.

Contents are opaque bytes under a key of 32 bytes; `entries.py` says what a file looks like.

A file is written under another name and renamed, so a reader sees a whole file or none. Whatever is not exactly such a
file counts as absent and is written anew. Two processes that miss at once both build, and the later rename wins with
equal contents.

A kernel is machine code that this process will run, so it comes only from files that nobody else may have written
(`private.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

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

_warned = False
_warn_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class CacheFile:
    """A file of the cache as a look at the directory found it; `used` is the time by which pruning goes."""

    path: Path
    size: int
    used: float
    unfinished: bool


class CacheDirectory:
    """Payloads by key in files. Safe for threads and for processes.

    A disk that cannot be read or written, or that others may write, costs one `KernelCacheWarning` a process.

    Args:
        path: Made when first needed; None for no files at all.
        limit: Bytes above which the oldest entries go.
    """

    def __init__(self, path: Path | None, limit: int) -> None:
        self.path = path
        self.limit = limit
        self._lock = threading.Lock()
        self._bytes: int | None = None
        self._published = 0

    @property
    def distrust(self) -> str:
        """Why the directory is not used, who else may write it; empty where it is, or is still to be made."""
        try:
            return "" if self.path is None else strangers(os.stat(self.path))
        except OSError:  # whoever reads or writes there meets it again
            return ""

    def load(self, key: bytes) -> bytes | None:
        """Return the payload of `key`, or None."""
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
            warn(f"cannot read the kernel cache in {self.path} ({error})")
            return None
        if reason:
            warn(f"the cached kernel {path} is not used, since {reason}", _ENTRY_LOST)
        age = time.time() - status.st_mtime
        payload = unpack_entry(key, data)
        if payload is not None and age > _STALE_SECONDS:
            # Access times are often switched off, so a use is recorded in the time by which pruning goes.
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def publish(self, key: bytes, payload: bytes) -> None:
        """Write `payload` under `key`, unless it is larger than the limit; an older entry is replaced."""
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
            warn(f"cannot write the kernel cache in {self.path} ({failure})")
            return
        self._account(path, len(data))

    def clear(self) -> int:
        """Remove every entry and return how many there were. Other files stay.

        Raises:
            OSError: An entry cannot be removed.
        """
        with self._lock:
            self._bytes = None
        files = self.scan()
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)
        return sum(not file.unfinished for file in files)

    def scan(self) -> list[CacheFile]:
        """Return the files in the directory that are the cache's, unfinished ones included."""
        found: list[CacheFile] = []
        if self.path is None:
            return found
        with contextlib.suppress(OSError), os.scandir(self.path) as listing:
            for item in listing:
                unfinished = _TEMPORARY_NAME.fullmatch(item.name) is not None
                if not unfinished and _ENTRY_NAME.fullmatch(item.name) is None:
                    continue
                with contextlib.suppress(OSError):  # another process may have removed it
                    stat = item.stat(follow_symlinks=False)
                    found.append(CacheFile(Path(item.path), stat.st_size, stat.st_mtime, unfinished))
        return found

    def _path(self, key: bytes) -> Path | None:
        return None if self.path is None else self.path / f"{key.hex()}.kernel"

    def _trusts_directory(self) -> bool:
        reason = self.distrust
        if reason:
            warn(f"the kernel cache in {self.path} is not used, since {reason}")
        return not reason

    def _account(self, published: Path, size: int) -> None:
        """Count a publication, and prune when the limit is passed. The directory is read once in a while only."""
        with self._lock:
            self._published += 1
            if self._bytes is not None:
                self._bytes += size
            due = self._bytes is None or self._bytes > self.limit or self._published % _SCAN_EVERY == 0
        if due:
            total = self._prune(keep=published)
            with self._lock:
                self._bytes = total

    def _prune(self, keep: Path) -> int:
        """Remove files if the limit is passed, and return the bytes left.

        What processes left unfinished goes first, then the entries used longest ago. A process that is still writing
        its file does without; where the limit is kept, files of an hour ago are nobody's any more.
        """
        files = sorted(self.scan(), key=lambda file: (not file.unfinished, file.used))
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


def warn(reason: str, effect: str = _DISK_LOST) -> None:
    """Warn of the first trouble of a process with its cache."""
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
