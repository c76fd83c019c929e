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
from gett.hw.hopper_rates import HopperModel
from gett.hw.multistage_rates import MultistageModel
from gett.hw.stream_rates import PackingRates, StreamRates, TableRates
from layouts.rates import RunRates


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Times that each launch takes, whatever it computes.

    Attributes:
        launch_us: From one kernel to the next in a full queue.
        fill_us: Way of a block's first tile through the empty pipeline of a persistent kernel.
        reduce_l2_passes: Passes over partial sums at L2's rate that a second launch takes, which adds slices of K.
        blocks_per_us: Blocks that the GPU starts, however short they are.
    """

    launch_us: float
    fill_us: float
    reduce_l2_passes: float
    blocks_per_us: float


@dataclass(frozen=True, slots=True)
class L2Rates:
    """L2, and the way from there to a multiprocessor.

    Attributes:
        read_tbps: Reads of all multiprocessors.
        tma_bytes_per_clock: What one multiprocessor draws by tensor maps, in rows of 64 bytes or more.
        thread_bytes_per_clock: What it draws by accesses of its threads.
        run_end_bytes: What the two ends of a stored run cost in lines that are not full.
        line_share: Share in which lines that are touched in part show in the time.
        part_of_line: Factor on D's bytes in rows below a line, which leaves in parts.
        kept_share: Share of L2 whose lines are still there when the rest of them is read.
        cluster_order: First tile of each cluster of two blocks where they fill the GPU; empty where plain order is as
            good. Requests of one GPC for the same line are joined when they come close together, so clusters of one
            GPC take neighbouring tiles.
    """

    read_tbps: float
    tma_bytes_per_clock: float
    thread_bytes_per_clock: float
    run_end_bytes: int
    line_share: float
    part_of_line: float
    kept_share: float
    cluster_order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TmaClocks:
    """Clocks of the copy engine (TMA) of one multiprocessor.

    Attributes:
        row_clocks: A row of 32 bytes.
        element_clocks: A row of one element of 16 bytes.
        stored_row_clocks: A row of a store.
        cut_row_factor: Time of a row of 48, 80 or 112 bytes, which cuts a sector, against a whole one.
        past_end_rows: Rows of 64 bytes that take as long as what a row takes more that ends beyond the tensor's end.
        multicast_gain: What sharing gains for rows below 64 bytes, against longer ones.
    """

    row_clocks: float
    element_clocks: float
    stored_row_clocks: float
    cut_row_factor: float
    past_end_rows: float
    multicast_gain: float


@dataclass(frozen=True, slots=True)
class StoreClocks:
    """Stores of D from shared memory.

    Attributes:
        tile_clocks: Of a tile's store, whatever it holds: barriers, fences, the issue.
        access_slots: Instructions of a warp to store one vector or single element, look-ups included.
        row_pass_clocks: Of a warp's pass over rows that are stored in aligned chunks.
        two_buffers: Whether tiles of one k-tile are staged in two buffers by turns.
    """

    tile_clocks: float
    access_slots: float
    row_pass_clocks: float
    two_buffers: bool


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
        hopper: The Hopper main loops.
        multistage: Kernels that multiply by mma.sync or ordinary arithmetic.
        streams: Kernels whose time is that of their bytes.
        packing: Copies whose product is multiplied.
        tables: Products whose strides are in tables.
        nominal: Name in `gett.hw.archs` of the GPU that stands for the architecture, if it is this one.
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
    hopper: HopperModel
    multistage: MultistageModel
    streams: StreamRates
    packing: PackingRates
    tables: TableRates
    nominal: str = ""

    def rescaled(self, facts: ArchFacts) -> DeviceModel:
        """The record of another GPU of a similar kind.

        Rates of memory and of L2 are that GPU's nominal ones. What one multiprocessor draws from L2 by its threads
        follows its share of L2's rate. Clocks, shares and factors stay. The order of clusters stays where there are as
        many multiprocessors.
        """
        share = facts.l2_tbps / (facts.sm_count * facts.clock_ghz)
        own_share = self.l2.read_tbps / (self.sm_count * self.clock_ghz)
        drawn = self.l2.thread_bytes_per_clock * (share / own_share)
        alike = (facts.arch, facts.sm_count) == (self.arch, self.sm_count)
        return replace(
            self,
            name=facts.name,
            nominal="",
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
    own = own_record(facts)
    return own or min(measured(), key=lambda model: _distance(model, facts)).rescaled(facts)


def own_record(facts: ArchFacts) -> DeviceModel | None:
    """The record that was measured on this very GPU, None where there is none."""
    return next((x for x in measured() if facts.name in (x.name, x.nominal)), None)


def _distance(model: DeviceModel, facts: ArchFacts) -> tuple[bool, float]:
    chip = math.log(facts.sm_count * facts.clock_ghz / (model.sm_count * model.clock_ghz))
    memory = math.log(facts.dram_tbps / model.memory.copy_tbps)
    return model.arch != facts.arch, math.hypot(chip, memory)
