"""How long a call takes: CUDA events on a GPU, the host clock elsewhere. Knows nothing of tensors or rivals."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.records import Measurement

BUDGET_US = 150_000.0  # GPU time for one rival on one case
GIVE_UP_US = 100_000.0  # a call that takes longer is not repeated
MOST = 50
FEWEST = 5

# One thread that waits: the calls behind it queue up, so the host's launch time stays out of the events.
SPIN = r"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


def choose_repetitions(first_us: float, *, budget_us: float = BUDGET_US, most: int = MOST) -> int:
    """How often to repeat a call that took `first_us` once.

    0 when a single call takes longer than 100 ms (the first time then stands); else as often as the budget allows, at
    least 5 and at most `most` times.
    """
    if first_us > GIVE_UP_US:
        return 0
    return max(min(FEWEST, most), min(most, math.floor(budget_us / max(first_us, 1.0))))


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


def failure(error: BaseException) -> Measurement:
    """The measurement of a rival that raised."""
    return Measurement(error=f"{type(error).__name__}: {error}".strip()[:400])


class GpuTimer:
    """Times asynchronous calls on CuPy's current stream with CUDA events.

    Args:
        sets: Number of buffer sets; call `i` gets `i % sets`.
        budget_us: GPU time for all repetitions of one call, in microseconds.
        most: Largest number of repetitions.
    """

    def __init__(self, sets: int = 1, *, budget_us: float = BUDGET_US, most: int = MOST) -> None:
        import cupy

        self._cupy: Any = cupy
        self._spin = cupy.RawKernel(SPIN, "spin")
        self._sets = sets
        self._budget_us = budget_us
        self._most = most

    def measure(self, call: Callable[[int], object]) -> Measurement:
        """Times of `call(set)`; an exception becomes a measurement with its text."""
        try:
            return self._measure(call)
        except Exception as error:  # a rival that fails must not end the run
            return failure(error)

    def _measure(self, call: Callable[[int], object]) -> Measurement:
        stream = self._cupy.cuda.get_current_stream()
        call(0)  # loads modules, fills pools
        stream.synchronize()
        # The first timed call still contains its launch time: an upper bound is enough to choose the repetitions.
        (first,), host_us = self._queue(call, 1, wait_us=20.0)
        repetitions = choose_repetitions(first, budget_us=self._budget_us, most=self._most)
        if repetitions == 0:
            return summarise([first])
        times, _ = self._queue(call, repetitions, wait_us=min(20_000.0, 1.3 * host_us * repetitions + 50))
        return summarise(times)

    def _queue(self, call: Callable[[int], object], repetitions: int, wait_us: float) -> tuple[list[float], float]:
        cuda = self._cupy.cuda
        stream = cuda.get_current_stream()
        events = [cuda.Event() for _ in range(repetitions + 1)]
        self._spin((1,), (1,), (self._cupy.uint64(int(wait_us * 1000)),))
        events[0].record(stream)
        start = time.perf_counter()
        for i in range(repetitions):
            call(i % self._sets)
            events[i + 1].record(stream)
        host_us = (time.perf_counter() - start) * 1e6 / repetitions
        events[-1].synchronize()
        return [float(cuda.get_elapsed_time(e0, e1)) * 1000 for e0, e1 in itertools.pairwise(events)], host_us


def measure_cpu(
    calls: Mapping[str, Callable[[], object]], *, rounds: int = 5, budget_s: float = 2.0
) -> dict[str, Measurement]:
    """Best-of-n times of several calls, interleaved so that a busy moment of the machine meets them all.

    Args:
        calls: The rivals by name.
        rounds: How often each is timed, after one warm-up call.
        budget_s: No new round starts after this many seconds (at least one round is run).
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    errors: dict[str, Measurement] = {}
    begin = time.perf_counter()
    for turn in range(rounds + 1):
        if turn > 1 and time.perf_counter() - begin > budget_s:
            break
        for name, call in calls.items():
            if name in errors:
                continue
            start = time.perf_counter()
            try:
                call()
            except Exception as error:  # a rival that fails must not end the run
                errors[name] = failure(error)
                continue
            if turn:
                times[name].append((time.perf_counter() - start) * 1e6)
    return {name: errors[name] if name in errors else summarise(times[name], best=True) for name in calls}


def host_time_us(
    call: Callable[[], object], finish: Callable[[], object], *, calls: int = 200, blocks: int = 7
) -> float:
    """Host time of one call in microseconds: median over blocks of many asynchronous calls in a row.

    Args:
        call: The call; it may return before its work is done.
        finish: Waits for the work; it runs between the blocks, outside the clock.
        calls: Calls in a block.
        blocks: Number of blocks, after one that is not counted.
    """
    medians = []
    for _ in range(blocks + 1):
        finish()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        medians.append((time.perf_counter() - start) * 1e6 / calls)
    finish()
    return statistics.median(medians[1:])
