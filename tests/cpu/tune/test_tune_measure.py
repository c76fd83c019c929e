"""Scratch tensors and the clock of the tuner, on memory of the host; the benchmark that repeats the model's figures."""

from __future__ import annotations

import json
import math
import time
import types
import warnings
from itertools import pairwise

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
from benchmarks import calibrate, probes
from benchmarks.cases import load_cases
from gett.errors import OutOfMemoryError
from gett.hw.device import nearest
from gett.ir.gemm import make_gemm_plan
from gett.ir.tensors import ALIGNMENT_LIMIT
from gett.measure import timer
from gett.runtime.executable import GpuExecutable
from gett.tune.measure import EXACT, Bench, pattern, span_of
from gett.tune.recall import build_remembered
from gett.tune.store import schedule_store
from tests.cases import AWKWARD, Layout
from tests.cpu.host_cupy import HostCupy, HostRun
from tests.cpu.tuning import FACTS, gemm_plan

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


def test_a_measured_executable_says_so(fake_gpu):
    executable = build_remembered(gemm_plan())
    assert isinstance(executable, GpuExecutable)
    assert executable.measured is None
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build_remembered(gemm_plan(), tuned_only=True) is None
    assert time.perf_counter() - start < 1


def test_measuring_kernels_compile():
    for text in (probes.KERNELS, timer.WAIT):
        assert gett.jit.compile_uncached(text, "sm_80").cubin
    assert gett.jit.compile_uncached(probes.TMA_KERNEL, "sm_90").cubin


@pytest.mark.parametrize("run", probes.RUNS)
def test_passes_visit_every_chunk_once_in_whole_runs(run):
    per_pass, chunks = probes.run_passes(run, 1 << 16)
    length = run // 16

    def scattered(i):  # as the kernel does
        number = i // length
        return (number % per_pass * probes.PIECES + number // per_pass) * length + i % length

    places = [scattered(i) for i in range(chunks)]
    assert sorted(places) == list(range(chunks))
    assert chunks * 16 <= 1 << 16
    steps = {b - a for i, (a, b) in enumerate(pairwise(places)) if (i + 1) % length}
    assert steps <= {1}  # inside a run


def test_the_model_is_compared_with_the_clock(bench, monkeypatch):
    freed = []
    pool = types.SimpleNamespace(free_all_blocks=lambda: freed.append(1))
    cupy = types.SimpleNamespace(get_default_memory_pool=lambda: pool)
    cases = [c.scaled(1e-4) for c in load_cases(quick=True)[:3]]
    rows = calibrate.compare_cases(cupy, cases, "float16", 4, FACTS)
    assert [r["case"] for r in rows] == [c.name for c in cases]
    assert len(freed) == 3
    for row in rows:
        measured = [t["measured_us"] for t in row["trials"]]
        assert row["best_us"] == min(measured)
        assert row["choice_us"] == pytest.approx(100.0 - min(t["estimate_us"] for t in row["trials"]))
        assert row["ratio"] == row["best_us"] / row["choice_us"] <= 1
    assert any(row["ratio"] < 1 for row in rows)
    assert schedule_store().count() == (0, 0)  # a calibration leaves no trace
    json.dumps(rows)
    text = "\n".join(calibrate.case_table([*rows, {"case": "large", "error": "OutOfMemoryError: 1"}]))
    mean = math.prod(r["ratio"] for r in rows) ** (1 / 3)
    assert f"geometric mean of best/choice {mean:.3f}" in text
    assert "large: OutOfMemoryError: 1" in text


def test_a_case_that_fails_does_not_end_the_calibration(fake_gpu, monkeypatch):
    def fail(cupy, plan, l2_bytes):
        raise OutOfMemoryError("no room")

    monkeypatch.setattr(gett.tune.tuner, "Bench", fail)
    monkeypatch.setattr(gett.tune.tuner, "require_cupy", lambda: None)
    (row,) = calibrate.compare_cases(None, load_cases(quick=True)[:1], "float16", 2, FACTS)
    assert row["error"] == "OutOfMemoryError: no room"


def test_no_schedules_give_no_kernels(fake_gpu):
    assert gett.tune.tuner.compile_all(gemm_plan(), [], lambda text: None) == []


def test_the_machine_is_shown_beside_the_record():
    figures = {
        "memory.copy_tbps": 4.4,
        "memory.load_tbps": [0.1, 0.2, 2.22, 0.4, 0.5],
        "l2.tma_bytes_per_clock": 51.3,
    }
    text = "\n".join(calibrate.machine_table(figures, nearest(FACTS.planning)))
    for wanted in ("memory.copy_tbps", "4.4 ", "4.25", "memory.load_tbps, 64 B", "2.22", "2.7", "51.3", "46"):
        assert wanted in text
