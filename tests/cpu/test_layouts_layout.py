"""Shape/stride layouts: every operation by its post-condition, over all indices."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from layouts import (
    Layout,
    LayoutError,
    Strided,
    column_major,
    complement,
    compose,
    compose_modes,
    concatenate,
    fuse,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
    row_major,
)

extents = st.lists(st.integers(1, 6), max_size=4).map(tuple)


@st.composite
def any_layouts(draw: st.DrawFn) -> Layout:
    shape = draw(extents)
    return Layout(shape, tuple(draw(st.integers(-8, 24)) for _ in shape))


@st.composite
def gapped(draw: st.DrawFn) -> Layout:
    """Injective layouts: modes of a dense tensor, some left out, permuted."""
    shape = draw(extents)
    dense = column_major(shape)
    order = draw(st.permutations(range(len(shape))))
    return dense.permute(order) if draw(st.booleans()) or not shape else _drop(dense.permute(order))


def _drop(layout: Layout) -> Layout:
    return Layout(layout.shape[1:], layout.stride[1:])


def offsets(layout: Layout) -> list[int]:
    """By nested loops, the first mode innermost."""
    coordinates = itertools.product(*(range(n) for n in reversed(layout.shape)))
    return [sum(c * d for c, d in zip(reversed(x), layout.stride, strict=True)) for x in coordinates]


@given(any_layouts())
def test_call_and_coordinates(layout: Layout) -> None:
    expected = offsets(layout)
    assert list(layout) == expected
    assert [layout(layout.coordinate(i)) for i in range(layout.size)] == expected
    assert [layout.index(layout.coordinate(i)) for i in range(layout.size)] == list(range(layout.size))
    assert layout.size == len(expected)
    assert layout.lowest == min(expected)
    assert layout.cosize == max(expected) - min(expected) + 1


@given(any_layouts())
def test_coalesce_keeps_the_function(layout: Layout) -> None:
    short = layout.coalesce()
    assert list(short) == list(layout)
    assert 1 not in short.shape
    pairs = zip(short.shape, short.stride, short.stride[1:], strict=False)
    assert all(after != n * before for n, before, after in pairs)


@given(extents)
def test_dense_layouts(shape: tuple[int, ...]) -> None:
    assert list(column_major(shape)) == list(range(math.prod(shape)))
    assert row_major(shape).permute(range(len(shape))[::-1]) == column_major(shape[::-1])


@given(any_layouts(), st.data())
def test_permute_moves_coordinates(layout: Layout, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(layout.rank)))
    moved = layout.permute(order)
    for i in range(layout.size):
        c = layout.coordinate(i)
        assert moved([c[m] for m in order]) == layout(c)
    assert sorted(layout.sorted()) == sorted(layout)


@given(any_layouts(), st.data())
def test_compose(outer: Layout, data: st.DataObject) -> None:
    shape = data.draw(extents)
    inner = Layout(shape, tuple(data.draw(st.integers(0, 12)) for _ in shape))
    try:
        result = compose(outer, inner)
    except LayoutError:
        assume(False)
    assert [result(i) for i in range(inner.size)] == [outer(inner(i)) for i in range(inner.size)]
    assert result.size == inner.size


@given(extents, st.data())
def test_compose_succeeds_on_whole_modes(shape: tuple[int, ...], data: st.DataObject) -> None:
    """A permutation of the outer layout's own modes is always an inner layout, and mode by mode gives those modes."""
    outer = Layout(shape, tuple(data.draw(st.integers(-8, 24)) for _ in shape))
    order = data.draw(st.permutations(range(len(shape))))
    inner = column_major(shape).permute(order)
    parts = compose_modes(outer, inner)
    assert [list(p) for p in parts] == [list(Layout((shape[m],), (outer.stride[m],))) for m in order]
    assert list(compose(outer, inner)) == list(outer.permute(order))


def test_compose_refuses_what_is_no_layout() -> None:
    with pytest.raises(LayoutError, match="unevenly"):
        compose(Layout((4, 6), (1, 10)), Layout((6,), (1,)))
    with pytest.raises(LayoutError, match="no indices"):
        compose(Layout((4,), (1,)), Layout((5,), (1,)))
    # each mode alone is fine, but 2 + 3 carries over the extent of 4
    with pytest.raises(LayoutError, match="carries"):
        compose_modes(Layout((4, 6), (1, 10)), Layout((3, 2), (1, 3)))


