"""Schedules of wgmma on TF32 with A in registers: for operands whose rows do not both run along K."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gett.schedule.cost.hopper_units import TF32
from gett.schedule.mainloops.wgmma_tf32 import WIDEST_TRANSPOSED, tf32_registers
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.search.k_boxes import k_boxes
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.spec.hopper_needs import MOST_STAGES, up
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaTf32
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile
from layouts.box import Box

GROUPS = tuple(Warpgroups(WgmmaTf32.warpgroups, mma_m, WgmmaTf32.ping_pong) for mma_m in (1, 2, 4))
STEPS = (4, 3, 2, 6, 8)  # of a k-tile, two at least
STAGES = ((2, 3), (3, 4), (2, 2))  # k-tiles of B transposed, and the fewest of operands beside them


class WgmmaTf32Search(HopperSearch):
    """Tiles of two warpgroups; nothing stays."""

    mainloop = TF32
    shares = True

    def choices(self) -> Iterator[Later[WgmmaTile]]:
        """Every combination of rows, columns and boxes."""
        plan = self.plan
        if not self.has_units or len(self.leads) > 1 or self.majors == ("k", "k"):
            return
        transposes = self.majors[1] == "mn"
        widest = WIDEST_TRANSPOSED if transposes else self.atom.most_n
        for groups in GROUPS:
            if groups.mma_m > 1 and groups.rows >= 2 * plan.extent_m:
                continue
            for n in (n for n in widths(plan.extent_n) if n <= widest and groups.takes(n)):
                registers = (
                    (x, tf32_registers(groups.mma_m, n, x.size // self.atom.k, transposes)) for x in self.boxes_of_k()
                )
                boxes_k = [x for x, (needed, there) in registers if needed <= there]
                yield from self.shapes(((groups, n),), boxes_k) if boxes_k else ()

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried: the best of every depth, since what it costs to transpose depends on it.

        A short K is one.
        """
        extents, lead = self.extents_k, next(iter(self.leads), None)
        depths, patient = [steps * self.atom.k for steps in STEPS], not self.hurried(self.least_tiles)
        found = [k_boxes(extents, lead, self.size, self.atom.k, patient, (deep,))[0][:1] for deep in depths]
        long = [m for m, extent in enumerate(extents) if extent > 1]
        if len(long) == 1 and depths[0] // 2 <= (whole := up(extents[long[0]], self.atom.k)) <= max(depths):
            found.append([Box.of_cuts(extents, {long[0]: whole})])
        return dict.fromkeys(box for boxes in found for box in boxes)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaTf32]:
        """All stages that shared memory may hold beside those of B transposed."""
        assert isinstance(a, Tma)
        assert isinstance(b, Tma)
        for count, least in STAGES if b.major == "mn" else ((0, 2),):
            for stages in range(MOST_STAGES, least - 1, -1):
                yield WgmmaTf32(a, b, tile.warpgroups.mma_m, stages, count)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        text = f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep, A in registers"
        text += f", shared by {tile.blocks} blocks" if tile.blocks > 1 else ""
        return text + (", B transposed" if self.majors[1] == "mn" else "")
