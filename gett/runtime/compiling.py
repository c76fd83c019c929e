"""From plans to compiled kernels: the cost model's best candidate that compiles well. Needs no GPU.

Owns the one way from candidates to a cubin, which planning without a GPU and building on one share. A process that
finds its kernels in the store needs neither generator nor search, and does not import this. Knows neither devices nor
arrays.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.console.formatting import format_seconds
from gett.errors import PoorKernelError, SpillError
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.jit.compile import Compiler, CompileResult, compile_kernel, compile_uncached
from gett.jit.workers import workers
from gett.runtime.compiled import CompiledKernel
from gett.schedule.known.lookup import known_schedule
from gett.schedule.legality import check_schedule
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import StreamMap, StreamMatrix, StreamSum, WgmmaSplit
from gett.schedule.spec.schedule import Schedule

ATTEMPTS = 8  # candidates that may compile badly before the first one runs all the same
# Kernels that are compiled beside one that may spill, and the processors from which that pays. Of first candidates one
# in twenty spills; on two processors the others would take half of its time more.
BESIDE, ENOUGH = 2, 4

_log = logging.getLogger("gett")
_Made = TypeVar("_Made")
_Attempt = CompiledKernel | PoorKernelError


def compile_schedule(
    plan: GemmPlan,
    schedule: Schedule,
    *,
    facts: ArchFacts | None = None,
    allow_spills: bool = False,
    compiler: Compiler | None = None,
    sparing: bool | None = None,
) -> CompiledKernel:
    """The kernel of one schedule.

    Args:
        plan: What to compute.
        schedule: How.
        facts: Of the GPU at hand; the architecture's nominal ones by default.
        allow_spills: Whether a kernel that compiles poorly is good enough.
        compiler: As `gett.jit.compile.compile_kernel` takes it.
        sparing: As `gett.jit.compile.compile_kernel` takes it.

    Raises:
        PoorKernelError: It spills registers or serialises tensor-core instructions, and may not.
        ScheduleError: The schedule breaks a rule of legality, or a limit of the generated code is exceeded.
        CompileError: The compiler rejects it.
        MissingPackageError: NVRTC or CUDA's headers are not installed.
    """
    check_schedule(schedule, plan, facts or arch_facts(schedule.arch))
    kernel = render_kernel(plan, schedule)
    cubin, seconds = compile_timed(kernel, allow_spills=allow_spills, compiler=compiler, sparing=sparing)
    found = ("found", "in the cache")
    done, how = found if seconds is None else ("compiled", f"in {format_seconds(seconds)}")
    tile = " x ".join(map(str, schedule.tiling.shape))
    _log.info("%s %s for %s %s: %s, tile %s", done, plan.contraction, kernel.arch, how, schedule.kind, tile)
    return CompiledKernel(schedule, kernel, cubin, allow_spills, compile_s=seconds)


def compile_timed(
    kernel: Kernel, *, allow_spills: bool = False, compiler: Compiler | None = None, sparing: bool | None = None
) -> tuple[bytes, float | None]:
    """A kernel's cubin, and the seconds that the compiler took; None where the cache has the kernel.

    Arguments and errors are those of `gett.jit.compile.compile_kernel`.
    """
    seconds: list[float] = []

    def compile_now(*arguments: Any, **options: Any) -> CompileResult:
        start = time.perf_counter()
        try:
            return (compiler or compile_uncached)(*arguments, **options)
        finally:
            seconds.append(time.perf_counter() - start)

    cubin = compile_kernel(kernel.source, kernel.arch, allow_spills=allow_spills, compiler=compile_now, sparing=sparing)
    return cubin, seconds[0] if seconds else None


def compile_best(
    plan: GemmPlan, arch: str, facts: ArchFacts | None = None, *, compiler: Compiler | None = None
) -> CompiledKernel:
    """The kernel of the most promising schedule that compiles well.

    Where one needs more registers than there are, those of the same kind that need as many are not tried. Others of its
    main loop and tile shape come last.

    Args:
        plan: What to compute.
        arch: Such as `"sm_90a"`.
        facts: Of the GPU at hand; the architecture's nominal ones by default.
        compiler: What compiles a text. Default: this process, while others, where there are `ENOUGH` processors,
            compile what may be needed next.

    Raises:
        ScheduleError: No schedule meets the hard limits.
        CompileError: The generated kernel does not compile.
        MissingPackageError: NVRTC or CUDA's headers are not installed.
    """
    return begin_best(plan, arch, facts)(compiler)


def begin_best(
    plan: GemmPlan, arch: str, facts: ArchFacts | None = None
) -> Callable[[Compiler | None], CompiledKernel]:
    """Search now, where no schedule is known; what is given back compiles, as `compile_best` does.

    Raises:
        ScheduleError: No schedule meets the hard limits.
    """
    known = known_schedule(plan, facts or arch_facts(arch))
    if known is not None:
        return partial(_compile_known, plan, known, arch, facts)
    return partial(_compile_first, plan, candidates(plan, arch, facts, every=False), facts)


def _compile_known(
    plan: GemmPlan, known: Schedule, arch: str, facts: ArchFacts | None, compiler: Compiler | None
) -> CompiledKernel:
    """The kernel of a known schedule; others are searched only where it compiles badly, as it did not where timed."""
    try:
        return compile_schedule(plan, known, facts=facts, compiler=compiler)
    except PoorKernelError:
        return _compile_first(plan, candidates(plan, arch, facts, every=False), facts, compiler)


def _compile_first(
    plan: GemmPlan, choices: Sequence[Schedule], facts: ArchFacts | None, compiler: Compiler | None
) -> CompiledKernel:
    waiting = list(choices)
    with _Meanwhile(plan, facts, compiler) as meanwhile:
        for _ in range(min(ATTEMPTS, len(choices))):
            choice, *waiting = waiting
            others = _after_spill(choice, waiting)
            made = meanwhile.compile(choice, others[:1])
            if isinstance(made, SpillError):
                waiting = others
            if isinstance(made, PoorKernelError):
                # The model's estimate of registers was wrong. The kernel that spares registers is as a rule the better
                # one. If it is poor too, the next candidate is there.
                meanwhile.begin(*waiting[:1])
                made = meanwhile.compile_sparing(choice)
            if isinstance(made, CompiledKernel):
                return made
            kernel = f"{choice.kind} {choice.tiling.shape}"
            _log.debug("replaced candidate %d of %s, %s: %s", choices.index(choice) + 1, plan.contraction, kernel, made)
            if not waiting:
                break
    # Nothing compiles well: the most promising one still computes, only slower.
    _log.warning("no candidate of %s compiles well; the first one runs all the same", plan.contraction)
    return compile_schedule(plan, choices[0], facts=facts, allow_spills=True)


class _Meanwhile:
    """Candidates of a plan, some of which are compiled before it is known whether they are needed.

    Args:
        plan: What to compute.
        facts: Of the GPU at hand.
        compiler: What compiles a text; only once a candidate has failed does it compile two at a time. Without it this
            process compiles, and others, where there are `ENOUGH` processors, from the start.
    """

    def __init__(self, plan: GemmPlan, facts: ArchFacts | None, compiler: Compiler | None) -> None:
        self._plan, self._facts, self._compiler = plan, facts, compiler
        self._processes = BESIDE if compiler is None and (os.cpu_count() or 1) >= ENOUGH else 0
        self._stack = ExitStack()
        self._begun: dict[Schedule, Future[_Attempt]] = {}
        self._sparing: dict[Schedule, Future[CompileResult]] = {}

    def __enter__(self) -> _Meanwhile:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()  # what nobody asked for is lost

    def compile(self, choice: Schedule, following: Sequence[Schedule] = ()) -> _Attempt:
        """A candidate's kernel; where it may well spill, what comes then is begun as soon as its own compiling is."""

        def beside(*text: Any, **options: Any) -> CompileResult:
            self._sparing[choice] = self._submit(lambda by: by(*text, **options | {"sparing": True}))
            self.begin(*following)
            return compile_uncached(*text, **options)

        if choice in self._begun:
            return self._begun[choice].result()
        return self._attempt(choice, False, beside if self._processes and may_spill(choice) else self._compiler)

    def begin(self, *choices: Schedule) -> None:
        """Have candidates compiled meanwhile."""
        for choice in choices:
            if choice not in self._begun and (self._processes or self._compiler is not None):
                self._begun[choice] = self._submit(partial(self._attempt, choice, False))

    def compile_sparing(self, choice: Schedule) -> _Attempt:
        """A candidate's kernel that spares registers."""
        begun = self._sparing.get(choice)
        return self._attempt(choice, True, self._compiler if begun is None else lambda *text, **options: begun.result())

    def _attempt(self, choice: Schedule, sparing: bool, by: Compiler | None) -> _Attempt:
        try:
            return compile_schedule(self._plan, choice, facts=self._facts, compiler=by, sparing=sparing)
        except PoorKernelError as error:
            return error

    def _submit(self, work: Callable[[Compiler], _Made]) -> Future[_Made]:
        if not self._begun and not self._sparing:
            self._pool = ThreadPoolExecutor(max(1, self._processes))
            own = self._compiler is None
            self._stack.callback(self._pool.shutdown, wait=own, cancel_futures=True)
            if own:  # ended first: the pool waits for them
                self._own = self._stack.enter_context(workers(self._processes)).compile
        return self._pool.submit(work, self._compiler or self._own)


