"""What reading a staged tile of D takes of shared memory, against addresses worked out one by one."""

from __future__ import annotations

import pytest

from gett.schedule.cost.padded_tile import reads_in_turn
from gett.schedule.mainloops.multistage import padded_pitch
from gett.schedule.spec.vectors import TiledDim
from layouts.swizzle import replays


def dim(group: str, box: int, prefix: int = 1) -> TiledDim:
    return TiledDim(group, 0, box, 1, box, True, (), prefix)


def test_rows_have_a_gap() -> None:
    assert [padded_pitch(n, 4) for n in (32, 33, 36)] == [144, 160, 160]


def test_neighbours_in_a_row_are_read_without_conflict() -> None:
    assert reads_in_turn([dim("n", 128), dim("m", 64)], (64, 128, 8), 4, 4) == 1.0  # 16 bytes a lane, in four phases
    assert reads_in_turn([dim("n", 128), dim("m", 64)], (64, 128, 8), 4, 1) == 1.0


@pytest.mark.parametrize("vector", [1, 2, 4])
def test_conflicts_are_those_of_the_addresses(vector: int) -> None:
    """D's nearest mode steps over eight columns, the next one over eight rows: all lanes meet in few banks."""
    shape, size = (112, 128, 24), 4
    dims = [dim("n", 16, 8), dim("m", 13, 8), dim("m", 8), dim("n", 8)]
    pitch, at = padded_pitch(shape[1], size), []
    for lane in range(32):
        n, m = lane * vector % 16, lane * vector // 16 % 13
        at.append(m * 8 * pitch + n * 8 * size)
    assert reads_in_turn(dims, shape, size, vector) == sum(replays(at, size))
    assert reads_in_turn(dims, shape, size, vector) == 8 * vector


def test_batches_lie_one_above_the_other() -> None:
    shape, size = (8, 32, 8), 8
    dims = [dim("l", 16), dim("n", 32)]
    at = [lane % 16 * 8 * padded_pitch(32, 8) + lane // 16 * 8 for lane in range(32)]
    assert reads_in_turn(dims, shape, size, 1) == sum(replays(at, size))
