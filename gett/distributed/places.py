"""Where a process computes, and what it is called.

Knows neither plans nor how processes talk.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Sequence

from gett.arrays.kinds import CPU
from gett.errors import DeviceError

# The first is torchrun's, which Slurm may start once for all processes of a host.
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)


def local_number() -> int:
    """Which of the processes of this host this is, as far as a launcher or a pool tells; else 0."""
    for name in _LOCAL_RANKS:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    identity = getattr(multiprocessing.current_process(), "_identity", ())
    return int(identity[-1]) - 1 if identity else 0


def device_for(arch: str, number: int, devices: Sequence[int] | None = None) -> int:
    """The device on which a process of this host computes.

    Args:
        arch: What is planned for.
        number: Which of the processes of this host it is.
        devices: Those to choose from, by default all.

    Raises:
        DeviceError: There is no GPU here.
    """
    if arch == "cpu":
        return CPU
    from gett.runtime.device import require_cupy

    if devices is None:
        devices = range(require_cupy().cuda.runtime.getDeviceCount())
    if not devices:
        raise DeviceError(f"the contraction is planned for {arch}, and {name(CPU)} has no GPU")
    return devices[number % len(devices)]


def name(device: int) -> str:
    """A process and its device, for messages."""
    where = f"{socket.gethostname()}:{os.getpid()}"
    return where if device == CPU else f"{where} GPU {device}"
