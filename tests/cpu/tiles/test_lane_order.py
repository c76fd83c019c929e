"""Lanes that follow an operand in memory: every access once, fewer sectors, rows kept where that gains nothing."""

from __future__ import annotations

import pytest

from gett.schedule.spec.vectors import TiledDim
from gett.schedule.tile.lane_order import LANES, LaneOrder, LoadedTile, _sectors, _warps, lane_order
from layouts.swizzle import SmemLayout


def dim(group: str, box: int, stride: int, prefix: int = 1) -> TiledDim:
    return TiledDim(group, 0, box, stride, box, True, (), prefix)


def tile(major: str, along: int, across: int, vector: int, size: int) -> LoadedTile:
    side = across if major == "k" else along * vector
    pitch = along * vector * size
    return LoadedTile(major, along, across, vector, side, size, SmemLayout(across, pitch, pitch, 0, 0))


# Pairs of two rows of M, beside them 16 k, then rows that are far: lanes along M alone touch a sector each.
FEW = [dim("mn", 2, 4), dim("k", 16, 8), dim("mn", 32, 1 << 15, 2)]
# A row of M has 64 neighbours: nothing is gained.
MANY = [dim("mn", 64, 4), dim("k", 16, 1 << 15)]


@pytest.mark.parametrize("order", [LaneOrder(32, 1), LaneOrder(1, 16), LaneOrder(4, 8), LaneOrder(2, 2)])
def test_an_order_visits_every_access_once(order: LaneOrder) -> None:
    made = tile("mn", 32, 16, 2, 4)
    places = {made.place(order, i) for i in range(32 * 16)}
    assert places == {(row, access) for row in range(16) for access in range(32)}


def test_by_row_is_one_row_after_the_other() -> None:
    made = tile("mn", 32, 16, 2, 4)
    assert [made.place(LaneOrder(32, 1), i) for i in (0, 1, 31, 32)] == [(0, 0), (0, 1), (0, 31), (1, 0)]


def test_lanes_pass_from_row_to_row_where_memory_does() -> None:
    made = tile("mn", 32, 16, 2, 4)
    order = lane_order(FEW, made)
    assert order.across > 1

    def touched(x: LaneOrder) -> int:
        return max(_sectors(FEW, made, warp) for warp in _warps(made, x))

    assert touched(LaneOrder(32, 1)) == LANES
    assert touched(order) <= LANES // 2


def test_rows_are_kept_where_they_follow_memory() -> None:
    made = tile("mn", 64, 16, 1, 4)
    assert lane_order(MANY, made) == LaneOrder(64, 1)


def test_few_sectors_are_left_alone() -> None:
    """A row of 16 neighbours in eight bytes each touches less than half as many sectors as it has lanes."""
    dims = [dim("mn", 16, 4), dim("k", 16, 64), dim("mn", 4, 1 << 15, 16)]
    made = tile("mn", 32, 16, 2, 4)
    assert lane_order(dims, made) == LaneOrder(32, 1)
