"""Alignment, vector width, contiguous runs and boxes, against the bytes themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layouts.access import alignment, contiguous_run, max_vector
from layouts.box import Box, TileDim, place_of
from layouts.modes import Strided, unit_mode
from layouts.rates import RunRates, run_cost
from tests.sampling import given_few

RATES = RunRates(
    copy_tbps=4.25,
    run_bytes=(16, 32, 64, 128, 256),
    load_tbps=(1.6, 2.4, 2.7, 2.9, 3.1),
    store_tbps=(0.8, 2.8, 3.2, 3.2, 3.8),
    bulk_load_tbps=(2.2, 3.1, 4.0, 4.15, 4.15),
    bulk_store_tbps=(0.7, 2.9, 3.9, 4.1, 4.25),
    cut_store_tbps=0.5,
    tile_cut_store_tbps=1.0,
    cut_run_bytes=48,
)
"""As they were measured on an H200."""


def offsets(modes: Sequence[tuple[int, int]]) -> list[int]:
    """Of all elements of modes of (extent, stride), the first mode fastest."""
    found = [0]
    for extent, stride in modes:
        found = [o + i * stride for i in range(extent) for o in found]
    return found


def test_unit_mode() -> None:
    def unit(extents: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int | None:
        modes = [Strided((i,), e, (0, s)) for i, (e, s) in enumerate(zip(extents, strides, strict=True))]
        return unit_mode(modes, 1, itemsize)

    assert unit((4, 5), (20, 4), 4) == 1
    assert unit((4, 5), (20, -4), 4) is None
    assert unit((1, 5), (4, 16), 4) is None
    assert unit((3, 5), (2, 2), 2) == 1  # overlapping views: the longer run


@given_few(20, 100, st.integers(0, 64), st.lists(st.tuples(st.integers(1, 4), st.integers(-48, 48)), max_size=3))
def test_alignment_divides_every_address(base: int, modes: list[tuple[int, int]]) -> None:
    found = alignment(base, [s for e, s in modes if e > 1])
    addresses = {base + o for o in offsets(modes)}
    assert all(a % found == 0 for a in addresses)
    assert found == 256 or any(a % (2 * found) for a in addresses)


@given(
    st.sampled_from((1, 2, 4, 8, 16)),
    st.integers(1, 64),
    st.lists(st.tuples(st.integers(2, 4), st.integers(-64, 64)), max_size=2),
    st.sampled_from((1, 2, 4, 8, 16, 32)),
)
def test_max_vector(itemsize: int, run: int, others: list[tuple[int, int]], base: int) -> None:
    """The result is aligned and straddles no row at any coordinate, and twice the result is not."""

    def legal(vector: int) -> bool:
        rows = [base + o for o in offsets(others)]
        starts = range(0, run, vector)
        width = vector * itemsize
        return width <= 16 and all(s + vector <= run and (r + s * itemsize) % width == 0 for r in rows for s in starts)

    vector = max_vector(itemsize, run, [s for _, s in others], base)
    assert vector == 1 or legal(vector)
    assert not legal(2 * vector)


@st.composite
def cut_tensors(draw: st.DrawFn, flatten: bool) -> tuple[Box, tuple[int, ...], int]:
    """A box and the byte strides of a tensor whose modes lie in any order, with gaps between some."""
    extents = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    itemsize = draw(st.sampled_from((2, 4, 8)))
    strides = [0] * len(extents)
    step = itemsize * draw(st.sampled_from((1, 1, 1, 3)))
    for m in draw(st.permutations(range(len(extents)))):
        strides[m] = step * draw(st.sampled_from((1, 1, -1)))
        step *= extents[m]
        step += itemsize * draw(st.sampled_from((0, 0, 1)))
    order = draw(st.permutations(range(len(extents))))
    cuts = draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order))) if flatten else [True] * len(order)
    groups: list[list[int]] = []
    for m, new in zip(order, cuts, strict=True):
        if new or not groups:
            groups.append([m])
        else:
            groups[-1].append(m)
    dims = []
    for g in groups:
        # Whole modes, then a share of the next that divides it, or any share of the last: tiles start at rows' starts.
        whole = draw(st.integers(0, len(g) - 1))
        extent = extents[g[whole]]
        share = draw(st.sampled_from([s for s in range(1, extent + 1) if whole == len(g) - 1 or extent % s == 0]))
        dims.append(TileDim(tuple(g), math.prod(extents[m] for m in g[:whole]) * share))
    return Box(extents, tuple(dims)), tuple(strides), itemsize


def runs_of_tile(box: Box, strides: tuple[int, ...], itemsize: int, tile: int) -> list[int]:
    """Lengths in bytes of the maximal runs of memory that a tile touches."""
    coords = (box.coordinates(tile, i) for i in range(box.size))
    touched = sorted({sum(x * s for x, s in zip(c, strides, strict=True)) for c in coords if c is not None})
    breaks = [i for i in range(1, len(touched)) if touched[i] != touched[i - 1] + itemsize]
    return [(b - a) * itemsize for a, b in itertools.pairwise([0, *breaks, len(touched)])]


@given(cut_tensors(flatten=False))
def test_contiguous_run_of_boxes(case: tuple[Box, tuple[int, ...], int]) -> None:
    box, strides, itemsize = case
    assert set(runs_of_tile(box, strides, itemsize, 0)) == {contiguous_run(box, strides, itemsize)}


@given(cut_tensors(flatten=True))
def test_contiguous_run_of_flattened_boxes(case: tuple[Box, tuple[int, ...], int]) -> None:
    box, strides, itemsize = case
    assert set(runs_of_tile(box, strides, itemsize, 0)) == {contiguous_run(box, strides, itemsize)}


@given(st.integers(2, 12), st.integers(2, 12), st.integers(1, 40))
def test_contiguous_run_of_ragged_cuts_is_the_mean(inner: int, outer: int, block: int) -> None:
    """Rows of `inner` elements with a gap, flattened and cut anywhere: the mean over a whole period of the cut."""
    block = min(block, inner * outer)
    period = math.lcm(inner, block)
    box = Box((inner, max(outer, period // inner)), (TileDim((0, 1), block),))
    strides = (4, 4 * inner + 4)
    # Over a period the cut tiles are all full, so they hold `period` elements in as many runs as there are pieces.
    lengths = [r for t in range(period // block) for r in runs_of_tile(box, strides, 4, t)]
    assert contiguous_run(box, strides, 4) == sum(lengths) // 4 // len(lengths) * 4


def test_contiguous_run_of_the_case_bmji() -> None:
    """bmji,cakm->kjicba: D's box of i6 c10 b20 a24 covers a and b, so each i is one run whatever the order."""
    a, b, c, i = 24, 20, 20, 24
    strides = (2, 2 * a, 2 * a * b, 2 * a * b * c)
    box = Box((a, b, c, i), (TileDim((3,), 6), TileDim((2,), 10), TileDim((1,), b), TileDim((0,), a)))
    assert contiguous_run(box, strides, 2) == 2 * a * b * 10 == 9600
    whole = Box((a, b, c, i), (TileDim((3,), 1), TileDim((0,), a), TileDim((2,), c), TileDim((1,), b)))
    assert contiguous_run(whole, strides, 2) == 2 * a * b * c


