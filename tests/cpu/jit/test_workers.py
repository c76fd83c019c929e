"""Compilers in processes of their own: the same kernels and the same errors, and no harm where a process is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import venv
from functools import partial
from pathlib import Path

import pytest

from gett.errors import CompileError, SpillError
from gett.jit import workers as module
from gett.jit.compile import compile_uncached
from gett.jit.serve import pack_frame, unpack_answer
from gett.jit.toolkit import find_toolkit
from gett.jit.workers import WORTH, Workers, side_by_side, workers

ROOT = Path(__file__).parents[3]
GOOD = 'extern "C" __global__ void double_it(float* x) { x[threadIdx.x] *= 2; }'
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y) {
    float held[64];
    for (int i = 0; i < 64; ++i) held[i] = x[threadIdx.x * 64 + i];
    for (int r = 0; r < 64; ++r) for (int i = 0; i < 64; ++i) held[i] = held[(i + r) & 63] * held[i] + 1;
    for (int i = 0; i < 64; ++i) y[threadIdx.x * 64 + i] = held[i];
}
"""


def test_a_process_compiles_what_this_one_does():
    with workers(2) as made:
        first = made.compile(GOOD, "sm_90a", name="double_it")
        with pytest.raises(CompileError, match="kernel 'broken' does not compile"):
            made.compile("this is no C++", "sm_90a", name="broken")
        for text in (SPILLS, '#include "gett/core/types.cuh"\n' + SPILLS):  # the second is compiled twice
            with pytest.raises(SpillError, match="kernel 'spills' compiles badly"):
                made.compile(text, "sm_90a", name="spills")
        assert made.compile(SPILLS, "sm_90a", name="spills", allow_spills=True).cubin
        processes = [p.popen for p in made._started]
        assert all(p.poll() is None for p in processes)  # errors end no process
    assert len(processes) == 2
    assert all(p.poll() is not None for p in processes)
    assert first.cubin == compile_uncached(GOOD, "sm_90a", name="double_it").cubin


def test_the_work_of_a_lost_process_is_done_here():
    with workers(1) as made:
        made._started[0].popen.kill()
        made._started[0].popen.wait()
        for _ in range(2):
            assert made.compile(GOOD, "sm_90a").cubin == compile_uncached(GOOD, "sm_90a").cubin