@given(any_layouts())
def test_right_inverse(layout: Layout) -> None:
    inverse = right_inverse(layout)
    assert [layout(inverse(o)) for o in range(inverse.size)] == list(range(inverse.size))


@given(extents, st.data())
def test_right_inverse_of_a_dense_layout_is_whole(shape: tuple[int, ...], data: st.DataObject) -> None:
    dense = column_major(shape).permute(data.draw(st.permutations(range(len(shape)))))
    assert right_inverse(dense).size == dense.size


@given(gapped())
def test_left_inverse(layout: Layout) -> None:
    inverse = left_inverse(layout)
    assert [inverse(o) for o in layout] == list(range(layout.size))


@given(gapped(), st.integers(1, 200))
def test_complement(layout: Layout, cosize: int) -> None:
    whole = concatenate(layout, complement(layout, cosize))
    assert sorted(whole) == list(range(whole.size))
    assert whole.size >= cosize


def test_complement_refuses_overlap_and_broadcast() -> None:
    for layout in (Layout((4, 4), (1, 2)), Layout((4,), (0,)), Layout((4,), (-1,)), Layout((2, 2), (2, 3))):
        with pytest.raises(LayoutError, match="no complement"):
            complement(layout, 16)


@given(any_layouts(), st.integers(1, 8))
def test_logical_divide(layout: Layout, n: int) -> None:
    tile = Layout((n,), (1,))
    try:
        inside, between = logical_divide(layout, tile)
    except LayoutError:
        assume(False)
    assert (inside.size, between.size * n) == (n, layout.size)
    assert [between(j) + inside(i) for j in range(between.size) for i in range(n)] == list(layout)


def test_logical_divide_by_a_strided_tile() -> None:
    inside, between = logical_divide(Layout((4, 6), (1, 100)), Layout((2,), (4,)))
    assert list(inside) == [0, 100]
    assert list(between) == [0, 1, 2, 3, 200, 201, 202, 203, 400, 401, 402, 403]
    with pytest.raises(LayoutError):
        logical_divide(Layout((10,), (1,)), Layout((4,), (1,)))


@given(gapped(), st.integers(1, 6))
def test_logical_product(block: Layout, copies: int) -> None:
    try:
        inside, where = logical_product(block, Layout((copies,), (1,)))
    except LayoutError:
        assume(False)
    assert where.size == copies
    everything = [inside(i) + where(j) for j in range(copies) for i in range(inside.size)]
    assert len(set(everything)) == len(everything)
    assert list(inside) == list(block)


def test_errors_name_the_fault() -> None:
    with pytest.raises(LayoutError, match="differ in length"):
        Layout((2,), ())
    with pytest.raises(LayoutError, match="negative"):
        Layout((-1,), (1,))
    with pytest.raises(IndexError, match="index 4 of a layout of 4"):
        Layout((4,), (1,))(4)
    with pytest.raises(LayoutError, match="permutation"):
        Layout((4,), (1,)).permute((1,))


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_fusing_keeps_every_tensor(shape: list[int], data: st.DataObject) -> None:
    """The offsets of all tensors at all points stay the same set of tuples; no two modes that could fuse are left."""
    first = column_major(shape).stride
    order = data.draw(st.permutations(range(len(shape))))
    second = [0] * len(shape)
    for m, d in zip(order, column_major([shape[m] for m in order]).stride, strict=True):
        second[m] = d * data.draw(st.sampled_from((0, 1, 2, 1)))
    modes = [Strided((i,), e, s) for i, (e, s) in enumerate(zip(shape, zip(first, second, strict=True), strict=True))]

    def points(modes: tuple[Strided, ...]) -> list[tuple[int, ...]]:
        layouts = [Layout(tuple(m.extent for m in modes), tuple(m.strides[t] for m in modes)) for t in (0, 1)]
        return sorted(zip(*layouts, strict=True))

    fused = fuse(modes)
    assert points(fused) == points(tuple(modes))
    assert sorted(x for m in fused for x in m.labels) == [i for i, e in enumerate(shape) if e != 1]
    for a, b in itertools.permutations(fused, 2):
        assert any(q != p * a.extent for p, q in zip(a.strides, b.strides, strict=True))
