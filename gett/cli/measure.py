"""Times on the CPU and on the GPU, and what this machine can do at most.

Knows functions to call and nothing of contractions.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.measure.timer import EventTimer

BUDGET_S = 0.4  # for the timed calls of one candidate, unless the user says how many
FEWEST_REPEATS, MOST_REPEATS = 3, 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the median of `repeats`."""

    seconds: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the machine does at most, measured: bytes read and written a second, flops a second."""

    bandwidth: float
    flops: float

    def share(self, flops: float, nbytes: float, seconds: float) -> float:
        """Share of the roofline: the least time that these peaks allow, divided by the time taken."""
        return max(nbytes / self.bandwidth, flops / self.flops) / seconds


def choose_repeats(once: float, budget: float = BUDGET_S) -> int:
    """Calls that fit into the budget when one takes `once` seconds: at least 3, at most 200."""
    return max(FEWEST_REPEATS, min(MOST_REPEATS, int(budget / max(once, 1e-9))))


def time_cpu(call: Callable[[], Any], repeat: int | None = None) -> Timing:
    """Time a function that returns when its work is done."""
    start = time.perf_counter()
    call()
    n = repeat or choose_repeats(time.perf_counter() - start)
    samples = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return Timing(statistics.median(samples), n)


def time_gpu(calls: Sequence[Callable[[], Any]], repeat: int | None = None) -> Timing:
    """Time functions that only launch work on CuPy's current stream, with events; the calls take turns.

    Several calls with buffers of their own keep the second-level cache from holding the inputs. Host time stays out.
    """
    import cupy

    timer = EventTimer(
        cupy,
        len(calls),
        budget_us=1e6 * BUDGET_S,
        most=repeat or MOST_REPEATS,
        fewest=repeat or FEWEST_REPEATS,
        give_up_us=math.inf,
    )
    times = timer.times(lambda i: calls[i]())
    return Timing(1e-6 * statistics.median(times), len(times))


def measure_cpu_peaks(dtype: str) -> Peaks:
    """Copy speed of 64 MB and the speed of a square matrix product, both briefly."""
    source = np.ones(1 << 23)
    target = np.empty_like(source)
    copy = time_cpu(lambda: np.copyto(target, source), 5)
    kind = np.dtype(dtype).kind
    # Half precision goes through BLAS's single precision; integers have no BLAS and are slow.
    work = "float32" if dtype == "float16" else dtype
    n = 1024 if kind in "fc" else 192
    a, out = np.ones((n, n), work), np.empty((n, n), work)
    product = time_cpu(lambda: np.matmul(a, a, out=out), 5)
    return Peaks(2 * source.nbytes / copy.seconds, _matmul_flops(n, kind) / product.seconds)


def measure_gpu_peaks(dtype: str) -> Peaks:
    """Copy speed of 1 GB (or an eighth of the free memory) and the speed of a large cuBLAS product."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    source = cupy.ones(min(1 << 30, free // 8), cupy.uint8)
    target = cupy.empty_like(source)
    copy = time_gpu([lambda: cupy.copyto(target, source)], 10)
    kind = np.dtype(dtype).kind
    n = 512 if kind in "biu" else 4096 if np.dtype(dtype).itemsize >= 8 else 8192
    a = cupy.random.random((n, n), dtype="float32").astype(dtype)
    out = cupy.empty_like(a)
    product = time_gpu([lambda: cupy.matmul(a, a, out=out)], 5)
    return Peaks(2 * source.nbytes / copy.seconds, _matmul_flops(n, kind) / product.seconds)


def _matmul_flops(n: int, kind: str) -> float:
    return (8.0 if kind == "c" else 2.0) * n**3
