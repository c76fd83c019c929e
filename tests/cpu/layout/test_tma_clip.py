"""Clipped tensor maps: a box ends at any row, and reaches the rows of its tile before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layouts.tma import TmaMap
from layouts.tma_clip import FAR, clipped
from layouts.tma_map import tma_map


def rows_map(rows: int = 40, columns: int = 24, box: tuple[int, int] = (24, 8), row: int = 64) -> TmaMap:
    made = tma_map([columns, rows], [2, row], 2, box)
    assert isinstance(made, TmaMap)
    return made


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_a_box_reaches_the_rows_that_are_left(copies: int) -> None:
    made = clipped(rows_map(), 1, 8, 64)
    assert made is not None
    assert (made.extents, made.strides, made.box) == ((24, 8, 41), (2, 64, 64), (24, 8, 1))
    for first in range(40):
        for left in range(min(8, 40 - first) + 1):
            found = []
            for copy in range(copies):  # each has its part of the rows
                at = 8 - left + copy * 8 // copies
                for row in range(at, at + 8 // copies):
                    if 0 <= row < made.extents[1] and 0 <= first + left < made.extents[2]:
                        found.append(made.base_offset + row * made.strides[1] + (first + left) * made.strides[2])
            assert found == [64 * (first + i) for i in range(left)]


def test_where_there_is_none() -> None:
    made = rows_map()
    assert clipped(made, 0, 8, 2) is None  # the rows are neighbours in memory
    assert clipped(made, 1, 8, 8) is None
    assert clipped(made, 1, 8, FAR) is None
    assert clipped(replace(made, base_offset=16), 1, 8, 64) is None
    together = rows_map(columns=24, row=48)  # rows without gaps are one run
    assert together.modes[1].dim == 0
    assert clipped(together, 1, 8, 48) is None
    five = tma_map([24, 40, 3, 3, 3], [2, 64, 4096, 16384, 65536], 2, [24, 8, 2, 2, 2])
    assert isinstance(five, TmaMap)
    assert clipped(five, 1, 8, 64) is None
