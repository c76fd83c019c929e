"""Which persistent kernel makes a ragged contraction: tiles that suit a problem's share of the rows.

Tiles are searched for the usual product, in which all problems have as many rows, and lowered for the product of all
rows (`gett.groups.ragged_plans`). Where there is none, `gett.groups.tiles` has a kernel for any strides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from gett.codegen.ragged import most_tiles, table_bytes
from gett.errors import ScheduleError
from gett.groups.ragged_plans import RaggedPlans
from gett.hw.archs import ArchFacts, arch_facts
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, D, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.lower import lower_plan, split_modes
from gett.schedule.search.base import Later, Search, best_schedules
from gett.schedule.search.hopper.fragments import WgmmaTf32Search
from gett.schedule.search.hopper.search import HopperSearch
from gett.schedule.search.hopper.wgmma_ss import WgmmaSSSearch
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.hopper_needs import planes, wgmma_takes
from gett.schedule.spec.loader import Tma
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


class RaggedSearch(Search[WgmmaTile]):
    """One assignment of roles: tiles of the usual product, lowered for that of all rows.

    Args:
        usual: The search of the usual product.
        whole: That of all rows.
        group: The group of the ragged mode in these roles.
        row_length: Elements of that mode for each row.
        ends: dtype of the numbers of rows.
    """

    def __init__(self, usual: HopperSearch, whole: HopperSearch, group: str, row_length: int, ends: str) -> None:
        self.usual, self.whole, self.group, self.row_length, self.ends = usual, whole, group, row_length, ends

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Tiles in which nothing stays and no halves are exchanged."""
        return self._plain(self.usual.choices())

    def _plain(self, choices: Iterable[WgmmaTile | Later[WgmmaTile]]) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        for x in choices:
            if isinstance(x, Later):
                yield Later(x.least_us, partial(self._inside, x))
            elif not x.stationary and not x.exchange and x.mma_tile is None and not self._run(x):
                yield x

    def _run(self, tile: WgmmaTile) -> int:
        """Rows of an atom of the ragged mode's tile that are loaded, where they are fewer than it has."""
        return {"m": tile.m.run, "n": tile.n.run, "k": 0}[self.group]

    def _box(self, tile: WgmmaTile) -> Box:
        return {"m": tile.m.box, "n": tile.n.box, "k": tile.k}[self.group]

    def _inside(self, later: Later[WgmmaTile]) -> Iterable[WgmmaTile | Later[WgmmaTile]]:
        return self._plain(later.choices())

    def estimate(self, choice: WgmmaTile) -> Estimate:
        """Expected time of whole sums.

        Half of a problem's last tile is padding in the mean, and half of the last wave is idle, however well tiles fit
        the usual product. Where memory limits neither costs anything, but each tile along the rows reads the problem's
        matrix again.
        """
        found, box = self.usual.cost.whole(choice), self._box(choice)
        if self.group == "k":
            return replace(found, us=found.us * (1 + box.size / 2 / box.volume))
        if found.bound == "DRAM":
            return replace(found, us=found.us * (1 + AGAIN * (box.tiles - 1)))
        tiles, at_once = self.usual.cost.grid(choice)
        side = box.size * choice.cluster[self.group == "n"]
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
        """The schedules of a tile for which there are clipped maps."""
        for made in self.whole.lowered(self._tile(choice), estimate):
            found = None if self._begins_anywhere(made) else self._clipped(made)
            if found is not None:
                order = PersistentRagged(
                    made.scheduler.blocks, self.group, self.row_length, self.ends, made.scheduler.group_m, made.cluster
                )
                forecast = replace(made.forecast, reason=self.usual.reason(choice))
                yield replace(found, scheduler=order, forecast=forecast)

    def _tile(self, choice: WgmmaTile) -> WgmmaTile:
        """The tile of all rows, of which it has as many in one dimension."""
        plan = self.whole.plan
        (mode,) = modes = {"m": plan.m, "n": plan.n, "k": plan.k}[self.group]
        box = Box((mode.extent,), (TileDim((0,), self._box(choice).size),))
        if self.group == "k":
            return replace(choice, k=box)
        side = OperandTiling(box, modes)
        return replace(choice, m=side) if self.group == "m" else replace(choice, n=side)

    def _begins_anywhere(self, made: Schedule) -> bool:
        """Whether copies of an operand begin at any element of its rows, which run along the ragged mode.

        On an H200 they ended with an illegal instruction: they begin at whole chunks of 16 bytes alone.
        """
        side = made.hopper.a if self.group == "m" else made.hopper.b
        if self.group == "k" or not isinstance(side, Tma):
            return False
        return side.map.modes[len(self.whole.plan.l)].dim == 0

    def _clipped(self, made: Schedule) -> Schedule | None:
        """A schedule whose maps end at the last row of a problem; None where one cannot."""
        store, t, own = made.epilogue.store, made.tiling, self.usual.plan
        if not isinstance(store, TmaStore) or made.adds_parts or made.scheduler.tensor:
            return None
        plan = split_modes(self.whole.plan, t.splits)  # modes of the other groups may be split
        if self.group == "k":
            loop, first = made.hopper, len(plan.l)
            assert isinstance(loop.a, Tma)
            assert isinstance(loop.b, Tma)
            a = clipped(loop.a.map, first + len(plan.m), t.k.size, own.k[0].strides[A])
            b = clipped(loop.b.map, first + len(plan.n), t.k.size, own.k[0].strides[B])
            if a is None or b is None:
                return None
            loads = {"a": replace(loop.a, map=a), "b": replace(loop.b, map=b)}
            return replace(made, mainloop=replace(made.mainloop, **loads))  # type: ignore[arg-type]
        if self.group == "m":
            d = clipped(store.map, len(plan.l), t.m.size, own.m[0].strides[D])
        else:
            d = clipped(store.map, len(plan.l) + len(plan.m), t.n.size, own.n[0].strides[D])
        return None if d is None else replace(made, epilogue=replace(made.epilogue, store=replace(store, map=d)))


def ragged_schedules(plans: RaggedPlans, arch: str, ends: str) -> list[Schedule]:
    """Schedules of persistent kernels, best first; none where tensor maps or wgmma do not take the product."""
    plan, count, whole = plans.usual, plans.usual.l[-1].extent, plans.whole
    (rows,) = (s.extent for s in {"m": whole.m, "n": whole.n, "k": whole.k}[plans.group])
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
    group = {"m": "n", "n": "m", "k": "k"}[plans.group] if swap else plans.group
    searches = kind(plans.usual, facts, swap), kind(plans.whole, facts, swap)
    return RaggedSearch(*searches, group, plans.row_length, ends)


def _numbered(plan: GemmPlan, schedule: Schedule) -> bool:
    """Whether kernels can number the tiles."""
    try:
        most_tiles(lower_plan(plan, schedule.tiling), schedule)
    except ScheduleError:
        return False
    return True
