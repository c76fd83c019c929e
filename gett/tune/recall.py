"""Executables from the schedule store: what an earlier process searched, rendered and compiled is loaded at once.

Owns the order: measured schedules, then the model's remembered choice, then a search, which is remembered once its
kernel has compiled well. Knows nothing of measuring.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gett.console.formatting import count, format_seconds
from gett.console.progress import progress
from gett.env import shows_progress
from gett.errors import CompileError, GettError
from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.jit.diskcache import kernel_cache
from gett.runtime.build import check_arch, load_executable
from gett.runtime.compiled import CompiledKernel, log_compiled
from gett.runtime.device import CupyHost, DeviceFacts, device_facts
from gett.runtime.executable import GpuExecutable
from gett.schedule.legality import can_implement
from gett.tune.store import Entry, plan_key, schedule_store

if TYPE_CHECKING:
    from gett.jit.compile import Compiler, CompileResult
    from gett.jit.workers import Workers

_log = logging.getLogger("gett")
_Task = tuple[GemmPlan, bytes | None, Entry | None]
"""A plan, its key in the store, and what the store has of it."""


def build_remembered(
    plan: GemmPlan, arch: str | None = None, limit: int = WORKSPACE_LIMIT, *, tuned_only: bool = False
) -> GpuExecutable | None:
    """The executable of a plan on the current device, from the store where it is there, else from the cost model.

    Args:
        plan: What to compute.
        arch: Architecture to compile for; None is the current device's. Another one is not looked up.
        limit: Most bytes of workspace that a call may take.
        tuned_only: Give back only what was measured, None where nothing was.

    Raises:
        GettError: As `build_executable`.
    """
    if not tuned_only:
        return build_all([plan], arch, limit)[0]
    facts = replace(device_facts(), workspace_limit=limit)
    key = plan_key(plan, facts) if arch in (None, facts.arch) else None
    entry = None if key is None else schedule_store().find(key, tuned_only=True)
    entry = _legal(plan, entry, facts.planning)
    compiled = None if entry is None else _loaded(plan, entry) or _recompiled(entry)
    return None if compiled is None else load_executable(plan, compiled)


def build_all(plans: Sequence[GemmPlan], arch: str | None = None, limit: int = WORKSPACE_LIMIT) -> list[GpuExecutable]:
    """The executables of several plans, as `build_remembered` makes them; what must be compiled is, side by side.

    Raises:
        GettError: As `build_executable`.
    """
    kernels = Kernels(plans, arch, limit)
    kernels.compile()
    return kernels.load(plans)


class Kernels:
    """The kernels of several plans for the current device: what the store has, and what must be made.

    Attributes:
        made: By the plans' signatures.
        missing: Signatures of the plans that have none as yet, those of the least work first.
    """

    def __init__(self, plans: Sequence[GemmPlan], arch: str | None = None, limit: int = WORKSPACE_LIMIT) -> None:
        """Look them up in the store.

        Raises:
            MissingPackageError, DeviceError: There is no usable GPU, or it cannot run kernels for `arch`.
        """
        facts = replace(device_facts(), workspace_limit=limit)
        self._arch, self._device = arch or facts.arch, facts.device
        check_arch(self._arch, facts)
        known = self._arch == facts.arch
        self._facts = facts.planning if known else replace(arch_facts(self._arch), workspace_limit=limit)
        self.made: dict[str, CompiledKernel] = {}
        self._tasks: dict[str, _Task] = {}
        self._begun: dict[str, Callable[[Compiler | None], CompiledKernel]] = {}
        for name, plan in {plan.signature: plan for plan in plans}.items():
            key = plan_key(plan, facts) if known else None
            entry = _legal(plan, None if key is None else schedule_store().find(key), facts.planning)
            loaded = None if entry is None else _loaded(plan, entry)
            if loaded is None:
                self._tasks[name] = plan, key, entry
            else:
                self.made[name] = loaded

    @property
    def missing(self) -> list[str]:
        """Signatures of the plans that have no kernel as yet, those of the least work first."""
        return sorted(self._tasks, key=lambda name: self._tasks[name][0].flops)

    def take_cached(self) -> bool:
        """Search what the store lacks, as long as the cache has the kernels; whether it has all of them.

        Raises:
            GettError: A search finds nothing.
        """
        for name in self.missing:
            if self._tasks[name][2] is not None:  # its cubin is lost
                return False
            self._begun[name] = _begin(*self._tasks[name], self._arch, self._facts)
            try:
                self.made[name] = self._begun[name](_refuse)
            except _AbsentError:
                return False
            del self._begun[name], self._tasks[name]
        return True

    def compile(
        self,
        some: Collection[str] | None = None,
        crew: Workers | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Make what is missing, side by side.

        Args:
            some: Signatures of what is made; default: all.
            crew: The processes that compile, which belong to the caller. Then no progress is shown. Default: as
                `side_by_side` starts them.
            before: Called before each search.

        Raises:
            GettError: As `build_executable`; nothing counts as made then.
        """
        names = [name for name in self._tasks if some is None or name in some]
        if not names:
            return
        from gett.jit.workers import side_by_side

        def begin(name: str) -> Callable[[Compiler | None], CompiledKernel]:
            if before is not None:
                before()
            return self._begun.pop(name, None) or _begin(*self._tasks[name], self._arch, self._facts)

        start = time.perf_counter()
        with progress(len(names), "compiling kernels", crew is None and shows_progress()) as step:
            made = side_by_side(begin, names, step, lambda name: self._tasks[name][0].flops, crew=crew)
        if len(made) > 1:
            log_compiled(made, time.perf_counter() - start)
        for name, kernel in zip(names, made, strict=True):
            self.made[name] = kernel
            del self._tasks[name]

    def load(self, plans: Sequence[GemmPlan]) -> list[GpuExecutable]:
        """The executables of plans whose kernels are made, on the device that was current when they were looked up.

        Raises:
            MissingPackageError, DeviceError: There is no usable GPU, or it refuses a kernel.
        """
        start, host = time.perf_counter(), CupyHost()
        with nullcontext() if host.current_device() == self._device else host.use_device(self._device):
            loaded = [load_executable(plan, self.made[plan.signature]) for plan in plans]
        distinct = len({plan.signature for plan in plans})
        if distinct > 1:
            _log.info("loaded %s in %s", count(distinct, "kernel"), format_seconds(time.perf_counter() - start))
        return loaded


