"""What was measured of kernels whose time is that of their bytes, and of copies: parts of a device's record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamRates:
    """Sums, permutations, and products with a small matrix.

    Attributes:
        split_blocks: Blocks of a multiprocessor that a split of K aims at.
        least_slice_bytes: What a block of a split reads at least: a second launch takes as long as these.
        step_bytes: Bytes of a map's result up to which larger tiles gain less than a second step of a block costs.
        matrix_share: Share of a copy's rate that a product with a small matrix reaches.
        matrix_lanes: Its multiply-adds of a multiprocessor in a clock that are counted on.
        matrix_start_us: What its start and end take beside the bytes, where the sums of a thread follow each other.
        matrix_rows: Factor on its time where the lanes of a row of D share an element of M.
        matrix_stores: Parts of lines that L2 takes in a clock, where a warp does not store them one after the other.
    """

    split_blocks: int
    least_slice_bytes: int
    step_bytes: int
    matrix_share: float
    matrix_lanes: int
    matrix_start_us: float
    matrix_rows: float
    matrix_stores: float


@dataclass(frozen=True, slots=True)
class PackingRates:
    """Copies whose product is multiplied.

    Attributes:
        clearly: How many times faster than all else packed schedules must be expected to be: copies ask for memory.
        short_clearly: The same where all else takes less than `short_us`, of which forecasts are as uncertain as that.
        short_us: See there.
        large_bytes: Workspace beyond which memory is worth more than the last few percent.
        large_clearly: How many times faster than packed schedules below that others must be expected to be.
        cut_rows: Factor on copies of rows that pieces cut below `cut_bytes`: memory opens a page for a part of it.
        cut_bytes: See there.
        read_ps: Picoseconds of the whole GPU for each access of a copy that reads through shared memory.
        staged_ps: For each that then writes.
        write_ps: For each that writes what was read directly.
        element_ps: For each element.
    """

    clearly: float
    short_clearly: float
    short_us: float
    large_bytes: int
    large_clearly: float
    cut_rows: float
    cut_bytes: int
    read_ps: float
    staged_ps: float
    write_ps: float
    element_ps: float


@dataclass(frozen=True, slots=True)
class TableRates:
    """Products whose strides are in tables, element by element: rough figures, by which a tile is chosen.

    Attributes:
        step_us: Microseconds of a k-tile.
        product_us: Of each product of a thread in it.
        products_per_us: Of all multiprocessors with tiles of 64 x 64; others by the root of their elements.
        threads: Of a multiprocessor at once.
    """

    step_us: float
    product_us: float
    products_per_us: float
    threads: int
