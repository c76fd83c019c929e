"""Graphs that are launched by hand: arrays that move, results, errors; kernels and the driver compute on the host."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays.kinds import NumpyKind
from gett.plans import plan_graph as module
from gett.plans.plan_graph import PlanGraph
from tests.cpu.fake_graphs import record_into

SPEC = "ab,bc,cd->ad"
SHAPES = [(4, 6), (6, 5), (5, 3)]


class Kind(NumpyKind):
    """NumPy's arrays, which say that they lie on a GPU."""

    name = "CuPy"
    launch: Any = print  # addresses are asked for one by one
    now = 5

    def device(self, array: Any) -> int:
        return 0

    def stream(self) -> int:
        return self.now


class Kernel:
    """What a step's kernel does, on the host's memory."""

    workspace_bytes = 64

    def __init__(self, gemm: Any) -> None:
        self.contraction = gemm.contraction

    def record(self, recorder: Any, *arguments: Any) -> int:
        recorder.made.append((self, arguments))
        return 1

    def change(self, graph: Any, numbers: Any, *arguments: Any) -> bool:
        (n,) = numbers
        graph.made[n] = self, arguments
        graph.changed += 1
        return True

    def run(self, addresses: Any, workspace: int, alpha: Any = 1, beta: Any = 0, extras: Any = ()) -> None:
        k = self.contraction
        first, second, _, target = addresses
        x, y, d = (self._at(p, o) for p, o in ((first, k.a), (second, k.b), (target, k.d)))
        assert beta == 0
        d[...] = alpha * np.einsum(x, list(k.a.modes), y, list(k.b.modes), list(k.d.modes))

    def _at(self, address: int, operand: Any) -> Any:
        shape = [self.contraction.extents[m] for m in operand.modes]
        reach = sum(s * (e - 1) for s, e in zip(operand.strides, shape, strict=True)) + 8
        raw = (ctypes.c_char * reach).from_address(address)
        return np.lib.stride_tricks.as_strided(np.frombuffer(raw, np.float64), shape, operand.strides)


class Graph:
    def __init__(self, made: list[Any], state: Any) -> None:
        self.made, self.state, self.changed = made, state, 0

    def play(self, stream: ctypes.c_void_p) -> int:
        self.state.streams.append(stream.value)
        for kernel, arguments in self.made:
            kernel.run(*arguments)
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    state = types.SimpleNamespace(graphs=[], streams=[], capturing=False)
    record_into(monkeypatch, state, lambda made: Graph(made, state))
    monkeypatch.setattr(module, "check_out", lambda out, kind, device: kind.describe(out))  # which asks CuPy
    gett.plan_cache.clear()
    yield state
    gett.plan_cache.clear()  # its plans have these kernels


def drawn(seed: int, count: int = 3) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-3, 4, s).astype(float) for s in SHAPES[:count]]
    return arrays, np.linalg.multi_dot(arrays)


def made(kind: Kind, count: int, alpha: Any = 1) -> tuple[Any, PlanGraph, Any]:
    """A plan whose steps have kernels on device 0, and a graph of it with its result."""
    arrays, exact = drawn(0, count)
    plan = gett.plan("ab,bc->ac" if count == 2 else SPEC, *arrays)
    plan._bound[0] = tuple(Kernel(s.gemm) for s in plan.steps)
    out = np.full(exact.shape, 7.0)
    return plan, PlanGraph(plan, plan.request.operands, kind, 0, arrays, out, alpha), out


@pytest.mark.parametrize("count", [2, 3])
def test_it_follows_its_arrays_on_every_stream(machine: Any, count: int) -> None:
    kind = Kind()
    _, graph, out = made(kind, count, alpha=2)
    for seed, stream in ((0, 5), (0, 6), (1, 6), (2, 5)):
        arrays, exact = drawn(seed, count)
        graph.update(*arrays)
        kind.now, out[...] = stream, 7
        assert graph.launch() is out
        np.testing.assert_array_equal(out, 2 * exact)
    assert machine.streams == [5, 6, 6, 5]
    assert len(machine.graphs) == 1
    assert (graph.nbytes > 512) is (count == 3)
    other = np.empty_like(out)
    before = machine.graphs[0].changed
    graph.update(*graph.operands, out=other)
    np.testing.assert_array_equal(graph.launch(), 2 * exact)
    assert graph.out is other
    assert machine.graphs[0].changed == before + 1  # the launch that writes the result


def test_what_does_not_fit_is_named(machine: Any) -> None:
    _, graph, out = made(Kind(), 3)
    arrays, _ = drawn(0)
    with pytest.raises(gett.ShapeError, match="takes 3 operands, 1 were given"):
        graph.update(arrays[0])
    with pytest.raises(gett.ShapeError, match="operand 1 has shape"):
        graph.update(arrays[0], arrays[0], arrays[2])
    with pytest.raises(gett.DTypeError, match="operand 2 has dtype float32"):
        graph.update(*arrays[:2], arrays[2].astype("float32"))
    with pytest.raises(gett.OutputError, match="out has shape"):
        graph.update(*arrays, out=arrays[0])
    memory = np.zeros(24 + 12)
    with pytest.raises(gett.OutputError, match="out shares memory with an operand"):
        graph.update(memory[:24].reshape(4, 6), *arrays[1:], out=memory[16:28].reshape(4, 3))
    assert graph.out is out
    machine.capturing = True
    with pytest.raises(gett.DeviceError, match="could not be recorded or played"):
        graph.launch()


def test_plans_that_do_more_than_launch_have_none(machine: Any) -> None:
    arrays, exact = drawn(0)
    for plan in (
        gett.plan(SPEC, *arrays),  # by NumPy
        gett.plan(SPEC, arrays[0].astype("float32"), *arrays[1:]),  # converts
        gett.plan(SPEC, *arrays, memory_limit="200B"),  # in slices
        gett.plan(SPEC, *arrays, constants=[0]),  # which holds
    ):
        with pytest.raises(gett.OptionError, match="a call of this plan does more than launch them"):
            PlanGraph(plan, plan.request.operands, Kind(), 0, arrays, np.empty(exact.shape), 1)
        with pytest.raises(gett.DeviceError, match="records the kernels of arrays on a GPU"):
            plan.graph(*arrays)
