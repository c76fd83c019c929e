"""`Schedule`: everything a kernel needs to know beyond the plan, as a composition of parts.

Main loops and epilogues have modules of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeVar

from gett.hw.archs import ARCHS
from gett.ir.tensors import PRECISIONS
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.mainloop import AnyMainloop, Hopper, Mainloop, Multistage, Stream, StreamMap, WarpSpecialised
from layouts.box import Box
from layouts.domains import Count, Index, OneOf, Size, Span, Text


@dataclass(frozen=True, slots=True)
class Split:
    """A mode cut in two before boxes are chosen: position in its group, extent of the inner part."""

    group: Annotated[str, OneOf(("m", "n", "k"))]
    mode: Index
    inner: Count


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tile of one block. Boxes refer to the lowered plan (`gett.schedule.lower`)."""

    shape: tuple[Count, Count, Count]  # rows, columns and depth of the tile that is multiplied, padding included
    m: Box  # how each group is cut; a box may be smaller than its part of the shape, the rest is padding
    n: Box
    k: Box
    # How the batch group is cut, where a block makes several batches together; None where it makes one.
    l: Box | None = None
    mma_tiles: Count = 1  # tiles of that shape along M that make one tile of D; `m` covers all of them
    splits: tuple[Split, ...] = ()  # modes cut in two before the boxes
    swap_ab: bool = False  # whether A and B change roles once more after the plan

    @property
    def batches(self) -> int:
        """Batches that the tile of a block has room for."""
        return self.l.size if self.l is not None else 1

    def tiles(self, extent_l: int) -> int:
        """Tiles of D over all batches, of which there are `extent_l`."""
        return self.m.tiles * self.n.tiles * (self.l.tiles if self.l is not None else extent_l)


class AnyScheduler:
    """What every tile scheduler answers, so that nobody asks which of them there is: as here, where it has no field."""

    __slots__ = ()

    persistent: ClassVar[bool] = True
    stream_k: ClassVar[bool] = False
    split_k: int = 1
    cluster: tuple[int, int] = (1, 1)
    cluster_order: tuple[int, ...] = ()
    group_l: int = 1
    tensor: str = ""
    one_panel: bool = False
    ragged: str = ""


@dataclass(frozen=True, slots=True)
class OneTile(AnyScheduler):
    """A block for each tile and slice of K."""

    group_m: Count = 1  # tiles of M that are visited together for reuse in L2
    split_k: Count = 1  # slices of K, summed in a fixed order

    persistent: ClassVar[bool] = False
    blocks: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class PersistentRaster(AnyScheduler):
    """One block a multiprocessor; each takes every n-th tile."""

    blocks: Count  # most blocks
    group_m: Count = 1  # tiles of M (of clusters, where there are any) that are visited together for reuse in L2
    split_k: Count = 1  # slices of K, summed in a fixed order
    cluster: tuple[Count, Count] = (1, 1)  # neighbouring tiles along M and along N whose blocks share operands
    # First tile of each cluster where as many clusters run; empty for plain order.
    cluster_order: tuple[Index, ...] = ()
    # Batches that are visited together, `group_m` rows of tiles of each at a time: those whose tiles lie side by side
    # in D.
    group_l: Count = 1


@dataclass(frozen=True, slots=True)
class PersistentPanel(AnyScheduler):
    """One block a multiprocessor, which makes tiles of a panel: those that need the same rows of an operand."""

    blocks: Count  # most blocks
    # The operand, `"a"` or `"b"`, whose rows the tiles of a panel share. `field()`: it must be given.
    tensor: Annotated[str, OneOf(("a", "b"))] = field()
    one_panel: bool = field()  # whether each block keeps to one panel; else it makes one panel after the other
    group_m: Count  # tiles of M that are visited together: 1, or all


@dataclass(frozen=True, slots=True)
class StreamK(AnyScheduler):
    """As many blocks as run at once; the tiles that do not fill all of them in whole waves are divided among them.

    The k-tiles of these tiles, end to end, are dealt out to the clusters in equal shares. Their partial sums are added
    in a fixed order by a second kernel. The other tiles are made whole.
    """

    blocks: Count  # blocks of the grid
    group_m: Count = 1  # tiles of M (of clusters, where there are any) that are visited together for reuse in L2
    cluster: tuple[Count, Count] = (1, 1)  # neighbouring tiles along M and along N whose blocks share operands

    stream_k: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class PersistentRagged(AnyScheduler):
    """One block a multiprocessor, which makes tiles of problems that are parts of the same tensors.

    The device's memory has the rows at which the problems end. The plan's last batch mode numbers the problems, and its
    strides in the tensors that have the ragged mode are 0. The ragged mode is the only one of its group. Where that is
    K, the rows of each problem are summed.
    """

    blocks: Count  # most blocks
    # The group, `"m"`, `"n"` or `"k"`, of the ragged mode.
    ragged: Annotated[str, OneOf(("m", "n", "k"))] = field()
    row_length: Count  # elements of the ragged mode that each row has which the device numbers
    ends: Text  # dtype of the numbers of rows
    group_m: Count = 1  # tiles of M (of clusters, where there are any) that are visited together for reuse in L2
    cluster: tuple[Count, Count] = (1, 1)  # neighbouring tiles along M and along N whose blocks share operands


