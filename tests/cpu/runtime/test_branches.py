"""Launches of a graph side by side: each waits for what it reads, and for all that its memory still serves."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.graphs import branches
from gett.graphs.branches import Order, one_by_one, side_by_side
from gett.network.running import Turn, turns_of


def planned(seed: int) -> tuple[list[Turn], list[int], list[float]]:
    """Turns of a drawn network, whose workspaces and times are drawn, too."""
    rng = random.Random(seed)
    spec, shapes = rand_equation(rng.randint(6, 30), 3, n_out=2, d_min=2, d_max=5, seed=seed)
    plan = gett.plan(spec, *[(s, "float64") for s in shapes], optimize="greedy", arch=("cpu", "sm_90a")[seed % 4 == 0])
    turns = list(turns_of(plan.steps, [None] * len(shapes)))
    count = max(t.launch for t in turns) + 1  # steps are made together on a GPU alone
    us = [rng.choice([1.0, 3.0, 20.0]) for _ in range(count)]
    return turns, [0 if t.together else rng.choice([0, 0, 700]) for t in turns], [us[t.launch] for t in turns]


def reached(after: Sequence[Sequence[int]]) -> list[set[int]]:
    """For each launch all that have ended when it begins."""
    found: list[set[int]] = []
    for direct in after:
        found.append({*direct}.union(*(found[k] for k in direct)))
    return found


def accesses(order: Order, turns: Sequence[Turn], workspaces: Sequence[int]) -> list[tuple[list[Any], list[Any]]]:
    """Of each launch what it reads and writes: tensors, and ranges of memory."""
    places, sizes = order.places, {t.output: math.prod(t.shape) * t.dtype.itemsize for t in turns}
    made = []
    for launch in order.launches:
        read: list[Any] = []
        written: list[Any] = []
        for n in launch:
            turn, workspace = turns[n], workspaces[n]
            read += [(places.tensors[i], sizes[i], i) for i in (turn.first, turn.second) if i in places.tensors]
            if not turn.is_last:
                written.append((places.tensors[turn.output], sizes[turn.output], turn.output))
            if workspace:
                written.append((places.workspaces[n], workspace, None))
        made.append((read, written))
    return made


def overlap(x: Any, y: Any) -> bool:
    return bool(x[0] < y[0] + y[1] and y[0] < x[0] + x[1])


@pytest.mark.parametrize("seed", range(25))
def test_launches_wait_for_all_whose_memory_they_share(seed: int) -> None:
    turns, workspaces, us = planned(seed)
    order = side_by_side(turns, workspaces, us)
    assert sorted(n for launch in order.launches for n in launch) == [*range(len(turns))]
    if order.after is None:
        assert order == one_by_one(turns, workspaces)
        return
    ended, touched = reached(order.after), accesses(order, turns, workspaces)
    for (i, (read, written)), (k, (later_read, later_written)) in itertools.combinations(enumerate(touched), 2):
        both = [*itertools.product(written, [*later_read, *later_written]), *itertools.product(read, later_written)]
        if any(overlap(x, y) for x, y in both):
            assert i in ended[k], f"launch {k} does not wait for launch {i}"
    for k, (read, _) in enumerate(touched):  # what it reads was written, all of it, and by nobody else since
        for tensor in {x[2] for x in read}:
            makers = [i for i, (_, written) in enumerate(touched) if tensor in [x[2] for x in written]]
            assert makers
            assert {*makers} <= ended[k]
    last = [k for k, launch in enumerate(order.launches) if any(turns[n].is_last for n in launch)]
    assert last[-1] == len(order.launches) - 1
    assert ended[-1] == set(range(len(order.launches) - 1))
    for direct in order.after:  # none that another one waits for
        assert not any(i in ended[k] for i in direct for k in direct)


def test_some_of_them_run_side_by_side() -> None:
    found = [side_by_side(*planned(seed)) for seed in range(25)]
    assert sum(x.after is not None for x in found) > 10
    for order in found:
        if order.after is not None:
            assert any(k and k - 1 not in direct for k, direct in enumerate(order.after))


def test_a_chain_has_no_branches() -> None:
    spec, path = "ab,bc,cd,de,ef->af", [(0, 1), (0, 3), (0, 2), (0, 1)]
    plan = gett.plan(spec, *[((300, 300), "float64")] * 5, optimize=path, arch="sm_90a")
    turns = turns_of(plan.steps, [None] * 5)
    assert side_by_side(turns, [0] * 4, [10.0] * 4).after is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    given = next(x for x in map(planned, range(25)) if side_by_side(*x).after is not None)
    alone, beside = one_by_one(*given[:2]), side_by_side(*given)
    assert beside.places.nbytes <= alone.places.nbytes + branches.ROOM
    monkeypatch.setattr(branches, "ARENA_LIMIT", alone.places.nbytes)
    assert side_by_side(*given) == alone
    monkeypatch.undo()
    monkeypatch.setattr(branches, "ROOM", beside.places.nbytes - alone.places.nbytes - 1)
    assert side_by_side(*given) == alone
