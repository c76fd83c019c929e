"""Schedules of wgmma with both operands by tensor map: boxes that tensor maps can move, tiles that wgmma can multiply.

Where no such box exists there is no schedule, and another main loop serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.lower import split_modes
from gett.schedule.search.base import Later
from gett.schedule.search.batches import MEMORY, with_batches
from gett.schedule.search.k_boxes import k_boxes, residue_boxes
from gett.schedule.search.stationary import MOST, PANELS, UNDER_WAY, one_panel_pace, shared_operands, with_stationary
from gett.schedule.search.tma import OperandMaps, c_map, d_map, multicast
from gett.schedule.search.wgmma import RASTER, WgmmaSearch
from gett.schedule.search.wgmma_boxes import widths
from gett.schedule.spec.epilogue import Epilogue, TmaStore
from gett.schedule.spec.hopper_needs import MOST_STAGES, MOST_STAGES_OF_ONE, up
from gett.schedule.spec.loader import Stationary, Tma
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.schedule import Forecast, Schedule
from gett.schedule.spec.scheduler import PersistentPanel, TileScheduler
from gett.schedule.spec.vectors import store_vector
from gett.schedule.tile.store_tile import store_tiles
from gett.schedule.tile.wgmma_tile import WARPGROUPS, OperandTiling, Warpgroups, WgmmaTile, cluster_tiles
from layouts.box import Box
from layouts.rates import L2_LINE
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

GPC_BLOCKS = 8  # neighbours of a plain grid that lie in one GPC, whose requests for the same lines L2 joins
LONG_LOOP = 16  # k-tiles from which warpgroups that alternate wait for each other's stages
LONG_STREAM = 4096  # sums from which deep k-tiles gain where memory does little but read
SHORT_K = 1024  # sums up to which starts and ends of tiles count more than the loop


class WgmmaSSSearch(WgmmaSearch):
    """Estimates first, tensor maps for the best of them."""

    gain = 0.99

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        super().__init__(plan, facts, swap_ab)
        self.shared = shared_operands(self.plan)
        c, d = self.plan.contraction.c, self.plan.contraction.d
        self.tma_source = c is not None and c.dtype == d.dtype and c.alignment % CHUNK == 0

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Every combination of tile and boxes."""
        plan, boxes = self.plan, self.boxes
        if not self.has_units or len(self.leads) > 1:  # the operands' rows run along different contracted modes
            return
        if not set(self.majors) <= set(self.atom.majors):
            return
        widths_n = widths(plan.extent_n)
        sides_m = [side for groups in WARPGROUPS for side in boxes.boxes(A, groups.rows, self.mn_unit[A])]
        sides_n = [side for n in widths_n for side in boxes.boxes(B, n, self.mn_unit[B])]
        sides = ((A, sides_m), (B, sides_n))
        best, residues, shallow = self.boxes_k(sides)
        all_k = (*best, *residues, *shallow)
        if not all(self.movable(t, s, all_k) for t, s in sides):
            return
        for box_k in all_k:
            for groups in WARPGROUPS:
                if groups.rows >= 2 * max(64, plan.extent_m) and groups.rows > 64:
                    continue
                low = box_k in shallow and groups.mma_m < 8  # only the tallest tiles leave no room for deeper stages
                for n in (n for n in widths_n if groups.takes(n)):
                    for tile in self.store_tiles(groups, n, box_k):
                        yield from (tile, *self.stationary(tile))
                    if not low:
                        yield self.later(groups, n, box_k, self.with_variants)

    def later(
        self, groups: Warpgroups, n: int, box_k: Box, variants: Callable[[WgmmaTile], Iterable[WgmmaTile]]
    ) -> Later[WgmmaTile]:
        """The tiles of all boxes of a shape, with variants of each, when they may be among the best."""
        sides_m, sides_n = self.boxes.boxes(A, groups.rows, self.mn_unit[A]), self.boxes.boxes(B, n, self.mn_unit[B])
        if not sides_m or not sides_n:
            return Later(math.inf, tuple)
        rows = min(side.rows for side in (*sides_m, *sides_n))
        panels = min(side.box.tiles for side in (*sides_m, *sides_n)) <= PANELS
        stays = panels or rows * up(box_k.size, self.atom.k) * box_k.tiles * self.size <= MOST

        def made() -> Iterator[WgmmaTile]:
            for m_side in sides_m:
                for n_side in sides_n:
                    yield from variants(WgmmaTile(self.atom, groups, m_side, n_side, box_k, tma_source=self.tma_source))

        return Later(self.cost.least_of_sides(groups, n, (sides_m, sides_n), box_k, stays), made)

    def with_variants(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """A tile, the same with what stays, and where blocks exchange halves."""
        yield from (tile, *self.stationary(tile), *self.exchanging(tile))

    def boxes_k(self, sides: Iterable[tuple[int, list[OperandTiling]]]) -> tuple[list[Box], list[Box], list[Box]]:
        """Boxes of K: the deep ones, those that zeros fill up to whole instructions, the shallow ones."""
        plan, lead = self.plan, next(iter(self.leads), None)
        extents = tuple(s.extent for s in plan.k)
        least = -(-plan.extent_m // 256) * -(-plan.extent_n // 128) * plan.extent_l
        deep, shallow = k_boxes(extents, lead, self.size, self.atom.k, not self.hurried(least))
        residues = residue_boxes(extents, lead, self.size, self.atom.k)
        if self.size_d > self.size:  # a tile of D takes the room of deep stages
            thin = k_boxes(extents, lead, self.size, self.atom.k, False, (2 * self.atom.k,))[0]
            deep += [b for b in thin if b not in deep]
        if not residues or not all(self.movable(tensor, (s,), residues) for tensor, of in sides for s in of):
            return deep, residues, shallow
        # Boxes that zeros fill up serve every side: they make as many products as others of their depth and copy no
        # rows of padding. Where one of them holds all of K, no other is needed.
        if residues[0].tiles == 1:
            return [], residues, []
        depths = {up(b.size, self.atom.k) for b in residues}
        return [b for b in deep if b.size not in depths], residues, [b for b in shallow if b.size not in depths]

    def least_us(self, choice: WgmmaTile) -> float:
        """A bound of the estimates of a tile and of its variants."""
        if choice.blocks > 1:
            return self.cost.least_us(choice)
        loop = self.cost.loop(choice, self.tiles(choice))
        least = self.cost.least_us(choice, loop)
        variants = self.clusters(choice) if loop.slowest == "L2" else ()
        return min([least, *map(self.cost.least_us, variants)])

    def hurried(self, tiles: int) -> bool:
        """Whether the start and the end of a tile take a share of its time."""
        return self.plan.extent_k <= SHORT_K or tiles <= self.facts.sm_count

    def variants(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[WgmmaTile]:
        """The same tile in clusters. Sharing costs a little everywhere and relieves L2 alone."""
        return self.clusters(choice) if estimate.bound == "L2" else ()

    def clusters(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile in clusters that share one operand."""
        if tile.blocks > 1 or tile.stationary or tile.mma_tile is not None or tile.k.tiles < 8:
            return
        for cluster in ((2, 1), (1, 2)):
            if tile.m.box.tiles >= cluster[0] and tile.n.box.tiles >= cluster[1]:
                yield replace(tile, cluster=cluster)

    def exchanging(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile, where two blocks exchange halves of it."""
        if tile.warpgroups.ping_pong or self.plan.contraction.c is not None or tile.k.tiles < 2:
            return
        if self.one_tile(tile, (2, 1)) or self.one_tile(tile, (1, 2)):
            found = self.cost.exchanged(tile)
            if found is not None and self.one_tile(tile, found.cluster):
                yield replace(tile, cluster=found.cluster, exchange=True)

    def one_tile(self, tile: WgmmaTile, cluster: tuple[int, int]) -> bool:
        """Whether a block makes one tile at most where `cluster` blocks share operands."""
        clusters = cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, cluster) * self.plan.extent_l
        return clusters <= self.facts.sm_count // math.prod(cluster)

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

    def stationary(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile with an operand that stays in shared memory."""
        return with_stationary(tile, self.shared, self.size, self.plan.extent_l, self.facts.sm_count)

    def movable(self, tensor: int, sides: Iterable[OperandTiling], boxes_k: Sequence[Box]) -> bool:
        """Whether tensor maps move an operand at all, which is sooner found out than all choices are estimated."""
        for side in sides:
            maps = OperandMaps(split_modes(self.plan, (side.split,) if side.split else ()), tensor, self.size)
            if any(maps.load(side, box_k) is not None for box_k in boxes_k):
                return True
        return False

    def lower(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[Schedule]:
        """The schedule of a tile; none where a rule of the hardware forbids it."""
        plan = self.lowered(choice)
        a = OperandMaps(plan, A, self.size).load(choice.a, choice.k)
        b = OperandMaps(plan, B, self.size).load(choice.n, choice.k)
        split = self.split(choice, estimate)
        if a is None or b is None or (choice.panel and split[0] > 1):
            return
        a, b = multicast(a, choice.cluster[1]), multicast(b, choice.cluster[0])
        epilogue = self.epilogue(plan, choice, split[0])
        if epilogue is None and choice.tma_source:  # C's strides refuse a tensor map
            plain = replace(choice, tma_source=False)
            yield from self.lower(plain, self.estimate(plain))
        if epilogue is None:
            return
        made = self.deepest(choice, (a, b), epilogue, split, self.scheduler(choice, estimate, split[0]))
        if made is None or (choice.exchange and not _reuses(made)):
            return
        under_way, pace = made.hopper.stages * made.smem.stage, 1.0
        if choice.panel == "one":
            if under_way < UNDER_WAY:
                return
            pace = one_panel_pace(choice, under_way, self.device.wgmma.in_flight.dram_bytes)
        d = epilogue.store.map if isinstance(epilogue.store, TmaStore) else None
        us = estimate.us * pace * self.preference(choice, (a.map, b.map, d)) * self.depth(choice, estimate, made)
        yield replace(made, forecast=Forecast(us, estimate.bound, self.reason(choice)))

    def epilogue(self, plan: GemmPlan, tile: WgmmaTile, split: int) -> Epilogue | None:
        """How D is stored, None where the tile needs a tensor map that does not exist."""
        staging = self.cost.staging(tile)
        d = self.d_map(plan, tile, staging, split)
        added = d is not None and self.plan.contraction.c is not None
        c = c_map(plan, tile.m.box, tile.n.box, self.size_d, staging.dense, d) if added and d is not None else None
        if (added and c is None) or (d is None and (tile.exchange or tile.mma_tile is not None)):
            return None
        if d is None or not tile.exchange:
            return Epilogue(self.stores(plan, tile, staging, d, split), self.source(c))
        found = self.cost.exchanged(tile)
        assert found is not None
        whole = d_map(plan, found.m, found.n, self.size_d, replace(staging.dense, row=2 * staging.dense.row))
        if whole is None:
            return None
        vector = store_vector(plan, tile.m.box, tile.n.box)
        return Epilogue(TmaStore(whole, staging.dense, vector, exchange=found.exchange))

    def deepest(
        self, tile: WgmmaTile, loads: tuple[Tma, Tma], epilogue: Epilogue, split: tuple[int, int], order: TileScheduler
    ) -> Schedule | None:
        """The schedule with as many stages as fit; None where fewer than two do, or where what stays costs stages."""
        groups, store = tile.warpgroups, epilogue.store
        rings = [Stationary(x, tile.k.tiles) if tile.stationary == n else x for n, x in zip("ab", loads, strict=True)]

        def fitted(a: Tma | Stationary, b: Tma | Stationary, most: int, epilogue: Epilogue) -> Schedule | None:
            counts = range(most, 1, -1)
            loops = (WgmmaSS(a, b, groups.count, groups.mma_m, groups.ping_pong, count) for count in counts)
            return self.fitted(tile, loops, epilogue, split, order)

        found = fitted(rings[0], rings[1], MOST_STAGES_OF_ONE if tile.stationary else MOST_STAGES, epilogue)
        stages = found.hopper.stages if found is not None else 1
        if tile.stationary:
            plain = fitted(*loads, MOST_STAGES, epilogue) if tile.panel != "one" else None
            return None if plain is not None and stages < plain.hopper.stages else found
        # Where a block makes one tile, D may be staged where the stages were. C must have a place while they are read.
        single = self.one_tile(tile, tile.cluster) and tile.mma_tile is None and not groups.ping_pong
        if isinstance(store, TmaStore) and epilogue.source is None and single:
            reusing = fitted(*loads, MOST_STAGES, replace(epilogue, store=replace(store, reuse_mainloop_smem=True)))
            if reusing is not None and stages < min(reusing.hopper.stages, tile.k.tiles):
                return reusing
        return found

    def preference(self, tile: WgmmaTile, maps: tuple[TmaMap | None, ...]) -> float:
        """Of equals: ping-pong, boxes of few dimensions and with long first ones."""
        weighted = zip(maps, (2, 2, 1), strict=True)
        dims = sum(weight * (b > 1) for made, weight in weighted if made is not None for b in made.box)
        firsts = [next((d.box for _, d in side.box.tiled), 1) for side in (tile.m, tile.n)]
        together = 0.0 if tile.warpgroups.ping_pong else 0.01
        order = 0.0005 * (dims + self.swap_ab + tile.warpgroups.mma_m) + sum(0.05 / first for first in firsts)
        return 1.0 + order + together

    def depth(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """How stages show: short sums want bytes under way and to start soon, long ones fewer and deeper k-tiles."""
        rates = self.device.wgmma.in_flight
        stages, stage, deep, by_dram = made.hopper.stages, made.smem.stage, tile.shape[2], estimate.bound == "DRAM"
        enough = rates.dram_bytes if by_dram else rates.l2_bytes
        missing = rates.none_share * max(0.0, 1.0 - (stages - 1) * stage / enough)
        few = 1.0 if stages >= 3 or (by_dram and stage >= rates.dram_bytes) else rates.two_stages
        if by_dram:
            late = self.behind_stores(tile, estimate, made)
            long_rows = 1.0
            if deep >= 8 * self.atom.k:  # two lines of L2 a row of what is read once, or k-tiles that come late
                stream = self.plan.extent_k >= LONG_STREAM and self.cost.only_reads and tile.shape[0] > 64
                long_rows = 0.99 if stream else 1.01
            return few * (long_rows + missing / 2 + late)
        if stages == 3 and tile.warpgroups.ping_pong and tile.k.tiles >= LONG_LOOP:
            few = rates.alternating_three
        long = {1: 1.05, 2: 1.025, 8: 1.01}.get(deep // self.atom.k, 1.0)
        if self.hurried(self.tiles(tile)):
            return (
                few
                * (1.0 + missing + rates.start_share * deep / (4 * self.atom.k))
                * (long if deep * tile.k.tiles >= SHORT_K else 1.0)
            )
        return few * long

    def behind_stores(self, tile: WgmmaTile, estimate: Estimate, made: Schedule) -> float:
        """Share of the time that loads from L2 cost beside stores of D that keep memory busy, behind which they wait.

        Too few are under way for the pace of the tiles, or their rows are half a line.
        """
        rates = self.device.wgmma.in_flight
        tiles, at_once = self.cost.grid(tile)
        k_tiles = math.ceil(tiles / at_once) * tile.k.tiles * tile.mma_tiles
        under_way = (made.hopper.stages - 1) * estimate.us / (k_tiles * rates.behind_stores_us)  # by what is needed
        half_lines = tile.k.tiles > 1 and tile.shape[2] * self.size < L2_LINE and self.majors == ("k", "k")
        if not isinstance(made.epilogue.store, TmaStore):  # threads store, the copy engine loads
            return 0.0
        late = rates.behind_stores_share * max(0.0, 1.0 - under_way) + (rates.half_lines if half_lines else 0.0)
        return late * max(0.0, 2.0 * self.cost.share_of_d - 1.0)

    def scheduler(self, tile: WgmmaTile, estimate: Estimate, split: int) -> TileScheduler:
        """Which tiles a block makes."""
        blocks = self.facts.sm_count
        if tile.panel:
            group_m = 1 if tile.stationary == "a" else tile.m.box.tiles
            return PersistentPanel(blocks, tile.stationary, tile.panel == "one", group_m)
        rows, memory = RASTER, self.cost.least_dram_us(tile) >= MEMORY * estimate.us
        if self.tiles(tile) > blocks and estimate.bound in ("tensor cores", "shared memory") and not memory:
            # Tiles under way make a square of D: what they read is least, and with it the power that it takes.
            rows = max(rows, round(math.sqrt(blocks * tile.shape[1] / tile.shape[0])))
            if rows * tile.n.box.tiles <= blocks and self.plan.extent_k > SHORT_K:
                # Any number of rows makes that square; so those of a GPC do.
                rows = round(math.sqrt(GPC_BLOCKS * tile.shape[1] / tile.shape[0]))
        made = self.raster(tile, split, rows)
        return with_batches(made, tile, self.plan, self.cost.bytes) if memory else made

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


def _reuses(s: Schedule) -> bool:
    return isinstance(s.epilogue.store, TmaStore) and s.epilogue.store.reuse_mainloop_smem
