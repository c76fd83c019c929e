"""From plans and compiled kernels to executables on the current device, and which devices run which kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gett.errors import DeviceError
from gett.hw.archs import arch_facts, capability
from gett.ir.gemm import GemmPlan
from gett.runtime.device import CupyHost, DeviceFacts, device_facts
from gett.runtime.driver import load_driver
from gett.runtime.executable import GpuExecutable
from gett.schedule.spec.schedule import Schedule

if TYPE_CHECKING:
    from gett.runtime.compiled import CompiledKernel


def build_executable(plan: GemmPlan, arch: str | None = None, schedule: Schedule | None = None) -> GpuExecutable:
    """Select a schedule, generate, compile and load: everything up to the first call, on the current device.

    Args:
        plan: What to compute.
        arch: Architecture to compile for; None is the current device's.
        schedule: How; None lets the cost model choose, the next best where registers turn out too few.

    Raises:
        MissingPackageError: CuPy or NVRTC is not installed.
        DeviceError: There is no usable GPU, or it cannot run kernels for `arch`.
        ScheduleError: No schedule meets the hard limits.
        CompileError: The generated kernel does not compile.
    """
    # Late: only building needs the compiler and the generator, and neither is loaded with the runtime.
    from gett.runtime.compiling import compile_best, compile_schedule

    facts = device_facts()
    arch = arch or facts.arch
    if schedule is not None:
        # Whoever names a schedule names its workspace.
        allowed = replace(arch_facts(schedule.arch), workspace_limit=schedule.workspace_bytes)
        check_arch(schedule.arch, facts)
        return load_executable(plan, compile_schedule(plan, schedule, facts=allowed))
    check_arch(arch, facts)
    return load_executable(plan, compile_best(plan, arch, facts.planning if arch == facts.arch else None))


def load_executable(plan: GemmPlan, compiled: CompiledKernel) -> GpuExecutable:
    """A compiled plan on the current device.

    Raises:
        MissingPackageError, DeviceError: There is no usable GPU, or it refuses the kernel.
    """
    from gett.schedule.packed import plan_in_roles

    schedule = compiled.schedule
    roles = plan_in_roles(plan, schedule)
    facts = device_facts().planning
    made = GpuExecutable(roles, schedule, compiled.kernel, compiled.cubin, CupyHost(), load_driver(), facts)
    made.measured = compiled.measured
    return made


def check_arch(arch: str, facts: DeviceFacts) -> None:
    """Refuse an architecture whose kernels a device cannot run.

    Raises:
        DeviceError: It cannot.
    """
    if not runs_on(arch, facts.compute_capability):
        raise DeviceError(f"kernels for {arch} do not run on {facts.name} ({facts.arch})")


def runs_on(arch: str, device: tuple[int, int]) -> bool:
    """Whether a cubin for `arch` loads on a device of a capability (CUDA C++ Programming Guide, binary compatibility).

    A cubin runs on later devices of its generation, an architecture-specific one (`sm_90a`) on its own alone.
    """
    major, minor = capability(arch)
    if arch.endswith("a"):
        return (major, minor) == device
    return major == device[0] and minor <= device[1]
