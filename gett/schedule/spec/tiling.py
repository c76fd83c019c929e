"""What a block computes: boxes over the groups of modes, and the tile that the tensor cores or threads multiply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from layouts.box import Box
from layouts.domains import Count, Index, OneOf


@dataclass(frozen=True, slots=True)
class Split:
    """A mode cut in two before boxes are chosen: position in its group, extent of the inner part."""

    group: Annotated[str, OneOf(("m", "n", "k"))]
    mode: Index
    inner: Count


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tile of one block. Boxes refer to the lowered plan (`gett.schedule.lower`).

    Attributes:
        shape: Rows, columns and depth of the tile that is multiplied, padding included.
        m, n, k: How each group is cut; a box may be smaller than its part of the shape, the rest is padding.
        l: How the batch group is cut, where a block makes several batches together; None where it makes one.
        mma_tiles: Tiles of that shape along M that make one tile of D; `m` covers all of them.
        splits: Modes cut in two before the boxes.
        swap_ab: Whether A and B change roles once more after the plan.
    """

    shape: tuple[Count, Count, Count]
    m: Box
    n: Box
    k: Box
    l: Box | None = None
    mma_tiles: Count = 1
    splits: tuple[Split, ...] = ()
    swap_ab: bool = False

    @property
    def batches(self) -> int:
        """Batches that the tile of a block has room for."""
        return self.l.size if self.l is not None else 1

    def tiles(self, extent_l: int) -> int:
        """Tiles of D over all batches, of which there are `extent_l`."""
        return self.m.tiles * self.n.tiles * (self.l.tiles if self.l is not None else extent_l)
