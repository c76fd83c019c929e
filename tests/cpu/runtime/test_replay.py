"""Steps as one launch: where intermediates lie, and which launches a call changes; the graph is a stand-in."""

from __future__ import annotations

import ctypes
import itertools
import random
import types
from typing import Any

import numpy as np
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.errors import DeviceError
from gett.graphs import replay as module
from gett.graphs.places import ALIGNMENT, places_of
from gett.graphs.replay import Arena, Replay, may_replay
from gett.network.running import Ending, Turn, turns_of
from gett.network.steps import last_uses, peak_bytes, scratch_bytes
from gett.runtime import graphs
from tests.cpu.fake_graphs import record_into

DTYPE = np.dtype("float64")


def chain(count: int, extent: int = 10) -> list[Turn]:
    """Turns of `ab,bc,cd,..`, from left to right."""
    turns = []
    for n in range(count):
        first = 0 if n == 0 else count + n
        done = (first, n + 1)
        last = n == count - 1
        turns.append(Turn(first, n + 1, count + n + 1, last, (extent,), DTYPE, (), (), done, n))
    return turns


@pytest.mark.parametrize("seed", range(20))
def test_places_of_what_lives_at_the_same_time_do_not_overlap(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(3, 12)
    spec = ",".join(chr(97 + i) + chr(98 + i) for i in range(count)) + "->a" + chr(97 + count)
    shapes = [(rng.randint(1, 40), rng.randint(1, 40)) for _ in range(count)]
    shapes = [(shapes[i][0], shapes[i + 1][0] if i + 1 < count else 7) for i in range(count)]
    plan = gett.plan(spec, *[(s, "float64") for s in shapes], optimize="greedy")
    turns = turns_of(plan.steps, [None] * count)
    workspaces = [rng.choice([0, 0, 1, 5000]) for _ in turns]
    found = places_of(turns, workspaces)
    sizes = {t.output: int(np.prod(t.shape)) * t.dtype.itemsize for t in turns}
    live: dict[int, tuple[int, int]] = {}
    for turn, workspace, at in zip(turns, workspaces, found.workspaces, strict=True):
        if not turn.is_last:
            live[turn.output] = found.tensors[turn.output], found.tensors[turn.output] + sizes[turn.output]
        ranges = sorted([*live.values(), *([(at, at + workspace)] if workspace else [])])
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        assert all(end <= found.nbytes and start % ALIGNMENT == 0 for start, end in ranges)
        for i in turn.done:
            live.pop(i, None)
    assert found.nbytes <= sum(-(-x // ALIGNMENT) * ALIGNMENT for x in [*sizes.values(), *workspaces, 1])


@pytest.mark.parametrize("seed", range(30))
def test_places_take_no_more_than_what_is_alive_at_one_time(seed: int) -> None:
    spec, shapes = rand_equation(8, 3, n_out=2, d_min=8, d_max=20, seed=seed)
    plan = gett.plan(spec, *[(s, "float64") for s in shapes], arch="sm_90a")
    found = places_of(turns_of(plan.steps, [None] * len(shapes)), [scratch_bytes(step) for step in plan.steps])
    few = 3 * ALIGNMENT  # what sizes are rounded up to
    assert found.nbytes <= peak_bytes(plan.steps, last_uses(plan.steps), {}) + few


class Array:
    def __init__(self, address: int) -> None:
        self.address = address


class Kind:
    name = "CuPy"
    launch: Any = print  # its addresses are asked for one by one

    def __init__(self) -> None:
        self.allocated: list[int] = []

    def pointer(self, array: Any) -> int:
        return array.address

    def memory(self, device: int) -> int:
        return 1 << 36

    def empty(self, shape: Any, dtype: Any) -> Array:
        self.allocated.append(shape[0])
        return Array(0x100000)


class Executable:
    """Two launches."""

    workspace_bytes = 100

    def __init__(self, number: int) -> None:
        self.number, self.now = number, None

    def record(self, recorder: Any, *arguments: Any) -> int:
        recorder.made += [(self.number, 0, arguments), (self.number, 1, arguments)]
        return 2

    def change(self, graph: Any, numbers: Any, *arguments: Any) -> bool:
        graph.changed.append(self.number)
        for n in numbers:
            graph.made[n] = (self.number, n % 2, arguments)
        return not graph.broken


class Graph:
    def __init__(self, made: list[Any]) -> None:
        self.made, self.changed, self.broken, self.played = made, [], False, []

    def play(self, stream: ctypes.c_void_p) -> int:
        self.played.append(list(self.made))
        return 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    state = types.SimpleNamespace(stream=7, capturing=False, graphs=[])
    record_into(monkeypatch, state, Graph)
    monkeypatch.setattr(Kind, "stream", lambda kind: state.stream, raising=False)
    monkeypatch.setattr(module, "_kept", {})
    return state


def call(replay: Replay, addresses: list[int], d: int = 0xD000, alpha: complex = 1) -> bool:
    return replay([Array(x) for x in addresses], Ending(None, Array(d), alpha, 0))


def test_only_launches_whose_arguments_differ_are_changed(gpu: Any) -> None:
    turns, kind = chain(3), Kind()
    replay = Replay(kind, 0, turns, [Executable(n) for n in range(3)], 4)
    assert call(replay, [1, 2, 3, 4])
    (graph,) = gpu.graphs
    assert len(graph.made) == 6
    assert not graph.changed
    assert call(replay, [1, 2, 3, 4])
    assert not graph.changed
    assert call(replay, [1, 2, 30, 4])
    assert sorted(graph.changed) == [1]
    assert call(replay, [1, 2, 30, 4], d=0xE000)
    assert sorted(graph.changed) == [1, 2]
    assert call(replay, [9, 2, 30, 4], d=0xE000, alpha=2)
    assert sorted(graph.changed) == [0, 1, 2, 2]
    (addresses, workspace), (_, _, last) = graph.played[-1][0][2], graph.played[-1][-1]
    assert addresses[:2] == (9, 2)
    assert workspace >= 0x100000
    assert last[0][3] == 0xE000
    assert last[2] == 2
    assert len(kind.allocated) == 1


def test_intermediates_are_read_where_they_were_written(gpu: Any) -> None:
    replay = Replay(Kind(), 0, chain(4), [Executable(n) for n in range(4)], 5)
    assert call(replay, [1, 2, 3, 4, 5])
    made = gpu.graphs[0].made
    for n in range(3):
        assert made[2 * n][2][0][3] == made[2 * n + 2][2][0][0]


def test_a_graph_that_is_played_by_hand_follows_its_caller(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On other streams, and with more memory than plans keep by themselves."""
    monkeypatch.setattr(module, "ARENA_LIMIT", 100)
    own, replay = (Replay(Kind(), 0, chain(3), [Executable(n) for n in range(3)], 4, by_hand=x) for x in (False, True))
    assert not call(own, [1, 2, 3, 4])
    assert call(replay, [1, 2, 3, 4])
    gpu.stream = 8
    with Arena():
        assert call(replay, [1, 2, 3, 4])
    assert len(gpu.graphs) == 1
    assert len(gpu.graphs[0].played) == 2
    assert not module._kept
    assert replay.nbytes > 100


def tree() -> list[Turn]:
    """Turns of four products, of which two more and then one make the result."""
    turns, live = [], list(range(8))
    for n in range(7):
        first, second = live.pop(0), live.pop(0)
        turns.append(Turn(first, second, 8 + n, n == 6, (10,), DTYPE, (), (), (first, second), n))
        live.append(8 + n)
    return turns


def test_branches_wait_for_what_they_read(gpu: Any) -> None:
    replay = Replay(Kind(), 0, tree(), [Executable(n) for n in range(7)], 8)
    assert call(replay, [*range(1, 9)])
    (graph,) = gpu.graphs
    order = [number for number, half, _ in graph.made if half == 0]
    assert sorted(order) == [*range(7)]
    ended: dict[int, set[int]] = {}
    for number, waits in zip(order, graph.waits, strict=True):
        assert all(w % 2 for w in waits)  # the second launch of each
        direct = {graph.made[w][0] for w in waits}
        ended[number] = direct.union(*(ended[n] for n in direct))
    assert ended[4] >= {0, 1}
    assert ended[5] >= {2, 3}
    assert ended[6] == {0, 1, 2, 3, 4, 5}
    assert graph.waits[0] == graph.waits[1] == []
    assert call(replay, [1, 2, 3, 4, 5, 6, 7, 90])
    assert graph.changed == [3]
    assert next(a for number, _, (a, *_) in graph.played[-1] if number == 3)[:2] == (7, 90)


def test_without_branches_launches_follow_one_another(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver does not record them."""

    def refuse(*_: Any) -> None:
        raise DeviceError("no")

    monkeypatch.setattr(graphs.Recorder, "after", refuse)
    replay = Replay(Kind(), 0, tree(), [Executable(n) for n in range(7)], 8)
    assert call(replay, [*range(1, 9)])
    (graph,) = gpu.graphs
    assert [number for number, half, _ in graph.made if half == 0] == [*range(7)]
    assert not graph.waits
    monkeypatch.setattr(Executable, "record", refuse)
    assert not call(Replay(Kind(), 0, chain(3), [Executable(n) for n in range(3)], 4), [1, 2, 3, 4])


class Together:
    """One launch of several steps."""

    workspace_bytes = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def record(self, recorder: Any, addresses: Any) -> int:
        recorder.made.append((self.number, 0, addresses))
        return 1

    def change(self, graph: Any, numbers: Any, addresses: Any) -> bool:
        graph.changed.append(self.number)
        (n,) = numbers
        graph.made[n] = (self.number, 0, addresses)
        return True


def test_steps_that_are_made_together_are_one_launch_of_a_graph(gpu: Any) -> None:
    spec = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am"
    steps = gett.plan(spec, *[((4, 4), "float64")] * 12, arch="sm_90a").steps
    turns = turns_of(steps, [None] * 12)
    launches = [t.launch for t in turns]
    made: dict[int, Any] = {}
    executables = [made.setdefault(t.launch, Together(t.launch) if t.together else Executable(t.launch)) for t in turns]
    replay = Replay(Kind(), 0, turns, executables, 12)
    given = [*range(1, 13)]
    assert call(replay, given)
    graph = gpu.graphs[0]
    assert [number for number, _, _ in graph.made] == [*range(max(launches)), max(launches), max(launches)]
    assert len(graph.made) < len(turns)
    for number, _, addresses in graph.made[:-2]:
        own = [t for t in turns if t.launch == number]
        assert len(addresses) == len(own)
        for turn, (a, b, c, _) in zip(own, addresses, strict=True):
            assert c == 0
            assert (a < 13, b < 13) == (turn.first < 12, turn.second is not None and turn.second < 12)
        written = {d for *_, d in addresses}
        read = {x for a, b, *_ in addresses for x in (a, b)}
        assert len(written) == len(own)
        assert not written & read  # what steps of a launch read stays until all are done
    moved = [*given[:5], 77, *given[6:]]
    assert call(replay, moved)
    reads = {t.launch for t in turns if 5 in (t.first, t.second)}
    assert graph.changed == [*reads]
    assert any(77 in (a, b) for number, _, addresses in graph.made if number in reads for a, b, *_ in addresses)


def test_steps_are_launched_one_by_one_where_a_graph_may_not_be(gpu: Any) -> None:
    replay = Replay(Kind(), 0, chain(3), [Executable(n) for n in range(3)], 4)
    gpu.capturing = True
    assert not call(replay, [1, 2, 3, 4])
    gpu.capturing = False
    assert call(replay, [1, 2, 3, 4])
    gpu.stream = 8
    assert not call(replay, [1, 2, 3, 4])
    gpu.stream = 7
    gpu.capturing = True
    assert not call(replay, [1, 2, 3, 4])
    gpu.capturing = False
    with replay._lock:
        assert not call(replay, [1, 2, 3, 4])
    gpu.graphs[0].broken = True
    assert not call(replay, [1, 2, 9, 4])
    gpu.graphs[0].broken = False
    assert not call(replay, [1, 2, 9, 4])


def test_all_plans_together_keep_a_share_of_the_memory(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kind, "memory", lambda self, device: module.SHARE * 3100)
    made = [Replay(Kind(), 0, chain(3), [Executable(n) for n in range(3)], 4) for _ in range(3)]
    assert [call(x, [1, 2, 3, 4]) for x in made] == [True, True, False]
    kept = dict(module._kept)
    del made[0]
    assert module._kept[0] == kept[0] // 2


def test_few_steps_and_other_executables_have_no_graph() -> None:
    assert not may_replay(chain(2), [Executable(0)] * 2)
    assert not may_replay(chain(3), [object()] * 3)
    assert may_replay(chain(3), [Executable(0)] * 3)


def test_plans_of_slices_share_memory_while_they_run(gpu: Any) -> None:
    kind = Kind()
    made = [Replay(kind, 0, chain(n), [Executable(i) for i in range(n)], n + 1) for n in (4, 3)]
    for _ in range(2):
        arena = module.Arena()
        with arena:
            assert not call(made[0], [1, 2, 3, 4, 5])  # it may run once only
            assert call(made[0], [1, 2, 3, 4, 5])
            assert call(made[1], [1, 2, 3, 4])  # there is memory already
            assert call(made[1], [1, 2, 3, 9])
        assert not call(made[0], [1, 2, 3, 4, 5])  # outside, it would use what others write
        del arena
    assert len(kind.allocated) == 2
    assert not module._kept
    assert call(made[0], [1, 2, 3, 4, 5])
    assert module._kept[0] > 0


def test_an_arena_makes_room_for_what_is_larger(gpu: Any) -> None:
    kind = Kind()
    small, large = (Replay(kind, 0, chain(3, n), [Executable(i) for i in range(3)], 4) for n in (10, 1000))
    with module.Arena():
        assert [call(small, [1, 2, 3, 4]) for _ in range(2)] == [False, True]
        assert not call(large, [1, 2, 3, 4])
        assert small._graph is None
        assert [call(large, [1, 2, 3, 4]) for _ in range(2)] == [False, True] or call(large, [1, 2, 3, 4])
    with module.Arena(records=False):
        assert not any(call(small, [1, 2, 3, 4]) for _ in range(3))
