"""The environment variables that gett reads: their names, their types and their defaults, in this one place.

Owns also how a size is written, here and in options.

Read when they are needed, not at import, so that a program may set them first. Knows nothing of what they steer.

| Variable | Type | Meaning |
|---|---|---|
| `GETT_CACHE_DIR` | path | Directory of the cache of kernels and schedules; default: the user's cache directory. |
| `GETT_CACHE_DISABLE` | flag | Keep compiled kernels in memory only. |
| `GETT_CACHE_LIMIT` | bytes, or `500M`, `2GiB` | Size above which the oldest entries go; default 1 GiB. |
| `GETT_PRECISION` | name | How products are formed where a call does not say, such as `ieee`. |
| `GETT_MEMORY_LIMIT` | size, or share such as `0.5` | `memory_limit=` of calls that give none. |
| `GETT_PROGRESS` | flag | Whether progress bars are shown; default: where stderr is a terminal. |
| `GETT_SHARED_FIRST` | flag | Whether shared kernels make a plan's steps until its own are compiled; default: yes. |
| `GETT_NVRTC` | path | The NVRTC library to use (`libnvrtc.so.*`), instead of searching for one. |
| `XDG_CACHE_HOME` | path | Base of the user's cache directory. |
| `HOME` | path | Holds `.cache`, the base where that is not set; without a home kernels are kept in memory. |

cuda-pathfinder, which finds NVRTC and headers, reads more: `CONDA_PREFIX`, `CUDA_PATH`, `CUDA_HOME`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gett.console.progress import on_terminal
from gett.errors import OptionError

DEFAULT_CACHE_LIMIT = 1 << 30
MOST_BYTES = (1 << 63) - 1
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class Environment:
    """One reading of the variables above.

    Attributes:
        cache_dir: `GETT_CACHE_DIR`, absolute, `~` expanded; None if unset.
        cache_disable: `GETT_CACHE_DISABLE`.
        cache_limit: `GETT_CACHE_LIMIT` in bytes.
        memory_limit: `GETT_MEMORY_LIMIT`; None if unset.
        nvrtc: `GETT_NVRTC`; None if unset.
        precision: `GETT_PRECISION`; None if unset.
        progress: `GETT_PROGRESS`; None if unset.
        shared_first: `GETT_SHARED_FIRST`.
        xdg_cache_home: `XDG_CACHE_HOME` if absolute (the XDG specification says to ignore any other); else None.
    """

    cache_dir: Path | None = None
    cache_disable: bool = False
    cache_limit: int = DEFAULT_CACHE_LIMIT
    memory_limit: str | None = None
    nvrtc: Path | None = None
    precision: str | None = None
    progress: bool | None = None
    shared_first: bool = True
    xdg_cache_home: Path | None = None


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Return the settings in `variables`, by default the process's environment.

    Raises:
        OptionError: A variable has a value that it does not take; the text names both.
    """
    source = os.environ if variables is None else variables
    xdg = Path(_expanded(source, "XDG_CACHE_HOME"))
    return Environment(
        cache_dir=_path(source, "GETT_CACHE_DIR"),
        cache_disable=_flag(source, "GETT_CACHE_DISABLE"),
        cache_limit=_size(source, "GETT_CACHE_LIMIT", DEFAULT_CACHE_LIMIT),
        memory_limit=source.get("GETT_MEMORY_LIMIT", "").strip() or None,
        nvrtc=_path(source, "GETT_NVRTC"),
        precision=source.get("GETT_PRECISION", "").strip() or None,
        progress=_flag(source, "GETT_PROGRESS") if source.get("GETT_PROGRESS", "").strip() else None,
        shared_first=_flag(source, "GETT_SHARED_FIRST") if source.get("GETT_SHARED_FIRST", "").strip() else True,
        xdg_cache_home=xdg if xdg.is_absolute() else None,
    )


def shows_progress() -> bool:
    """Whether work that nobody asked to see progress of shows it: as `GETT_PROGRESS` says, else on a terminal.

    Raises:
        OptionError: A variable has a value that it does not take.
    """
    asked = read_environment().progress
    return on_terminal() if asked is None else asked


def has_home() -> bool:
    """Whether `~` stands for a directory: an empty `HOME` would make it the root of the file system."""
    return os.path.expanduser("~") != "~" and (os.name != "posix" or os.environ.get("HOME") != "")


def _path(source: Mapping[str, str], name: str) -> Path | None:
    text = _expanded(source, name)
    if text.startswith("~"):
        raise OptionError(f"{name}={source[name]!r} names a home directory that there is not: give an absolute path")
    return Path(os.path.abspath(text)) if text else None


def _expanded(source: Mapping[str, str], name: str) -> str:
    """A path with `~` expanded where there is such a home directory."""
    text = source.get(name, "").strip()
    own = text == "~" or text.startswith(("~/", f"~{os.sep}"))
    return text if own and not has_home() else os.path.expanduser(text)


def _flag(source: Mapping[str, str], name: str) -> bool:
    text = source.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise OptionError(f"{name}={source[name]!r} is no flag: set it to 1 or 0")


def _size(source: Mapping[str, str], name: str, default: int) -> int:
    text = source.get(name, "").strip()
    return parse_size(text, name) if text else default


def parse_size(text: str, name: str) -> int:
    """Bytes of a size as text: `"500M"`, `"1.5 GiB"`, `"2e9"`. Units are powers of 1024, with or without `B` or `iB`.

    Args:
        text: The size; white space and case do not matter.
        name: The option or variable, for messages.

    Raises:
        OptionError: It is no size, or more than 2^63 - 1 bytes.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\+?\d{1,3})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise OptionError(f"{name}={text[:40]!r} is no size: give bytes, or a number with a unit, such as 500M or 2GiB")
    size = float(match[1]) * (1 << _UNITS[match[2]])
    if size > MOST_BYTES:
        raise OptionError(f"{name}={text[:40]!r} is too large; the most is {MOST_BYTES} bytes")
    return int(size)
