"""Tiles of the NumPy executor are arithmetic: planning takes milliseconds and kilobytes whatever the extents."""

from __future__ import annotations

import itertools
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import gett
from gett.cpu import NumpyExecutable, moving, tiles
from gett.cpu.tiles import Tiles, call_blocks
from gett.ir.gemm import make_gemm_plan
from layouts.modes import Strided, fuse
from tests.cpu.helpers import contraction_of
from tests.sampling import slow_but

MILLISECONDS, MEGABYTES = 50, 5


def listed(shape: Tiles) -> list[tuple[slice, ...]]:
    """The definition: the product of each dimension's blocks."""
    cuts = [
        [slice(i, min(i + b, n)) for i in range(0, n, b)] if n else []
        for n, b in zip(shape.extents, shape.blocks, strict=True)
    ]
    return list(itertools.product(*cuts))


@given(dims=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 7)), max_size=4), cut=st.integers(0, 60))
def test_parts_are_the_product_of_blocks(dims: list[tuple[int, int]], cut: int) -> None:
    shape = Tiles(tuple(n for n, _ in dims), tuple(b for _, b in dims))
    expected = listed(shape)
    assert shape.count == len(expected)
    assert list(shape.parts()) == expected
    assert [*shape.parts(0, cut), *shape.parts(cut)] == expected
    assert list(shape.parts(cut, cut + 5)) == expected[cut : cut + 5]


def test_parts_far_into_more_tiles_than_memory_holds() -> None:
    shape = Tiles((2**62, 3, 2**62), (64, 2, 2**20))
    assert shape.count == 2**56 * 2 * 2**42
    last = list(shape.parts(shape.count - 2))
    assert last[0] == (slice(2**62 - 64, 2**62), slice(2, 3), slice(2**62 - 2**21, 2**62 - 2**20))
    assert last[1] == (slice(2**62 - 64, 2**62), slice(2, 3), slice(2**62 - 2**20, 2**62))


@given(
    dims=st.lists(st.tuples(st.integers(0, 2**62), st.integers(-(2**62), 2**62)), max_size=6),
    kept=st.integers(0, 6),
)
def test_a_call_goes_over_a_bounded_number_of_elements(dims: list[tuple[int, int]], kept: int) -> None:
    extents, strides = [n for n, _ in dims], [s for _, s in dims]
    blocks = call_blocks(extents, strides, min(kept, len(dims)))
    assert np.prod([1, *blocks], dtype=object) <= tiles.CALL
    assert all(1 <= b <= n for b, n in zip(blocks, extents, strict=True) if n)


def continues(inner: Strided, outer: Strided) -> bool:
    """Whether one mode goes on where another one ends, in every tensor."""
    return outer.strides == tuple(s * inner.extent for s in inner.strides)


def pairwise(modes: list[Strided]) -> tuple[Strided, ...]:
    """The definition of fusing: every pair is tried, the first that fuses does, until none is left."""
    todo = [m for m in modes if m.extent != 1]
    while True:
        pairs = ((i, j) for i in range(len(todo)) for j in range(len(todo)) if i != j and continues(todo[i], todo[j]))
        i, j = next(pairs, (0, 0))
        if i == j:
            return tuple(todo)
        todo[min(i, j)] = Strided(todo[i].labels + todo[j].labels, todo[i].extent * todo[j].extent, todo[i].strides)
        del todo[max(i, j)]


MODES = st.lists(
    st.tuples(st.sampled_from((1, 2, 2, 3, 4)), st.tuples(*[st.sampled_from((0, 1, 2, 4, 6, 8, -1, -2))] * 2)),
    max_size=7,
)


@given(drawn=MODES)
def test_fusing_is_what_trying_every_pair_gives(drawn: list[tuple[int, tuple[int, int]]]) -> None:
    modes = [Strided((i,), n, strides) for i, (n, strides) in enumerate(drawn)]
    assert fuse(modes) == pairwise(modes)


def check_planning(plan: Callable[[], Any]) -> None:
    """Planning is done in bounded time and memory. The best of three, for the machine may be busy."""
    taken = []
    for _ in range(3):
        gett.plan_cache.clear()
        start = time.process_time()
        plan()
        taken.append(time.process_time() - start)
        if taken[-1] > 1:
            break
    assert min(taken) * 1e3 < MILLISECONDS
    gett.plan_cache.clear()
    tracemalloc.start()
    plan()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEGABYTES << 20


