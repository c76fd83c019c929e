"""Schedules of wgmma with planes: one operand is split in shared memory, one in registers.

Both come by tensor map, or, where no map moves one, by `cp.async`: any strides and any alignment of elements will do
then, and boxes of as many modes as there are. An operand that a tensor map moves under the chosen boxes still goes by
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gett.ir.gemm import A, B
from gett.schedule.cost.hopper_units import SPLIT, SPLIT_COPIES
from gett.schedule.mainloops.wgmma_split import SUMS_OF_A_ROW, TWO_LEADS, least_row, vectors_spill, widest_split
from gett.schedule.search import tried as records
from gett.schedule.search.boxing import Weight, cut_group
from gett.schedule.search.hopper.boxes import k_boxes
from gett.schedule.search.hopper.mixed import MixedSearch
from gett.schedule.search.hopper.parts import Loader, Parts
from gett.schedule.search.hopper.search import HopperSearch
from gett.schedule.spec.hopper_needs import MOST_STAGES, planes, up
from gett.schedule.spec.loader import CpAsyncTile, Gather, Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.vectors import whole_vectors
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK, swizzle_dividing

WIDEST_SLICES = 80  # real sums of a row of a tile of complex numbers that leave registers where K is in slices


class WgmmaSplitSearch(HopperSearch):
    """Tiles of one shape of warpgroups; nothing stays, and blocks share nothing."""

    mainloop, tried = SPLIT, records.SPLIT

    def holds(self, groups: Warpgroups, n: int, box_k: Box) -> bool:
        """Whether registers hold a tile's sums."""
        return n <= SUMS_OF_A_ROW // self.parts

    def boxes_of_k(self) -> Sequence[Box]:
        """The boxes of K that are tried."""
        if len(self.leads) < 2:
            lead = next(iter(self.leads), None)
            short = self.k_unit[B] is not None and self.k_unit[A] is None
            # Whole short modes: rows of both operands follow each other, and are copied as one.
            short |= lead is not None and self.extents_k[lead] * self.size <= CHUNK
            leads = self.tried.leads if short else self.tried.leads[:-1]
            return [*dict.fromkeys(self.of_depths(lead, leads))]
        # B's rows are the shorter ones. Tiles go along them first, while what lies beside them in memory is in L2.
        a, b = self.leads
        cut_a, cut_b = TWO_LEADS
        return [Box.of_cuts(self.extents_k, {b: cut_b, a: cut_a})]

    @property
    def depths(self) -> list[int]:
        """K of a k-tile: as many as sums may be long at least."""
        plan, made = self.plan, planes(self.plan)
        assert made is not None
        return [x for x in self.tried.depths if x >= 16 * made.sum_steps(self.parts, plan.extent_k)]

    def of_depths(self, lead: int | None, leads: Sequence[int]) -> list[Box]:
        """Boxes of K of whole k-tiles, the best first."""
        return k_boxes(self.extents_k, lead, self.size, self.atom.k, True, self.depths, leads)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSplit]:
        """All stages beside as many k-tiles of planes; none where registers or rows forbid them."""
        assert not isinstance(a, Gather)
        assert not isinstance(b, Gather)
        if tile.shape[1] > widest_split(self.plan, a, b, tile.shape[2]):
            return
        if any(x.swizzle_bytes < least_row(x, name, self.size) for x, name in ((a, "a"), (b, "b"))):
            return
        for count, least in self.tried.stages:
            yield from (WgmmaSplit(a, b, stages, count) for stages in range(MOST_STAGES, least - 1, -1))

    def made(self, parts: Parts) -> Iterable[Schedule]:
        """The schedule with as much under way as fits; none whose sums leave no registers for D."""
        tile = parts.tile.shape
        if parts.slices == 1 and vectors_spill(self.plan, parts.a, parts.b, tile, parts.epilogue.store):
            return ()
        return super().made(parts)

    def words(self, tile: WgmmaTile) -> str:
        """How many products there are, and what threads bring."""
        made = planes(self.plan)
        assert made is not None
        by_threads = "" if not any(tile.runs) else f", {'an operand' if 0 in tile.runs else 'operands'} by cp.async"
        return f"{len(made.products)} products of planes{by_threads}"


