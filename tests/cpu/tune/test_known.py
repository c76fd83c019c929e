"""Known schedules: what was timed leads, where it is legal for the plan and the GPU; files hold what loads and runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gett
from benchmarks import known_schedules
from benchmarks.regret import STORED, facts_of
from benchmarks.schedule_times import Problem, read, write
from gett.codec import decode
from gett.errors import PoorKernelError
from gett.hw.archs import arch_facts
from gett.hw.device import measured, own_record
from gett.ir.gemm import GemmPlan
from gett.runtime import compiling
from gett.schedule.known import lookup
from gett.schedule.known.lookup import BOUND, key_of, known_of, known_schedule, path_of
from gett.schedule.legality import can_implement
from gett.schedule.search.select import candidates, searched, select_schedule
from gett.schedule.spec.schedule import Schedule

ARCH = "sm_90a"
SHIPPED = [x.name for x in measured()]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without known schedules in place of the package's."""
    monkeypatch.setattr(lookup, "FOLDER", tmp_path)
    known_of.cache_clear()
    yield tmp_path
    known_of.cache_clear()


def plan_of(einsum: str = "mk,kn->mn", n: int = 512, dtype: str = "float16") -> GemmPlan:
    plan: GemmPlan = gett.plan(einsum, ((n, n), dtype), ((n, n), dtype), arch=ARCH).steps[0].gemm
    return plan


def keep(plan: GemmPlan, schedule: Schedule, us: float = 3.25, device: str = "NVIDIA H200") -> None:
    """Make a schedule known, as the command writes it."""
    text = json.dumps(known_schedules.bare(known_schedules.encode(schedule)))
    path_of(device).write_bytes(gzip.compress(json.dumps({key_of(plan): (us, text)}).encode()))
    known_of.cache_clear()


def test_the_known_schedule_leads_and_its_time_is_the_forecast() -> None:
    plan = plan_of()
    model = searched(plan, arch_facts(ARCH))
    wanted = model[5]
    keep(plan, wanted)
    found = candidates(plan, ARCH)
    assert found[0] == wanted != model[0]
    assert (found[0].forecast.us, found[0].forecast.bound) == (3.25, BOUND)
    assert found[1:] == [s for s in model if s != wanted]
    assert select_schedule(plan, ARCH) == wanted
    assert "fastest of those timed on an NVIDIA H200" in found[0].forecast.reason


def test_letters_do_not_matter_and_extents_do() -> None:
    plan = plan_of()
    keep(plan, searched(plan, arch_facts(ARCH))[1])
    assert known_schedule(plan_of("xy,yz->xz"), arch_facts(ARCH)) is not None
    assert known_schedule(plan_of(n=520), arch_facts(ARCH)) is None
    assert known_schedule(plan_of(dtype="bfloat16"), arch_facts(ARCH)) is None


@pytest.mark.parametrize("change", [{"name": "NVIDIA H200 NVL"}, {"name": "NVIDIA H100 80GB HBM3"}])
def test_another_gpu_does_not_know_it(change: dict[str, Any]) -> None:
    plan = plan_of()
    keep(plan, searched(plan, arch_facts(ARCH))[1])
    assert known_schedule(plan, replace(arch_facts(ARCH), **change)) is None
    assert known_schedule(plan, replace(arch_facts(ARCH), name="NVIDIA H200")) is not None


def test_what_the_gpu_cannot_run_is_not_taken() -> None:
    plan = plan_of(n=2048)
    split = next(s for s in searched(plan_of(n=256), arch_facts(ARCH)) if s.workspace_bytes)
    keep(plan_of(n=256), split)
    assert known_schedule(plan_of(n=256), arch_facts(ARCH)) is not None
    assert known_schedule(plan_of(n=256), replace(arch_facts(ARCH), workspace_limit=0)) is None
    keep(plan, split)  # another contraction's
    assert known_schedule(plan, arch_facts(ARCH)) is None


