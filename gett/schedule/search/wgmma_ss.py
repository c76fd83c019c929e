"""Tiles of `WgmmaSS`, with both operands by tensor map: what stays or is shared, and blocks that exchange halves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.hopper_units import SS
from gett.schedule.search import tried as records
from gett.schedule.search.base import Later
from gett.schedule.search.hopper import HopperSearch, Loader, Variants, by_map
from gett.schedule.search.k_boxes import k_boxes, residue_boxes
from gett.schedule.search.stationary import Sides, may_stay, shared_operands, with_stationary
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.hopper_needs import MOST_STAGES, MOST_STAGES_OF_ONE, up
from gett.schedule.spec.loader import Stationary
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.schedule import PersistentPanel, Schedule, TileScheduler
from gett.schedule.tile.wgmma_tile import Warpgroups, WgmmaTile, store_tiles
from layouts.box import Box


class WgmmaSSSearch(HopperSearch):
    """One assignment of roles to A and B."""

    mainloop, tried = SS, records.SS
    keeps = True
    shares = True

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.shared = shared_operands(self.plan)
        self.filled: dict[tuple[int, int], bool] = {}

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Every combination of tile and boxes."""
        plan = self.plan
        if not self.has_units or len(self.leads) > 1:  # the operands' rows run along different contracted modes
            return
        if not set(self.majors) <= set(self.atom.majors):
            return
        widths_n = widths(plan.extent_n)
        blocks = ((A, [groups.rows for groups in self.tried.groups]), (B, widths_n))
        best, residues, shallow = self.boxes_k()
        all_k = [*best, *residues, *shallow]
        if not all(self.movable(t, self.sides(t, of), all_k) for t, of in blocks):
            return
        for groups in self.tried.groups:
            if groups.rows >= 2 * max(64, plan.extent_m) and groups.rows > 64:
                continue
            # Only the tallest tiles leave no room for deeper stages.
            boxes_k = all_k if groups.mma_m == 8 else [*best, *residues]
            shapes = [(groups, n) for n in widths_n if groups.takes(n)]
            for _, n in shapes:
                for tile in (tile for box_k in all_k for tile in self.store_tiles(groups, n, box_k)):
                    yield from (tile, *self.stationary(tile))
            yield from self.shapes(shapes, boxes_k, self.with_variants)

    def of_boxes(
        self, groups: Warpgroups, n: int, boxes_k: Sequence[Box], variants: Variants = lambda tile: (tile,)
    ) -> Iterator[Later[WgmmaTile]]:
        """The tiles of a shape's boxes of M and N with each box of K.

        Boxes of K that zeros fill up make as many products as others of their depth and copy no rows of padding. Where
        one of them holds all of K, no other is needed.
        """
        residues = [x for x in boxes_k if x.size % self.atom.k]
        if residues and self.both_movable(groups.rows, n, residues):
            depths = {up(x.size, self.atom.k) for x in residues}
            whole = residues[0].tiles == 1
            boxes_k = [x for x in boxes_k if x in residues or not (whole or x.size in depths)]
        return super().of_boxes(groups, n, boxes_k, variants)

    def both_movable(self, rows: int, n: int, boxes_k: Sequence[Box]) -> bool:
        """Whether tensor maps move all sides of a shape."""
        sides = ((A, rows), (B, n))
        for key in sides:
            if key not in self.filled:
                self.filled[key] = all(self.movable(key[0], (side,), boxes_k) for side in self.sides(key[0], key[1:]))
        return all(self.filled[key] for key in sides)

    def with_variants(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """A tile, the same with what stays, and where blocks exchange halves."""
        yield from (tile, *self.stationary(tile), *self.exchanging(tile))

    def boxes_k(self) -> tuple[list[Box], list[Box], list[Box]]:
        """Boxes of K: the deep ones, those that zeros fill up to whole instructions, the shallow ones."""
        extents, lead = self.extents_k, next(iter(self.leads), None)
        patient, leads = not self.hurried(self.least_tiles), self.of_step(self.tried.leads)
        depths = self.of_step(self.tried.depths)
        deep, shallow = k_boxes(extents, lead, self.size, self.atom.k, patient, depths, leads)
        residues = residue_boxes(extents, lead, self.size, self.atom.k)
        if self.size_d > self.size:  # a tile of D takes the room of deep stages
            thin = k_boxes(extents, lead, self.size, self.atom.k, False, (2 * self.atom.k,), leads)[0]
            deep += [b for b in thin if b not in deep]
        return deep, residues, shallow

    def exchanging(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile, where two blocks exchange halves of it."""
        if tile.warpgroups.ping_pong or self.plan.contraction.c is not None or tile.k.tiles < 2:
            return
        if self.one_tile(tile, (2, 1)) or self.one_tile(tile, (1, 2)):
            found = self.cost.exchanged(tile)
            if found is not None and self.one_tile(tile, found.cluster):
                yield replace(tile, cluster=found.cluster, exchange=True)

    def store_tiles(self, groups: Warpgroups, n: int, box_k: Box) -> Iterator[WgmmaTile]:
        """Tiles of D that several MMA tiles make."""
        if groups.mma_m < 4 or groups.ping_pong or n < self.plan.extent_n:
            return
        for n_side in self.boxes.boxes(B, n, self.mn_unit[B])[:1]:
            sizes = self.size, self.size_d
            for m_side, mma_tile in store_tiles(self.plan, groups.rows, n, self.mn_unit[A], sizes, self.facts):
                tile = WgmmaTile(
                    self.atom, groups, m_side, n_side, box_k, mma_tile=mma_tile, tma_source=self.tma_source
                )
                staging = self.cost.staging(tile)
                if staging.bulk:
                    yield tile

    def stay(self, sides: tuple[Sides, Sides], box_k: Box) -> Iterable[tuple[str, bool]]:
        """The operands that stay in tiles of any of these boxes, and whether for a block's one panel."""
        return may_stay(sides, box_k, self.shared, self.size, self.plan.extent_l, self.facts.sm_count)

    def stationary(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile with an operand that stays in shared memory."""
        return with_stationary(tile, self.shared, self.size, self.plan.extent_l, self.facts.sm_count)

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSS]:
        """All stages that shared memory may hold."""
        groups, most = tile.warpgroups, MOST_STAGES_OF_ONE if tile.stationary else MOST_STAGES
        a, b = by_map(a, b)
        kept_a, kept_b = (Stationary(x, tile.k.tiles) if tile.stationary == n else x for n, x in (("a", a), ("b", b)))
        counts = range(most, 1, -1)
        return (WgmmaSS(kept_a, kept_b, groups.count, groups.mma_m, groups.ping_pong, count) for count in counts)

    def made(
        self,
        tile: WgmmaTile,
        loads: tuple[Loader, Loader],
        epilogue: Epilogue,
        split: tuple[int, int],
        order: TileScheduler,
    ) -> Iterable[Schedule]:
        """The schedule with as many stages as fit; none where fewer than two do, or where what stays costs stages."""
        a, b = loads
        plain = self.fitted(tile, self.loops(replace(tile, stationary=""), a, b), epilogue, split, order)
        if tile.stationary:
            found = self.fitted(tile, self.loops(tile, a, b), epilogue, split, order)
            if found is None or (tile.panel != "one" and plain is not None and _stages(found) < _stages(plain)):
                return ()
            under_way = found.hopper.stages * found.smem.stage
            return () if tile.panel == "one" and under_way < records.STAYING.under_way else (found,)
        # Where a block makes one tile, D may be staged where the stages were. C must have a place while they are read.
        single = self.one_tile(tile, tile.cluster) and tile.mma_tile is None and not tile.warpgroups.ping_pong
        if epilogue.store.tma is not None and epilogue.source is None and single:
            reused = replace(epilogue, store=replace(epilogue.store.tma, reuse_mainloop_smem=True))
            reusing = self.fitted(tile, self.loops(tile, a, b), reused, split, order)
            if reusing is not None and _stages(plain) < min(reusing.hopper.stages, tile.k.tiles):
                return (reusing,)
        return () if plain is None or tile.exchange else (plain,)

    def scheduler(self, tile: WgmmaTile, estimate: Estimate, split: int) -> TileScheduler:
        """Which tiles a block makes."""
        if not tile.panel:
            return super().scheduler(tile, estimate, split)
        group_m = 1 if tile.stationary == "a" else tile.m.box.tiles
        return PersistentPanel(self.facts.sm_count, tile.stationary, tile.panel == "one", group_m)

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        text = f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep, operands by tensor map"
        text += ", ping-pong" if tile.warpgroups.ping_pong else ""
        text += f", shared by {tile.blocks} blocks" if tile.blocks > 1 else ""
        text += ", which exchange halves of D's" if tile.exchange else ""
        text += f", {tile.stationary.upper()} stationary" if tile.stationary else ""
        text += {"": "", "one": " for the block's panel", "each": " for a panel"}[tile.panel]
        return text + (f", {tile.mma_tiles} of them a tile of D" if tile.mma_tile is not None else "")


def _stages(made: Schedule | None) -> int:
    return made.hopper.stages if made is not None else 1
