"""What was measured of the Hopper main loops: a part of a device's record. Clocks are those of a multiprocessor.

All main loops have the same numbers, since one formula of time reads them; a main loop says only those in which it
differs from an ideal one. `python -m benchmarks refit` fits them to timed schedules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRates:
    """One main loop.

    Attributes:
        products: Share of the nominal rate of the tensor cores that long loops reach.
        port: Share of the rate of shared memory that they reach.
        copies: Share of the clocks of copies that shows beside products.
        hidden: Share that shows of the clocks of units that take less than the slowest.
        step_clocks: Of an instruction's k beside the product: fragments are made, sums are added.
        k_tile_clocks: Of each k-tile besides: barriers.
        tile_clocks: From a tile's last product to the next one's first, beside the stores of D.
        alternate_clocks: From a warpgroup's tile to its next one where warpgroups alternate and nothing takes longer.
        load_clocks: From a load's issue to its end; 0 where `missing` tells how loads come late.
        memory_clocks: More of them where memory limits.
        missing: Share of the time that no loads under way would cost.
        behind: The same beside stores of D that keep device memory busy.
        two_stages: Factor on loops of two stages.
        waits: Factor on kernels whose warps wait for each other's copies.
        beside: Share that shows of what takes less, memory's time or that of the multiprocessors.
        resent: Share of the time that it costs where L2 sends operands again, many times.
    """

    products: float = 1.0
    port: float = 1.0
    copies: float = 1.0
    hidden: float = 0.0
    step_clocks: float = 0.0
    k_tile_clocks: float = 0.0
    tile_clocks: float = 0.0
    alternate_clocks: float = 0.0
    load_clocks: float = 0.0
    memory_clocks: float = 0.0
    missing: float = 0.0
    behind: float = 0.0
    two_stages: float = 1.0
    waits: float = 1.0
    beside: float = 0.0
    resent: float = 0.0


@dataclass(frozen=True, slots=True)
class HopperLoops:
    """Each main loop.

    Attributes:
        ss: `WgmmaSS` by tensor map.
        gather: `WgmmaSS` with operands that warps gather.
        rs: `WgmmaRS`.
        split: `WgmmaSplit` by tensor map.
        split_copies: `WgmmaSplit` with operands by `cp.async`.
        tf32: `WgmmaTf32`.
        dmma: `DmmaTma`.
    """

    ss: LoopRates
    gather: LoopRates
    rs: LoopRates
    split: LoopRates
    split_copies: LoopRates
    tf32: LoopRates
    dmma: LoopRates


@dataclass(frozen=True, slots=True)
class ThreadCopies:
    """Operands that threads copy where no tensor map can.

    Attributes:
        piece_clocks: Of a piece of a row that warps gather, on its way from L2 to its place.
        element_clocks: Of each of its elements besides.
        warp_clocks: Of a warp's instruction of `cp.async`.
        line_clocks: Of each line of L2 that it touches.
    """

    piece_clocks: float
    element_clocks: float
    warp_clocks: float
    line_clocks: float


@dataclass(frozen=True, slots=True)
class HopperTiles:
    """What tiles take in all main loops.

    Attributes:
        cluster_n: Factor on the loop where two blocks along N keep step.
        cluster_m: The same along M.
        each_panel: Factor on the time where rows of a panel stay while a block makes one panel after the other.
        one_panel: Factor on the loop where each block keeps to one panel.
        padded_share: Share in which padded outputs show in the time though waves are whole.
        map_share: Share of the time that one more dimension of a copy's box costs; those of an operand count twice.
        first_share: Share of the time that boxes cost whose first dimension has one element; longer ones cost less.
        together_share: Share that warpgroups cost which share a tile.
        dram_bytes: Bytes of loads under way that keep device memory busy.
        l2_bytes: Bytes beyond which more gain nothing where L2 or the tensor cores limit.
        behind_us: Time that a load from L2 takes while stores keep device memory busy.
        half_lines: Share that rows of half a line of L2 cost there.
        reused_clocks: Of a tile staged in the stages: its store reads them, then the next tile's first loads come.
        small_d: Share of all bytes up to which D's hide beside those of A and B.
        short_k: Sums up to which starts and ends of tiles count more than the loop.
        across_k: Factor on reads of float64's fragments whose elements along K are no neighbours.
    """

    cluster_n: float
    cluster_m: float
    each_panel: float
    one_panel: float
    padded_share: float
    map_share: float
    first_share: float
    together_share: float
    dram_bytes: int
    l2_bytes: int
    behind_us: float
    half_lines: float
    reused_clocks: float
    small_d: float
    short_k: int
    across_k: float


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Batches whose tiles are visited together, since they lie side by side in D.

    Attributes:
        kept_bytes: What a group's rows of tiles share (B), which L2 keeps beside what is written.
        at_work: Share of the multiprocessors that a group must keep at work.
        memory: Share of the time that memory must be busy.
    """

    kept_bytes: int
    at_work: float
    memory: float


@dataclass(frozen=True, slots=True)
class HopperModel:
    """All that concerns the Hopper main loops.

    Attributes:
        loops: Each of them.
        tiles: What tiles take in all of them.
        threads: Operands that threads copy.
        batches: Batches that are visited together.
        stream_k: Factor on products where stream-K divides tiles: a last wave of few tiles was faster than others.
        stream_k_doubles: The same of `DmmaTma`.
    """

    loops: HopperLoops
    tiles: HopperTiles
    threads: ThreadCopies
    batches: SideBySide
    stream_k: float
    stream_k_doubles: float
