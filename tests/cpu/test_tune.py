"""Schedules between processes: their form on disk, when they are stale, what is measured and who wins."""

from __future__ import annotations

import ctypes
import json
import math
import subprocess
import sys
import time
import types
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import gett
import gett.autotuning
import gett.jit.compile
import gett.planning
import gett.runtime.executable
import gett.schedule.select
import gett.tune.autotune
import gett.tune.recall
import gett.tune.store
from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.contraction_plan import PlanRequest
from gett.errors import DeviceError, OptionError, OutOfMemoryError, PoorKernelError, ScheduleError, TuneWarning
from gett.frontend.tensors import ALIGNMENT_LIMIT, TensorSpec
from gett.plan import make_gemm_plan
from gett.plan_cache import PlanCache, plan_cache
from gett.runtime.device import DeviceFacts
from gett.runtime.executable import GpuExecutable
from gett.schedule.records import Schedule
from gett.schedule.select import candidates
from gett.tune.autotune import Trial, Tuning, measure, progress_bar, shortlist, steps_of, tune
from gett.tune.codec import Stale, decode, encode
from gett.tune.measure import EXACT, Bench, pattern, span_of
from gett.tune.recall import build_remembered
from gett.tune.store import Entry, ScheduleStore, plan_key, schedule_store, signature
from tests.cases import AWKWARD, Layout, small_tccg, spread
from tests.cpu.helpers import contraction_of
from tests.cpu.strategies import Case, contractions
from tests.cpu.test_runtime import FakeDriver, FakeHost

ROOT = Path(__file__).parents[2]
FACTS = DeviceFacts(0, "Stand-in", (9, 0), "sm_90a", 132, 50 << 20, 227 << 10, 228 << 10, 1.98, 4.25, 140 << 30)
GEMM = "mk,kn->mn"


def matrix(rows, columns, dtype="float32"):
    size = np.dtype(dtype).itemsize
    return TensorSpec((rows, columns), (columns * size, size), np.dtype(dtype), ALIGNMENT_LIMIT)


def request(m=64, n=64, k=64, dtype="float32", **options):
    return PlanRequest(
        spec=GEMM, operands=(matrix(m, k, dtype), matrix(k, n, dtype)), arch="sm_90a", device=0, **options
    )


