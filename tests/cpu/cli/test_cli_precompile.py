"""`python -m gett precompile`: what it prints, where kernels are then, and its one line where it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gett.cli import main
from gett.jit.diskcache import kernel_cache

TRANSPOSE = {"eq": "ij->ji", "shapes": [[64, 48]], "dtype": "float16"}


@pytest.fixture
def file(tmp_path: Path, own_cache: None) -> str:
    path = tmp_path / "given.json"
    path.write_text(json.dumps({"transpose": TRANSPOSE}))
    return str(path)


def test_kernels_are_on_disk_and_the_next_run_finds_them(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for done in ("1 compiled, 0 from the cache", "0 compiled, 1 from the cache"):
        assert main(["precompile", file, "--arch", "h100", "--processes", "1"]) == 0
        captured = capsys.readouterr()
        first, second = captured.out.splitlines()
        assert re.fullmatch(rf"1 kernel of 1 entry for sm_90a: {done}, in [\d.]+ m?s", first)
        assert second == f"cache: {kernel_cache().directory}"
        assert captured.err == ""
    assert kernel_cache().info().entries == 1


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"dtype": "float31"}, ["--arch", "sm_90a"], "entry 'transpose': operand 0"),
        ({"shapes": [[64]]}, ["--arch", "sm_90a"], "entry 'transpose'"),
        ({}, ["--arch", "cpu"], "arch='cpu'"),
        ({}, ["--arch", "sm_90a", "--workspace-limit", "much"], "workspace_limit='much'"),
    ],
)
def test_what_is_wrong_is_one_line_and_code_2(
    change: dict[str, object], options: list[str], words: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(json.dumps({"transpose": TRANSPOSE | change}))
    assert main(["precompile", file, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_without_a_cache_on_disk_nothing_is_compiled(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GETT_CACHE_DISABLE", "1")
    assert main(["precompile", file, "--arch", "sm_90a"]) == 2
    assert "there is no cache on disk to fill" in capsys.readouterr().err
