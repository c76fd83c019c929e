"""`Schedule`: everything a kernel needs to know beyond the plan. Data only; no text, no CuPy."""

from __future__ import annotations

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
        asynchronous: `cp.async` when true (the vector lands whole in one row); else loads into registers, then stores
            element by element, which transposes on the way.
        vector_group: Group of the unit-stride mode, `"k"` or `"mn"`; differs from `major` when transposing.
        smem: Row pitch and swizzle.
        prefix: Product of the boxes that come before the unit-stride mode in its group's tile index; above 1 the
            elements of a vector are that far apart in the tile.
        unit_box: Box of the unit-stride mode's dimension.
    """

    major: str
    vector: int
    asynchronous: bool
    vector_group: str
    smem: SmemLayout
    prefix: int = 1
    unit_box: int = 1


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
    """

    major: str
    map: TmaMap


@dataclass(frozen=True, slots=True)
class StageSteps:
    """A tile of D in shared memory, in D's order.

    Attributes:
        m, n: Elements between neighbours along each dimension of box_m and of box_n (0 where its box is 1).
        elements: Room for the tile, gaps included.
        conflicts: How often one store of a fragment is served.
    """

    m: tuple[int, ...]
    n: tuple[int, ...]
    elements: int
    conflicts: int


@dataclass(frozen=True, slots=True)
class Crossed:
    """Units of A and B in two different contracted modes: A through registers, B in slabs of one `unit_a` each.

    Attributes:
        unit_a, unit_b: Positions in K of the modes along which A's and B's rows run.
        cluster: Blocks along M that share B.
        pieces: Copies of a tile of A, one behind the other along dimension `piece_dim` of its map.
    """

    unit_a: int
    unit_b: int
    cluster: int
    pieces: int
    piece_dim: int


@dataclass(frozen=True, slots=True)
class WarpRoles:
    """How the Hopper family divides a block.

    Attributes:
        consumers: Warpgroups that multiply.
        m_blocks: Blocks of 64 rows that each of them holds.
        ping_pong: Whether each works on tiles of its own.
        a, b: How the operands arrive.
        d: Tensor map of D (modes l, m, n), or None where D is stored as vectors.
        stage: How a tile of D is staged.
        crossed: Set where the operands' units are two contracted modes; `b` is then the map of one slab.
    """

    consumers: int
    m_blocks: int
    ping_pong: bool
    a: BulkMove
    b: BulkMove
    d: TmaMap | None
    stage: StageSteps
    crossed: Crossed | None = None


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
    stream: Stream | None = None
