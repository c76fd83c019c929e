"""How an operand travels from global to shared memory: one record for each kind of loader.

`major` is the group, `"k"` or `"mn"`, that runs along a row in shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from layouts.domains import Conflicts, Count, Index, OneOf, Swizzle, Vector
from layouts.swizzle import SWIZZLES, SmemLayout
from layouts.tma import TmaMap

Major = Annotated[str, OneOf(("k", "mn"))]
Group = Annotated[str, OneOf(("k", "mn", "l"))]
Repeats = tuple[tuple[Index, Count, Count], ...]  # (dimension of a map, step of its coordinate, count) of copies


@dataclass(frozen=True, slots=True)
class CpAsync:
    """Vectors copied by `cp.async`, each of which lands whole in one row."""

    major: Major  # group along a row; of vectors of several elements also that of the unit-stride mode
    vector: Vector  # elements of a copy (1, 2, 4, 8, 16), along the operand's unit-stride mode
    smem: SmemLayout  # row pitch and swizzle

    through_registers: ClassVar[bool] = False
    conflicts: ClassVar[int] = 1
    walk: ClassVar[tuple[tuple[str, int], ...]] = ()

    @property
    def vector_group(self) -> str:
        """Group of the unit-stride mode, along which vectors lie."""
        return self.major


@dataclass(frozen=True, slots=True)
class RegisterStaged:
    """Vectors loaded into registers and stored element by element, which transposes them on the way."""

    major: Major  # group along a row
    vector: Vector  # elements of a load
    vector_group: Group  # group of the unit-stride mode, along which vectors lie
    smem: SmemLayout  # row pitch and swizzle
    # The tiled dimensions (group, position in its box), by distance in the operand's memory: the order in which a tile
    # is read.
    walk: tuple[tuple[Group, Index], ...]
    conflicts: Conflicts = 1  # how often a warp's store of one element is served on such a walk

    through_registers: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Multicast:
    """Blocks of a cluster that need the same tile, each of which fetches a share for all."""

    blocks: Count  # how many
    # Dimension of the map's box that they divide among them; None: each fetches whole copies in its turn.
    divided: Index | None


class TileLoader:
    """What a loader of the Hopper main loops answers, beside its `major` and its `swizzle_bytes`."""

    __slots__ = ()

    stays: ClassVar[bool] = False  # whether the operand stays in shared memory
    by_warps: ClassVar[bool] = False  # whether warps bring the operand, not a tensor map
    transform: Transform | None = None  # what happens to elements on the way

    @property
    def tma(self) -> Tma | None:
        """The copies by tensor map that it makes, None where it makes none."""
        return None

    @property
    def width(self) -> int:
        """Elements that threads bring together, 0 by tensor map."""
        return 0

    def rows(self, size: int) -> int:
        """Rows in shared memory of a tile of `size` rows."""
        return size if self.tma is None else self.tma.rows(size)


@dataclass(frozen=True, slots=True)
class Tma(TileLoader):
    """Boxes copied by tensor map."""

    major: Major  # group along a row
    map: TmaMap  # the tensor map; its modes are l, m (or n), k of the lowered plan, in that order
    repeats: Repeats = ()  # copies that one after the other make a tile, fastest first, where one copy cannot
    pitch: Index = 0  # bytes from copy to copy
    # Rows of each swizzle atom of an MN-major tile that are loaded, where they are fewer than the atom has; 0 where
    # atoms are full.
    run: Index = 0
    multicast: Multicast | None = None  # set where blocks of a cluster share the tile

    @property
    def tma(self) -> Tma:
        """Itself."""
        return self

    @property
    def swizzle_bytes(self) -> int:
        """Bytes of a row that the swizzle permutes, 16 for none."""
        return self.map.swizzle_bytes

    @property
    def copies(self) -> int:
        """Copies of a tile."""
        return self.map.slabs * math.prod(count for _, _, count in self.repeats)

    @property
    def bytes(self) -> int:
        """What the copies of a tile add to the count of its barrier."""
        return self.map.transaction_bytes * self.copies

    @property
    def blocks(self) -> int:
        """Blocks that share the tile."""
        return 1 if self.multicast is None else self.multicast.blocks

    @property
    def divided(self) -> int | None:
        """Dimension of the map's box that blocks divide among them, None where they do not."""
        return None if self.multicast is None else self.multicast.divided

    @property
    def box(self) -> tuple[int, ...]:
        """The box of one copy: the map's, or a block's share of it."""
        return tuple(b // self.blocks if i == self.divided else b for i, b in enumerate(self.map.box))

    @property
    def atom(self) -> int:
        """Rows of a swizzle atom of an MN-major tile whose atoms are not full; 1 where they are."""
        return self.map.swizzle_bytes // self.map.itemsize if self.run else 1

    def rows(self, size: int) -> int:
        """Rows in shared memory of a tile of `size` rows: atoms that are not full take whole ones."""
        return size // self.run * self.atom if self.run else size


@dataclass(frozen=True, slots=True)
class Stationary(TileLoader):
    """An operand that stays in shared memory: fetched once for all tiles that need the same rows of it.

    With a `PersistentPanel` scheduler these are the rows of a panel, with any other the whole operand.
    """

    load: Tma  # how it is fetched, k-tile by k-tile
    k_tiles: Count  # k-tiles that it has

    stays: ClassVar[bool] = True

    @property
    def tma(self) -> Tma:
        """The copies of a k-tile."""
        return self.load

    @property
    def major(self) -> str:
        """Group along a row."""
        return self.load.major

    @property
    def swizzle_bytes(self) -> int:
        """Bytes of a row that the swizzle permutes, 16 for none."""
        return self.load.swizzle_bytes


@dataclass(frozen=True, slots=True)
class Transpose:
    """A transform: pieces along one contracted mode become rows along another, eight by eight elements in registers."""

    elements: Count  # of the mode along which the rows run, in a tile; a multiple of 8


Transform = Transpose  # what happens to an operand's elements between the copies and the tile that is multiplied


@dataclass(frozen=True, slots=True)
class Gather(TileLoader):
    """Pieces of rows brought in by warps where no tensor map can, shifted into place on the way."""

    major: Major  # group along a row
    run: Count  # elements of a piece, contiguous in memory; a multiple of 8 that divides the unit-stride mode's box
    swizzle_bytes: Swizzle  # swizzle of the tile in shared memory, 16 for none
    # Set where the unit-stride modes of A and B are two contracted modes and the tile's K follows the other operand's.
    transform: Transform | None = None

    by_warps: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Elements of a piece."""
        return self.run


@dataclass(frozen=True, slots=True)
class CpAsyncTile(TileLoader):
    """Boxes copied by `cp.async` where no tensor map can, vector by vector to the places that a map would choose."""

    major: Major  # group along a row
    vector: Vector  # elements of a copy, of 4, 8 or 16 bytes, along the operand's unit-stride mode
    swizzle_bytes: Annotated[int, OneOf(SWIZZLES)]  # swizzle of the tile in shared memory

    by_warps: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Elements of a copy."""
        return self.vector

    def rows(self, size: int) -> int:
        """Rows in shared memory of a tile of `size` rows: along M or N rows are whole chunks of eight."""
        return -(-size // 8) * 8 if self.major == "mn" else size


HopperLoader = Tma | Stationary | Gather | CpAsyncTile  # loaders of the tiles of Hopper main loops
