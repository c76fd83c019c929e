"""The kernels of the catalogue, each compiled once: no errors, no spills, no local memory, blocks that fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.errors import CompileError, PoorKernelError
from gett.hw.archs import arch_facts
from gett.jit import compile_kernel, resources
from tests.specs import FAMILIES, Spec, covering, kernel_specs

ARCH = "sm_90a"
FEW = covering(kernel_specs(), pairs=False)
MANY = [spec for spec in covering(kernel_specs()) if spec not in FEW]


def compiled(specs: list[Spec]) -> dict[str, bytes | CompileError]:
    """The cubin, or the error, of each text."""

    def run(kernel: Kernel) -> bytes | CompileError:
        try:
            return compile_kernel(kernel.source, ARCH)
        except CompileError as error:
            return error

    kernels = {k.source.text: k for k in (render_kernel(s.plan, s.schedule) for s in specs)}
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(kernels, pool.map(run, kernels.values()), strict=True))


def check(spec: Spec, cubins: dict[str, bytes | CompileError]) -> None:
    kernel = render_kernel(spec.plan, spec.schedule)
    cubin = cubins[kernel.source.text]
    if isinstance(cubin, PoorKernelError) and spec.family not in FAMILIES:
        pytest.skip("a cluster made by hand, which no search gives, has too few registers")
    if isinstance(cubin, CompileError):
        raise cubin
    found, facts = resources(cubin), arch_facts(ARCH)
    assert set(found) == set(kernel.source.entries)
    for entry in found.values():
        assert entry.local_bytes == 0
    main = found[kernel.launches[0].entry]
    # The register file is handed out in eights to each thread; a block that does not fit could not be launched.
    assert -(-main.registers // 8) * 8 * spec.schedule.threads <= facts.regs_per_sm
    assert main.shared_bytes + spec.schedule.smem.size <= facts.smem_per_block


@pytest.fixture(scope="module")
def few() -> dict[str, bytes | CompileError]:
    return compiled(FEW)


@pytest.fixture(scope="module")
def many() -> dict[str, bytes | CompileError]:
    return compiled(MANY)


@pytest.mark.parametrize("spec", FEW, ids=repr)
def test_a_kernel_with_every_part_compiles(spec: Spec, few: dict[str, bytes | CompileError]) -> None:
    check(spec, few)


@pytest.mark.slow
@pytest.mark.parametrize("spec", MANY, ids=repr)
def test_kernels_with_every_pair_of_parts_compile(spec: Spec, many: dict[str, bytes | CompileError]) -> None:
    check(spec, many)


def test_few_kernels_have_every_part() -> None:
    every = frozenset().union(*(s.parts for s in kernel_specs()))
    assert frozenset().union(*(s.parts for s in FEW)) == every
    assert len(FEW) < 50
