"""`Schedule`: everything a kernel needs to know beyond the plan. Data only; no text, no CuPy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gett.schedule.stream_records import Stream
from layouts.box import Box
from layouts.swizzle import SmemLayout
from layouts.tma import TmaMap


@dataclass(frozen=True, slots=True)
class Access:
    """How one operand travels from global to shared memory.

    Attributes:
        major: Group that runs along a shared-memory row: `"k"` or `"mn"`.
        vector: Elements per global access (1, 2, 4, 8, 16), along the operand's unit-stride mode.
        asynchronous: `cp.async` when true: a vector lands whole in one row. Else vectors are loaded into registers and
            stored element by element, which transposes on the way.
        vector_group: Group of the unit-stride mode, `"k"` or `"mn"`.
        smem: Row pitch and swizzle.
        walk: The tiled dimensions, (group, position in its box), in the order of the operand's memory, in which a tile
            is read through registers; empty for `cp.async`.
        served: How often a warp's store of one element is served on such a walk: its bank conflicts.
    """

    major: str
    vector: int
    asynchronous: bool
    vector_group: str
    smem: SmemLayout
    walk: tuple[tuple[str, int], ...] = ()
    served: int = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Batches that one block of a tiled family makes together.

    Attributes:
        box: How the batch group is cut.
        warps: Groups of warps that share the batches; each has the schedule's warps along M and N.
    """

    box: Box
    warps: int


@dataclass(frozen=True, slots=True)
class Split:
    """A mode cut in two before boxes are chosen: position in its group, extent of the inner part."""

    group: str
    mode: int
    inner: int


@dataclass(frozen=True, slots=True)
class BulkMove:
    """An operand that travels by tensor map.

    Attributes:
        major: Group of the unit-stride mode, `"k"` or `"mn"`: wgmma reads either.
        map: The tensor map; its modes are l, m (or n), k of the realized plan, in that order.
        shared: Blocks of a cluster that need the same tile of it.
        divided: Dimension of the map's box that they divide among them; None: each fetches whole copies in its turn.
        repeats: (dimension of the map, step of its coordinate, count) of copies that one after the other make a tile,
            fastest first; slabs whose rows are no whole periods of the swizzle cannot be one copy.
        pitch: Bytes from copy to copy.
        run: Rows of each chunk of an MN-major tile that are loaded, where they are fewer than the swizzle's span
            takes; 0 where chunks are full.
    """

    major: str
    map: TmaMap
    shared: int = 1
    divided: int | None = None
    repeats: tuple[tuple[int, int, int], ...] = ()
    pitch: int = 0
    run: int = 0

    @property
    def copies(self) -> int:
        """Copies of a tile."""
        return self.map.slabs * math.prod(count for _, _, count in self.repeats)


@dataclass(frozen=True, slots=True)
class Gather:
    """An operand that warps bring in where no tensor map can: pieces of rows, shifted into place on the way.

    Attributes:
        major: Group of the unit-stride mode, `"k"` or `"mn"`: wgmma reads either.
        run: Elements of a piece, contiguous in memory; a multiple of 8 that divides the unit-stride mode's box.
        span: Swizzle of the tile in shared memory, in bytes.
        wide: Where the units of A and B are two contracted modes and the tile's K follows the other operand's: elements
            of that mode in a tile, eight of which are turned at a time; 0 otherwise.
    """

    major: str
    run: int
    span: int
    wide: int = 0