def test_a_schedule_of_other_records_counts_as_absent(files: Path) -> None:
    plan = plan_of()
    text = json.dumps({"type": "Schedule", "arch": ARCH})
    path_of("NVIDIA H200").write_bytes(gzip.compress(json.dumps({key_of(plan): (1.0, text)}).encode()))
    assert known_schedule(plan, arch_facts(ARCH)) is None
    assert select_schedule(plan, ARCH) == searched(plan, arch_facts(ARCH))[0]


def test_nominal_facts_are_of_the_gpu_that_stands_for_the_architecture() -> None:
    record = own_record(arch_facts(ARCH))
    assert record is not None
    assert record.name == "NVIDIA H200"
    assert own_record(arch_facts("sm_80")) is None


def test_the_command_keeps_what_the_model_misses(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missed, met = Problem("a", "mk,kn->mn", (("k", 512), ("m", 512), ("n", 512)), "float16"), None
    met = replace(missed, name="b", extents=(("k", 640), ("m", 640), ("n", 640)))
    facts, cases = facts_of("NVIDIA H200"), []
    for problem, times in ((missed, (4.0, 3.0)), (met, (3.0, 2.98))):
        timed = zip(times, searched(problem.gemm(ARCH), facts)[:2], strict=True)
        schedules = [{"us": us, "schedule": known_schedules.encode(s)} for us, s in timed]
        cases.append({"name": problem.name, "einsum": problem.einsum, "extents": dict(problem.extents),
                      "kind": problem.kind, "schedules": schedules})  # fmt: skip
    times = tmp_path / "times.json.gz"
    write(times, "NVIDIA H200", "0", cases)
    assert known_schedules.main([times]) == 0
    assert "NVIDIA H200: 1 known schedules" in capsys.readouterr().out
    known_of.cache_clear()
    assert select_schedule(missed.gemm(ARCH), ARCH).forecast.us == 3.0
    assert known_schedule(met.gemm(ARCH), arch_facts(ARCH)) is None


@pytest.mark.parametrize("device", SHIPPED)
def test_what_is_shipped_loads_and_was_timed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "FOLDER", Path(lookup.__file__).parent)
    known = known_of(device)
    assert len(known) > 50
    for us, text in known.values():
        assert us > 0
        assert decode(Schedule, json.loads(text)).arch == ARCH


@pytest.mark.slow
@pytest.mark.parametrize("path", STORED, ids=["h200", "h100"])
def test_what_is_shipped_is_legal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "FOLDER", Path(lookup.__file__).parent)
    stored = read(path)
    facts, left = facts_of(stored["device"]), dict(known_of(stored["device"]))
    for case in stored["cases"]:
        plan = Problem.of(case).gemm(ARCH)
        if (entry := left.pop(key_of(plan), None)) is not None:
            assert can_implement(decode(Schedule, json.loads(entry[1])), plan, facts) is None
    assert not left


def test_a_known_schedule_is_compiled_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are searched where it compiles badly."""
    plan = plan_of()
    model = searched(plan, arch_facts(ARCH))
    keep(plan, model[5])
    tried, searches = [], []

    def compile_schedule(plan: GemmPlan, schedule: Schedule, **options: Any) -> Schedule:
        tried.append(schedule)
        if len(tried) == bad:
            raise PoorKernelError("spills")
        return schedule

    def search(*arguments: Any, **options: Any) -> list[Schedule]:
        searches.append(arguments)
        return model

    monkeypatch.setattr(compiling, "compile_schedule", compile_schedule)
    monkeypatch.setattr(compiling, "candidates", search)
    monkeypatch.setattr(compiling, "_compile_first", lambda plan, choices, facts, compiler: choices[0])
    for bad, wanted in ((0, model[5]), (1, model[0])):
        tried.clear()
        searches.clear()
        assert compiling.begin_best(plan, ARCH)(None) == wanted
        assert (tried, len(searches)) == ([model[5]], bad)
