"""Main loops, each of a `kind`: how tiles in shared memory are multiplied, with the loaders that bring them.

In all of them `a` and `b` are loaders of the operands, or say how they are read, and `stages` are k-tiles under way.
What a main loop needs and how people are told of it is said in `gett.schedule.mainloops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from gett.schedule.spec.loader import CpAsync, CpAsyncTile, Gather, HopperLoader, RegisterStaged, Stationary, Tma
from layouts.domains import MOST, Bits, Count, Index, Shift, Span, Vector

AtLeastTwo = Annotated[int, Span(2, MOST)]  # of k-tiles, one of which is written while products read another


class AnyMainloop:
    """What every main loop answers."""

    __slots__ = ()

    sums: ClassVar[bool] = True  # whether it sums over K, so that K may be sliced
    many_batches: ClassVar[bool] = False  # whether a block may make several batches
    in_turn: ClassVar[bool] = False  # whether slices of K take k-tiles in turn, not neighbours
    divides: ClassVar[bool] = False  # whether stream-K may divide its tiles
    one_group: ClassVar[bool] = False  # whether it tells no groups of D's modes apart: batches are in the box of M

    @property
    def stored_vector(self) -> int | None:
        """Elements of D a store, None where the epilogue may choose."""
        return None


@dataclass(frozen=True, slots=True)
class Multistage(AnyMainloop):
    """A pipeline of k-tiles that all warps fill and multiply, by `mma.sync` or by fused multiply-adds."""

    a: CpAsync | RegisterStaged
    b: CpAsync | RegisterStaged
    tensor_cores: bool  # whether `mma.sync` multiplies, else ordinary multiply-adds
    stages: AtLeastTwo
    warps: tuple[Count, Count]  # warps along M and N
    batch_warps: Count = 1  # groups of such warps that share the batches of a block
    # Whether offsets along K come from a table in shared memory (flattened K), not from one offset a tile.
    k_table: bool = False

    many_batches: ClassVar[bool] = True
    divides: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """What multiplies."""
        return "mma.sync" if self.tensor_cores else "simt"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1] * self.batch_warps


class WarpSpecialised(AnyMainloop):
    """A main loop in which some warpgroups fetch and others multiply.

    Its `warpgroups` multiply, its `producers` do not. `mma_m` are the MMA atoms of 64 rows that each warpgroup holds.
    """

    __slots__ = ()

    a: HopperLoader
    b: HopperLoader
    warpgroups: int
    divides: ClassVar[bool] = True
    many_mma_tiles: ClassVar[bool] = False  # whether several MMA tiles may make a tile of D
    # Whether each operand's tile has K in its own order, the mode of its rows first.
    own_k_order: ClassVar[bool] = False
    slabs_of_b: ClassVar[bool] = False  # whether a stage is a slab of B alone
    loads_c: ClassVar[bool] = True  # whether a warp is free to bring C by tensor map
    frees_stages: ClassVar[bool] = False  # whether D may be staged where the stages were once all of them are read
    # Whether stages are filled again once D has left from there, for the block's next tile.
    waits_for_d: ClassVar[bool] = False

    @property
    def producers(self) -> int:
        """Warpgroups that do not multiply."""
        return 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.warpgroups + self.producers)

    @property
    def by_warps(self) -> bool:
        """Whether warps bring an operand, not a tensor map."""
        return self.a.by_warps or self.b.by_warps

    @property
    def keeps(self) -> str:
        """The operand that stays in shared memory, `"a"` or `"b"`; `""` where none does."""
        return "a" if self.a.stays else "b" if self.b.stays else ""

    def held_rows(self, rows: int) -> tuple[int, int]:
        """Rows of A's box, which has `rows`, in each group of accumulator rows, and of such a group; (0, 1) for all."""
        load = self.a.tma
        return (0, 1) if load is None or not load.run else (load.run, load.atom)


