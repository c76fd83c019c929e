"""The benchmark of first calls: a process and a cache of its own for each, limits, failures."""

from __future__ import annotations

import json
import subprocess
import types

import pytest

from benchmarks import __main__ as command
from benchmarks import first_calls


@pytest.mark.slow
def test_a_first_call_is_measured_in_a_process_of_its_own(tmp_path, capsys):
    name = "12 modes, complex128"
    assert command.main(["first-calls", "--cpu", "--case", name, "--json", str(tmp_path / "x.json")]) == 0
    figures = json.loads((tmp_path / "x.json").read_text())
    got = figures["calls"][name]
    assert (got["kernels"], got["poor"], got["most_s"]) == (1, 0, first_calls.SINGLE_S)
    assert 0 < got["plan_s"] < got["total_s"] == got["all_s"][0]
    assert name in capsys.readouterr().out


def answered(monkeypatch, **found):
    said = json.dumps({"plan_s": 0.1, "total_s": 5.0, "second_s": 0.1, "kernels": 1, "poor": 0, "gett": "x"} | found)
    done = types.SimpleNamespace(stdout=f"noise\n{said}\n")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: done)
    monkeypatch.setattr(first_calls.environment, "describe", lambda: {})
    monkeypatch.setattr(first_calls.environment, "clocks", lambda: {})


def test_a_wrong_result_fails_and_a_late_one_is_marked(monkeypatch, capsys):
    answered(monkeypatch, error=0.5)
    assert first_calls.main(on_gpu=True, only=["rqc5x5_d16"]) == 1
    assert "LATE  wrong result: error 5.0e-01" in capsys.readouterr().out
    answered(monkeypatch, error=1e-6)
    assert first_calls.main(on_gpu=True, only=["rqc5x5_d16"]) == 0
    assert "LATE" in capsys.readouterr().out


def test_the_fastest_of_several_counts(monkeypatch):
    times = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(
        first_calls, "measure", lambda *a: {"total_s": next(times), "plan_s": 0, "kernels": 1, "poor": 0}
    )
    shown = []
    monkeypatch.setattr(first_calls, "table", lambda figures: shown.append(figures) or "")
    assert first_calls.main(on_gpu=False, only=["plain product"], rounds=3) == 0
    assert shown[0]["calls"]["plain product"]["total_s"] == 1.0
    assert shown[0]["calls"]["plain product"]["all_s"] == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "text"),
    [(["--case", "none such"], "unknown case 'none such'"), (["--rounds", "0"], "--rounds is 0")],
)
def test_bad_options_are_refused(options, text, capsys):
    with pytest.raises(SystemExit, match="2"):
        command._dispatch(["first-calls", "--cpu", *options])
    assert text in capsys.readouterr().err


def test_every_dtype_has_a_bound_and_every_case_a_limit():
    known = first_calls.tasks()
    assert len(known) == 3 + len(first_calls.SINGLES)
    assert {t["dtype"] for t in known.values()} <= set(first_calls.WRONG)
    assert {t["most_s"] for t in known.values()} == {first_calls.NETWORK_S, first_calls.SINGLE_S}
