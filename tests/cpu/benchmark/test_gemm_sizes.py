"""The benchmark of matrix products of many sizes, on NumPy with small ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gemm_sizes
from benchmarks.__main__ import main


def test_sizes_are_those_that_are_asked_for() -> None:
    cases = gemm_sizes.products()
    squares = [c for c in cases if c.group == "square"]
    assert [dict(c.extents)["i"] for c in squares] == list(range(512, 4097, 128))
    longest = {c.group: dict(c.extents) for c in cases if c.group != "square"}
    assert longest["long M"] == {"i": 16384, "k": 1024, "j": 1024}
    assert longest["long K"] == {"i": 1024, "k": 16384, "j": 1024}
    assert len(cases) == 29 + 3 * 8


def test_it_runs_and_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "gemm.json"
    assert main(["gemm", "--cpu", "--step", "8", "--most", "32", "--dtype", "float64", "--json", str(target)]) == 0
    rows = json.loads(target.read_text())["rows"]
    assert len(rows) == 4
    assert all(row["apart"] <= 1 for row in rows)
    assert "cuBLAS / gett" in capsys.readouterr().out


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"case": "c", "group": "square", "kind": "tf32", "us": {"gett": 1.0, "cublas": 2.0}, "errors": [], "apart": 3}
    monkeypatch.setattr(gemm_sizes, "measure", lambda *args: row)
    assert main(["gemm", "--cpu", "--step", "8", "--most", "32", "--dtype", "tf32"]) == 1
    assert "too far from cuBLAS" in capsys.readouterr().out


def test_steps_that_leave_no_square_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gemm", "--cpu", "--step", "128", "--most", "256"])
    assert "the least square has four steps" in capsys.readouterr().err
