"""Launches of several steps: addresses in their argument, tables, other devices; the driver is a stand-in."""

from __future__ import annotations

import ctypes
import itertools
import types
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays.kinds import NumpyKind
from gett.codegen.grouped import LAYOUT, LISTED, MODE, render_grouped
from gett.errors import DeviceError
from gett.network.running import Ending, run_steps, turns_of
from gett.network.steps import launch_numbers
from gett.runtime import together as module
from tests.cpu.fake_driver import FakeDriver, FakeHost

SPEC = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
HEAD = 24  # bytes of the argument before the problems
NUMBERS = itertools.count()  # of drivers: a loaded module is known by its bytes, and a number is never used again


class Driver(FakeDriver):
    def __init__(self) -> None:
        super().__init__(HEAD + 120 * LISTED.itemsize)
        self.copied: list[tuple[int, bytes]] = []

    def function(self, name: str) -> Any:
        assert name == "cuMemcpyHtoD_v2"

        def copy(to: Any, data: Any, count: Any) -> int:
            self.copied.append((to.value, ctypes.string_at(data, count.value)))
            return self.codes.pop(0) if self.codes else 0

        return copy


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    state = types.SimpleNamespace(number=next(NUMBERS), driver=Driver(), host=FakeHost(), compiled=[])

    def compiled(schedule: Any) -> Any:
        state.compiled.append(schedule)
        return render_grouped(schedule), f"{state.number} {schedule}".encode()

    monkeypatch.setattr(module, "CupyHost", lambda: state.host)
    monkeypatch.setattr(module, "load_driver", lambda: state.driver)
    monkeypatch.setattr(module, "compile_grouped", compiled)
    return state


def steps_of(dtype: str = "complex64") -> Any:
    steps = gett.plan(SPEC, *[((4, 4), dtype)] * 12, arch="sm_90a").steps
    return [s for s in steps if s.together is not None]


def built(steps: Any) -> dict[int, Any]:
    launches: dict[int, Any] = {}
    for s in steps:
        launches.setdefault(s.together.number, (s.together.schedule, []))[1].append(s.gemm)
    return module.build_together(launches)


def problems(seen: Any) -> Any:
    return np.frombuffer(seen.params[HEAD:], LISTED)


def test_addresses_go_where_the_problem_is(gpu: Any) -> None:
    steps = steps_of()
    made = built(steps)
    first = [s for s in steps if s.together.number == 1]
    assert len(first) > 3
    assert {s.gemm.swapped for s in first} == {False, True}
    given = [(1000 * n + 1, 1000 * n + 2, 0, 1000 * n + 3) for n in range(1, len(first) + 1)]
    made[1].run_together(given, 0x77)
    (seen,) = gpu.driver.launches
    assert (seen.stream, seen.grid) == (0x77, (len(first), 1, 1))  # a tile each
    for step, (a, b, _, d), found in zip(first, given, problems(seen), strict=False):
        assert (found["a"], found["b"]) == ((b, a) if step.gemm.swapped else (a, b))
        assert found["d"] == d
    assert np.frombuffer(seen.params[16:20], np.int32)[0] == len(first)
    assert not problems(seen)[len(first) :]["a"].any()


def test_steps_that_lie_alike_share_a_layout(gpu: Any) -> None:
    steps = steps_of()
    made = built(steps)
    ((at, data),) = gpu.driver.copied
    layouts = np.frombuffer(data, LAYOUT, len({s.gemm.signature for s in steps}))
    assert len(layouts) < len(steps)
    modes = np.frombuffer(data[layouts.nbytes :], MODE)
    assert len(modes) == layouts["count"].sum()
    assert gpu.host.synchronized == 2
    numbers = {s.gemm.signature: i for i, s in reversed([*enumerate(steps)])}
    assert len(numbers) == len(layouts)
    for number, executable in made.items():
        own = [s for s in steps if s.together.number == number]
        executable.run_together([(1, 2, 0, 3)] * len(own), 0)
        seen = gpu.driver.launches[-1]
        assert np.frombuffer(seen.params[:16], np.uint64).tolist() == [at, at + layouts.nbytes]
        for step, found in zip(own, problems(seen), strict=False):
            extents = [step.gemm.extent_l, step.gemm.extent_m, step.gemm.extent_n, step.gemm.extent_k]
            assert layouts[found["layout"]]["extent"].tolist() == extents


