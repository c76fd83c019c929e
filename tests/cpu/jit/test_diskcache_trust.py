"""Whom the kernel cache trusts: owners, modes and kinds of files."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from gett.errors import KernelCacheWarning
from gett.jit import cache_cli, directory, diskcache
from gett.jit.diskcache import KernelCache
from gett.jit.entries import pack_entry
from gett.jit.private import strangers
from tests.cpu.jit.cache_files import KEY, LIMIT, OTHER_KEY, PAYLOAD, entry_files, from_disk, stored

pytestmark = pytest.mark.usefixtures("fresh_cache")

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
        directory._warned = False
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