def gemm_plan(m=64, n=64, k=64, dtype="float32"):
    a, b = np.empty((m, k), dtype), np.empty((k, n), dtype)
    c = contraction_of(GEMM, a, b)
    a, b, d = (replace(t, alignment=ALIGNMENT_LIMIT) for t in (c.a, c.b, c.d))
    return make_gemm_plan(replace(c, a=a, b=b, d=d))


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU whose launches go nowhere, an empty cache, and a compiler that takes no time."""
    driver = FakeDriver(16)
    compiled = []

    def compile_kernel(source, arch, **options):
        compiled.append(source)
        return gett.jit.kernel_cache().get_or_build(
            gett.jit.compile.kernel_key(source, arch), lambda: f"cubin of {hash(source)}".encode()
        )

    places = (gett.runtime.executable, gett.tune.recall, gett.tune.autotune, gett.autotuning)
    stands = {"CupyHost": FakeHost, "device_facts": lambda: FACTS, "load_driver": lambda: driver}
    for module in places:
        for name, stand in stands.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, stand)
    monkeypatch.setattr(gett.jit.compile, "compile_kernel", compile_kernel)
    monkeypatch.setattr(gett.jit, "compile_kernel", compile_kernel, raising=False)
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    plan_cache.clear()
    yield types.SimpleNamespace(driver=driver, compiled=compiled, folder=tmp_path)
    plan_cache.clear()


def new_process(monkeypatch):
    """What a second process starts with: nothing in memory."""
    monkeypatch.setattr(gett.tune.store, "_current", None)
    monkeypatch.setattr(sys.modules["gett.jit.diskcache"], "_current", None)
    plan_cache.clear()


def forbid(monkeypatch, *names):
    """Make the search, the generator and the compiler unreachable."""

    def refuse(*args, **options):
        raise AssertionError("called")

    for name in names:
        module, _, function = name.rpartition(".")
        monkeypatch.setattr(sys.modules[module], function, refuse)


SEARCH = ("gett.schedule.select.candidates", "gett.codegen.render.render_kernel", "gett.jit.compile.compile_kernel")


# --- codec -----------------------------------------------------------------------------------------------------------


def through_json(kind, record):
    return decode(kind, json.loads(json.dumps(encode(record))))


def all_fields(record):
    return json.dumps(encode(record), sort_keys=True)


@pytest.mark.parametrize("case", [*small_tccg(1 << 16)[::4], *AWKWARD[::3]], ids=repr)
def test_schedules_and_kernels_survive_json(case):
    families = set()
    for dtype, arch in (("float16", "sm_90a"), ("float32", "sm_80"), ("complex64", "sm_90a")):
        plan = make_gemm_plan(case.contraction(dtype, with_c=Layout() if arch == "sm_80" else None))
        for schedule in spread(candidates(plan, arch), 3):
            families.add(schedule.family)
            found = through_json(Schedule, schedule)
            assert found == schedule
            assert hash(found) == hash(schedule)
            assert all_fields(found) == all_fields(schedule)  # equality leaves out what the model said
            kernel = render_kernel(plan, schedule)
            assert through_json(Kernel, kernel) == kernel
            entry = Entry(schedule, kernel, b"\0\xff" * 16, 1.5, 3)
            assert through_json(Entry, entry) == entry
    assert families


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(contractions(empty=False, misaligned=False, max_volume=2000))
def test_schedules_of_any_contraction_survive_json(case: Case):
    plan = make_gemm_plan(contraction_of(case.subscripts, *case.operands))
    try:
        found = candidates(plan, "sm_90a")
    except ScheduleError:
        return
    for schedule in spread(found, 2):
        assert through_json(Schedule, schedule) == schedule
        assert all_fields(through_json(Schedule, schedule)) == all_fields(schedule)


def leaves(data, path=()):
    """Paths of everything in JSON data."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from leaves(value, (*path, key))


def changed(data, path, value):
    copy = json.loads(json.dumps(data))
    if not path:
        return value
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


def test_any_value_of_another_type_is_stale():
    schedule = candidates(gemm_plan(256, 256, 256, "float16"), "sm_90a")[0]
    assert schedule.roles is not None
    data = encode(schedule)
    paths = list(leaves(data))
    assert len(paths) > 100
    for path in paths:
        with pytest.raises(Stale):
            decode(Schedule, changed(data, path, {"no": "record"}))
    for wrong in (True, 1.5, "1", [1], None):
        with pytest.raises(Stale):
            decode(Schedule, changed(data, ("split_k",), wrong))
    with pytest.raises(Stale):
        decode(Schedule, changed(data, ("estimate_us",), 1))


def test_other_fields_and_impossible_records_are_stale():
    data = encode(candidates(gemm_plan(), "sm_90a")[0])
    with pytest.raises(Stale, match="no Schedule"):
        decode(Schedule, data | {"colour": 1})
    with pytest.raises(Stale, match="no Schedule"):
        decode(Schedule, {k: v for k, v in data.items() if k != "family"})
    with pytest.raises(Stale):
        decode(Schedule, data | {"block": [1, 2]})
    box = {"extents": [4], "dims": []}  # a box that leaves a mode out
    with pytest.raises(Stale, match="do not cover"):
        decode(Schedule, data | {"box_m": box})
    with pytest.raises(Stale):
        decode(bytes, "zz")
    with pytest.raises(TypeError, match="no form"):
        encode({"a": 1})
    with pytest.raises(TypeError, match="no reader"):
        decode(dict, {})


# --- keys ------------------------------------------------------------------------------------------------------------


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
        assert {p.name for p in (ROOT / folder).glob(pattern_)} <= names
    assert {p.name for p in (ROOT / "layouts").glob("*.py")} | {"compile.py", "codec.py"} <= names
    assert all(read[0][name] or name.endswith("__init__.py") for name in read[0])


def test_without_a_compiler_or_files_nothing_is_remembered(monkeypatch):
    def unreadable():
        raise OSError("in an archive")

    monkeypatch.setattr(gett.tune.store, "sources_digest", unreadable)
    assert plan_key(gemm_plan(), FACTS) is None


