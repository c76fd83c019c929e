"""Tensor maps: they address exactly the elements that the plain strides address, and refuse what they cannot."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import assume, event
from hypothesis import strategies as st

from layouts.tma import TmaMap
from layouts.tma_map import Refusal, tma_map
from tests.sampling import given_few

Tensor = tuple[tuple[int, ...], tuple[int, ...], int]


@st.composite
def tensors(draw: st.DrawFn, max_rank: int = 4) -> Tensor:
    """(extents, byte strides, element size): modes in any order, the unit mode a multiple of 16 bytes or padded."""
    rank = draw(st.integers(1, max_rank))
    itemsize = draw(st.sampled_from((2, 4, 8)))
    lanes = 16 // itemsize
    extents = [draw(st.integers(1, 5)) for _ in range(rank)]
    strides = [0] * rank
    step = itemsize
    for i, m in enumerate(draw(st.permutations(range(rank)))):
        if i == 0:
            extents[m] = draw(st.sampled_from((lanes, 2 * lanes, 3 * lanes, lanes + 1, lanes // 2 or 1)))
        strides[m] = step if i == 0 else step * draw(st.sampled_from((1, 1, 1, -1, 0)))
        step *= extents[m]
        if draw(st.booleans()):  # a gap
            step = -(-step // 16) * 16 + 16
    return tuple(extents), tuple(strides), itemsize


@st.composite
def tiled(draw: st.DrawFn, max_rank: int = 4) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """A tensor, a box that a map might take, and the order of the box's modes."""
    tensor = draw(tensors(max_rank))
    extents, strides, itemsize = tensor
    lanes = 16 // itemsize
    box = []
    for e, s in zip(extents, strides, strict=True):
        if s == itemsize:
            box.append(draw(st.sampled_from((lanes, 2 * lanes, 4 * lanes, 8 * lanes, e))))
        else:
            box.append(1 if s <= 0 else draw(st.sampled_from((1, 2, 3, e))))
    return tensor, tuple(box), tuple(draw(st.permutations(range(len(extents)))))


def origins(extents: tuple[int, ...], box: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(0, e, b) for e, b in zip(extents, box, strict=True))))


def plain(extents: tuple[int, ...], strides: tuple[int, ...], at: tuple[int, ...]) -> int | None:
    inside = all(x < e for x, e in zip(at, extents, strict=True))
    return sum(x * s for x, s in zip(at, strides, strict=True)) if inside else None


def check(tensor: Tensor, box: tuple[int, ...], made: TmaMap) -> None:
    """The map's rules, and copy by copy what it reads and where it puts it."""
    extents, strides, itemsize = tensor
    assert made.rank <= 5
    assert made.itemsize == itemsize
    assert made.box[0] * itemsize % 16 == 0
    assert made.base_offset % 16 == 0
    assert all(s % 16 == 0 and 0 < s < 2**40 for s in made.strides[1:])
    assert all(1 <= b <= 256 for b in made.box)
    assert all(1 <= e <= 2**31 for e in made.extents)
    assert made.swizzle_bytes == 16 or made.box[0] * itemsize <= made.swizzle_bytes
    inside = list(itertools.product(*(range(b) for b in box)))
    places = [made.smem_offset(x) for x in inside]
    assert len(set(places)) == len(inside) == math.prod(made.box) * made.slabs
    assert max(places) < made.slab_bytes * made.slabs
    # Shared memory holds the tile in the order of its index, cut into slabs of whole rows.
    in_order = itertools.product(*(range(box[m]) for m in reversed(made.order)))
    for index, x in enumerate(in_order):
        at_mode = dict(zip(reversed(made.order), x, strict=True))
        slab, place = divmod(made.smem_offset([at_mode[m] for m in range(len(box))]), made.slab_bytes)
        row, byte = divmod(swizzled(made.swizzle_bytes, place), made.pitch)
        assert ((row * made.slabs + slab) * made.box[0]) + byte // itemsize == index
    for origin in origins(extents, box):
        start = made.coordinates(origin)
        read: dict[int, int | None] = {}
        for slab in range(made.slabs):
            for row in itertools.product(*(range(b) for b in reversed(made.box))):
                local = row[::-1]
                at = [s + x for s, x in zip(start, local, strict=True)]
                at[0] += slab * made.box[0]
                ok = all(0 <= x < e for x, e in zip(at, made.extents, strict=True))
                line, factor = 0, 1
                for x, b in zip(local[1:], made.box[1:], strict=True):
                    line += x * factor
                    factor *= b
                address = line * made.pitch + local[0] * itemsize
                image = slab * made.slab_bytes + swizzled(made.swizzle_bytes, address)
                offset = made.base_offset + sum(x * s for x, s in zip(at, made.strides, strict=True))
                read[image] = offset if ok else None
        for x, place in zip(inside, places, strict=True):
            at_mode = tuple(o + y for o, y in zip(origin, x, strict=True))
            expected = plain(extents, strides, at_mode)
            assert made.element_offset(at_mode) == expected
            assert read[place] == expected


