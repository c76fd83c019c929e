"""Schedules of float64 and complex128 on Hopper's tensor cores with both operands by tensor map, in either major."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.dmma_tma import DmmaTmaCost
from gett.schedule.cost.estimate import Estimate
from gett.schedule.lower import split_modes
from gett.schedule.mainloops.dmma_tma import LEADS_COMPLEX, dmma_registers
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.search.k_boxes import k_boxes
from gett.schedule.spec.epilogue import Epilogue, TmaStore, VectorStore
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts, up
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import DmmaTma
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.rates import L2_LINE

GROUPS = tuple(Warpgroups(DmmaTma.warpgroups, mma_m, DmmaTma.ping_pong) for mma_m in (1, 2, 4))
DEPTHS = (16, 32)  # of a k-tile of float64; others have as many bytes
WHOLE = 48  # K up to which a k-tile has all of it
WIDTHS = (160, 152, 144, 136, 128, 120, 112, 104, 96, 80, 64, 48, 40, 32, 24, 16, 8)
LEADS = (32, 16, 8, 4)  # cuts of a mode along which an operand's rows run
NARROW = tuple(range(64, 0, -8))  # columns for whose sums of complex numbers there are registers
TWO_LEADS = ((8, 4), (4, 8), (4, 4), (8, 8))  # k of A's and of B's rows where they run along two modes
CROWDED = 1.015  # factor on the widest of them, for which there are just enough
PLACES = 12  # registers of a thread for more places of complex numbers, along two contracted modes
TALL = 0.01  # share of the time for each further block of rows
SHORT_ROWS = 0.012  # share of the time for each operand whose rows along M or N are a line of L2, or less
FEW_LOADS = 1.02  # factor on tiles with two stages, and on those staged in them
THREE_STAGES, THREE_STAGES_SPLIT, MANY = 1.03, 1.01, 8  # with three, of 16 k in sums of many k-tiles; of a slice
DEEP_BYTES = 256  # of a row of k-tiles that are deep
DEEP_SHARE, DEEP_SHARE_COMPLEX = 0.99, 0.98  # factors on those, where there are enough stages


class DmmaTmaSearch(HopperSearch):
    """Tiles of two warpgroups; nothing stays."""

    Cost, gain = DmmaTmaCost, 0.98
    shares = True
    cost: DmmaTmaCost

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.boxes.few = parts(plan) > 1
        self.mapped: set[tuple[Box, Box]] = set()

    def estimate(self, choice: WgmmaTile) -> Estimate:
        """Expected time of a tile; where D is large, sums are short, and whether a tensor map stores it counts."""
        staging, boxes = self.cost.staging(choice), (choice.m.box, choice.n.box)
        if self.boxes.few and staging.bulk and boxes not in self.mapped:
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
        sides_m = self.sides(A, (groups.rows for groups in GROUPS))
        if not self.movable(A, sides_m, all_k) or not self.movable(B, self.sides(B, self.widths()), all_k):
            return
        for box_k in all_k:
            for groups in GROUPS:
                if groups.mma_m > 1 and groups.rows >= 2 * plan.extent_m:
                    continue
                for n in self.widths():
                    needed, there = dmma_registers(groups.mma_m, n, parts(plan))
                    if needed + places > there:
                        continue
                    yield self.later(groups, n, box_k)

    def widths(self) -> list[int]:
        """Columns of a tile worth trying: waves of tiles are few, so widths lie close together."""
        extent, known = self.plan.extent_n, WIDTHS if parts(self.plan) == 1 else NARROW
        return sorted({up(extent, 8), *(n for n in known if n < extent)}, reverse=True)

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried: the best of every depth. A short K is one."""
        extents, lead, step = self.extents_k, next(iter(self.leads), None), self.atom.k
        count = parts(self.plan)
        if len(self.leads) > 1:  # rows of 64 bytes or 32
            a, b = self.leads
            cuts = [cuts for cuts in TWO_LEADS if cuts[0] < 2 * extents[a] and cuts[1] < 2 * extents[b]]
            cuts = cuts if count == 1 else [LEADS_COMPLEX]
            return [Box.of_cuts(extents, {b: cut_b, a: cut_a}) for cut_a, cut_b in cuts]
        depths, leads = ([x // count for x in of_float64] for of_float64 in (DEPTHS, LEADS))
        found = []
        for deep in depths:
            best = k_boxes(extents, lead, self.size, step, True, (deep,), leads)[0]
            # Shorter rows with less padding behind the ends of modes: the cost model says which is better.
            found.append([*best[:1], *(b for b in best[1:2] if b.tiles < best[0].tiles)])
        long = [m for m, extent in enumerate(extents) if extent > 1]
        if len(long) == 1 and (whole := up(extents[long[0]], step)) <= WHOLE // count:
            found.append([Box.of_cuts(extents, {long[0]: whole})])
        return dict.fromkeys(box for boxes in found for box in boxes)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[DmmaTma]:
        """All stages that shared memory may hold."""
        assert isinstance(a, Tma)
        assert isinstance(b, Tma)
        return (DmmaTma(a, b, tile.warpgroups.mma_m, stages) for stages in range(MOST_STAGES, 1, -1))

    def epilogue(self, plan: GemmPlan, tile: WgmmaTile, split: int) -> Epilogue | None:
        """How D is stored: a tile may lie where the stages were."""
        found = super().epilogue(plan, tile, split)
        if found is None or not isinstance(found.store, TmaStore) or not self.cost.stages_are_reused(tile):
            return found
        return replace(found, store=replace(found.store, reuse_mainloop_smem=True))

    def factor(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """What few stages cost, and what deep k-tiles spare of the waits at their barriers.

        A k-tile of complex numbers takes so long that two are under way long before they are needed.
        """
        staging = self.cost.staging(tile)
        refused = staging.bulk and made.split_k == 1 and isinstance(made.epilogue.store, VectorStore)
        slower = self.cost.by_vectors(tile) if refused else 1.0
        store, stages, doubles = made.epilogue.store, made.hopper.stages, parts(self.plan) == 1
        deep = stages >= 3 and tile.shape[2] * self.size >= DEEP_BYTES
        share = (DEEP_SHARE if doubles else DEEP_SHARE_COMPLEX) if deep else 1.0
        share *= 1.0 if doubles or tile.shape[1] < NARROW[0] else CROWDED
        few = 1.0
        if isinstance(store, TmaStore) and store.reuse_mainloop_smem:
            few = FEW_LOADS if doubles else 1.0
        elif stages == 2:
            few = FEW_LOADS
        elif stages == 3 and doubles and not deep and tile.k.tiles >= MANY:
            few = THREE_STAGES
        elif stages == 3 and made.split_k > 1:
            few = THREE_STAGES_SPLIT
        return slower * share * few * self.preference(tile, made)

    def preference(self, tile: WgmmaTile, made: Schedule) -> float:
        """Of equals also: one block of rows a warp; rows along M or N longer than a line.

        Of rows along K the next k-tile has the rest.
        """
        sides = [(t, side) for t, side in ((A, tile.a), (B, tile.n)) if self.k_unit[t] is None]
        short = sum(self.cost.run(t, side, tile.k, self.plan.k)[0] <= L2_LINE for t, side in sides)
        return self.cost.preference(tile, made, self.swap_ab) + SHORT_ROWS * short + TALL * (tile.warpgroups.mma_m - 1)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        return f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep, {self.plan.contraction.dtype} by tensor map"
