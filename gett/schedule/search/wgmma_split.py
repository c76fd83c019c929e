"""Schedules of wgmma with planes: operands by tensor map, one of them split in shared memory, one in registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.cost.hopper_units import SPLIT
from gett.schedule.mainloops.wgmma_split import SUMS_OF_A_ROW, TWO_LEADS, least_row, widest_split
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.search.k_boxes import LEADS, k_boxes
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts, planes
from gett.schedule.spec.loader import Gather
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK

GROUPS = Warpgroups(WgmmaSplit.warpgroups, WgmmaSplit.mma_m, WgmmaSplit.ping_pong)
DEPTHS = (16, 32)
SHORT = 4  # k of the shortest rows
STAGES = ((3, 4), (2, 3), (3, 2), (2, 2))  # k-tiles of planes, and the fewest of operands beside them


class WgmmaSplitSearch(HopperSearch):
    """Tiles of one shape of warpgroups; nothing stays, and blocks share nothing."""

    mainloop = SPLIT
    runs = False

    def choices(self) -> Iterator[Later[WgmmaTile]]:
        """Every combination of columns and boxes."""
        if not self.has_units:
            return
        shapes = ((GROUPS, n) for n in widths(self.plan.extent_n) if n <= SUMS_OF_A_ROW // parts(self.plan))
        yield from self.shapes(shapes, [*self.boxes_of_k()])

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried."""
        extents = self.extents_k
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

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSplit]:
        """All stages beside as many k-tiles of planes."""
        return split_loops(self.plan, tile, a, b)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        return split_reason(self.plan, tile)


def split_loops(plan: GemmPlan, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSplit]:
    """The loops of a tile, those first that have more under way; none where registers or rows forbid them."""
    assert not isinstance(a, Gather)
    assert not isinstance(b, Gather)
    if tile.shape[1] > widest_split(plan, a, b, tile.shape[2]):
        return
    size = itemsize(plan.contraction.dtype)
    if any(x.swizzle_bytes < least_row(x, name, size) for x, name in ((a, "a"), (b, "b"))):
        return
    for count, least in STAGES:
        yield from (WgmmaSplit(a, b, stages, count) for stages in range(MOST_STAGES, least - 1, -1))


def split_reason(plan: GemmPlan, tile: WgmmaTile) -> str:
    """Why, in a line."""
    (m, n, _), made = tile.shape, planes(plan)
    assert made is not None
    tiles = tile.m.box.tiles * tile.n.box.tiles * plan.extent_l
    return f"{tiles} tiles of {m} x {n}, {tile.k.size} deep, {len(made.products)} products of planes"
