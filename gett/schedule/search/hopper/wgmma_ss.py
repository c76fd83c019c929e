"""Tiles of `WgmmaSS`, with both operands by tensor map: what stays or is shared, and blocks that exchange halves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.cost.hopper_bounds import Sides
from gett.schedule.cost.hopper_units import SS
from gett.schedule.mainloops.wgmma_ss import stationary_bytes
from gett.schedule.search import tried as records
from gett.schedule.search.base import Later
from gett.schedule.search.hopper.boxes import residue_boxes
from gett.schedule.search.hopper.parts import Loader, Parts, by_map
from gett.schedule.search.hopper.search import HopperSearch
from gett.schedule.search.tried import STAYING
from gett.schedule.spec.hopper_needs import MOST_STAGES, MOST_STAGES_OF_ONE, up
from gett.schedule.spec.loader import Stationary
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.schedule import PersistentPanel, Schedule, TileScheduler
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile, store_tiles
from layouts.box import Box


class WgmmaSSSearch(HopperSearch):
    """One assignment of roles to A and B."""

    mainloop, tried = SS, records.SS

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        # Operands that are the same for every batch.
        self.shared = tuple(
            x for x, t in (("a", A), ("b", B)) if not any(s.strides[t] for s in self.plan.l if s.extent > 1)
        )
        self.filled: dict[tuple[int, int], bool] = {}

    def takes(self) -> bool:
        """Whether wgmma reads the operands as they lie: rows do not run along two contracted modes."""
        return self.has_units and len(self.leads) < 2 and set(self.majors) <= set(self.atom.majors)

    def boxes_of_k(self) -> Sequence[Box]:
        """Boxes of K: of whole instructions, and those that zeros fill up to them."""
        found, step = self.k_boxes(self.patient, self.of_step(self.tried.depths))[:3], self.atom.k
        if self.size_d > self.size:  # a tile of D takes the room of deep stages
            found += [x for x in self.k_boxes(False, (2 * step,))[:3] if x not in found]
        return [*found, *residue_boxes(self.extents_k, next(iter(self.leads), None), self.size, step)]

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Also tiles of D that several MMA tiles make."""
        yield from super().choices()
        if self.takes():
            for tile in self.store_tiles():
                yield from (tile, *self.stationary(tile))

    def of_shape(self, groups: Warpgroups, n: int, boxes_k: Sequence[Box]) -> Iterator[Later[WgmmaTile]]:
        """The tiles of a shape's boxes.

        Boxes of K that zeros fill up make as many products as others of their depth and copy no rows of padding. Where
        one of them holds all of K, no other is needed.
        """
        residues = [x for x in boxes_k if x.size % self.atom.k]
        if residues and self.all_movable(A, groups.rows, residues) and self.all_movable(B, n, residues):
            depths = {up(x.size, self.atom.k) for x in residues}
            whole = residues[0].tiles == 1
            boxes_k = [x for x in boxes_k if x in residues or not (whole or x.size in depths)]
        yield from super().of_shape(groups, n, boxes_k)

    def all_movable(self, tensor: int, block: int, boxes_k: Sequence[Box]) -> bool:
        """Whether tensor maps move all boxes of a block of M or N."""
        if (tensor, block) not in self.filled:
            sides = self.sides(tensor, (block,))
            self.filled[tensor, block] = all(self.movable(tensor, side, boxes_k) for side in sides)
        return self.filled[tensor, block]

    def with_variants(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """A tile, the same with what stays, and where blocks exchange halves."""
        yield from (tile, *self.stationary(tile), *self.exchanging(tile))

    def exchanging(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile, where two blocks exchange halves of it."""
        if tile.warpgroups.ping_pong or self.plan.contraction.c is not None or tile.k.tiles < 2:
            return
        if self.one_tile(tile, (2, 1)) or self.one_tile(tile, (1, 2)):
            found = self.cost.exchanged(tile)
            if found is not None and self.one_tile(tile, found.cluster):
                yield replace(tile, cluster=found.cluster, exchange=True)

    def store_tiles(self) -> Iterator[WgmmaTile]:
        """Tiles of D that several MMA tiles make."""
        sizes, unit = (self.size, self.size_d), self.mn_unit[A]
        shapes = product((x for x in self.groups if x.mma_m >= 4 and not x.ping_pong), self.widths())
        for groups, n in shapes if unit is not None else ():
            if n < self.plan.extent_n or not groups.takes(n):
                continue
            for n_side in self.boxes.boxes(B, n, self.mn_unit[B])[:1]:
                made = store_tiles(self.plan, groups.rows, n, unit, sizes, self.facts)
                for box_k, (m_side, mma_tile) in product(self.boxes_of_k(), [*made]):
                    sides = m_side, n_side, box_k
                    tile = WgmmaTile(self.atom, groups, *sides, mma_tile=mma_tile, tma_source=self.tma_source)
                    if self.cost.staging(tile).bulk:
                        yield tile

    def stationary(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile with an operand that stays in shared memory, or with the rows of a panel."""
        if self.tiles(tile) < STAYING.tiles * self.facts.sm_count:
            return
        sides = (("a", tile.m, tile.n), ("b", tile.n, tile.m))
        whole = next((x for x, kept, _ in sides if x in self.shared and self.stays(x, kept, tile.k, True)), "")
        if whole or tile.mma_tile is not None:
            yield from (replace(tile, stationary=whole),) if whole else ()
            return
        for x, kept, other in sides:
            if not tile.warpgroups.ping_pong and self.one_panel(kept, other, tile.k):
                yield replace(tile, stationary=x, panel="one")
            if kept.box.tiles * self.batches > 1 and self.stays(x, kept, tile.k, False):
                yield replace(tile, stationary=x, panel="each")

    def may_stay(self, groups: Warpgroups, n: int) -> Iterator[tuple[str, str]]:
        """The operands that may stay in tiles of a shape, and for which panel; a larger one spares more."""
        sides = ("a", self.plan.extent_m, groups.rows), ("b", self.plan.extent_n, n)
        for x, extent, block in sides:
            if x in self.shared and extent <= block:
                yield x, ""
            if not groups.ping_pong and block < extent <= STAYING.panels * block:
                yield x, "one"
        yield max(sides, key=lambda side: min(side[1:]))[0], "each"

    def stay(self, groups: Warpgroups, sides: tuple[Sides, Sides], box_k: Box) -> Iterator[tuple[str, str]]:
        """Those that do in tiles of any of these boxes."""
        m, n = sides
        most = max(x.box.tiles for x in m) * max(x.box.tiles for x in n) * self.batches
        for x, of, others in (("a", m, n), ("b", n, m)) if most >= STAYING.tiles * self.facts.sm_count else ():
            if x in self.shared and any(self.stays(x, kept, box_k, True) for kept in of):
                yield x, ""
            if not groups.ping_pong and any(self.one_panel(kept, other, box_k) for kept in of for other in others):
                yield x, "one"
            if any(self.stays(x, kept, box_k, False) for kept in of):
                yield x, "each"

    def stays(self, name: str, kept: OperandTiling, box_k: Box, whole: bool) -> bool:
        """Whether an operand's rows of a tile stay: alone if they are `whole`, else beside those of the next panel."""
        if whole and kept.box.tiles > 1:
            return False
        held = box_k.tiles * (1 if whole else 2)
        return stationary_bytes(name, kept.rows, box_k.size * self.size, held) < self.facts.smem_per_block

    def one_panel(self, kept: OperandTiling, other: OperandTiling, box_k: Box) -> bool:
        """Whether blocks may each keep to one of few panels, and there is something to gain."""
        s, box, sm_count = STAYING, kept.box, self.facts.sm_count
        if not 1 < box.tiles <= min(s.panels, sm_count) or box.tiles * other.box.tiles < s.panel_tiles * sm_count:
            return False
        if box.size * other.box.size > s.outputs or box.volume <= s.one_tile or self.batches > 1:
            return False
        return box_k.volume >= s.panel_k and box.tiles * box.size <= s.padded * box.volume

    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[WgmmaSS]:
        """All stages that shared memory may hold."""
        groups, most = tile.warpgroups, MOST_STAGES_OF_ONE if tile.stationary else MOST_STAGES
        a, b = by_map(a, b)
        kept_a, kept_b = (Stationary(x, tile.k.tiles) if tile.stationary == n else x for n, x in (("a", a), ("b", b)))
        counts = range(most, 1, -1)
        return (WgmmaSS(kept_a, kept_b, groups.count, groups.mma_m, groups.ping_pong, count) for count in counts)

    def made(self, parts: Parts) -> Iterable[Schedule]:
        """The schedule with as many stages as fit; none where fewer than two do, or where what stays costs stages."""
        tile, store = parts.tile, parts.epilogue.store
        plain = self.fitted(parts, self.loops(replace(tile, stationary=""), parts.a, parts.b))
        if tile.stationary:
            found = self.fitted(parts, self.loops(tile, parts.a, parts.b))
            if found is None or (tile.panel != "one" and plain is not None and _stages(found) < _stages(plain)):
                return ()
            under_way = found.hopper.stages * found.smem.stage
            return () if tile.panel == "one" and under_way < STAYING.under_way else (found,)
        # Where a block makes one tile, D may be staged where the stages were. C must have a place while they are read.
        single = self.one_tile(tile, tile.cluster) and tile.mma_tile is None and not tile.warpgroups.ping_pong
        single &= not parts.order.stream_k
        if store.tma is not None and parts.epilogue.source is None and single:
            epilogue = replace(parts.epilogue, store=replace(store.tma, reuse_mainloop_smem=True))
            reusing = self.fitted(parts._replace(epilogue=epilogue), self.loops(tile, parts.a, parts.b))
            if reusing is not None and _stages(plain) < min(reusing.hopper.stages, tile.k.tiles):
                return (reusing,)
        return () if plain is None or tile.exchange else (plain,)

    def scheduler(self, tile: WgmmaTile, estimate: Estimate, split: int) -> TileScheduler:
        """Which tiles a block makes."""
        if not tile.panel:
            return super().scheduler(tile, estimate, split)
        group_m = 1 if tile.stationary == "a" else tile.m.box.tiles
        return PersistentPanel(self.facts.sm_count, tile.stationary, tile.panel == "one", group_m)

    def words(self, tile: WgmmaTile) -> str:
        """How operands come."""
        return "operands by tensor map"


def _stages(made: Schedule | None) -> int:
    return made.hopper.stages if made is not None else 1
