"""Compilers in processes of their own: of the threads of one process, NVRTC lets only one at a time into its front end.

Owns the processes and what goes through their pipes. A process that cannot be started or ends early is no error: its
work is done in this one. Knows neither plans nor caches.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from gett.errors import GettError
from gett.jit.compile import CompileResult, compile_uncached

_SERVE = "from gett.jit.workers import serve; serve()"
WORTH = 8  # kernels from which starting processes pays


class Workers:
    """Processes that compile; each takes one kernel at a time. Safe to call from as many threads as there are workers.

    Args:
        count: How many processes.
    """

    def __init__(self, count: int) -> None:
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()
        self._started: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            process = _start()
            if process is not None:
                self._started.append(process)
            self._idle.put(process)

    def compile(self, text: str, arch: str, **options: Any) -> CompileResult:
        """As `gett.jit.compile.compile_uncached`, with its errors."""
        process = self._idle.get()
        answer: Any = None
        try:
            if process is not None:
                answer = _ask(process, (text, arch, options))
                process = process if answer is not None else None
        finally:
            self._idle.put(process)
        if isinstance(answer, GettError):
            raise answer
        found: CompileResult = compile_uncached(text, arch, **options) if answer is None else answer
        return found

    def close(self) -> None:
        """End the processes; what they are compiling is lost."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.communicate()


@contextlib.contextmanager
def workers(count: int) -> Iterator[Workers]:
    """As many compiling processes as are asked for, while a block runs."""
    made = Workers(count)
    try:
        yield made
    finally:
        made.close()


def _start() -> subprocess.Popen[bytes] | None:
    if not sys.executable:  # an interpreter inside another program
        return None
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=settings,
            start_new_session=True,  # Ctrl-C at a terminal is this process's to answer
        )
    except OSError:
        return None


def _ask(process: subprocess.Popen[bytes], task: Any) -> Any:
    """The answer to a task, None where the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(task, process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None


def serve() -> None:
    """What a process does: compile what comes on its input until that ends."""
    tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever else is printed does not come between the answers
    while True:
        try:
            text, arch, options = pickle.load(tasks)
        except EOFError:
            return
        answer: CompileResult | GettError
        try:
            answer = compile_uncached(text, arch, **options)
        except GettError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()
