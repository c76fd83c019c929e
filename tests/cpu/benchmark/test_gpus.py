"""The benchmark of several devices, on NumPy with small tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpus
from benchmarks.__main__ import main


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that take no time."""
    monkeypatch.setattr(gpus, "GRID", ((), (4, 4, 6, "complex64")))
    monkeypatch.setattr(gpus, "VIRTUAL", (2, 6))
    monkeypatch.setattr(gpus, "PEAKS", 2)
    monkeypatch.setattr(gpus, "rank_rows", lambda: [{"ranks": 1, "s": 2.0}, {"ranks": 2, "s": 1.25}])


def test_a_lattice_is_closed() -> None:
    spec, shapes = gpus.grid(3, 4, 2)
    assert spec.endswith("->")
    assert [len(s) for s in shapes] == [2, 3, 3, 2, 3, 4, 4, 3, 2, 3, 3, 2]
    labels = spec.replace(",", "")[:-2]
    assert all(labels.count(x) == 2 for x in labels)
    assert np.ndim(np.einsum(spec, *map(np.ones, shapes), optimize="greedy")) == 0


@pytest.mark.slow
def test_the_benchmark_runs_and_is_drawn(small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    target, image = tmp_path / "gpus.json", tmp_path / "gpus.png"
    assert main(["gpus", "--cpu", "--devices", "0,1", "--json", str(target), "--plot", str(image)]) == 0
    text = capsys.readouterr().out
    for part in ("ladder, summed mode cut", "ladder, kept mode cut", "bytes over the link as planned", "under a limit"):
        assert part in text
    assert "2 ranks of MPI: 1.25 s, one 2.00 s: 0.80 a core" in text
    record: dict[str, Any] = json.loads(target.read_text())
    assert [x["apart"] < 1e-12 for x in record["ladder"]] == [True] * 4
    assert image.stat().st_size > 1000


def test_a_wrong_result_is_told(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "ladder, spoiled", "apart": 0.5, "planned": {"bytes": 0, "us": None}, "bytes": 0, "us": {}}
    monkeypatch.setattr(gpus, "ladder_rows", lambda *args: [row])
    assert main(["gpus", "--cpu"]) == 1
    assert "far from the result of one device: ladder, spoiled" in capsys.readouterr().out


def test_bad_devices_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gpus", "--cpu", "--devices", "x"])
    assert "it must be numbers of GPUs such as 0,1" in capsys.readouterr().err
