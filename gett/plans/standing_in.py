"""Shared kernels that make the steps of a plan until its own are compiled.

Kernels of a plan's own are specialised for extents and strides, and take the compiler seconds. Those that small steps
share find both in tables (`gett.codegen.grouped`), so two of a dtype make all products. Where own kernels are neither
in the store nor in the cache, the first calls run on shared ones, and a thread has the own ones compiled. A plan of few
steps does so for products in planes, whose own kernels the compiler takes longest for.

Owns which plans have stand-ins and for which steps, and what is compiled meanwhile. When the one takes the place of the
other is `gett.plans.bindings`'. Knows no arrays.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gett.arrays.kinds import ArrayKind
from gett.console.formatting import count, format_seconds
from gett.env import read_environment
from gett.errors import GettError
from gett.ir.gemm import GemmPlan
from gett.network.optimize import AUTOTUNE
from gett.network.request import PlanRequest
from gett.network.running import Turn
from gett.network.steps import Executable, Step
from gett.network.together import LEAST, made_for_now
from gett.plans.executables import bind_steps, together_beside, with_executable, with_executables

if TYPE_CHECKING:
    from concurrent.futures import Future

    from gett.jit.background import Background
    from gett.jit.workers import Workers
    from gett.schedule.spec.grouped import GroupedSchedule
    from gett.tune.recall import Kernels

LONGEST_US = 250_000.0
"""Time of all steps that shared kernels make. What would take longer waits for its own kernels, which is quicker."""
STREAM_US = 1_000.0
"""Time by a shared kernel from which a product that memory bounds waits for its own, which compiles in 0.1 s."""
AT_ONCE = 8
"""Processors from which own kernels are compiled while shared ones still are; on fewer behind them."""
PAUSE_S, MOST_S = 0.1, 0.5
"""Seconds in which a search leaves the interpreter to a call that has begun, and to several."""

_log = logging.getLogger("gett")
_quiet_until = 0.0


def hush(seconds: float) -> None:
    """Have searches in the background wait for so long: a call has work for the interpreter."""
    global _quiet_until
    _quiet_until = max(_quiet_until, time.monotonic() + seconds)


def _wait_for_calls() -> None:
    """Wait as long as calls have work for the interpreter; not for ever, where one comes after the other."""
    end = time.monotonic() + MOST_S
    while (left := min(_quiet_until, end) - time.monotonic()) > 0:
        time.sleep(left)


class StandIn:
    """What makes the steps of a plan on one device until kernels of their own are there.

    Attributes:
        steps: In the plan's order, with what runs them now.
        turns: Of them; set by the plan.
        executables: Theirs.
    """

    __slots__ = ("_background", "_done", "_load", "_lock", "_own", "_refused", "executables", "steps", "turns")

    def __init__(self, own: Sequence[Step | None], load: Callable[[Sequence[GemmPlan]], Sequence[Executable]]) -> None:
        """Without steps as yet.

        Args:
            own: The plan's step where a shared kernel makes it, else None.
            load: What runs plans, once their kernels are compiled.
        """
        self.steps: tuple[Step, ...] = ()
        self.turns: Sequence[Turn] = ()
        self.executables: tuple[Executable, ...] = ()
        self._own = own
        self._load: Callable[[Sequence[GemmPlan]], Sequence[Executable]] | None = load
        self._lock = threading.Lock()
        self._background: Background | None = None
        self._done = False
        self._refused: Exception | None = None

    def made_by(self, steps: tuple[Step, ...]) -> None:
        """Steps with executables make the plan's from now on."""
        self.steps, self.executables = steps, tuple(s.executable for s in steps if s.executable is not None)

    def gives_way(self, take: Callable[[tuple[Step, ...]], None], kind: ArrayKind | None, *, wait: bool) -> bool:
        """Whether the steps run on kernels of their own from now on.

        They do once these are compiled. They are loaded here, between calls. A graph that is recorded is played many
        times, so who records one waits for them.

        Args:
            take: Given the steps, once.
            kind: Of the call's arrays; None where there is no call.
            wait: Whether the kernels are waited for in any case.

        Raises:
            GettError: The kernels that are waited for cannot be compiled or loaded. Shared ones go on.
        """
        background = self._background
        if self._done:
            return True
        waits = wait or (self._may_follow and _records(kind))
        if not (waits or (self._may_follow and background is not None and background.done)):
            return False
        if not self._lock.acquire(blocking=waits):
            return False  # another call is about to exchange them
        try:
            if not self._done:
                take(self._own_steps())
                self._done = True
                self._background, self._load, self._own = None, None, ()  # texts and cubins, which are no longer needed
            return True
        except Exception as error:
            if wait:
                raise
            self._refused = error
            _warn(error)
            return False
        finally:
            self._lock.release()

    @property
    def _may_follow(self) -> bool:
        """Whether kernels of the steps' own are to be expected."""
        return self._background is not None and self._background.error is None and self._refused is None

    def wait(self) -> None:
        """Return once kernels of the steps' own are compiled, where that has begun.

        Raises:
            GettError: They cannot be.
        """
        if self._background is not None:
            self._background.wait()

    def _own_steps(self) -> tuple[Step, ...]:
        self.wait()
        assert self._load is not None
        start = time.perf_counter()
        loaded = iter(self._load([s.gemm for s in self._own if s is not None]))
        both = zip(self.steps, self._own, strict=True)
        found = tuple(now if own is None else with_executable(own, next(loaded)) for now, own in both)
        replaced = count(sum(s is not None for s in self._own), "step")
        took = format_seconds(time.perf_counter() - start)
        _log.info("%s no longer made by shared kernels, their own were loaded in %s", replaced, took)
        return found

    def compile_behind(self, kernels: Kernels) -> None:
        """Begin to compile the plan's own kernels."""
        from gett.jit.background import Background

        def work(crew: Workers) -> None:
            kernels.compile(crew=crew, before=_wait_for_calls)

        self._background = Background(work, len(kernels.missing), _wait_for_calls, _warn)


