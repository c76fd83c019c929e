"""A rival on the CPU in a process of its own, which is ended when its time is over: no call in this process can be.

Owns the process and what it says. It makes the same operands from the same seed, so that no data travel.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

import gett
from gett.cli.execute import random_operands
from gett.cli.measure import Timing, choose_repeats, time_cpu
from gett.cli.problem import Problem
from gett.errors import GettError

LIMIT_S = 5.0  # for the calls of one rival together
START_S = 60.0  # for starting Python and making the operands
_SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from gett.cli.apart import serve; serve(sys.argv[2])"
_MARK = "gett rival: "


class OverTimeError(GettError, TimeoutError):
    """One call of a rival takes longer than its limit."""


def time_rival(
    problem: Problem, name: str, precision: str | None, repeat: int | None, *, seed: int = 0, limit: float = LIMIT_S
) -> Timing:
    """The time of a rival on the CPU.

    Args:
        problem: What to compute.
        name: The rival's, of `gett.cli.rivals`.
        precision: As given to gett.
        repeat: Most timed calls, None to choose by the time of one.
        seed: Of the operands.
        limit: Seconds that all of its calls may take. What needs them for one call is called once.

    Raises:
        OverTimeError: The first call did not return in time.
        GettError: The rival fails; the text says how.
    """
    asked = {
        "inputs": problem.inputs, "output": problem.output, "extents": problem.extents, "dtype": problem.dtype,
        "name": name, "precision": precision, "repeat": repeat, "seed": seed, "limit": limit,
    }  # fmt: skip
    root = str(Path(gett.__file__).parents[1])
    # -P keeps the current directory off the path, whatever lies in it.
    command = [sys.executable, "-P", "-c", _SERVE, root, json.dumps(asked)]
    with _ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)) as process:
        assert process.stdout is not None
        said = _lines(process.stdout)
        _next(said, process, START_S, "start")
        try:
            first = _next(said, process, limit, "call")
        except queue.Empty:
            raise OverTimeError(f"{name} takes over {limit:g} s a call") from None
        try:
            found = _next(said, process, 2 * limit + 1, "times")
        except queue.Empty:  # later calls were slower by far; the first stands
            found = [first, 1]
    return Timing(*found)


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _lines(stream: IO[str]) -> queue.SimpleQueue[str | None]:
    """The lines of a stream as they come, None at its end."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _next(said: queue.SimpleQueue[str | None], process: subprocess.Popen[str], seconds: float, what: str) -> Any:
    """What the process says next; lines that are not its own, which a `sitecustomize` may print, are skipped.

    Raises:
        queue.Empty: It says nothing in time.
        GettError: It ended, or says that the rival fails.
    """
    end = time.monotonic() + seconds
    while True:
        line = said.get(timeout=max(0.0, end - time.monotonic()))
        if line is None:
            raise GettError(f"its process ended with code {process.wait()}")
        if line.startswith(_MARK):
            kind, value = json.loads(line.removeprefix(_MARK))
            if kind != what:
                raise GettError(str(value))
            return value


def serve(text: str) -> None:
    """What the process does: prepare the rival, call it once, then as often as fits; each is a line on stdout."""

    def say(kind: str, value: Any) -> None:
        print(_MARK + json.dumps([kind, value]), flush=True)

    from gett.cli.rivals import prepare_cpu_rival  # late: whoever only waits needs no rivals

    asked = json.loads(text)
    problem = Problem(tuple(asked["inputs"]), asked["output"], asked["extents"], asked["dtype"])
    try:
        operands = random_operands(problem, asked["seed"])
        out = np.empty(problem.shape(problem.output), problem.dtype)
        call = prepare_cpu_rival(asked["name"], problem, operands, out, asked["precision"])
        say("start", None)
        once = _seconds(call)
        say("call", once)
        fitting = int(asked["limit"] / once) - 1 if once else choose_repeats(once)
        repeats = min(asked["repeat"] or choose_repeats(once), max(0, fitting - 1))  # one more call warms up
        timing = time_cpu(call, repeats) if repeats else Timing(once, 1)
        say("times", [timing.seconds, timing.repeats])
    # A rival may fail in ways of its own (its library); the comparison goes on without it.
    except Exception as error:
        say("error", f"{type(error).__name__}: {error}".splitlines()[0])


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
