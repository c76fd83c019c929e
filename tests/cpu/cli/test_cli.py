"""The command line, end to end on the CPU: exit codes, texts, and the README's commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
from gett.cli import demo, execute, main
from gett.cli.apart import time_rival
from gett.cli.device import find_place
from gett.cli.measure import Peaks, Timing, time_cpu
from gett.cli.problem import Problem
from gett.cli.rivals import prepare_cpu_rival
from gett.errors import DeviceError, MissingPackageError

ROOT = Path(__file__).parents[3]
SMALL = ["run", "abc,cbd->da", "--extents", "a=6,b=5,c=4,d=3", "--device", "cpu", "--repeat", "1"]


def quick_peaks(_: str) -> Peaks:
    return Peaks(1e10, 1e11)


@pytest.fixture(autouse=True)
def _peaks_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks take a second; one test measures them."""
    monkeypatch.setattr("gett.cli.device.measure_cpu_peaks", quick_peaks)


@pytest.fixture(autouse=True)
def _rivals_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a process for each rival takes a second; the tests of that do it."""

    def timed(problem: Problem, name: str, precision: Any, repeat: int | None, *, limit: float) -> Timing:
        operands = execute.random_operands(problem, 0)
        out = np.empty(problem.shape(problem.output), problem.dtype)
        return time_cpu(prepare_cpu_rival(name, problem, operands, out, precision), repeat)

    monkeypatch.setattr("gett.cli.run.time_rival", timed)


# --- commands


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "complex128", "int32", "uint8", "bool"]
)
def test_run_verifies_every_dtype(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--dtype", dtype]) == 0
    out = capsys.readouterr().out
    assert "abc,cbd->da on the CPU, " in out
    assert f"result    {dtype}, shape (3, 6); right: " in out
    for name in ("gett", "numpy.einsum", "opt_einsum"):
        assert re.search(rf"^(no )?{re.escape(name)}:? +\S", out, re.MULTILINE), name
    assert "roofline" in out


@pytest.mark.parametrize(
    ("subscripts", "extents"),
    [
        ("ab,bc,cd,de->ea", "6"),
        ("abb->a", "5"),
        ("abc->cab", "4"),
        ("a,a->", "9"),
        ("a,b->ba", "3"),
        ("ab,ab->ab", "3"),
    ],
)
def test_run_takes_one_and_many_operands(subscripts: str, extents: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", subscripts, "--extents", extents, "--device", "cpu", "--repeat", "1"]) == 0
    assert "right: max error / bound" in capsys.readouterr().out


def test_a_wrong_result_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Wrong:
        """A plan whose first element is off."""

        def __init__(self, plan: Any) -> None:
            self.plan, self.steps, self.flops, self.bytes = plan, plan.steps, plan.flops, plan.bytes

        def __call__(self, *operands: Any, out: Any) -> None:
            self.plan(*operands, out=out)
            out.flat[0] += 1

    real = gett.plan
    monkeypatch.setattr(execute.gett, "plan", lambda *args, **options: Wrong(real(*args, **options)))
    assert main(SMALL) == 1
    assert "WRONG: max error / bound" in capsys.readouterr().out
    assert main([*SMALL, "--dtype", "int64"]) == 1
    assert "WRONG: elements differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "ab,bc->ac", "--extents", "a=2"], "no extent for modes 'b', 'c'"),
        (["run", "ab,bc->ac", "--extents", "2", "--device", "cpu", "--precision", "half"], "half"),
        (["run", "ab,bc->ac", "--extents", "2", "--dtype", "float31"], "float31"),
        (["explain", "ab,bc->ac", "--extents", "2", "--arch", "sm_1"], "sm_1"),
        (["explain", "ab,bc->adc", "--extents", "2"], "mode 'd'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gett: ")
    assert words in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("error", [MissingPackageError("CuPy is not installed"), DeviceError("no driver")])
def test_a_wanted_gpu_that_is_not_there(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_gpu() -> None:
        raise error

    monkeypatch.setattr("gett.cli.device._gpu", no_gpu)
    assert find_place(None).arch == "cpu"
    assert main(["run", "ab->a", "--extents", "2", "--device", "gpu"]) == 2
    assert capsys.readouterr().err == f"gett: {error}\n"


@pytest.mark.slow
def test_explain_plans_for_a_gpu_that_need_not_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", "amji,cbkm->kjicba", "--extents", "m=24,8", "--dtype", "float16", "--detail"]
    for arch in ("sm_90a", "sm_80"):
        assert main([*command, "--arch", arch]) == 0
        assert f"for {arch}: tile" in capsys.readouterr().out
    assert main([*command, "--arch", "cpu"]) == 0
    assert "NumPy" in capsys.readouterr().out


def test_cache_shows_and_clears(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    assert os.environ["GETT_CACHE_DIR"] in capsys.readouterr().out
    assert main(["cache", "--clear"]) == 0


def test_usage_errors_are_argparse_s() -> None:
    for arguments in ([], ["dance"], ["run"], [*SMALL[:-1], "0"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2


def test_a_gett_that_was_installed_without_rivals_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "benchmarks" / "rivals").mkdir(parents=True)  # another package of that name is not taken for it
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr(gett, "__file__", str(tmp_path / "elsewhere" / "gett" / "__init__.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["run", "ab->a", "--extents", "2", "--device", "cpu", "--repeat", "1"]) == 0
    assert "no rivals: rivals are timed in a clone of gett" in capsys.readouterr().out


@pytest.mark.slow
def test_demo_is_verified_and_quick() -> None:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gett", "demo", "--device", "cpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    assert seconds < 20
    assert done.stderr.count("right") == 3
    verified = [line for line in done.stdout.splitlines() if line.endswith(" yes")]
    assert len(verified) == 3
    ratios = []
    for line in verified:
        ours, _, numpys, ratio = map(float, line.split()[-5:-1])
        assert ratio == pytest.approx(numpys / ours, rel=0.01, abs=0.01)
        ratios.append(ratio)
    assert "as fast as numpy.einsum in the geometric mean" in done.stdout or "slower than numpy.einsum" in done.stdout


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ([2.0, 8.0], "gett is 4 times as fast as numpy.einsum in the geometric mean (2 to 8)."),
        ([0.5, 0.5], "gett is slower than numpy.einsum: 0.5 times as fast in the geometric mean (0.5 to 0.5)."),
    ],
)
def test_the_demo_says_who_is_faster_by_how_much(ratios: list[float], text: str) -> None:
    assert demo.compared("numpy.einsum", ratios) == text


@pytest.mark.slow
def test_run_says_that_a_rival_took_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gett.cli.run.LIMIT_S", 0.001)
    monkeypatch.setattr("gett.cli.run.time_rival", time_rival)
    assert main(["run", "ab,bc->ac", "--extents", "700", "--dtype", "int64", "--device", "cpu", "--repeat", "1"]) == 0
    captured = capsys.readouterr()
    assert re.search(r"^numpy.einsum +over 0.001 s +- +over \d", captured.out, re.MULTILINE)
    assert "A rival has 0.001 s; one whose call takes longer is stopped." in captured.out
    assert "timing numpy.einsum, at most 0.001 s ... over" in captured.err


# --- the README


def first_block() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```(?:sh|bash|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    return [line for line in block[1].splitlines() if line.strip() and not line.startswith("#")]


def test_readme_starts_with_two_commands_of_one_line() -> None:
    main_job, tests = first_block()
    assert "python -m gett demo" in main_job
    for word in ("ruff check", "ruff format --check", "mypy", "pytest"):
        assert word in tests
    for command in (main_job, tests):
        assert "venv" in command
        assert "pip install" in command
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0


def test_ci_reads_the_second_command_from_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    program = re.search(r"^command=\$\((awk .*)\)$", script, re.MULTILINE)
    assert program is not None
    found = subprocess.run(["bash", "-c", program[1]], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.strip() == first_block()[1]


def test_devices_share_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "ij,jk->ik", "--extents", "8", "--dtype", "float64", "--device", "cpu", "--repeat", "1"]
    assert main([*command, "--devices", "0,1"]) == 0
    text = capsys.readouterr().out
    assert "ij,jk->ik on 2 devices [0, 1], float64" in text
    assert "on one device; 2 take 1/" in text
    with pytest.raises(SystemExit):
        main([*command, "--devices", "0;1"])
    assert "must be numbers of GPUs such as 0,1, got '0;1'" in capsys.readouterr().err
    assert main([*command, "--devices", "0,0"]) == 2
    assert "devices=[0, 0] names a GPU twice" in capsys.readouterr().err
