"""Compilation with NVRTC: cubins without a GPU, what counts as a bad kernel, error texts, and the way to the cache."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gett.codegen.records import KernelSource
from gett.errors import CompileError, MissingPackageError
from gett.jit import compile as compile_module
from gett.jit import compile_kernel, compile_uncached, diskcache, kernel_cache, kernel_headers, resources, toolkit
from gett.jit.nvrtc import load_nvrtc
from gett.jit.ptxas import find_faults, first_errors, read_usage

ROOT = Path(__file__).parents[2]
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100")

GOOD = """
extern "C" __global__ void reverse(float* p) {
  __shared__ float s[100];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[99 - threadIdx.x];
}
extern "C" __global__ void scale(float* p, float x) { p[threadIdx.x] *= x; }
"""
# 96 live values at 32 registers a thread.
SPILLING = """
extern "C" __global__ void __launch_bounds__(256, 8) spilling(float* p, int n) {
  float a[96];
#pragma unroll
  for (int i = 0; i < 96; i++) a[i] = p[i * n + threadIdx.x];
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int i = 0; i < 96; i++) a[i] = a[i] * a[(i + 7) % 96] + p[k];
  }
#pragma unroll
  for (int i = 0; i < 96; i++) p[i * n + threadIdx.x] = a[i];
}
"""
# A local array under a run-time index: a stack frame, but no spill.
INDEXED = """
extern "C" __global__ void indexed(float* p, int n) {
  float a[16];
  for (int i = 0; i < n; i++) a[i] = p[i];
  p[0] = a[n / 3];
}
"""
# Accumulators are read while the instruction that writes them may still run.
SERIALISED = """
extern "C" __global__ void serialised(float* p, unsigned long long da, unsigned long long db, int n) {
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3},%4,%5,1,1,1,0,0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    d[0] += p[i];
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  p[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"""
HALF = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halve(__half* p, __nv_bfloat16* q) {
  p[threadIdx.x] = __hmul(p[threadIdx.x], __float2half(0.5f));
  q[threadIdx.x] = __float2bfloat16(__half2float(p[threadIdx.x]));
}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    monkeypatch.setattr(diskcache, "_current", None)


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    archs: list[str] = []
    real = compile_module.compile_uncached

    def counting(text: str, arch: str, **rest: object) -> object:
        archs.append(arch)
        return real(text, arch, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compile_module, "compile_uncached", counting)
    return archs


@pytest.mark.parametrize("arch", ARCHS)
def test_the_cubin_says_of_resources_what_the_log_says(arch: str) -> None:
    for text in (GOOD, SPILLING, INDEXED):
        result = compile_uncached(text, arch, allow_spills=True)
        found, usage = resources(result.cubin), read_usage(result.log)
        assert found.keys() == usage.keys()
        for entry, needs in found.items():
            said = usage[entry]
            assert (needs.registers, needs.local_bytes, needs.shared_bytes) == (
                said.registers,
                said.frame_bytes,
                said.shared_bytes,
            )
            assert needs.registers > 0
        assert set(found) in ({"reverse", "scale"}, {"spilling"}, {"indexed"})
    assert resources(compile_uncached(GOOD, arch).cubin)["reverse"].shared_bytes == 400


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_half_precision_headers_are_found(arch: str) -> None:
    assert set(resources(compile_uncached(HALF, arch).cubin)) == {"halve"}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_projects_headers_compile_by_their_names(arch: str) -> None:
    headers = kernel_headers()
    folder = Path(compile_module.__file__).parents[1] / "kernels"
    paths = {f"gett/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.cuh")}
    assert headers == {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    headers = {"gett/one.cuh": '#include "gett/two.cuh"\n', "gett/two.cuh": "constexpr int kTwo = 2;\n"}
    text = '#include "gett/one.cuh"\nextern "C" __global__ void two(int* p) { p[0] = kTwo; }\n'
    assert set(resources(compile_uncached(text, arch, headers=headers).cubin)) == {"two"}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_spill_is_an_error_that_gives_its_size(arch: str) -> None:
    with pytest.raises(CompileError, match=r"'spilling' spills registers: \d{3,} bytes stored.*stack frame of \d{3,}"):
        compile_uncached(SPILLING, arch)
    result = compile_uncached(SPILLING, arch, allow_spills=True)
    assert resources(result.cubin)["spilling"].local_bytes > 96
    assert len(find_faults(result.log)) == 1


def test_a_spill_is_an_error_where_the_log_is_silent_too() -> None:
    with pytest.raises(CompileError, match=r"'spilling' keeps \d{3,} bytes a thread in local memory"):
        compile_uncached(SPILLING, "sm_80", options=("--std=c++17",))


def test_a_stack_frame_without_a_spill_is_no_error() -> None:
    result = compile_uncached(INDEXED, "sm_80")
    assert resources(result.cubin)["indexed"].local_bytes >= 64
    assert find_faults(result.log) == []


def test_serialised_tensor_core_instructions_are_an_error() -> None:
    with pytest.raises(CompileError, match=r"wgmma.mma_async instructions are serialized.*'serialised'"):
        compile_uncached(SERIALISED, "sm_90a")
    assert compile_uncached(SERIALISED, "sm_90a", allow_spills=True).cubin


def test_the_first_errors_come_with_their_lines() -> None:
    text = "\n\n" + "".join(f"__device__ int v{number} = missing_{number};\n" for number in range(9))
    with pytest.raises(CompileError) as caught:
        compile_uncached(text, "sm_90a", name="contract_x")
    message = str(caught.value)
    assert "kernel 'contract_x' does not compile for sm_90a (NVRTC_ERROR_COMPILATION, NVRTC " in message
    assert 'contract_x.cu(3): error: identifier "missing_0" is undefined\n  __device__ int v0 = missing_0;' in message
    assert "contract_x.cu(7): error" in message
    assert "missing_5" not in message
    assert "... and 4 more" in message


def test_the_assemblers_errors_are_errors() -> None:
    with pytest.raises(CompileError, match=r"ptxas.*line \d+; error.*'foo'"):
        compile_uncached('extern "C" __global__ void k() { asm("foo.bar;"); }', "sm_80")


def test_too_much_static_shared_memory_is_named_though_the_log_marks_no_error() -> None:
    text = 'extern "C" __global__ void big(float* p) { __shared__ float s[100000]; s[threadIdx.x] = p[0];\n'
    text += "__syncthreads(); p[1] = s[3]; }"
    with pytest.raises(CompileError, match="'big' declares 400000 bytes of static shared memory"):
        compile_uncached(text, "sm_90a")


def test_a_log_without_marked_errors_is_shown_from_its_end() -> None:
    log = "\n".join(f"line {number}" for number in range(30))
    assert first_errors(log) == "\n".join(f"line {number}" for number in range(20, 30))


@pytest.mark.parametrize("arch", ["sm_35", "sm_90b", "compute_90a", "sm_", "hopper"])
def test_an_unknown_architecture_is_named(arch: str) -> None:
    with pytest.raises(CompileError, match=rf"'{arch}'.*sm_80, .*sm_90"):
        compile_kernel(KernelSource(GOOD, ("reverse",)), arch)


def test_what_is_no_cubin_is_refused() -> None:
    cubin = compile_uncached(GOOD, "sm_80").cubin
    for data in (b"", b"\x7fELF", cubin[:64], cubin[: len(cubin) // 2], b"x" * 1000):
        with pytest.raises(CompileError, match="not a cubin"):
            resources(data)


@pytest.fixture
def _forget_toolkits() -> Iterator[None]:
    toolkit._find.cache_clear()
    yield
    toolkit._find.cache_clear()


class Finder:
    """Stands in for cuda-pathfinder: header directories by library, and the library that it would load."""

    class DynamicLibNotFoundError(RuntimeError):
        pass

    def __init__(self, headers: dict[str, str], library: Path | None = None) -> None:
        self.headers, self.library, self.loaded = headers, library, 0

    def find_nvidia_header_directory(self, name: str) -> str | None:
        return self.headers.get(name)

    def load_nvidia_dynamic_lib(self, name: str) -> SimpleNamespace:
        self.loaded += 1
        if self.library is None:
            raise self.DynamicLibNotFoundError(name)
        return SimpleNamespace(abs_path=str(self.library))


@pytest.mark.usefixtures("_forget_toolkits")
def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: Finder({}))
    with pytest.raises(MissingPackageError, match=r"libnvrtc.*pip install gett\[cuda13\]"):
        compile_kernel(KernelSource(GOOD, ("reverse",)), "sm_80")


WITHOUT_PATHFINDER = """
import sys
sys.modules["cuda.pathfinder"] = None
import gett
plan = gett.plan("ij,jk->ki", ((64, 64), "float16"), ((64, 64), "float16"), arch="sm_90a")
assert "wgmma" in str(plan)
from gett.codegen.records import KernelSource
from gett.jit import compile_kernel
from gett.tune.store import plan_key
from tests.cpu.tuning import FACTS
assert plan_key(plan.steps[0].gemm, FACTS) is None
try:
    compile_kernel(KernelSource("", ("k",)), "sm_80")
except gett.MissingPackageError as error:
    print(error)
"""


def test_without_pathfinder_all_but_compiling_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PATHFINDER], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "needs the package cuda-pathfinder" in done.stdout
    assert "pip install gett[cuda13]" in done.stdout


@pytest.mark.usefixtures("_forget_toolkits")
@pytest.mark.parametrize("folder", ["lib", "lib64"])
def test_the_library_is_found_beside_its_header_and_not_loaded(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    for name in ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        (tmp_path / folder / name).write_bytes(b"library")
    for name in ("beside", "runtime"):
        (tmp_path / name).mkdir()
    (tmp_path / "runtime" / "cuda_fp16.h").touch()
    finder = Finder({"nvrtc": str(tmp_path / "beside"), "cudart": str(tmp_path / "runtime")})
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: finder)
    found = toolkit.find_toolkit()
    assert found.library == str(tmp_path / folder / "libnvrtc.so.13")
    assert found.builtins == tmp_path / folder / "libnvrtc-builtins.so.13.0"
    assert found.include == tmp_path / "runtime"
    assert finder.loaded == 0
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_fp16.h").touch()
    toolkit._find.cache_clear()
    assert toolkit.find_toolkit().include == tmp_path / "include"  # of the library's own version


@pytest.mark.usefixtures("_forget_toolkits")
def test_a_library_without_a_header_is_left_to_pathfinder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.13").write_bytes(b"library")
    finder = Finder({"nvrtc": str(tmp_path / "usr" / "include")}, tmp_path / "libnvrtc.so.13")
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: finder)
    assert toolkit.find_toolkit().library == str(tmp_path / "libnvrtc.so.13")
    assert finder.loaded == 1


def test_pathfinder_comes_with_whatever_compiles() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in ("cuda12", "cuda13", "test"):
        assert any(r.startswith("cuda-pathfinder") for r in extras[extra]), extra
    for extra in ("cuda12", "cuda13", "bench"):
        assert any(r.startswith("tqdm") for r in extras[extra]), extra


def test_a_library_that_does_not_load_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GETT_NVRTC", str(tmp_path / "libnvrtc.so.13"))
    with pytest.raises(MissingPackageError, match="GETT_NVRTC names no file"):
        compile_uncached(GOOD, "sm_80")
    (tmp_path / "libnvrtc.so.13").write_bytes(b"no library")
    with pytest.raises(MissingPackageError, match=r"cannot be loaded.*pip install gett\[cuda13\]"):
        compile_uncached(GOOD, "sm_80")


def test_missing_cuda_headers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = toolkit.find_toolkit()
    bare = toolkit.Toolkit(found.library, found.builtins, None, "bare")
    monkeypatch.setattr(compile_module, "find_toolkit", lambda: bare)
    assert compile_uncached(GOOD, "sm_80").cubin
    with pytest.raises(MissingPackageError, match=r"cuda_fp16.h.*pip install gett\[cuda13\]"):
        compile_uncached(HALF, "sm_80")


def test_the_newest_library_of_a_directory_is_taken(tmp_path: Path) -> None:
    for name in ("libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so.12.4.1", "libnvrtc.alt.so.14", "libnvrtc.so.old"):
        (tmp_path / name).touch()
    assert toolkit._newest(tmp_path) == tmp_path / "libnvrtc.so.13"
    assert toolkit._newest(tmp_path / "none") is None


def test_fingerprints_tell_libraries_apart_and_places_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = []
    for folder, contents in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        (tmp_path / folder).mkdir()
        library = tmp_path / folder / "libnvrtc.so.13"
        library.write_bytes(contents)
        monkeypatch.setenv("GETT_NVRTC", str(library))
        prints.append(toolkit.find_toolkit().fingerprint)
    assert prints[0] == prints[2] != prints[1]


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


def test_versions_are_known() -> None:
    nvrtc = load_nvrtc(toolkit.find_toolkit())
    assert nvrtc.version >= (12, 0)
    assert {80, 90} <= set(nvrtc.architectures)
