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


def available_threads() -> int:
    """Processors this process may run on, at most 8: more do not help what memory bounds."""
    try:
        return min(8, len(os.sched_getaffinity(0)))
    except AttributeError:
        return min(8, os.cpu_count() or 1)


class _Stopped(BaseException):
    """Ends the work of a thread beside which another one failed."""


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

    def run_beside(busy: threading.RLock) -> None:
        with busy:
            if todo and not failures:
                run()

    # Thread.join takes a thread for ended once an interrupt has broken the wait for it, so each holds a lock instead.
    locks = [threading.RLock() for _ in range(min(threads, len(todo)) - 1)]
    try:
        for lock in locks:
            # A copied context hands np.errstate on to the thread.
            threading.Thread(target=contextvars.copy_context().run, args=(run_beside, lock)).start()
        run()
    except BaseException as error:
        failures.append(error)
    for lock in locks:
        _wait(lock, failures)
    if failures:
        raise failures[0]


def _wait(lock: threading.RLock, failures: list[BaseException]) -> None:
    """Wait until its thread gives the lock back; an interrupt tells the thread to stop, and the wait goes on."""
    while True:
        try:
            with lock:
                return
        except BaseException as error:
            failures.append(error)
