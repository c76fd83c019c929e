"""A program of several ranks, which writes what each saw: mpiexec -n 4 python rank_program.py CASE FOLDER [RESUME].

With the variables of torchrun in its environment, it runs over PyTorch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from communicators import world
from problems import operands, plan

import gett
from gett.slices.recipe import Worker

comm, rank, size = world()
case, folder, *resume = sys.argv[1:]
arrays = operands(7, exact=case == "exact")
made = plan(arrays)
first, last = rank == 0, rank == size - 1
summed, tasks = Worker.sum, [0]


def sum_some(self, node, each=lambda: None):
    """The sum; in some cases the last rank fails at its second task, or is killed, or hangs."""
    tasks[0] += 1
    if last and tasks[0] == 2:
        if case == "fails":
            raise FloatingPointError("slice went wrong")
        if case == "killed":
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        if case == "hangs":
            time.sleep(2.5)
    if case == "killed":
        time.sleep(0.02)
    return summed(self, node, each)


Worker.sum = sum_some  # type: ignore[method-assign]
if case == "out":
    from gett.distributed import channel

    channel._PIECE = 1000  # bytes of a message: arrays go in several
given = None if case == "given" and not first else arrays
options = {"root": size - 1} if case == "root" else {}
if resume:
    options["resume"] = resume[0]
if case == "differ" and last:
    arrays[1][0, 0, 0] += 1
if case == "fewer" and last:
    given = arrays[:2]
if case == "late" and last:
    time.sleep(3)
out = np.empty((24, 24)) if case == "out" else None
if out is not None:
    options["out"] = out
if case == "bad" and first:
    given = [arrays[0]]
if case == "nothing" and first:
    given = None
report = gett.distributed.Report(False)
try:
    found = gett.distributed.contract(
        made if first else None, given, comm=comm, slices=64, timeout=1 if case in ("late", "hangs") else 60,
        report=report, **options,
    )  # fmt: skip
    assert out is None or found is out
    if found is not None:
        np.save(Path(folder, f"{rank}.npy"), found)
    text = f"{len(report.slices)} {sum(report.slices.values())} {report.resumed}" if first else ""
except gett.GettError as error:
    text = f"{type(error).__name__}: {error}"
Path(folder, f"{rank}.txt").write_text(text)
