"""The kernels of the catalogue, each compiled once: no errors, no spills, no local memory, blocks that fit."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.errors import CompileError, PoorKernelError
from gett.hw.archs import arch_facts
from gett.jit import compile_kernel, resources
from tests.sampling import slow_but
from tests.spec_parts import coarse, records
from tests.specs import Spec, few_kernels, first_kernels, kernel_specs, tile_size

ARCH = "sm_90a"


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


def check(specs: Iterable[Spec]) -> None:
    every = list(specs)
    cubins = compiled(every)
    facts = arch_facts(ARCH)
    poor = 0
    for spec in every:
        kernel = render_kernel(spec.plan, spec.schedule)
        cubin = cubins[kernel.source.text]
        if isinstance(cubin, PoorKernelError):  # a plan goes on to its next candidate
            poor += 1
            continue
        assert isinstance(cubin, bytes), f"{spec}: {cubin}"
        found = resources(cubin)
        assert set(found) == set(kernel.source.entries), spec
        assert all(entry.local_bytes == 0 for entry in found.values()), spec
        main = found[kernel.launches[0].entry]
        # The register file is handed out in eights to each thread; a block that does not fit could not be launched.
        assert -(-main.registers // 8) * 8 * spec.schedule.threads <= facts.regs_per_sm, spec
        assert main.shared_bytes + spec.schedule.smem.size <= facts.smem_per_block, spec
    assert poor <= 1 + len(every) // 20


@pytest.mark.parametrize("every", slow_but([False, True], [False]))
def test_small_kernels_of_wgmma_compile(every: bool) -> None:
    """Of each of its main loops the kernel with the smallest tile, which is soon compiled."""
    kinds: dict[str, list[Spec]] = {}
    for spec in first_kernels():
        kinds.setdefault(spec.schedule.kind, []).append(spec)
    smallest = [min(found, key=tile_size) for kind, found in kinds.items() if kind.startswith("wgmma")]
    assert len(smallest) == 4
    check(smallest[:: 1 if every else 2])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_kernels_with_every_part_and_every_pair_of_parts_compile(part: int) -> None:
    check(few_kernels(pairs=True)[part::4])


@pytest.mark.slow
def test_kernels_with_every_pair_of_parts_have_every_record() -> None:
    """They are of every kind of kernel, too."""
    for having in (lambda spec: spec.parts, lambda spec: {spec.schedule.kind, *records(spec.schedule)}):
        assert set().union(*map(having, few_kernels(pairs=True))) == set().union(*map(having, few_kernels()))


@pytest.mark.slow
def test_few_kernels_have_every_part() -> None:
    every = frozenset().union(*(s.parts for s in kernel_specs()))
    few, kinds = few_kernels(), few_kernels(numbers=False)
    assert frozenset().union(*(s.parts for s in few)) == every
    assert {coarse(x) for s in kinds for x in s.parts} == set(map(coarse, every))
    assert len(kinds) < len(few) < 70
