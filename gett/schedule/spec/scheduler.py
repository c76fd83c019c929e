"""Tile schedulers: which tiles a block makes, in what order.

All answer whether they are `persistent`, whether they divide tiles (`stream_k`), which `tensor` stays with a block's
panel, and how blocks and batches are grouped, so that nobody asks which of them a schedule has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

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

    persistent: ClassVar[bool] = False
    stream_k: ClassVar[bool] = False
    blocks: ClassVar[int] = 0
    cluster: ClassVar[tuple[int, int]] = (1, 1)
    cluster_order: ClassVar[tuple[int, ...]] = ()
    group_l: ClassVar[int] = 1
    tensor: ClassVar[str] = ""
    one_panel: ClassVar[bool] = False


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

    persistent: ClassVar[bool] = True
    stream_k: ClassVar[bool] = False
    tensor: ClassVar[str] = ""
    one_panel: ClassVar[bool] = False


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

    persistent: ClassVar[bool] = True
    stream_k: ClassVar[bool] = False
    split_k: ClassVar[int] = 1
    cluster: ClassVar[tuple[int, int]] = (1, 1)
    cluster_order: ClassVar[tuple[int, ...]] = ()
    group_l: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class StreamK:
    """One block a multiprocessor; the tiles that do not fill all of them in whole waves are divided among them.

    The k-tiles of these tiles, end to end, are dealt out to the clusters in equal shares. Their partial sums are added
    in a fixed order by a second kernel. The other tiles are made whole.

    Attributes:
        blocks: Blocks of the grid.
        group_m: Tiles of M (of clusters, where there are any) that are visited together for reuse in L2.
        cluster: Neighbouring tiles along M and along N whose blocks share operands.
    """

    blocks: Count
    group_m: Count = 1
    cluster: tuple[Count, Count] = (1, 1)

    persistent: ClassVar[bool] = True
    stream_k: ClassVar[bool] = True
    split_k: ClassVar[int] = 1
    cluster_order: ClassVar[tuple[int, ...]] = ()
    group_l: ClassVar[int] = 1
    tensor: ClassVar[str] = ""
    one_panel: ClassVar[bool] = False


PARTS = 2
"""Tiles that a share of stream-K has parts of at most: it is shorter than a tile's k-tiles."""

TileScheduler = OneTile | PersistentRaster | PersistentPanel | StreamK
