"""Schedules of wgmma with planes: operands by tensor map, one of them split in shared memory, one in registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gett.ir.gemm import A, B
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.wgmma_split import WgmmaSplitCost
from gett.schedule.mainloops.wgmma_split import SUMS_OF_A_ROW, TWO_LEADS, least_row, widest_split
from gett.schedule.search.k_boxes import LEADS, k_boxes
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.search.wgmma_ss import WgmmaSSSearch
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts, planes
from gett.schedule.spec.loader import CpAsyncTile, Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import TileScheduler
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK

GROUPS = Warpgroups(WgmmaSplit.warpgroups, WgmmaSplit.mma_m, WgmmaSplit.ping_pong)
DEPTHS = (16, 32)
SHALLOW, TWO_TILES = 1.07, 1.3  # factors on k-tiles of one instruction, and where two of them are all
SHORT = 4  # k of the shortest rows
STAGES = ((3, 4), (2, 3), (3, 2), (2, 2))  # k-tiles of planes, and the fewest of operands beside them


class WgmmaSplitSearch(WgmmaSSSearch):
    """Tiles of one shape of warpgroups; nothing stays, and blocks share nothing."""

    Cost = WgmmaSplitCost
    runs = False

    def choices(self) -> Iterator[WgmmaTile]:
        """Every combination of columns and boxes."""
        plan, boxes = self.plan, self.boxes
        if not self.has_units:
            return
        for box_k in self.boxes_of_k():
            for n in (n for n in widths(plan.extent_n) if n <= SUMS_OF_A_ROW // parts(plan)):
                for m_side in boxes.boxes(A, GROUPS.rows, self.mn_unit[A]):
                    for n_side in boxes.boxes(B, n, self.mn_unit[B]):
                        yield WgmmaTile(self.atom, GROUPS, m_side, n_side, box_k, tma_source=self.tma_source)

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried."""
        extents = tuple(s.extent for s in self.plan.k)
        if len(self.leads) < 2:
            lead = next(iter(self.leads), None)
            short = self.k_unit[B] is not None and self.k_unit[A] is None
            # Whole short modes: rows of both operands follow each other, and are copied as one.
            short |= lead is not None and extents[lead] * self.size <= CHUNK
            cuts = (*LEADS, SHORT) if short else LEADS
            made = planes(self.plan)
            assert made is not None
            depths = [x for x in DEPTHS if x >= 16 * made.sum_steps(parts(self.plan), self.plan.extent_k)]
            found, shallow = k_boxes(extents, lead, self.size, self.atom.k, True, depths, cuts)
            return dict.fromkeys((*found, *shallow))
        # B's rows are the shorter ones. Tiles go along them first, while what lies beside them in memory is in L2.
        a, b = self.leads
        cut_a, cut_b = TWO_LEADS
        return [Box.of_cuts(extents, {b: cut_b, a: cut_a})]

    def clusters(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """Blocks share nothing."""
        return iter(())

    def deepest(
        self,
        tile: WgmmaTile,
        loads: tuple[Tma | CpAsyncTile, Tma | CpAsyncTile],
        epilogue: Epilogue,
        split: tuple[int, int],
        order: TileScheduler,
    ) -> Schedule | None:
        """The schedule with as many stages as fit beside as many k-tiles of planes; None where too few do."""
        a, b = loads
        if tile.shape[1] > widest_split(self.plan, a, b, tile.shape[2]):
            return None
        if any(x.swizzle_bytes < least_row(x, name, self.size) for x, name in ((a, "a"), (b, "b"))):
            return None

        def loops() -> Iterable[WgmmaSplit]:
            for count, least in STAGES:
                yield from (WgmmaSplit(a, b, stages, count) for stages in range(MOST_STAGES, least - 1, -1))

        return self.fitted(tile, loops(), epilogue, split, order)

    def depth(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Products take so long that two stages are enough; deep k-tiles wait less often."""
        if tile.k.size > self.atom.k:
            return 1.0
        return TWO_TILES if self.atom.k < self.plan.extent_k <= max(DEPTHS) else SHALLOW

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        made = planes(self.plan)
        assert made is not None
        return f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep, {len(made.products)} products of planes"
