"""The workloads: their data, the choice among them, their plans, and the command without a GPU."""

from __future__ import annotations

import json
import string

import numpy as np
import pytest

import gett
from benchmarks.__main__ import main
from benchmarks.cases import ELEMENT_TYPES
from benchmarks.records import from_json
from benchmarks.workloads import FIELDS, MOST_BYTES, by_dtype, choose_workloads, load_workloads
from gett.ir.tensors import SUPPORTED
from tests.cpu.benchmark.benchmark_cases import refusal
from tests.sampling import slow_but

ALL = load_workloads()
BY_NAME = {w.case.name: w for w in ALL}
FIRST = {
    "ml": ("trimul-out", "attn-qk", "attn-qk-odd", "moe", "bmm-mid", "lora"),
    "chem": ("ladder", "ring", "t1-fold", "df-eri", "dmrg-left", "gw"),
    "tn": ("gate26-3-17", "gate26-24-25", "qubits24-12-8", "qubits22-22-10", "peps", "mps"),
}
"""Those that were measured before the others were added."""


# --- the data


def test_every_field_has_the_first_cases_and_more():
    assert len(BY_NAME) == len(ALL)
    for field, names in FIRST.items():
        mine = [w.case.name for w in ALL if w.field == field]
        assert set(names) < set(mine)
        assert len(mine) > 20


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.case.name)
def test_every_workload_is_a_contraction_with_a_source_that_fits(workload):
    case = workload.case
    a, b, d = case.modes
    assert workload.field in FIELDS
    assert workload.source
    assert dict.fromkeys(workload.dtypes).keys() <= ELEMENT_TYPES.keys() & SUPPORTED
    assert set(a + b + d) == set(dict(case.extents))
    assert all(len(set(m)) == len(m) for m in (a, b, d))
    assert all((x in a) + (x in b) + (x in d) >= 2 for x in dict(case.extents))
    assert set(case.einsum) - set(",->") <= set(string.ascii_letters)  # all that torch.einsum takes
    widest = max(case.bytes(ELEMENT_TYPES[t]) for t in workload.dtypes)
    assert (widest > MOST_BYTES) == workload.large


@pytest.mark.parametrize("workload", ALL, ids=lambda w: w.case.name)
def test_fused_modes_are_the_same_contraction_of_the_same_memory(workload):
    case = workload.case.reduced(1 << 12, 1 << 16)
    fused = case.fused()
    assert fused.bmnk == case.bmnk
    assert fused.fused() == fused
    assert all(np.prod(s) == np.prod(t) for s, t in zip(case.shapes, fused.shapes, strict=True))
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(float) for s in case.shapes[:2])
    whole = np.einsum(case.einsum, a, b)
    pieces = np.einsum(fused.einsum, *(x.reshape(s) for x, s in zip((a, b), fused.shapes[:2], strict=True)))
    np.testing.assert_array_equal(whole.ravel(), pieces.ravel())


def test_a_gate_has_few_modes_when_fused_and_keeps_its_own_when_reduced():
    case = BY_NAME["gate26-3-17"].case
    assert [len(m) for m in case.modes] == [4, 26, 26]
    assert [len(m) for m in case.fused().modes] == [4, 5, 5]
    assert case.bmnk == (1, 4, 1 << 24, 4)
    small = case.reduced(1 << 16, 1 << 20)
    assert small.bmnk[1::2] == (4, 4)


@pytest.mark.parametrize("name", [w.case.name for w in ALL if w.case.name.startswith("gate26")])
def test_a_gate_stands_where_its_name_says(name):
    _, *qubits = (int(x) for x in name.replace("gate", "").split("-"))
    a, state, d = BY_NAME[name].case.modes
    assert state == string.ascii_lowercase
    assert [i for i, x in enumerate(d) if x != state[i]] == qubits
    assert a == "".join(d[q] for q in qubits) + "".join(state[q] for q in qubits)


# --- the choice


def test_fields_names_and_large_ones():
    assert {w.field for w in choose_workloads(ALL, ["ml", "tn"])} == {"ml", "tn"}
    usual = choose_workloads(ALL)
    assert not any(w.large for w in usual)
    assert set(choose_workloads(ALL, large=True)) == set(ALL)
    assert [w.case.name for w in choose_workloads(ALL, [], ["df-hessian-all"])] == ["df-hessian-all"]
    with pytest.raises(ValueError, match="unknown field 'bio'; choose from ml, chem, tn"):
        choose_workloads(ALL, ["bio"])
    with pytest.raises(ValueError, match="no case is named 'nothing'; the cases are: trimul-out"):
        choose_workloads(ALL, [], ["nothing"])
    with pytest.raises(ValueError, match="no case named gw belongs to ml or tn"):
        choose_workloads(ALL, ["ml", "tn"], ["gw"])


