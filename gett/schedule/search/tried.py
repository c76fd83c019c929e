"""What searches try, a record of each main loop: who multiplies, columns, depths, cuts, stages, what may stay.

More was tried of each and never chosen. Knows no plan; what hardware and kernels forbid is said by their rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.schedule.spec.mainloop import DmmaTma, WgmmaRS, WgmmaSplit, WgmmaTf32
from gett.schedule.tile.wgmma_tile import Warpgroups


@dataclass(frozen=True, slots=True)
class Tried:
    """What the search of a Hopper main loop tries.

    K is that of types with 16 in an instruction, others in proportion.
    """

    groups: tuple[Warpgroups, ...]  # who multiplies
    widths: tuple[int, ...]  # columns of tiles
    waves: int = 4  # whole waves of tiles, as many at most, for which columns are tried
    depths: tuple[int, ...] = ()  # K of a k-tile
    leads: tuple[int, ...] = ()  # cuts of a mode along which an operand's rows run
    two_leads: tuple[tuple[int, int], ...] = ()  # cuts of A's and of B's where they are two contracted modes
    word_leads: tuple[tuple[int, int], ...] = ()  # the same of elements that registers hold alone
    stages: tuple[tuple[int, int], ...] = ()  # k-tiles of what threads make, and the fewest of operands beside them
    complex_widths: tuple[int, ...] = ()  # columns of complex numbers, where they are others
    shortest: int = 0  # unit-stride mode that is not mostly padding
    runs: bool = True  # whether rows of padding may be part of operands' tiles
    few: bool = False  # whether boxes of complex numbers with few dimensions are tried: a tensor map of D has few
    shares: bool = False  # whether tiles in clusters are tried, whose blocks share an operand
    subtiles: tuple[tuple[int, int], ...] = ()  # parts in which D's tile is staged, and how many of them at a time
    few_stages: int = 4  # stages beside the whole tile up to which it is staged in parts: more gained nothing
    squares: bool = True  # whether tiles under way may make a square of D, or lie in several batches


@dataclass(frozen=True, slots=True)
class Staying:
    """When operands of `WgmmaSS` stay in shared memory. Beyond these limits it gained nothing on an H200."""

    tiles: int  # that a multiprocessor makes at least
    panels: int  # of blocks that keep to one, at most
    panel_tiles: int  # that a multiprocessor makes at least where its block keeps to one panel
    panel_k: int  # K of these at least
    padded: float  # rows of all panels at most, by those that hold something
    outputs: int  # of such a tile at most
    under_way: int  # bytes of loads at least
    one_tile: int  # rows that a tile takes beside 128 or more of the other operand, which is then read once


@dataclass(frozen=True, slots=True)
class Streaming:
    """What searches of bandwidth-bound kernels try."""

    threads: int  # of a block
    runs: tuple[int, ...]  # bytes that a tile is to have together in a tensor
    tile_bytes: int  # of the widest tensor in a tile: four 16-byte accesses a thread
    unroll: int  # vectors of a thread in one step of a map, at most
    accesses: int  # of the streamed operand of a sum that a thread has in flight
    held_bytes: int  # of a thread's sums
    matrix_bytes: int  # of the operand beside a small matrix that a thread has in flight at most
    fewest: int  # elements of M below which a block has little to do beside a small matrix
    smallest: int  # elements of M and of all batches below which blocks are few
    shared_run: int  # bytes of D together that stores along M are to reach; below, two lanes share a vector
    clearly: float  # share of the traffic that it must take at most, for a tile to grow along what an operand lacks


def _of(loop: type[DmmaTma | WgmmaRS | WgmmaSplit | WgmmaTf32], *mma_m: int) -> tuple[Warpgroups, ...]:
    return tuple(Warpgroups(loop.warpgroups, m, loop.ping_pong) for m in mma_m)


SS = Tried(
    groups=(*(Warpgroups(2, m, False) for m in (1, 2, 4)), *(Warpgroups(2, m, True) for m in (1, 2, 4))),
    widths=(256, 192, 128, 96, 64, 48, 32, 24, 16, 8),
    depths=(64, 48, 32, 16, 128),
    leads=(128, 64, 32, 16, 8),
    shares=True,
    subtiles=((4, 2), (2, 1), (3, 1), (5, 1)),
)

# Operands are shared with the first cuts. Rows of 64 bytes of both take the copy engine least. Stages are slabs of B.
RS = Tried(
    groups=_of(WgmmaRS, WgmmaRS.mma_m),
    widths=(256, 224, 192, 160, 128, 96, 64, 32),
    two_leads=((16, 32), (32, 16), (16, 16)),
    word_leads=((16, 16), (8, 16), (16, 8)),
    stages=((0, 16),),
    squares=False,
)

SPLIT = Tried(
    groups=_of(WgmmaSplit, WgmmaSplit.mma_m),
    widths=SS.widths,
    depths=(16, 32),
    leads=(*SS.leads, 4),
    stages=((3, 4), (2, 3), (3, 2), (2, 2)),
    runs=False,
)

SPLIT_COPIES = Tried(
    groups=SPLIT.groups,
    widths=(128, 96, 64, 48, 40, 32, 16, 8),
    depths=SPLIT.depths,
    leads=(32, 16, 8, 4),
    two_leads=((4, 8), (8, 4), (2, 16)),
    stages=SPLIT.stages,
    runs=False,
)

TF32 = Tried(
    groups=_of(WgmmaTf32, 1, 2, 4),
    widths=SS.widths,
    depths=(64, 48, 32, 128),
    leads=SS.leads,
    stages=((2, 3), (3, 4), (2, 2)),
    shares=True,
    subtiles=SS.subtiles,
)

# Waves of tiles are few, so widths lie close together.
DMMA = Tried(
    groups=_of(DmmaTma, 1, 2, 4),
    widths=(160, 152, 144, 136, 128, 120, 112, 104, 96, 88, 80, 64, 56, 48, 40, 32, 24, 16, 8),
    depths=(16, 32),
    leads=(32, 16, 8, 4),
    two_leads=((8, 4), (4, 8), (4, 4), (8, 8)),
    complex_widths=(64, 56, 48, 40, 32, 24, 16, 8),
    few=True,
    shares=True,
)

GATHER = Tried(
    groups=(Warpgroups(2, 1, False), Warpgroups(2, 2, False)),
    widths=(192, 176, 160, 128, 96, 64, 48, 32, 24, 16, 8),
    depths=(64, 48, 32, 16),
    leads=(256, 128, 64, 32, 16, 8),
    two_leads=((8, 16), (16, 8), (8, 8)),
    shortest=4,
    squares=False,
)

STAYING = Staying(
    tiles=2,
    panels=6,
    panel_tiles=4,
    panel_k=192,
    padded=1.07,
    outputs=128 * 192,
    under_way=64 << 10,
    one_tile=128,
)

STREAMING = Streaming(
    threads=256,
    runs=(32, 64, 128, 256, 512),
    tile_bytes=16 << 10,
    unroll=4,
    accesses=8,
    held_bytes=128,
    matrix_bytes=64,
    fewest=1 << 10,
    smallest=1 << 14,
    shared_run=64,
    clearly=0.6,
)
