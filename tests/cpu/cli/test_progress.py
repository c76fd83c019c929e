"""The progress bar: when it is shown, and that it is silent otherwise."""

from __future__ import annotations

import sys
import time

import pytest

from gett.console import progress as module
from gett.console.progress import progress


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
