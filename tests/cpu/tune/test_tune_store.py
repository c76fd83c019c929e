"""Schedules between processes: their form on disk, when they are stale, what a second process does not do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import gett
import gett.api.autotune
import gett.jit.compile
import gett.plans.planner
import gett.runtime.build
import gett.schedule.search.select
import gett.tune.recall
import gett.tune.store
import gett.tune.tuner
from gett.codec import encode
from gett.errors import DeviceError, PoorKernelError
from gett.ir.gemm import make_gemm_plan
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec
from gett.network.request import PlanRequest
from gett.schedule.search.select import candidates
from gett.tune.recall import build_remembered
from gett.tune.store import ScheduleStore, plan_key, schedule_store
from tests.cpu.tuning import FACTS, ROOT, SEARCH, compile_by, entry_of, forbid, gemm_plan, matrix, new_process, request


def test_the_key_covers_whatever_a_schedule_depends_on(monkeypatch):
    plan = gemm_plan()
    c = plan.contraction
    key = plan_key(plan, FACTS)
    assert key == plan_key(gemm_plan(), FACTS)
    letters = replace(plan, contraction=replace(c, names=("x", "y", "z")))
    assert plan_key(letters, FACTS) == key
    wide = replace(c, d=replace(c.d, strides=(c.d.strides[0] * 2, c.d.strides[1])))
    other = [
        gemm_plan(65),
        gemm_plan(k=32),
        gemm_plan(dtype="float64"),
        make_gemm_plan(wide),
        make_gemm_plan(replace(c, a=replace(c.a, alignment=8))),
        make_gemm_plan(replace(c, d=replace(c.d, dtype="float64"))),
        make_gemm_plan(replace(c, precision="tf32")),
        make_gemm_plan(replace(c, c=c.d)),
    ]
    keys = {plan_key(p, FACTS) for p in other} | {
        plan_key(plan, replace(FACTS, **change))
        for change in ({"arch": "sm_80"}, {"name": "Other"}, {"sm_count": 114}, {"l2_bytes": 1})
    }
    assert len(keys) == 12
    assert key not in keys
    monkeypatch.setattr(gett.tune.store, "sources_digest", lambda: b"a new kernel")
    assert plan_key(plan, FACTS) not in keys | {key}


def test_the_sources_are_those_of_kernels_and_schedules(monkeypatch):
    read = []
    monkeypatch.setattr(gett.tune.store, "cache_key", lambda contents: read.append(contents) or b"digest")
    gett.tune.store.sources_digest.__wrapped__()
    names = {name.rpartition("/")[2] or name.rpartition("/")[0].rpartition("/")[2] for name in read[0]}
    for folder, pattern_ in (("gett/kernels", "*.cuh"), ("gett/schedule", "*.py"), ("gett/codegen", "*.py")):
        assert {p.name for p in (ROOT / folder).rglob(pattern_)} <= names
    assert {p.name for p in (ROOT / "layouts").glob("*.py")} | {"compile.py", "codec.py"} <= names
    assert all(read[0][name] or name.endswith("__init__.py") for name in read[0])


def test_without_a_compiler_or_files_nothing_is_remembered(monkeypatch):
    def unreadable():
        raise OSError("in an archive")

    monkeypatch.setattr(gett.tune.store, "sources_digest", unreadable)
    assert plan_key(gemm_plan(), FACTS) is None


def test_measured_entries_come_before_chosen_ones(tmp_path):
    plan, key = gemm_plan(), bytes(range(32))
    store = ScheduleStore(tmp_path)
    assert store.find(key) is None
    chosen, tuned = entry_of(plan), entry_of(plan, 12.5, 1)
    store.put(key, tuned)
    store.put(key, chosen)
    for reader in (store, ScheduleStore(tmp_path)):
        assert reader.find(key) == tuned
        assert reader.find(key, tuned_only=True) == tuned
        assert reader.count() == (1, 1)
    only = ScheduleStore(tmp_path / "b")
    only.put(key, chosen)
    assert only.find(key) == chosen
    assert only.find(key, tuned_only=True) is None
    assert ScheduleStore(tmp_path).clear() == 2
    assert ScheduleStore(tmp_path).find(key) is None


def test_damaged_and_foreign_files_count_as_absent(tmp_path):
    plan, key = gemm_plan(), bytes(32)
    ScheduleStore(tmp_path).put(key, entry_of(plan, 3.0))
    (file,) = tmp_path.rglob("*.kernel")
    whole = file.read_bytes()
    for data in (
        b"", whole[:40], whole[:-1], whole[:-9] + b"1" + whole[-8:], b"{}", whole.replace(b'"mainloop"', b'"mainlope"'),
    ):  # fmt: skip
        file.write_bytes(data)
        assert ScheduleStore(tmp_path).find(key) is None
    file.write_bytes(whole)
    assert ScheduleStore(tmp_path).find(key) is not None
    store = ScheduleStore(tmp_path)
    store._parts[True].put(key, b'{"schedule": 1}')  # whole, but of another version
    assert ScheduleStore(tmp_path).find(key) is None
    store._parts[True].put(key, b"\xff no JSON")
    assert ScheduleStore(tmp_path).find(key) is None
    for deep in (b"[" * 100_000, b'{"schedule":' * 100_000, b"[" * 900 + b"]" * 900):
        store._parts[True].put(key, deep)
        assert ScheduleStore(tmp_path).find(key) is None
    store.put(key, entry_of(plan, 3.0))
    assert ScheduleStore(tmp_path).find(key) is not None


def test_a_model_entry_among_the_measured_is_not_believed(tmp_path):
    store, key = ScheduleStore(tmp_path), bytes(32)
    store._parts[True].put(key, json.dumps(encode(entry_of(gemm_plan()))).encode())
    assert store.find(key) is None


def test_the_store_is_bounded(tmp_path, monkeypatch):
    plan = gemm_plan()
    entry = entry_of(plan)
    size = len(json.dumps(encode(entry)).encode())
    monkeypatch.setattr(gett.tune.store, "MOST_ENTRIES", 20)
    monkeypatch.setattr(gett.tune.store, "ENTRY_BYTES", size)
    store = ScheduleStore(tmp_path)
    store.put(bytes(32), entry_of(plan, 1.0))
    for i in range(60):
        store.put(i.to_bytes(32, "big"), entry)
    tuned, chosen = store.count()
    assert tuned == 1  # many plans do not push out what was measured
    assert 10 <= chosen <= 20


def test_entries_are_about_as_large_as_the_bound_assumes():
    sizes = [
        len(json.dumps(encode(entry_of(gemm_plan(256, 256, 256, dtype))), separators=(",", ":")))
        for dtype in ("float16", "float32", "complex128")
    ]
    assert max(sizes) < 2 * gett.tune.store.ENTRY_BYTES


_RACE = """
import sys
from pathlib import Path
from tests.cpu.tuning import entry_of, gemm_plan
from gett.tune.store import ScheduleStore
folder, turn = Path(sys.argv[1]), int(sys.argv[2])
entries = [entry_of(gemm_plan(), float(i + 1)) for i in range(2)]
bad = 0
for i in range(300):
    ScheduleStore(folder).put(bytes(32), entries[turn])
    found = ScheduleStore(folder).find(bytes(32))
    bad += found not in entries