LARGE = [
    ("ij->ij", (3 * 10**5, 3 * 10**5), None),
    ("ij->ji", (10**6, 10**6), None),
    ("ij->ji", (2**31, 2**31), None),
    ("ij->i", (2**40, 2**20), None),
    ("ij,ij->ij", (10**6, 10**6), (10**6, 10**6)),
    ("ij,ji->ij", (10**6, 10**6), (10**6, 10**6)),
    ("i,j->ij", (2**31,), (2**31,)),
    ("i,j->", (2**50,), (2**50,)),
    ("ij,jk->ki", (2**30, 2**30), (2**30, 2**30)),
    ("aib,cbj->jica", (2**20, 2**20, 2**20), (2**20, 2**20, 2**20)),
    ("zij,zjk->zik", (2**50, 4, 4), (2**50, 4, 4)),
    ("ij->ji", (2**31, 2**30), None),
]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
@pytest.mark.parametrize(("subscripts", "shape_a", "shape_b"), LARGE)
def test_planning_does_not_list_tiles(subscripts: str, shape_a: Any, shape_b: Any, dtype: str) -> None:
    operands = [(s, dtype) for s in (shape_a, shape_b) if s is not None]
    check_planning(lambda: gett.plan(subscripts, *operands))


@pytest.mark.parametrize("stride", [2**62, -(2**62), 2**62 - 1])
def test_extents_and_strides_near_the_end_of_64_bits(stride: int) -> None:
    far = as_strided(np.zeros(1), (2, 1, 3), (stride, stride, 0))
    check_planning(lambda: gett.plan("ijk,ijk->kji", far, far))
    check_planning(lambda: gett.plan("ijk,ljk->li", far, far))
    wide = as_strided(np.zeros(1, "int8"), (2**62,), (0,))
    for subscripts in ("i->i", "i->", "i,i->i", "i,i->", "i,j->"):
        check_planning(lambda s=subscripts: gett.plan(s, *[wide] * (1 + ("," in s))))  # type: ignore[misc]


def spelled(*terms: list[int]) -> str:
    *inputs, output = ("".join(chr(0x100 + m) for m in term) for term in terms)
    return f"{','.join(inputs)}->{output}"


def mixed(rng: random.Random, modes: list[int]) -> list[int]:
    """The modes in another order: any, backwards, or some neighbours together."""
    width = rng.choice((1, 1, 2, 5, len(modes)))
    blocks = [modes[i : i + width] for i in range(0, len(modes), width)]
    rng.shuffle(blocks)
    found = [m for block in blocks for m in block]
    return found[::-1] if rng.random() < 0.3 else found


def many_modes(kind: str, rng: random.Random, count: int) -> tuple[list[int], ...]:
    modes = list(range(count))
    if kind == "permutation":
        return modes, mixed(rng, modes)
    if kind == "sum":
        return modes, mixed(rng, rng.sample(modes, count // 2))
    if kind == "hadamard":
        return mixed(rng, modes), mixed(rng, modes), mixed(rng, modes)
    if kind == "dot":
        return mixed(rng, modes), mixed(rng, modes), []
    if kind == "any":
        a, b = rng.sample(range(80), count), rng.sample(range(80), count)
        every = sorted({*a, *b})
        return a, b, rng.sample(every, min(64, len(every) - 8))
    batch = count // 4 if kind == "batched product" else 0
    summed = rng.randrange(count // 4, count // 2)
    k, m = modes[batch : batch + summed], modes[batch + summed :]
    n = [count + i for i in range(min(len(m), 64 - batch - len(m)))]
    return mixed(rng, modes), mixed(rng, modes[:batch] + k + n), mixed(rng, modes[:batch] + m + n)


KINDS = ["permutation", "sum", "hadamard", "dot", "product", "batched product", "any"]


@pytest.mark.parametrize(
    ("kind", "count", "extent"),
    slow_but([(k, c, e) for k in KINDS for c in (40, 64) for e in (2, 3)], lambda x: x[1:] == (64, 2)),
)
def test_planning_of_many_modes(kind: str, count: int, extent: int) -> None:
    for seed in range(2):
        terms = many_modes(kind, random.Random(seed), count)
        operands = [((extent,) * len(t), "float64") for t in terms[:-1]]
        check_planning(lambda t=terms, o=operands: gett.plan(spelled(*t), *o))  # type: ignore[misc]


class Enough(Exception):
    """Raised from within a call that would take days."""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("subscripts", ["ij->ij", "ij->ji"])
def test_a_call_begins_at_once(subscripts: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.broadcast_to(np.float32(1), (10**8, 10**8))
    a = as_strided(a, a.shape, (4, 8)) if subscripts == "ij->ji" else a  # never read: only how it is cut matters
    d = as_strided(np.zeros(1, "float32"), a.shape, (4, 8))
    run = NumpyExecutable(make_gemm_plan(contraction_of(subscripts, a, d=d)), threads)
    calls = []

    def stop(*args: Any) -> None:
        calls.append(args)
        raise Enough

    monkeypatch.setattr(moving, "linear_like", stop)
    monkeypatch.setattr(np, "copyto", lambda *args, **options: stop())
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(Enough):
        run(a, None, None, d)
    taken, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken * 1e3 < 5 * MILLISECONDS
    assert peak < MEGABYTES << 20
    assert 1 <= len(calls) <= threads
