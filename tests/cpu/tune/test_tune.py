"""The tuner: what is tried, what is measured, who wins, and what the public functions make of it."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

import gett
import gett.api.autotune
import gett.console.progress
import gett.jit.compile
import gett.plans.planner
import gett.runtime.build
import gett.schedule.search.select
import gett.tune.recall
import gett.tune.store
import gett.tune.tuner
from gett.codegen.render import render_kernel
from gett.errors import DeviceError, OptionError, PoorKernelError, TuneWarning
from gett.network.request import PlanRequest
from gett.plans.plan_cache import PlanCache
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import WgmmaSS
from gett.tune.recall import build_remembered
from gett.tune.store import plan_key, schedule_store
from gett.tune.tuner import Trial, Tuning, measure, shortlist, steps_of, tune
from tests.cpu.tuning import (
    FACTS,
    GEMM,
    PLAN,
    ROOT,
    SEARCH,
    FakeBench,
    compile_by,
    forbid,
    gemm_plan,
    matrix,
    new_process,
    request,
)


@pytest.fixture
def listed():
    return candidates(gemm_plan(*PLAN), "sm_90a", FACTS.planning)


def test_the_fastest_wins_and_is_remembered(fake_gpu, listed, monkeypatch):
    winner = listed[3]
    bench = FakeBench(lambda s: 5.0 if s == winner else 10.0 + s.forecast.us)
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


def test_tuning_can_be_kept_to_itself(fake_gpu):
    tune(gemm_plan(*PLAN), candidates=2, bench=lambda plan: FakeBench(lambda s: 1.0), store=False)
    assert build_remembered(gemm_plan(*PLAN), tuned_only=True) is None


def test_wrong_results_are_dropped_with_a_warning_and_never_stored(fake_gpu, listed):
    wrong = listed[1]
    bench = FakeBench(lambda s: 1.0 if s == wrong else 2.0, lambda s: s == wrong)
    with pytest.warns(TuneWarning, match=r"another result than 4 others .*not used"):
        tuning = tune(gemm_plan(*PLAN), candidates=5, bench=lambda plan: bench)
    assert tuning.best.schedule != wrong
    assert [t for t in tuning.trials if t.note == "wrong result"] == [Trial(wrong, None, "wrong result")]
    assert wrong not in bench.order
    assert schedule_store().find(plan_key(gemm_plan(*PLAN), FACTS)).schedule == tuning.best.schedule


def test_kernels_that_spill_are_passed_over(fake_gpu, listed, monkeypatch):
    real, texts = gett.jit.compile.compile_kernel, set()
    bad = render_kernel(gemm_plan(*PLAN), listed[0]).source

    def compile_kernel(source, arch, **options):
        texts.add(source.text)
        if source == bad:
            raise PoorKernelError("kernel 'x' compiles badly\n12 bytes spilled")
        return real(source, arch, **options)

    compile_by(monkeypatch, compile_kernel)
    tuning = tune(gemm_plan(*PLAN), candidates=4, bench=lambda plan: FakeBench(lambda s: s.forecast.us))
    assert len(texts) == 4
    assert tuning.trials[-1] == Trial(listed[0], None, "kernel 'x' compiles badly 12 bytes spilled")
    assert tuning.chosen.schedule == listed[1]
    compile_by(monkeypatch, lambda *a, **k: (_ for _ in ()).throw(PoorKernelError("no")))
    none = tune(gemm_plan(*PLAN), candidates=3, bench=lambda plan: FakeBench(lambda s: 1.0))
    assert (none.best, none.executable, none.gain) == (None, None, 1.0)
    assert [t.note for t in none.trials] == ["no"] * 3


def test_every_main_loop_is_tried(listed):
    loops = dict.fromkeys(type(s.mainloop) for s in listed)
    assert next(iter(loops)) is WgmmaSS
    assert len(loops) > 1
    short = shortlist(gemm_plan(*PLAN), FACTS, 4)
    assert len(short) == len(set(short)) == 4
    assert {type(s.mainloop) for s in short} == set(loops)
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


PAIRS = (((512, 512), "float16"), ((512, 512), "float16"))


def test_autotune_replaces_the_plans_in_memory(bench, monkeypatch):
    before = gett.slices.finder.find_plan(request(*PLAN))
    unrelated = gett.slices.finder.find_plan(request(64, 64, 64))
    assert gett.slices.finder.find_plan(request(*PLAN)) is before
    result = gett.autotune(GEMM, *PAIRS, candidates=5, progress=False)
    (tuning,) = result.steps
    assert len(bench) == 1
    after = gett.slices.finder.find_plan(request(*PLAN))
    assert after is not before
    assert after.steps[0].schedule == tuning.best.schedule != before.steps[0].schedule
    assert f"tuned: measured {tuning.best.measured_us:.3g} us among 5 candidates" in after.explain(detail=True)
    assert gett.slices.finder.find_plan(request(64, 64, 64)) is unrelated
    assert result.measured_us == tuning.best.measured_us
    text = repr(result)
    assert text.count("wgmma ss") >= 3
    assert "the model's choice" in text
    for trial in tuning.trials:
        assert f"{trial.measured_us:.1f}" in text
        assert f"{trial.schedule.forecast.us:.1f}" in text


def test_optimize_autotune_measures_once(bench, monkeypatch):
    ordinary = gett.slices.finder.find_plan(request(*PLAN))
    tuned = gett.slices.finder.find_plan(request(*PLAN, optimize="autotune"))
    assert tuned.steps[0].executable.measured is not None
    assert gett.slices.finder.find_plan(request(*PLAN)) is not ordinary
    assert gett.slices.finder.find_plan(request(*PLAN)).steps[0].schedule == tuned.steps[0].schedule
    assert gett.slices.finder.find_plan(request(*PLAN, optimize="autotune")) is tuned
    new_process(monkeypatch)
    again = gett.slices.finder.find_plan(request(*PLAN, optimize="autotune"))
    assert again.steps[0].schedule == tuned.steps[0].schedule
    assert len(bench) == 1


def test_every_step_of_a_network_is_tuned_and_like_steps_once(bench):
    spec = PlanRequest(spec="ab,bc,cd,de->ae", operands=(matrix(64, 64),) * 4, arch="sm_90a", device=0)
    plan = gett.slices.finder.find_plan(replace(spec, optimize="autotune"))
    assert len(plan.steps) == 3
    assert all(s.executable.measured is not None for s in plan.steps)
    assert len(bench) == len({s.gemm.signature for s in plan.steps})
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


def test_progress_is_shown_where_wanted(bench, monkeypatch, capsys):
    monkeypatch.setattr(gett.console.progress, "DELAY_S", 0.0)
    for wanted in (True, False):
        gett.autotune(GEMM, *PAIRS, candidates=3, progress=wanted)
        shown = capsys.readouterr()
        assert not shown.out
        assert ("autotune" in shown.err) is wanted


@pytest.mark.slow
def test_importing_gett_does_not_load_the_tuner():
    program = (
        "import sys, gett; early = ('gett.tune', 'gett.runtime', 'gett.jit.'); "
        "early = [m for m in sys.modules if m.startswith(early)]; assert callable(gett.autotune); print(early)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'tune_all'"):
        gett.tune_all  # noqa: B018


def test_where_nothing_compiles_well_autotune_runs_what_einsum_runs(bench, monkeypatch):
    real = gett.jit.compile_kernel

    def compile_kernel(source, arch, *, allow_spills=False, **options):
        if not allow_spills:
            raise PoorKernelError("spills")
        return real(source, arch, allow_spills=True)

    compile_by(monkeypatch, compile_kernel)
    plan = gett.slices.finder.find_plan(request(*PLAN, optimize="autotune"))
    assert plan.steps[0].executable.measured is None
    result = gett.autotune(GEMM, *PAIRS, candidates=3, progress=False)
    assert "nothing was measured" in repr(result)
    assert repr(result).count("spills") == 3
    assert result.measured_us is None
    assert not bench
