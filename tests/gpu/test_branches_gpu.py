"""Branches of a network that run side by side in its graph: exact, and the same bits as one launch after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett
from gett.graphs import branches

# Four products, of which a chain or two more make the result; most steps are too large to be made together.
CHAINS = "ab,bc,cd,de,ef,fg,gh,hi->ai", [(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 2), (0, 1)]
TREE = "ab,bc,cd,de,ef,fg,gh,hi->ai", [(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)]


def operands(xp: Any, dtype: str, extent: int, seed: int, integers: bool) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = [(extent + 8 * i, extent + 8 * (i + 1)) for i in range(8)]
    if integers:
        return [xp.asarray((rng.random(s) < 1.5 / extent).astype(dtype)) for s in shapes]
    return [xp.asarray(rng.standard_normal(s).astype(dtype)) for s in shapes]


def launches(plan: Any) -> Any:
    (replay,) = plan._replays.values()
    assert replay._graph is not None
    return replay._order


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("network", [CHAINS, TREE], ids=["chains", "tree"])
def test_branches_are_exact(cupy: Any, network: Any, dtype: str) -> None:
    spec, path = network
    plan = gett.plan(spec, *operands(cupy, dtype, 320, 0, True), optimize=path)
    plan.compile()
    for seed in range(12):
        given = operands(cupy, dtype, 320, seed, True)
        want = opt_einsum.contract(spec, *(x.get().real.astype("float64") for x in given), optimize=path)
        found = plan(*given, out=cupy.full(want.shape, 7, dtype))
        np.testing.assert_array_equal(found.get(), want)
    order = launches(plan)
    assert order.after is not None, "nothing ran side by side"
    assert max(map(len, order.after)) > 1


def test_graphs_have_the_bits_of_single_launches(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, path = TREE
    given = operands(cupy, "complex64", 384, 5, False)
    plan = gett.plan(spec, *given, optimize=path)
    plan.compile()
    want = plan(*given).get()  # the first call launches one step after the other
    stream = cupy.cuda.Stream(non_blocking=True)
    busy = cupy.zeros((4096, 4096), "float32")
    for i in range(100):
        if i % 3 == 0:
            with stream:
                busy += busy @ busy
        np.testing.assert_array_equal(plan(*given).get(), want)
    assert launches(plan).after is not None
    cupy.cuda.Device().synchronize()


def test_without_room_launches_follow_one_another(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "ROOM", -(1 << 40))
    spec, path = TREE
    given = operands(cupy, "float64", 330, 1, True)
    plan = gett.plan(spec, *given, optimize=path)
    plan.compile()
    want = opt_einsum.contract(spec, *(x.get() for x in given), optimize=path)
    for _ in range(3):
        np.testing.assert_array_equal(plan(*given).get(), want)
    assert launches(plan).after is None
