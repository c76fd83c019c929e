"""Executables from the schedule store: what an earlier process searched, rendered and compiled is loaded at once.

Owns the order: measured schedules, then the model's remembered choice, then a search, which is remembered once its
kernel has compiled well. Knows nothing of measuring.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gett.console.formatting import count, format_seconds
from gett.console.progress import progress
from gett.env import shows_progress
from gett.errors import GettError
from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.jit.diskcache import kernel_cache
from gett.runtime.build import check_arch, load_executable
from gett.runtime.compiled import CompiledKernel, log_compiled
from gett.runtime.device import DeviceFacts, device_facts
from gett.runtime.executable import GpuExecutable
from gett.schedule.legality import can_implement
from gett.tune.store import Entry, plan_key, schedule_store

if TYPE_CHECKING:
    from gett.jit.compile import Compiler

_log = logging.getLogger("gett")


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
    facts = replace(device_facts(), workspace_limit=limit)
    arch = arch or facts.arch
    check_arch(arch, facts)
    known = arch == facts.arch
    nominal = replace(arch_facts(arch), workspace_limit=limit)
    compiled: dict[str, CompiledKernel | None] = {}
    missing: dict[str, tuple[GemmPlan, bytes | None, Entry | None]] = {}
    for plan in plans:
        name = plan.signature
        if name not in compiled:
            key = plan_key(plan, facts) if known else None
            entry = _legal(plan, None if key is None else schedule_store().find(key), facts.planning)
            compiled[name] = None if entry is None else _loaded(plan, entry)
            if compiled[name] is None:
                missing[name] = plan, key, entry

    if missing:
        compiled |= zip(missing, _compile(missing.values(), arch, facts.planning if known else nominal), strict=True)
    found = [compiled[plan.signature] for plan in plans]
    start = time.perf_counter()
    loaded = [load_executable(plan, made) for plan, made in zip(plans, found, strict=True) if made is not None]
    if len(compiled) > 1:
        _log.info("loaded %s in %s", count(len(compiled), "kernel"), format_seconds(time.perf_counter() - start))
    return loaded


def _compile(
    tasks: Collection[tuple[GemmPlan, bytes | None, Entry | None]], arch: str, facts: ArchFacts
) -> list[CompiledKernel]:
    """The kernels of what the store lacks, or has no cubin of: of each a plan, its key, and what the store has."""
    from gett.jit.workers import side_by_side

    start = time.perf_counter()
    with progress(len(tasks), "compiling kernels", shows_progress()) as step:
        made = side_by_side(lambda task: _begin(*task, arch, facts), [*tasks], step, lambda task: task[0].flops)
    if len(made) > 1:
        log_compiled(made, time.perf_counter() - start)
    return made


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