PARTS = 2  # tiles that a share of stream-K has parts of at most: it is shorter than a tile's k-tiles
TileScheduler = OneTile | PersistentRaster | PersistentPanel | PersistentRagged | StreamK


@dataclass(frozen=True, slots=True)
class SmemPlan:
    """Offsets in bytes from the start of a block's shared memory (on Hopper from its first 1024-byte boundary)."""

    size: Index  # bytes to ask for, alignment included
    stage: Index = 0  # bytes of one stage
    stages: Index = 0  # where the stages lie, one after the other
    stationary: Index = 0  # where the operand that stays lies
    staging: Index = 0  # where tiles of D are staged
    barriers: Index = 0  # where mbarriers lie
    loaders: Index = 0  # where buffers and tables of warps that bring operands lie
    k_table: Index = 0  # where the table of offsets along K lies: 16 bytes a k, a slot more than stages
    offsets: Index = 0  # where offsets of a tile's rows and columns in D and C lie
    planes: Index = 0  # where planes of an operand lie, or an operand transposed, one k-tile after the other


MAX_PIECES = 64  # most pieces: each has launches of its own, whose arguments a call keeps
WORKSPACE_ALIGNMENT = 256  # bytes: where a copy begins in the workspace


@dataclass(frozen=True, slots=True)
class CopyPass:
    """A launch that copies a tensor between its own layout and a dense one, whose batch modes are slowest."""

    box: Box  # of the copied tensor's modes
    loop: StreamMap  # how it is read and written
    smem: SmemPlan  # of its blocks


@dataclass(frozen=True, slots=True)
class Packing:
    """The copies around a product. The tiling and main loop of the schedule are those of the product of the copies."""

    # Modes of the result that are cut into pieces, by number, and the pieces' length. The pieces are computed one after
    # the other in the same workspace; an operand's copy stays where the next piece shares it.
    cuts: tuple[tuple[Index, Count], ...]
    a: CopyPass | None  # how the contraction's first operand is copied; None where it is read as it is
    b: CopyPass | None  # likewise the second
    # How the result is copied from the workspace to its place; None where the product is stored there.
    d: CopyPass | None
    bytes: Size  # of the workspace for the copies of a piece; the product's own part of it lies behind them


L = TypeVar("L", bound=AnyMainloop)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the cost model expects."""

    us: Annotated[float, Span(0, math.inf)] = 0.0  # microseconds
    bound: Text = ""  # what it thinks limits the kernel, such as `"DRAM"`
    reason: Text = ""  # why this schedule, in one line


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to run a plan on one architecture."""

    arch: Annotated[str, OneOf(tuple(ARCHS))]  # architecture that it is compiled for, such as `"sm_90a"`
    tiling: Tiling  # what a block computes
    mainloop: Mainloop  # how tiles arrive and are multiplied
    epilogue: Epilogue  # how D is stored
    scheduler: TileScheduler  # which tiles a block makes
    smem: SmemPlan  # where the parts of shared memory lie
    workspace_bytes: Size = 0  # device memory for partial sums and packed copies (0 without split-K and packing)
    # What the cost model expects; schedules that differ in it alone are equal.
    forecast: Forecast = field(default=Forecast(), compare=False)
    # At which products are formed, where that is not the plan's; at least as accurate.
    precision: Annotated[str, OneOf(("", *PRECISIONS))] = ""
    # Copies of tensors, of which tiling, mainloop and epilogue make the product; None without any.
    packing: Packing | None = None

    @property
    def kind(self) -> str:
        """What multiplies, in two words at most, behind `packed` where it multiplies copies."""
        kind = self.mainloop.kind
        return kind if self.packing is None else f"packed {kind}"

    @property
    def split_k(self) -> int:
        """Slices of K."""
        return self.scheduler.split_k

    @property
    def k_tiles_per_slice(self) -> int:
        """Most k-tiles of a slice of K."""
        return -(-self.tiling.k.tiles // self.split_k)

    @property
    def shares(self) -> int:
        """Clusters among which stream-K divides tiles."""
        return self.scheduler.blocks // math.prod(self.scheduler.cluster)

    @property
    def adds_parts(self) -> bool:
        """Whether a second kernel adds partial tiles."""
        return self.split_k > 1 or self.scheduler.stream_k

    @property
    def cluster(self) -> tuple[int, int]:
        """Neighbouring tiles along M and along N whose blocks share operands."""
        return self.scheduler.cluster

    @property
    def staged_n(self) -> Box:
        """What is staged of N's box at a time."""
        return self.tiling.n.divided(self.epilogue.store.subtiles)

    def partial_tiles(self, tiles: int) -> int:
        """Partial tiles in the workspace, of the `tiles` tiles of D."""
        return PARTS * self.scheduler.blocks if self.scheduler.stream_k else self.split_k * tiles * (self.split_k > 1)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.mainloop.threads

    @property
    def hopper(self) -> Hopper:
        """The main loop of a Hopper kernel."""
        assert isinstance(self.mainloop, WarpSpecialised)
        return self.mainloop

    @property
    def multistage(self) -> Multistage:
        """The main loop of a tiled kernel."""
        return self.loop(Multistage)

    @property
    def stream(self) -> Stream:
        """The main loop of a map or a sum."""
        assert isinstance(self.mainloop, Stream)
        return self.mainloop

    def loop(self, kind: type[L]) -> L:
        """The main loop, which is of a kind."""
        assert isinstance(self.mainloop, kind)
        return self.mainloop