def test_each_case_runs_in_the_dtypes_of_its_users():
    chem = choose_workloads(ALL, ["chem"])
    found = by_dtype(chem, on_gpu=True)
    assert list(found) == ["float32", "float64"]
    assert {c.name for c in found["float64"]} == {w.case.name for w in chem}
    assert list(by_dtype(chem, ["float32"], on_gpu=True)) == ["float32"]
    every = by_dtype(ALL, on_gpu=True)
    assert set(every) == set(ELEMENT_TYPES)
    host = by_dtype(ALL, on_gpu=False)
    assert set(host) == {"float32", "float64", "complex64"}
    assert sum(map(len, host.values())) == len(ALL)  # one of each
    with pytest.raises(ValueError, match="none of the cases is in complex128; they are in float32, float64"):
        by_dtype(chem, ["complex128"], on_gpu=True)
    assert set(by_dtype(ALL, on_gpu=True, precision="tf32")) == {"float32", "complex64"}
    with pytest.raises(ValueError, match="float64 has no precision 'tf32'; it applies to float32, complex64"):
        by_dtype(chem, ["float64"], on_gpu=True, precision="tf32")
    with pytest.raises(ValueError, match="'tf32' applies to float32, complex64; the cases are in float64"):
        by_dtype([BY_NAME["df-hessian"]], on_gpu=True, precision="tf32")


# --- the command


@pytest.mark.slow
@pytest.mark.usefixtures("quick_machine")
def test_the_command_runs_every_workload_and_writes_json_and_a_chart(tmp_path, capsys):
    files = ["--json", str(tmp_path / "w.json"), "--plot", str(tmp_path / "w.png")]
    code = main(["workloads", "--cpu", "--large", *files])
    printed = capsys.readouterr().out
    assert code == 0, printed
    made = from_json((tmp_path / "w.json").read_text())
    assert {row.case for run in made for row in run.rows} == set(BY_NAME)
    assert all(row.check == "right" for run in made for row in run.rows)
    assert all("commit" in run.environment and run.device for run in made)
    assert {run.dtype for run in made} == {"float32", "float64", "complex64"}
    assert printed.count("geometric means") == 1
    assert (tmp_path / "w.png").stat().st_size > 10_000


@pytest.mark.usefixtures("quick_machine")
def test_the_command_keeps_to_field_dtype_and_case(tmp_path, capsys):
    options = ["--field", "chem,tn", "--dtype", "float32", "--case", "gw", "--case", "peps", "--case", "mps"]
    assert main(["workloads", "--cpu", *options, "--json", str(tmp_path / "w.json")]) == 0
    capsys.readouterr()
    rows = json.loads((tmp_path / "w.json").read_text())["runs"][0]["rows"]
    assert [(r["case"], r["group"]) for r in rows] == [("gw", "chem"), ("peps", "tn"), ("mps", "tn")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--field", "bio"], "unknown field 'bio'; choose from ml, chem, tn"),
        (["--dtype", "decimal"], "unknown dtype 'decimal'; choose from float16, bfloat16"),
        (["--cpu", "--dtype", "bfloat16"], "bfloat16 needs a GPU"),
        (["--cpu", "--field", "chem", "--dtype", "complex64"], "they are in float32, float64"),
        (["--case", "nothing"], "no case is named 'nothing'"),
        (["--rivals", "gett,abacus"], "unknown rival 'abacus'"),
        (["--precision", "exact"], "unknown precision 'exact'; choose from ieee, tf32"),
        (["--cpu", "--precision", "tf32"], "need a GPU"),
    ],
)
def test_bad_options_are_named(options, message, capsys):
    assert message in refusal(capsys, "workloads", *options)


# --- gett plans them all


@pytest.mark.parametrize("workload", slow_but(ALL, lambda w: w in ALL[::24]), ids=lambda w: w.case.name)
def test_every_workload_is_planned_for_hopper(workload):
    for dtype in workload.dtypes:
        pairs = [(shape, dtype) for shape in workload.case.shapes[:2]]
        plan = gett.plan(workload.case.einsum, *pairs, arch="sm_90a")
        assert len(plan.steps) == 1
        assert plan.steps[0].schedule is not None
