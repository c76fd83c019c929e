"""`Report`: what is told of a distributed contraction while it runs, and afterwards.

Owns the progress bar with slices, rate and time left, and who did how much.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack

from gett.console.formatting import count, format_quantity, format_seconds
from gett.console.progress import progress
from gett.env import shows_progress
from gett.slices.distributed_plan import Job
from gett.slices.sums import Node


class Report:
    """Counts slices as they are done.

    Attributes:
        slices: By worker.
        resumed: Slices whose sums an earlier run had saved.
        seconds: From the first task to the last.
    """

    def __init__(self, shown: bool | None = None) -> None:
        """Nothing yet; `shown` is whether there is a progress bar, by default on a terminal."""
        self.slices: Counter[str] = Counter()
        self.resumed, self.seconds = 0, 0.0
        self._shown = shows_progress() if shown is None else shown
        self._stack = ExitStack()
        self._flops = 0

    def begin(self, job: Job, done: Iterable[Node]) -> None:
        """A job begins, of which some nodes are done."""
        self.slices.clear()
        self.resumed = sum(map(job.slices, done))
        self._flops, self._start = job.flops, time.monotonic()
        total = job.grid.parts * job.grid.summed
        self._tell = self._stack.enter_context(progress(total - self.resumed, "slices", self._shown))

    def step(self, worker: str, slices: int) -> None:
        """A worker has done some slices."""
        self.slices[worker] += slices
        self.seconds = time.monotonic() - self._start
        rate = self._flops * sum(self.slices.values()) / max(self.seconds, 1e-9)
        self._tell(f"{format_quantity(rate)}FLOP/s", slices)

    def end(self) -> None:
        """The job has ended, in one way or the other."""
        self._stack.close()

    def __str__(self) -> str:
        """Who has done how much, in one line."""
        done = sum(self.slices.values())
        rate = format_quantity(self._flops * done / max(self.seconds, 1e-9))
        who = ", ".join(f"{worker} {n}" for worker, n in sorted(self.slices.items()))
        before = f", {self.resumed} more were saved before" if self.resumed else ""
        return f"{count(done, 'slice')} in {format_seconds(self.seconds)}, {rate}FLOP/s: {who}{before}"
