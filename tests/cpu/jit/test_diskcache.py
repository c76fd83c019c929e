"""The kernel cache: what it returns, also under damage and failing disks. Payloads are plain bytes; no compiler."""

from __future__ import annotations

import builtins
import errno
import os
import warnings
from pathlib import Path

import pytest

from gett.errors import KernelCacheWarning
from gett.jit import entries
from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key, pack_entry, unpack_entry
from tests.cpu.jit.cache_files import KEY, LIMIT, OTHER_KEY, PAYLOAD, entry_files, from_disk, stored

pytestmark = pytest.mark.usefixtures("fresh_cache")


def test_a_payload_comes_back_in_this_and_in_another_cache(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "a" / "b", LIMIT)
    assert cache.get(KEY) is None
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD
    assert from_disk(tmp_path / "a" / "b") == PAYLOAD
    assert cache.get(OTHER_KEY) is None
    assert entry_files(tmp_path / "a" / "b") == [stored(tmp_path / "a" / "b")]


def test_an_empty_payload_is_a_payload(tmp_path: Path) -> None:
    KernelCache(tmp_path, LIMIT).put(KEY, b"")
    assert from_disk(tmp_path) == b""


def test_every_truncation_is_absent() -> None:
    data = pack_entry(KEY, PAYLOAD)
    assert unpack_entry(KEY, data) == PAYLOAD
    assert all(unpack_entry(KEY, data[:length]) is None for length in range(len(data)))
    assert unpack_entry(KEY, data + b"\0") is None


def test_every_flipped_byte_is_absent() -> None:
    data = pack_entry(KEY, PAYLOAD)
    for index in range(len(data)):
        broken = bytearray(data)
        broken[index] ^= 0x10
        assert unpack_entry(KEY, bytes(broken)) is None, index


def test_another_schema_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack_entry(KEY, PAYLOAD)
    monkeypatch.setattr(entries, "SCHEMA", entries.SCHEMA + 1)
    assert unpack_entry(KEY, data) is None
    assert cache_key({"name": "one"}) != KEY


HEADER_BYTES = len(pack_entry(KEY, b""))


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"\x7fELF",
        pack_entry(KEY, PAYLOAD)[:20],
        pack_entry(KEY, PAYLOAD)[:HEADER_BYTES],
        pack_entry(KEY, PAYLOAD)[:-1],
        pack_entry(OTHER_KEY, PAYLOAD),
        b"x" * 5000,
    ],
    ids=["empty", "elf", "in-header", "header-only", "one-short", "wrong-key", "foreign"],
)
def test_a_bad_file_is_rebuilt_and_replaced(tmp_path: Path, contents: bytes) -> None:
    stored(tmp_path).write_bytes(contents)
    assert from_disk(tmp_path) is None
    builds: list[int] = []

    def build() -> bytes:
        builds.append(1)
        return PAYLOAD

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(tmp_path, LIMIT).get_or_build(KEY, build) == PAYLOAD
    assert len(builds) == 1
    assert from_disk(tmp_path) == PAYLOAD


def test_keys_depend_on_labels_values_and_where_they_part() -> None:
    fields: list[dict[str, str | bytes]] = [
        {},
        {"a": "bc"},
        {"ab": "c"},
        {"a": "b", "c": ""},
        {"a": "", "b": "c"},
        {"a": "c", "b": ""},
        {"b": "c", "a": ""},
    ]
    keys = [cache_key(field) for field in fields]
    assert len(set(keys)) == len(keys)
    assert cache_key({"a": "bc"}) == cache_key({"a": b"bc"})


def test_a_path_below_a_regular_file_warns_once_and_keeps_kernels_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = KernelCache(tmp_path / "file" / "cache", LIMIT)
    with pytest.warns(KernelCacheWarning, match="GETT_CACHE_DIR"):
        cache.put(OTHER_KEY, b"other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get_or_build(KEY, lambda: PAYLOAD) == PAYLOAD
    assert cache.get(OTHER_KEY) == b"other"
    assert cache.get(KEY) == PAYLOAD
    assert cache.info().entries == 0


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_failing_rename_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    cache = KernelCache(tmp_path, LIMIT)
    with pytest.warns(KernelCacheWarning, match=os.strerror(code)):
        cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD
    assert entry_files(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_breaks_off_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    real_open = builtins.open

    class Breaking:
        def __init__(self, path: object) -> None:
            self._file = real_open(path, "xb")  # type: ignore[call-overload]

        def __enter__(self) -> Breaking:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            assert len(entry_files(tmp_path)) == 1
            raise error

    def breaking_open(path: object, mode: str = "r", *args: object, **options: object) -> object:
        return Breaking(path) if mode == "xb" else real_open(path, mode, *args, **options)  # type: ignore[call-overload]

    cache = KernelCache(tmp_path, LIMIT)
    monkeypatch.setattr(builtins, "open", breaking_open)
    if isinstance(error, OSError):
        with pytest.warns(KernelCacheWarning, match="No space"):
            cache.put(KEY, PAYLOAD)
    else:
        with pytest.raises(KeyboardInterrupt):
            cache.put(KEY, PAYLOAD)
    monkeypatch.undo()
    assert entry_files(tmp_path) == []
    assert cache.get(KEY) == PAYLOAD


def test_info_counts(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, LIMIT)
    cache.get_or_build(KEY, lambda: PAYLOAD)
    cache.get_or_build(KEY, lambda: PAYLOAD)
    second = KernelCache(tmp_path, LIMIT)
    second.get_or_build(KEY, lambda: b"never built")
    counts = [(info.memory_hits, info.disk_hits, info.misses) for info in (cache.info(), second.info())]
    assert counts == [(1, 0, 1), (0, 1, 0)]
    assert second.info().bytes == stored(tmp_path).stat().st_size
