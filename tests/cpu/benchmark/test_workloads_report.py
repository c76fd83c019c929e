"""Rivals of the workloads, a case on a GPU with NumPy in CuPy's place, the table and the chart."""

from __future__ import annotations

import ctypes
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import run_cpu, run_gpu, verify, workloads_report
from benchmarks.cases import ELEMENT_TYPES
from benchmarks.records import Measurement, Row, Run, from_json, to_json
from benchmarks.rivals.cutensor import ALGORITHMS, EMULATIONS, _describe, _descriptor
from benchmarks.rivals.table import KNOWN, ON_GPU, Libraries, Setting
from benchmarks.tasks import workload_rivals
from benchmarks.workloads import FIELDS, by_dtype, choose_workloads, load_workloads
from gett.errors import MissingPackageError, OptionError, PrecisionError

ALL = load_workloads()
BY_NAME = {w.case.name: w for w in ALL}


# --- rivals


def test_rivals_are_as_accurate_as_what_is_asked_for():
    usual = [f"cutensor:{a}" for a in ALGORITHMS]
    assert workload_rivals("bfloat16", None) == [*usual, "torch.einsum+order", "torch.compile", "cublas"]
    assert set(workload_rivals("float64", None)) - set(workload_rivals("bfloat16", None)) == {
        f"cutensor:{a}/8xint8" for a in ALGORITHMS
    }
    complex64 = workload_rivals("complex64", None)
    assert "torch.compile" not in complex64
    assert {f"cutensor:GETT/{e}" for e in ("3xtf32", "9x16bf")} <= set(complex64)
    assert workload_rivals("float32", "tf32") == workload_rivals("bfloat16", None)
    assert all(set(workload_rivals(t, None)) < set(KNOWN) for t in ELEMENT_TYPES)
    assert set(ON_GPU) < set(KNOWN)


def test_emulations_have_their_dtypes_and_their_descriptors(monkeypatch):
    assert _describe("float32", "9x16bf")[1] == "COMPUTE_DESC_9X16BF"
    assert _describe("complex128", "8xint8")[1] == "COMPUTE_DESC_8XINT8"
    with pytest.raises(PrecisionError, match="'8xint8' applies to float64 and complex128, not to float32"):
        _describe("float32", "8xint8")
    with pytest.raises(PrecisionError, match=f"choose from ieee, tf32, {', '.join(EMULATIONS)}"):
        _describe("float32", "9x")

    class Bindings:
        COMPUTE_DESC_32F = 77

    assert _descriptor(Bindings, "COMPUTE_DESC_32F") == 77

    def missing(name):
        raise OSError(f"no {name}")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(PrecisionError, match="this cuTENSOR has no COMPUTE_DESC_9X16BF: no libcutensor"):
        _descriptor(Bindings, "COMPUTE_DESC_9X16BF")


def test_pytorch_compiles_einsum_and_copy_together_for_every_case_afresh():
    told = []

    def compile(function, *, dynamic):
        told.append(dynamic)
        return function

    class Tensor:
        def __init__(self, text):
            self.text = text

        def contiguous(self):
            return f"{self.text}, in C order"

    libraries = Libraries()
    libraries.__dict__["torch"] = types.SimpleNamespace(
        compiler=types.SimpleNamespace(reset=lambda: told.append("reset")),
        compile=compile,
        einsum=lambda text, *operands: Tensor(f"{text} of {operands}"),
    )
    setting = Setting("ij,jk->ki", "float32", None, [(1, 2, 3), (4, 5, 6)], libraries)
    setting.__dict__["torch_sets"] = setting.sets
    call = setting.torch_compiled()
    assert told == ["reset", False]
    assert call(1) == "ij,jk->ki of (4, 5), in C order"


def test_an_outer_product_has_no_matrix_product_beside_it():
    tensors = [np.ones(s) for s in ((3,), (4,), (3, 4))]
    with pytest.raises(OptionError, match="M, N or K is 1"):
        Setting("i,j->ij", "float64", None, [tuple(tensors)], Libraries()).cublas()


# --- one case on a GPU, with NumPy in CuPy's place


class Pool:
    def free_all_blocks(self):
        pass


class Stream:
    def synchronize(self):
        pass


class Filler:
    def uniform(self, x, seed):
        x[...] = run_cpu.random_array(x.shape, x.dtype.name, np.random.default_rng(seed))

    def integer(self, x, seed):
        x[...] = run_cpu.random_array(x.shape, x.dtype.name, np.random.default_rng(seed), integer=True)


class Clock:
    def __init__(self, sets, budget_us):
        pass

    def measure(self, call):
        call(0)
        return Measurement(10.0, 10.0, 0.0, 1)


@pytest.fixture
def gpu(monkeypatch):
    """`run_gpu._time_case` of one small workload; the argument is what gett adds to its first element."""
    cupy = types.ModuleType("cupy")
    cupy.__dict__.update({k: v for k, v in vars(np).items() if not k.startswith("__")})
    memory = types.SimpleNamespace(OutOfMemoryError=MemoryError)
    cupy.cuda = types.SimpleNamespace(get_current_stream=Stream, memory=memory)
    cupy.get_default_memory_pool = Pool
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(run_gpu, "GpuTimer", Clock)

    def run(wrong=0, rivals=("gett", "torch.einsum+order", "torch.compile", "cublas")):
        def prepare(setting):
            def call(i):
                a, b, d = setting.sets[i]
                assert np.isnan(d).all() or not wrong  # poisoned before the first result is looked at
                np.einsum(setting.einsum, a, b, out=d)
                d.flat[0] += wrong

            return call

        def missing(setting):
            raise MissingPackageError("PyTorch is not installed")

        known = {"gett": prepare, "torch.einsum+order": missing, "torch.compile": missing, "cublas": prepare}
        monkeypatch.setattr(run_gpu, "KNOWN", known)
        case = BY_NAME["kraus12-4"].case.reduced(1 << 10, 1 << 14)
        made = Run("gpu", "complex64", None, "a GPU", 4e12, 5e13, environment={"l2_bytes": 1 << 10})
        row = run_gpu._row(case, ELEMENT_TYPES["complex64"], made)
        run_gpu._time_case(row, case, rivals, made, Filler(), Libraries(), lambda text: None, True, 1e3)
        made.rows.append(row)
        return made

    return run


