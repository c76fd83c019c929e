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
from pathlib import Path

import pytest

import gett
from gett.codegen.records import Kernel

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
    defined = "#define GETT_SPARING\n" * sparing + "#define HOST_BLOCKS\n" * (blocks is not None)
    text = f'{defined}#include "prelude.h"\n{body}'
    program = tmp / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not program.exists():
        source = program.with_suffix(".cpp")
        source.write_text(text)
        folders = (*([] if blocks is None else [blocks]), REPLACED, kernels.parent)
        command = [compiler, *FLAGS, *(f"-I{folder}" for folder in folders), str(source), "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
    without_leaks = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # programs end with what they have
    ran = subprocess.run([str(program)], input=data, capture_output=True, env=without_leaks)
    assert ran.returncode == 0, (ran.stdout[-500:], ran.stderr[-3000:])
    return ran.stdout