# --- store -----------------------------------------------------------------------------------------------------------


def entry_of(plan, measured_us=None, position=0):
    schedule = candidates(plan, "sm_90a")[position]
    return Entry(schedule, render_kernel(plan, schedule), bytes(32), measured_us, 0 if measured_us is None else 5)


def test_measured_entries_come_before_chosen_ones(tmp_path):
    plan, key = gemm_plan(), bytes(range(32))
    store = ScheduleStore(tmp_path)
    assert store.find(key) is None
    chosen, tuned = entry_of(plan), entry_of(plan, 12.5, 1)
    store.put(key, tuned)
    store.put(key, chosen)
    for store in (store, ScheduleStore(tmp_path)):
        assert store.find(key) == tuned
        assert store.find(key, tuned_only=True) == tuned
        assert store.count() == (1, 1)
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
        b"", whole[:40], whole[:-1], whole[:-9] + b"1" + whole[-8:], b"{}", whole.replace(b'"family"', b'"famile"'),
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
from tests.cpu.test_tune import entry_of, gemm_plan
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


# --- recall ----------------------------------------------------------------------------------------------------------


def test_a_second_process_neither_searches_nor_renders(gpu, monkeypatch):
    first = gett.planning.make_plan(request())
    assert len(gpu.compiled) == 1
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH)
    second = gett.planning.make_plan(request())
    one, two = first.steps[0], second.steps[0]
    assert (two.schedule, two.executable.kernel) == (one.schedule, one.executable.kernel)
    assert two.schedule.estimate_us == one.schedule.estimate_us > 0
    assert two.executable.plan == one.executable.plan
    assert "chosen by the model (estimate" in str(second)
    with pytest.raises(AssertionError, match="called"):  # another plan is searched
        gett.planning.make_plan(request(m=65))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_swapped_and_split_plans_come_back_as_they_were(gpu, monkeypatch, dtype):
    a, b = TensorSpec((96, 4096), (8192, 2), np.dtype("float16"), ALIGNMENT_LIMIT), matrix(4096, 40, "float16")
    spec = PlanRequest(spec="ik,kj->ji", operands=(a, b), arch="sm_90a", device=0)
    one = gett.planning.make_plan(spec).steps[0].executable
    assert one.plan.swapped or one.schedule.exchanged
    assert one.workspace_bytes > 0
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH)
    two = gett.planning.make_plan(spec).steps[0].executable
    assert (two.plan, two.schedule, two.workspace_bytes) == (one.plan, one.schedule, one.workspace_bytes)
    assert two._swapped is one._swapped


def test_a_spilling_candidate_is_met_once(gpu, monkeypatch):
    real, poor = gett.jit.compile_kernel, []

    def compile_kernel(source, arch, **options):
        if not poor or source in poor:
            poor.append(source)
            raise PoorKernelError("spills")
        return real(source, arch, **options)

    monkeypatch.setattr(gett.jit, "compile_kernel", compile_kernel)
    plan = gemm_plan(512, 512, 512, "float16")
    first = build_remembered(plan, "sm_90a")
    assert first.schedule == candidates(plan, "sm_90a", FACTS.planning)[1]
    new_process(monkeypatch)
    again = build_remembered(plan, "sm_90a")
    assert again.schedule == first.schedule
    assert len(poor) == 1


def test_a_lost_cubin_is_compiled_again_from_the_kept_text(gpu, monkeypatch):
    build_remembered(gemm_plan())
    for file in gpu.folder.glob("*.kernel"):
        file.unlink()
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH[:2])
    assert build_remembered(gemm_plan()).kernel.source == gpu.compiled[0]
    assert gpu.compiled == gpu.compiled[:1] * 2


def test_a_useless_entry_is_replaced_by_a_search(gpu, monkeypatch):
    executable = build_remembered(gemm_plan())
    store, key = schedule_store(), plan_key(gemm_plan(), FACTS)
    entry = store.find(key)
    store.put(key, replace(entry, cubin=b"\1" * 32, kernel=replace(entry.kernel, arch="sm_75")))

    def fail(source, arch, **options):
        if arch == "sm_75":
            raise gett.CompileError("unknown")
        return b"new"

    monkeypatch.setattr(gett.jit.compile, "compile_kernel", fail)
    monkeypatch.setattr(gett.jit, "compile_kernel", fail)
    assert build_remembered(gemm_plan()).schedule == executable.schedule
    assert store.find(key).kernel == executable.kernel