def test_what_is_not_installed_is_a_dash_with_a_note(gpu):
    made = gpu()
    (row,) = made.rows
    assert (row.check, row.group) == ("right", "tn")
    assert row.us("torch.compile") is None
    text = workloads_report.table([made])
    line = next(line for line in text.splitlines() if line.startswith("kraus12-4"))
    assert line.split()[-5:] == ["-", "-", "-", "10.0", "-"]  # cuTENSOR, its algorithm, PyTorch, cuBLAS, ratio
    assert "no figures of cuTENSOR, torch.einsum, torch.compile: /best is against the others" in text
    assert "torch.einsum+order (1), torch.compile (1)" in text
    assert "PyTorch is not installed" in text
    assert "1 of 1 right" in text


def test_a_wrong_result_has_no_ratio_and_one_that_cannot_be_compared_is_not_right(gpu, monkeypatch):
    made = gpu(wrong=1)
    assert made.failed == ["kraus12-4"]
    assert "WRONG: kraus12-4" in workloads_report.table([made])
    assert workloads_report.ratio(made, made.rows[0]) is None
    assert workloads_report.part(made.rows[0]) is None

    def full(*args, **kwargs):
        raise MemoryError("no room")

    monkeypatch.setattr(verify, "check_exact", full)
    made = gpu()
    assert (made.failed, made.unverified) == ([], ["kraus12-4"])
    text = workloads_report.table([made])
    assert "results checked: 0 of 1 right" in text
    assert "  kraus12-4: unchecked: MemoryError: no room" in text


# --- table and chart


def runs(wrong: bool = False) -> list[Run]:
    """Figures of all workloads in two dtypes each; gett takes 50 us, in one case 200 us, the best rival 100 us."""
    made = []
    for dtype, cases in by_dtype(choose_workloads(ALL), on_gpu=True).items():
        element = ELEMENT_TYPES[dtype]
        run = Run("gpu", dtype, None, "a GPU", 4e12, 8e14, environment={"date": "2026-01-01", "commit": "abc"})
        for case in cases:
            row = Row(
                case.name, case.einsum, dict(case.extents), case.bmnk, case.flops(element), case.bytes(element), 40.0,
                {name: Measurement(400.0) for name in workload_rivals(dtype, None)}, "right", group=case.group,
            )  # fmt: skip
            row.times["cutensor:TTGT"] = Measurement(100.0)
            row.times["torch.einsum+order"] = Measurement(150.0)
            row.times["cublas"] = Measurement(45.0)  # computes something else: no rival
            row.times["gett"] = Measurement(200.0 if case.name == "lora" else 50.0)
            row.check = "WRONG" if wrong and case.name == "gw" else "right"
            run.rows.append(row)
        made.append(run)
    return made


def test_table_has_all_dtypes_of_a_case_together_and_ends_in_the_means():
    text = workloads_report.table(runs())
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    cases = [line.split()[:2] for line in lines if line.split()[:1] and line.split()[0] in BY_NAME]
    assert [t for name, t in cases if name == "attn-qk"] == ["float16", "bfloat16", "float32"]
    at = [i for i, (name, _) in enumerate(cases) if name == "attn-qk"]
    assert at == list(range(at[0], at[0] + 3))
    assert [line for line in lines if line in FIELDS] == list(FIELDS)
    mean = next(line for line in lines if line.startswith("ml bfloat16")).split()
    count = sum("bfloat16" in w.dtypes for w in ALL)
    assert mean[2] == str(count)
    assert float(mean[3]) == pytest.approx(2 ** ((count - 2) / count), abs=0.01)
    assert mean[4] == "0.50"
    assert mean[-1] == "lora"
    assert "slower than the best rival: 3 of " in text  # three dtypes of one case
    assert "  lora float16: 0.50" in lines
    assert "below 70% of the roofline: 3 of " in text
    assert "WRONG" not in text
    assert "WRONG: gw" in workloads_report.table(runs(wrong=True))


def test_a_precision_stands_beside_its_dtype_and_the_field_is_kept():
    made = [replace(run, precision="tf32") for run in runs() if run.dtype in ("float32", "complex64")]
    text = workloads_report.table(made)
    assert "complex64 tf32" in text
    assert max(map(len, text.splitlines())) <= 110
    again = from_json(to_json(made))
    assert again == made
    assert {row.group for run in again for row in run.rows} == set(FIELDS)


@pytest.mark.slow
def test_chart_is_a_picture_with_something_in_it(tmp_path):
    from matplotlib import image

    workloads_report.plot(runs(wrong=True), tmp_path / "sub" / "w.png")
    pixels = image.imread(tmp_path / "sub" / "w.png")
    assert pixels.shape[0] > 1500
    assert 0.02 < (pixels[..., :3].min(axis=2) < 0.95).mean() < 0.9
