"""Orders of an operand's copies: every access once, turns of L1, sectors, rows kept where nothing is gained."""

from __future__ import annotations

from gett.schedule.spec.vectors import TiledDim
from gett.schedule.tile.lane_order import (
    LANES,
    Copy,
    LoadedTile,
    Order,
    batch_spread,
    elements_of,
    lane_order,
    memory_order,
    store_turns,
    turns,
)
from layouts.swizzle import SmemLayout


def dim(group: str, index: int, box: int, stride: int, prefix: int = 1) -> TiledDim:
    return TiledDim(group, index, box, stride, box, True, (), prefix)


def tile(along: int, across: int, vector: int, size: int, gap: int = 0) -> LoadedTile:
    """Rows along M, with so many bytes between them."""
    row = along * vector * size
    return LoadedTile("mn", vector, along * vector, 1, size, SmemLayout(across, row, row + gap, 0, 0))


def column(stride: int, width: int) -> list[Copy]:
    """A warp's copies of neighbours in shared memory from addresses that are so far apart."""
    return [Copy(lane * stride, lane * width) for lane in range(LANES)]


def test_neighbours_take_a_turn_for_each_128_bytes() -> None:
    assert [turns(column(width, width), width) for width in (4, 8, 16)] == [1, 2, 4]


def test_lanes_that_read_one_bank_take_a_turn_each() -> None:
    """Measured by `ncu` on an H200: 32.0 at a distance of 512 bytes, 2.0 at 520, 1.0 at 516."""
    assert [turns(column(stride, 4), 4) for stride in (512, 520, 516)] == [32, 2, 1]


def test_copies_that_pass_l1_by_only_wait_for_banks_that_they_write() -> None:
    assert turns(column(4096, 8), 8) == 32
    assert turns(column(4096, 16), 16) == 4


def test_groups_of_lanes_that_read_the_same_banks_take_turns() -> None:
    """Measured: 8.0 for eight groups of 16 bytes in the same place of a line, 1.0 where each is 16 bytes further."""

    def groups(stride: int) -> list[Copy]:
        return [Copy(lane // 4 * stride + lane % 4 * 4, lane * 4) for lane in range(LANES)]

    assert [turns(groups(393216 + more), 4) for more in (0, 16, 32)] == [8, 1, 2]


def test_lanes_that_write_one_bank_take_turns() -> None:
    """Measured: 4.0 for groups of four neighbours that lie 64 bytes apart in shared memory."""
    assert turns([Copy(lane * 4, lane // 4 * 64 + lane % 4 * 4) for lane in range(LANES)], 4) == 4


def test_lanes_that_read_one_word_share_it_but_not_their_turn() -> None:
    assert turns([Copy(0, lane * 4) for lane in range(LANES)], 4) == 1


# Pairs of two rows of M, beside them 16 k, then rows that are far: lanes along M alone touch a sector each.
FEW = [dim("mn", 0, 2, 4), dim("k", 0, 16, 8), dim("mn", 1, 32, 1 << 15, 2)]
# A row of M has 64 neighbours: nothing is gained.
MANY = [dim("mn", 0, 64, 4), dim("k", 0, 16, 1 << 15)]
# Pairs of doubles, of which the next k's share a sector.
PAIRS = [dim("mn", 0, 2, 8), dim("k", 0, 2, 16), dim("mn", 1, 32, 1 << 15, 2)]


def visited(order: Order) -> list[tuple[int, int]]:
    found = []
    for number in range(elements_of(order)):
        place = {"mn": 0, "k": 0}
        for group, size, step in order:
            place[group] += number % size * step
            number //= size
        found.append((place["mn"], place["k"]))
    return found


def test_memory_order_takes_dimensions_as_they_lie() -> None:
    dims = [dim("k", 0, 2, 4), dim("l", 0, 3, 8), dim("mn", 0, 4, 24)]
    assert memory_order(dims, side=4) == (("k", 2, 1), ("mn", 3, 4), ("mn", 4, 1))
    assert visited(memory_order(dims, side=4))[:8] == [(0, 0), (0, 1), (4, 0), (4, 1), (8, 0), (8, 1), (1, 0), (1, 1)]


def test_threads_follow_memory_where_rows_have_few_neighbours() -> None:
    made = tile(32, 16, 2, 4, gap=16)
    order = lane_order(FEW, made)
    assert order == memory_order(FEW, made.side)
    assert sorted(visited(order)) == [(mn, k) for mn in range(64) for k in range(16)]


def test_rows_are_kept_where_they_follow_memory() -> None:
    assert lane_order(MANY, tile(64, 16, 1, 4)) == ()


def test_rows_are_kept_where_a_column_would_be_written_to_one_bank() -> None:
    assert lane_order(FEW, tile(32, 16, 2, 4)) == ()


def test_lanes_that_pass_l1_by_pass_from_row_to_row() -> None:
    """Eight lanes write a row together; those of the row below read the other halves of their sectors."""
    order = lane_order(PAIRS, tile(32, 2, 2, 8, gap=32))
    assert order[1:3] == (("mn", 16, 2), ("k", 2, 1))
    assert sorted(visited(order)) == [(mn, k) for mn in range(64) for k in range(2)]


def batched(side: int, k: int, size: int) -> LoadedTile:
    """Eight batches one below the other, rows along K."""
    return LoadedTile("k", 1, side, 8, size, SmemLayout(8 * side, k * size, k * size, 3, 1))


def test_neighbouring_batches_begin_with_different_chunks() -> None:
    made, dims = batched(32, 4, 16), [dim("l", 0, 8, 16), dim("k", 0, 4, 128), dim("mn", 0, 32, 512)]
    order = memory_order(dims, made.side)
    assert store_turns(order, made) == 8  # rows of neighbouring batches are 32 x 64 bytes apart
    assert batch_spread(order, made) == 4
    assert store_turns(order, made, 4) == 2


def test_batches_are_alike_where_lanes_do_not_go_from_batch_to_batch() -> None:
    made, dims = batched(32, 4, 16), [dim("k", 0, 4, 16), dim("mn", 0, 32, 64), dim("l", 0, 8, 1 << 12)]
    assert batch_spread(memory_order(dims, made.side), made) == 1