def may_spill(choice: Schedule) -> bool:
    """Whether only the compiler can tell: a kernel that makes planes takes all registers there are, spilling or not.

    These are also the kernels that it takes longest for.
    """
    return isinstance(choice.mainloop, WgmmaSplit)


def _after_spill(choice: Schedule, waiting: Sequence[Schedule]) -> list[Schedule]:
    """What is tried once a schedule has spilled: nothing that needs as many registers for the same things.

    Tiles of the same shape in the same main loop come last: loaders and stores are the smaller part of their registers.
    """
    others = [x for x in waiting if not _spills_like(x, choice)]
    return sorted(others, key=lambda x: (x.kind, x.tiling.shape) == (choice.kind, choice.tiling.shape))


def _spills_like(choice: Schedule, other: Schedule) -> bool:
    """Whether a schedule's threads need as many registers as those of another one, and for the same things."""
    return _parts(choice) == _parts(other) and _held(choice) >= _held(other)


def _parts(schedule: Schedule) -> tuple[object, ...]:
    """What the code of a kernel is put together from."""
    loop = schedule.mainloop
    loaders = (type(getattr(loop, name, None)) for name in ("a", "b"))
    return schedule.kind, *loaders, type(schedule.epilogue.store)


def _held(schedule: Schedule) -> float:
    """Elements that a thread holds at a time: of what is under way, or of a tile's sums."""
    loop, (m, n, _) = schedule.mainloop, schedule.tiling.shape
    if isinstance(loop, StreamMap | StreamSum | StreamMatrix):
        return loop.vector * loop.unroll * (loop.rows if isinstance(loop, StreamSum) else 1)
    return m * n * schedule.tiling.batches / loop.threads