def _records(kind: ArrayKind | None) -> bool:
    """Whether the current stream records a graph."""
    if kind is None:
        return False
    from gett.runtime.driver import load_driver
    from gett.runtime.graphs import is_capturing

    return is_capturing(load_driver(), ctypes.c_void_p(kind.stream()))


def _warn(error: Exception) -> None:
    _log.warning("shared kernels go on making a plan's steps: its own were not to be had: %s", error)


def bind_first(steps: tuple[Step, ...], request: PlanRequest) -> tuple[tuple[Step, ...], StandIn | None]:
    """Steps with what runs them on the current device; or as they are, and what stands in for kernels of their own.

    Args:
        steps: Of a plan for the current device.
        request: What was asked for.

    Raises:
        GettError: They cannot be compiled, or the device does not take them.
    """
    arch, limit = request.arch, request.workspace_limit
    if not _may_stand_in(request):
        return bind_steps(steps, arch, request.optimize == AUTOTUNE, limit), None
    from gett.tune.recall import Kernels

    hush(PAUSE_S)
    kernels = Kernels([s.gemm for s in steps if s.together is None], arch, limit)
    shared = _shared(steps, arch, kernels.missing) if kernels.missing else {}
    if shared:
        now = _made_for_now(steps, shared)
        try:
            # They are begun ahead of the search that tells whether they are needed: as a rule they are.
            with together_beside((s.together.schedule for s in now if s.together is not None), wait=False) as pending:
                if not kernels.take_cached():
                    hush(PAUSE_S)
                    return steps, _stand_in(steps, now, kernels, pending.values())
        except (GettError, RuntimeError) as error:  # the latter from threads, as the interpreter ends
            _log.debug("no shared kernels stand in: %s", error)
    return bind_steps(steps, arch, False, limit, kernels), None


