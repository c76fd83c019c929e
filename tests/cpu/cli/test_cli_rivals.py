"""Times, peaks, and rivals in processes of their own."""

from __future__ import annotations

import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gett.cli import run
from gett.cli.apart import OverTimeError, time_rival
from gett.cli.measure import Peaks, Timing, choose_repeats, measure_cpu_peaks, time_cpu
from gett.cli.problem import parse_problem, random_operand
from gett.cli.rivals import cpu_rivals, find_rivals
from gett.errors import GettError


def test_repeats_fill_the_budget_within_limits() -> None:
    assert choose_repeats(0.01, 0.4) == 40
    assert choose_repeats(10.0, 0.4) == 3
    assert choose_repeats(0.0, 0.4) == 200


def test_time_cpu_is_the_time_of_one_call() -> None:
    timing = time_cpu(lambda: time.sleep(0.02), 3)
    assert timing.repeats == 3
    assert 0.02 <= timing.seconds < 0.2


def test_roofline_share_takes_the_longer_of_memory_and_arithmetic() -> None:
    peaks = Peaks(bandwidth=100.0, flops=1000.0)
    assert peaks.share(flops=1000, nbytes=10, seconds=2) == 0.5
    assert peaks.share(flops=10, nbytes=100, seconds=4) == 0.25


def test_measured_peaks_are_a_machine_s() -> None:
    peaks = measure_cpu_peaks("float32")
    assert 1e8 < peaks.bandwidth < 1e13
    assert 1e8 < peaks.flops < 1e15


def test_rivals_agree_with_each_other_and_failures_are_told() -> None:
    problem = parse_problem("ab,cb->ca", "5", "float64")
    operands = [random_operand(np.random.default_rng(4), (5, 5), "float64") for _ in range(2)]
    calls, reasons = find_rivals(problem, operands, np.empty((5, 5)), None, gpu=False)
    assert set(calls) == {"numpy.einsum", "opt_einsum"}
    assert not reasons
    for call in calls.values():
        result = call()
        np.testing.assert_allclose(result, operands[1] @ operands[0].T, rtol=1e-12)
        assert result.flags.c_contiguous
    calls, reasons = find_rivals(problem, operands[:1], np.empty((5, 5)), None, gpu=False)
    assert not calls
    assert set(reasons) == {"numpy.einsum", "opt_einsum"}


def test_a_rival_is_timed_in_a_process_of_its_own() -> None:
    problem = parse_problem("ab,cb->ca", "5", "float64")
    for name in cpu_rivals():
        timing = time_rival(problem, name, None, 3)
        assert 0 < timing.seconds < 5
        assert timing.repeats == 3


def test_a_rival_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = subprocess.Popen

    def start(*args: Any, **options: Any) -> Any:
        started.append(popen(*args, **options))
        return started[-1]

    monkeypatch.setattr("gett.cli.apart.subprocess.Popen", start)
    with pytest.raises(OverTimeError, match=r"numpy.einsum takes over 0.001 s a call"):
        time_rival(parse_problem("ab,bc->ac", "700", "int64"), "numpy.einsum", None, None, limit=0.001)
    assert started[0].poll() is not None


def test_a_rival_that_fails_says_how_and_what_others_print_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse_problem("ab,cb->ca", "5", "float64")
    with pytest.raises(GettError, match="KeyError: 'abacus'"):
        time_rival(problem, "abacus", None, 1)
    monkeypatch.setattr("gett.cli.apart._SERVE", "print('hello', flush=True); import os; os._exit(3)")
    with pytest.raises(GettError, match="ended with code 3"):
        time_rival(problem, "opt_einsum", None, 1)


def test_the_current_directory_s_modules_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "numpy", "gett", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    assert time_rival(parse_problem("ab,cb->ca", "5", "float64"), "numpy.einsum", None, 1).repeats == 1


def test_a_rival_on_a_gpu_that_takes_too_long_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def quick() -> None: ...
    def slow() -> None: ...

    timed = []

    def time_gpu(calls: list[Any], repeat: int | None) -> Timing:
        timed.append((calls[0], repeat))
        return Timing(5.5 if calls[0] is slow else 0.1, 1)

    monkeypatch.setattr("benchmarks.rivals.table.math_mode", lambda *_: nullcontext())
    monkeypatch.setattr("gett.cli.run.find_rivals", lambda *_, **__: ({"a": quick, "b": slow}, {"c": "missing"}))
    monkeypatch.setattr("gett.cli.run.time_gpu", time_gpu)
    outcome: Any = SimpleNamespace(problem=None, operands=(), result=np.ones(1))
    place: Any = SimpleNamespace(xp=np)
    assert run._times_on_gpu(outcome, place, None, 7) == ({"a": 0.1, "b": None}, {"c": "missing"})
    assert timed == [(quick, 1), (quick, 7), (slow, 1)]
