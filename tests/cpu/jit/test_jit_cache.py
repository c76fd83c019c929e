"""From a kernel's text to the cache: what is compiled again, and what several processes share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gett.codegen.records import KernelSource
from gett.errors import CompileError
from gett.jit import compile as compile_module
from gett.jit import compile_kernel, diskcache, kernel_cache, resources, toolkit
from tests.cpu.jit.cuda_texts import GOOD, SPILLING

pytestmark = pytest.mark.usefixtures("own_cache")


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    archs: list[str] = []
    real = compile_module.compile_uncached

    def counting(text: str, arch: str, **rest: Any) -> Any:
        archs.append(arch)
        return real(text, arch, **rest)

    monkeypatch.setattr(compile_module, "compile_uncached", counting)
    return archs


def test_memory_then_disk_then_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    source = KernelSource(GOOD, ("reverse", "scale"))
    first = compile_kernel(source, "sm_80")
    assert compile_kernel(source, "sm_80") is first
    monkeypatch.setattr(diskcache, "_current", None)
    assert compile_kernel(source, "sm_80") == first
    assert compiled == ["sm_80"]
    assert kernel_cache().info().disk_hits == 1


def test_what_changes_the_result_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    source = KernelSource(GOOD, ("reverse", "scale"))
    compile_kernel(source, "sm_80")
    compile_kernel(source, "sm_90a")
    compile_kernel(KernelSource(GOOD + "\n", source.entries), "sm_80")
    compile_kernel(source, "sm_80", allow_spills=True)
    monkeypatch.setattr(compile_module, "OPTIONS", (*compile_module.OPTIONS, "--fmad=false"))
    compile_kernel(source, "sm_80")
    monkeypatch.setattr(compile_module, "_headers_digest", lambda: b"another file in gett/kernels")
    compile_kernel(source, "sm_80")
    found = toolkit.find_toolkit()
    monkeypatch.setattr(
        compile_module, "find_toolkit", lambda: toolkit.Toolkit(found.library, found.builtins, found.include, "newer")
    )
    compile_kernel(source, "sm_80")
    assert len(compiled) == 7
    assert kernel_cache().info().entries == 7


def test_a_spilling_kernel_is_never_served_to_who_forbids_it() -> None:
    source = KernelSource(SPILLING, ("spilling",))
    assert compile_kernel(source, "sm_80", allow_spills=True)
    with pytest.raises(CompileError, match="spills"):
        compile_kernel(source, "sm_80")


def test_a_damaged_entry_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    source = KernelSource(GOOD, ("reverse", "scale"))
    first = compile_kernel(source, "sm_80")
    directory = kernel_cache().directory
    assert directory is not None
    (path,) = directory.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 7])
    monkeypatch.setattr(diskcache, "_current", None)
    assert resources(compile_kernel(source, "sm_80")) == resources(first)
    assert len(compiled) == 2
    assert len(path.read_bytes()) == len(whole)


PROCESS = """
import hashlib, sys, time
from pathlib import Path
from gett.codegen.records import KernelSource
from gett.jit import compile_kernel
go = Path(sys.argv[1])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.0005)
cubin = compile_kernel(KernelSource(sys.stdin.read(), ("reverse", "scale")), "sm_90a")
mapped = "libnvrtc" in Path("/proc/self/maps").read_text()
print(hashlib.sha256(cubin).hexdigest(), mapped, "cupy" in sys.modules)
"""


def start(go: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", PROCESS, str(go)]
    root = Path(compile_module.__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
def test_racing_processes_agree_and_a_later_one_does_not_even_load_the_compiler(tmp_path: Path) -> None:
    go = tmp_path / "go"
    racers = [start(go), start(go)]
    for process in racers:
        assert process.stdin is not None
        process.stdin.write(GOOD)
        process.stdin.close()
        process.stdin = None
    go.touch()
    lines = [process.communicate(timeout=60)[0].split() for process in racers]
    assert [process.returncode for process in racers] == [0, 0]
    assert lines[0][0] == lines[1][0]
    directory = kernel_cache().directory
    assert directory is not None
    assert len(list(directory.iterdir())) == 1
    later, _ = start(go).communicate(GOOD, timeout=60)
    assert later.split() == [lines[0][0], "False", "False"]
