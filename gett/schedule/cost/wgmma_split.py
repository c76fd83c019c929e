"""The cost model of the main loop that multiplies planes: products, the port of shared memory, copies."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate, traffic_us
from gett.schedule.cost.wgmma import Loop, WgmmaCost
from gett.schedule.spec.hopper_needs import parts, planes
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile

COMPLEX = 1.65
"""Factor on what is done beside the products of a step of complex numbers."""

PORT_BYTES = 128
"""Bytes that shared memory serves a clock."""


SHALLOW, TWO_TILES, DEEPEST = 1.07, 1.3, 32  # factors on k-tiles of one instruction, and where two of them are all


def least_split_us(plan: GemmPlan, facts: ArchFacts) -> float:
    """A bound of the time of any schedule: a launch, empty pipelines, and the largest tensor at copy speed."""
    device = nearest(facts)
    launches = device.launches
    return launches.launch_us + WgmmaSplitCost.fills * launches.fill_us + max(traffic_us(plan, device).values())


class WgmmaSplitCost(WgmmaCost):
    """Estimates for one plan."""

    fills = 2  # of the stages, then of the planes

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        super().__init__(plan, facts)
        made = planes(plan)
        assert made is not None
        self.planes = made
        self.shallow_share = 0.0
        self.lanes = facts.tensor_lanes[made.tensor.name]
        # Rows along two modes are short: lanes that read them at a time meet in the same banks in twos.
        self.served = 2 if None not in self.k_unit.values() and len(set(self.k_unit.values())) > 1 else 1

    def moved(self, tile: WgmmaTile) -> list[tuple[int, OperandTiling, int]]:
        """The operands that the copy engine moves: their rows, and how often they are read."""
        return [(A, tile.a, tile.n.box.tiles), (B, tile.n, tile.m.box.tiles)]

    def loop(self, tile: WgmmaTile, tiles: int) -> Loop:
        """What a k-tile takes: all products of planes; what is copied, split and read of shared memory."""
        rows, bn, bk = tile.shape
        real, rates = parts(self.plan), self.device.wgmma.planes
        count, products, size = real * self.planes.count, real * len(self.planes.products), self.planes.tensor.bytes
        # The two warpgroups wait for the same k-tiles, so that what one does beside its products hides little.
        # Of complex numbers, twice as much is split, but the sums of one part are added beside more products.
        pause = rates.step_clocks * (COMPLEX if real > 1 else 1.0) * bk / 16
        math_clocks = real * products * rows * bn * bk / self.lanes + pause
        # Both operands come in and are read once as they are, B's planes are written once and read by each product.
        port = (1 + self.served) * self.size * (rows + bn) + size * bn * (count + products * rows / 64)
        port_clocks = port * bk / PORT_BYTES
        drawn = engine = 0.0
        for tensor, side, reads in self.moved(tile):
            copy, moved = self.clocks(tensor, side, tile.k, 1, reads)
            drawn, engine = drawn + rates.copy_share * copy, engine + rates.copy_share * moved
        units = {"tensor cores": math_clocks, "shared memory": port_clocks, "L2": drawn}
        slowest = max(units, key=lambda name: units[name])
        return Loop(units[slowest], slowest, engine, 0.0)

    def depth(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Products take so long that two stages are enough; deep k-tiles wait less often."""
        if tile.k.size > self.atom.k:
            return 1.0
        return TWO_TILES if self.atom.k < self.plan.extent_k <= DEEPEST else SHALLOW
