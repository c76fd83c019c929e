"""Work in processes of their own: the threads of one process search, and enter NVRTC's front end, one at a time.

Owns the processes. They are no pool of a library: those import the program's main module again, or pickle, or cannot
end one process that hangs, and loky is no dependency of gett's. A process starts isolated and without `site`, so that
neither the current directory, nor an environment variable of Python's, nor a `sitecustomize` has a say in it; it runs
the very gett, with the very NumPy, that started it, and talks over a socket of its own. One that cannot be started,
ends early, or does not answer in time is no error: its work is done in this process. Knows neither plans nor caches.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gett.errors import CompileError
from gett.jit.compile import CompileResult, compile_uncached, kernel_headers
from gett.jit.serve import Frame, pack_frame, read_frame, setting, unpack_answer, unpack_error
from gett.jit.toolkit import find_toolkit

WORTH = 8  # kernels from which starting processes pays
LIMIT = 60.0  # seconds that a process may take for a task; the slowest known kernel takes three
_END = 5.0  # seconds to wait for the end of a process that was killed
# Nothing but the standard library is on the path; after it come the packages that are named, each from its place in
# this process and nothing beside it. The `__init__` of gett is not run: it imports far more than is needed.
_START = """
import json, sys, types
from importlib.machinery import PathFinder
places = json.loads(sys.argv[3])
package = sys.modules["gett"] = types.ModuleType("gett")
package.__path__ = places.pop("gett")
class Named:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, places[name]) if name in places else None
sys.meta_path.append(Named)
from gett.jit.serve import serve
serve(int(sys.argv[1]), int(sys.argv[2]))
"""
_Answer = TypeVar("_Answer")


class _Process:
    """One process and this end of its channel.

    Raises:
        OSError, ValueError: It cannot be started.
    """

    def __init__(self) -> None:
        self._told = False
        self._link, theirs = socket.socketpair()
        with theirs:
            self.popen = subprocess.Popen(
                [
                    sys.executable,
                    "-ISB" if sys.dont_write_bytecode else "-IS",
                    "-c",
                    _START,
                    str(theirs.fileno()),
                    str(int(2 * LIMIT) + 1),
                    _places(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C at a terminal is this process's to answer
            )

    def ask(
        self, task: dict[str, Any], shared: dict[str, Any], unpack: Callable[[Frame], _Answer]
    ) -> _Answer | CompileError | None:
        """What it makes of a task; None where it has ended, does not answer in time, or answers nonsense."""
        end = time.monotonic() + LIMIT
        try:
            self._wait_until(end)
            self._link.sendall(pack_frame(task if self._told else task | shared))
            self._told = True
            frame = read_frame(lambda count: self._read(count, end))
            return unpack_error(frame) or unpack(frame)
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
    """Processes that compile; each takes one task at a time. Safe to call from as many threads as there are workers.

    Args:
        count: How many processes.
    """

    def __init__(self, count: int) -> None:
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
        task = {"task": "compile", "text": text, "arch": arch, "options": options}
        answer = self.ask(task, unpack_answer)
        return compile_uncached(text, arch, **options) if answer is None else answer

    def ask(self, task: dict[str, Any], unpack: Callable[[Frame], _Answer]) -> _Answer | None:
        """What a process makes of a task; None where there is none that answers.

        Args:
            task: Fields of a frame; `task` names a row of `gett.jit.serve.TASKS`.
            unpack: Makes the answer of a frame; raises ValueError where it is none.

        Raises:
            CompileError: What the process raised; also where the processes were ended meanwhile.
        """
        process = self._idle.get()
        answer: _Answer | CompileError | None = None
        try:
            if process is not None:
                answer = process.ask(task, setting(find_toolkit(), kernel_headers()), unpack)
        finally:
            if answer is None and process is not None:  # interrupts included: its next answer would be the last one's
                process.end()
                process = None
            self._idle.put(process)
        if isinstance(answer, CompileError):
            raise answer
        if answer is None and self._closed:
            raise CompileError("compiling was given up")
        return answer

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


def _places() -> str:
    """Where a process finds what this one has loaded: the folders of gett's modules, and those that hold the others."""
    own, *others = (sys.modules[name] for name in ("gett", "layouts", "numpy") if name in sys.modules)
    places = {"gett": [*own.__path__]} | {x.__name__: [os.path.dirname(at) for at in x.__path__] for x in others}
    return json.dumps({name: [*map(os.path.abspath, found)] for name, found in places.items()})


def _start() -> _Process | None:
    # An interpreter inside another program has no path of its own, or names that program.
    inside = getattr(sys, "frozen", False) or not os.path.isabs(sys.executable or "")
    if inside or os.name != "posix":  # elsewhere no descriptor can be handed on
        return None
    try:
        return _Process()
    except (OSError, ValueError):
        return None
