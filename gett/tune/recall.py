"""Executables from the schedule store: what an earlier process searched, rendered and compiled is loaded at once.

Owns the order: measured schedules, then the model's remembered choice, then a search, which is remembered once its
kernel has compiled well. Knows nothing of measuring.
"""

from __future__ import annotations

from gett.errors import GettError
from gett.jit.diskcache import kernel_cache
from gett.plan import GemmPlan
from gett.runtime.device import CupyHost, device_facts
from gett.runtime.driver import load_driver
from gett.runtime.executable import GpuExecutable, build_executable
from gett.schedule.realize import realize
from gett.tune.store import Entry, plan_key, schedule_store


def build_remembered(plan: GemmPlan, arch: str | None = None, *, tuned_only: bool = False) -> GpuExecutable | None:
    """The executable of a plan on the current device, from the store where it is there, else from the cost model.

    Args:
        plan: What to compute.
        arch: Architecture to compile for; None is the current device's. Another one is not looked up.
        tuned_only: Give back only what was measured, None where nothing was.

    Raises:
        GettError: As `build_executable`.
    """
    facts = device_facts()
    key = plan_key(plan, facts) if arch in (None, facts.arch) else None
    if key is not None:
        entry = schedule_store().find(key, tuned_only=tuned_only)
        executable = None if entry is None else revive(plan, entry)
        if executable is not None:
            return executable
    if tuned_only:
        return None
    executable = build_executable(plan, arch)
    if key is not None:
        remember(key, executable)
    return executable


def remember(key: bytes, executable: GpuExecutable, measured_us: float | None = None, among: int = 0) -> None:
    """Store an executable's schedule and kernel, which was compiled just now."""
    from gett.jit.compile import kernel_key

    kernel = executable.kernel
    # Where every candidate spills, the kernel is kept under the key that says that it may.
    cubins = (kernel_key(kernel.source, kernel.arch, allow_spills=allow) for allow in (False, True))
    cubin = next((c for c in cubins if kernel_cache().get(c) is not None), None)
    if cubin is not None and executable.schedule is not None:
        schedule_store().put(key, Entry(executable.schedule, kernel, cubin, measured_us, among))


def revive(plan: GemmPlan, entry: Entry) -> GpuExecutable | None:
    """The executable of an entry, or None where it cannot be had any more; a lost cubin is compiled again."""
    cubin = kernel_cache().get(entry.cubin)
    try:
        if cubin is None:
            from gett.jit.compile import compile_kernel

            cubin = compile_kernel(entry.kernel.source, entry.kernel.arch)
        made = GpuExecutable(
            realize(plan, entry.schedule), entry.schedule, entry.kernel, cubin, CupyHost(), load_driver()
        )
    except GettError:
        return None
    if entry.measured_us is not None:
        made.measured = (entry.measured_us, entry.among)
    return made
