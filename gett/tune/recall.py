"""Executables from the schedule store: what an earlier process searched, rendered and compiled is loaded at once.

Owns the order: measured schedules, then the model's remembered choice, then a search, which is remembered once its
kernel has compiled well. Knows nothing of measuring.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gett.errors import GettError
from gett.jit.diskcache import kernel_cache
from gett.plan import GemmPlan
from gett.progress import on_terminal, progress
from gett.runtime.compiled import CompiledKernel, compile_best, side_by_side
from gett.runtime.device import DeviceFacts, device_facts
from gett.runtime.executable import GpuExecutable, check_arch, load_executable
from gett.tune.store import Entry, plan_key, schedule_store, signature

_log = logging.getLogger("gett")


def build_remembered(plan: GemmPlan, arch: str | None = None, *, tuned_only: bool = False) -> GpuExecutable | None:
    """The executable of a plan on the current device, from the store where it is there, else from the cost model.

    Args:
        plan: What to compute.
        arch: Architecture to compile for; None is the current device's. Another one is not looked up.
        tuned_only: Give back only what was measured, None where nothing was.

    Raises:
        GettError: As `build_executable`.
    """
    if not tuned_only:
        return build_all([plan], arch)[0]
    facts = device_facts()
    key = plan_key(plan, facts) if arch in (None, facts.arch) else None
    compiled = None if key is None else _recalled(plan, key, tuned_only=True)
    return None if compiled is None else load_executable(plan, compiled)


def build_all(plans: Sequence[GemmPlan], arch: str | None = None) -> list[GpuExecutable]:
    """The executables of several plans, as `build_remembered` makes them; what must be compiled is, side by side.

    Raises:
        GettError: As `build_executable`.
    """
    facts = device_facts()
    arch = arch or facts.arch
    check_arch(arch, facts)
    distinct = {signature(plan): plan for plan in plans}
    with progress(len(distinct), "compiling kernels", on_terminal()) as step:
        made = side_by_side(lambda plan: _compiled(plan, arch, facts), list(distinct.values()), step)
    compiled = dict(zip(distinct, made, strict=True))
    return [load_executable(plan, compiled[signature(plan)]) for plan in plans]


def _compiled(plan: GemmPlan, arch: str, facts: DeviceFacts) -> CompiledKernel:
    """The remembered kernel of a plan, else the model's best, which is then remembered."""
    key = plan_key(plan, facts) if arch == facts.arch else None
    found = None if key is None else _recalled(plan, key)
    if found is None:
        found = compile_best(plan, arch, facts.planning if arch == facts.arch else None)
        if key is not None:
            remember(key, found)
    return found


def remember(key: bytes, compiled: CompiledKernel) -> None:
    """Store a schedule with its kernel."""
    from gett.jit.compile import kernel_key

    cubin = kernel_key(compiled.kernel.source, compiled.kernel.arch, allow_spills=compiled.spills)
    measured_us, among = compiled.measured or (None, 0)
    schedule_store().put(key, Entry(compiled.schedule, compiled.kernel, cubin, measured_us, among))


def _recalled(plan: GemmPlan, key: bytes, *, tuned_only: bool = False) -> CompiledKernel | None:
    """What the store has of a plan, None where that cannot be had any more; a lost cubin is compiled again."""
    entry = schedule_store().find(key, tuned_only=tuned_only)
    if entry is None:
        return None
    cubin = kernel_cache().get(entry.cubin)
    try:
        if cubin is None:
            from gett.jit.compile import compile_kernel

            cubin = compile_kernel(entry.kernel.source, entry.kernel.arch)
    except GettError:
        return None
    _log.debug("found the kernel of %s, %s", plan.contraction, "measured" if entry.tuned else "chosen by the model")
    measured = None if entry.measured_us is None else (entry.measured_us, entry.among)
    return CompiledKernel(entry.schedule, entry.kernel, cubin, measured=measured)
