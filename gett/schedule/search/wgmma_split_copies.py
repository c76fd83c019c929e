"""Schedules of wgmma with planes where tensor maps do not move both operands: `cp.async` does.

Any strides and any alignment of elements will do, and boxes of as many modes as there are. An operand that a tensor map
moves under the chosen boxes still goes by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.hopper_units import SPLIT_COPIES
from gett.schedule.mainloops.wgmma_split import SUMS_OF_A_ROW, least_row, widest_split
from gett.schedule.search import tried as records
from gett.schedule.search.boxing import Weight, cut_group
from gett.schedule.search.hopper import HopperSearch, Loader
from gett.schedule.search.mixed_loaders import addressable, mixed_tiles
from gett.schedule.search.tma import OperandMaps
from gett.schedule.search.wgmma_split import split_boxes, split_depths, split_loops, split_reason
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import parts, planes, up
from gett.schedule.spec.loader import CpAsyncTile, Tma
from gett.schedule.spec.mainloop import WgmmaSplit
from gett.schedule.spec.schedule import Schedule, TileScheduler
from gett.schedule.spec.vectors import whole_vectors
from gett.schedule.tile.wgmma_tile import OperandTiling, WgmmaTile
from layouts.box import Box
from layouts.swizzle import CHUNK, swizzle_dividing

WIDEST_SLICES = 80  # real sums of a row of a tile of complex numbers that leave registers where K is in slices


class WgmmaSplitCopySearch(HopperSearch):
    """The boxes of one assignment of roles to A and B."""

    mainloop, tried = SPLIT_COPIES, records.SPLIT_COPIES
    runs = False

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.loaders: dict[tuple[int, Box, Box], Tma | CpAsyncTile] = {}
        self.cuts: dict[tuple[int, int], list[Box]] = {}

    def choices(self) -> Iterator[WgmmaTile]:
        """Every combination of columns and boxes in which a tensor map does not move both operands."""
        plan, made = self.plan, planes(self.plan)
        if made is None or made.scaled or not addressable(plan):
            return
        groups, columns = self.tried.groups[0], up(plan.extent_n, 8)
        most = min(SUMS_OF_A_ROW // parts(plan), columns)
        widths = dict.fromkeys(n for n in (*self.tried.widths, columns) if n <= most)
        for box_k in self.boxes_of_k():
            for n in widths:
                sides = self.side_boxes(A, groups.rows), self.side_boxes(B, n)
                for tile, a, b in mixed_tiles(self, groups, *sides, box_k, self.loader):
                    if n <= widest_split(plan, a, b, box_k.size):
                        yield tile

    def side_boxes(self, tensor: int, block: int) -> list[Box]:
        """Boxes of M or N; of an operand whose unit stride is there, that mode leads."""
        if (tensor, block) not in self.cuts:
            boxes, modes = self.boxes, self.boxes.side(tensor)
            unit = self.mn_unit[tensor] if self.k_unit[tensor] is None else None
            extents = [s.extent for s in modes]
            self.cuts[tensor, block] = cut_group(
                boxes.memory, extents, block, boxes.weights(tensor), unit, 2 * boxes.compute, False
            )
        return self.cuts[tensor, block]

    def boxes_of_k(self) -> Iterable[Box]:
        """The boxes of K that are tried, all of them whole k-tiles."""
        plan = self.plan
        extents, depths, found = self.extents_k, split_depths(self), list[Box]()
        if len(self.leads) > 1:
            a, b = self.leads
            found += [Box.of_cuts(extents, {b: x, a: y}) for y, x in self.tried.two_leads if x <= up(extents[b], 4)]
        lead = next(iter(self.leads), None)
        found += split_boxes(self, lead, self.tried.leads)
        # Many short modes: those that are nearest in memory.
        weights = [Weight(tuple(s.strides[t] for s in plan.k), self.size, self.boxes.time[t]) for t in (A, B)]
        for deep in depths:
            near = cut_group(self.boxes.memory, extents, deep, weights, lead, self.boxes.compute, False)
            found += [x for x in near if x.size == deep and not x.flattens][:2]
        return dict.fromkeys(x for x in found if x.size in depths)

    def loader(self, tensor: int, box: Box, box_k: Box) -> Tma | CpAsyncTile:
        """By tensor map where one can, of boxes that do not flatten; else by `cp.async`."""
        key = (tensor, box, box_k)
        if key not in self.loaders:
            found = None if box.flattens else self.by_map(tensor, box, box_k)
            self.loaders[key] = found or self.copies(tensor, box, box_k)
        return self.loaders[key]

    def by_map(self, tensor: int, box: Box, box_k: Box) -> Tma | None:
        """The tensor map, None where there is none that leaves K in the order of the box."""
        unit = self.k_unit[tensor]
        if unit is None and self.mn_unit[tensor] is None:
            return None
        if unit is not None and box_k.led_by(unit) != box_k:
            return None
        side = OperandTiling(box, self.boxes.side(tensor))
        found = OperandMaps(self.plan, tensor, self.size).load(side, box_k)
        if found is None or found.swizzle_bytes < least_row(found, "ab"[tensor], self.size):
            return None
        return found

    def copies(self, tensor: int, box: Box, box_k: Box) -> CpAsyncTile:
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

    def loads(self, plan: GemmPlan, tile: WgmmaTile) -> tuple[Loader, Loader] | None:
        """How the operands come."""
        return self.loader(A, tile.m.box, tile.k), self.loader(B, tile.n.box, tile.k)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSplit]:
        """All stages beside as many k-tiles of planes."""
        return split_loops(self.plan, tile, a, b)

    def made(
        self,
        tile: WgmmaTile,
        loads: tuple[Loader, Loader],
        epilogue: Epilogue,
        split: tuple[int, int],
        order: TileScheduler,
    ) -> Iterable[Schedule]:
        """The schedule with as much under way as fits; none of slices whose sums registers do not hold."""
        if split[0] > 1 and parts(self.plan) > 1 and tile.shape[1] * parts(self.plan) > WIDEST_SLICES:
            return ()
        return super().made(tile, loads, epilogue, split, order)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        operands = "an operand" if 0 in tile.runs else "operands"
        return f"{split_reason(self.plan, tile)}, {operands} by cp.async"
