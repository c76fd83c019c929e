"""From plans to compiled kernels: the cost model's best candidate that compiles well. Needs no GPU.

Owns the one way from candidates to a cubin, which planning without a GPU and building on one share, and compiling many
plans side by side. Knows neither devices nor arrays.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gett.codegen.records import Kernel
from gett.console.formatting import format_seconds
from gett.console.progress import Step
from gett.errors import PoorKernelError
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import Schedule

if TYPE_CHECKING:
    from gett.jit.compile import Compiler, CompileResult

ATTEMPTS = 8  # candidates whose registers may turn out too few before one compiles well

_log = logging.getLogger("gett")
_Task = TypeVar("_Task")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A schedule with the kernel that was made of it.

    Attributes:
        schedule: How the plan is run.
        kernel: The generated source and launches.
        cubin: The compiled source.
        spills: Whether the compiler found no way without spilled registers or serialised tensor-core instructions.
        measured: (microseconds, among how many schedules) where the schedule was found by measuring, else None.
    """

    schedule: Schedule
    kernel: Kernel
    cubin: bytes
    spills: bool = False
    measured: tuple[float, int] | None = None


def compile_schedule(
    plan: GemmPlan,
    schedule: Schedule,
    *,
    facts: ArchFacts | None = None,
    allow_spills: bool = False,
    compiler: Compiler | None = None,
) -> CompiledKernel:
    """The kernel of one schedule.

    Args:
        plan: What to compute.
        schedule: How.
        facts: Of the GPU at hand; the architecture's nominal ones by default.
        allow_spills: Whether a kernel that compiles poorly is good enough.
        compiler: As `gett.jit.compile.compile_kernel` takes it.

    Raises:
        PoorKernelError: It spills registers or serialises tensor-core instructions, and may not.
        ScheduleError: The schedule breaks a rule of legality, or a limit of the generated code is exceeded.
        CompileError: The compiler rejects it.
        MissingPackageError: NVRTC or CUDA's headers are not installed.
    """
    # Late, here and below: a process that finds its kernels in the store needs neither generator nor search.
    from gett.codegen.render import render_kernel
    from gett.jit.compile import compile_kernel, compile_uncached
    from gett.schedule.spec.legality import check_schedule

    check_schedule(schedule, plan, facts or arch_facts(schedule.arch))
    kernel = render_kernel(plan, schedule)
    seconds: list[float] = []  # of the compiler; none where the cache has the kernel

    def compile_now(*arguments: Any, **options: Any) -> CompileResult:
        start = time.perf_counter()
        try:
            return (compiler or compile_uncached)(*arguments, **options)
        finally:
            seconds.append(time.perf_counter() - start)

    cubin = compile_kernel(kernel.source, kernel.arch, allow_spills=allow_spills, compiler=compile_now)
    done, how = ("compiled", f"in {format_seconds(seconds[0])}") if seconds else ("found", "in the cache")
    tile = " x ".join(map(str, schedule.tiling.shape))
    _log.info("%s %s for %s %s: %s, tile %s", done, plan.contraction, kernel.arch, how, schedule.kind, tile)
    return CompiledKernel(schedule, kernel, cubin, allow_spills)


def compile_best(
    plan: GemmPlan, arch: str, facts: ArchFacts | None = None, compiler: Compiler | None = None
) -> CompiledKernel:
    """The kernel of the most promising schedule that compiles well.

    Args:
        plan: What to compute.
        arch: Such as `"sm_90a"`.
        facts: Of the GPU at hand; the architecture's nominal ones by default.
        compiler: As `gett.jit.compile.compile_kernel` takes it.

    Raises:
        ScheduleError: No schedule meets the hard limits.
        CompileError: The generated kernel does not compile.
        MissingPackageError: NVRTC or CUDA's headers are not installed.
    """
    from gett.schedule.search.select import candidates

    choices = candidates(plan, arch, facts)
    for number, choice in enumerate(choices[:ATTEMPTS], 1):
        try:
            return compile_schedule(plan, choice, facts=facts, compiler=compiler)
        except PoorKernelError as error:  # the model guessed the registers wrong: the next one will do
            kernel = f"{choice.kind} {choice.tiling.shape}"
            _log.debug("replaced candidate %d of %s, %s: %s", number, plan.contraction, kernel, error)
    # Nothing compiles well: the most promising one still computes, only slower.
    _log.warning("no candidate of %s compiles well; the first one runs all the same", plan.contraction)
    return compile_schedule(plan, choices[0], facts=facts, allow_spills=True, compiler=compiler)


def side_by_side(make: Callable[[_Task, Compiler | None], _Made], tasks: Sequence[_Task], step: Step) -> list[_Made]:
    """What a function that compiles makes of each task, in their order.

    It runs on all processors. The first error is raised; what has not begun by then is left.

    Args:
        make: The function, of a task and of what compiles.
        tasks: Its arguments.
        step: Told of each that is done.
    """
    from gett.jit.workers import WORTH, workers

    count = max(1, min(len(tasks), os.cpu_count() or 1))
    if len(tasks) == 1:
        return [make(tasks[0], None)]
    made: list[_Made] = []
    pool = ThreadPoolExecutor(count)
    with workers(count) if len(tasks) >= WORTH and count > 1 else nullcontext() as processes:
        compiler = None if processes is None else processes.compile
        try:
            for done in pool.map(make, tasks, itertools.repeat(compiler)):
                made.append(done)
                step("")
        except BaseException:
            if processes is not None:
                processes.close()  # an interrupt does not wait for what they compile
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    return made
