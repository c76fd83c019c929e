"""One clock, one verifier and one list of rivals for tuner, commands and benchmarks, without a GPU."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.rivals.table import ON_CPU, ON_GPU, Libraries, Setting, in_c_order
from benchmarks.timing import GpuTimer
from gett.cli.measure import time_gpu
from gett.cli.problem import parse_problem
from gett.cli.rivals import GPU_RIVALS, find_rivals
from gett.measure.timer import EventTimer
from gett.measure.verify import poison, verify
from tests.cpu.host_cupy import HostCupy


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


# --- rivals


def numbers(*shape: int) -> Any:
    return np.random.default_rng(math.prod(shape)).integers(-3, 4, shape).astype(np.float64)


@pytest.fixture
def _numpy_for_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", np)
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("_numpy_for_cupy")
@pytest.mark.parametrize("subscripts", ["ak,kb->ba", "zak,bkz->abz"])
@pytest.mark.parametrize("name", ["ttgt", "cupy.einsum", "numpy.einsum", "opt_einsum"])
def test_rivals_of_the_one_list_compute_the_einsum_on_each_set(name: str, subscripts: str) -> None:
    extents = {"z": 2, "a": 3, "b": 4, "k": 5}
    terms = subscripts.replace("->", ",").split(",")
    shapes = [tuple(extents[x] for x in term) for term in terms]
    sets = [tuple(i + numbers(*s) for s in shapes) for i in range(2)]
    prepare = (ON_GPU | ON_CPU)[name]
    call = prepare(Setting(subscripts, "float64", None, sets, Libraries()))
    for i in (1, 0):
        expected = np.einsum(subscripts, *sets[i][:-1])
        np.testing.assert_array_equal(in_c_order(call(i)), expected)


def test_gett_is_prepared_like_any_rival() -> None:
    a, b, d = numbers(3, 5), numbers(5, 4), np.full((4, 3), np.nan)
    setting = Setting("ak,kb->ba", "float64", None, [(a, b, d)], Libraries())
    assert ON_GPU["gett"](setting)(0) is d
    np.testing.assert_array_equal(d, (a @ b).T)
    assert setting.plan.subscripts == "ak,kb->ba"


@pytest.mark.usefixtures("_numpy_for_cupy")
def test_a_product_of_equal_size_uses_the_same_memory() -> None:
    a, b, d = numbers(3, 5), numbers(5, 4), np.full((4, 3), np.nan)
    ON_GPU["cublas"](Setting("ak,kb->ba", "float64", None, [(a, b, d)], Libraries()))(0)
    np.testing.assert_array_equal(d.reshape(3, 4), a @ b)
    a, b, d = numbers(2, 3, 5), numbers(2, 5, 4), np.full((2, 3, 4), np.nan)
    ON_GPU["cublas"](Setting("zak,zkb->zab", "float64", None, [(a, b, d)], Libraries()))(0)
    np.testing.assert_array_equal(d, a @ b)


@pytest.mark.usefixtures("_numpy_for_cupy")
def test_a_command_on_a_gpu_times_those_that_work_in_c_order_and_names_the_others() -> None:
    problem = parse_problem("ak,kb,bc->ca", "4", "float64")
    operands = [numbers(4, 4) for _ in range(3)]
    calls, reasons = find_rivals(problem, operands, np.empty((4, 4)), None, gpu=True)
    assert set(calls) == {"cupy.einsum"}
    result = calls["cupy.einsum"]()
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, np.einsum("ak,kb,bc->ca", *operands))
    assert set(reasons) == set(GPU_RIVALS) - {"cupy.einsum"}
    assert "PyTorch is not installed" in reasons["torch.einsum"]


def test_a_strided_result_is_copied_and_another_is_not() -> None:
    x = numbers(3, 4)
    assert in_c_order(x) is x
    assert in_c_order(x.T).flags.c_contiguous
