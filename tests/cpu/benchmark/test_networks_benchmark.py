"""The benchmark of whole networks without a GPU: its terms are contractions, rivals agree, and wrong results count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import first_calls, networks


def test_an_iteration_of_ccsd_is_fifty_contractions() -> None:
    terms, arrays = networks.ccsd_terms(), networks.ccsd_arrays(2, 3)
    assert 45 <= len(terms) <= 55
    sizes = {"o": 2, "v": 3}
    for spec, names in terms:
        result = np.einsum(spec, *(arrays[x] for x in names))
        labels = {c: e for t, x in zip(spec.split("->")[0].split(","), names, strict=True)
                  for c, e in zip(t, arrays[x].shape, strict=True)}  # fmt: skip
        assert all(e == sizes["o" if c in "ijmn" else "v"] for c, e in labels.items()), spec
        assert result.shape == tuple(labels[c] for c in spec.split("->")[1])


def test_it_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "networks.json"
    assert networks.main(on_gpu=False, json_path=str(path)) == 0
    assert "CCSD, o 3, v 6" in capsys.readouterr().out
    (row,) = json.loads(path.read_text())["rows"]
    assert row["apart"] < 1e-12
    assert min(row["us"].values()) > 0


def test_a_wrong_result_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    true: Any = networks.gett.einsum
    monkeypatch.setattr(networks.gett, "einsum", lambda spec, *x: 1.001 * true(spec, *x))
    assert networks.main(on_gpu=False, only=["ccsd"]) == 1
    assert "far from the rival's result: CCSD" in capsys.readouterr().out
    with pytest.raises(ValueError, match="unknown network 'x'"):
        networks.main(on_gpu=False, only=["x"])


def test_other_extents_fit_the_subscripts() -> None:
    for task in first_calls.tasks().values():
        if task["path"] is None:
            assert task["others"] is None
            continue
        found: dict[str, int] = {}
        changed = 0
        for term, shape, before in zip(
            task["subscripts"].split("->")[0].split(","), task["others"], task["shapes"], strict=True
        ):
            changed += shape != list(before)
            assert all(found.setdefault(label, extent) == extent for label, extent in zip(term, shape, strict=True))
        assert changed > 10