class WgmmaSplitCopySearch(MixedSearch, WgmmaSplitSearch):
    """The same where tensor maps do not move both operands."""

    mainloop, tried = SPLIT_COPIES, records.SPLIT_COPIES

    def takes(self) -> bool:
        """Whether offsets reach all elements, and planes are not scaled."""
        made = planes(self.plan)
        return made is not None and not made.scaled and super().takes()

    def widths(self) -> list[int]:
        """Columns of a tile worth trying."""
        columns = up(self.plan.extent_n, 8)
        return [*dict.fromkeys(n for n in (*self.tried.widths, columns) if n <= columns)]

    def cut(self, tensor: int, block: int) -> list[Box]:
        """Boxes of M or N; of an operand whose unit stride is there, that mode leads."""
        boxes, extents = self.boxes, [s.extent for s in self.boxes.side(tensor)]
        unit = self.mn_unit[tensor] if self.k_unit[tensor] is None else None
        return cut_group(boxes.memory, extents, block, boxes.weights(tensor), unit, 2 * boxes.compute, False)

    def boxes_of_k(self) -> Sequence[Box]:
        """The boxes of K that are tried, all of them whole k-tiles."""
        plan, extents, found = self.plan, self.extents_k, list[Box]()
        if len(self.leads) > 1:
            a, b = self.leads
            found += [Box.of_cuts(extents, {b: x, a: y}) for y, x in self.tried.two_leads if x <= up(extents[b], 4)]
        lead = next(iter(self.leads), None)
        found += self.of_depths(lead, self.tried.leads)
        # Many short modes: those that are nearest in memory.
        weights = [Weight(tuple(s.strides[t] for s in plan.k), self.size, self.boxes.time[t]) for t in (A, B)]
        for deep in self.depths:
            near = cut_group(self.boxes.memory, extents, deep, weights, lead, self.boxes.compute, False)
            found += [x for x in near if x.size == deep and not x.flattens][:2]
        return [*dict.fromkeys(x for x in found if x.size in self.depths)]

    def by_map(self, tensor: int, side: OperandTiling, box_k: Box) -> Tma | None:
        """The tensor map, None where there is none that leaves K in the order of the box."""
        unit = self.k_unit[tensor]
        if (unit is None and self.mn_unit[tensor] is None) or (unit is not None and box_k.led_by(unit) != box_k):
            return None
        found = super().by_map(tensor, side, box_k)
        short = found is not None and found.swizzle_bytes < least_row(found, "ab"[tensor], self.size)
        return None if short else found

    def by_threads(self, tensor: int, box: Box, box_k: Box) -> CpAsyncTile:
        """The widest vectors along the rows of the tile."""
        plan, unit = self.plan, self.k_unit[tensor]
        along_k = unit is not None or self.mn_unit[tensor] is None
        group, inner = (plan.k, box_k) if along_k else (self.boxes.side(tensor), box)
        unit = unit if along_k else self.mn_unit[tensor]
        row = box_k.size if along_k else up(box.size, 8)
        operand, modes = (plan.a, plan.b)[tensor], (*plan.l, *self.boxes.side(tensor), *plan.k)
        assert operand is not None
        vector = CHUNK // self.size
        while vector > 1 and not whole_vectors(operand, tensor, modes, group, inner, unit, vector):
            vector //= 2
        return CpAsyncTile("k" if along_k else "mn", vector, swizzle_dividing(row * self.size))

    def made(self, parts: Parts) -> Iterable[Schedule]:
        """The schedule with as much under way as fits; none of slices whose sums registers do not hold."""
        if parts.slices > 1 and self.parts > 1 and parts.tile.shape[1] * self.parts > WIDEST_SLICES:
            return ()
        return super().made(parts)