def test_another_architecture_is_not_looked_up(gpu, monkeypatch):
    build_remembered(gemm_plan())
    with pytest.raises(DeviceError, match="do not run on Stand-in"):
        build_remembered(gemm_plan(), "sm_80")


_SECOND = """
import json, sys, time
from tests.cpu.test_tune import FACTS, FakeDriver, FakeHost, matrix
import gett.planning, gett.contraction_plan
gone = [m for m in sys.modules if m.startswith(("gett.tune", "gett.runtime", "gett.jit", "gett.codegen", "gett.sched"))]
keep = {"gett.schedule", "gett.schedule.records", "gett.schedule.stream_records"}
for name in gone:
    if name not in keep:
        del sys.modules[name]
import gett.tune.recall, gett.runtime.executable
for module in (gett.tune.recall, gett.runtime.executable):
    module.CupyHost, module.device_facts, module.load_driver = FakeHost, lambda: FACTS, lambda: driver
driver = FakeDriver(16)
request = gett.contraction_plan.PlanRequest(
    spec="mk,kn->mn", operands=(matrix(64, 64, "float16"),) * 2, arch="sm_90a", device=0
)
gett.planning.make_plan(request)
print(json.dumps([m for m in sys.modules if m in (
    "gett.schedule.select", "gett.schedule.sm90", "gett.codegen.render", "gett.jit.nvrtc", "gett.jit.compile")]))
"""


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


# --- tuning ----------------------------------------------------------------------------------------------------------


class FakeBench:
    """Times by a function of the schedule; results by another."""

    def __init__(self, time_of, bits_of=lambda s: 0):
        self.time_of, self.bits_of = time_of, bits_of
        self.order = []

    def agreeing(self, runs):
        self.order.append("check")
        bits = [self.bits_of(run.schedule) for run in runs]
        most = max(bits, key=bits.count)
        return [i for i, b in enumerate(bits) if b == most]

    def shuffle(self):
        self.order.append("shuffle")

    def time(self, run, repeat):
        self.order.append(run.schedule)
        return self.time_of(run.schedule)


PLAN = (512, 512, 512, "float16")


@pytest.fixture
def listed():
    return candidates(gemm_plan(*PLAN), "sm_90a", FACTS.planning)


def test_the_fastest_wins_and_is_remembered(gpu, listed, monkeypatch):
    winner = listed[3]
    bench = FakeBench(lambda s: 5.0 if s == winner else 10.0 + s.estimate_us)
    steps = []
    tuning = tune(gemm_plan(*PLAN), candidates=6, bench=lambda plan: bench, step=steps.append)
    assert tuning.best.schedule == winner
    assert tuning.executable.schedule == winner
    assert tuning.executable.measured == (5.0, 6)
    assert tuning.chosen.schedule == listed[0]
    assert tuning.gain == tuning.chosen.measured_us / 5.0
    assert bench.order[:2] == ["check", "shuffle"]
    assert len(steps) == steps_of(6)
    assert [t.measured_us for t in tuning.trials] == sorted(t.measured_us for t in tuning.trials)
    new_process(monkeypatch)
    forbid(monkeypatch, *SEARCH)
    found = build_remembered(gemm_plan(*PLAN))
    assert (found.schedule, found.measured) == (winner, (5.0, 6))
    assert build_remembered(gemm_plan(*PLAN), tuned_only=True).schedule == winner


def test_tuning_can_be_kept_to_itself(gpu):
    tune(gemm_plan(*PLAN), candidates=2, bench=lambda plan: FakeBench(lambda s: 1.0), store=False)
    assert build_remembered(gemm_plan(*PLAN), tuned_only=True) is None


