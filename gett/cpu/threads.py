"""Work on several threads, which all stop soon after one of them fails or the caller is interrupted.

Knows neither arrays nor plans.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator

from gett.cpu.tiles import Part, Tiles

#: Ranges of tiles that a thread takes, one after the other: a late thread holds up the others for one of them.
_RANGES = 4
#: Seconds after which a wait is begun anew.
_LISTEN = 0.1


def available_threads() -> int:
    """Processors this process may run on, at most 8: more do not help what memory bounds."""
    try:
        return min(8, len(os.sched_getaffinity(0)))
    except AttributeError:
        return min(8, os.cpu_count() or 1)


class _Stopped(BaseException):
    """Ends the work of a thread after another one failed."""


_here = threading.local()  # `failures` of the call of `parallel` that this thread works for


def pieces(tiles: Tiles) -> Iterator[Part]:
    """Every tile, for a loop within one thread's work; it ends with an exception once another thread has failed."""
    failures = getattr(_here, "failures", ())
    for part in tiles.parts():
        if failures:
            raise _Stopped
        yield part


def parallel(tiles: Tiles, work: Callable[[Iterator[Part]], None], threads: int) -> None:
    """Call `work` once on each thread with an iterator; together the iterators give every tile once.

    Once a thread has failed, the iterators of the others end, and loops over `pieces` within their work too. No thread
    is at work any more when this returns or raises.

    Raises:
        BaseException: The first that `work` raised, or KeyboardInterrupt from waiting.
    """
    count = tiles.count
    if threads < 2 or count < 2:
        work(pieces(tiles))
        return
    share = -(-count // (_RANGES * threads))
    # Taking from a deque needs no lock, which an interrupt could leave locked.
    todo = deque(range(0, count, share))
    failures: list[BaseException] = []

    def mine() -> Iterator[Part]:
        while not failures:
            try:
                first = todo.popleft()
            except IndexError:
                return
            for part in tiles.parts(first, first + share):
                if failures:
                    return
                yield part

    def run() -> None:
        _here.failures = failures
        try:
            work(mine())
        except BaseException as error:
            failures.append(error)
        finally:
            _here.failures = ()

    helpers = [_Helper(run, lambda: bool(todo) and not failures) for _ in range(min(threads, len(todo)) - 1)]
    try:
        for helper in helpers:
            helper.start()
        run()
    except BaseException as error:
        failures.append(error)
    for helper in helpers:
        helper.wait(failures)
    if failures:
        raise failures[0]


class _Helper:
    """A thread that is waited for to its end, whatever interrupts the wait.

    `Thread.join` takes a thread for ended once an interrupt has broken the wait for it.
    """

    def __init__(self, run: Callable[[], None], is_wanted: Callable[[], bool]) -> None:
        self._run, self._is_wanted = run, is_wanted
        self._ended: list[None] = []
        self._bell = threading.Lock()  # wakes who waits
        self._bell.acquire()
        # A copied context hands np.errstate on to the thread.
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._work,))
        self.start = self._thread.start

    def _work(self) -> None:
        try:
            if self._is_wanted():
                self._run()
        finally:
            self._ended.append(None)
            self._bell.release()

    def wait(self, failures: list[BaseException]) -> None:
        """Wait for the end; what interrupts is added to `failures`, which tell the thread to stop."""
        while not self._ended and self._thread.is_alive():
            try:
                # Python hears a signal in the main thread alone, which wakes for it here at the latest.
                self._bell.acquire(timeout=_LISTEN)
            except BaseException as error:
                failures.append(error)
