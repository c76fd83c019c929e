"""The benchmarks: case data, timing decisions, checks of results, reports, and a run without a GPU."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest

from benchmarks import accuracy, report, run_cpu, run_gpu, verify
from benchmarks.__main__ import main
from benchmarks.cases import ELEMENT_TYPES, QUICK, Case, load_cases
from benchmarks.records import Measurement, Row, Run, from_json, to_json
from benchmarks.timing import measure_cpu
from gett.baselines.cutensor import ALGORITHMS, load_cutensor
from gett.baselines.rivals import ON_GPU, Libraries, Setting
from gett.baselines.ttgt import Ttgt, choose_orders
from gett.errors import MissingPackageError, OutputError, ShapeError, SubscriptsError
from gett.ir.gemm import make_gemm_plan
from gett.measure.timer import choose_repetitions, sets_to_rotate, summarise
from gett.measure.verify import rounded, widened
from gett.schedule.search.select import select_schedule
from gett.tune.codec import encode
from tests.cases import by_name

FP16, FP32 = ELEMENT_TYPES["float16"], ELEMENT_TYPES["float32"]
CASES = load_cases()
TINY = [c.scaled(2e-5) for c in CASES]


def standin(subscripts, a, b, *, out=None, order="K"):
    """Any engine that is called like `numpy.einsum`."""
    return np.einsum(subscripts, a, b, out=out, order=order)


# --- cases


def test_there_are_24_tccg_cases_and_one_more():
    assert [c.group for c in CASES].count("tccg") == 24
    assert len(CASES) == len({c.name for c in CASES}) == 25


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_case_is_a_plain_contraction(case):
    a, b, d = case.modes
    extents = dict(case.extents)
    assert set(a + b + d) == set(extents)
    assert all((x in a) + (x in b) + (x in d) == 2 for x in extents)
    batch, m, n, k = case.bmnk
    assert batch * m * n * k == case.volume
    assert case.elements == m * k + k * n + m * n
    assert sum(map(math.prod, case.shapes)) == case.elements


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_einsum_is_the_published_string_read_backwards(case):
    d, a, b = (part.partition("(")[0] for part in case.name.split("-"))
    assert {case.modes[0], case.modes[1]} == {a[::-1], b[::-1]} or case.group != "tccg"
    assert case.modes[2] == d[::-1] or case.group != "tccg"


def test_counts_of_three_cases_worked_out_by_hand():
    by_name = {c.name: c for c in CASES}
    tall = by_name["abj-bka-kj"]
    assert tall.bmnk == (1, 384 * 384, 24, 384)
    assert tall.flops(FP16) == 2 * 384**3 * 24
    assert tall.bytes(FP16) == 2 * (384**3 + 24 * 384 + 24 * 384**2)
    square = by_name["ij-ik-kj"]
    assert square.bmnk == (1, 7248, 7240, 7248)
    assert square.bytes(FP32) == 4 * (7248**2 + 2 * 7248 * 7240)
    triples = by_name["abcijk-ijmb-mkac"]
    assert triples.bmnk == (1, 20 * 20 * 24, 24 * 20 * 20, 24)
    assert triples.flops(ELEMENT_TYPES["complex64"]) == 8 * 9600 * 9600 * 24


@pytest.mark.parametrize("scale", [1e-4, 0.01, 0.25, 0.9])
def test_scaling_keeps_at_most_that_share_and_not_much_less(scale):
    for case in CASES:
        small = case.scaled(scale)
        assert small.elements <= scale * case.elements
        # Extents are rounded: one step of each extent at most is lost.
        larger = math.prod((e + 1) / e for _, e in small.extents)
        assert small.elements * larger**2 >= scale * case.elements


def test_scale_outside_its_range_and_unknown_names_are_refused():
    assert CASES[0].scaled(1) is CASES[0]
    for scale in (0, -1, 1.5):
        with pytest.raises(ValueError, match="must lie in"):
            CASES[0].scaled(scale)
    with pytest.raises(ValueError, match="no case is named 'abc'"):
        load_cases(["abc"])
    assert [c.name for c in load_cases(quick=True)] == [c.name for c in CASES if c.name in QUICK]
    assert len(load_cases(quick=True)) == len(QUICK)


# --- timing


@pytest.mark.parametrize(
    ("first_us", "expected"),
    [(1.0, 50), (3_000.0, 50), (5_000.0, 30), (15_000.0, 10), (60_000.0, 5), (100_000.0, 5), (100_001.0, 0), (1e7, 0)],
)
def test_repetitions_follow_the_first_time(first_us, expected):
    assert choose_repetitions(first_us) == expected


def test_repetitions_respect_a_small_cap_and_a_small_budget():
    assert choose_repetitions(1.0, most=3) == 3
    assert choose_repetitions(1_000.0, budget_us=10_000.0) == 10
    assert choose_repetitions(9_000.0, budget_us=10_000.0) == 5


@pytest.mark.parametrize(
    ("size", "l2", "expected"), [(10, 10, 3), (31, 10, 1), (30, 10, 1), (29, 10, 2), (1, 1000, 64)]
)
def test_buffers_fill_three_times_the_cache(size, l2, expected):
    assert sets_to_rotate(size, l2) == expected


def test_summary_of_times():
    m = summarise([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (m.median_us, m.low_us, m.spread_us, m.repetitions) == (3.0, 1.0, 2.0, 5)
    assert summarise([5.0, 1.0, 3.0], best=True).median_us == 1.0
    assert summarise([7.0]).spread_us == 0.0


def test_cpu_rivals_take_turns_and_a_failing_one_is_recorded():
    order = []

    def failing():
        order.append("bad")
        raise RuntimeError("no such kernel")

    calls = {
        "slow": lambda: (order.append("slow"), time.sleep(0.004)),
        "bad": failing,
        "fast": lambda: order.append("fast"),
    }
    found = measure_cpu(calls, rounds=3)
    assert order == ["slow", "bad", "fast", *["slow", "fast"] * 3]
    assert found["bad"].error == "RuntimeError: no such kernel"
    assert found["bad"].median_us is None
    assert found["slow"].repetitions == found["fast"].repetitions == 3
    assert found["slow"].median_us > 4000 > found["fast"].median_us
    assert measure_cpu({"slow": lambda: time.sleep(0.002)}, rounds=50, budget_s=0.0)["slow"].repetitions == 1


# --- the rival by hand


@pytest.mark.parametrize("case", TINY, ids=lambda c: c.name)
def test_ttgt_equals_einsum_on_integers(case):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(float) for s in case.shapes[:2])
    plan = Ttgt(case.einsum, a, b, np)
    out = np.full(plan.shape, np.nan)
    assert plan(a, b, out) is out
    np.testing.assert_array_equal(out, np.einsum(case.einsum, a, b))


@pytest.mark.parametrize(
    ("subscripts", "copies"),
    [("mk,kn->mn", 0), ("km,nk->mn", 0), ("km,nk->nm", 0), ("zkm,znk->zmn", 0), ("akb,jk->jba", 1), ("mkl,lnk->mn", 1),
     ("bmji,cakm->kjicba", 2), ("amb,ncm->anbc", 2), ("amb,nmc->anbc", 3), ("kzm,znk->zmn", 1)],
)  # fmt: skip
def test_ttgt_copies_only_what_it_must(subscripts, copies):
    sizes = dict(zip("zmnkabcijl", (2, 3, 4, 5, 2, 3, 4, 5, 6, 2), strict=True))
    ma, mb, md = subscripts.replace("->", ",").split(",")
    a, b = (np.arange(math.prod(sizes[x] for x in m), dtype=float).reshape([sizes[x] for x in m]) for m in (ma, mb))
    orders = choose_orders(ma, mb, md, (a.size, b.size, math.prod(sizes[x] for x in md)))
    assert [orders.a_view, orders.b_view, orders.d_view].count(None) == copies
    plan = Ttgt(subscripts, a, b, np)
    assert (plan.extra_bytes == 0) == (copies == 0)
    np.testing.assert_array_equal(plan(a, b, np.empty(plan.shape)), np.einsum(subscripts, a, b))


def test_ttgt_refuses_what_it_cannot_do():
    a = np.ones((2, 3))
    for subscripts in ("ij,jk", "ij->ji", "ii,ij->ij", "ij,jk->i", "ij,j...->i", "ij,jk,kl->il"):
        with pytest.raises(SubscriptsError):
            Ttgt(subscripts, a, a, np)
    with pytest.raises(ShapeError, match=r"'j' has extent 3 in A and 2 in B"):
        Ttgt("ij,jk->ik", a, a, np)
    with pytest.raises(OutputError, match=r"shape \(2, 2\)"):
        Ttgt("ij,kj->ik", a, a, np)(a, a, np.empty((2, 2)).T)


def test_cutensor_says_what_to_install_or_loads():
    try:
        library = load_cutensor()
    except MissingPackageError as error:
        assert "pip install" in str(error)  # noqa: PT017 - either outcome is right, by what is installed
    else:
        assert {library.ALGO_DEFAULT, library.ALGO_GETT} <= set(ALGORITHMS.values())


# --- checking results


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_a_right_result_passes_both_checks(dtype):
    element, case = ELEMENT_TYPES[dtype], CASES[0].scaled(1e-3)
    rng = np.random.default_rng(2)
    wide = np.dtype(element.wide)

    def engine(a, b, out):
        a, b = (widened(x, dtype, wide, np) for x in (a, b))
        out[...] = rounded(np.einsum(case.einsum, a, b), dtype, np)

    def operands(integer):
        made = (run_cpu.random_array(s, element.wide, rng, integer=integer) for s in case.shapes[:2])
        return (rounded(x, dtype, np) for x in made)

    d = np.empty(case.shapes[2], element.storage)
    assert verify.check_bound(case, element, engine, *operands(False), d, np, tf32=False) <= 1
    assert verify.check_exact(case, element, engine, *operands(True), d, np) == 0

    def nudged(a, b, out):
        engine(a, b, out)
        out.view(f"u{out.real.itemsize}").flat[7] ^= 4 if element.itemsize == 2 else 1 << 14  # above all rounding

    assert verify.check_bound(case, element, nudged, *operands(False), d, np, tf32=False) > 1
    assert verify.check_exact(case, element, nudged, *operands(True), d, np) == 1
    assert verify.check_exact(case, element, lambda a, b, out: None, *operands(True), d, np) == d.size


def test_one_wrong_one_unwritten_and_one_rough_result_are_caught():
    case = CASES[11].scaled(1e-3)
    rng = np.random.default_rng(3)
    a, b = (run_cpu.random_array(s, "float32", rng) for s in case.shapes[:2])
    ia, ib = (run_cpu.random_array(s, "float32", rng, integer=True) for s in case.shapes[:2])
    d = np.empty(case.shapes[2], "float32")

    def one_wrong(x, y, out):
        np.einsum(case.einsum, x, y, out=out)
        out.flat[7] += 1

    def one_missing(x, y, out):
        result = np.einsum(case.einsum, x, y)
        out.flat[1:] = result.flat[1:]

    def rough(x, y, out):
        out[...] = np.einsum(case.einsum, x.astype("float16"), y.astype("float16")).astype("float32")

    assert verify.check_exact(case, FP32, one_wrong, ia, ib, d, np) == 1
    assert verify.check_exact(case, FP32, one_missing, ia, ib, d, np) == 1
    assert verify.check_bound(case, FP32, one_wrong, a, b, d, np, tf32=False) > 1
    assert verify.check_bound(case, FP32, one_missing, a, b, d, np, tf32=False) == math.inf
    assert verify.check_bound(case, FP32, rough, a, b, d, np, tf32=False) > 1


def test_tf32_is_allowed_its_rounding_and_no_more():
    case = CASES[11].scaled(1e-3)
    rng = np.random.default_rng(4)
    a, b = (run_cpu.random_array(s, "float32", rng) for s in case.shapes[:2])
    d = np.empty(case.shapes[2], "float32")

    def cut(bits):
        def engine(x, y, out):
            mask = np.uint32((1 << 32) - (1 << (23 - bits)))
            x, y = ((v.view(np.uint32) & mask).view(np.float32) for v in (x, y))
            np.einsum(case.einsum, x, y, out=out)

        return engine

    assert verify.check_bound(case, FP32, cut(10), a, b, d, np, tf32=True) <= 1
    assert verify.check_bound(case, FP32, cut(10), a, b, d, np, tf32=False) > 1
    assert verify.check_bound(case, FP32, cut(4), a, b, d, np, tf32=True) > 1


# --- report


def gpu_run(check: str = "right") -> Run:
    run = Run("gpu", "float16", None, "a GPU", 4e12, 8e14, environment={"date": "2026-01-01", "commit": "abc"})
    for i, case in enumerate(CASES):
        row = Row(case.name, case.einsum, dict(case.extents), case.bmnk, case.flops(FP16), case.bytes(FP16), 50.0)
        row.times = {name: Measurement(100.0 * 2 ** (j % 4), 90.0, 1.0, 9) for j, name in enumerate(ON_GPU)}
        row.times["cutensor:TGETT"] = Measurement(error="CuTensorError: not supported")
        row.times["gett"] = Measurement(50.0 + 50.0 * (i == 3), 40.0, 1.0, 9)
        row.check = check if i == 3 else "right"
        run.rows.append(row)
    return run


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


# --- runs without a GPU


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
        assert set(row.times) == {"gett", "numpy.einsum", "opt_einsum"}
        assert all(m.median_us > 0 and m.error is None for m in row.times.values())
        assert row.check == "right", row.check_detail
    assert run.failed == []
    text = report.table(run)
    assert "0.0002 of the elements" in text
    assert max(map(len, text.splitlines())) <= 110
    assert from_json(to_json([run])) == [run]


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


@pytest.mark.usefixtures("quick_machine")
def test_the_command_prints_a_table_and_writes_json_and_a_chart(tmp_path, capsys):
    json_path, png = tmp_path / "r.json", tmp_path / "r.png"
    options = ["tccg", "--cpu", "--case", "ij-ik-kj", "--case", "abc-bda-dc(seed)", "--scale", "1e-4", "--quick"]
    code = main(
        [*options, "--dtype", "float32,complex64", "--json", str(json_path), "--plot", str(png), "--label", "t"]
    )
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
    assert png.stat().st_size > 10_000


def test_epilogues_are_compared_with_kernels_of_their_own(tmp_path, capsys):
    assert main(["epilogue", "--cpu", "--json", str(tmp_path / "e.json")]) == 0
    printed = capsys.readouterr().out
    rows = json.loads((tmp_path / "e.json").read_text())["cases"]
    assert all(0 <= row["apart"] <= 1 and set(row["us"]) == {"fused", "unfused", "contraction alone"} for row in rows)
    assert [row["name"] in printed for row in rows] == [True] * 5


@pytest.mark.parametrize("dtype", accuracy.PRODUCTS)
def test_errors_are_measured_component_by_component(dtype, tmp_path, capsys):
    files = ["--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.png")]
    assert main(["accuracy", "--cpu", "--dtype", dtype, *files]) == 0
    printed = capsys.readouterr().out
    assert "none is more than promised" in printed
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert {row["data"] for row in rows} == set(accuracy.KINDS)
    bound = accuracy.PRODUCTS[dtype]
    assert all(0 <= median <= most <= bound * row["k"] + 1 for row in rows for most, median in row["errors"].values())
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_an_error_beyond_the_promise_is_told():
    a = np.ones((2, 16), np.float32)
    product = a @ a.T
    assert accuracy.errors(a, a.T, product) == (0.0, 0.0)
    product[1, 1] *= 1 + 2.0**-20
    assert accuracy.errors(a, a.T, product) == (16.0, 0.0)
    rows = [
        {"data": "ones", "k": 16, "dtype": "float32", "errors": {"gett ieee": (16.0, 0.0), "gett bf16x6": (14.1, 0.0)}}
    ]
    assert accuracy.broken(rows) == ["bf16x6, ones, k = 16: (14.1, 0.0), promised 14"]


def test_parts_of_complex_products_are_components():
    a = np.full((2, 16), 1 + 2j, np.complex64)
    product = a @ a.T  # -48 + 64j, of products whose magnitudes are 80 and 64
    assert accuracy.errors(a, a.T, product) == (0.0, 0.0)
    product[1, 1] += 80 * 2.0**-20 + 32j * 2.0**-20
    assert accuracy.errors(a, a.T, product) == (16.0, 0.0)


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
    with pytest.raises(SystemExit) as caught:
        main(["tccg", *options])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_accuracy_asks_cutensor_for_an_algorithm_that_it_has(monkeypatch):
    """On a GPU alone, so that a name that it lacks would be found there alone."""
    asked = []
    monkeypatch.setattr(Setting, "cutensor", lambda self, algorithm: asked.append(algorithm))
    setting = Setting("mk,kn->mn", "float32", None, [], Libraries())
    for way, (_, call) in accuracy.ways(True, "float32").items():
        if way.startswith("cutensor"):
            call(setting)
    assert len(asked) == 4
    assert set(asked) <= set(ALGORITHMS)
