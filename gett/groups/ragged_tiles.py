"""Which persistent kernel makes a ragged contraction: tiles that suit a problem's share of the rows.

Tiles are searched for the usual product, in which all problems have as many rows, and lowered for the product of all
rows (`gett.groups.ragged_plans`). Where there is none, `gett.groups.tiles` has a kernel for any strides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from gett.codegen.ragged import most_tiles, table_bytes
from gett.errors import ScheduleError
from gett.groups.ragged_plans import RaggedPlans
from gett.hw.archs import ArchFacts, arch_facts
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.lower import lower_plan, split_modes
from gett.schedule.search.base import Later, Search, best_schedules
from gett.schedule.search.fragments import WgmmaTf32Search
from gett.schedule.search.hopper import HopperSearch
from gett.schedule.search.wgmma_ss import WgmmaSSSearch
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.hopper_needs import planes, wgmma_takes
from gett.schedule.spec.schedule import PersistentRagged, Schedule
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box, TileDim
from layouts.tma_clip import clipped

KEPT = 12
"""Schedules of each main loop."""
AGAIN = 0.02
"""Share of the time that each further tile along a problem's rows is taken to cost where memory limits."""
MOST_PROBLEMS = 2000
"""Problems whose first tiles have room in shared memory beside the stages."""
MOST_ROWS = 2**31 - 2**16
"""Elements of the ragged mode, whose tiles may begin behind the last one."""


@dataclass(frozen=True, slots=True)
class _Roles:
    """The ragged mode as a kernel sees it, whose roles of A and B may be others than the plan's."""

    group: str
    plans: RaggedPlans
    ends: str

    def of(self, tile: WgmmaTile) -> OperandTiling:
        """The boxes of the ragged mode's group."""
        return tile.m if self.group == "m" else tile.n


class RaggedSearch(Search[WgmmaTile]):
    """One assignment of roles: tiles of the usual product, lowered for that of all rows.

    Args:
        usual: The search of the usual product.
        whole: That of all rows.
        roles: The ragged mode in these roles.
    """

    def __init__(self, usual: HopperSearch, whole: HopperSearch, roles: _Roles) -> None:
        self.usual, self.whole, self.roles = usual, whole, roles

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Tiles in which nothing stays and no halves are exchanged."""
        return self._plain(self.usual.choices())

    def _plain(self, choices: Iterable[WgmmaTile | Later[WgmmaTile]]) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        for x in choices:
            if isinstance(x, Later):
                yield Later(x.least_us, partial(self._inside, x))
            elif not x.stationary and not x.exchange and x.mma_tile is None and not self.roles.of(x).run:
                yield x

    def _inside(self, later: Later[WgmmaTile]) -> Iterable[WgmmaTile | Later[WgmmaTile]]:
        return self._plain(later.choices())

    def estimate(self, choice: WgmmaTile) -> Estimate:
        """Expected time of whole sums.

        Half of a problem's last tile is padding in the mean, and half of the last wave is idle, however well tiles fit
        the usual product. Where memory limits neither costs anything, but each tile along the rows reads the problem's
        matrix again.
        """
        found, box = self.usual.cost.whole(choice), self.roles.of(choice).box
        if found.bound == "DRAM":
            return replace(found, us=found.us * (1 + AGAIN * (box.tiles - 1)))
        tiles, at_once = self.usual.cost.grid(choice)
        side = box.size * choice.cluster[self.roles.group == "n"]
        along = box.volume / side
        waves = tiles * (along + 0.5) / -(-box.volume // side) / at_once
        return replace(found, us=found.us * max(1.0, (waves + 0.5) / math.ceil(tiles / at_once)))

    def least_us(self, choice: WgmmaTile) -> float:
        """A bound of the forecasts of a tile."""
        return self.usual.least_us(choice)

    def variants(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[WgmmaTile]:
        """The same tile in clusters."""
        return self.usual.variants(choice, estimate)

    def lower(self, choice: WgmmaTile, estimate: Estimate) -> Iterator[Schedule]:
        """The schedules of a tile whose D a clipped map stores."""
        side = self.roles.of(choice)
        modes = self.whole.plan.m if self.roles.group == "m" else self.whole.plan.n
        whole = OperandTiling(Box((modes[0].extent,), (TileDim((0,), side.box.size),)), modes)
        tile = replace(choice, m=whole) if self.roles.group == "m" else replace(choice, n=whole)
        for made in self.whole.lowered(tile, estimate):
            found = ragged_schedule(made, self.whole.plan, self.roles.group, self.roles.plans, self.roles.ends)
            if found is not None:
                yield replace(found, forecast=replace(found.forecast, reason=self.usual.reason(choice)))


def ragged_schedule(made: Schedule, plan: GemmPlan, group: str, plans: RaggedPlans, ends: str) -> Schedule | None:
    """A schedule of all rows as one that reads the ends of problems; None where no clipped map stores D."""
    store, t = made.epilogue.store, made.tiling
    if not isinstance(store, TmaStore) or made.adds_parts or made.scheduler.tensor:
        return None
    modes_m = split_modes(plan, t.splits).m  # those of the other group may be split
    box, mode = (t.m, len(plan.l)) if group == "m" else (t.n, len(plan.l) + len(modes_m))
    found = clipped(store.map, mode, box.size, plans.d_step)
    if found is None:
        return None
    order = PersistentRagged(
        made.scheduler.blocks,
        "m" if group == "m" else "n",
        plans.row_length,
        ends,
        made.scheduler.group_m,
        made.cluster,
    )
    return replace(made, scheduler=order, epilogue=replace(made.epilogue, store=replace(store, map=found)))


def ragged_schedules(plans: RaggedPlans, arch: str, ends: str) -> list[Schedule]:
    """Schedules of persistent kernels, best first; none where tensor maps or wgmma do not take the product."""
    plan, count = plans.usual, plans.usual.l[-1].extent
    rows = max(s.extent for s in (plans.whole.m if plans.group == "m" else plans.whole.n))
    if count > MOST_PROBLEMS or rows > MOST_ROWS or planes(plan) is not None or not wgmma_takes(plan, arch):
        return []
    if data_type(plan.contraction.dtype).bytes > 4:
        return []
    facts = arch_facts(arch)
    facts = replace(facts, smem_per_block=facts.smem_per_block - table_bytes(count))
    for kind in (WgmmaSSSearch, WgmmaTf32Search):
        found = best_schedules([_search(kind, plans, facts, ends, swap) for swap in (False, True)], KEPT, needed=False)
        if found := [s for s in found if _numbered(plans.whole, s)]:
            return found
        if data_type(plan.contraction.dtype).exact:
            break
    return []


def _search(
    kind: type[WgmmaSSSearch] | type[WgmmaTf32Search], plans: RaggedPlans, facts: ArchFacts, ends: str, swap: bool
) -> RaggedSearch:
    group = {"m": "n", "n": "m"}[plans.group] if swap else plans.group
    return RaggedSearch(kind(plans.usual, facts, swap), kind(plans.whole, facts, swap), _Roles(group, plans, ends))


def _numbered(plan: GemmPlan, schedule: Schedule) -> bool:
    """Whether kernels can number the tiles."""
    try:
        most_tiles(lower_plan(plan, schedule.tiling), schedule)
    except ScheduleError:
        return False
    return True
