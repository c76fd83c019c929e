"""Tile schedulers: which tiles a block makes, in what order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from layouts.domains import Count, Index, OneOf


@dataclass(frozen=True, slots=True)
class OneTile:
    """A block for each tile and slice of K.

    Attributes:
        group_m: Tiles of M that are visited together for reuse in L2.
        split_k: Slices of K, summed in a fixed order.
    """

    group_m: Count = 1
    split_k: Count = 1


@dataclass(frozen=True, slots=True)
class PersistentRaster:
    """One block a multiprocessor; each takes every n-th tile.

    Attributes:
        blocks: Most blocks.
        group_m: Tiles of M (of clusters, where there are any) that are visited together for reuse in L2.
        split_k: Slices of K, summed in a fixed order.
        cluster: Neighbouring tiles along M and along N whose blocks share operands.
        cluster_order: First tile of each cluster where as many clusters run; empty for plain order.
        group_l: Batches that are visited together, `group_m` rows of tiles of each at a time: those whose tiles lie
            side by side in D.
    """

    blocks: Count
    group_m: Count = 1
    split_k: Count = 1
    cluster: tuple[Count, Count] = (1, 1)
    cluster_order: tuple[Index, ...] = ()
    group_l: Count = 1


@dataclass(frozen=True, slots=True)
class PersistentPanel:
    """One block a multiprocessor, which makes tiles of a panel: those that need the same rows of an operand.

    Attributes:
        blocks: Most blocks.
        tensor: The operand, `"a"` or `"b"`, whose rows the tiles of a panel share.
        one_panel: Whether each block keeps to one panel; else it makes one panel after the other.
        group_m: Tiles of M that are visited together: 1, or all.
    """

    blocks: Count
    tensor: Annotated[str, OneOf(("a", "b"))]
    one_panel: bool
    group_m: Count

    @property
    def split_k(self) -> int:
        """Slices of K: panels are not sliced."""
        return 1

    @property
    def cluster(self) -> tuple[int, int]:
        """Tiles whose blocks share operands: panels are made without clusters."""
        return (1, 1)


TileScheduler = OneTile | PersistentRaster | PersistentPanel