def test_a_graph_has_one_launch_whose_arguments_change(gpu: Any) -> None:
    made = built(steps_of())[1]
    count = len(made.kernel.launches[0].pointers[2:]) // 3
    noted: list[Any] = []

    def launch(call: Any, what: str) -> None:
        noted.append(what)
        gpu.driver.launch(*call)

    recorder = types.SimpleNamespace(stream=0x99, launch=launch)
    assert made.record(recorder, [(1, 2, 0, 3)] * count) == 1
    assert len(noted) == 1
    assert gpu.driver.launches[-1].stream == 0x99
    changed: list[int] = []
    graph = types.SimpleNamespace(change=lambda number: changed.append(number) or 0)
    assert made.change(graph, range(5, 6), [(7, 7, 0, 8)] * count)
    assert changed == [5]
    graph.change = lambda number: 1
    assert not made.change(graph, range(5, 6), [(7, 7, 0, 8)] * count)


def test_errors_name_the_launch(gpu: Any) -> None:
    steps = steps_of()
    made, given = built(steps), [(1, 2, 0, 3)] * sum(s.together.number == 1 for s in steps)
    gpu.driver.codes = [1]
    with pytest.raises(DeviceError, match="gett_grouped"):
        made[1].run_together(given, 0)
    gpu.driver.codes = [201]  # a thread without a context
    made[1].run_together(given, 0)
    assert gpu.driver.contexts == [0xC0]
    gpu.driver.codes = [2]
    with pytest.raises(gett.GettError, match="bytes of tables"):
        built(steps_of())


def test_calls_on_another_device_switch_to_theirs(gpu: Any) -> None:
    gpu.host.count = 2
    steps = steps_of()
    made = built(steps)[1]
    gpu.host.device = 1
    made.run_together([(1, 2, 0, 3)] * sum(s.together.number == 1 for s in steps), 0)
    assert gpu.host.switches == [0]


class Kind(NumpyKind):
    """NumPy's arrays with addresses and a stream."""

    def pointer(self, array: Any) -> int:
        return int(array.__array_interface__["data"][0])

    def stream(self) -> int:
        return 5


class Together:
    """Computes what it is asked for, all at once."""

    def __init__(self, steps: Any, arrays: dict[int, Any]) -> None:
        self.steps, self.arrays, self.calls = steps, arrays, 0

    def run_together(self, addresses: Any, stream: int) -> None:
        assert (stream, len(addresses)) == (5, len(self.steps))
        self.calls += 1
        for step, (a, b, c, d) in zip(self.steps, addresses, strict=True):
            x, y, out = (_at(p, (4, 4)) for p in (a, b, d))
            assert c == 0
            out[...] = np.einsum(step.name, x, y)


def _at(address: int, shape: tuple[int, ...]) -> Any:
    raw = (ctypes.c_double * int(np.prod(shape))).from_address(address)
    return np.frombuffer(raw, np.float64).reshape(shape)


def test_steps_run_with_their_launches() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-1, 2, (4, 4)).astype(float) for _ in range(12)]
    plan = gett.plan(SPEC, *[((4, 4), "float64")] * 12, arch="sm_90a")
    steps, executables, made = plan.steps, [], {}
    for s in steps:
        if s.together is None:
            executables.append(lambda a, b, c, d, alpha, beta, name=s.name: np.einsum(name, a, b, out=d))
        else:
            own = [x for x in steps if x.together == s.together]
            executables.append(made.setdefault(s.together.number, Together(own, {})))
    for written in (None, [].append):
        result, seen = np.full((4, 4), 7.0), []
        then = None if written is None else lambda x, seen=seen: seen.append(x.copy())
        turns = turns_of(steps, [None] * 12)
        run_steps(turns, executables, Kind(), arrays, [None] * 12, Ending(None, result), then)
        np.testing.assert_array_equal(result, np.linalg.multi_dot(arrays))
        assert len(seen) == (0 if written is None else len(steps))
    assert len(made) < launch_numbers(steps)[-1] + 1
    assert all(x.calls == 2 for x in made.values())
