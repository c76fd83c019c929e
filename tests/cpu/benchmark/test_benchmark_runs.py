"""Runs of the benchmarks without a GPU, by function and by command."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import gett
from benchmarks import overhead, report, run_cpu
from benchmarks.__main__ import main
from benchmarks.cases import Case, load_cases
from benchmarks.records import from_json, to_json
from benchmarks.rivals import table as rivals
from tests.cpu.benchmark.benchmark_cases import FP32, refusal, standin
from tests.sampling import slow_but


@pytest.mark.usefixtures("quick_machine")
def test_cpu_run_of_two_tiny_cases():
    cases = load_cases(["abj-bka-kj", "abcijk-ijmb-mkac"])
    run = run_cpu.run(cases, "float32", scale=2e-4, engine=standin, rounds=2)
    assert [r.case for r in run.rows] == [c.name for c in cases]
    for row, case in zip(run.rows, cases, strict=True):
        small: Case = case.scaled(2e-4)
        assert row.extents == dict(small.extents)
        assert row.flops == small.flops(FP32)
        assert row.roofline_us == pytest.approx(max(small.bytes(FP32) / 1e10, small.flops(FP32) / 1e11) * 1e6)
        assert set(row.times) - {"tblis"} == {"gett", "numpy.einsum", "opt_einsum"}
        assert all(m.median_us > 0 and m.error is None for m in row.times.values())
        assert row.check == "right", row.check_detail
    assert run.failed == []
    text = report.table(run)
    assert "0.0002 of the elements" in text
    assert max(map(len, text.splitlines())) <= 110
    assert from_json(to_json([run])) == [run]


@pytest.mark.usefixtures("quick_machine")
def test_tblis_has_its_columns_where_it_is_installed(monkeypatch, capsys):
    pytest.importorskip("pytblis")
    command = ["tccg", "--cpu", "--case", "abj-bka-kj", "--gflop", "1e-4", "--dtype", "float32,float16"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    single, half = printed.split(": float16", 1)
    assert "extents reduced to 0.0001 GFLOP a case" in single
    assert "tblis us" in single
    assert re.search(r"ratio to TBLIS +\d", single)
    assert "blis" not in half.lower()  # which has no halves
    assert max(map(len, printed.splitlines())) <= 110
    monkeypatch.setattr(rivals.importlib.util, "find_spec", lambda name: None)
    assert main(command[:-2]) == 0
    assert "blis" not in capsys.readouterr().out.lower()


def test_operations_can_be_limited_instead_of_elements():
    case = load_cases(["abcijk-ikmb-mjac"])[0]
    small = case.limited(2e9, FP32)
    assert 1e9 < small.flops(FP32) <= 2e9
    assert small.limited(2e9, FP32) is small
    with pytest.raises(SystemExit):
        main(["tccg", "--cpu", "--gflop", "0"])


@pytest.mark.usefixtures("quick_machine")
def test_cpu_run_notices_a_wrong_and_a_failing_engine():
    cases = load_cases(["abj-bka-kj"])

    def wrong(subscripts, a, b, *, out=None, order="K"):
        result = standin(subscripts, a, b, out=out, order=order)
        result.flat[0] += 1
        return result

    def failing(*args, **kwargs):
        raise MemoryError("asked for 9 bytes")

    run = run_cpu.run(cases, "float32", scale=1e-4, engine=wrong, rounds=1)
    assert run.failed == ["abj-bka-kj"]
    assert run.rows[0].check_detail.startswith("1 elements differ")
    run = run_cpu.run(cases, "float32", scale=1e-4, engine=failing, rounds=1)
    assert run.failed == ["abj-bka-kj"]
    assert run.rows[0].times["gett"].error == "MemoryError: asked for 9 bytes"


@pytest.mark.parametrize("chart", slow_but([False, True], [False]))
@pytest.mark.usefixtures("quick_machine")
def test_the_command_prints_a_table_and_writes_json_and_a_chart(chart, tmp_path, capsys):
    json_path, png = tmp_path / "r.json", tmp_path / "r.png"
    options = ["tccg", "--cpu", "--case", "ij-ik-kj", "--case", "abc-bda-dc(seed)", "--scale", "1e-4", "--quick"]
    options += ["--dtype", "float32,complex64", "--json", str(json_path), "--label", "t"]
    code = main([*options, "--plot", str(png)] if chart else options)
    printed = capsys.readouterr().out
    assert code == 0, printed
    runs = from_json(json_path.read_text())
    assert [(r.kind, r.dtype, [row.check for row in r.rows]) for r in runs] == [
        ("cpu", "float32", ["right"] * 2),
        ("cpu", "complex64", ["right"] * 2),
    ]
    assert all(r.environment["packages"]["numpy"] == np.__version__ for r in runs)
    assert printed.rstrip().splitlines()[-1].startswith("took")
    assert printed.count("ratio to numpy.einsum") == 2
    assert png.stat().st_size > 10_000 if chart else not png.exists()


@pytest.mark.slow
def test_epilogues_are_compared_with_kernels_of_their_own(tmp_path, capsys):
    assert main(["epilogue", "--cpu", "--json", str(tmp_path / "e.json")]) == 0
    printed = capsys.readouterr().out
    rows = json.loads((tmp_path / "e.json").read_text())["cases"]
    assert all(0 <= row["apart"] <= 1 and set(row["us"]) == {"fused", "unfused", "contraction alone"} for row in rows)
    assert [row["name"] in printed for row in rows] == [True] * 5


def test_many_contractions_are_compared_with_loops(tmp_path, capsys):
    assert main(["grouped", "--cpu", "--json", str(tmp_path / "g.json")]) == 0
    printed = capsys.readouterr().out
    cases = json.loads((tmp_path / "g.json").read_text())["cases"]
    assert all(row["name"] in printed and not row["errors"] and row["apart"] <= 1 for row in cases)
    assert {"gett", "loop"} <= set(cases[0]["us"])


def test_calls_of_several_dtypes_are_compared_with_conversions_by_hand(tmp_path, capsys):
    pytest.importorskip("torch")
    assert main(["conversions", "--cpu", "--json", str(tmp_path / "c.json")]) == 0
    printed = capsys.readouterr().out
    rows = json.loads((tmp_path / "c.json").read_text())["cases"]
    assert all(row["name"] in printed for row in rows)
    assert "WRONG" not in printed
    assert max(map(len, printed.splitlines())) <= 110
    for row in rows:
        assert 0 <= row["off_by"] <= 1
        assert row["differing"] == 0
        assert ("by hand" in row["us"]) is ({*row["dtypes"]} != {row["result"]})


def test_warm_calls_are_one_table_in_which_a_rival_may_fail(monkeypatch, capsys):
    """Each call is made once here; its time is not the subject."""
    results = []

    def once(call, finish):
        results.append(call())
        return 1.5

    monkeypatch.setattr(overhead, "host_time_us", once)
    assert main(["overhead", "--cpu", "--no-first"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("host time of a warm call")
    assert [row[2:32].strip() for row in rows[2 : 2 + len(overhead.OWN)]] == list(overhead.OWN)
    assert all(row.split()[-2:] == ["1.5", "1.5"] for row in rows[2:])
    assert {x.shape for x in results} == {(64, 64), (8, 8, 8, 8)}
    monkeypatch.setattr(gett, "contract", None)
    assert main(["overhead", "--cpu", "--no-first"]) == 1
    assert "TypeError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dtype", "decimal"], "unknown dtype 'decimal'"),
        (["--cpu", "--dtype", "bfloat16"], "bfloat16 needs a GPU"),
        (["--rivals", "gett,abacus"], "unknown rival 'abacus'"),
        (["--case", "nothing"], "no case is named 'nothing'"),
        (["--scale", "2"], "scale is 2.0"),
        (["--cpu", "--precision", "tf32"], "need a GPU"),
    ],
)
def test_bad_options_are_named(options, message, capsys):
    assert message in refusal(capsys, "tccg", *options)
