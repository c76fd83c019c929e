"""The command that times products in JAX, on the CPU with small extents."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from benchmarks import jax_speed
from benchmarks.__main__ import main
from benchmarks.workloads import FIELDS, load_workloads
from tests.cpu.benchmark.benchmark_cases import refusal

ALL = load_workloads()


def test_workloads_are_chosen_by_a_rule():
    found = jax_speed.chosen(ALL)
    assert len({w.case.name for w in found}) == 18
    for field in FIELDS:
        having = [w for w in ALL if w.field == field and "float32" in w.dtypes and not w.large]
        mine = [w for w in found if w.field == field]
        assert mine[0] is having[0]
        assert mine[-1] is having[-1]
        places = [having.index(w) for w in mine]
        gaps = {y - x for x, y in pairwise(places)}
        assert max(gaps) - min(gaps) <= 1


def test_the_command_prints_means_last_and_writes_json(tmp_path, monkeypatch, capsys):
    pytest.importorskip("jax")
    monkeypatch.setattr(jax_speed, "host_time_us", lambda call, finish, calls: 1.5)
    path = tmp_path / "j.json"
    assert main(["jax", "--cpu", "--case", "mps", "--case", "trimul-out", "--json", str(path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    record = json.loads(path.read_text())
    assert record["environment"]["packages"]["jax"]
    assert [(x["name"], x["dtype"]) for x in record["rows"]] == [
        (name, dtype) for dtype in jax_speed.DTYPES for name in ("trimul-out", "mps")
    ]
    for x in record["rows"]:
        assert all(0 <= x["off_by"][side] <= 1 for side in ("gett", "jnp"))
        assert all(x[key][side] > 0 for key in ("us", "call_us") for side in ("gett", "jnp"))
    assert [line.split(",")[0] for line in printed[-4:]] == ["float32"] * 2 + ["bfloat16"] * 2
    assert all(line.split()[-4] == "2" for line in printed[-4:])
    assert max(map(len, printed)) <= 110
    assert "'nothing'" in refusal(capsys, "jax", "--cpu", "--case", "nothing")


def test_what_is_wrong_or_fails_is_told(monkeypatch, capsys):
    jnp = pytest.importorskip("jax.numpy")
    monkeypatch.setattr(jax_speed, "host_rows", dict)
    usual = jax_speed.sides()

    def off(*call: Any) -> Any:
        d = usual["gett"](*call)
        return d + jnp.zeros_like(d).ravel().at[0].set(1).reshape(d.shape)

    def failing(*call: Any) -> Any:
        raise MemoryError("asked for 9 bytes")

    monkeypatch.setattr(jax_speed, "sides", lambda: usual | {"gett": off})
    assert main(["jax", "--cpu", "--case", "mps"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "wrong, or failed: mps (float32), mps (bfloat16)"
    monkeypatch.setattr(jax_speed, "sides", lambda: usual | {"jnp": failing})
    assert main(["jax", "--cpu", "--case", "mps"]) == 1
    assert "jnp: MemoryError: asked for 9 bytes" in capsys.readouterr().out
    monkeypatch.setattr(jax_speed, "sides", lambda: usual | {"jnp": off})
    assert main(["jax", "--cpu", "--case", "mps", "--dtype", "float32"]) == 0
    printed = capsys.readouterr().out
    assert "bfloat16" not in printed
    assert float(next(x for x in printed.splitlines() if x.startswith("mps")).split()[-1]) > 1  # the other side's