def _may_stand_in(request: PlanRequest) -> bool:
    """Whether a plan's first calls need not wait: nothing depends on how its steps are made.

    Slices of one call are made alike, and what is held between calls stays as it is.
    """
    if request.arch == "cpu" or request.optimize == AUTOTUNE or request.waits or request.sums:
        return False
    return request.memory_limit is None and read_environment().shared_first


def _shared(steps: Sequence[Step], arch: str, missing: Sequence[str]) -> dict[str, GroupedSchedule]:
    """The shared kernel of each product that lacks its own, by signature; not of those that take too long so.

    A network has them all for the price of two. Of fewer steps only those are taken that save the time of compiling.
    """
    from gett.schedule.grouped import shared_schedule
    from gett.schedule.search.stream import is_stream

    lacking = set(missing) - {s.gemm.signature for s in steps if any(s.offsets)}  # parts of what is too large
    names = Counter(name for s in steps if s.together is None and (name := s.gemm.signature) in lacking)
    gemms = {s.gemm.signature: s.gemm for s in steps}
    made = {name: x for name in names if (x := shared_schedule(gemms[name], arch)) is not None}
    made = {name: x for name, x in made.items() if x[1] < STREAM_US or not is_stream(gemms[name])}
    if len(steps) < LEAST:
        made = {name: x for name, x in made.items() if _compiles_long(gemms[name], arch)}
    found, took = {name: x[0] for name, x in made.items()}, {name: x[1] * names[name] for name, x in made.items()}
    left = LONGEST_US
    for name in sorted(found, key=lambda x: took[x]):
        left -= took[name]
        if left < 0:
            del found[name]
    return found


def _compiles_long(gemm: GemmPlan, arch: str) -> bool:
    """Whether tensor cores multiply numbers in planes: it takes a second to compile such a kernel."""
    from gett.schedule.search.stream import is_stream
    from gett.schedule.spec.hopper_needs import ARCHS, planes

    return arch in ARCHS and planes(gemm) is not None and not is_stream(gemm)


def _made_for_now(steps: tuple[Step, ...], shared: Mapping[str, GroupedSchedule]) -> tuple[Step, ...]:
    """Steps of which shared kernels make those that have one."""
    from gett.schedule.spec.schedule import Forecast

    names = [None if s.together is not None else s.gemm.signature for s in steps]
    made = [None if name is None else shared.get(name) for name in names]
    return made_for_now(steps, made, Forecast(0.0, "launches", "made by a shared kernel for now"))


def _stand_in(
    steps: tuple[Step, ...], now: tuple[Step, ...], kernels: Kernels, pending: Iterable[Future[Any]]
) -> StandIn:
    """What makes steps for now, built on the current device; their own kernels are compiled from here on.

    Args:
        steps: Of the plan.
        now: The same, of which shared kernels make some.
        kernels: The plan's own.
        pending: The shared kernels, which are being compiled.
    """
    made = [x.together is not None and s.together is None for s, x in zip(steps, now, strict=True)]
    shared = {s.gemm.signature for s, x in zip(steps, made, strict=True) if x}
    found = StandIn([s if x else None for s, x in zip(steps, made, strict=True)], kernels.load)
    start, early = time.perf_counter(), (os.cpu_count() or 1) >= AT_ONCE
    try:
        kernels.compile([name for name in kernels.missing if name not in shared])
        if early:
            found.compile_behind(kernels)
        for future in pending:
            future.result()
        hush(PAUSE_S)
        found.made_by(with_executables(now, kernels.load([s.gemm for s in now if s.together is None])))
    except GettError:
        found.wait()  # the kernels are being compiled, and only one thread may do so
        raise
    if not early:
        found.compile_behind(kernels)
    hush(PAUSE_S)
    took = format_seconds(time.perf_counter() - start)
    _log.info("%s run on shared kernels for now, made in %s", count(sum(made), "step"), took)
    return found
