"""The progress bar: when it is shown, and that it is silent otherwise."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

import pytest

import gett
from gett.console import progress as module
from gett.console.progress import progress
from gett.env import shows_progress
from gett.errors import OptionError
from gett.jit.workers import side_by_side


def counted(units: int, *, shown: bool = True) -> None:
    with progress(units, "some work", shown) as step:
        for i in range(units):
            time.sleep(0.03)
            step(f"unit {i}")


def test_a_bar_is_shown_once_the_delay_has_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "DELAY_S", 0.05)
    counted(12)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "some work" in captured.err
    assert "/12" in captured.err
    assert "0/12" not in captured.err  # not before


def test_short_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert module.DELAY_S == 1
    counted(3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("cause", ["not wanted", "no tqdm", "no stderr"])
def test_without_a_bar_the_work_goes_on_in_silence(
    cause: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "DELAY_S", 0.0)
    if cause == "no tqdm":
        monkeypatch.setitem(sys.modules, "tqdm", None)
    if cause == "no stderr":
        monkeypatch.setattr(sys, "stderr", None)
    counted(3, shown=cause != "not wanted")
    monkeypatch.undo()
    assert capsys.readouterr() == ("", "")


def test_an_error_closes_the_bar_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with progress(3, "some work") as step:
            step("one")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()


@pytest.mark.parametrize(("value", "terminal", "shown"), [
    (None, True, True), (None, False, False), ("0", True, False), ("1", False, True), ("", True, True),
])  # fmt: skip
def test_the_environment_turns_bars_off_and_on(
    value: str | None, terminal: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GETT_PROGRESS", raising=False)
    if value is not None:
        monkeypatch.setenv("GETT_PROGRESS", value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert shows_progress() is shown


def test_what_is_no_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GETT_PROGRESS", "often")
    with pytest.raises(OptionError, match="GETT_PROGRESS='often'"):
        shows_progress()


def test_kernels_of_a_plan_are_counted_as_they_are_done(
    fake_gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The largest, which begins first, is done last."""
    monkeypatch.setenv("GETT_PROGRESS", "1")
    monkeypatch.setattr(module, "DELAY_S", 0.0)
    told: list[str] = []
    last = threading.Event()

    def make(task: int, compiler: Any) -> int:
        if task == 0:
            assert last.wait(30)
        return task

    def step(text: str, units: int = 1) -> None:
        told.append(text)
        last.set()

    monkeypatch.setattr("gett.jit.workers.os.cpu_count", lambda: 2)
    assert side_by_side(lambda task: partial(make, task), [0, 1, 2], step) == [0, 1, 2]
    assert len(told) == 3
    gett.plan("ab,bc,cd->ad", *[((64, 64), "float64")] * 3, arch="sm_90a").compile()
    assert "compiling kernels" in capsys.readouterr().err
