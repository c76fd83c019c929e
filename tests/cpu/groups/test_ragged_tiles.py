"""Persistent kernels of ragged contractions: which are taken, what their launches are told, and that they compile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gett.codegen.params import ENDS
from gett.codegen.ragged import CLIPPED, scheduler_of, table_bytes
from gett.codegen.tma import tensor_maps
from gett.groups import ragged_launch
from gett.groups.ragged_launch import RaggedLaunch, persistent_kernel
from gett.hw.archs import arch_facts
from gett.jit.compile import compile_uncached
from gett.jit.elf import resources
from gett.schedule.legality import can_implement
from gett.schedule.spec.schedule import Schedule
from tests.cpu.fake_driver import FakeDriver, FakeHost
from tests.cpu.groups.ragged_cases import ALL, OTHERS, PERSISTENT, SUMS, RaggedCase, kernel_of, schedules
from tests.cpu.groups.table_machine import GpuKind

# --- which kernel


@pytest.mark.parametrize("name", ALL)
def test_tensor_maps_and_wgmma_take_it(name: str) -> None:
    case = ALL[name]
    facts = arch_facts("sm_90a")
    found = schedules(case)
    assert found
    for s in found:
        assert s.kind == ("wgmma tf32" if name in ("fragments", "sums-words", "sums-wide") else "wgmma ss")
        assert s.smem.size + table_bytes(case.count) <= facts.smem_per_block
        assert scheduler_of(s).row_length == (3 if name.endswith("inside") else 1)
        for role, made in tensor_maps(s).items():
            assert made.rank <= 5
            assert (made.base_offset < 0) is (role in ("ab" if name in SUMS else "d"))


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_the_kernel_that_reads_tables(name: str) -> None:
    case = OTHERS[name]
    assert not schedules(case)
    assert persistent_kernel(case.modes, case.tensors, "sm_90a", "int32", case.count, case.precision) is None


def test_addresses_that_no_map_takes_and_older_gpus_have_the_other_kernel() -> None:
    case = PERSISTENT["rows"]
    a, b, d = case.tensors
    for tensors in ((replace(a, alignment=8), b, d), (a, replace(b, alignment=8), d), (a, b, replace(d, alignment=8))):
        assert persistent_kernel(case.modes, tensors, "sm_90a", "int32", case.count, None) is None
    assert persistent_kernel(case.modes, (a, b, d), "sm_80", "int32", case.count, None) is None


def test_tiles_follow_the_usual_number_of_rows() -> None:
    def rows(t: int) -> int:
        s = schedules(RaggedCase("tk,ekn->tn", dict(t=t, e=64, k=2048, n=4096)))[0]
        return (s.tiling.m if s.scheduler.ragged == "m" else s.tiling.n).size

    assert rows(64 * 2048) >= 128
    assert rows(64 * 16) <= 32


def test_no_plan_has_such_a_schedule() -> None:
    case = PERSISTENT["rows"]
    assert case.plans is not None
    found = can_implement(schedules(case)[0], case.plans.whole, arch_facts("sm_90a"))
    assert found is not None
    assert "reads the ends of problems" in found.reason


# --- what it says


@pytest.mark.parametrize("ends", ["int32", "int64"])
def test_a_launch_takes_the_ends_and_the_clipped_map_of_d(ends: str) -> None:
    case = PERSISTENT["gaps"]
    schedule = schedules(case, ends)[0]
    kernel = kernel_of(case, schedule)
    (launch,) = kernel.launches
    assert dict(launch.pointers) == {"a": 0, "b": 8, "d": 24, "ends": ENDS}
    assert [role for role, *_ in launch.maps] == ["a", "b", "d" + CLIPPED]
    row = (200 + 8) * 2
    side = (schedule.tiling.m if schedule.scheduler.ragged == "m" else schedule.tiling.n).size
    assert launch.moved == (("d" + CLIPPED, "d", -side * row),)
    assert f"const {'int' if ends == 'int32' else 'long long'}* ends;" in kernel.source.text


@pytest.mark.parametrize("name", ["gaps", "second", "words"])
def test_calls_point_the_maps_at_the_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = PERSISTENT[name]
    driver = FakeDriver(512)
    monkeypatch.setattr(ragged_launch, "CupyHost", FakeHost)
    monkeypatch.setattr(ragged_launch, "load_driver", lambda: driver)
    monkeypatch.setattr(ragged_launch, "compile_kernel", lambda source, arch: repr((name, arch)).encode())
    launch = RaggedLaunch(GpuKind(), 0, case.modes, case.tensors, "int64", case.count, case.precision)
    assert isinstance(launch.schedule, Schedule)
    at_a, at_b, at_d, ends = (i << 32 for i in range(1, 5))
    for shift in (0, 1 << 20):
        launch.run(at_a + shift, at_b + shift, at_d + shift, ends + shift)
    first, second = driver.launches
    swapped = launch.schedule.scheduler.ragged != ("m" if name != "second" else "n")
    a, b = (at_b, at_a) if swapped else (at_a, at_b)
    assert np.frombuffer(first.params, np.int64, 6).tolist() == [a, b, 0, at_d, 0, ends]
    assert np.frombuffer(first.params, np.float32, 1, 48) == 1
    assert np.frombuffer(first.params, np.float32, 1, 64) == 0
    store = launch.schedule.epilogue.store.map
    assert store is not None
    pointed = [address for _, address, *_ in driver.maps]
    assert pointed[:3] == [a, b, at_d + store.base_offset]
    assert pointed[3:] == [x + (1 << 20) for x in pointed[:3]]
    assert first.grid == second.grid


@pytest.mark.parametrize("name", ALL)
def test_kernels_compile_without_spilling(name: str) -> None:
    case = ALL[name]
    kernel = kernel_of(case, schedules(case)[0])
    cubin = compile_uncached(kernel.source.text, "sm_90a", sparing=False).cubin
    (found,) = resources(cubin).values()
    assert found.local_bytes == 0
    assert found.registers <= 168
    assert found.shared_bytes == table_bytes(case.count)
