"""Schedules of wgmma on TF32 with A in registers: for operands whose rows do not both run along K."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gett.schedule.cost.hopper_units import TF32
from gett.schedule.mainloops.wgmma_tf32 import WIDEST_TRANSPOSED, tf32_registers
from gett.schedule.search import tried as records
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader, by_map
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.spec.hopper_needs import MOST_STAGES
from gett.schedule.spec.mainloop import WgmmaTf32
from gett.schedule.tile.wgmma_tile import WgmmaTile


class WgmmaTf32Search(HopperSearch):
    """Tiles of two warpgroups; nothing stays."""

    mainloop, tried = TF32, records.TF32
    shares = True

    def choices(self) -> Iterator[Later[WgmmaTile]]:
        """Every combination of rows, columns and boxes."""
        if not self.has_units or len(self.leads) > 1 or self.majors == ("k", "k"):
            return
        transposes, all_k = self.majors[1] == "mn", self.best_of_depths(not self.hurried(self.least_tiles), 1)
        widest = WIDEST_TRANSPOSED if transposes else self.atom.most_n
        for groups in self.groups:
            for n in (n for n in widths(self.plan.extent_n) if n <= widest and groups.takes(n)):
                registers = (tf32_registers(groups.mma_m, n, x.size // self.atom.k, transposes) for x in all_k)
                boxes_k = [x for x, (needed, there) in zip(all_k, registers, strict=True) if needed <= there]
                # What it costs to transpose is told by a box of N: shapes have no bound.
                yield from self.of_boxes(groups, n, boxes_k)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaTf32]:
        """All stages that shared memory may hold beside those of B transposed."""
        a, b = by_map(a, b)
        for count, least in self.tried.stages if b.major == "mn" else ((0, 2),):
            for stages in range(MOST_STAGES, least - 1, -1):
                yield WgmmaTf32(a, b, tile.warpgroups.mma_m, stages, count)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        text = f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep, A in registers"
        text += f", shared by {tile.blocks} blocks" if tile.blocks > 1 else ""
        return text + (", B transposed" if self.majors[1] == "mn" else "")