class _AbsentError(CompileError):
    """A kernel is not in the cache."""


def _refuse(*_: Any, **__: Any) -> CompileResult:
    """A compiler that compiles nothing: what it is asked for is not in the cache.

    Raises:
        _AbsentError: Always.
    """
    raise _AbsentError("not in the cache")


def _begin(
    plan: GemmPlan, key: bytes | None, entry: Entry | None, arch: str, facts: ArchFacts
) -> Callable[[Compiler | None], CompiledKernel]:
    """Search what the store lacks; what is given back compiles and remembers it."""
    from gett.runtime.compiling import begin_best

    search = partial(begin_best, plan, arch, facts)
    begun = search() if entry is None else None

    def make(compiler: Compiler | None) -> CompiledKernel:
        made = None if entry is None else _recompiled(entry, compiler)
        if made is None:
            made = (begun or search())(compiler)
            if key is not None:
                remember(key, made)
        return made

    return make


def begin_remembered(plan: GemmPlan, facts: DeviceFacts) -> Callable[[Compiler | None], CompiledKernel]:
    """Look a plan up for a GPU, or search it; what is given back compiles what is missing, and remembers it.

    Raises:
        ScheduleError: No schedule meets the hard limits.
    """
    key = plan_key(plan, facts)
    entry = _legal(plan, None if key is None else schedule_store().find(key), facts.planning)
    loaded = None if entry is None else _loaded(plan, entry)
    return _begin(plan, key, entry, facts.arch, facts.planning) if loaded is None else lambda compiler: loaded


def remember(key: bytes, compiled: CompiledKernel) -> None:
    """Store a schedule with its kernel."""
    from gett.jit.compile import kernel_key

    cubin = kernel_key(compiled.kernel.source, compiled.kernel.arch, allow_spills=compiled.spills)
    measured_us, among = compiled.measured or (None, 0)
    schedule_store().put(key, Entry(compiled.schedule, compiled.kernel, cubin, measured_us, among))


def _legal(plan: GemmPlan, entry: Entry | None, facts: ArchFacts) -> Entry | None:
    """An entry whose schedule a GPU can run; any other one counts as absent."""
    if entry is None or (refusal := can_implement(entry.schedule, plan, facts)) is None:
        return entry
    _log.warning("a stored schedule of %s is not used: %s", plan.contraction, refusal.reason)
    return None


def _loaded(plan: GemmPlan, entry: Entry) -> CompiledKernel | None:
    """What the store has of a plan, None where its cubin is lost."""
    cubin = kernel_cache().get(entry.cubin)
    if cubin is None:
        return None
    how = "measured" if entry.tuned else "chosen by the model"
    _log.info("found %s for %s in the store: %s, %s", plan.contraction, entry.kernel.arch, entry.schedule.kind, how)
    return CompiledKernel(entry.schedule, entry.kernel, cubin, measured=_measured(entry))


def _recompiled(entry: Entry, compiler: Compiler | None = None) -> CompiledKernel | None:
    """An entry whose cubin is lost, compiled again from its text; None where that does not compile any more."""
    from gett.runtime.compiling import compile_timed

    try:
        cubin, seconds = compile_timed(entry.kernel, compiler=compiler)
    except GettError:
        return None
    return CompiledKernel(entry.schedule, entry.kernel, cubin, measured=_measured(entry), compile_s=seconds)


def _measured(entry: Entry) -> tuple[float, int] | None:
    return None if entry.measured_us is None else (entry.measured_us, entry.among)
