"""How the benchmarks check results, and the errors that they measure."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks import accuracy, run_cpu, verify
from benchmarks.__main__ import main
from benchmarks.cases import ELEMENT_TYPES
from gett.measure.verify import rounded, widened
from tests.cpu.benchmark.benchmark_cases import CASES, FP32
from tests.sampling import slow_but


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


PLAIN = [("float32", False)]


@pytest.mark.parametrize(("dtype", "chart"), slow_but([*PLAIN, *((x, True) for x in accuracy.PRODUCTS)], PLAIN))
def test_errors_are_measured_component_by_component(dtype, chart, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(accuracy, "DEPTHS_CPU", accuracy.DEPTHS_CPU[: 2 if chart else 1])
    files = ["--json", str(tmp_path / "a.json"), *(["--plot", str(tmp_path / "a.png")] if chart else [])]
    assert main(["accuracy", "--cpu", "--dtype", dtype, *files]) == 0
    printed = capsys.readouterr().out
    assert "none is more than promised" in printed
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert {row["data"] for row in rows} == set(accuracy.KINDS)
    bound = accuracy.PRODUCTS[dtype]
    assert all(0 <= median <= most <= bound * row["k"] + 1 for row in rows for most, median in row["errors"].values())
    assert not chart or (tmp_path / "a.png").stat().st_size > 10_000


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
