"""The command line, end to end on the CPU: exit codes, texts, verification, and the README's commands."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gett
from gett.cli import demo, execute, main, run
from gett.cli.apart import OverTimeError, time_rival
from gett.cli.device import find_place
from gett.cli.measure import Peaks, Timing, choose_repeats, measure_cpu_peaks, time_cpu
from gett.cli.problem import Problem, parse_problem, random_operand
from gett.cli.rivals import cpu_rivals, find_rivals, prepare_cpu_rival
from gett.errors import DeviceError, DTypeError, GettError, MissingPackageError, OptionError, SubscriptsError
from gett.measure.verify import Verdict, make_tolerance
from gett.measure.verify import verify as verify_arrays

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


# --- problems


def test_explicit_and_implicit_results_and_white_space() -> None:
    problem = parse_problem(" ab , bc -> ca ", "a=2, b=3, c=4", "float16")
    assert problem == Problem(("ab", "bc"), "ca", {"a": 2, "b": 3, "c": 4}, "float16")
    assert problem.shapes == ((2, 3), (3, 4))
    assert parse_problem("ba,cb", "7", "f4").subscripts == "ba,cb->ac"
    assert parse_problem("ba,cb", "7", "f4").dtype == "float32"


def test_a_bare_extent_stands_for_the_rest() -> None:
    assert parse_problem("ab,bc->ac", "b=3,9", "f4").extents == {"a": 9, "b": 3, "c": 9}


@pytest.mark.parametrize(
    ("subscripts", "extents", "error", "words"),
    [
        ("ab,bc->ac", "a=2,b=3", OptionError, "no extent for mode 'c'"),
        ("ab,bc->ac", "a=2", OptionError, "no extent for modes 'b', 'c'"),
        ("ab,bc->ac", "a=2,b=3,c=4,x=5", OptionError, "no mode 'x'"),
        ("ab,bc->ac", "a=2,a=3,7", OptionError, "mode 'a' has two extents, 2 and 3"),
        ("ab,bc->ac", "a=-2,7", OptionError, "'a=-2'"),
        ("ab,bc->ac", "a=two,7", OptionError, "'a=two'"),
        ("ab,bc->ad", "7", SubscriptsError, "mode 'd' of the result"),
        ("ab,bc->aa", "7", SubscriptsError, "'a' occurs 2 times"),
        ("a...,b->ab", "7", SubscriptsError, "ellipsis"),
        ("a1,b->ab", "7", SubscriptsError, "'1' is not a mode label"),
    ],
)
def test_bad_problems_name_the_mode(subscripts: str, extents: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        parse_problem(subscripts, extents, "float32")


def test_unknown_dtypes_are_named() -> None:
    for name in ("float31", "f4,", "S-1", "object_"):
        with pytest.raises(DTypeError, match=f"--dtype.*{name}"):
            parse_problem("ab->a", "2", name)
    assert parse_problem("ab->a", "2", "bfloat16").bytes == 2 * (4 + 2)
    with pytest.raises(DTypeError, match="no bfloat16 of its own"):
        random_operand(np.random.default_rng(0), (2,), "bfloat16")
    with pytest.raises(DTypeError, match="'str'"):
        random_operand(np.random.default_rng(0), (2,), "str")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_random_data_fill_both_halves_of_the_range(dtype: str) -> None:
    x = random_operand(np.random.default_rng(0), (1000,), dtype)
    assert x.dtype == dtype
    for part in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
        assert -1 <= part.min() < -0.9
        assert 0.9 < part.max() <= 1


# --- verification


def verify(problem: Problem, operands: list[Any], result: Any, lengths: list[int]) -> Verdict:
    return verify_arrays(problem.subscripts, operands, result, lengths, np)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("subscripts", ["akb,jk->jba", "ab,bc,cd->da"])
def test_verify_accepts_einsum_and_sees_one_wrong_element(dtype: str, subscripts: str) -> None:
    problem = parse_problem(subscripts, "16", dtype)
    rng = np.random.default_rng(1)
    operands = [random_operand(rng, s, dtype) for s in problem.shapes]
    lengths = [16] * (len(operands) - 1)
    if dtype == "float16":
        result = np.einsum(problem.subscripts, *(x.astype("float32") for x in operands)).astype(dtype)
    else:
        result = np.einsum(problem.subscripts, *operands)
    assert verify(problem, operands, result, lengths).ok
    position = tuple(e // 2 for e in result.shape)
    result[position] = not result[position] if dtype == "bool" else result[position] + result.dtype.type(1)
    assert not verify(problem, operands, result, lengths).ok


def test_verify_refuses_an_element_that_was_never_written() -> None:
    problem = parse_problem("ab,bc->ac", "8", "float64")
    operands = [random_operand(np.random.default_rng(2), (8, 8), "float64") for _ in range(2)]
    result = operands[0] @ operands[1]
    result[3, 4] = np.nan
    assert verify(problem, operands, result, [8]).ratio == math.inf


def test_verify_in_chunks_sees_the_last_element(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse_problem("ab,cb->ca", "a=7,b=5,c=11", "float32")
    rng = np.random.default_rng(3)
    operands = [random_operand(rng, s, "float32") for s in problem.shapes]
    result = np.einsum(problem.subscripts, *operands)
    whole = verify(problem, operands, result, [5]).ratio
    monkeypatch.setattr("gett.measure.verify.CHUNK_BYTES", 300)
    assert verify(problem, operands, result, [5]).ratio == pytest.approx(whole)
    result[-1, -1] += 1
    assert not verify(problem, operands, result, [5]).ok


def test_tolerance_follows_the_precision() -> None:
    ieee, tf32 = make_tolerance([100], "float32"), make_tolerance([100], "float32", "tf32")
    assert ieee.product == 2 * 10 * 2.0**-24
    assert tf32.product - ieee.product == pytest.approx(2.0**-9)
    assert make_tolerance([100], "float16").product == 2 * ieee.product  # tensor cores truncate
    assert make_tolerance([100], "bfloat16").product == 2 * ieee.product
    assert make_tolerance([100], "float16").output == 2.0**-11
    assert make_tolerance([100], "bfloat16").output == 2.0**-8
    assert make_tolerance([100], "complex64").product == 2 * ieee.product
    assert make_tolerance([9, 16], "float64").product == pytest.approx(2 * (3 + 4) * 2.0**-53 + 2.0**-53)


# --- measuring


def test_repeats_fill_the_budget_within_limits() -> None:
    assert choose_repeats(0.01, 0.4) == 40
    assert choose_repeats(10.0, 0.4) == 3
    assert choose_repeats(0.0, 0.4) == 200


def test_time_cpu_is_the_time_of_one_call() -> None:
    timing = time_cpu(lambda: time.sleep(0.02), 3)
    assert timing.repeats == 3
    assert 0.02 <= timing.seconds < 0.2


def test_roofline_share_takes_the_longer_of_memory_and_arithmetic() -> None:
    peaks = Peaks(bandwidth=100.0, flops=1000.0)
    assert peaks.share(flops=1000, nbytes=10, seconds=2) == 0.5
    assert peaks.share(flops=10, nbytes=100, seconds=4) == 0.25


def test_measured_peaks_are_a_machine_s() -> None:
    peaks = measure_cpu_peaks("float32")
    assert 1e8 < peaks.bandwidth < 1e13
    assert 1e8 < peaks.flops < 1e15


def test_rivals_agree_with_each_other_and_failures_are_told() -> None:
    problem = parse_problem("ab,cb->ca", "5", "float64")
    operands = [random_operand(np.random.default_rng(4), (5, 5), "float64") for _ in range(2)]
    calls, reasons = find_rivals(problem, operands, np.empty((5, 5)), None, gpu=False)
    assert set(calls) == {"numpy.einsum", "opt_einsum"}
    assert not reasons
    for call in calls.values():
        result = call()
        np.testing.assert_allclose(result, operands[1] @ operands[0].T, rtol=1e-12)
        assert result.flags.c_contiguous
    calls, reasons = find_rivals(problem, operands[:1], np.empty((5, 5)), None, gpu=False)
    assert not calls
    assert set(reasons) == {"numpy.einsum", "opt_einsum"}


def test_a_rival_is_timed_in_a_process_of_its_own() -> None:
    problem = parse_problem("ab,cb->ca", "5", "float64")
    for name in cpu_rivals():
        timing = time_rival(problem, name, None, 3)
        assert 0 < timing.seconds < 5
        assert timing.repeats == 3


def test_a_rival_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = subprocess.Popen

    def start(*args: Any, **options: Any) -> Any:
        started.append(popen(*args, **options))
        return started[-1]

    monkeypatch.setattr("gett.cli.apart.subprocess.Popen", start)
    with pytest.raises(OverTimeError, match=r"numpy.einsum takes over 0.001 s a call"):
        time_rival(parse_problem("ab,bc->ac", "700", "int64"), "numpy.einsum", None, None, limit=0.001)
    assert started[0].poll() is not None


def test_a_rival_that_fails_says_how_and_what_others_print_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse_problem("ab,cb->ca", "5", "float64")
    with pytest.raises(GettError, match="KeyError: 'abacus'"):
        time_rival(problem, "abacus", None, 1)
    monkeypatch.setattr("gett.cli.apart._SERVE", "print('hello', flush=True); import os; os._exit(3)")
    with pytest.raises(GettError, match="ended with code 3"):
        time_rival(problem, "opt_einsum", None, 1)


def test_the_current_directory_s_modules_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "numpy", "gett", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    assert time_rival(parse_problem("ab,cb->ca", "5", "float64"), "numpy.einsum", None, 1).repeats == 1


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


def test_a_rival_on_a_gpu_that_takes_too_long_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def quick() -> None: ...
    def slow() -> None: ...

    timed = []

    def time_gpu(calls: list[Any], repeat: int | None) -> Timing:
        timed.append((calls[0], repeat))
        return Timing(5.5 if calls[0] is slow else 0.1, 1)

    monkeypatch.setattr("benchmarks.rivals.table.math_mode", lambda *_: nullcontext())
    monkeypatch.setattr("gett.cli.run.find_rivals", lambda *_, **__: ({"a": quick, "b": slow}, {"c": "missing"}))
    monkeypatch.setattr("gett.cli.run.time_gpu", time_gpu)
    outcome: Any = SimpleNamespace(problem=None, operands=(), result=np.ones(1))
    place: Any = SimpleNamespace(xp=np)
    assert run._times_on_gpu(outcome, place, None, 7) == ({"a": 0.1, "b": None}, {"c": "missing"})
    assert timed == [(quick, 1), (quick, 7), (slow, 1)]


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
