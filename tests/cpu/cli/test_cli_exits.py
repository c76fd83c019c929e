"""How commands end: one line and an exit code for what users and machines cause, and text that steers no terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import gett
from benchmarks import records
from gett.api.autotune import TuneResult
from gett.cli import main
from gett.console.formatting import format_bytes, format_quantity, format_seconds, format_table, printable
from gett.errors import GettError, OptionError, OutOfMemoryError
from tests.sampling import slow_but

ROOT = Path(__file__).parents[3]
EXPLAIN = ["-m", "gett", "explain", "ab,bc->ac", "--extents", "4", "--arch", "cpu"]
RUN = ["-m", "gett", "run", "ab,bc->ac", "--extents", "4", "--device", "cpu", "--repeat", "1"]
LABELS = "".join(c for c in map(chr, range(0x100, 0x200)) if c.isalpha())
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")


def shell(arguments: list[str], tail: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, its streams as the shell's `tail` says."""
    command = [sys.executable, *arguments]
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | variables
    return subprocess.run(
        ["bash", "-c", f'"$@" {tail}', "-", *command],
        cwd=ROOT, env=settings, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that ends in code 2, in one line."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gett: ")
    assert captured.err.count("\n") == 1
    return captured.err


# --- labels and extents


@pytest.mark.slow
@pytest.mark.parametrize(
    "subscripts",
    ["αb,bc->αc", ",".join(map("".join, pairwise(LABELS[:56]))) + "->"],
    ids=["greek", "55 operands"],
)
def test_labels_that_a_rival_lacks_are_verified_all_the_same(
    subscripts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", subscripts, "--extents", "2", "--device", "cpu", "--repeat", "1"]) == 0
    out = capsys.readouterr().out
    assert "right: max error / bound" in out
    assert "no numpy.einsum: ValueError" in out


@pytest.mark.parametrize(
    ("subscripts", "extents", "words"),
    [
        (LABELS[:66] + "->", "1", "no array for"),
        (f"{LABELS[:60]},{LABELS[:60]}->{LABELS[:60]}", "1", "cannot be verified"),
        ("ab,bc->ac", "10000000", "PiB, this machine has"),
        ("ab,bc->ac", "1" + "0" * 25, "more than 2**63 - 1"),
        ("ab,bc->ac", "9" * 5000, "more than 2**63 - 1"),
        ("ab,bc->ac", "5000000000", "the tensors have 3e+20 bytes"),
    ],
    ids=["axes", "reference", "memory", "long", "digits", "bytes"],
)
def test_what_no_array_or_memory_holds_is_one_line(
    subscripts: str, extents: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(["run", subscripts, "--extents", extents, "--device", "cpu", "--repeat", "1"], capsys)


def test_memory_that_runs_out_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("gett.cli.execute.verify", fail)
    error = refused(["run", "ab->a", "--extents", "2", "--device", "cpu"], capsys)
    assert error == "gett: there is not enough memory: Unable to allocate 9 GiB\n"


@pytest.mark.parametrize(
    "limit", ["1e400G", "1" + "0" * 400, "9" * 5000, "9" * 30 + "G", "9223372036854775808", "8388608T"]
)
def test_absurd_cache_limits_are_one_line(
    limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GETT_CACHE_LIMIT", limit)
    error = refused(["cache"], capsys)
    assert "GETT_CACHE_LIMIT" in error
    assert len(error) < 200


# --- output


def test_labels_beyond_ascii_are_escaped_where_the_output_is_ascii() -> None:
    done = shell([*EXPLAIN[:3], "αb,bc->αc", *EXPLAIN[4:]], PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(r"\u03b1b,bc->\u03b1c on the CPU, ")
    assert not done.stderr


WRITING = (EXPLAIN, RUN, ["-m", "gett", "--help"], ["-m", "gett", "cache"])


@needs_full
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    slow_but([(x, unbuffered) for x in WRITING for unbuffered in ("", "1")], [(WRITING[3], "")]),
)
def test_a_full_output_is_one_line(arguments: list[str], unbuffered: str) -> None:
    done = shell(arguments, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    said = [line for line in done.stderr.splitlines() if not line.startswith("timing ")]
    assert (done.returncode, said) == (2, ["gett: [Errno 28] No space left on device"])


@needs_full
@pytest.mark.parametrize("tail", slow_but(["2>/dev/full", "2>&-"], ["2>&-"]))
def test_a_full_or_closed_stderr_changes_no_code(tail: str) -> None:
    assert shell([*EXPLAIN[:4], "--extents", "b=4", "--arch", "cpu"], tail).returncode == 2
    assert shell(EXPLAIN, tail).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    slow_but([(EXPLAIN,), (WRITING[3],), (["-m", "benchmarks", "overhead", "--no-first"],)], [(EXPLAIN,)]),
)
def test_a_closed_output_is_one_line(arguments: list[str]) -> None:
    done = shell(arguments, ">&-")
    assert done.returncode == 2
    assert done.stderr.endswith("the output is closed\n")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough_ends_the_command_in_silence() -> None:
    done = shell(EXPLAIN, "| true; exit ${PIPESTATUS[0]}")
    assert done.returncode in (0, 141)  # 0 where all was written before the reader left
    assert done.stderr == ""


# --- Ctrl-C


def run_for(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait until a process has had so much time of the processors, however busy these are."""
    stat, end = Path(f"/proc/{process.pid}/stat"), time.monotonic() + 60
    if not stat.exists():  # a system without such files
        time.sleep(seconds)
        return
    while time.monotonic() < end:
        ticks = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
        if ticks >= seconds * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{seconds} s of the processors in a minute")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "gett", "run", "ab,bc->ac", "--extents", "64", "--device", "cpu", "--repeat", "100000000"],
        pytest.param(["-m", "benchmarks", "tccg", "--cpu", "--json", "JSON"], marks=pytest.mark.slow),
    ],
    ids=["run", "tccg"],
)
def test_an_interrupt_is_one_line_and_130(arguments: list[str], tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    command = [sys.executable, *(str(path) if a == "JSON" else a for a in arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run_for(process, 2.5)  # Python itself answers while it still imports
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr.rstrip().endswith("interrupted")
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


AHEAD = """
import sys
from benchmarks.ahead import compile_ahead
from benchmarks.cases import load_cases
from gett.cli.exits import exit_code
from tests.cpu.tuning import FACTS
if __name__ == "__main__":
    print("ready", flush=True)
    sys.exit(exit_code("benchmarks", lambda: compile_ahead(load_cases(), "float16", None, FACTS.planning)))
"""


@pytest.mark.slow
def test_an_interrupt_ends_compiling_ahead_in_all_processes(tmp_path: Path) -> None:
    script = tmp_path / "ahead.py"
    script.write_text(AHEAD)
    settings = os.environ | {"GETT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)  # the children still import, or compile
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does
    _, stderr = process.communicate(timeout=20)  # the kernels take longer
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


def test_a_file_of_figures_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sub" / "figures.json"
    records.write_text("[1]", path)

    def interrupted(self: Path, text: str, **options: object) -> None:
        with open(self, "w") as file:
            file.write(text[: len(text) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        records.write_json([], path)
    assert path.read_text() == "[1]"
    assert [p.name for p in path.parent.iterdir()] == ["figures.json"]


# --- what is printed of labels


def test_texts_hold_no_character_that_steers_a_terminal() -> None:
    assert printable("αb, ç\n\tline") == "αb, ç\n\tline"
    assert printable("\x1b[31m\x9b\r\udc80\u202e") == r"\x1b[31m\x9b\r\udc80\u202e"
    assert format_table(["\x1b"], [["\x07"]])[2] == r"\x07"
    for kind in (GettError, OptionError, OutOfMemoryError):
        assert str(kind("mode \x1b[2J")) == r"mode \x1b[2J"


def test_plans_of_such_labels_are_printed_escaped() -> None:
    pair = ((2, 3), "float32")
    plan = gett.plan(pair, ["\x1b", "\x9b"], pair, ["\x1b", "\u202e"], ["\x9b", "\u202e"])
    for text in (repr(plan), str(plan), plan.explain(detail=True)):
        assert r"\x1b" in text
        assert all(c.isprintable() or c == "\n" for c in text)
    assert "\x1b" in plan.subscripts  # data, as it was given
    tuned = TuneResult(plan.subscripts, "cpu", tuple(s.name for s in plan.steps), (), ("one BLAS call",))
    assert r"\x1b" in repr(tuned)
    assert all(c.isprintable() or c == "\n" for c in repr(tuned))


@pytest.mark.parametrize(
    "arguments", [["explain", "a\x1b[2J"], ["cache", "\x1b[2J"], ["explain", "a", "--extents", "2", "\x1b"]]
)
def test_arguments_are_repeated_escaped(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "\x1b" not in capsys.readouterr().err
    assert main(["explain", "\x1b,b->b", "--extents", "2"]) == 2
    assert "\x1b" not in capsys.readouterr().err


# --- options of explain


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"gett {gett.__version__}\n"


def explained(capsys: pytest.CaptureFixture[str], subscripts: str, *options: str) -> str:
    assert main(["explain", subscripts, "--extents", "64", "--arch", "sm_90a", *options]) == 0
    return capsys.readouterr().out


def test_explain_takes_bfloat16_and_names_that_are_unknown_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "(H200 SXM), bfloat16" in explained(capsys, "ab,bc->ca", "--dtype", "bfloat16")
    command = ["explain", "ab,bc,cd->da", "--extents", "64"]
    assert main([*command, "--dtype", "bfloat16", "--arch", "cpu"]) == 0  # which computes it in float32
    assert "on the CPU, float32" in capsys.readouterr().out
    assert "'fastest' is no path algorithm" in refused([*command, "--optimize", "fastest"], capsys)
    assert "order='Q'" in refused([*command, "--order", "Q"], capsys)
    assert "bfloat16" in refused(["run", *command[1:], "--dtype", "bfloat16", "--device", "cpu"], capsys)


@pytest.mark.slow
def test_explain_takes_a_path_algorithm_and_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    chain = ("ab,bc,cd,de->ae", "--json")
    assert json.loads(explained(capsys, *chain, "--optimize", "none"))["path"] == [[0, 1], [0, 2], [0, 1]]
    assert json.loads(explained(capsys, *chain, "--optimize", "greedy"))["path"] != [[0, 1], [0, 2], [0, 1]]
    strides = [
        json.loads(explained(capsys, "ab,bc->ac", "--json", "--order", order))["steps"][0]["groups"]["n"][0]["strides"]
        for order in "CF"
    ]
    assert [s["d"] for s in strides] == [4, 4]  # the roles are such that D's unit stride is in N
    assert strides[0] != strides[1]


def test_json_is_one_line_that_says_what_the_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, "αij,jk,kl->lαi", "--json", "--dtype", "float16")
    assert text.count("\n") == 1
    assert text.isascii()
    found = json.loads(text)
    pairs = [((64,) * 3, "float16"), ((64, 64), "float16"), ((64, 64), "float16")]
    plan = gett.plan("αij,jk,kl->lαi", *pairs, arch="sm_90a")
    for name in ("subscripts", "arch", "flops", "bytes", "intermediate_bytes", "workspace_bytes"):
        assert found[name] == getattr(plan, name)
    assert found["estimate_us"] == sum(s.schedule.forecast.us for s in plan.steps if s.schedule is not None) > 0
    assert found["path"] == [list(group) for group in plan.path_info.path]
    assert len(found["steps"]) == len(plan.steps) == 2
    for got, step in zip(found["steps"], plan.steps, strict=True):
        assert (got["flops"], got["bytes"], got["class"]) == (step.gemm.flops, step.gemm.bytes, step.gemm.shape_class())
        assert step.schedule is not None
        assert got["schedule"]["mainloop"]["type"] == type(step.schedule.mainloop).__name__
        assert tuple(got["schedule"]["tiling"]["shape"]) == step.schedule.tiling.shape
        for group in "lmnk":
            modes = getattr(step.gemm, group)
            assert [m["extent"] for m in got["groups"][group]] == [m.extent for m in modes]
            assert [m["strides"]["d"] for m in got["groups"][group]] == [m.strides[2] for m in modes]


def test_json_of_a_plan_for_numpy_has_a_route_and_no_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ab,bc->ac", "--extents", "0", "--json", "--arch", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == []
    assert main(["explain", "ab,bc->ac", "--extents", "5", "--json", "--arch", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["estimate_us"] is found["steps"][0]["schedule"] is None
    assert found["path"] == [[0, 1]]
    assert "BLAS" in found["steps"][0]["route"]


# --- units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.49e-3, "9.49 ms"),
        (12.5e-6, "12.5 us"),
        (0, "0 s"),
        (999.6, "999.6 s"),
        (7200, "2 hours"),
        (3e5, "3.47 days"),
        (1e10, "317 years"),
    ],
)
def test_times_are_in_units_of_their_size(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_large_figures_stay_readable() -> None:
    assert format_quantity(8**400) == "1.72e+361 "
    assert format_quantity(2.5e18) == "2.5 E"
    assert format_bytes(3 << 51) == "6 PiB"


@pytest.mark.slow
def test_a_permutation_has_no_flop(capsys: pytest.CaptureFixture[str]) -> None:
    plan = gett.plan("ab->ba", ((300, 40), "float32"))
    assert plan.flops == 0
    assert gett.plan("ab->b", ((300, 40), "float32")).flops == 12000
    assert "96 kB, no arithmetic" in plan.explain(detail=True)
    assert main(["run", "ab->ba", "--extents", "4", "--device", "cpu", "--repeat", "1"]) == 0
    report = capsys.readouterr().out.partition("roofline")
    assert "FLOP" not in report[0]
    assert "FLOP" not in report[2].partition("measured just now")[2]


def test_estimates_above_a_millisecond_are_not_in_microseconds() -> None:
    plan = gett.plan("ab,bc->ac", ((8192, 8192), "float32"), ((8192, 8192), "float32"), arch="sm_80")
    text = plan.explain(detail=True)
    assert " ms" in text
    assert "e+0" not in text