def test_run_cost_reproduces_the_measurement() -> None:
    for run, load, store in ((16, 1.6, 0.8), (32, 2.4, 2.8), (64, 2.7, 3.2), (128, 2.9, 3.2), (256, 3.1, 3.8)):
        assert 4.25 / run_cost(RATES, run) == pytest.approx(load)
        assert 4.25 / run_cost(RATES, run, store=True) == pytest.approx(store)
    assert 4.25 / run_cost(RATES, 48, store=True, start_alignment=16, bulk=True) == pytest.approx(0.5)
    # measured 2.6 for loads of 48 bytes that cut sectors
    assert 4.25 / run_cost(RATES, 48, store=True, start_alignment=16, tile=True) == pytest.approx(1.0)
    assert 4.25 / run_cost(RATES, 48, start_alignment=16, bulk=True) == pytest.approx(2.6, rel=0.2)


@given(st.integers(1, 600), st.booleans(), st.booleans(), st.sampled_from((1, 2, 4, 8, 16)))
def test_run_cost_is_sane(run: int, store: bool, bulk: bool, align: int) -> None:
    cost = run_cost(RATES, run, store=store, bulk=bulk)
    assert cost >= 1
    whole = -(-run // 32) * 32
    assert run_cost(RATES, whole, store=store, bulk=bulk) <= cost * 1.0001
    assert (
        run_cost(RATES, whole + 32, store=store, bulk=bulk) <= run_cost(RATES, whole, store=store, bulk=bulk) * 1.0001
    )
    assert run_cost(RATES, run, store=store, bulk=bulk, start_alignment=align) >= cost * 0.9999


@given_few(20, 100, cut_tensors(flatten=True))
def test_tiles_cover_every_element_once(case: tuple[Box, tuple[int, ...], int]) -> None:
    box, _, _ = case
    seen = [c for t in range(box.tiles) for i in range(box.size) if (c := box.coordinates(t, i)) is not None]
    assert sorted(seen) == sorted(itertools.product(*(range(e) for e in box.extents)))


def test_digits_of_an_index_take_their_steps() -> None:
    assert [place_of(i, (2, 3), (1, 10)) for i in range(6)] == [0, 1, 10, 11, 20, 21]


def test_a_box_of_cuts_walks_the_other_modes_tile_by_tile() -> None:
    box = Box.of_cuts((8, 5, 7, 3), {2: 4, 0: 8}, (3, 2, 1, 0))
    assert box == Box((8, 5, 7, 3), (TileDim((2,), 4), TileDim((0,), 8), TileDim((3, 1), 1)))
    assert [i for i, _ in box.tiled] == [0, 1]
    assert (box.ragged, box.flattens, box.prefix(1)) == (1, False, 4)
    assert Box.of_cuts((4,), {0: 4}) == Box((4,), (TileDim((0,), 4),))
    assert Box.of_cuts((4, 2), {}) == Box((4, 2), (TileDim((0, 1), 1),))
