"""How long a call takes on a GPU, by CUDA events; how often to repeat it, and what its times come to.

Owns the one clock that the tuner, the commands and the benchmarks share. Knows nothing of tensors or rivals; CuPy is
handed to it.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

BUDGET_US = 150_000.0  # GPU time for all repetitions of one call
GIVE_UP_US = 100_000.0  # a call that takes longer is not repeated
MOST = 50
FEWEST = 5

# One thread that waits: the calls behind it queue up, so the host's launch time stays out of the events.
WAIT = r"""
extern "C" __global__ void gett_wait(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


@dataclass(slots=True)
class Measurement:
    """Times of one call, in microseconds.

    Attributes:
        median_us: Median of the repetitions (or the best, where that was asked for), None where the call failed.
        low_us: Fastest repetition.
        spread_us: Distance between the quartiles.
        repetitions: How many calls were timed.
        error: What it said when it failed.
    """

    median_us: float | None = None
    low_us: float | None = None
    spread_us: float | None = None
    repetitions: int = 0
    error: str | None = None


def choose_repetitions(
    first_us: float,
    *,
    budget_us: float = BUDGET_US,
    most: int = MOST,
    fewest: int = FEWEST,
    give_up_us: float = GIVE_UP_US,
) -> int:
    """How often to repeat a call that took `first_us` once.

    0 when a single call takes longer than `give_up_us` (the first time then stands); else as often as the budget
    allows, at least `fewest` and at most `most` times.
    """
    if first_us > give_up_us:
        return 0
    return max(min(fewest, most), min(most, math.floor(budget_us / max(first_us, 1.0))))


def sets_to_rotate(bytes_per_set: int, l2_bytes: int, *, most: int = 64) -> int:
    """How many copies of the tensors to visit in turn, so that none is found in the L2 cache.

    One copy is enough when it is larger than three times the cache; else as many as fill that.
    """
    return max(1, min(most, math.ceil(3 * l2_bytes / max(bytes_per_set, 1))))


def summarise(times_us: list[float], *, best: bool = False) -> Measurement:
    """Median (or the best), lowest and quartile distance of a list of times in microseconds."""
    ordered = sorted(times_us)
    spread = 0.0
    if len(ordered) > 1:
        q = statistics.quantiles(ordered, n=4, method="inclusive")
        spread = q[2] - q[0]
    middle = ordered[0] if best else statistics.median(ordered)
    return Measurement(middle, ordered[0], spread, len(ordered))


class EventTimer:
    """Times asynchronous calls on CuPy's current stream with CUDA events.

    Args:
        cupy: The CuPy module.
        sets: Number of buffer sets; call `i` gets `i % sets`.
        budget_us: GPU time for all repetitions of one call, in microseconds.
        most: Largest number of repetitions.
        fewest: Smallest number of repetitions, whatever the budget.
        give_up_us: A call that takes longer is not repeated.
    """

    def __init__(
        self,
        cupy: Any,
        sets: int = 1,
        *,
        budget_us: float = BUDGET_US,
        most: int = MOST,
        fewest: int = FEWEST,
        give_up_us: float = GIVE_UP_US,
    ) -> None:
        self._cupy, self._sets = cupy, sets
        self._wait = cupy.RawKernel(WAIT, "gett_wait")
        self._most = most
        self._repetitions = partial(choose_repetitions, budget_us=budget_us, fewest=fewest, give_up_us=give_up_us)

    def times(self, call: Callable[[int], object], most: int | None = None) -> list[float]:
        """Microseconds of each repetition of `call(set)`.

        Args:
            call: Only launches work.
            most: Largest number of repetitions, instead of the timer's own.
        """
        call(0)  # loads modules, fills pools
        self._cupy.cuda.get_current_stream().synchronize()
        # The first timed call still contains its launch time: an upper bound is enough to choose the repetitions.
        (first,), host_us = self._queue(call, 1, wait_us=20.0)
        repetitions = self._repetitions(first, most=self._most if most is None else most)
        if repetitions == 0:
            return [first]
        return self._queue(call, repetitions, wait_us=min(20_000.0, 1.3 * host_us * repetitions + 50.0))[0]

    def _queue(self, call: Callable[[int], object], repetitions: int, wait_us: float) -> tuple[list[float], float]:
        cuda = self._cupy.cuda
        stream = cuda.get_current_stream()
        events = [cuda.Event() for _ in range(repetitions + 1)]
        self._wait((1,), (1,), (np.uint64(int(wait_us * 1000)),))
        events[0].record(stream)
        start = time.perf_counter()
        for i in range(repetitions):
            call(i % self._sets)
            events[i + 1].record(stream)
        host_us = (time.perf_counter() - start) * 1e6 / repetitions
        events[-1].synchronize()
        return [1e3 * float(cuda.get_elapsed_time(e0, e1)) for e0, e1 in itertools.pairwise(events)], host_us
