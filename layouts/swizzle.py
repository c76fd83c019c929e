"""Shared-memory tiles: row pitch, XOR swizzle, and how many bank conflicts an access pattern has.

Shared memory has 32 banks of 4 bytes; a warp's access of up to 16 bytes a lane is served in phases of 128 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from layouts.domains import Bits, Count, Shift

BANKS = 32
BANK_BYTES = 4
CHUNK = 16  # bytes of one swizzled unit and of the widest access
SWIZZLES = (32, 64, 128)  # bytes of a row that the hardware's swizzles permute


def swizzle_dividing(run_bytes: int) -> int:
    """The widest swizzle whose rows divide a run, 16 for none; 0 where the run is no multiple of 16 bytes."""
    widest = math.gcd(run_bytes, SWIZZLES[-1])
    return widest if widest >= CHUNK else 0


def swizzle_holding(run_bytes: int) -> int:
    """The narrowest swizzle whose rows hold a run; 0 where none does."""
    return next((s for s in SWIZZLES if s >= run_bytes), 0)


Pattern = tuple[Callable[[int], tuple[int, int]], int, int]
"""An access of a warp: (lane -> (row, byte of the row), bytes per lane, number of lanes)."""


@dataclass(frozen=True, slots=True)
class SmemLayout:
    """A tile of rows in shared memory.

    Byte `x` of row `r` lies at `r * pitch + (x ^ (((r >> shift) & mask) * 16))`.

    Attributes:
        rows: Number of rows.
        row_bytes: Bytes of a row that hold data.
        pitch: Bytes from row to row, at least `row_bytes`, a multiple of 16.
        mask: Bits of the row number that permute the row's 16-byte chunks; 0 for none.
        shift: Right shift of the row number before masking.
    """

    rows: Count
    row_bytes: Count
    pitch: Count
    mask: Bits = 0
    shift: Shift = 0

    def __post_init__(self) -> None:
        if self.pitch < self.row_bytes or self.pitch % CHUNK or self.mask < 0 or self.mask & (self.mask + 1):
            raise ValueError(f"not a shared-memory layout: {self}")
        if self.mask and self.row_bytes % ((self.mask + 1) * CHUNK):
            raise ValueError(f"a swizzle of {self.mask + 1} chunks does not stay inside rows of {self.row_bytes} bytes")

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        return self.rows * self.pitch

    def address(self, row: int, byte: int) -> int:
        """Byte address of byte `byte` of row `row`."""
        return row * self.pitch + (byte ^ self.bits(row))

    def bits(self, row: int) -> int:
        """How a row permutes its chunks: by which bits the numbers of its bytes are changed."""
        return ((row >> self.shift) & self.mask) * CHUNK

    def moved(self, first: int, rows: int) -> int:
        """Address of the same byte `rows` rows behind that whose address is `first`, where these rows are steady."""
        return (first ^ self.bits(rows)) + rows * self.pitch

    def is_steady(self, step: int, *, lacked: bool) -> bool:
        """Whether `moved` is right for multiples of `step` rows: it asks for an address and not for its row.

        Args:
            step: Rows.
            lacked: Whether the rows that are moved from lack all bits of such multiples.
        """
        whole = step % ((self.mask + 1) << self.shift) == 0
        return not self.mask or whole or (lacked and self.pitch % ((self.mask + 1) * CHUNK) == 0)


def replays(addresses: Iterable[int], width: int) -> list[int]:
    """How often each phase of a warp's access is served: 1 means without conflict.

    Args:
        addresses: Byte address of each lane, in lane order.
        width: Bytes per lane: 1, 2, 4, 8 or 16. Lanes that read the same word share it.
    """
    unit = max(width, BANK_BYTES)
    lanes = list(addresses)
    per_phase = BANKS * BANK_BYTES // unit
    aligned = not reduce(or_, lanes, 0) % width  # a power of two
    served = []
    for start in range(0, len(lanes), per_phase):
        phase = lanes[start : start + per_phase]
        if aligned:  # a lane never straddles a unit: the banks of a unit are hit together, so count units
            units = {a // unit for a in phase}
            if len({u % per_phase for u in units}) == len(units):
                served.append(1)
                continue
            slots = [0] * per_phase
            for u in units:
                slots[u % per_phase] += 1
        else:
            slots = [0] * BANKS
            for w in {w for a in phase for w in range(a // BANK_BYTES, (a + width - 1) // BANK_BYTES + 1)}:
                slots[w % BANKS] += 1
        served.append(max(slots))
    return served


def choose_smem(rows: int, row_bytes: int, patterns: Sequence[Pattern]) -> SmemLayout:
    """The layout of a tile that serves the given accesses best.

    The order is: dense rows, dense rows with an XOR swizzle, padded rows (16 to 128 bytes, the smallest first). The
    first layout that is free of conflicts is taken. If none is, the one with the fewest phases served in all is taken,
    the earlier on a tie.

    Args:
        rows: Number of rows.
        row_bytes: Bytes of a row that hold data; rows are padded to a multiple of 16.
        patterns: Accesses that should be free of conflicts, see `Pattern`. Rows and bytes must lie in the tile.

    Raises:
        ValueError: A pattern leaves the tile.
    """
    points: list[tuple[list[tuple[int, int]], int]] = []
    for where, width, lanes in patterns:
        at = [where(lane) for lane in range(lanes)]
        for row, byte in at:
            if not (0 <= row < rows and 0 <= byte <= row_bytes - width):
                raise ValueError(
                    f"an access of {width} bytes at row {row}, byte {byte} leaves a tile of {rows} rows of "
                    f"{row_bytes} bytes"
                )
        points.append((at, width))
    best: SmemLayout | None = None
    fewest = 0
    for layout in _candidates(rows, row_bytes):
        total, free = 0, True
        pitch, mask, shift = layout.pitch, layout.mask, layout.shift
        for at, width in points:
            served = replays([r * pitch + (x ^ (((r >> shift) & mask) * CHUNK)) for r, x in at], width)
            total += sum(served)
            free = free and max(served, default=1) == 1
        if free:
            return layout
        if best is None or total < fewest:
            best, fewest = layout, total
    assert best is not None
    return best


def _candidates(rows: int, row_bytes: int) -> Iterable[SmemLayout]:
    dense = -(-row_bytes // CHUNK) * CHUNK
    yield SmemLayout(rows, row_bytes, dense)
    for mask in (1, 3, 7):
        if row_bytes % ((mask + 1) * CHUNK) == 0:
            for shift in range(4):
                yield SmemLayout(rows, row_bytes, dense, mask, shift)
    for padding in range(CHUNK, 129, CHUNK):
        yield SmemLayout(rows, row_bytes, dense + padding)


def swizzle_address(swizzle: int, address: int) -> int:
    """Where byte `address` of a dense slab lies under the hardware's swizzle of `swizzle` bytes.

    Bits 4, 5, 6 of the address are permuted by bits 7, 8, 9. All three are for 128, two for 64, one for 32, none for
    16.
    """
    return address ^ (((address >> 7) & (swizzle // CHUNK - 1)) << 4)
