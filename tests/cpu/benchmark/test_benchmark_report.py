"""Tables, JSON and charts of a run of the benchmarks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import report, run_gpu
from benchmarks.records import Measurement, from_json, to_json
from gett.codec import encode
from gett.ir.gemm import make_gemm_plan
from gett.schedule.search.select import select_schedule
from tests.cases import by_name
from tests.cpu.benchmark.benchmark_cases import CASES, gpu_run


def test_geometric_mean():
    assert report.geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert report.geometric_mean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert report.geometric_mean([None]) is None
    with pytest.raises(ValueError, match="positive"):
        report.geometric_mean([1.0, 0.0])


def test_gpu_table_fits_and_ends_in_the_means():
    run = gpu_run()
    text = report.table(run)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    assert all(any(line.startswith(c.name) for line in lines) for c in CASES)
    best = min(m.median_us for n, m in run.rows[0].times.items() if n.startswith("cutensor:") and m.median_us)
    expected = (best / 50.0) ** (24 / 25) * (best / 100.0) ** (1 / 25)
    mean = next(line for line in lines if line.startswith("ratio to best cuTENSOR"))
    assert float(mean.split()[4]) == pytest.approx(expected, abs=0.005)
    assert "geometric mean of 25" in mean
    assert CASES[3].name in mean  # the case on which gett is slowest
    assert "cutensor:TGETT" in next(line for line in lines if line.startswith("did not run"))
    assert "25 of 25 right" in text
    assert "WRONG" not in text
    assert run.failed == []


def test_rivals_that_failed_leave_a_dash_and_a_wrong_result_shows():
    run = gpu_run("WRONG")
    run.rows[0].times = {"gett": run.rows[0].times["gett"], "torch.einsum": Measurement(error="no torch")}
    del run.rows[1].times["gett"]
    lines = report.table(run).splitlines()
    assert next(line for line in lines if line.startswith(CASES[0].name)).split()[-7:] == ["-"] * 7
    assert "WRONG" in next(line for line in lines if line.startswith(CASES[3].name))
    assert any(line.startswith("results checked") and CASES[3].name in line for line in lines)
    assert run.failed == [CASES[1].name, CASES[3].name]


def test_large_times_do_not_break_the_columns():
    run = gpu_run()
    for row in run.rows:
        for m in row.times.values():
            m.median_us = None if m.error else 123_456.78
    assert max(map(len, report.table(run).splitlines())) <= 110


def test_json_round_trip_is_lossless_and_knows_its_schema():
    runs = [gpu_run(), gpu_run("WRONG")]
    assert from_json(to_json(runs)) == runs
    with pytest.raises(ValueError, match="schema 99"):
        from_json(to_json(runs).replace('"schema": 1', '"schema": 99'))


@pytest.mark.slow
def test_chart_is_a_picture_with_something_in_it(tmp_path):
    from matplotlib import image

    path = tmp_path / "sub" / "tccg.png"
    report.plot([gpu_run()], path)
    pixels = image.imread(path)
    height, width, _ = pixels.shape
    assert height > 600
    assert width > 600
    assert len(np.unique((pixels[..., :3] * 255).astype(int).reshape(-1, 3), axis=0)) > 50
    assert 0.05 < (pixels[..., :3].min(axis=2) < 0.95).mean() < 0.9


def test_what_a_plan_says_is_plain_data():
    made = select_schedule(make_gemm_plan(by_name("k-only-in-a").contraction("float16")), "sm_80")

    class Step:
        schedule = made

    class Plan:
        workspace_bytes, steps = 64, (Step(),)

    found = run_gpu._describe_plan(Plan())
    assert found == {"workspace_bytes": 64, "schedule": encode(made)}
    assert json.loads(json.dumps(found)) == found
    assert run_gpu._describe_plan(object()) == {"workspace_bytes": None}
