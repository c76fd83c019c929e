"""Schedules of wgmma with planes: operands by tensor map, one of them split in shared memory, one in registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.cost.hopper_units import SPLIT
from gett.schedule.mainloops.wgmma_split import SUMS_OF_A_ROW, TWO_LEADS, least_row, widest_split
from gett.schedule.search import tried as records
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.search.k_boxes import k_boxes
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.spec.hopper_needs import MOST_STAGES, parts, planes
from gett.schedule.spec.loader import Gather
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK


class WgmmaSplitSearch(HopperSearch):
    """Tiles of one shape of warpgroups; nothing stays, and blocks share nothing."""

    mainloop, tried = SPLIT, records.SPLIT
    runs = False

    def choices(self) -> Iterator[Later[WgmmaTile]]:
        """Every combination of columns and boxes."""
        if not self.has_units:
            return
        (groups,), most = self.tried.groups, SUMS_OF_A_ROW // parts(self.plan)
        shapes = ((groups, n) for n in widths(self.plan.extent_n) if n <= most)
        yield from self.shapes(shapes, [*self.boxes_of_k()])

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried."""
        extents = self.extents_k
        if len(self.leads) < 2:
            lead = next(iter(self.leads), None)
            short = self.k_unit[B] is not None and self.k_unit[A] is None
            # Whole short modes: rows of both operands follow each other, and are copied as one.
            short |= lead is not None and extents[lead] * self.size <= CHUNK
            leads = self.tried.leads if short else self.tried.leads[:-1]
            return dict.fromkeys(split_boxes(self, lead, leads))
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


def split_depths(search: HopperSearch) -> list[int]:
    """K of a k-tile: as many as sums may be long at least."""
    plan, made = search.plan, planes(search.plan)
    assert made is not None
    return [x for x in search.tried.depths if x >= 16 * made.sum_steps(parts(plan), plan.extent_k)]


def split_boxes(search: HopperSearch, lead: int | None, leads: Sequence[int]) -> list[Box]:
    """Boxes of K of whole k-tiles, the best first."""
    depths = split_depths(search)
    found, shallow = k_boxes(search.extents_k, lead, search.size, search.atom.k, True, depths, leads)
    return [*found, *shallow]


def split_loops(plan: GemmPlan, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSplit]:
    """The loops of a tile, those first that have more under way; none where registers or rows forbid them."""
    assert not isinstance(a, Gather)
    assert not isinstance(b, Gather)
    if tile.shape[1] > widest_split(plan, a, b, tile.shape[2]):
        return
    size = itemsize(plan.contraction.dtype)
    if any(x.swizzle_bytes < least_row(x, name, size) for x, name in ((a, "a"), (b, "b"))):
        return
    for count, least in records.SPLIT.stages:
        yield from (WgmmaSplit(a, b, stages, count) for stages in range(MOST_STAGES, least - 1, -1))


def split_reason(plan: GemmPlan, tile: WgmmaTile) -> str:
    """Why, in a line."""
    (m, n, _), made = tile.shape, planes(plan)
    assert made is not None
    tiles = tile.m.box.tiles * tile.n.box.tiles * plan.extent_l
    return f"{tiles} tiles of {m} x {n}, {tile.k.size} deep, {len(made.products)} products of planes"
