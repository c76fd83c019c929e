"""What the tests of the kernel cache share: keys, a payload of plain bytes, and the files of a directory."""

from __future__ import annotations

from pathlib import Path

from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key

KEY = cache_key({"name": "one"})
OTHER_KEY = cache_key({"name": "two"})
PAYLOAD = bytes(range(256)) * 3
LIMIT = 1 << 20


def entry_files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


def stored(directory: Path, key: bytes = KEY) -> Path:
    return directory / f"{key.hex()}.kernel"


def from_disk(directory: Path, key: bytes = KEY) -> bytes | None:
    """What a process that starts now would find."""
    return KernelCache(directory, LIMIT).get(key)