@dataclass(frozen=True, slots=True)
class StageSteps:
    """A tile of D in shared memory, in D's order.

    Attributes:
        m, n: Elements between neighbours along each dimension of box_m and of box_n (0 where its box is 1).
        elements: Room for the tile, gaps included.
        conflicts: How often one store of a fragment is served.
        put: How fragments are written: element by element (`""`), by stmatrix (`"rows"`, `"turned"`), or in vectors
            gathered from the columns or the blocks of a thread's registers (`"columns"`, `"blocks"`).
        vector: Elements written at once.
        chunk: Rows of M's box that stay together in a block of 64; the block's chunks are as far apart as a
            warpgroup has blocks.
        row: Elements of one row of a store by tensor map, 0 where it is D's whole run.
        span: Bytes of the tile's swizzle, 16 for none.
        cut: (group, dimension, elements, far): a dimension of which a row holds that many elements; the next ones are
            `far` elements on.
        order: Tiled dimensions (group, dimension) as the tile has them, the store's row first.
    """

    m: tuple[int, ...]
    n: tuple[int, ...]
    elements: int
    conflicts: int
    put: str = ""
    vector: int = 1
    chunk: int = 64
    row: int = 0
    span: int = 16
    cut: tuple[str, int, int, int] | None = None
    order: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Crossed:
    """Units of A and B in two different contracted modes: A through registers, B in slabs of one `unit_a` each.

    Attributes:
        unit_a, unit_b: Positions in K of the modes along which A's and B's rows run.
        apart: Whether each warpgroup waits for its own rows of A alone, and gives their room back by itself.
    """

    unit_a: int
    unit_b: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Trade:
    """Two blocks of a cluster trade halves of their tiles of D, so that each stores rows twice as long.

    Attributes:
        between: Tiles from one of the two to the other: as many as lie along the dimensions before D's unit mode.
        row: D's unit mode (of l, m, n) and its elements in a tile.
        half: The mode (of l, m, n) that is divided, and its elements in half a tile.
    """

    between: int
    row: tuple[int, int]
    half: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WarpRoles:
    """How the Hopper family divides a block.

    Attributes:
        consumers: Warpgroups that multiply.
        m_blocks: Blocks of 64 rows that each of them holds.
        ping_pong: Whether each works on tiles of its own.
        a, b: How the operands arrive by tensor map, None where they are gathered.
        d: Tensor map of D (modes l, m, n), or None where D is stored as vectors.
        stage: How a tile of D is staged.
        cluster: Neighbouring tiles along M and along N whose blocks share operands.
        gather_a, gather_b: How the operands are gathered, None where a tensor map moves them.
        producers: Warpgroups that fetch.
        ring: K-tiles that gathered chunks wait in before they are shifted.
        crossed: Set where the operands' units are two contracted modes; `b` is then the map of one slab.
        rows: Elements of D's rows, where a tile without a tensor map leaves row by row; 0: in vectors.
        resident: The operand (`"a"` or `"b"`) that a block fetches once, whole, and keeps in shared memory of its own;
            stages then hold the other. Empty where both come with every k-tile.
        line: For which tiles it stays: "", for all; or its rows for a line of tiles that need them, `"own"` where all
            of the block's tiles are out of one line, `"each"` where it makes lines one by one.
        parts: Tiles of A that make one tile of D, neighbours along the last tiled dimension of M's box, which covers
            all of them; the schedule's `block` is one part.
        alone: Whether a block makes one tile of D, staged where the stages were.
        c: Tensor map that brings a tile of C to where D's is staged, laid out as it, or None where there is no C or it
            is added from vectors.
        trade: Set where the cluster's blocks trade halves of their tiles; `d` is then the map of what one of them has.
    """

    consumers: int
    m_blocks: int
    ping_pong: bool
    a: BulkMove | None
    b: BulkMove | None
    d: TmaMap | None
    stage: StageSteps
    cluster: tuple[int, int] = (1, 1)
    gather_a: Gather | None = None
    gather_b: Gather | None = None
    producers: int = 1
    ring: int = 0
    crossed: Crossed | None = None
    rows: int = 0
    resident: str = ""
    line: str = ""
    parts: int = 1
    alone: bool = False
    c: TmaMap | None = None
    trade: Trade | None = None

    def way(self, tensor: str) -> BulkMove | Gather:
        """How operand `"a"` or `"b"` arrives."""
        found = (self.a or self.gather_a) if tensor == "a" else (self.b or self.gather_b)
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to run a plan on one architecture.

    Attributes:
        family: Kernel family: `"sm90"`, `"sm80"`, `"simt"` or `"stream"`.
        arch: Architecture that it is compiled for, e.g. `"sm_90a"`.
        block: Tile (block_m, block_n, block_k) in elements.
        warps: Warps along M and N.
        num_stages: Depth of the shared-memory pipeline.
        box_m, box_n, box_k: How each group is cut; a box may be smaller than its block, the rest is padding.
        k_table: Whether offsets along K come from a table in shared memory (flattened K) instead of one uniform
            offset per tile.
        a, b: Global-to-shared access of the operands (None where there is no operand, or tensor maps move it).
        vector_d: Elements per store, along D's unit-stride mode.
        split_k: Number of slices of K, summed in a fixed order.
        group_m: Tiles of M that are visited together for reuse in L2.
        smem_bytes: Dynamic shared memory.
        workspace_bytes: Device memory for partial sums (0 without split-K).
        item_bytes: Item size of the operands.
        exchanged: Whether A and B change roles once more (see `realize`).
        splits: Modes cut in two before the boxes.
        roles: Warps and tensor maps of the `sm90` family, else None.
        blocks: Most blocks of a persistent kernel, one a multiprocessor; 0 where every tile has a block.
        estimate_us: What the cost model expects, in microseconds.
        bound: What the cost model thinks limits it, e.g. `"DRAM"`.
        reason: Why this schedule, in one line.
        batch: Batches that a block makes together; None where it makes one.
        stream: What only the `stream` family has. Its `box_m` covers D's modes of all groups (`output_modes`) and its
            `box_n` is empty; the other families have None.
    """

    family: str
    arch: str
    block: tuple[int, int, int]
    warps: tuple[int, int]
    num_stages: int
    box_m: Box
    box_n: Box
    box_k: Box
    k_table: bool
    a: Access | None
    b: Access | None
    vector_d: int
    split_k: int = 1
    group_m: int = 8
    smem_bytes: int = 0
    item_bytes: int = 4
    exchanged: bool = False
    splits: tuple[Split, ...] = ()
    roles: WarpRoles | None = None
    blocks: int = 0
    workspace_bytes: int = 0
    estimate_us: float = field(default=0.0, compare=False)
    bound: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)
    batch: Batch | None = None
    stream: Stream | None = None

    @property
    def batches(self) -> int:
        """Batches that the tiles of a block have room for."""
        return self.batch.box.size if self.batch is not None else 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1] * (self.batch.warps if self.batch is not None else 1)
