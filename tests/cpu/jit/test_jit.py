"""Compilation with NVRTC: cubins without a GPU, what counts as a bad kernel, error texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gett.codegen.records import KernelSource
from gett.errors import CompileError
from gett.jit import compile as compile_module
from gett.jit import compile_kernel, compile_uncached, kernel_headers, resources, toolkit
from gett.jit.compile import FEW_BYTES
from gett.jit.nvrtc import load_nvrtc
from gett.jit.ptxas import find_faults, first_errors, read_usage
from tests.cpu.jit.cuda_texts import GOOD, HALF, INDEXED, SERIALISED, SPILLING
from tests.sampling import slow_but

pytestmark = pytest.mark.usefixtures("own_cache")

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100")


@pytest.mark.parametrize("arch", slow_but(ARCHS, ["sm_90a"]))
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


@pytest.mark.parametrize(("stored", "loaded", "faults"), [(0, 0, 0), (4, 16, 0), (16, 16, 0), (16, 20, 1), (20, 8, 1)])
def test_a_few_spilled_bytes_are_no_fault(stored: int, loaded: int, faults: int) -> None:
    log = (
        "ptxas info    : Compiling entry function 'few' for 'sm_90a'\n"
        "ptxas info    : Function properties for few\n"
        f"    24 bytes stack frame, {stored} bytes spill stores, {loaded} bytes spill loads\n"
        "ptxas info    : Used 128 registers\n"
    )
    assert len(find_faults(log, FEW_BYTES)) == faults
    assert len(find_faults(log)) == (stored > 0)


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


def test_versions_are_known() -> None:
    nvrtc = load_nvrtc(toolkit.find_toolkit())
    assert nvrtc.version >= (12, 0)
    assert {80, 90} <= set(nvrtc.architectures)
