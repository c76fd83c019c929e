"""Compilers in processes of their own: of the threads of one process, NVRTC lets only one at a time into its front end.

Owns the processes, and how many tasks are done side by side. The processes are no pool of a library. Such pools import
the program's main module again, or pickle, or cannot end one process that hangs; loky is no dependency of gett's. A
process starts isolated and without `site`. So neither the current directory, nor an environment variable of Python's,
nor a `sitecustomize` changes it. It runs the very gett that started it and talks over a socket of its own. One that
cannot be started, ends early, or does not answer in time is no error: its work is done in this process. Knows neither
plans nor caches.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from gett.console.progress import Step
from gett.errors import CompileError
from gett.jit.compile import Compiler, CompileResult, compile_uncached, kernel_headers
from gett.jit.serve import pack_frame, read_frame, setting, unpack_answer
from gett.jit.toolkit import find_toolkit

WORTH = 8  # kernels from which starting processes pays
# Seconds between turns of threads: a thread that sends a text takes many turns, and the searching thread one.
TURN = 0.0005
LIMIT = 60.0  # seconds that a process may take for a kernel; the slowest known one takes three
_END = 5.0  # seconds to wait for the end of a process that was killed
# The package is this process's, by its location. Its `__init__` is not run: it imports NumPy, which takes longer than
# all that a process needs. Nothing but the standard library is on the path.
_START = """
import sys, types
package = sys.modules["gett"] = types.ModuleType("gett")
package.__path__ = sys.argv[3:]
from gett.jit.serve import serve
serve(int(sys.argv[1]), int(sys.argv[2]))
"""
_Task = TypeVar("_Task")
_Made = TypeVar("_Made")


class _Process:
    """One process and this end of its channel.

    Raises:
        OSError, ValueError: It cannot be started.
    """

    def __init__(self) -> None:
        self._told = False
        self._link, theirs = socket.socketpair()
        with theirs:
            package = map(os.path.abspath, sys.modules[__name__.partition(".")[0]].__path__)
            self.popen = subprocess.Popen(
                [
                    sys.executable,
                    "-ISB" if sys.dont_write_bytecode else "-IS",
                    "-c",
                    _START,
                    str(theirs.fileno()),
                    str(int(2 * LIMIT) + 1),
                    *package,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C at a terminal is this process's to answer
            )

    def ask(self, task: dict[str, Any], shared: dict[str, Any]) -> CompileResult | CompileError | None:
        """What it makes of a kernel; None where it has ended, does not answer in time, or answers nonsense."""
        end = time.monotonic() + LIMIT
        try:
            self._wait_until(end)
            self._link.sendall(pack_frame(task if self._told else task | shared))
            self._told = True
            return unpack_answer(read_frame(lambda count: self._read(count, end)))
        except (OSError, EOFError, ValueError, RecursionError):  # TimeoutError is an OSError
            return None

    def end(self) -> None:
        """What it is compiling is lost."""
        self.popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_END)
        self._link.close()

    def _read(self, count: int, end: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._wait_until(end)
            part = self._link.recv(min(count - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _wait_until(self, end: float) -> None:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._link.settimeout(left)


class Workers:
    """Processes that compile; each takes one kernel at a time. Safe to call from as many threads as there are workers.

    Attributes:
        count: How many processes.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        self._started: list[_Process] = []
        self._closed = False
        for _ in range(count):
            process = _start()
            if process is not None:
                self._started.append(process)
            self._idle.put(process)

    def compile(self, text: str, arch: str, **options: Any) -> CompileResult:
        """As `gett.jit.compile.compile_uncached`, with its errors.

        Raises:
            CompileError: Also where the processes were ended meanwhile.
        """
        process = self._idle.get()
        answer: CompileResult | CompileError | None = None
        try:
            if process is not None:
                task = {"text": text, "arch": arch, "options": options}
                answer = process.ask(task, setting(find_toolkit(), kernel_headers()))
        finally:
            if answer is None and process is not None:  # interrupts included: its next answer would be the last one's
                process.end()
                process = None
            self._idle.put(process)
        if isinstance(answer, CompileError):
            raise answer
        if answer is None and self._closed:
            raise CompileError(f"compiling kernel {options.get('name', 'kernel')!r} was given up")
        return compile_uncached(text, arch, **options) if answer is None else answer

    def close(self) -> None:
        """End the processes; what they are compiling is lost."""
        self._closed = True
        for process in self._started:
            process.popen.kill()
        for process in self._started:
            process.end()


@contextlib.contextmanager
def workers(count: int) -> Iterator[Workers]:
    """As many compiling processes as are asked for, while a block runs."""
    made = Workers(count)
    try:
        yield made
    finally:
        made.close()


def _start() -> _Process | None:
    # An interpreter inside another program has no path of its own, or names that program.
    inside = getattr(sys, "frozen", False) or not os.path.isabs(sys.executable or "")
    if inside or os.name != "posix":  # elsewhere no descriptor can be handed on
        return None
    try:
        return _Process()
    except (OSError, ValueError):
        return None


def side_by_side(
    begin: Callable[[_Task], Callable[[Compiler | None], _Made]],
    tasks: Sequence[_Task],
    step: Step,
    size: Callable[[_Task], float] | None = None,
    most: int | None = None,
    crew: Workers | None = None,
) -> list[_Made]:
    """What is made of each task, in their order, on all processors.

    The first error is raised; what has not begun by then is left.

    Args:
        begin: Does what takes Python's time, in this thread: threads would do it one at a time, and each would wait for
            the others. What it gives back compiles the rest in a thread of its own, by the compiler that it is given;
            None stands for this process.
        tasks: Its arguments.
        step: Told of each that is done, in the order in which they are.
        size: Of a task; the largest begin, so that none is left for the end. Default: the first begin.
        most: Compilers at one time; default: one for each processor.
        crew: Processes of the caller's, which compile all: then no kernel is compiled in this process if they can.
    """
    if len(tasks) == 1 and crew is None:
        return [begin(tasks[0])(None)]
    most = most or (os.cpu_count() or 1 if crew is None else crew.count)
    count = max(1, min(len(tasks), most))
    order = sorted(range(len(tasks)), key=lambda i: 0.0 if size is None else -size(tasks[i]))
    pool = ThreadPoolExecutor(count)
    turn = sys.getswitchinterval()
    own = workers(count) if crew is None and len(tasks) >= WORTH and count > 1 else contextlib.nullcontext(crew)
    with own as processes:
        if processes is not None:
            find_toolkit()  # and the headers are read before there are threads to wait for
            kernel_headers()
        try:
            sys.setswitchinterval(min(turn, TURN))
            under_way: dict[Future[_Made], int] = {}
            found: dict[int, _Made] = {}

            def take(future: Future[_Made]) -> None:
                found[under_way.pop(future)] = future.result()
                step("")

            for i in order:
                make = begin(tasks[i])
                under_way[pool.submit(make, None if processes is None else processes.compile)] = i
                for future in [x for x in under_way if x.done()]:
                    take(future)
            for future in as_completed([*under_way]):
                take(future)
        except BaseException:
            if processes is not None:
                processes.close()  # an interrupt does not wait for what they compile
            raise
        finally:
            sys.setswitchinterval(max(turn, sys.getswitchinterval()))
            pool.shutdown(cancel_futures=True)
    return [found[i] for i in range(len(tasks))]
