"""The schedule store: for each contraction, the schedule that was measured or chosen, and the kernel made of it.

Owns what a schedule depends on, and therefore when it is stale. A key covers the plan's groups (extents and strides,
not the letters), dtypes, alignments and precision, the device and the compiler. It also covers every file that decides
schedules and kernels, so a new kernel or cost model finds an empty store. Entries are files beside the kernel cache,
with its guarantees (`gett.jit.directory`): processes may race, and a damaged or foreign file counts as absent. What was
measured is kept apart from what the model chose, so that many plans cannot push out the results of tuning.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gett.codec import Stale, decode, encode
from gett.codegen.records import Kernel
from gett.errors import MissingPackageError
from gett.ir.gemm import GemmPlan
from gett.jit.diskcache import KernelCache, kernel_cache
from gett.jit.entries import cache_key
from gett.jit.toolkit import find_toolkit
from gett.runtime.device import DeviceFacts
from gett.schedule.spec.schedule import Schedule

FOLDER = "schedules"
# Folders, with those below them, and the suffix of the files that count; single files.
SOURCES = (
    *(("kernels", ".cuh"), ("codegen", ".py"), ("schedule", ".py"), ("hw", ".py"), ("epilogue", ".py")),
    *(("../layouts", ".py"), ("schedule", ".gz"), ("jit/compile.py", ""), ("codec.py", "")),
)
ENTRY_BYTES = 12 << 10  # of a common entry; most of it is the kernel's text
MOST_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one contraction on one device.

    Attributes:
        schedule: How to run it.
        kernel: What it was rendered to.
        cubin: Key of the compiled kernel in the kernel cache.
        measured_us: Time on the device in microseconds; None for the model's choice.
        among: How many schedules were measured to find it; 0 for the model's choice.
    """

    schedule: Schedule
    kernel: Kernel
    cubin: bytes
    measured_us: float | None = None
    among: int = 0

    @property
    def tuned(self) -> bool:
        """Whether it was measured, rather than chosen by the model."""
        return self.measured_us is not None


class ScheduleStore:
    """Entries by key, tuned ones first. Safe for threads and processes.

    Args:
        directory: Made when first needed; None keeps entries in memory only.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._parts = {
            tuned: KernelCache(
                None if directory is None else directory / ("tuned" if tuned else "model"), MOST_ENTRIES * ENTRY_BYTES
            )
            for tuned in (True, False)
        }

    def find(self, key: bytes, *, tuned_only: bool = False) -> Entry | None:
        """The entry under a key, or None; a measured one before the model's choice."""
        for tuned in (True,) if tuned_only else (True, False):
            payload = self._parts[tuned].get(key)
            if payload is None:
                continue
            try:
                entry = decode(Entry, json.loads(payload))
            except (Stale, ValueError, RecursionError):  # the last from lists that are nested without end
                continue
            if entry.tuned is tuned:
                return entry
        return None

    def put(self, key: bytes, entry: Entry) -> None:
        """Keep an entry, in memory and on disk; one of the same kind is replaced."""
        payload = json.dumps(encode(entry), separators=(",", ":")).encode()
        self._parts[entry.tuned].put(key, payload)

    def count(self) -> tuple[int, int]:
        """Entries on disk: tuned, and chosen by the model."""
        return self._parts[True].info().entries, self._parts[False].info().entries

    def clear(self) -> int:
        """Forget all entries, in memory and on disk; returns how many were on disk.

        Raises:
            OSError: A file cannot be removed.
        """
        return sum(part.clear() for part in self._parts.values())


_current: tuple[KernelCache, ScheduleStore] | None = None


def schedule_store() -> ScheduleStore:
    """The process's store, beside its kernel cache: a change of the environment starts another.

    Raises:
        OptionError: A variable of `gett.env` has a value that it does not take.
    """
    global _current
    cache, known = kernel_cache(), _current
    if known is None or known[0] is not cache:
        directory = None if cache.distrust else cache.directory
        known = _current = (cache, ScheduleStore(None if directory is None else directory / FOLDER))
    return known[1]


def plan_key(plan: GemmPlan, facts: DeviceFacts) -> bytes | None:
    """The key of a plan on a device, or None where nothing can be remembered.

    That is where there is no compiler, or the package's files cannot be read.
    """
    try:
        compiler = find_toolkit().fingerprint
        sources = sources_digest()
    except (MissingPackageError, OSError):
        return None
    return cache_key(
        {
            "plan": plan.signature,
            "device": f"{facts.arch}|{facts.name}|{facts.sm_count}|{facts.l2_bytes}|{facts.workspace_limit}",
            "compiler": compiler,
            "sources": sources,
        }
    )


@lru_cache(maxsize=1)
def sources_digest() -> bytes:
    """Digest of the kernels, the generator, the schedules and the layouts below them.

    Raises:
        OSError: The package's files cannot be read, e.g. inside an archive.
    """
    root = Path(__file__).parent.parent
    contents: dict[str, bytes] = {}
    for place, suffix in SOURCES:
        folder = os.path.join(root, place)
        # Names are strings, since hundreds of paths take longer to make than files to read.
        below = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(suffix)]
        for path in sorted(below) if suffix else [folder]:
            with open(path, "rb") as file:
                contents[place + path[len(folder) :]] = file.read()
    return cache_key(contents)
