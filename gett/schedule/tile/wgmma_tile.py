"""A tile of the Hopper main loops as searches choose it and cost models look at it: warpgroups, boxes, what stays.

Tiles of D may be larger than what accumulators hold or than what one block stores: so that D's rows grow longer. Where
A's rows run along one free mode and D's along another, a tile has A's run times D's run rows, and a warpgroup's
registers bound the product. Either several MMA tiles are staged one after the other and leave together, or two blocks
of a cluster exchange halves of their tiles. Knows boxes and modes; what may be chosen and what it takes is
said by those who import this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gett.hw.archs import ArchFacts
from gett.hw.tensor_types import MmaAtom
from gett.ir.gemm import D, GemmPlan
from gett.schedule.spec.hopper_needs import ACCUMULATORS, up
from gett.schedule.spec.schedule import Split, Tiling
from layouts.box import Box
from layouts.modes import Strided, unit_mode
from layouts.swizzle import CHUNK


@dataclass(frozen=True, slots=True)
class Warpgroups:
    """Who multiplies a tile: warpgroups, MMA atoms of 64 rows of each, and whether each has a tile of its own."""

    count: int
    mma_m: int
    ping_pong: bool

    @property
    def rows(self) -> int:
        """Rows of one tile."""
        return 64 * self.mma_m * (1 if self.ping_pong else self.count)

    def takes(self, n: int) -> bool:
        """Whether a thread's registers hold the products of `n` columns, and blocks are not needlessly many."""
        widest = {1: 256, 2: 128, 4: 64}[self.mma_m]
        return n <= widest and self.mma_m * n // 2 <= ACCUMULATORS


@dataclass(frozen=True, slots=True)
class OperandTiling:
    """A box of M or N with the modes that it cuts, and the split that made them.

    Where `run` is not 0, every swizzle atom of an MN-major tile has room for `atom` rows and holds only `run`: a run
    that is no power of two lies in one row of the next wider swizzle.
    """

    box: Box
    modes: tuple[Strided, ...]
    split: Split | None = None
    run: int = 0
    atom: int = 0

    @property
    def rows(self) -> int:
        """Rows of the tile in shared memory."""
        return self.box.size // self.run * self.atom if self.run else self.box.size

    def unit(self, tensor: int, size: int) -> int | None:
        """Position of the tensor's unit-stride mode."""
        return unit_mode(self.modes, tensor, size)


@dataclass(slots=True, unsafe_hash=True)
class WgmmaTile:
    """A tile and its boxes. Nobody changes one; a frozen record takes three times as long to make, of thousands."""

    atom: MmaAtom  # the instruction
    warpgroups: Warpgroups  # who multiplies it
    m: OperandTiling  # its boxes
    n: OperandTiling
    k: Box
    cluster: tuple[int, int] = (1, 1)  # blocks along M and N that share operands
    stationary: str = ""  # the operand that stays in shared memory, "" for none
    # For how long: "" where the whole operand stays, else its rows of a panel: `"one"` where a block keeps to one
    # panel, `"each"` where it makes them one after the other.
    panel: str = ""
    # What the accumulators hold of M's box, where several MMA tiles make one tile of D.
    mma_tile: OperandTiling | None = None
    tma_source: bool = False  # whether a tensor map may bring C, if its strides let one
    exchange: bool = False  # whether the two blocks of a cluster exchange halves of their tiles of D
    runs: tuple[int, int] = (0, 0)  # elements of a gathered piece of A and of B, 0 for an operand by tensor map
    # Rows, columns and depth of what the tensor cores multiply.
    shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.shape = self.warpgroups.rows, up(self.n.box.size, self.atom.n), up(self.k.size, self.atom.k)

    @property
    def a(self) -> OperandTiling:
        """What a tile of A covers of M."""
        return self.mma_tile or self.m

    @property
    def mma_tiles(self) -> int:
        """MMA tiles that make one tile of D."""
        return 1 if self.mma_tile is None else self.m.box.size // self.mma_tile.box.size

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1]

    def tiling(self, swap_ab: bool) -> Tiling:
        """The record of a schedule."""
        splits = tuple(side.split for side in (self.m, self.n) if side.split is not None)
        return Tiling(self.shape, self.m.box, self.n.box, self.k, None, self.mma_tiles, splits, swap_ab)


def cluster_tiles(tiles_m: int, tiles_n: int, cluster: tuple[int, int]) -> int:
    """Clusters that cover the tiles of one slice and batch; at the edges some blocks have no tile."""
    return -(-tiles_m // cluster[0]) * -(-tiles_n // cluster[1])


def store_tiles(
    plan: GemmPlan, rows: int, columns: int, unit: int | None, sizes: tuple[int, int], facts: ArchFacts
) -> Iterator[tuple[OperandTiling, OperandTiling]]:
    """(tile of D, its MMA tile) along M; MMA tiles of `rows` rows follow each other along D's unit-stride mode.

    A's unit-stride mode is number `unit` of M, None where A's rows run along K; `sizes` are bytes of an element of A
    and of D.
    """
    modes = plan.m
    along = next((i for i, s in enumerate(modes) if s.strides[D] == sizes[1]), None)
    if unit is None or along is None or along == unit:
        return
    extents = tuple(s.extent for s in modes)
    for run, atom in _runs(modes[unit].extent, sizes[0]):
        count, extent = rows // atom, modes[along].extent
        most = facts.smem_per_block // 2 // (run * columns * sizes[1])  # the other half belongs to stages
        lengths = [n for n in range(2 * count, min(most, extent) + 1, count) if extent % n == 0]
        for length in lengths[-2:]:
            whole, mma = (Box.of_cuts(extents, {unit: run, along: n}) for n in (length, count))
            if whole.tiles * plan.extent_l < facts.sm_count:
                continue
            padded = (run, atom) if run < atom else (0, 0)
            yield OperandTiling(whole, modes, None, *padded), OperandTiling(mma, modes, None, *padded)


def _runs(extent: int, size: int) -> list[tuple[int, int]]:
    """(elements of A's run, rows that an atom has room for): whole swizzled rows, or the mode whole in a wider one."""
    found = [(swizzle // size, swizzle // size) for swizzle in (128, 64) if extent * size % swizzle == 0]
    wider = next((s for s in (64, 128) if s > extent * size and extent * size % CHUNK == 0), 0)
    return found or ([(extent, wider // size)] if wider and extent * size * 2 > wider else [])
