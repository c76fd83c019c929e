"""Where a command runs: NumPy on the CPU, or CuPy on its current GPU.

Owns the choice and the few things that differ: the array module, copies to and fro, peaks, the machine's name.
"""

from __future__ import annotations

import importlib
import os
import platform
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from gett.cli.measure import Peaks, measure_cpu_peaks, measure_gpu_peaks
from gett.errors import INSTALL_GPU, DeviceError, GettError, MissingPackageError


@dataclass(frozen=True, slots=True)
class Place:
    """A machine to run on.

    Attributes:
        xp: `numpy` or `cupy`.
        arch: `"cpu"`, or the GPU's architecture such as `"sm_90a"`.
        name: For people, e.g. "NVIDIA H200".
        l2_bytes: The GPU's second-level cache; 0 on the CPU.
    """

    xp: ModuleType
    arch: str
    name: str
    l2_bytes: int = 0

    @property
    def is_gpu(self) -> bool:
        """Whether arrays live on a GPU."""
        return self.arch != "cpu"

    def put(self, array: Any) -> Any:
        """A NumPy array as an array of this place."""
        return self.xp.asarray(array)

    def fetch(self, array: Any) -> Any:
        """An array of this place as a NumPy array."""
        return self.xp.asnumpy(array) if self.is_gpu else np.asarray(array)

    def measure_peaks(self, dtype: str) -> Peaks:
        """Copy and matrix-product speed, measured now."""
        return measure_gpu_peaks(dtype) if self.is_gpu else measure_cpu_peaks(dtype)


def find_place(wanted: str | None) -> Place:
    """The GPU (`"gpu"`), the CPU (`"cpu"`), or the GPU where there is a usable one (None).

    Raises:
        MissingPackageError: A GPU is wanted and CuPy is not installed.
        DeviceError: A GPU is wanted and there is no driver or no GPU.
    """
    if wanted == "cpu":
        return _cpu()
    try:
        return _gpu()
    except (MissingPackageError, DeviceError):
        if wanted == "gpu":
            raise
        return _cpu()
    except ImportError as error:
        if wanted == "gpu":
            raise MissingPackageError(f"CuPy cannot be imported ({error}): {INSTALL_GPU}") from error
        return _cpu()


def why_no_gpu() -> str:
    """Why `find_place(None)` is the CPU, in one line."""
    try:
        _gpu()
    except (GettError, ImportError) as error:
        return str(error).splitlines()[0]
    return ""


def _cpu() -> Place:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processor = platform.processor() or platform.machine()
    return Place(np, "cpu", f"CPU ({processor}, {threads} threads, NumPy {np.__version__})")


def _gpu() -> Place:
    from gett.runtime.device import device_facts

    facts = device_facts()
    cupy = importlib.import_module("cupy")
    return Place(cupy, facts.arch, f"{facts.name} ({facts.arch}, CuPy {cupy.__version__})", facts.l2_bytes)