@dataclass(frozen=True, slots=True)
class WgmmaSS(WarpSpecialised):
    """Warp-specialised wgmma with both operands in shared memory."""

    a: Tma | Stationary | Gather
    b: Tma | Stationary | Gather
    warpgroups: Count
    mma_m: Count
    ping_pong: bool  # whether each warpgroup works on tiles of its own, else they share one
    stages: Count
    producers: Count = 1
    cp_async_stages: Index = 0  # k-tiles that gathered chunks wait in before they are shifted into place

    kind: ClassVar[str] = "wgmma ss"
    many_mma_tiles: ClassVar[bool] = True
    frees_stages: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WgmmaRS(WarpSpecialised):
    """Warp-specialised wgmma with A in registers, where the rows of A and B run along two contracted modes.

    Pairs of B's mode are joined in registers; nothing is transposed in memory. B comes in slabs of one element of A's
    mode each. Where blocks of a cluster are neighbours along N they share A, along M they share B.
    """

    a: Tma  # loader of a k-tile of A, in `repeats` copies
    b: Tma  # loader of one slab of B
    unit_a: Index  # positions in K of the modes along which A's and B's rows run
    unit_b: Index
    per_warpgroup_a: bool  # whether each warpgroup waits for its own rows of A alone, and releases them by itself
    stages: Count  # slabs of B under way

    kind: ClassVar[str] = "wgmma rs"
    warpgroups = 2
    mma_m: ClassVar[int] = 1
    ping_pong: ClassVar[bool] = False
    slabs_of_b: ClassVar[bool] = True
    in_turn: ClassVar[bool] = True
    loads_c: ClassVar[bool] = False

    def held_rows(self, rows: int) -> tuple[int, int]:
        """Rows of A's box that each warpgroup waits for by itself, of 64."""
        return (rows // self.warpgroups, 64) if self.per_warpgroup_a and rows < 64 * self.warpgroups else (0, 1)


@dataclass(frozen=True, slots=True)
class WgmmaSplit(WarpSpecialised):
    """Warp-specialised wgmma of planes: B's are made in shared memory by a warpgroup, A's on the way to registers."""

    a: Tma | CpAsyncTile
    b: Tma | CpAsyncTile
    stages: Count
    plane_stages: AtLeastTwo  # k-tiles of planes under way

    kind: ClassVar[str] = "wgmma split"
    own_k_order: ClassVar[bool] = True
    warpgroups = 2
    mma_m: ClassVar[int] = 1
    producers = 2
    ping_pong: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class WgmmaTf32(WarpSpecialised):
    """Warp-specialised wgmma on TF32, to which loaders round, with A in registers.

    B is transposed in shared memory if its rows run along N.
    """

    a: Tma
    b: Tma
    mma_m: Count
    stages: Count
    transposed_stages: Index  # k-tiles of B transposed under way, 0 where wgmma reads B as it comes

    kind: ClassVar[str] = "wgmma tf32"
    warpgroups = 2
    ping_pong: ClassVar[bool] = False

    @property
    def producers(self) -> int:
        """Warpgroups that do not multiply: one loads, another one transposes."""
        return 2 if self.transposed_stages else 1


@dataclass(frozen=True, slots=True)
class DmmaTma(WarpSpecialised):
    """Warp-specialised `mma.sync` of float64 and complex128 on Hopper: tensor maps fill stages, fragments come of them.

    Of each 64 rows that a warpgroup holds a warp has 16.
    """

    a: Tma
    b: Tma
    mma_m: Count
    stages: Count

    kind: ClassVar[str] = "dmma tma"
    own_k_order: ClassVar[bool] = True
    frees_stages: ClassVar[bool] = True
    waits_for_d: ClassVar[bool] = True
    warpgroups = 2
    ping_pong: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a walk through a box: `size` steps of `step` elements along dimension `dim`."""

    dim: Index
    step: Count
    size: Count


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """How one tensor of a bandwidth-bound plan is read."""

    # Through shared memory, in the tensor's own order; else straight into registers in the walk's order.
    staged: bool = False
    splat: bool = False  # the vector that a thread works on is one element, repeated
    width: Vector = 1  # elements per access, contiguous in memory
    walk: tuple[Digit, ...] = ()  # order in which a staged tile is read, fastest first
    # Swizzle of a staged tile, whose image is dense in D's order in rows of 128 bytes: the 16-byte chunks of a row are
    # permuted by `(row >> shift) & mask`.
    mask: Bits = 0
    shift: Shift = 0
    shared: bool = False  # in sums: all outputs of a tile read the same elements


@dataclass(frozen=True, slots=True)
class StreamMap(AnyMainloop):
    """Each element of D is one product: permutations, diagonals, broadcasts, Hadamard and outer products."""

    a: StreamLoad  # how the tensors are read; None where there is none
    b: StreamLoad | None
    c: StreamLoad | None
    threads: Count  # of a block
    vector: Vector  # elements of D that a thread works on at a time
    unroll: Count  # vectors that a thread has in flight
    walk_d: tuple[Digit, ...]  # order in which a tile is stored, fastest first
    store_once: bool = False  # whether L2 lets go of D first, which it does not keep

    kind: ClassVar[str] = "stream map"
    sums: ClassVar[bool] = False
    one_group: ClassVar[bool] = True
    row_step: ClassVar[int] = 1
    along_k: ClassVar[bool] = False
    lanes_k: ClassVar[int] = 1
    rows: ClassVar[int] = 1

    @property
    def stored_vector(self) -> int:
        """Elements of D a store."""
        return self.vector


def row_step(threads: int, lanes_k: int, rows: int, outputs: int) -> int:
    """Outputs from one of a thread's `rows`, of so many outputs each, to the next one; 1 where it has a single row."""
    return threads // lanes_k * outputs if rows > 1 else 1


@dataclass(frozen=True, slots=True)
class StreamSum(AnyMainloop):
    """The largest operand is read once in its own order and summed: reductions, dot and matrix-vector products.

    What it has of `StreamMap` is as there.
    """

    a: StreamLoad
    b: StreamLoad | None
    c: StreamLoad | None
    threads: Count
    vector: Vector  # elements of the streamed operand that a thread works on at a time
    along_k: bool  # whether the vector lies along K, so that the lanes of an output add up; else it is several outputs
    lanes_k: Count  # threads along K
    rows: Count  # vectors of outputs (single outputs if `along_k`) of each thread
    unroll: Count  # steps of K that a thread has in flight
    walk_d: tuple[Digit, ...]

    kind: ClassVar[str] = "stream sum"
    one_group: ClassVar[bool] = True
    store_once: ClassVar[bool] = False

    @property
    def row_step(self) -> int:
        """Outputs from one row of a thread to its next one; 1 where it has a single row."""
        return row_step(self.threads, self.lanes_k, self.rows, 1 if self.along_k else self.vector)

    @property
    def stored_vector(self) -> int:
        """Elements of D a store."""
        return 1


@dataclass(frozen=True, slots=True)
class StreamMatrix(AnyMainloop):
    """A large operand, A of the lowered plan, is read once and multiplied by a small matrix; D is written once.

    A thread has all of K and of N for some neighbours along M, or for one element of M where the unit-stride modes of A
    and D are not M's.
    """

    threads: Count  # of a block
    vector: Vector  # elements of M at a time
    vector_k: Vector  # elements of K that are read, and of N that are stored at a time; 1 where `vector` is not
    vector_n: Vector
    unroll: Count  # vectors that a thread has in flight
    lanes_n: Count = 1  # neighbouring lanes that share a vector, each of which makes other columns

    kind: ClassVar[str] = "stream matrix"
    sums: ClassVar[bool] = False

    @property
    def stored_vector(self) -> int:
        """Elements of D a store."""
        return self.vector * self.vector_n


Hopper = WgmmaSS | WgmmaRS | WgmmaSplit | WgmmaTf32 | DmmaTma
Stream = StreamMap | StreamSum
Mainloop = Multistage | WgmmaSS | WgmmaRS | WgmmaSplit | WgmmaTf32 | DmmaTma | StreamMap | StreamSum | StreamMatrix


def tile_warpgroups(loop: Hopper) -> int:
    """Warpgroups that share a tile of D: in ping-pong each has its own."""
    return 1 if loop.ping_pong else loop.warpgroups
