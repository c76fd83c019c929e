"""The kernel cache: what it returns under damage, races and failing disks. Payloads are plain bytes; no compiler."""

from __future__ import annotations

import builtins
import errno
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from gett.env import Environment, read_environment
from gett.errors import KernelCacheWarning, OptionError
from gett.jit import cache_cli, diskcache, entries
from gett.jit.diskcache import KernelCache, default_directory, kernel_cache
from gett.jit.entries import cache_key, pack_entry, unpack_entry
from gett.jit.private import strangers

KEY = cache_key({"name": "one"})
OTHER_KEY = cache_key({"name": "two"})
PAYLOAD = bytes(range(256)) * 3
LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def _fresh_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskcache, "_warned", False)
    monkeypatch.setattr(diskcache, "_current", None)


def entry_files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


def stored(directory: Path, key: bytes = KEY) -> Path:
    return directory / f"{key.hex()}.kernel"


def from_disk(directory: Path, key: bytes = KEY) -> bytes | None:
    """What a process that starts now would find."""
    return KernelCache(directory, LIMIT).get(key)


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


def test_no_home_means_memory_and_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GETT_CACHE_DIR", "GETT_CACHE_DISABLE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does for a user without an entry
    with pytest.warns(KernelCacheWarning, match="home"):
        cache = kernel_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(KEY, PAYLOAD)
    assert (cache.directory, cache.get(KEY)) == (None, PAYLOAD)


def test_the_default_directory_is_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from platformdirs import user_cache_path

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_directory(read_environment()) == user_cache_path("gett", appauthor=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory(read_environment()) == user_cache_path("gett", appauthor=False)


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


# --- whom the cache trusts

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX's")


@POSIX
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o722])
def test_a_directory_that_others_may_write_is_neither_read_nor_written(tmp_path: Path, mode: int) -> None:
    KernelCache(tmp_path, LIMIT).put(KEY, PAYLOAD)
    tmp_path.chmod(mode)
    cache = KernelCache(tmp_path, LIMIT)
    with pytest.warns(KernelCacheWarning, match=f"others may write there .mode {mode:04o}.*kept in memory"):
        assert cache.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning a process
        assert cache.get_or_build(OTHER_KEY, lambda: b"other") == b"other"
    assert cache.get(OTHER_KEY) == b"other"
    assert entry_files(tmp_path) == [stored(tmp_path)]
    tmp_path.chmod(0o755)
    assert from_disk(tmp_path) == PAYLOAD


@POSIX
def test_this_user_and_root_are_trusted_and_nobody_else() -> None:
    def reason(user: int, mode: int) -> str:
        return strangers(os.stat_result((mode, 0, 0, 1, user, 0, 0, 0, 0, 0)))

    for user in (os.geteuid(), 0):
        assert reason(user, 0o40755) == ""
        assert reason(user, 0o40775) == "others may write there (mode 0775)"
    assert reason(os.geteuid() + 7, 0o40700) == f"it belongs to another user ({os.geteuid() + 7})"


@POSIX
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root gives files away")
def test_a_directory_and_an_entry_of_another_user_are_not_read(tmp_path: Path) -> None:
    for given in (tmp_path, stored(tmp_path)):
        KernelCache(tmp_path, LIMIT).put(KEY, PAYLOAD)
        os.chown(given, 4242, -1)
        diskcache._warned = False
        with pytest.warns(KernelCacheWarning, match=r"another user .4242"):
            assert from_disk(tmp_path) is None
        os.chown(given, 0, -1)
        assert from_disk(tmp_path) == PAYLOAD


@POSIX
@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_an_entry_that_others_may_write_is_built_anew(tmp_path: Path, mode: int) -> None:
    KernelCache(tmp_path, LIMIT).put(KEY, b"not what was compiled")
    stored(tmp_path).chmod(mode)
    with pytest.warns(KernelCacheWarning, match="others may write there.*compiled again"):
        assert KernelCache(tmp_path, LIMIT).get_or_build(KEY, lambda: PAYLOAD) == PAYLOAD
    assert from_disk(tmp_path) == PAYLOAD


@POSIX
def test_what_the_cache_makes_it_trusts_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        KernelCache(tmp_path / "new", LIMIT).put(KEY, PAYLOAD)
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert stored(tmp_path / "new").stat().st_mode & 0o022 == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_disk(tmp_path / "new") == PAYLOAD


READER = """
import sys
from pathlib import Path
from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key
cache = KernelCache(Path(sys.argv[1]), 1 << 30)
assert cache.get_or_build(cache_key({"name": "one"}), lambda: b"built") == b"built"
"""