def test_wrong_results_are_dropped_with_a_warning_and_never_stored(gpu, listed):
    wrong = listed[1]
    bench = FakeBench(lambda s: 1.0 if s == wrong else 2.0, lambda s: s == wrong)
    with pytest.warns(TuneWarning, match=r"another result than 4 others .*not used"):
        tuning = tune(gemm_plan(*PLAN), candidates=5, bench=lambda plan: bench)
    assert tuning.best.schedule != wrong
    assert [t for t in tuning.trials if t.note == "wrong result"] == [Trial(wrong, None, "wrong result")]
    assert wrong not in bench.order
    assert schedule_store().find(plan_key(gemm_plan(*PLAN), FACTS)).schedule == tuning.best.schedule


def test_kernels_that_spill_are_passed_over(gpu, listed, monkeypatch):
    real, texts = gett.jit.compile.compile_kernel, set()
    bad = render_kernel(gemm_plan(*PLAN), listed[0]).source

    def compile_kernel(source, arch, **options):
        texts.add(source.text)
        if source == bad:
            raise PoorKernelError("kernel 'x' compiles badly\n12 bytes spilled")
        return real(source, arch, **options)

    monkeypatch.setattr(gett.jit.compile, "compile_kernel", compile_kernel)
    tuning = tune(gemm_plan(*PLAN), candidates=4, bench=lambda plan: FakeBench(lambda s: s.estimate_us))
    assert len(texts) == 4
    assert tuning.trials[-1] == Trial(listed[0], None, "kernel 'x' compiles badly 12 bytes spilled")
    assert tuning.chosen.schedule == listed[1]
    monkeypatch.setattr(
        gett.jit.compile, "compile_kernel", lambda *a, **k: (_ for _ in ()).throw(PoorKernelError("no"))
    )
    with pytest.raises(PoorKernelError, match="no"):
        tune(gemm_plan(*PLAN), candidates=3, bench=lambda plan: FakeBench(lambda s: 1.0))


def test_every_family_is_tried(listed):
    families = dict.fromkeys(s.family for s in listed)
    assert list(families)[0] == "sm90"
    assert len(families) > 1
    short = shortlist(gemm_plan(*PLAN), FACTS, 4)
    assert len(short) == len(set(short)) == 4
    assert {s.family for s in short} == set(families)
    assert short[:2] == listed[:2]
    assert shortlist(gemm_plan(*PLAN), FACTS, 1) == listed[:1]
    everything = shortlist(gemm_plan(*PLAN), FACTS, 1000)
    assert everything == listed


def test_finalists_are_measured_again_and_their_lower_time_stands():
    times = {"a": [10.0, 9.0], "b": [9.9, 9.95], "c": [10.2, 8.0], "d": [10.5, 1.0], "e": [20.0, 1.0]}

    class Clock:
        def time(self, run, repeat):
            return times[run].pop(0)

    found = measure(Clock(), list("abcde"), 5, lambda text: None)
    assert found == [9.0, 9.9, 8.0, 10.5, 20.0]  # three finalists; d and e keep their first times
    assert measure(FakeBench(lambda s: 3.0), [types.SimpleNamespace(schedule=0)], 5, lambda text: None) == [3.0]


def test_nothing_measured_gains_nothing():
    assert Tuning(gemm_plan(), ()).gain == 1.0
    assert Tuning(gemm_plan(), ()).best is None


# --- the public functions --------------------------------------------------------------------------------------------


@pytest.fixture
def bench(gpu, monkeypatch):
    made = []

    def make(cupy, plan, l2_bytes):
        made.append(plan)
        assert l2_bytes == FACTS.l2_bytes
        return FakeBench(lambda s: 100.0 - s.estimate_us)  # the model is as wrong as can be

    monkeypatch.setattr(gett.tune.autotune, "Bench", make)
    monkeypatch.setattr(gett.tune.autotune, "require_cupy", lambda: None)
    return made


PAIRS = (((512, 512), "float16"), ((512, 512), "float16"))


