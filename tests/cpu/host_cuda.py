"""Runs device code on the host: the kernels' own headers, with the chip's instructions replaced.

All instructions stand in `gett/kernels/ptx`; the headers in `tests/cpu/host/gett/ptx` have their names and come first
among the include folders. `tests/cpu/host/prelude.h` has what CUDA's compiler knows by itself. Lanes run one after the
other, so only code between barriers can be run. Whole blocks run with `blocks`: `tests/cpu/host_blocks.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import gett
from gett.codegen.records import Kernel
from tests.specs import SHARED

KERNELS = Path(gett.__file__ or "").parent / "kernels"
REPLACED = Path(__file__).parent / "host"
FLAGS = ("-std=c++17", "-O0", "-w", "-fpermissive", "-fsanitize=address,undefined", "-fno-sanitize=alignment,shift")

STORE = """INSIDE
using namespace gett;
typedef PersistentRaster<SchedulerTraits> Scheduler;
struct Store {
  struct Exchange {
    static constexpr int kBarriers = 0;
    static void init(uint32) {}
  };
  static constexpr int kBuffers = 1, kBytes = 0;
  static constexpr bool kReuseMainloopSmem = false, kStoreWarp = true;
};
"""
"""C++: a tile scheduler and an epilogue, as far as the shared memory of a kernel asks for them."""

SPLIT_PARTS = (
    STORE
    + """
typedef SplitStorage<MainloopTraits, Index, Store, Scheduler, Smem> Storage;
typedef SplitTransform<MainloopTraits, Scheduler, Storage> Transform;
typedef SplitFragment<Storage::TileA, MainloopTraits> FragmentA;
"""
)
"""C++: the same and the parts of a main loop that makes planes."""


def includes(*names: str) -> str:
    """Statements that include headers of the kernels, such as `"loader/gather"`."""
    return "".join(f'#include "gett/{name}.cuh"\n' for name in names)


def generated(kernel: Kernel) -> str:
    """The structs `Params` and `Index` of a kernel's text, and those of its traits."""
    text = kernel.source.text
    ends = [text.index(mark) for mark in ("\nstruct Wgmma {", "\ntypedef gett::") if mark in text]
    return text[text.index("struct Params {") : min(ends)]


def _folders(blocks: Path | None) -> tuple[Path, ...]:
    """What stands for the chip's instructions, headers that come first before others."""
    return (REPLACED,) if blocks is None else (blocks, REPLACED)


def _compile(compiler: str, blocks: Path | None, folders: Iterable[Path], *rest: str) -> None:
    flags = (*FLAGS, *(["-DHOST_BLOCKS"] if blocks else []), *(f"-I{folder}" for folder in folders))
    done = subprocess.run([compiler, *flags, *rest], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@cache
def prelude(compiler: str, blocks: Path | None) -> Path:
    """A folder with the prelude precompiled, once in a run of the tests; a compiler that cannot use it passes on."""
    folder = Path(os.environ[SHARED]) / f"prelude-{'lanes' if blocks is None else blocks.name}"
    folder.mkdir(exist_ok=True)
    if not (made := folder / "prelude.h.gch").exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
            source = str(REPLACED / "prelude.h")
            _compile(compiler, blocks, _folders(blocks), "-x", "c++-header", source, "-o", part.name)
        os.replace(part.name, made)
    return folder


def run_host(tmp: Path, body: str, data: bytes = b"", *, sparing: bool = False, blocks: Path | None = None) -> bytes:
    """Output of the program `body`, compiled for the host as a sparing kernel or not; equal ones are compiled once.

    Args:
        tmp: For the programs.
        body: C++; may include the headers of the kernels.
        data: What the program reads.
        sparing: Whether `GETT_SPARING` is defined.
        blocks: Folder of headers that let whole blocks run, which come before the others.
    """
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no compiler for the host")
    kernels = tmp / "include" / "gett"
    if not kernels.exists():
        kernels.parent.mkdir()
        kernels.symlink_to(KERNELS)
    defined = "#define GETT_SPARING\n" * sparing
    text = f'{defined}#include "prelude.h"\n{body}'
    program = tmp / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not program.exists():
        source = program.with_suffix(".cpp")
        source.write_text(text)
        folders = (prelude(compiler, blocks), *_folders(blocks), kernels.parent)
        _compile(compiler, blocks, folders, str(source), "-o", str(program))
    without_leaks = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # programs end with what they have
    ran = subprocess.run([str(program)], input=data, capture_output=True, env=without_leaks)
    assert ran.returncode == 0, (ran.stdout[-500:], ran.stderr[-3000:])
    return ran.stdout