@POSIX
@pytest.mark.parametrize("kind", ["fifo", "link", "endless"])
def test_only_regular_files_of_the_cache_s_size_are_read(tmp_path: Path, kind: str) -> None:
    directory, path = tmp_path / "cache", stored(tmp_path / "cache")
    directory.mkdir(mode=0o700)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(pack_entry(KEY, PAYLOAD))
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.touch()
        os.truncate(path, 1 << 42)  # takes no room on disk
    command = [sys.executable, "-W", "error", "-c", READER, str(directory)]
    # Another process: a FIFO without a writer would hold this one up for ever.
    done = subprocess.run(command, cwd=Path(diskcache.__file__).parents[2], timeout=60, check=False)
    assert done.returncode == 0
    assert from_disk(directory) == b"built"


@POSIX
def test_schedules_are_kept_in_memory_where_the_cache_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gett.tune.store import schedule_store

    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    assert schedule_store().directory == tmp_path / "schedules"
    tmp_path.chmod(0o777)
    monkeypatch.setattr(diskcache, "_current", None)
    assert schedule_store().directory is None
    assert cache_cli([]) == 0
    assert "not used   others may write there (mode 0777)" in capsys.readouterr().out


def test_info_counts(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, LIMIT)
    cache.get_or_build(KEY, lambda: PAYLOAD)
    cache.get_or_build(KEY, lambda: PAYLOAD)
    second = KernelCache(tmp_path, LIMIT)
    second.get_or_build(KEY, lambda: b"never built")
    counts = [(info.memory_hits, info.disk_hits, info.misses) for info in (cache.info(), second.info())]
    assert counts == [(1, 0, 1), (0, 1, 0)]
    assert second.info().bytes == stored(tmp_path).stat().st_size


def test_threads_that_ask_at_once_build_once(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, LIMIT)
    start = threading.Barrier(8)
    builds: list[int] = []
    results: list[bytes] = []

    def build() -> bytes:
        builds.append(1)
        time.sleep(0.05)
        return PAYLOAD

    def ask() -> None:
        start.wait()
        results.append(cache.get_or_build(KEY, build))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(builds), results) == (1, [PAYLOAD] * 8)


def test_a_build_that_fails_is_tried_again(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, LIMIT)

    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get_or_build(KEY, fail)
    assert cache.get_or_build(KEY, lambda: PAYLOAD) == PAYLOAD


WRITER = """
import sys, time
from pathlib import Path
from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key
directory, go = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.0005)
for number in range(200):
    key = cache_key({"number": str(number % 5)})
    payload = bytes([number % 5]) * 20000
    cache = KernelCache(directory, 1 << 30)
    found = cache.get(key)
    assert found in (None, payload), number
    cache.put(key, payload)
"""


def test_two_processes_that_write_the_same_keys_never_see_half_a_file(tmp_path: Path) -> None:
    directory, go = tmp_path / "cache", tmp_path / "go"
    command = [sys.executable, "-W", "error", "-c", WRITER, str(directory), str(go)]
    root = Path(diskcache.__file__).parents[2]
    processes = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(entry_files(directory)) == 5
    for number in range(5):
        assert from_disk(directory, cache_key({"number": str(number)})) == bytes([number]) * 20000


def test_the_processs_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path / "one"))
    monkeypatch.setenv("GETT_CACHE_LIMIT", "2k")
    cache = kernel_cache()
    assert cache is kernel_cache()
    assert (cache.directory, cache.limit) == (tmp_path / "one", 2048)
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path / "two"))
    assert kernel_cache().directory == tmp_path / "two"
    monkeypatch.setenv("GETT_CACHE_DISABLE", "1")
    assert kernel_cache().directory is None


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("2K", 2048), ("1.5 MiB", 3 << 19), ("3GB", 3 << 30), ("", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert read_environment({"GETT_CACHE_LIMIT": text}).cache_limit == size


@pytest.mark.parametrize(("name", "value"), [("GETT_CACHE_LIMIT", "much"), ("GETT_CACHE_DISABLE", "perhaps")])
def test_values_that_make_no_sense_are_named(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name}.*{value}"):
        read_environment({name: value})


def test_the_environment_is_typed() -> None:
    assert read_environment({}) == Environment()
    settings = read_environment({"GETT_NVRTC": "/opt/nvrtc", "XDG_CACHE_HOME": "relative", "GETT_CACHE_DISABLE": "no"})
    assert settings == Environment(nvrtc=Path("/opt/nvrtc"))


def test_the_command_shows_and_clears(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("GETT_CACHE_LIMIT", "1M")
    kernel_cache().put(KEY, PAYLOAD)
    assert cache_cli([]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path) in shown
    assert "entries    1\n" in shown
    assert f"{stored(tmp_path).stat().st_size:,} " in shown
    assert f"{1 << 20:,} " in shown
    assert cache_cli(["--clear"]) == 0
    assert "removed 1 kernel from" in capsys.readouterr().out
    assert entry_files(tmp_path) == []
    monkeypatch.setenv("GETT_CACHE_DISABLE", "1")
    assert cache_cli([]) == 0
    assert "GETT_CACHE_DISABLE" in capsys.readouterr().out