print(bad)
"""


@pytest.mark.slow
def test_racing_processes_read_whole_entries(tmp_path):
    command = [sys.executable, "-c", _RACE, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(turn)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for turn in range(2)
    ]
    assert [p.communicate()[0].strip() for p in processes] == ["0", "0"]


def test_the_store_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    first = schedule_store()
    assert first is schedule_store()
    assert first.directory == tmp_path / "schedules"
    monkeypatch.setenv("GETT_CACHE_DISABLE", "1")
    assert schedule_store().directory is None
    key, entry = bytes(32), entry_of(gemm_plan())
    schedule_store().put(key, entry)
    assert schedule_store().find(key) == entry
    assert not list(tmp_path.iterdir())


def test_a_second_process_neither_searches_nor_renders(fake_gpu, monkeypatch):
    first = gett.slices.finder.make_plan(request())
    assert len(fake_gpu.compiled) == 1
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH)
    second = gett.slices.finder.make_plan(request())
    one, two = first.steps[0], second.steps[0]
    assert (two.schedule, two.executable.kernel) == (one.schedule, one.executable.kernel)
    assert two.schedule.forecast.us == one.schedule.forecast.us > 0
    assert two.executable.plan == one.executable.plan
    assert "chosen by the model (estimate" in second.explain(detail=True)
    with pytest.raises(AssertionError, match="called"):  # another plan is searched
        gett.slices.finder.make_plan(request(m=65))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_swapped_and_split_plans_come_back_as_they_were(fake_gpu, monkeypatch, dtype):
    a, b = TensorSpec((96, 4096), (8192, 2), np.dtype("float16"), ALIGNMENT_LIMIT), matrix(4096, 40, "float16")
    spec = PlanRequest(spec="ik,kj->ji", operands=(a, b), arch="sm_90a", device=0)
    one = gett.slices.finder.make_plan(spec).steps[0].executable
    assert one.plan.swapped or one.schedule.tiling.swap_ab
    assert one.workspace_bytes > 0
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH)
    two = gett.slices.finder.make_plan(spec).steps[0].executable
    assert (two.plan, two.schedule, two.workspace_bytes) == (one.plan, one.schedule, one.workspace_bytes)
    assert two._swapped is one._swapped


def test_a_spilling_candidate_is_met_once(first_is_poor, monkeypatch):
    plan = gemm_plan(512, 512, 512, "float16")
    first = build_remembered(plan, "sm_90a")
    assert first.schedule == candidates(plan, "sm_90a", FACTS.planning)[1]
    new_process(monkeypatch)
    again = build_remembered(plan, "sm_90a")
    assert again.schedule == first.schedule
    assert len(first_is_poor) == 1


def test_where_every_candidate_spills_that_is_remembered_too(fake_gpu, monkeypatch):
    real, asked = gett.jit.compile_kernel, []

    def compile_kernel(source, arch, *, allow_spills=False, **options):
        asked.append(source)
        if not allow_spills:
            raise PoorKernelError("spills")
        return real(source, arch, allow_spills=True)

    compile_by(monkeypatch, compile_kernel)
    first = build_remembered(gemm_plan())
    assert len(asked) > 1
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH)
    assert build_remembered(gemm_plan()).schedule == first.schedule


def test_a_lost_cubin_is_compiled_again_from_the_kept_text(fake_gpu, monkeypatch):
    build_remembered(gemm_plan())
    for file in fake_gpu.folder.glob("*.kernel"):
        file.unlink()
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH[:2])
    assert build_remembered(gemm_plan()).kernel.source == fake_gpu.compiled[0]
    assert fake_gpu.compiled == fake_gpu.compiled[:1] * 2


def test_a_useless_entry_is_replaced_by_a_search(fake_gpu, monkeypatch):
    executable = build_remembered(gemm_plan())
    store, key = schedule_store(), plan_key(gemm_plan(), FACTS)
    entry = store.find(key)
    store.put(key, replace(entry, cubin=b"\1" * 32, kernel=replace(entry.kernel, arch="sm_75")))

    def fail(source, arch, **options):
        if arch == "sm_75":
            raise gett.CompileError("unknown")
        return b"new"

    compile_by(monkeypatch, fail)
    assert build_remembered(gemm_plan()).schedule == executable.schedule
    assert store.find(key).kernel == executable.kernel


def test_another_architecture_is_not_looked_up(fake_gpu, monkeypatch):
    build_remembered(gemm_plan())
    with pytest.raises(DeviceError, match="do not run on Stand-in"):
        build_remembered(gemm_plan(), "sm_80")


_SECOND = """
import json, sys, time
from tests.cpu.fake_driver import FakeDriver, FakeHost
from tests.cpu.tuning import FACTS, matrix
import gett.plans.planner, gett.network.request
gone = [m for m in sys.modules if m.startswith(("gett.tune", "gett.runtime", "gett.jit", "gett.codegen", "gett.sched"))]
for name in gone:
    if not name.startswith(("gett.schedule.spec", "gett.schedule.lower")) and name != "gett.schedule":
        del sys.modules[name]
import gett.tune.recall, gett.runtime.build
for module in (gett.tune.recall, gett.runtime.build):
    module.CupyHost, module.device_facts, module.load_driver = FakeHost, lambda: FACTS, lambda: driver
driver = FakeDriver(16)
request = gett.network.request.PlanRequest(
    spec="mk,kn->mn", operands=(matrix(64, 64, "float16"),) * 2, arch="sm_90a", device=0
)
gett.slices.finder.make_plan(request)
print(json.dumps([m for m in sys.modules if m in (
    "gett.schedule.search.select", "gett.schedule.search.hopper.wgmma_ss", "gett.codegen.render", "gett.jit.nvrtc",
    "gett.jit.compile")]))
"""


@pytest.mark.slow
def test_a_second_process_loads_neither_search_nor_generator_nor_compiler(tmp_path):
    environment = {"GETT_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    loaded = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", _SECOND], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(2)
    ]
    assert len(loaded[0]) == 5
    assert loaded[1] == []