def swizzled(span: int, address: int) -> int:
    for i in range({16: 0, 32: 1, 64: 2, 128: 3}[span]):
        address ^= ((address >> (7 + i)) & 1) << (4 + i)
    return address


@given_few(20, 100, tiled(), st.sampled_from((16, 32, 64, 128)))
def test_a_map_addresses_what_the_strides_address(
    case: tuple[Tensor, tuple[int, ...], tuple[int, ...]], span: int
) -> None:
    tensor, box, order = case
    assume(math.prod(box) <= 2048)
    made = tma_map(*tensor, box, order=order, swizzle_bytes=span)
    event("refused" if isinstance(made, Refusal) else f"rank {made.rank}, slabs {made.slabs > 1}")
    if isinstance(made, TmaMap):
        check(tensor, box, made)
        assert [m for m in made.order[1:]] == [m for m in order if m != made.order[0]]


@given_few(5, 20, st.lists(st.integers(2, 3), min_size=5, max_size=7), st.data())
def test_many_modes_fold(outer: list[int], data: st.DataObject) -> None:
    """Up to eight modes, at most three of them tiled, some backwards: always expressible."""
    extents = (8, *outer)
    steps = [16]
    for e in outer:
        steps.append(steps[-1] * e + 16 * data.draw(st.integers(0, 2)))
    signs = [1, *(data.draw(st.sampled_from((1, 1, -1))) for _ in outer)]
    strides = (2, *(s * g for s, g in zip(steps[:-1], signs[1:], strict=True)))
    forward = [m for m in range(1, len(extents)) if strides[m] > 0]
    cut = set(data.draw(st.permutations(forward))[:3])
    box = tuple(8 if m == 0 else 2 if m in cut else 1 for m in range(len(extents)))
    made = tma_map(extents, strides, 2, box)
    assert isinstance(made, TmaMap), made
    check((extents, strides, 2), box, made)


def test_fuse_again_makes_one_run() -> None:
    """Modes of 12 and 8 halves lie together: the row of 24 bytes alone is illegal, both together are one of 192."""
    made = tma_map((12, 8, 40), (2, 24, 192), 2, (12, 8, 4), swizzle_bytes=64)
    assert isinstance(made, TmaMap)
    assert (made.extents, made.strides, made.box, made.slabs) == ((96, 40), (2, 192), (32, 4), 3)
    check(((12, 8, 40), (2, 24, 192), 2), (12, 8, 4), made)
    # Covered whole, all of it is contiguous; 256 elements are the most that one dimension's box holds.
    made = tma_map((4, 4, 4, 4, 9), (2, 8, 32, 128, 512), 2, (4, 4, 4, 4, 1))
    assert isinstance(made, TmaMap)
    assert (made.extents, made.box) == ((256 * 9,), (256,))
    assert made.coordinates((0, 0, 0, 0, 7)) == (7 * 256,)