def test_autotune_replaces_the_plans_in_memory(bench, monkeypatch):
    before = gett.planning.find_plan(request(*PLAN))
    unrelated = gett.planning.find_plan(request(64, 64, 64))
    assert gett.planning.find_plan(request(*PLAN)) is before
    result = gett.autotune(GEMM, *PAIRS, candidates=5, progress=False)
    (tuning,) = result.steps
    assert len(bench) == 1
    after = gett.planning.find_plan(request(*PLAN))
    assert after is not before
    assert after.steps[0].schedule == tuning.best.schedule != before.steps[0].schedule
    assert f"tuned: measured {tuning.best.measured_us:.3g} us among 5 candidates" in str(after)
    assert gett.planning.find_plan(request(64, 64, 64)) is unrelated
    assert result.measured_us == tuning.best.measured_us
    text = repr(result)
    assert text.count("sm90") >= 3
    assert "the model's choice" in text
    for trial in tuning.trials:
        assert f"{trial.measured_us:.1f}" in text
        assert f"{trial.schedule.estimate_us:.1f}" in text


def test_optimize_autotune_measures_once(bench, monkeypatch):
    ordinary = gett.planning.find_plan(request(*PLAN))
    tuned = gett.planning.find_plan(request(*PLAN, optimize="autotune"))
    assert tuned.steps[0].executable.measured is not None
    assert gett.planning.find_plan(request(*PLAN)) is not ordinary
    assert gett.planning.find_plan(request(*PLAN)).steps[0].schedule == tuned.steps[0].schedule
    assert gett.planning.find_plan(request(*PLAN, optimize="autotune")) is tuned
    new_process(monkeypatch)
    again = gett.planning.find_plan(request(*PLAN, optimize="autotune"))
    assert again.steps[0].schedule == tuned.steps[0].schedule
    assert len(bench) == 1


def test_every_step_of_a_network_is_tuned_and_like_steps_once(bench):
    spec = PlanRequest(spec="ab,bc,cd,de->ae", operands=(matrix(64, 64),) * 4, arch="sm_90a", device=0)
    plan = gett.planning.find_plan(replace(spec, optimize="autotune"))
    assert len(plan.steps) == 3
    assert all(s.executable.measured is not None for s in plan.steps)
    assert len(bench) == len({signature(s.gemm) for s in plan.steps})
    plain = gett.plan("ab,bc,cd,de->ae", *[((64, 64), "f4")] * 4)
    assert plan.steps[0].inputs == plain.steps[0].inputs  # the path is found as ever
    result = gett.autotune("ab,bc,cd,de->ae", *[((64, 64), "f4")] * 4, candidates=3, progress=False)
    assert len(result.names) == len(result.steps) == 3


def test_on_numpy_there_is_nothing_to_tune():
    a = np.ones((4, 4))
    result = gett.autotune("ij,jk,kl->il", a, a, a)
    assert (result.arch, result.steps, result.measured_us) == ("cpu", (), None)
    assert "nothing to tune" in repr(result)
    assert all(route in repr(result) for route in result.route)
    assert len(result.route) == 2
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", a, a, optimize="autotune"), a @ a)
    np.testing.assert_array_equal(gett.einsum("ij,jk,kl->il", a, a, a, optimize="autotune"), a @ a @ a)


def test_without_a_gpu_tuning_says_so(monkeypatch):
    class Runtime(Exception):
        status = 100

    def count():
        raise Runtime("none")

    runtime = types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=Runtime)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime), ndarray=type("ndarray", (), {}))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(DeviceError, match="no NVIDIA GPU is visible"):
        gett.autotune(GEMM, *PAIRS)


@pytest.mark.parametrize(("option", "value"), [("candidates", 0), ("repeat", 0), ("candidates", 2.5)])
def test_bad_options_are_named(option, value):
    with pytest.raises(OptionError, match=f"{option}={value}"):
        gett.autotune("ij->ji", np.ones((2, 2)), **{option: value})


def test_plans_are_discarded_by_a_condition():
    cache = PlanCache()
    for i in range(6):
        cache.put(i, f"plan {i}")
    assert cache.discard(lambda plan: plan > "plan 3") == 2
    assert [cache.get(i) is not None for i in range(6)] == [True] * 4 + [False] * 2


def test_progress_is_shown_where_wanted(capsys):
    for wanted in (True, False):
        with progress_bar(3, "autotune", wanted) as step:
            for i in range(3):
                step(f"measured {i}")
        shown = capsys.readouterr()
        assert not shown.out
        assert ("autotune" in shown.err) is wanted


