"""A compiled kernel with the schedule that it runs, as the store and the runtime hand it on; counts of these."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from gett.codegen.records import Kernel
from gett.console.formatting import count, format_seconds
from gett.schedule.spec.schedule import Schedule

_log = logging.getLogger("gett")


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A schedule with the kernel that was made of it.

    Attributes:
        schedule: How the plan is run.
        kernel: The generated source and launches.
        cubin: The compiled source.
        spills: Whether the compiler found no way without spilled registers or serialised tensor-core instructions.
        measured: (microseconds, among how many schedules) where the schedule was found by measuring, else None.
        compile_s: Seconds that the compiler took; None where the kernel was in the cache.
    """

    schedule: Schedule
    kernel: Kernel
    cubin: bytes
    spills: bool = False
    measured: tuple[float, int] | None = None
    compile_s: float | None = None


def compiled_and_found(made: Iterable[CompiledKernel]) -> tuple[int, int]:
    """How many texts of kernels were compiled, and how many the cache had; plans may share a text."""
    texts: dict[tuple[str, str], bool] = {}
    for x in made:
        text = x.kernel.source.text, x.kernel.arch
        texts[text] = texts.get(text, False) or x.compile_s is not None
    return sum(texts.values()), len(texts) - sum(texts.values())


def log_compiled(made: Iterable[CompiledKernel], seconds: float) -> None:
    """A line of the log for kernels that were made side by side."""
    compiled, found = compiled_and_found(made)
    _log.info("built %s in %s, found %d in the cache", count(compiled, "kernel"), format_seconds(seconds), found)
