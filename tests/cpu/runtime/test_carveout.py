"""How an SM's memory is divided: sizes of shared memory, what the first cache keeps, and when the driver is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gett.codegen.records import Launch
from gett.codegen.render import render_kernel
from gett.hw.archs import ARCHS, KIB, ArchFacts, arch_facts
from gett.hw.device import nearest
from gett.runtime.carveout import carveout
from gett.runtime.driver import ATTRIBUTE_SMEM_CARVEOUT
from gett.runtime.executable import GpuExecutable
from gett.schedule.mainloops.multistage import short_copies
from gett.schedule.search.select import searched
from gett.schedule.spec.mainloop import Multistage
from tests.cpu.fake_driver import PARAMS, FakeDriver, FakeHost, build, launch, product_plan
from tests.cpu.tuning import gemm_plan

HOPPER = arch_facts("sm_90a")


def chosen(blocks: int, smem: int, cache: int, registers: int = 32, facts: ArchFacts = HOPPER) -> int:
    """KiB of shared memory that the driver takes: the least size that has the percentage at least."""
    made = Launch("x", (blocks, 1, 1), (128, 1, 1), smem * KIB, b"", (), cache_bytes=cache * KIB)
    percent = carveout(made, registers, facts)
    sizes = [x for x in (8, 16, 32, 64, 100, 132, 164, 196, 228) if x * KIB <= facts.smem_per_sm]
    return min(x for x in sizes if 100 * x * KIB >= percent * facts.smem_per_sm)


@pytest.mark.parametrize("arch", ARCHS)
def test_percentages_name_the_sizes(arch: str) -> None:
    facts = arch_facts(arch)
    for size in (8, 16, 32, 64, 100, 132, 164, 196, 228):
        if size * KIB <= facts.smem_per_sm:
            assert facts.smem_for(size * KIB) == facts.smem_for(size * KIB - 5) == size * KIB
            if size > 8:
                assert chosen(facts.sm_count, size - 1, 0, facts=facts) == size


def test_blocks_that_there_are_have_room() -> None:
    assert [chosen(n * 132, 19, 46) for n in (1, 2, 3, 4, 5, 6, 9, 10)] == [32, 64, 64, 100, 100, 132, 196, 196]
    assert chosen(133, 19, 46) == 64
    assert chosen(9999, 19, 46, registers=128) == 100  # of four, more have no registers


@pytest.mark.parametrize(("cache", "size"), [(28, 228), (29, 196), (60, 196), (61, 164), (92, 164), (93, 132)])
def test_the_first_cache_keeps_its_part(cache: int, size: int) -> None:
    assert chosen(9999, 19, cache) == size
    assert HOPPER.smem_for(HOPPER.smem_per_sm, cache * KIB) == size * KIB


def test_a_block_has_room_in_any_case() -> None:
    assert chosen(9999, 200, 92) == 228
    assert chosen(9999, 99, 999) == 100


def test_kernels_with_short_copies_have_a_part_and_others_none() -> None:
    of_one = nearest(HOPPER).multistage.rates.kept_bytes
    seen = set()
    for plan in (
        gemm_plan(65, 67, 63, "float64"),
        gemm_plan(512, 512, 512, "float64"),
        gemm_plan(512, 67, 512, "float64"),
    ):
        for s in searched(plan, HOPPER)[:12]:
            (main, *more) = render_kernel(plan, s).launches
            copies = short_copies(plan, s.multistage) if isinstance(s.mainloop, Multistage) else 0
            assert main.cache_bytes == copies * of_one
            assert not any(x.cache_bytes for x in more)
            seen.add(copies)
    assert {0, 2} <= seen


def test_the_driver_is_told_once_and_of_more_alone() -> None:
    driver, plan = FakeDriver(len(PARAMS)), product_plan(swapped=False)
    driver.static_smem = 32  # registers, too
    kernel = build(plan, launch(smem=19 * KIB, grid=(1, 1, 1)), driver=FakeDriver(len(PARAMS)))[0].kernel
    keep = []
    for blocks in (132, 264, 132):
        made = replace(kernel.launches[0], grid=(blocks, 1, 1), cache_bytes=46 * KIB)
        one = replace(kernel, launches=(made,))
        keep.append(GpuExecutable(plan, None, one, b"three of a kernel", FakeHost(), driver, HOPPER))
    told = [x for x in driver.attributes if x[1] == ATTRIBUTE_SMEM_CARVEOUT]
    assert told == [("main_kernel", ATTRIBUTE_SMEM_CARVEOUT, 100 * size // 228) for size in (32, 64)]
    assert not [x for x in build(plan, launch(smem=19 * KIB))[2].attributes if x[1] == ATTRIBUTE_SMEM_CARVEOUT]
