"""What was measured of kernels that multiply by wgmma: a part of a device's record. Clocks are a multiprocessor's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WgmmaRates:
    """Main loops of wgmma, and what tiles take besides.

    Attributes:
        peak_share: Share of the nominal tensor rate that long loops reach.
        smem_bytes_per_clock: What shared memory serves.
        latency_clocks: From a warpgroup's tile to its next one where nothing else takes longer (ping-pong).
        cooperative_clocks: Of a tile where all warpgroups share it.
        cluster_m, cluster_n: Factor on the loop where two blocks along M (along N) keep step.
        short_sum: Factor on products too short to overlap: in ping-pong up to 32 k, gathered up to 64.
        shallow_share: Share of the time that each k-tile of only 16 costs.
        padded_share: Share in which padded outputs show in the time though waves are whole.
        dim_share: Share of the time that one more tiled dimension costs.
        late_share: Share in which slow stores show where every block has one tile.
        per_warpgroup_a: Factor with A in registers where warpgroups wait for their own rows of A.
    """

    peak_share: float
    smem_bytes_per_clock: float
    latency_clocks: float
    cooperative_clocks: float
    cluster_m: float
    cluster_n: float
    short_sum: float
    shallow_share: float
    padded_share: float
    dim_share: float
    late_share: float
    per_warpgroup_a: float


@dataclass(frozen=True, slots=True)
class StationaryFactors:
    """Factors on the time where an operand stays in shared memory, beyond the copies that this saves.

    Attributes:
        whole: All of a small operand stays.
        whole_beside_lines: The same where the other operand's rows are whole lines of L2.
        each_panel: Rows of a panel stay while a block makes one panel after the other.
        one_panel: Each block keeps to one panel.
    """

    whole: float
    whole_beside_lines: float
    each_panel: float
    one_panel: float


@dataclass(frozen=True, slots=True)
class InFlight:
    """How the depth of the pipeline shows.

    Attributes:
        dram_bytes: Bytes of loads under way that keep device memory busy.
        l2_bytes: Bytes beyond which more gain nothing where L2 or the tensor cores limit.
        none_share: Share of the time that none at all would cost.
        start_share: Share of the time that a first k-tile of 64 costs.
        two_stages: Factor on loops of two stages.
        alternating_three: Factor on long loops of three where warpgroups alternate.
        behind_stores_us: Time that a load from L2 takes while stores keep device memory busy.
        behind_stores_share: Share of the time that no loads under way beside these stores would cost.
        half_lines: Share that rows of half a line cost there.
    """

    dram_bytes: int
    l2_bytes: int
    none_share: float
    start_share: float
    two_stages: float
    alternating_three: float
    behind_stores_us: float
    behind_stores_share: float
    half_lines: float


@dataclass(frozen=True, slots=True)
class GatherRates:
    """Operands gathered by warps where no tensor map can move them.

    Attributes:
        piece_clocks: Of a piece of a row on its way from L2 to its place.
        element_clocks: Of each of its elements besides.
        tile_clocks: Of the offsets of a tile's pieces.
    """

    piece_clocks: float
    element_clocks: float
    tile_clocks: float


@dataclass(frozen=True, slots=True)
class PlaneClocks:
    """Where planes are multiplied.

    Attributes:
        step_clocks: Of 16 k, besides the products: fragments are made and sums added.
        copy_share: Share of the clocks that copies of short rows take while 16-bit operands are multiplied.
    """

    step_clocks: float
    copy_share: float


@dataclass(frozen=True, slots=True)
class WgmmaModel:
    """All that concerns kernels that multiply by wgmma.

    Attributes:
        loop: Main loops with both operands in shared memory, and what tiles take besides.
        stationary: Operands that stay in shared memory.
        in_flight: Depth of the pipeline.
        gather: Gathered operands.
        planes: Operands that are multiplied in planes.
    """

    loop: WgmmaRates
    stationary: StationaryFactors
    in_flight: InFlight
    gather: GatherRates
    planes: PlaneClocks
