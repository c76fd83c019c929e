"""The forecast of a schedule of a Hopper main loop, worked out of the schedule alone.

A search chooses tiles and makes schedules of them; here a schedule's tile is found again. `benchmarks.refit` asks for
forecasts in this way. The formula is `gett.schedule.cost.hopper`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import warpgroup_atom
from gett.hw.hopper_rates import HopperModel
from gett.ir.gemm import D, GemmPlan, itemsize
from gett.schedule.cost.hopper import HopperCost, Traffic
from gett.schedule.cost.hopper_units import DMMA, GATHER, RS, SPLIT, SPLIT_COPIES, SS, TF32, LoopCost
from gett.schedule.cost.staging import Staging
from gett.schedule.lower import at_precision, lower_plan, swap_ab
from gett.schedule.spec.loader import HopperLoader
from gett.schedule.spec.mainloop import DmmaTma, WgmmaRS, WgmmaSplit, WgmmaSS, WgmmaTf32
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.modes import Strided

LOOPS: dict[type, tuple[LoopCost, LoopCost]] = {
    WgmmaSS: (SS, GATHER),
    WgmmaRS: (RS, RS),
    WgmmaSplit: (SPLIT, SPLIT_COPIES),
    WgmmaTf32: (TF32, TF32),
    DmmaTma: (DMMA, DMMA),
}
"""Main loops as the cost model sees them, where tensor maps bring both operands, and where threads bring one."""


Parts = tuple[HopperCost, WgmmaTile, Schedule, Staging, Traffic]
"""What a forecast is made of."""


class Forecaster:
    """Forecasts of the schedules of one plan; what they have in common is worked out once."""

    def __init__(self, plan: GemmPlan, facts: ArchFacts) -> None:
        self.plan, self.facts = plan, facts
        self.costs: dict[tuple[LoopCost, bool, str], HopperCost] = {}

    def cost(self, schedule: Schedule) -> HopperCost:
        """The model of a schedule's main loop and roles of A and B."""
        loop, precision = schedule.hopper, schedule.precision
        mainloop = LOOPS[type(loop)][loop.by_warps]
        key = mainloop, schedule.tiling.swap_ab, precision
        if key not in self.costs:
            plan = at_precision(self.plan, precision) if precision else self.plan
            self.costs[key] = HopperCost(swap_ab(plan) if schedule.tiling.swap_ab else plan, self.facts, mainloop)
        return self.costs[key]

    def us(self, schedule: Schedule) -> float:
        """Microseconds that a schedule is expected to take."""
        parts = self.parts(schedule, tile_of(schedule, self.plan))
        return self.of_parts(parts, parts[0].device.hopper)

    def parts(self, schedule: Schedule, tile: WgmmaTile) -> Parts:
        """What no number of a main loop changes: tile, stores and traffic."""
        cost = self.cost(schedule)
        staging = cost.staging(tile)
        if staging.bulk and schedule.split_k == 1 and schedule.epilogue.store.map is None:
            cost.unmapped(tile)
            staging = cost.staging(tile)
        return cost, tile, schedule, staging, cost.traffic(tile, staging)

    @staticmethod
    def of_parts(parts: Parts, model: HopperModel) -> float:
        """Microseconds by a device's numbers of the main loops."""
        cost, tile, schedule, staging, traffic = parts
        cost.read(model)
        loop = cost.loop(tile, cost.grid(tile)[0])
        estimate = cost.of_split(tile, loop, staging, traffic, schedule.split_k, stream_k=schedule.scheduler.stream_k)
        return cost.forecast_us(tile, estimate, schedule)


def tile_of(schedule: Schedule, plan: GemmPlan) -> WgmmaTile:
    """The tile of a schedule, as its search chose it.

    Args:
        schedule: Of a Hopper main loop.
        plan: The plan as it was made.
    """
    lowered, tiling, loop = lower_plan(plan, schedule.tiling, schedule.precision), schedule.tiling, schedule.hopper
    c, order = lowered.contraction, schedule.scheduler
    splits = {split.group: split for split in tiling.splits}

    def side(group: str, modes: tuple[Strided, ...], box: Box, loader: HopperLoader) -> OperandTiling:
        run = loader.tma.run if loader.tma is not None else 0
        return OperandTiling(box, modes, splits.get(group), run, loader.tma.atom if run and loader.tma else 0)

    mma_tile = None
    if tiling.mma_tiles > 1:  # MMA tiles follow each other along D's unit-stride mode
        cut = _divided(tiling.m, lowered.m, itemsize(c.d.dtype), tiling.mma_tiles)
        mma_tile = side("m", lowered.m, cut, loop.a)
    return WgmmaTile(
        warpgroup_atom(c.dtype, c.precision),
        Warpgroups(loop.warpgroups, loop.mma_m, loop.ping_pong),
        side("m", lowered.m, tiling.m, loop.a),
        side("n", lowered.n, tiling.n, loop.b),
        tiling.k,
        schedule.cluster,
        loop.keeps,
        "" if not order.tensor else "one" if order.one_panel else "each",
        mma_tile,
        schedule.epilogue.source_map is not None,
        schedule.epilogue.store.exchange is not None,
        (loop.a.width, loop.b.width),
    )


def _divided(box: Box, modes: Sequence[Strided], size: int, parts: int) -> Box:
    along = next(i for i, mode in enumerate(modes) if mode.strides[D] == size)
    cuts = {i: cut // parts if i == along else cut for i, cut in enumerate(box.cut) if cut > 1}
    return Box.of_cuts(tuple(mode.extent for mode in modes), cuts)
