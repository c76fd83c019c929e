"""On what the figures were taken: versions, device, clocks, commit, date."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_PACKAGES = (
    "numpy",
    "opt_einsum",
    "pytblis",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "torch",
    "jax",
    "jaxlib",
    "cutensor-cu13",
    "cutensor-cu12",
    "nvidia-cublas",
    "nvidia-cuda-nvrtc",
)
_SHARED_FIRST = "GETT_SHARED_FIRST"
_CLOCKS = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,power.draw,temperature.gpu"


def gpu_available() -> bool:
    """Whether CuPy is installed and finds a device."""
    if importlib.util.find_spec("cupy") is None:
        return False
    with contextlib.suppress(Exception):
        import cupy

        return bool(cupy.is_available())
    return False


def processor() -> str:
    """The name of the CPU, as far as the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the working tree, with `+` where tracked files were changed; None outside a repository."""
    root = Path(__file__).resolve().parent.parent
    head = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    if not head:
        return None
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return head + ("+" if changed else "")


@contextlib.contextmanager
def own_kernels() -> Iterator[None]:
    """Within it, calls wait for kernels of their own, since those that stand in are not what is timed.

    Who has set the variable has the last word.
    """
    given = _SHARED_FIRST in os.environ
    os.environ.setdefault(_SHARED_FIRST, "0")
    try:
        yield
    finally:
        if not given:
            del os.environ[_SHARED_FIRST]


def clocks() -> dict[str, str]:
    """What nvidia-smi says of the first device now; empty where there is no nvidia-smi."""
    text = _output(["nvidia-smi", f"--query-gpu={_CLOCKS}", "--format=csv,noheader", "--id=0"])
    values = [v.strip() for v in text.splitlines()[0].split(",")] if text else []
    return dict(zip(_CLOCKS.split(","), values, strict=False))


def describe(label: str | None = None) -> dict[str, Any]:
    """Versions, host, commit and date; `label` is the user's own remark."""
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "label": label,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": versions,
    }
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401 - loads the BLAS that is asked about
        import threadpoolctl

        keys = ("internal_api", "version", "architecture", "num_threads")
        found["blas"] = [{k: i.get(k) for k in keys} for i in threadpoolctl.threadpool_info()]
    return found


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
