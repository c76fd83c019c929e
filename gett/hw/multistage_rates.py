"""What was measured of kernels that multiply by mma.sync or ordinary arithmetic: a part of a device's record.

Clocks are those of a multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MmaSyncRates:
    """Multistage main loops (mma.sync and ordinary arithmetic).

    Attributes:
        tensor_share: Share of the rate of mma.sync that long loops reach.
        float64_share: The same for float64.
        simt_shares: Shares of the rate of ordinary arithmetic, (outputs of a warp at least, share), descending.
        double_shares: The same of arithmetic in float64.
        smem_bytes_per_clock: Rate at which fragments are read.
        copy_bytes_per_clock: Rate of `cp.async`.
        line_clocks: In its place in float64, clocks of each line that is looked up.
        register_stage_clocks: A warp's load to registers, and its store of one element to shared memory.
        issue_per_clock: Instructions.
        overlap: Exponent of the norm in which the clocks of the units add up.
        memory_overlap: The same of the time of the multiprocessors and of what memory takes for D.
        overlap_ahead: The same of a multiprocessor's own units in float64, where fragments are loaded before their
            k-tile begins; others gain little.
        kept_bytes: Of the first cache, that each operand in short copies is to have.
    """

    tensor_share: float
    float64_share: float
    simt_shares: tuple[tuple[int, float], ...]
    double_shares: tuple[tuple[int, float], ...]
    smem_bytes_per_clock: float
    copy_bytes_per_clock: float
    line_clocks: float
    register_stage_clocks: float
    issue_per_clock: float
    overlap: float
    memory_overlap: float
    overlap_ahead: float
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class MmaSyncTile:
    """What k-tiles and tiles of the multistage main loops take besides.

    Attributes:
        copy_latency_clocks: Of an asynchronous copy, spread over the stages in flight.
        load_latency_clocks: Of a load through registers.
        own_clocks: Of each instruction of a warp between two waits, which no other warp of its block hides.
        k_table_factor: On a k-tile whose K is flattened through a table.
        one_step_factor: On one of a single step, whose fragments are loaded ahead.
        block_clocks: Fill and drain of a block's pipeline.
        launched_clocks: Of these, what passes while kernels without tensor cores are launched.
        staged_clocks: Of a warp's outputs on their way through shared memory.
        vector_clocks: Of a warp's vectors of D, which are looked up and stored.
    """

    copy_latency_clocks: float
    load_latency_clocks: float
    own_clocks: float
    k_table_factor: float
    one_step_factor: float
    block_clocks: float
    launched_clocks: float
    staged_clocks: float
    vector_clocks: float


@dataclass(frozen=True, slots=True)
class MultistageFactors:
    """What the clocks of units and tiles do not say of a kernel's time.

    Attributes:
        tensor_cores: Factor on all but the launch of kernels of tensor cores. Their forecasts scatter, and the least of
            many is too low.
        elements: The same where both operands are loaded element by element.
        multiply_adds: The same of multiply-adds.
        own_copies: Factor on tensor cores where a warp alone copies and multiplies a tile of one k-tile, or of one of
            several batches that lie side by side.
        few_warps: Share of the time of multiply-adds that a scheduler's only warp waits; it falls with warps squared.
        registers: Share of the registers that the limits reckon with, which kernels take.
        stream_k: Factor on k-tiles where stream-K divides tiles.
    """

    tensor_cores: float
    elements: float
    multiply_adds: float
    own_copies: float
    few_warps: float
    registers: float
    stream_k: float


@dataclass(frozen=True, slots=True)
class MultistageModel:
    """All that concerns kernels that multiply by mma.sync or ordinary arithmetic.

    Attributes:
        rates: Of the units of a multiprocessor.
        tile: What k-tiles and tiles take besides.
        factors: What these do not say.
    """

    rates: MmaSyncRates
    tile: MmaSyncTile
    factors: MultistageFactors