def test_importing_gett_does_not_load_the_tuner():
    program = (
        "import sys, gett; early = [m for m in sys.modules if m.startswith(('gett.tune', 'gett.runtime', 'gett.jit.'))]; "
        "assert callable(gett.autotune); print(early)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'tune_all'"):
        gett.tune_all  # noqa: B018


# --- scratch tensors -------------------------------------------------------------------------------------------------


class HostArray:
    """A CuPy array whose memory is NumPy's."""

    def __init__(self, values):
        self.values = values
        self.data = types.SimpleNamespace(ptr=values.__array_interface__["data"][0])
        self.size = values.size

    def __getitem__(self, key):
        return HostArray(self.values[key])

    def __setitem__(self, key, value):
        self.values[key] = value.values if isinstance(value, HostArray) else value

    def __ne__(self, other):
        return HostArray(self.values != other.values)

    __hash__ = None

    def view(self, dtype):
        return HostArray(self.values.view(dtype))

    def any(self):
        return self.values.any()


class HostCupy:
    """What `Bench` uses of CuPy, on NumPy; the device's clock advances by what the runs say they take."""

    def __init__(self, room=1 << 40):
        self.room, self.now, self.waits = room, 0.0, []
        outer = self

        class Event:
            def record(self, stream):
                self.at = outer.now

            def synchronize(self):
                pass

        stream = types.SimpleNamespace(synchronize=lambda: None)
        self.cuda = types.SimpleNamespace(
            Event=Event,
            get_current_stream=lambda: stream,
            get_elapsed_time=lambda e0, e1: (e1.at - e0.at) / 1e3,
        )

    def empty(self, size, dtype):
        self.room -= size
        if self.room < 0:
            raise MemoryError("out of memory")
        raw = np.full(size + 256, 0xAB, dtype)
        skip = -raw.__array_interface__["data"][0] % 256
        return HostArray(raw[skip : skip + size])

    def asarray(self, values):
        return HostArray(values)

    def RawKernel(self, text, name):
        assert name in text
        return lambda grid, block, arguments: self.waits.append(int(arguments[0]))


@dataclass(eq=False)
class HostRun:
    """Computes a contraction at the addresses that it is given, as a kernel would; `spoil` makes it wrong."""

    contraction: object
    cupy: HostCupy
    us: float = 10.0
    spoil: int = 0
    calls: int = 0
    seen: tuple = ()

    def array(self, operand, tensor):
        size = np.dtype(operand.dtype).itemsize
        assert tensor.data.ptr % 256 == (operand.alignment if operand.alignment < ALIGNMENT_LIMIT else 0)
        shape = tuple(self.contraction.extents[m] for m in operand.modes)
        reach = [s * (e - 1) for s, e in zip(operand.strides, shape, strict=True)]
        low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + size
        memory = np.frombuffer((ctypes.c_char * (high - low)).from_address(tensor.data.ptr + low), np.uint8)
        start = memory[-low : -low + size].view(operand.dtype)
        return np.lib.stride_tricks.as_strided(start, shape, operand.strides)

    def __call__(self, a, b, c, d, alpha, beta):
        k = self.contraction
        x, y, out = self.array(k.a, a), self.array(k.b, b), self.array(k.d, d)
        exact = np.einsum(x.astype("float64"), k.a.modes, y.astype("float64"), k.b.modes, k.d.modes)
        if k.c is not None:
            assert beta == 1
            exact = exact + self.array(k.c, c).astype("float64").reshape(exact.shape)
        out[...] = exact
        if self.spoil:
            out[(0,) * out.ndim] += self.spoil
        self.seen = (x.copy(), y.copy())
        self.calls += 1
        self.cupy.now += self.us


