"""What was measured on a device, as one record: rates that the cost models rest on, and the factors that were fitted.

`ArchFacts` has the nominal limits of an architecture; a `DeviceModel` has measurements of one GPU. Records lie in
`gett.hw.measured`, a file a device; `nearest` gives any other GPU of the architecture the record that is most like it,
rescaled. Clocks are those of a multiprocessor. Knows no plan and no schedule.

Which fields `python -m benchmarks calibrate` measures and which it takes over is told there.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from gett.hw.archs import ArchFacts
from layouts.rates import RunRates


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Times that each launch takes, whatever it computes.

    Attributes:
        launch_us: From one kernel to the next in a full queue.
        fill_us: Way of a block's first tile through the empty pipeline of a persistent kernel.
        reduce_l2_passes: Passes over partial sums at L2's rate that a second launch takes, which adds slices of K.
    """

    launch_us: float
    fill_us: float
    reduce_l2_passes: float


@dataclass(frozen=True, slots=True)
class L2Rates:
    """L2, and the way from there to a multiprocessor.

    Attributes:
        read_tbps: Reads of all multiprocessors.
        tma_bytes_per_clock: What one multiprocessor draws by tensor maps, in rows of 64 bytes or more.
        thread_bytes_per_clock: What it draws by accesses of its threads.
        run_end_bytes: What the two ends of a stored run cost in lines that are not full.
        line_share: Share in which lines that are touched in part show in the time.
        cluster_order: First tile of each cluster of two blocks where they fill the GPU; empty where plain order is as
            good. Requests of one GPC for the same line are joined when they come close together, so clusters of one
            GPC take neighbouring tiles.
    """

    read_tbps: float
    tma_bytes_per_clock: float
    thread_bytes_per_clock: float
    run_end_bytes: int
    line_share: float
    cluster_order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TmaClocks:
    """Clocks of the copy engine (TMA) of one multiprocessor.

    Attributes:
        row_clocks: A row of 16 or 32 bytes.
        memory_row_clocks: Any row that comes from device memory, for as many as can be under way.
        stored_row_clocks: A row of a store.
        cut_row_factor: Time of a row of 48, 80 or 112 bytes, which cuts a sector, against a whole one.
        past_end_rows: Rows that take as long as one which ends in zeros beyond the tensor's end.
        multicast_gain: What sharing gains for rows below 64 bytes, against longer ones.
    """

    row_clocks: float
    memory_row_clocks: float
    stored_row_clocks: float
    cut_row_factor: float
    past_end_rows: float
    multicast_gain: float


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
        behind_stores_us: Time that a load from L2 takes beside stores that keep device memory busy.
        behind_stores_share: Share of the time that none under way beside them would cost.
        half_lines: Share that rows of half a line cost there.
    """

    dram_bytes: int
    l2_bytes: int
    none_share: float
    start_share: float
    two_stages: float
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
        step_clocks: Of 16 k, beside the products: fragments are made and sums added.
        copy_share: Share of the clocks that copies of short rows take beside products of 16-bit operands.
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


@dataclass(frozen=True, slots=True)
class StoreClocks:
    """Stores of D from shared memory.

    Attributes:
        tile_clocks: Of a tile's store, whatever it holds: barriers, fences, the issue.
        access_slots: Instructions of a warp to store one vector or single element, look-ups included.
        row_pass_clocks: Of a warp's pass over rows that are stored in aligned chunks.
    """

    tile_clocks: float
    access_slots: float
    row_pass_clocks: float


@dataclass(frozen=True, slots=True)
class MmaSyncRates:
    """Multistage main loops (mma.sync and ordinary arithmetic).

    Attributes:
        tensor_share: Share of the rate of mma.sync that long loops reach.
        float64_share: The same for float64.
        simt_shares: Shares of the rate of ordinary arithmetic, (outputs of a warp at least, share), descending.
        smem_bytes_per_clock: Rate at which fragments are read.
        copy_bytes_per_clock: Rates of `cp.async` by its width, (bytes, rate).
        register_stage_clocks: A warp's load to registers, and its store of one element to shared memory.
        issue_per_clock: Instructions.
        overlap: Exponent of the norm in which the clocks of the units add up.
    """

    tensor_share: float
    float64_share: float
    simt_shares: tuple[tuple[int, float], ...]
    smem_bytes_per_clock: float
    copy_bytes_per_clock: tuple[tuple[int, float], ...]
    register_stage_clocks: float
    issue_per_clock: float
    overlap: float


@dataclass(frozen=True, slots=True)
class MmaSyncTile:
    """What k-tiles and tiles of the multistage main loops take besides.

    Attributes:
        sync_clocks: Of a k-tile, whatever it holds.
        copy_latency_clocks: Of an asynchronous copy, spread over the stages in flight.
        load_latency_clocks: Of a load through registers.
        access_clocks: Of each of a thread's accesses, one after the other.
        product_clocks: Of each of a warp's products, one after the other.
        short_loop_warps: Warps of a multiprocessor that hide nothing in loops of one or two k-tiles.
        k_table_factor: On a k-tile whose K is flattened through a table.
        block_clocks: Fill and drain of a block's pipeline.
        read_share: Share of the time of A and B at copy speed; what is read again comes from L2.
        staged_clocks: Of a warp's outputs on their way through shared memory.
    """

    sync_clocks: float
    copy_latency_clocks: float
    load_latency_clocks: float
    access_clocks: float
    product_clocks: float
    short_loop_warps: float
    k_table_factor: float
    block_clocks: float
    read_share: float
    staged_clocks: float


@dataclass(frozen=True, slots=True)
class MultistageModel:
    """All that concerns kernels that multiply by mma.sync or ordinary arithmetic.

    Attributes:
        rates: Of the units of a multiprocessor.
        tile: What k-tiles and tiles take besides.
    """

    rates: MmaSyncRates
    tile: MmaSyncTile


@dataclass(frozen=True, slots=True)
class MainloopFactors:
    """Factors that make estimates of different main loops comparable, wgmma with both operands by tensor map being 1.

    Attributes:
        multistage: mma.sync.
        multistage_elements: The same where both operands are loaded element by element.
        wgmma_rs: wgmma with A in registers.
        gather: wgmma with gathered operands.
    """

    multistage: float = 1.0
    multistage_elements: float = 1.0
    wgmma_rs: float = 1.0
    gather: float = 1.0


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One GPU as it was measured.

    Attributes:
        name: Product name, as the driver gives it.
        arch: Architecture, e.g. `"sm_90a"`.
        sm_count: Multiprocessors.
        clock_ghz: Clock to which the record's times and clocks belong.
        memory: Device memory by length of runs.
        launches: Launches.
        l2: L2.
        tma: The copy engine.
        stores: Stores of D.
        wgmma: Kernels that multiply by wgmma.
        multistage: Kernels that multiply by mma.sync or ordinary arithmetic.
        mainloops: Estimates of one main loop against another's.
    """

    name: str
    arch: str
    sm_count: int
    clock_ghz: float
    memory: RunRates
    launches: LaunchTimes
    l2: L2Rates
    tma: TmaClocks
    stores: StoreClocks
    wgmma: WgmmaModel
    multistage: MultistageModel
    mainloops: MainloopFactors

    def rescaled(self, facts: ArchFacts) -> DeviceModel:
        """The record of another GPU of a similar kind.

        Rates of memory and of L2 are that GPU's nominal ones; what one multiprocessor draws from L2 by its threads
        follows its share of L2's rate. Clocks, shares and factors stay; the order of clusters where there are as many
        multiprocessors.
        """
        share = facts.l2_tbps / (facts.sm_count * facts.clock_ghz)
        own_share = self.l2.read_tbps / (self.sm_count * self.clock_ghz)
        drawn = self.l2.thread_bytes_per_clock * (share / own_share)
        alike = (facts.arch, facts.sm_count) == (self.arch, self.sm_count)
        return replace(
            self,
            name=facts.name,
            arch=facts.arch,
            sm_count=facts.sm_count,
            clock_ghz=facts.clock_ghz,
            memory=self.memory.scaled(facts.dram_tbps / self.memory.copy_tbps),
            l2=replace(
                self.l2,
                read_tbps=facts.l2_tbps,
                thread_bytes_per_clock=drawn,
                cluster_order=self.l2.cluster_order if alike else (),
            ),
        )


@cache
def measured() -> tuple[DeviceModel, ...]:
    """All records of `gett.hw.measured`, by file name."""
    from gett.hw import measured as package

    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return tuple(importlib.import_module(f"{package.__name__}.{name}").MODEL for name in names)


@lru_cache(maxsize=64)
def nearest(facts: ArchFacts) -> DeviceModel:
    """The record of a GPU: its own where it was measured, else the one most like it, rescaled.

    Records of the same architecture come first. Of these the one counts whose rates on chip and of memory differ least,
    as ratios.
    """
    for model in measured():
        if model.name == facts.name:
            return model

    def distance(model: DeviceModel) -> tuple[bool, float]:
        chip = math.log(facts.sm_count * facts.clock_ghz / (model.sm_count * model.clock_ghz))
        memory = math.log(facts.dram_tbps / model.memory.copy_tbps)
        return model.arch != facts.arch, math.hypot(chip, memory)

    return min(measured(), key=distance).rescaled(facts)
