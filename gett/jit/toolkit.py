"""Finds NVRTC's library and CUDA's headers on this machine, without loading the library where that can be avoided.

Owns the fingerprint by which a compiler enters cache keys; where to look is cuda-pathfinder's. Loading a cached kernel
must not cost the mapping of a library of 100 MB. So the library is looked for in the folder of its header, and the
fingerprint is read from the file. Knows neither kernels nor caches.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from gett.env import Environment, read_environment
from gett.errors import INSTALL_GPU, MissingPackageError

_HEADERS = ("cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp")


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A compiler and its headers.

    Attributes:
        library: Path of NVRTC.
        builtins: NVRTC's companion library, to be loaded first; None if the loader finds it by itself.
        include: Directory that holds `cuda_fp16.h`; None if there is none.
        fingerprint: Differs whenever NVRTC or those headers differ. Does not depend on where they are.
    """

    library: str
    builtins: Path | None
    include: Path | None
    fingerprint: str


def find_toolkit() -> Toolkit:
    """Return the compiler to use: `GETT_NVRTC`, else what cuda-pathfinder finds.

    That looks into Python packages first, then into Conda's environment, then where the system has its toolkit.

    Raises:
        MissingPackageError: There is no NVRTC or no cuda-pathfinder, or `GETT_NVRTC` names no file.
    """
    return _find(read_environment())


@lru_cache(maxsize=8)
def _find(environment: Environment) -> Toolkit:
    library = environment.nvrtc
    if library is None:
        library = _find_library()
    elif not os.path.isfile(library):
        raise MissingPackageError(f"GETT_NVRTC names no file: {library}; unset it, or {INSTALL_GPU}")
    companions = [p for p in library.parent.glob("libnvrtc-builtins.so.*") if _version(p, "libnvrtc-builtins.so")]
    builtins = max(companions, key=lambda path: _version(path, "libnvrtc-builtins.so"), default=None)
    include = _find_include(library)
    size = library.stat().st_size
    # The first page holds the ELF program headers and the build id, which the linker makes from all of the contents.
    with open(library, "rb") as file:
        head = hashlib.blake2b(file.read(4096), digest_size=16).hexdigest()
    companion = builtins.name if builtins is not None else "-"
    return Toolkit(str(library), builtins, include, f"{size}|{head}|{companion}|{_header_fingerprint(include)}")


def _find_library() -> Path:
    pathfinder = _pathfinder()
    if pathfinder is None:
        raise MissingPackageError(f"finding NVRTC needs the package cuda-pathfinder; {INSTALL_GPU}")
    header = pathfinder.find_nvidia_header_directory("nvrtc")
    for name in ("lib", "lib64") if header is not None else ():
        library = _newest(Path(header).parent / name)
        if library is not None:
            return library
    try:
        # Pathfinder knows more places for libraries, but loads what it finds there.
        return Path(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (pathfinder.DynamicLibNotFoundError, TypeError, OSError) as error:
        raise MissingPackageError(
            f"compiling kernels needs NVRTC (libnvrtc), which was not found; {INSTALL_GPU}"
        ) from error


def _find_include(library: Path) -> Path | None:
    """CUDA's headers: next to the library, whose version they then have, else where pathfinder finds the runtime's."""
    candidates = [library.parent.parent / "include"]
    pathfinder = _pathfinder()
    found = None if pathfinder is None else pathfinder.find_nvidia_header_directory("cudart")
    candidates += [] if found is None else [Path(found)]
    return next((path for path in candidates if (path / _HEADERS[0]).is_file()), None)


def _pathfinder() -> ModuleType | None:
    try:
        from cuda import pathfinder
    except ImportError:
        return None
    module: ModuleType = pathfinder
    return module


def _header_fingerprint(include: Path | None) -> str:
    if include is None:
        return "-"
    # Contents, since times differ among machines, which may share a cache. It takes 1.5 ms of a process.
    contents = hashlib.blake2b(digest_size=16)
    for name in _HEADERS:
        if (include / name).is_file():
            data = (include / name).read_bytes()
            contents.update(b"%d|" % len(data) + data)
    return contents.hexdigest()


def _version(path: Path, stem: str) -> tuple[int, ...]:
    match = re.fullmatch(re.escape(stem) + r"((?:\.\d+)+)", path.name)
    return tuple(int(part) for part in match[1].split(".")[1:]) if match is not None else ()


def _newest(directory: Path) -> Path | None:
    found = [path for path in directory.glob("libnvrtc.so.*") if _version(path, "libnvrtc.so")]
    return max(found, key=lambda path: _version(path, "libnvrtc.so"), default=None)