CASES = [c for c in AWKWARD if c.volume < 1 << 18 and len(set(c.labels[0])) == len(c.labels[0])][:12]


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("with_c", [None, Layout()], ids=["", "c"])
def test_scratch_tensors_lie_as_planned_and_wrong_bits_are_seen(case, with_c):
    contraction = case.contraction("float32", with_c=with_c)
    cupy = HostCupy()
    bench = Bench(cupy, make_gemm_plan(contraction), 0)
    assert bench.sets == 1
    runs = [HostRun(contraction, cupy, spoil=s) for s in (0, 1, 0, 2, 0)]
    assert bench.agreeing(runs) == [0, 2, 4]
    x, y = runs[0].seen
    assert np.array_equal(x, np.round(x))
    assert 0 < np.abs(x).max() <= 2
    assert len(np.unique(y)) > 1
    bench.shuffle()
    runs[0](*bench._sets[0], 1, 1)
    x, y = runs[0].seen
    assert np.abs(x).max() <= 1
    assert not np.array_equal(x, np.round(x))


def test_the_majority_is_right():
    contraction = AWKWARD[0].contraction("float32")
    cupy = HostCupy()
    bench = Bench(cupy, make_gemm_plan(contraction), 0)
    runs = [HostRun(contraction, cupy, spoil=s) for s in (1, 0, 0, 2, 0)]
    assert bench.agreeing(runs) == [1, 2, 4]
    assert bench.agreeing(runs[:2]) == [0]  # one against one: the model's own
    assert bench.agreeing([]) == []


def test_time_is_the_device_s_own_and_copies_take_turns():
    plan = gemm_plan(32, 32, 32)
    cupy = HostCupy()
    bench = Bench(cupy, plan, 30_000)
    total = sum(span_of(o, plan.contraction.extents).size for o in (plan.a, plan.b, plan.contraction.d))
    assert bench.sets == math.ceil(3 * 30_000 / total) > 1
    visited = []

    def run(*arguments):
        visited.append(arguments[3].data.ptr)
        cupy.now += 40.0

    assert bench.time(run, 9) == 40.0
    assert len(set(visited)) == bench.sets
    assert len(visited) == 11
    assert len(cupy.waits) == 2
    visited.clear()

    def slow(*arguments):
        visited.append(0)
        cupy.now += 1e6

    assert bench.time(slow, 9) == 1e6
    assert len(visited) == 5


def test_no_room_for_scratch_tensors_gives_the_bytes():
    plan = gemm_plan(64, 64, 64)
    with pytest.raises(OutOfMemoryError, match=str(4 * 4 * 64 * 64)):
        Bench(HostCupy(room=40_000), plan, 0)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
def test_patterns_are_of_their_type(dtype):
    count = 999
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    for most in (0, 1, 2):
        data = pattern(dtype, 3, most=most, count=count)
        assert data.dtype == np.uint8
        assert data.size == count * size
        assert np.array_equal(data, pattern(dtype, 3, most=most, count=count))
        assert not np.array_equal(data, pattern(dtype, 4, most=most, count=count))
        if dtype == "bfloat16":
            values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = data.view(dtype)
        real = values.view(values.real.dtype).astype(float)
        assert len(np.unique(real)) > 1
        if most:
            assert np.abs(real).max() <= most
            assert np.array_equal(real, np.round(real))
        if dtype.startswith(("uint", "bool")):
            assert real.min() >= 0


def test_long_sums_stay_exact():
    short, long = gemm_plan(8, 8, 8), gemm_plan(8, 8, EXACT // 8 + 1)
    assert Bench(HostCupy(), short, 0)._magnitude() == 2
    assert Bench(HostCupy(), long, 0)._magnitude() == 1


def test_spans_hold_every_element_and_keep_the_alignment():
    for case in CASES:
        for dtype in ("float16", "complex128"):
            contraction = case.contraction(dtype)
            for operand in (contraction.a, contraction.b, contraction.d):
                span = span_of(operand, contraction.extents)
                corners = [0]
                for m, s in zip(operand.modes, operand.strides, strict=True):
                    corners += [c + s * (contraction.extents[m] - 1) for c in corners]
                assert span.first + min(corners) >= 0
                assert span.first + max(corners) + np.dtype(dtype).itemsize == span.size
                assert math.gcd(span.first, ALIGNMENT_LIMIT) == min(operand.alignment, ALIGNMENT_LIMIT)


def test_a_measured_executable_says_so(gpu):
    executable = build_remembered(gemm_plan())
    assert isinstance(executable, GpuExecutable)
    assert executable.measured is None
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build_remembered(gemm_plan(), tuned_only=True) is None
    assert time.perf_counter() - start < 1
