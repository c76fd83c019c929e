"""Finds NVRTC's library and CUDA's headers on this machine, without loading the library where that can be avoided.

Owns the search order and the fingerprint by which a compiler enters cache keys. Loading a cached kernel must not cost
the mapping of a library of 100 MB, so the fingerprint is read from the file. Knows neither kernels nor caches.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gett.env import Environment, read_environment
from gett.errors import MissingPackageError

INSTALL_HINT = "install it with `pip install gett[cuda13]` (or `gett[cuda12]` for a CUDA 12 driver)"
_HEADERS = ("cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp")
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A compiler and its headers.

    Attributes:
        library: Path of NVRTC, or the bare name by which the dynamic loader knows it.
        builtins: NVRTC's companion library, to be loaded first; None if the loader finds it by itself.
        include: Directory that holds `cuda_fp16.h`; None if there is none.
        fingerprint: Differs whenever NVRTC or those headers differ. Does not depend on where they are.
    """

    library: str
    builtins: Path | None
    include: Path | None
    fingerprint: str


def find_toolkit() -> Toolkit:
    """Return the compiler to use: `GETT_NVRTC`, else Python packages, a CUDA toolkit, the loader's own search.

    Python packages come first because they are the versions that the installation chose together.

    Raises:
        MissingPackageError: There is no NVRTC, or `GETT_NVRTC` names no file.
    """
    return _find(read_environment())


@lru_cache(maxsize=8)
def _find(environment: Environment) -> Toolkit:
    if environment.nvrtc is not None:
        if not os.path.isfile(environment.nvrtc):
            raise MissingPackageError(f"GETT_NVRTC names no file: {environment.nvrtc}; unset it, or {INSTALL_HINT}")
        return _describe(environment.nvrtc, environment)
    for directory in _library_directories(environment):
        library = _newest(directory)
        if library is not None:
            return _describe(library, environment)
    name = _by_pathfinder()
    if name is not None:
        return _describe(Path(name), environment)
    for name in _SONAMES:
        if _loadable(name):
            include = _include_directory((), environment)
            return Toolkit(name, None, include, f"{name}|{_header_fingerprint(include)}")
    raise MissingPackageError(f"compiling kernels needs NVRTC (libnvrtc), which was not found; {INSTALL_HINT}")


def _describe(library: Path, environment: Environment) -> Toolkit:
    companions = [
        path for path in sorted(library.parent.glob("libnvrtc-builtins.so.*")) if _version(path, "libnvrtc-builtins.so")
    ]
    builtins = max(companions, key=lambda path: _version(path, "libnvrtc-builtins.so"), default=None)
    # Wheels put headers beside `lib` (CUDA 13) or into a sibling package (CUDA 12); toolkits beside `lib64`, or for
    # `targets/<platform>/lib` beside that.
    near = (library.parent.parent / "include", library.parent.parent.parent / "cuda_runtime" / "include")
    include = _include_directory(near, environment)
    size = library.stat().st_size
    # The first page holds the ELF program headers and the build id, which the linker makes from all of the contents.
    with open(library, "rb") as file:
        head = hashlib.blake2b(file.read(4096), digest_size=16).hexdigest()
    companion = builtins.name if builtins is not None else "-"
    return Toolkit(str(library), builtins, include, f"{size}|{head}|{companion}|{_header_fingerprint(include)}")


def _wheel_roots() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")  # a namespace package: finding it imports nothing
    return [Path(root) for root in (spec.submodule_search_locations or ())] if spec is not None else []


def _toolkit_roots(environment: Environment) -> Iterator[Path]:
    if environment.cuda_home is not None:
        yield environment.cuda_home
    yield Path("/usr/local/cuda")


def _library_directories(environment: Environment) -> Iterator[Path]:
    for root in _wheel_roots():
        yield root / "cu13" / "lib"
        yield root / "cuda_nvrtc" / "lib"
    for root in _toolkit_roots(environment):
        yield root / "lib64"
        yield root / "lib"


def _include_directory(near: tuple[Path, ...], environment: Environment) -> Path | None:
    candidates = list(near)
    for root in _wheel_roots():
        candidates += [root / "cu13" / "include", root / "cuda_runtime" / "include"]
    candidates += [root / "include" for root in _toolkit_roots(environment)]
    return next((path for path in candidates if (path / _HEADERS[0]).is_file()), None)


def _header_fingerprint(include: Path | None) -> str:
    if include is None:
        return "-"
    # Half a megabyte need not be read for each process: a file of other contents has another size or time.
    stats = [(include / name).stat() for name in _HEADERS if (include / name).is_file()]
    return ",".join(f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats)


def _version(path: Path, stem: str) -> tuple[int, ...]:
    match = re.fullmatch(re.escape(stem) + r"((?:\.\d+)+)", path.name)
    return tuple(int(part) for part in match[1].split(".")[1:]) if match is not None else ()


def _newest(directory: Path) -> Path | None:
    found = [path for path in directory.glob("libnvrtc.so.*") if _version(path, "libnvrtc.so")]
    return max(found, key=lambda path: _version(path, "libnvrtc.so"), default=None)


def _by_pathfinder() -> str | None:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return None
    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except (RuntimeError, OSError):
        return None
    return path if path is not None and os.path.isfile(path) else None


def _loadable(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
