"""Compiling that nobody waits for: in a thread, by processes, until it is done or the interpreter ends.

Owns that all such work together leaves processors to the program, and never keeps a program from its end. What is under
way then is lost: files of the cache appear whole or not at all. Knows neither plans nor caches.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gett.errors import CompileError
from gett.jit.workers import Workers

_turn = threading.Lock()  # of the work that waits for compilers: what begins later comes later
_room = threading.Condition()  # of `_taken`
_taken = 0  # compilers of the work that is done
_lock = threading.Lock()  # of what follows
_crews: set[Workers] = set()
_ended = False
_watched = False


class Background:
    """Work in a thread of its own.

    Attributes:
        done: Whether the work is done, without an error.
        error: What it raised, if it did.

    Args:
        work: What is done; the processes that it is given compile for it.
        most: Compilers that are of use to it.
        before: Called ahead of it, in that thread.
        failed: Told of an error of the work, in that thread; not of the interpreter's end.
    """

    def __init__(
        self,
        work: Callable[[Workers], None],
        most: int,
        before: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Begin."""
        self.error: Exception | None = None
        self.done = False
        self._work, self._before, self._failed = work, before, failed
        self._most = max(1, min(most, crew_size()))
        _watch()
        self._thread = threading.Thread(target=self._run, name="gett kernels", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return once the work is done.

        Raises:
            Exception: What the work raised.
        """
        self._thread.join()
        if not self.done:
            raise self.error or CompileError("the thread that compiles is another process's")

    def _run(self) -> None:
        try:
            with _compilers(self._most):
                self._before()
                crew = _begin(self._most)
                try:
                    self._work(crew)
                finally:
                    with _lock:
                        _crews.discard(crew)
                    crew.close()
            self.done = True
        except Exception as error:  # whatever it is, nobody is there to catch it
            self.error = error
            if not _ended:
                self._failed(error)


def crew_size() -> int:
    """Compilers at one time: three of four processors, so that the program has some for itself."""
    return max(1, 3 * (os.cpu_count() or 1) // 4)


@contextmanager
def _compilers(count: int) -> Iterator[None]:
    """Within it, work may have so many compilers; it begins once there are as many that no other work has."""
    global _taken
    with _turn, _room:
        _room.wait_for(lambda: not _taken or _taken + count <= crew_size())
        _taken += count
    try:
        yield
    finally:
        with _room:
            _taken -= count
            _room.notify_all()


def _begin(count: int) -> Workers:
    with _lock:
        if _ended:
            raise CompileError("the interpreter ends")
        crew = Workers(count)
        _crews.add(crew)
        return crew


def _watch() -> None:
    """Have the processes ended before the interpreter waits for the threads that wait for them."""
    global _watched
    with _lock:
        if not _watched:
            # Threads of pools are waited for ahead of what `atexit` runs. The function that comes before that has no
            # public name; without it the end waits for the kernels that are being compiled, a second or so.
            getattr(threading, "_register_atexit", atexit.register)(_end)
            _watched = True


def _end() -> None:
    global _ended
    with _lock:
        _ended = True
        crews = [*_crews]
    for crew in crews:
        crew.close()
