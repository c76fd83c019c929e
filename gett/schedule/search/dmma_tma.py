"""Schedules of float64 and complex128 on Hopper's tensor cores with both operands by tensor map, in either major."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.hopper_units import DMMA
from gett.schedule.lower import split_modes
from gett.schedule.mainloops.dmma_tma import LEADS_COMPLEX, dmma_registers
from gett.schedule.search import tried as records
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader, by_map
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts, up
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.box import Box

PLACES = 12  # registers of a thread for more places of complex numbers, along two contracted modes


class DmmaTmaSearch(HopperSearch):
    """Tiles of two warpgroups; nothing stays."""

    mainloop, tried = DMMA, records.DMMA
    shares = True

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.boxes.few = parts(plan) > 1
        self.mapped: set[tuple[Box, Box]] = set()

    def estimate(self, choice: WgmmaTile) -> Estimate:
        """Expected time of a tile; where D is large, sums are short, and whether a tensor map stores it counts."""
        staging, boxes = self.cost.staging(choice), (choice.m.box, choice.n.box)
        if staging.bulk and boxes not in self.mapped:
            if self.d_map(split_modes(self.plan, choice.tiling(self.swap_ab).splits), choice, staging, 1) is None:
                self.cost.unmapped(choice)
            else:
                self.mapped.add(boxes)
        return super().estimate(choice)

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Every combination of rows, columns and boxes."""
        plan = self.plan
        if not self.has_units:
            return
        places = PLACES if len(self.leads) > 1 and parts(plan) > 1 else 0
        all_k = [*self.boxes_of_k()]
        blocks = ((A, [x.rows for x in self.tried.groups]), (B, self.widths()))
        if not all(self.movable(tensor, self.sides(tensor, of), all_k) for tensor, of in blocks):
            return
        shapes = [(x, n) for x in self.groups for n in self.widths() if self.registers(x.mma_m, n) >= places]
        yield from self.shapes(shapes, all_k)

    def registers(self, mma_m: int, n: int) -> int:
        """Registers of a thread that a tile leaves; below 0 where it needs more."""
        needed, there = dmma_registers(mma_m, n, parts(self.plan))
        return there - needed

    def widths(self) -> list[int]:
        """Columns of a tile worth trying; of complex numbers those for whose sums there are registers."""
        extent = self.plan.extent_n
        known = self.tried.widths if parts(self.plan) == 1 else self.tried.complex_widths
        return sorted({up(extent, 8), *(n for n in known if n < extent)}, reverse=True)

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried."""
        extents = self.extents_k
        if len(self.leads) < 2:
            return self.best_of_depths(True, 2)
        a, b = self.leads  # rows of 64 bytes or 32
        cuts = [x for x in self.tried.two_leads if x[0] < 2 * extents[a] and x[1] < 2 * extents[b]]
        cuts = cuts if parts(self.plan) == 1 else [LEADS_COMPLEX]
        return [Box.of_cuts(extents, {b: cut_b, a: cut_a}) for cut_a, cut_b in cuts]

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[DmmaTma]:
        """All stages that shared memory may hold."""
        a, b = by_map(a, b)
        return (DmmaTma(a, b, tile.warpgroups.mma_m, stages) for stages in range(MOST_STAGES, 1, -1))

    def epilogue(self, plan: GemmPlan, tile: WgmmaTile, split: int) -> Epilogue | None:
        """How D is stored: a tile may lie where the stages were."""
        found = super().epilogue(plan, tile, split)
        if found is None or found.store.tma is None or not self.cost.stages_are_reused(tile):
            return found
        return replace(found, store=replace(found.store.tma, reuse_mainloop_smem=True))

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        return f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep, {self.plan.contraction.dtype} by tensor map"
