"""The kernel cache's bounds: on disk, in memory, and of files that a writer left unfinished."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import pytest

from gett.jit import diskcache
from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key, pack_entry
from tests.cpu.jit.cache_files import KEY, LIMIT, OTHER_KEY, PAYLOAD, entry_files, from_disk, stored

pytestmark = pytest.mark.usefixtures("fresh_cache")


def test_the_oldest_entries_go_when_the_limit_is_passed(tmp_path: Path) -> None:
    keys = [cache_key({"number": str(number)}) for number in range(12)]
    size = len(pack_entry(KEY, PAYLOAD))
    cache = KernelCache(tmp_path, 10 * size)
    now = time.time()
    for number, key in enumerate(keys[:10]):
        cache.put(key, PAYLOAD)
        os.utime(stored(tmp_path, key), (now, now - 10000 + number))
    (tmp_path / "README").write_text("not ours")
    assert cache.info().entries == 10
    # A use counts as a sign of youth, even where access times are off.
    assert from_disk(tmp_path, keys[0]) == PAYLOAD
    cache.put(keys[10], PAYLOAD)
    left = {path.name for path in entry_files(tmp_path)}
    assert stored(tmp_path, keys[0]).name in left
    assert stored(tmp_path, keys[10]).name in left
    assert stored(tmp_path, keys[1]).name not in left
    assert "README" in left
    assert cache.info().bytes == 8 * size


def test_an_entry_above_the_limit_stays_in_memory(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, 100)
    cache.put(KEY, PAYLOAD)
    assert (cache.get(KEY), entry_files(tmp_path)) == (PAYLOAD, [])


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskcache, "_MEMORY_LIMIT", 100)
    cache = KernelCache(None, LIMIT)
    cache.put(KEY, bytes(60))
    cache.put(OTHER_KEY, bytes(60))
    assert (cache.get(KEY), cache.get(OTHER_KEY)) == (None, bytes(60))
    assert cache.info().memory_bytes == 60


def test_stale_unfinished_files_are_swept_and_fresh_ones_stay(tmp_path: Path) -> None:
    stale = tmp_path / f".{KEY.hex()}.1.{'0' * 16}.tmp"
    fresh = tmp_path / f".{KEY.hex()}.2.{'0' * 16}.tmp"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (0, 0))
    cache = KernelCache(tmp_path, LIMIT)
    cache.put(KEY, PAYLOAD)
    assert entry_files(tmp_path) == sorted([fresh, stored(tmp_path)])
    assert cache.clear() == 1
    assert entry_files(tmp_path) == []


def test_unfinished_files_count_and_go_first_whatever_their_date(tmp_path: Path) -> None:
    size = len(pack_entry(KEY, PAYLOAD))
    cache = KernelCache(tmp_path, 10 * size)
    cache.put(KEY, PAYLOAD)
    dates = [time.time() - 60, time.time(), time.time() + 10**6]
    left_behind = [tmp_path / f".{KEY.hex()}.{number}.{'0' * 16}.tmp" for number in range(3)]
    for path, date in zip(left_behind, dates, strict=True):
        path.write_bytes(bytes(3 * size))
        os.utime(path, (date, date))
    assert (cache.info().entries, cache.info().bytes) == (1, 10 * size)
    another = KernelCache(tmp_path, 10 * size)  # of a process that has left nothing behind
    another.put(OTHER_KEY, PAYLOAD)
    # 11 of 10 are down to 8: the oldest goes, the entries stay.
    assert [path.exists() for path in left_behind] == [False, True, True]
    assert (another.info().entries, another.info().bytes) == (2, 8 * size)
    assert another.clear() == 2
    assert entry_files(tmp_path) == []


def test_a_writer_whose_file_was_pruned_has_not_cached_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_replace = os.replace

    def pruned(source: Path, target: Path) -> None:
        os.unlink(source)
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", pruned)
    cache = KernelCache(tmp_path, LIMIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get_or_build(KEY, lambda: PAYLOAD) == PAYLOAD
    assert cache.get(KEY) == PAYLOAD
    assert entry_files(tmp_path) == []
