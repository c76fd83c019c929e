"""How long calls take: on a GPU by gett's clock, elsewhere by the host's; failures are kept. Knows no tensors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from gett.measure.timer import BUDGET_US, MOST, EventTimer, Measurement, summarise


def failure(error: BaseException) -> Measurement:
    """The measurement of a rival that raised."""
    return Measurement(error=f"{type(error).__name__}: {error}".strip()[:400])


class GpuTimer:
    """Times asynchronous calls on CuPy's current stream, as `EventTimer` does.

    Args:
        sets: Number of buffer sets; call `i` gets `i % sets`.
        budget_us: GPU time for all repetitions of one call, in microseconds.
        most: Largest number of repetitions.
    """

    def __init__(self, sets: int = 1, *, budget_us: float = BUDGET_US, most: int = MOST) -> None:
        import cupy

        self._timer = EventTimer(cupy, sets, budget_us=budget_us, most=most)

    def measure(self, call: Callable[[int], object]) -> Measurement:
        """Times of `call(set)`; an exception becomes a measurement with its text."""
        try:
            return summarise(self._timer.times(call))
        except Exception as error:  # a rival that fails must not end the run
            return failure(error)


#: Seconds of rest before a call is timed: OpenBLAS's and TBLIS's threads wait actively for a while after each call.
REST_S = 0.03


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
            if len(calls) > 1:
                time.sleep(REST_S)
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
