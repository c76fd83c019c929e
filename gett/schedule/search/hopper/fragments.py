"""Schedules of the main loops that load operands into registers: TF32, where rows do not both run along K, and float64.

Tiles have two warpgroups, and nothing stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gett.ir.gemm import GemmPlan
from gett.schedule.cost.hopper_units import DMMA, TF32
from gett.schedule.mainloops.dmma_tma import LEADS_COMPLEX, dmma_registers
from gett.schedule.mainloops.wgmma_tf32 import WIDEST_TRANSPOSED, tf32_registers
from gett.schedule.search import tried as records
from gett.schedule.search.hopper.parts import Loader, by_map
from gett.schedule.search.hopper.search import HopperSearch
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import MOST_STAGES, up
from gett.schedule.spec.mainloop import DmmaTma, WgmmaTf32
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile
from layouts.box import Box

PLACES = 12  # registers of a thread for more places of complex numbers, along two contracted modes


class WgmmaTf32Search(HopperSearch):
    """Tiles of wgmma on TF32 with A in registers."""

    mainloop, tried = TF32, records.TF32

    def takes(self) -> bool:
        """Whether rows of one operand run along M or N, and those of the other along one contracted mode at most."""
        return self.has_units and len(self.leads) < 2 and self.majors != ("k", "k")

    def holds(self, groups: Warpgroups, n: int, box_k: Box) -> bool:
        """Whether registers hold the products, and the fragments on their way."""
        transposes = self.majors[1] == "mn"
        needed, there = tf32_registers(groups.mma_m, n, box_k.size // self.atom.k, transposes)
        widest = WIDEST_TRANSPOSED if transposes else self.atom.most_n
        return n <= widest and groups.takes(n) and needed <= there

    def boxes_of_k(self) -> Sequence[Box]:
        """The boxes of K that are tried."""
        return self.best_of_depths(self.patient, 1)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaTf32]:
        """All stages that shared memory may hold beside those of B transposed."""
        a, b = by_map(a, b)
        for count, least in self.tried.stages if b.major == "mn" else ((0, 2),):
            for stages in range(MOST_STAGES, least - 1, -1):
                yield WgmmaTf32(a, b, tile.warpgroups.mma_m, stages, count)

    def words(self, tile: WgmmaTile) -> str:
        """Where operands go."""
        return "A in registers" + (", B transposed" if self.majors[1] == "mn" else "")


class DmmaTmaSearch(HopperSearch):
    """Tiles of float64 and complex128 on tensor cores, with both operands by tensor map, in either major."""

    mainloop, tried = DMMA, records.DMMA

    def holds(self, groups: Warpgroups, n: int, box_k: Box) -> bool:
        """Whether registers hold the products; along two contracted modes complex numbers need more places."""
        needed, there = dmma_registers(groups.mma_m, n, self.parts)
        return there - needed >= (PLACES if len(self.leads) > 1 and self.parts > 1 else 0)

    def widths(self) -> list[int]:
        """Columns of a tile worth trying; of complex numbers those for whose sums there are registers."""
        extent = self.plan.extent_n
        known = self.tried.widths if self.parts == 1 else self.tried.complex_widths
        return sorted({up(extent, 8), *(n for n in known if n < extent)}, reverse=True)

    def boxes_of_k(self) -> Sequence[Box]:
        """The boxes of K that are tried."""
        extents = self.extents_k
        if len(self.leads) < 2:
            return self.best_of_depths(True, 2)
        a, b = self.leads  # rows of 64 bytes or 32
        cuts = [x for x in self.tried.two_leads if x[0] < 2 * extents[a] and x[1] < 2 * extents[b]]
        cuts = cuts if self.parts == 1 else [LEADS_COMPLEX]
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

    def words(self, tile: WgmmaTile) -> str:
        """What is multiplied."""
        return f"{self.plan.contraction.dtype} by tensor map"