def test_order_of_the_box_is_the_order_of_the_tile() -> None:
    extents, strides = (64, 10, 12), (2, 128, 1280)
    for order in ((0, 1, 2), (0, 2, 1)):
        made = tma_map(extents, strides, 2, (64, 2, 3), order=order, swizzle_bytes=128)
        assert isinstance(made, TmaMap)
        assert made.strides[1:] == tuple(strides[m] for m in order[1:])
        places = {m: made.smem_offset(tuple(8 * (m == j and j == 0) or int(m == j) for j in range(3))) for m in (1, 2)}
        fastest, slowest = order[1:]
        assert places[fastest] // 128 == 1
        assert places[slowest] // 128 == {1: 2, 2: 3}[fastest]


def test_a_short_run_takes_the_span_as_its_pitch() -> None:
    made = tma_map((16, 100), (2, 64), 2, (16, 64), swizzle_bytes=128)
    assert isinstance(made, TmaMap)
    assert (made.pitch, made.slab_bytes, made.transaction_bytes) == (128, 64 * 128, 64 * 32)


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        (((8, 5), (2, 18), 2, (8, 2)), {}, "mode 1 has a stride of 18 bytes"),
        (((8, 5), (4, 32), 2, (8, 2)), {}, "no mode has the stride 2"),
        (((8, 5), (2, 16), 2, (8, 2)), {"base_alignment": 8}, "a multiple of 8 bytes"),
        (((12, 5), (2, 32), 2, (12, 2)), {}, "run along mode 0 is 24 bytes"),
        (((8, 5), (2, 0), 2, (8, 2)), {}, "mode 1 does not vary in memory and has a box of 2"),
        (((8, 5), (2, -16), 2, (8, 2)), {}, "mode 1 runs backwards in memory and has a box of 2"),
        (((8, 0), (2, 16), 2, (8, 2)), {}, "mode 1 is empty"),
        (((8, 5), (32, 256), 32, (8, 2)), {}, "elements of 32 bytes"),
        (((8, 5), (16, 128), 16, (129, 2)), {}, "a box of 129 elements along mode 0; a map's has at most 128"),
        (((8, 600), (2, 32), 2, (8, 300)), {}, "a box of 300 elements along mode 1"),
        (((8, 5), (2, 2**40), 2, (8, 2)), {}, "mode 1 has a stride of 1099511627776 bytes"),
        (((48, 5), (2, 128), 2, (48, 2)), {"swizzle_bytes": 64}, "run of 96 bytes along mode 0 is no multiple"),
        (((8, *(3,) * 6), (2, *(32 * 4**i for i in range(6))), 2, (8, *(2,) * 5, 1)), {}, "6 tiled modes and one"),
        (((8, 5), (2, 16), 2, (8, 0)), {}, "mode 1 has a box of 0"),
        (((8, 5), (2, 16), 2, (8, 2)), {"unit": 1}, "mode 1 has stride 16, dimension 0 of a map needs 2"),
    ],
)
def test_refusals_say_why(arguments: tuple[object, ...], options: dict[str, int], reason: str) -> None:
    made = tma_map(*arguments, **options)  # type: ignore[arg-type]
    assert isinstance(made, Refusal)
    assert re.search(re.escape(reason), made.reason), made.reason


def test_a_backward_mode_moves_the_base() -> None:
    made = tma_map((8, 5), (2, -16), 2, (8, 1))
    assert isinstance(made, TmaMap)
    assert made.base_offset == -64
    assert [made.coordinates((0, i)) for i in range(5)] == [(8 * (4 - i),) for i in range(5)]
    check(((8, 5), (2, -16), 2), (8, 1), made)


def test_arguments_that_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        tma_map((8, 5), (2,), 2, (8, 2))
    with pytest.raises(ValueError, match="spans 48"):
        tma_map((8, 5), (2, 16), 2, (8, 2), swizzle_bytes=48)


def test_modes_apart_in_the_tile_stay_apart() -> None:
    """Mode 1 continues mode 0 in memory, but mode 2 runs between them in the tile."""
    tensor = (8, 4, 6), (2, 16, 64), 2
    for order, rank in (((0, 1, 2), 2), ((0, 2, 1), 3)):
        made = tma_map(*tensor, (8, 2, 3), order=order)
        assert isinstance(made, TmaMap)
        assert made.rank == rank
        check(tensor, (8, 2, 3), made)
