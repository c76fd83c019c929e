"""The kernels that plans need, compiled before any call, for a GPU that this machine need not have.

Owns which kernels several plans need together, and that equal ones are compiled once. How a candidate is chosen and
compiled is the runtime's; what is remembered of a device is the schedule store's. Knows no arrays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from gett.console.progress import progress
from gett.env import shows_progress
from gett.errors import GettError
from gett.ir.gemm import GemmPlan
from gett.plans.bound_steps import BoundSteps
from gett.plans.executables import limited_facts, together_beside

if TYPE_CHECKING:
    from gett.jit.compile import Compiler
    from gett.runtime.compiled import CompiledKernel
    from gett.runtime.device import DeviceFacts
    from gett.schedule.spec.grouped import GroupedSchedule

PartT = TypeVar("PartT", bound=BoundSteps)
Key: TypeAlias = tuple[str, str, int]
"""What a kernel is compiled of: the signature of a plan's step, the architecture, the limit of the workspace."""


def keys_of(part: BoundSteps) -> list[Key | GroupedSchedule]:
    """The key of each step's kernel; of steps that are made together the kernel's schedule."""
    return [
        (s.gemm.signature, part.arch, part.workspace_limit) if s.together is None else s.together.schedule
        for s in part.steps
    ]


def compile_parts(
    parts: Sequence[BoundSteps],
    device: DeviceFacts | None = None,
    *,
    keep_going: bool = False,
    shown: bool | None = None,
    processes: int | None = None,
) -> Mapping[Key | GroupedSchedule, CompiledKernel | GettError]:
    """The kernel of every step of some plans; those that differ are compiled side by side.

    Kernels that make steps together are compiled too, beside the others; of these errors alone are told.

    Args:
        parts: Plans for GPUs.
        device: The GPU at hand, whose schedules are remembered; None for the nominal one of the architecture.
        keep_going: Whether an error stands for a kernel that cannot be made, while all others are.
        shown: Whether there is a progress bar; default: on a terminal, or as `GETT_PROGRESS` says.
        processes: Compilers at one time; default: one for each processor.

    Raises:
        MissingPackageError: The compiler is not installed.
        ScheduleError, CompileError: A kernel cannot be made.
    """
    from gett.jit.workers import side_by_side
    from gett.runtime.compiled import log_compiled

    start = time.perf_counter()
    every = {key: s.gemm for part in parts for key, s in zip(keys_of(part), part.steps, strict=True)}
    tasks = {key: gemm for key, gemm in every.items() if isinstance(key, tuple)}

    def begin(task: tuple[Key, GemmPlan]) -> Callable[[Compiler | None], CompiledKernel | GettError]:
        (_, arch, limit), gemm = task
        try:
            make = _begin(gemm, arch, limit, device)
        except GettError as error:
            if not keep_going:
                raise
            refused = error
            return lambda compiler: refused
        return _caught(make) if keep_going else make

    with (
        together_beside(key for key in every if not isinstance(key, tuple)) as pending,
        progress(len(tasks), "compiling kernels", shows_progress() if shown is None else shown) as step,
    ):
        made = side_by_side(begin, [*tasks.items()], step, lambda task: task[1].flops, processes)
        failed: dict[Key | GroupedSchedule, CompiledKernel | GettError] = {}
        for schedule, future in pending.items():
            try:
                future.result()
            except GettError as error:
                if not keep_going:
                    raise
                failed[schedule] = error
    if len(made) > 1:
        log_compiled([x for x in made if not isinstance(x, GettError)], time.perf_counter() - start)
    return dict(zip(tasks, made, strict=True)) | failed


def unsettled(parts: Sequence[PartT]) -> list[PartT]:
    """Those of some plans whose kernels are not chosen yet; what is compiled in the background is waited for.

    Raises:
        GettError: That cannot be compiled or loaded.
    """
    for part in parts:
        part.take_own()
    return [part for part in parts if not part.settled]


def compile_shared(schedules: Iterable[GroupedSchedule], processes: int | None = None) -> tuple[int, int]:
    """Kernels that find extents and strides in tables: how many were compiled, and how many the cache had.

    Raises:
        MissingPackageError: The compiler is not installed.
        CompileError: A kernel cannot be made.
    """
    distinct = [*dict.fromkeys(schedules)]
    counts = cached_among(distinct)
    with together_beside(distinct, processes or os.cpu_count()) as pending:
        for future in pending.values():
            future.result()
    return counts


def cached_among(schedules: Iterable[GroupedSchedule]) -> tuple[int, int]:
    """Of kernels that find extents and strides in tables, how many the cache lacks, and how many it has.

    Raises:
        MissingPackageError: The compiler is not installed.
    """
    distinct = [*dict.fromkeys(schedules)]
    if not distinct:
        return 0, 0
    from gett.runtime.grouped import is_cached

    found = sum(map(is_cached, distinct))
    return len(distinct) - found, found


def settle_parts(parts: Sequence[BoundSteps], made: Mapping[Key | GroupedSchedule, CompiledKernel | GettError]) -> None:
    """From now on the plans' steps have the schedules of their kernels.

    Raises:
        GettError: What stands for a kernel.
    """
    for part in parts:
        kernels = [made.get(key) for key in keys_of(part)]  # None for one that makes steps together
        steps = []
        for s, kernel in zip(part.steps, kernels, strict=True):
            if isinstance(kernel, GettError):
                raise kernel
            steps.append(s if kernel is None else replace(s, schedule=kernel.schedule))
        part.settle_as(tuple(steps))


def _begin(
    gemm: GemmPlan, arch: str, limit: int, device: DeviceFacts | None
) -> Callable[[Compiler | None], CompiledKernel]:
    if device is None:
        from gett.runtime.compiling import begin_best

        return begin_best(gemm, arch, limited_facts(arch, limit))
    from gett.tune.recall import begin_remembered

    return begin_remembered(gemm, replace(device, workspace_limit=limit))


def _caught(
    make: Callable[[Compiler | None], CompiledKernel],
) -> Callable[[Compiler | None], CompiledKernel | GettError]:
    """The same with errors as results."""

    def made(compiler: Compiler | None) -> CompiledKernel | GettError:
        try:
            return make(compiler)
        except GettError as error:
            return error

    return made
