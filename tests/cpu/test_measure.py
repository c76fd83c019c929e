"""One clock and one verifier for the tuner, the commands and the benchmarks, without a GPU."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.timing import GpuTimer
from gett.cli.measure import time_gpu
from gett.measure.timer import EventTimer
from gett.measure.verify import poison, verify
from tests.cpu.test_tune_measure import HostCupy


class Work:
    """Calls that take 40 us on the device, and which buffer sets they were given."""

    def __init__(self, cupy: HostCupy, us: float = 40.0) -> None:
        self.cupy, self.us, self.visited = cupy, us, []  # type: ignore[var-annotated]

    def __call__(self, i: int) -> None:
        self.visited.append(i)
        self.cupy.now += self.us


def test_events_give_the_device_s_time_and_sets_take_turns() -> None:
    cupy = HostCupy()
    work = Work(cupy)
    assert EventTimer(cupy, 3, most=7).times(work) == [40.0] * 7
    assert work.visited == [0, 0, 0, 1, 2, 0, 1, 2, 0]  # a warm one, a first one, then in turn
    assert len(cupy.waits) == 2
    assert EventTimer(cupy).times(Work(cupy, 1e6)) == [1e6]  # the first time stands
    assert len(EventTimer(cupy, give_up_us=math.inf, fewest=3).times(Work(cupy, 1e6))) == 3


def test_the_commands_and_the_benchmarks_use_that_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = HostCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    work = Work(cupy)
    timing = time_gpu([lambda: work(0), lambda: work(1)], 5)
    assert (timing.repeats, timing.seconds) == (5, pytest.approx(40e-6))
    assert len(cupy.waits) == 2  # a kernel waits in front, so that launches cost nothing
    found = GpuTimer(2).measure(work)
    assert (found.median_us, found.repetitions, len(cupy.waits)) == (40.0, 50, 4)

    def failing(i: int) -> None:
        raise RuntimeError("no such kernel")

    assert GpuTimer().measure(failing).error == "RuntimeError: no such kernel"


def test_the_bound_grows_with_the_root_of_the_length_alone() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (1 << 20,)).astype(np.float32)
    b = rng.uniform(-1, 1, (1 << 20,)).astype(np.float32)
    right = np.einsum("k,k->", a.astype(float), b.astype(float)).astype(np.float32)
    magnitude = float(np.abs(a.astype(float) * b).sum())
    assert verify("k,k->", (a, b), np.asarray(right), [a.size], np).ok
    # An error that a bound of K eps, twice 6 % of the magnitude, would let pass.
    wrong = np.asarray(right + np.float32(1e-3 * magnitude))
    assert not verify("k,k->", (a, b), wrong, [a.size], np).ok


def test_an_element_whose_products_are_zero_must_be_exact() -> None:
    a, b = np.zeros((3, 4), np.float32), np.ones((4, 2), np.float32)
    d = np.zeros((3, 2), np.float32)
    assert verify("ij,jk->ik", (a, b), d, [4], np).ratio == 0
    d[1, 1] = np.finfo(np.float32).smallest_subnormal
    assert verify("ij,jk->ik", (a, b), d, [4], np).ratio > 1


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32", "uint16", "int8"])
def test_what_was_never_written_shows(dtype: str) -> None:
    a = np.ones((3, 4), dtype)
    d: Any = np.empty((3,), dtype)
    poison(d)
    verdict = verify("ij->i", (a,), d, [4], np)
    assert not verdict.ok
    assert verdict.ratio == math.inf
    assert verdict.differing == (3 if verdict.exact else 0)