@pytest.mark.parametrize("executable", ["", None, "python", "/no/such/python", "/no\0such/python"])
def test_without_processes_all_is_done_here(monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    with workers(3) as made:
        assert made._started == []
        assert made.compile(GOOD, "sm_90a").cubin


def test_processes_work_at_the_same_time(monkeypatch):
    """Two tasks wait for each other while both are under way."""
    together = threading.Barrier(2, timeout=30)
    ask = module._Process.ask

    def both(*task):
        together.wait()
        return ask(*task)

    monkeypatch.setattr(module._Process, "ask", both)
    with workers(2) as made:
        results = []
        threads = [threading.Thread(target=lambda: results.append(made.compile(GOOD, "sm_90a").cubin)) for _ in "ab"]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(results) == 2


@pytest.mark.parametrize("count", [1, 2, WORTH])
def test_processes_of_the_caller_s_compile_all(count):
    seen = []

    def make(task, compiler):
        seen.append(compiler)
        return task

    with workers(2) as crew:
        assert side_by_side(lambda task: partial(make, task), range(count), lambda text: None, crew=crew) == [
            *range(count)
        ]
        assert {x.__self__ for x in seen} == {crew}
        assert all(p.popen.poll() is None for p in crew._started)  # they are the caller's to end


@pytest.mark.parametrize(("count", "expected"), [(WORTH - 1, False), (WORTH, True)])
def test_many_tasks_get_processes(monkeypatch, count, expected):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    seen = []

    def make(task, compiler):
        seen.append(compiler is not None and isinstance(compiler.__self__, Workers))
        return task

    done = []
    assert side_by_side(lambda task: partial(make, task), range(count), done.append) == [*range(count)]
    assert seen == [expected] * count
    assert len(done) == count


#: Left in the current directory, each says in a file of its process that it ran.
ATTACKS = (
    *("gett/__init__.py", "gett/jit/__init__.py", "gett/jit/serve.py", "layouts/__init__.py", "numpy.py", "pickle.py"),
    *("json.py", "struct.py", "signal.py", "ctypes.py", "types.py", "sitecustomize.py", "usercustomize.py"),
)
ATTACK = """
import os, sys
open(os.path.join({folder!r}, f"ran-{{os.getpid()}}-" + {name!r}.replace("/", "-")), "w").close()
print("no answer")
"""
# Everything that this process needs is loaded before it goes where the files lie: it may load what it wants.
PARENT = """
import os, sys
import {imports}
from gett.jit.compile import compile_uncached, kernel_headers
from gett.jit.workers import workers
compile_uncached({good!r}, "sm_90a")
kernel_headers()
{before}
os.chdir({folder!r})
with workers(1) as made:
    process = made._started[0]
    here = os.getpid()
    assert made.compile({good!r}, "sm_90a").cubin
    assert made.compile({good!r}, "sm_90a").cubin
    assert process.popen.poll() is None  # it was the process that compiled
print("done", here)
"""


@pytest.fixture
def trap(tmp_path):
    for name in ATTACKS:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ATTACK.format(folder=str(tmp_path), name=name))
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "imports", "before"),
    [
        ((), "gett", "sys.path.insert(0, '')"),
        pytest.param(("-I",), "gett", "", marks=pytest.mark.slow),
        pytest.param((), "gett", "sys.path[:0] = [os.curdir, b'bytes', None, 3, object()]", marks=pytest.mark.slow),
        pytest.param((), "gett.__main__", "sys.path.insert(0, '')", marks=pytest.mark.slow),
    ],
    ids=["-c", "-I", "no strings on the path", "-m gett"],
)
def test_a_process_runs_nothing_of_the_current_directory(trap, tmp_path, flags, imports, before):
    """Nor what Python's variables name, or what `site` would load."""
    script = PARENT.format(good=GOOD, folder=str(trap), imports=imports, before=before)
    python = [sys.executable, *flags, "-c", script]
    variables = os.environ | {"PYTHONSAFEPATH": "", "PYTHONPATH": ""}
    if not flags:  # whatever this process makes of them when it starts
        variables |= {"PYTHONPATH": str(trap / "elsewhere"), "PYTHONSTARTUP": str(trap / "pickle.py")}
        (trap / "elsewhere").mkdir()
        text = ATTACK.format(folder=str(trap), name="site")
        (trap / "elsewhere" / "sitecustomize.py").write_text(text)
    run = subprocess.run(python, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    word, number = run.stdout.split()[-2:]
    assert word == "done"
    assert [p.name for p in trap.glob("ran-*") if not p.name.startswith(f"ran-{number}-")] == []


def test_the_files_of_the_trap_would_run(trap):
    """What the test above rests on: a process that is not isolated runs them."""
    subprocess.run([sys.executable, "-c", "import pickle"], cwd=trap, capture_output=True, timeout=60)
    assert list(trap.glob("ran-*-pickle.py"))


def test_a_sitecustomize_has_no_say(trap, tmp_path, monkeypatch):
    """Of an environment that has one, and has no gett: a process finds this one's by its place."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [str(python), "-c", "import site; print(site.getsitepackages()[0])"]
    packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    for name in ("sitecustomize", "numpy"):
        (packages / f"{name}.py").write_text(ATTACK.format(folder=str(trap), name=name))
    (packages / "more.pth").write_text("import sitecustomize\n")
    assert "no answer" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    before = set(trap.glob("ran-*"))
    monkeypatch.setattr(sys, "executable", str(python))
    with workers(1) as made:
        assert made.compile(GOOD, "sm_90a").cubin
        assert made._started[0].popen.poll() is None
    assert set(trap.glob("ran-*")) == before


@pytest.mark.slow  # three commands that compile ten kernels each
@pytest.mark.parametrize("command", ["console script", "-m gett", "-I -m gett"])
def test_a_command_runs_nothing_of_the_current_directory(trap, command):
    script = Path(sys.executable).with_name("gett")
    start = {
        "console script": [str(script)],
        "-m gett": [sys.executable, "-P", "-m", "gett"],
        "-I -m gett": [sys.executable, "-I", "-m", "gett"],
    }[command]
    if not Path(start[0]).exists():
        pytest.skip("gett's console script is not installed")
    labels = "abcdefghijk"
    network = ",".join(f"{a}{b}" for a, b in itertools.pairwise(labels)) + "->ak"
    extents = ",".join(f"{x}={16 * (i + 2)}" for i, x in enumerate(labels))
    settings = os.environ | {"GETT_CACHE_DISABLE": "1"}
    line = [*start, "explain", network, "--extents", extents, "--arch", "sm_90a"]
    run = subprocess.run(line, cwd=trap, env=settings, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "no answer" not in run.stdout
    assert list(trap.glob("ran-*")) == []


def test_a_process_without_an_answer_is_ended_and_its_work_done_here(monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 0.5)
    with workers(1) as made:
        hung = made._started[0].popen
        hung.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        assert made.compile(GOOD, "sm_90a").cubin
        assert 0.4 < time.monotonic() - began < 10
        assert hung.poll() is not None
        assert made.compile(GOOD, "sm_90a").cubin  # and no other waits for it


def read_all(link):
    """Whatever is sent, however much: who sends would wait for it otherwise."""
    with contextlib.suppress(OSError):
        while link.recv(1 << 20):
            pass


@pytest.mark.parametrize(
    "answer",
    [
        b"x" * 16 + b"no length",
        (3).to_bytes(8, "little") + bytes(8) + b"{no",
        (2).to_bytes(8, "little") + bytes(8) + b"[]",
        pack_frame({}),
        pack_frame({"log": 3}, b"no log"),
        pack_frame({"error": "annotations", "message": ""}),
        pack_frame({"error": "Exception", "message": ""}),
        pack_frame({"error": "MissingPackageError", "message": ""}),
        b"",
    ],
)
def test_nonsense_is_no_answer(answer):
    with workers(1) as made:
        process = made._started[0]
        process.popen.kill()
        process.popen.wait()
        process._link, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)
            threading.Thread(target=read_all, args=[theirs], daemon=True).start()
            assert made.compile(GOOD, "sm_90a").cubin == compile_uncached(GOOD, "sm_90a").cubin


def test_a_compiler_that_only_a_process_lacks_is_used_here(monkeypatch):
    lost = dataclasses.replace(find_toolkit(), library="/no/such/library")
    monkeypatch.setattr(module, "find_toolkit", lambda: lost)
    with workers(1) as made:
        process = made._started[0]
        assert made.compile(GOOD, "sm_90a").cubin
        assert process.popen.poll() is not None


def test_an_error_keeps_its_kind_and_its_words():
    for kind in (SpillError, CompileError):
        answer = unpack_answer((json.loads(json.dumps({"error": kind.__name__, "message": "a\x1bb"})), b""))
        assert type(answer) is kind
        assert answer.args == ("a\x1bb",)


def test_processes_end_with_the_one_that_started_them():
    """Killed, it can close nothing."""
    script = (
        "import os, sys, time\nfrom gett.jit.workers import Workers\nmade = Workers(2)\n"
        "print(*(p.popen.pid for p in made._started), flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        numbers = [int(x) for x in parent.stdout.readline().split()]
        parent.kill()
    assert len(numbers) == 2
    end = time.monotonic() + 20
    while any(_lives(x) for x in numbers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_lives(x) for x in numbers)


def test_a_process_that_is_not_asked_ends_by_itself(monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 0.1)  # it waits for twice that, in whole seconds
    with workers(1) as made:
        assert made._started[0].popen.wait(20) == -signal.SIGALRM


def test_what_waits_for_ended_processes_is_given_up(monkeypatch):
    """Ctrl-C need not wait for them."""
    with workers(1) as made:
        made._started[0].popen.send_signal(signal.SIGSTOP)
        errors = []

        def task():
            try:
                made.compile(GOOD, "sm_90a", name="double_it")
            except CompileError as error:
                errors.append(str(error))

        thread = threading.Thread(target=task)
        thread.start()
        time.sleep(0.2)
        made.close()
        thread.join(20)
        assert errors == ["compiling kernel 'double_it' was given up"]


def test_an_interrupt_does_not_wait_for_processes(monkeypatch):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    begun = threading.Event()

    def make(task, compiler):
        if task:
            for process in compiler.__self__._started:
                process.popen.send_signal(signal.SIGSTOP)
            begun.set()
            compiler(GOOD, "sm_90a")
        else:
            assert begun.wait(10)

    def step(_):
        time.sleep(0.2)
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(lambda task: partial(make, task), range(WORTH), step)
    assert time.monotonic() - began < module.LIMIT / 4


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{number}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")  # dead, but not reaped
