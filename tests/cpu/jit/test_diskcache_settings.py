"""The kernel cache's directory and limit, by environment, and the command that shows it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from gett.env import Environment, read_environment
from gett.errors import KernelCacheWarning, OptionError
from gett.jit import cache_cli
from gett.jit.diskcache import default_directory, kernel_cache
from tests.cpu.jit.cache_files import KEY, PAYLOAD, entry_files, stored

pytestmark = pytest.mark.usefixtures("fresh_cache")


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


def test_an_empty_home_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python makes the root of the file system of it."""
    for name in ("GETT_CACHE_DIR", "GETT_CACHE_DISABLE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    assert default_directory(read_environment()) is None
    assert default_directory(read_environment({"XDG_CACHE_HOME": "~/cache"})) is None
    assert default_directory(read_environment({"XDG_CACHE_HOME": "/cache"})) == Path("/cache/gett")
    with pytest.warns(KernelCacheWarning, match="no home directory"):
        cache = kernel_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(KEY, PAYLOAD)
    assert (cache.directory, cache.get(KEY)) == (None, PAYLOAD)
    for name in ("GETT_CACHE_DIR", "GETT_NVRTC"):
        with pytest.raises(OptionError, match=f"{name}='~/x' names a home directory that there is not"):
            read_environment({name: "~/x"})
    monkeypatch.setenv("HOME", "/home/of/somebody")
    assert read_environment({"GETT_CACHE_DIR": "~/x"}).cache_dir == Path("/home/of/somebody/x")
    with pytest.raises(OptionError, match="names a home directory that there is not"):
        read_environment({"GETT_CACHE_DIR": "~nobody-of-this-name/x"})


def test_the_default_directory_is_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from platformdirs import user_cache_path

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_directory(read_environment()) == user_cache_path("gett", appauthor=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory(read_environment()) == user_cache_path("gett", appauthor=False)


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


@pytest.mark.parametrize(
    ("name", "value"), [("GETT_CACHE_LIMIT", "much"), ("GETT_CACHE_DISABLE", "perhaps"), ("GETT_SHARED_FIRST", "later")]
)
def test_values_that_make_no_sense_are_named(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name}.*{value}"):
        read_environment({name: value})


def test_the_environment_is_typed() -> None:
    assert read_environment({}) == Environment()
    settings = read_environment({"GETT_NVRTC": "/opt/nvrtc", "XDG_CACHE_HOME": "relative", "GETT_CACHE_DISABLE": "no"})
    assert settings == Environment(nvrtc=Path("/opt/nvrtc"))
    assert [read_environment({"GETT_SHARED_FIRST": x}).shared_first for x in ("", "1", "0")] == [True, True, False]


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
