"""Epilogues: how accumulators become D, and where C comes from. What is computed on the way is the contraction's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from layouts.domains import Conflicts, Count, Index, OneOf, Span, Swizzle, Vector
from layouts.tma import TmaMap

COPIES = ("scalar", "stsm", "stsm_t", "vec_n", "vec_m", "pair_n", "one")
"""Ways in which accumulators are copied, `R2SCopy.kind`."""

Side = Annotated[str, OneOf(("m", "n"))]


@dataclass(frozen=True, slots=True)
class R2SCopy:
    """How accumulators are copied from registers to the staged tile."""

    # `"scalar"`: element by element; `"stsm"`, `"stsm_t"`: by stmatrix, as it is or transposed; `"vec_n"`, `"vec_m"`:
    # in vectors of neighbours along N (columns of a thread) or along M (its MMA atoms of 64 rows); `"pair_n"`, `"one"`:
    # elements of 32 bits in pairs of columns that are neighbours in D, or one by one, to where a swizzle puts them.
    kind: Annotated[str, OneOf(COPIES)] = "scalar"
    vector: Vector = 1  # elements written at once
    # Rows of M's box that stay together in an MMA atom of 64; an atom's groups of so many rows are as far apart as a
    # warpgroup has atoms. 64 where atoms are whole.
    rows: Annotated[int, Span(1, 64)] = 64


@dataclass(frozen=True, slots=True)
class StagedTile:
    """A tile of D in shared memory, in D's order."""

    # Elements between neighbours along each dimension of the boxes of M and N (0 where the box is 1).
    m: tuple[Index, ...]
    n: tuple[Index, ...]
    elements: Count  # room for the tile, gaps included
    copy: R2SCopy = R2SCopy()  # how accumulators get there
    conflicts: Conflicts = 1  # how often one store of a fragment is served
    row: Index = 0  # elements of one row of a store by tensor map, 0 where it is D's whole run
    swizzle_bytes: Swizzle = 16  # swizzle of the tile, 16 for none
    # (group, dimension, elements, far): a dimension of which a row holds that many elements; the next ones are `far`
    # elements on.
    cut: tuple[Side, Index, Count, Index] | None = None
    # Tiled dimensions (group, dimension) as the tile has them, the store's row first.
    order: tuple[tuple[Side, Index], ...] = ()


class ThreadStore:
    """A store without a tensor map: what stores by tensor map have more of, this has none of."""

    __slots__ = ()

    tma: ClassVar[None] = None
    map: ClassVar[None] = None
    reuse_mainloop_smem: ClassVar[bool] = False
    exchange: ClassVar[None] = None
    subtiles: ClassVar[int] = 1
    buffers: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class VectorStore(ThreadStore):
    """D leaves as vectors in its own order, through tables of the offsets of rows and columns."""

    vector: Vector  # elements per store, along D's unit-stride mode
    # How the tile is staged; None where the main loop's tile has its own layout, or nothing is staged.
    stage: StagedTile | None = None


@dataclass(frozen=True, slots=True)
class RowStore(ThreadStore):
    """D, whose rows start anywhere, leaves row by row: aligned chunks of 16 bytes, single elements at the ends."""

    run: Annotated[int, Span(1, 256)]  # elements of a row in a tile: a warp stores it at once, 16 bytes a lane
    stage: StagedTile  # how the tile is staged

    vector: ClassVar[int] = 1  # elements per store that D's alignment allows anywhere


@dataclass(frozen=True, slots=True)
class DsmemExchange:
    """Two blocks of a cluster exchange halves of their tiles of D, so that each stores rows twice as long."""

    distance: Count  # tiles from one of the two to the other: as many as lie along the dimensions before D's unit mode
    row: tuple[Index, Count]  # D's unit mode (of l, m, n) and its elements in a tile
    half: tuple[Index, Count]  # the mode (of l, m, n) that is divided, and its elements in half a tile


@dataclass(frozen=True, slots=True)
class TmaStore:
    """D leaves by tensor map."""

    map: TmaMap  # the tensor map (modes l, m, n); with an exchange, that of what one of the two blocks stores
    stage: StagedTile  # how the tile is staged
    vector: Vector = 1  # elements per store that D's alignment would allow
    # Whether the tile is staged where the stages were: in a block of one tile, or, of float64, where the stages of the
    # next tile are filled once the tile has left.
    reuse_mainloop_smem: bool = False
    exchange: DsmemExchange | None = None  # set where the blocks of a cluster exchange halves of their tiles
    # Parts of the tile that are staged and stored one after the other (CUTLASS: epilogue tiles). They divide the last
    # tiled dimension of N; map and stage are those of one part, and so many are staged at a time. Two buffers of one
    # part: whole tiles take turns.
    subtiles: Count = 1
    buffers: Count = 1

    @property
    def tma(self) -> TmaStore:
        """Itself."""
        return self


@dataclass(frozen=True, slots=True)
class VectorSource:
    """C is read element by element, by its own strides, where D is stored."""

    map: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class TmaSource:
    """C comes by tensor map to where D is staged, laid out as D, while the products run."""

    map: TmaMap


Store = VectorStore | RowStore | TmaStore


@dataclass(frozen=True, slots=True)
class Epilogue:
    """How D is stored and where C comes from."""

    # How D leaves. Under split-K the kernel that adds the slices uses its vector.
    store: Store
    source: VectorSource | TmaSource | None = None  # how C arrives, None where nothing is added

    @property
    def source_map(self) -> TmaMap | None:
        """The tensor map that brings C, None where none does."""
        return None if self.source is None else self.source.map

    @property
    def vector_source(self) -> bool:
        """Whether C is read element by element."""
        return self.source is not None and self.source.map is None
