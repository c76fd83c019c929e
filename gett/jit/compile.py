"""From generated text to a cubin: options, headers, the cache, and what counts as a good kernel.

Knows the compiler and the cache, and of a kernel only its text and its entries' names. Nothing here needs a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from gett.errors import INSTALL_GPU, CompileError, MissingPackageError, PoorKernelError, SpillError
from gett.jit.diskcache import kernel_cache
from gett.jit.elf import resources
from gett.jit.entries import cache_key
from gett.jit.nvrtc import Nvrtc, load_nvrtc
from gett.jit.ptx import touched_in_flight
from gett.jit.ptxas import find_faults, first_errors, is_serialised, lacking, missing_header, read_usage, spills
from gett.jit.toolkit import find_toolkit

if TYPE_CHECKING:
    from gett.codegen.records import KernelSource
    from gett.jit.toolkit import Toolkit

# -v makes ptxas report each function's registers and spills in the log; it costs no time.
OPTIONS = ("--std=c++17", "--ptxas-options=-v")

# The options with which a text that does not compile is compiled again, to see what it lacks of its contract with the
# headers (`gett/kernels/contract`). Concepts need C++20, by which ptxas makes the same code.
CONTRACT = ("--std=c++20", "--define-macro=GETT_CONTRACT")

# Macros with which a kernel that has faults is compiled again, one after the other. Each serves texts in which its
# pattern is found (`gett/kernels/core/types.cuh`). For more resident blocks ptxas gives up registers, now and then at
# the price of a few spills. With the first macro loaders unpack what they keep for each k-tile. With the second one
# launch bounds that end in `GETT_MIN_BLOCKS`, or its like, ask for a block less. With the third the headers keep less
# in registers. On an H200 43 kernels that spilled took 0.93 of their time at one block so, 0.63 to 1.05.
KEEP_PACKED = "--define-macro=GETT_KEEP_PACKED"
FEWER_BLOCKS = "--define-macro=GETT_FEWER_BLOCKS"
SPARING = "--define-macro=GETT_SPARING"
_BLOCKS = r"GETT_MIN_BLOCKS(?!_OF\(1\))"
_AGAIN = ((KEEP_PACKED, r"gett/kernel/multistage_gemm\.cuh"), (FEWER_BLOCKS, _BLOCKS), (SPARING, '#include "gett/'))

# Bytes that a thread may spill in a kernel that spares registers. On an H200, six kernels of planes that spilled 4 to
# 16 bytes took 0.80 to 1.02 of the time of those that would have replaced them.
FEW_BYTES = 16


@dataclass(frozen=True, slots=True)
class CompileResult:
    """A compiled translation unit and what the compiler said about it."""

    cubin: bytes
    log: str


Compiler = Callable[..., CompileResult]
"""Called as `compile_uncached` is."""


def compile_kernel(
    source: KernelSource,
    arch: str,
    *,
    allow_spills: bool = False,
    compiler: Compiler | None = None,
    sparing: bool | None = None,
) -> bytes:
    """Return the cubin of `source`, from memory, from disk, or from NVRTC.

    Args:
        source: Text and entries.
        arch: Such as `"sm_80"` or `"sm_90a"`.
        allow_spills: Accept a kernel that spills registers or whose tensor-core instructions are serialised; never one
            whose accumulators are touched while products write them.
        compiler: What compiles where the cache has nothing; default: `compile_uncached`.
        sparing: As `compile_uncached` takes it.

    Raises:
        CompileError: The compiler rejects the text or the architecture, or made a slow kernel.
        MissingPackageError: NVRTC or CUDA's headers are not installed.
    """
    key = kernel_key(source, arch, allow_spills=allow_spills)

    def build() -> bytes:
        name = source.entries[0] if source.entries else "kernel"
        make = compiler or compile_uncached
        return make(source.text, arch, name=name, allow_spills=allow_spills, sparing=sparing).cubin

    return kernel_cache().get_or_build(key, build)


def kernel_key(source: KernelSource, arch: str, *, allow_spills: bool = False) -> bytes:
    """Return the key under which `compile_kernel` keeps a kernel.

    Raises:
        MissingPackageError: NVRTC is not installed.
    """
    return cache_key(
        {
            "compiler": find_toolkit().fingerprint,
            "arch": arch,
            "options": "\0".join(OPTIONS),
            "spills": str(allow_spills),
            "headers": _headers_digest(),
            "source": source.text,
        }
    )


def compile_uncached(
    text: str,
    arch: str,
    *,
    headers: Mapping[str, str] | None = None,
    options: Sequence[str] = OPTIONS,
    name: str = "kernel",
    allow_spills: bool = False,
    toolkit: Toolkit | None = None,
    sparing: bool | None = None,
) -> CompileResult:
    """Compile `text` now.

    Args:
        text: CUDA C++.
        arch: Such as `"sm_80"` or `"sm_90a"`.
        headers: Contents by the name that `#include` uses; by default `kernel_headers()`.
        options: NVRTC's, besides the architecture and the include directory.
        name: What errors call the kernel.
        allow_spills: As in `compile_kernel`.
        sparing: Whether to spare registers from the start; default: only where the kernel has faults otherwise. False
            for never.
        toolkit: The compiler; by default `find_toolkit()`.

    Raises:
        CompileError, MissingPackageError: As in `compile_kernel`.
    """
    if sparing:
        options = [*options, *_further(text, options)]
    toolkit = toolkit or find_toolkit()
    nvrtc = load_nvrtc(toolkit)
    _check_arch(nvrtc, arch)
    includes = [f"--include-path={toolkit.include}"] if toolkit.include is not None else []
    named = kernel_headers() if headers is None else headers
    outcome = nvrtc.compile(text, f"{name}.cu", named, [*options, f"--gpu-architecture={arch}", *includes])
    if outcome.error:
        header = missing_header(outcome.log)
        if header is not None:
            raise MissingPackageError(f"compiling '{name}' needs CUDA's header {header}; {INSTALL_GPU}")
        version = ".".join(str(number) for number in nvrtc.version)
        reason = f"{outcome.error}, NVRTC {version}"
        what = None
        if '#include "gett/' in text:
            told = [x for x in options if not x.startswith("--std=")] + [*CONTRACT, f"--gpu-architecture={arch}"]
            what = lacking(nvrtc.compile(text, f"{name}.cu", named, [*told, *includes]).log)
        what = what or first_errors(outcome.log)
        raise CompileError(f"kernel '{name}' does not compile for {arch} ({reason}):\n{what}")
    faults: list[str] = []
    if not allow_spills:
        faults = find_faults(outcome.log, FEW_BYTES if SPARING in options else 0)
        faults += _silent_faults(outcome.cubin, outcome.log)
    if not is_serialised(outcome.log):  # else ptxas waits for each product, and reading is safe
        touched = touched_in_flight(outcome.ptx)[:1]
        faults += [f"'{name}' touches accumulators of wgmma while products write them: {x}" for x in touched]
    if faults:
        if sparing is not False and (macros := _further(text, options)):
            options = [*options, *macros]
            return compile_uncached(
                text, arch, headers=headers, options=options, name=name, allow_spills=allow_spills, toolkit=toolkit
            )
        kind = SpillError if spills(outcome.log) else PoorKernelError
        raise kind(f"kernel '{name}' compiles badly for {arch}:\n" + "\n".join(faults))
    return CompileResult(outcome.cubin, outcome.log)


def _further(text: str, options: Sequence[str]) -> list[str]:
    """The next macros with which a kernel that has faults is compiled again.

    One at a time; with the following one where the main kernel, which stands first, makes nothing of it.
    """
    main, found = text.partition("__global__")[2].partition("{")[0], list[str]()
    for macro, pattern in _AGAIN:
        if macro not in options and re.search(pattern, text):
            found.append(macro)
            if macro != FEWER_BLOCKS or re.search(pattern, main):
                break
    return found


@lru_cache(maxsize=1)
def kernel_headers() -> Mapping[str, str]:
    """Return every `.cuh` of `gett/kernels`, under the name that includes have: `gett/<folder>/<file>`."""
    from importlib import resources as package_data  # late: a compiling process is told the headers

    parts = package_data.files("gett") / "kernels"
    files = (
        (f"gett/{part.name}/{item.name}", item)
        for part in parts.iterdir()
        if part.is_dir()
        for item in part.iterdir()
        if item.name.endswith(".cuh")
    )
    return {name: item.read_text(encoding="utf-8") for name, item in sorted(files, key=lambda file: file[0])}


@lru_cache(maxsize=1)
def _headers_digest() -> bytes:
    return cache_key(kernel_headers())


def _check_arch(nvrtc: Nvrtc, arch: str) -> None:
    # A virtual architecture (compute_90a) is no error to NVRTC: it would give PTX and an empty cubin.
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if match is None or int(match[1]) not in nvrtc.architectures:
        version = ".".join(str(number) for number in nvrtc.version)
        known = ", ".join(f"sm_{number}" for number in nvrtc.architectures)
        raise CompileError(f"architecture {arch!r} is not supported by NVRTC {version}, which knows {known}")


def _silent_faults(cubin: bytes, log: str) -> list[str]:
    """Return faults of entries of which the log says nothing (options without `-v`), as far as the cubin shows them."""
    reported = read_usage(log)
    return [
        f"'{entry}' keeps {needs.local_bytes} bytes a thread in local memory"
        for entry, needs in resources(cubin).items()
        if entry not in reported and needs.local_bytes
    ]
