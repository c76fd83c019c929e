"""Main loops, each of a `kind`: how tiles in shared memory are multiplied, with the loaders that bring them.

In all of them `a` and `b` are loaders of the operands, or say how they are read, and `stages` are k-tiles under way.
What a main loop needs and how people are told of it is said in `gett.schedule.mainloops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from gett.schedule.spec.loader import CpAsync, CpAsyncTile, Gather, HopperLoader, RegisterStaged, Stationary, Tma
from layouts.domains import Bits, Count, Index, Shift, Vector


class AnyMainloop:
    """What every main loop answers.

    Attributes:
        sums: Whether it sums over K, so that K may be sliced.
        many_batches: Whether a block may make several batches.
        in_turn: Whether slices of K take k-tiles in turn, not neighbours.
        one_group: Whether it tells no groups of D's modes apart: batches are in the box of M.
    """

    __slots__ = ()

    sums: ClassVar[bool] = True
    many_batches: ClassVar[bool] = False
    in_turn: ClassVar[bool] = False
    one_group: ClassVar[bool] = False

    @property
    def stored_vector(self) -> int | None:
        """Elements of D a store, None where the epilogue may choose."""
        return None


@dataclass(frozen=True, slots=True)
class Multistage(AnyMainloop):
    """A pipeline of k-tiles that all warps fill and multiply, by `mma.sync` or by fused multiply-adds.

    Attributes:
        tensor_cores: Whether `mma.sync` multiplies, else ordinary multiply-adds.
        warps: Warps along M and N.
        batch_warps: Groups of such warps that share the batches of a block.
        k_table: Whether offsets along K come from a table in shared memory (flattened K), not from one offset a tile.
    """

    a: CpAsync | RegisterStaged
    b: CpAsync | RegisterStaged
    tensor_cores: bool
    stages: Count
    warps: tuple[Count, Count]
    batch_warps: Count = 1
    k_table: bool = False

    many_batches: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """What multiplies."""
        return "mma.sync" if self.tensor_cores else "simt"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1] * self.batch_warps


class _HasWarpgroups(Protocol):
    @property
    def a(self) -> HopperLoader: ...
    @property
    def b(self) -> HopperLoader: ...
    @property
    def warpgroups(self) -> int: ...
    @property
    def producers(self) -> int: ...


class WarpSpecialised(AnyMainloop):
    """A main loop in which some warpgroups fetch and others multiply.

    Its `warpgroups` multiply, its `producers` do not. `mma_m` are the MMA atoms of 64 rows that each warpgroup holds.

    Attributes:
        many_mma_tiles: Whether several MMA tiles may make a tile of D.
        own_k_order: Whether each operand's tile has K in its own order, the mode of its rows first.
        slabs_of_b: Whether a stage is a slab of B alone.
        loads_c: Whether a warp is free to bring C by tensor map.
        frees_stages: Whether D may be staged where the stages were once all of them are read.
        waits_for_d: Whether stages are filled again once D has left from there, for the block's next tile.
    """

    __slots__ = ()

    many_mma_tiles: ClassVar[bool] = False
    own_k_order: ClassVar[bool] = False
    slabs_of_b: ClassVar[bool] = False
    loads_c: ClassVar[bool] = True
    frees_stages: ClassVar[bool] = False
    waits_for_d: ClassVar[bool] = False

    @property
    def threads(self: _HasWarpgroups) -> int:
        """Threads of a block."""
        return 128 * (self.warpgroups + self.producers)

    @property
    def by_warps(self: _HasWarpgroups) -> bool:
        """Whether warps bring an operand, not a tensor map."""
        return self.a.by_warps or self.b.by_warps

    @property
    def keeps(self: _HasWarpgroups) -> str:
        """The operand that stays in shared memory, `"a"` or `"b"`; `""` where none does."""
        return "a" if self.a.stays else "b" if self.b.stays else ""

    def held_rows(self: _HasWarpgroups, rows: int) -> tuple[int, int]:
        """Rows of A's box in each group of accumulator rows, and rows of such a group; (0, 1) where all follow.

        Args:
            rows: Of the box.
        """
        load = self.a.tma
        return (0, 1) if load is None or not load.run else (load.run, load.atom)


@dataclass(frozen=True, slots=True)
class WgmmaSS(WarpSpecialised):
    """Warp-specialised wgmma with both operands in shared memory.

    Attributes:
        ping_pong: Whether each warpgroup works on tiles of its own, else they share one.
        cp_async_stages: K-tiles that gathered chunks wait in before they are shifted into place.
    """

    a: Tma | Stationary | Gather
    b: Tma | Stationary | Gather
    warpgroups: Count
    mma_m: Count
    ping_pong: bool
    stages: Count
    producers: Count = 1
    cp_async_stages: Index = 0

    kind: ClassVar[str] = "wgmma ss"
    many_mma_tiles: ClassVar[bool] = True
    frees_stages: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class WgmmaRS(WarpSpecialised):
    """Warp-specialised wgmma with A in registers, where the rows of A and B run along two contracted modes.

    Pairs of B's mode are joined in registers; nothing is transposed in memory. B comes in slabs of one element of A's
    mode each. Where blocks of a cluster are neighbours along N they share A, along M they share B.

    Attributes:
        a: Loader of a k-tile of A, in `repeats` copies.
        b: Loader of one slab of B.
        unit_a, unit_b: Positions in K of the modes along which A's and B's rows run.
        per_warpgroup_a: Whether each warpgroup waits for its own rows of A alone, and releases them by itself.
        stages: Slabs of B under way.
    """

    a: Tma
    b: Tma
    unit_a: Index
    unit_b: Index
    per_warpgroup_a: bool
    stages: Count

    kind: ClassVar[str] = "wgmma rs"
    warpgroups: ClassVar[int] = 2
    mma_m: ClassVar[int] = 1
    producers: ClassVar[int] = 1
    ping_pong: ClassVar[bool] = False
    slabs_of_b: ClassVar[bool] = True
    in_turn: ClassVar[bool] = True
    loads_c: ClassVar[bool] = False

    def held_rows(self, rows: int) -> tuple[int, int]:
        """Rows of A's box that each warpgroup waits for by itself, of 64."""
        return (rows // self.warpgroups, 64) if self.per_warpgroup_a and rows < 64 * self.warpgroups else (0, 1)


@dataclass(frozen=True, slots=True)
class WgmmaSplit(WarpSpecialised):
    """Warp-specialised wgmma of planes: B's are made in shared memory by a warpgroup, A's on the way to registers.

    Attributes:
        plane_stages: K-tiles of planes under way.
    """

    a: Tma | CpAsyncTile
    b: Tma | CpAsyncTile
    stages: Count
    plane_stages: Count

    kind: ClassVar[str] = "wgmma split"
    own_k_order: ClassVar[bool] = True
    warpgroups: ClassVar[int] = 2
    mma_m: ClassVar[int] = 1
    producers: ClassVar[int] = 2
    ping_pong: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class WgmmaTf32(WarpSpecialised):
    """Warp-specialised wgmma on TF32, to which loaders round, with A in registers.

    B is transposed in shared memory if its rows run along N.

    Attributes:
        transposed_stages: K-tiles of B transposed under way, 0 where wgmma reads B as it comes.
    """

    a: Tma
    b: Tma
    mma_m: Count
    stages: Count
    transposed_stages: Index

    kind: ClassVar[str] = "wgmma tf32"
    warpgroups: ClassVar[int] = 2
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
    warpgroups: ClassVar[int] = 2
    producers: ClassVar[int] = 1
    ping_pong: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a walk through a box: `size` steps of `step` elements along dimension `dim`."""

    dim: Index
    step: Count
    size: Count


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """How one tensor of a bandwidth-bound plan is read.

    Attributes:
        staged: Through shared memory, in the tensor's own order; else straight into registers in the walk's order.
        splat: The vector that a thread works on is one element, repeated.
        width: Elements per access, contiguous in memory.
        walk: Order in which a staged tile is read, fastest first.
        mask, shift: Swizzle of a staged tile, whose image is dense in D's order in rows of 128 bytes: the 16-byte
            chunks of a row are permuted by `(row >> shift) & mask`.
        shared: In sums: all outputs of a tile read the same elements.
    """

    staged: bool = False
    splat: bool = False
    width: Vector = 1
    walk: tuple[Digit, ...] = ()
    mask: Bits = 0
    shift: Shift = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class StreamMap(AnyMainloop):
    """Each element of D is one product: permutations, diagonals, broadcasts, Hadamard and outer products.

    Attributes:
        a, b, c: How the tensors are read; None where there is none.
        threads: Of a block.
        vector: Elements of D that a thread works on at a time.
        unroll: Vectors that a thread has in flight.
        walk_d: Order in which a tile is stored, fastest first.
        store_once: Whether L2 lets go of D first, which is larger.
    """

    a: StreamLoad
    b: StreamLoad | None
    c: StreamLoad | None
    threads: Count
    vector: Vector
    unroll: Count
    walk_d: tuple[Digit, ...]
    store_once: bool = False

    kind: ClassVar[str] = "stream map"
    sums: ClassVar[bool] = False
    one_group: ClassVar[bool] = True
    along_k: ClassVar[bool] = False
    lanes_k: ClassVar[int] = 1
    rows: ClassVar[int] = 1

    @property
    def stored_vector(self) -> int:
        """Elements of D a store."""
        return self.vector


@dataclass(frozen=True, slots=True)
class StreamSum(AnyMainloop):
    """The largest operand is read once in its own order and summed: reductions, dot and matrix-vector products.

    What it has of `StreamMap` is as there.

    Attributes:
        vector: Elements of the streamed operand that a thread works on at a time.
        along_k: Whether the vector lies along K, so that the lanes of an output add up; else it is several outputs.
        lanes_k: Threads along K.
        rows: Vectors of outputs (single outputs if `along_k`) of each thread.
        unroll: Steps of K that a thread has in flight.
    """

    a: StreamLoad
    b: StreamLoad | None
    c: StreamLoad | None
    threads: Count
    vector: Vector
    along_k: bool
    lanes_k: Count
    rows: Count
    unroll: Count
    walk_d: tuple[Digit, ...]

    kind: ClassVar[str] = "stream sum"
    one_group: ClassVar[bool] = True
    store_once: ClassVar[bool] = False

    @property
    def stored_vector(self) -> int:
        """Elements of D a store."""
        return 1


@dataclass(frozen=True, slots=True)
class StreamMatrix(AnyMainloop):
    """A large operand, A of the lowered plan, is read once and multiplied by a small matrix; D is written once.

    A thread has all of K and of N for some neighbours along M, or for one element of M where the unit-stride modes of A
    and D are not M's.

    Attributes:
        threads: Of a block.
        vector: Elements of M at a time.
        vector_k, vector_n: Elements of K that are read, and of N that are stored at a time; 1 where `vector` is not.
        unroll: Vectors that a thread has in flight.
        lanes_n: Neighbouring lanes that share a vector, each of which makes other columns.
    """

    threads: Count
    vector: Vector
    vector_k: Vector
    vector_n: Vector
    unroll: Count
    lanes_n: Count = 1

    kind: ClassVar[str] = "stream matrix"
    sums: ClassVar[bool] = False

    @property
    def stored_vector(self) -> int:
        """Elements of D a store."""
        return self.vector * self.vector_n


Hopper = WgmmaSS | WgmmaRS | WgmmaSplit | WgmmaTf32 | DmmaTma
Stream = StreamMap | StreamSum
Mainloop = Multistage | WgmmaSS | WgmmaRS | WgmmaSplit | WgmmaTf32 | DmmaTma | StreamMap | StreamSum | StreamMatrix
