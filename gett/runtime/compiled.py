"""A compiled kernel with the schedule that it runs, as the schedule store and the runtime hand it on."""

from __future__ import annotations

from dataclasses import dataclass

from gett.codegen.records import Kernel
from gett.schedule.spec.schedule import Schedule


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
