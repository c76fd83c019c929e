"""The one search of the Hopper main loops: tiles that wgmma can multiply, boxes that tensor maps can move, schedules.

Estimates come first, tensor maps for the best of them. Owns how the parts become a `Schedule`. How D's store and C's
source follow from a tile is `stores`'. A main loop adds the tiles that are tried and the records of its loop, in a
class of its own beside this module. Where a tile has no tensor map there is no schedule of it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import ClassVar, TypeVar

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import WORD, warpgroup_atom
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule import lower as lowering
from gett.schedule.cost.estimate import ROUNDED, Estimate, bounded_split
from gett.schedule.cost.hopper import RASTER
from gett.schedule.cost.hopper_bounds import HopperBounds, Sides
from gett.schedule.cost.hopper_units import LoopCost
from gett.schedule.mainloops.hopper import barrier_bytes
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.search.base import Later, Search
from gett.schedule.search.batches import with_batches
from gett.schedule.search.hopper.boxes import HopperBoxes, k_boxes
from gett.schedule.search.hopper.parts import Loader, Parts
from gett.schedule.search.hopper.stores import epilogue_of, store_beside_parts, store_of_parts
from gett.schedule.search.hopper.tma import OperandMaps, multicast
from gett.schedule.search.tried import Tried
from gett.schedule.spec.epilogue import Epilogue, TmaStore
from gett.schedule.spec.hopper_needs import parts, up
from gett.schedule.spec.mainloop import Hopper
from gett.schedule.spec.schedule import (
    PARTS,
    Forecast,
    PersistentRaster,
    Schedule,
    SmemPlan,
    Split,
    StreamK,
    TileScheduler,
)
from gett.schedule.tile.wgmma_tile import OperandTiling, Warpgroups, WgmmaTile, cluster_tiles
from layouts.box import Box
from layouts.modes import unit_mode
from layouts.rates import L2_LINE
from layouts.swizzle import CHUNK

Made = TypeVar("Made", bound="HopperSearch")
GPC_BLOCKS = 8  # neighbours of a plain grid that lie in one GPC, whose requests for the same lines L2 joins


class HopperSearch(Search[WgmmaTile]):
    """One assignment of roles to A and B."""

    mainloop: ClassVar[LoopCost]  # the main loop as the cost model sees it
    tried: ClassVar[Tried]  # what is tried

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        self.plan, self.facts, self.swap_ab = lowering.swap_ab(plan) if swap_ab else plan, facts, swap_ab
        self.device = nearest(facts)
        plan, c, d = self.plan, plan.contraction.c, plan.contraction.d
        self.atom = warpgroup_atom(plan.contraction.dtype, plan.contraction.precision)
        self.size, self.size_d = itemsize(plan.contraction.dtype), itemsize(plan.contraction.d.dtype)
        self.k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}
        self.mn_unit = {A: unit_mode(plan.m, A, self.size), B: unit_mode(plan.n, B, self.size)}
        self.tma_source = c is not None and c.dtype == d.dtype and c.alignment % CHUNK == 0
        self.extents_k = tuple(s.extent for s in plan.k)
        # Contracted modes along which operands' rows run.
        self.leads = tuple(dict.fromkeys(u for u in self.k_unit.values() if u is not None))
        self.batches, self.parts = plan.extent_l, parts(plan)
        self.boxes = HopperBoxes(plan, facts, self.tried.runs, self.tried.few and self.parts > 1)
        self.cost = HopperBounds(plan, facts, self.mainloop)
        self.known_maps: dict[tuple[int, Split | None], OperandMaps] = {}

    @abstractmethod
    def boxes_of_k(self) -> Sequence[Box]:
        """The boxes of K that are tried."""

    @abstractmethod
    def loops(self, tile: WgmmaTile, a: Loader, b: Loader) -> Iterable[Hopper]:
        """The loops of a tile, those first that have more under way."""

    @abstractmethod
    def words(self, tile: WgmmaTile) -> str:
        """What is special about a tile of this main loop."""

    def takes(self) -> bool:
        """Whether the main loop takes operands whose rows run as those of the plan do."""
        return self.has_units

    def holds(self, groups: Warpgroups, n: int, box_k: Box) -> bool:
        """Whether registers hold what a tile needs."""
        return groups.takes(n)

    def with_variants(self, tile: WgmmaTile) -> Iterable[WgmmaTile]:
        """A tile, and the same in other ways that have bounds of their own."""
        return (tile,)

    def may_stay(self, groups: Warpgroups, n: int) -> Iterable[tuple[str, str]]:
        """The operands that may stay in tiles of a shape, and for which panel."""
        return ()

    def stay(self, groups: Warpgroups, sides: tuple[Sides, Sides], box_k: Box) -> Iterable[tuple[str, str]]:
        """Those that do in tiles of any of these boxes."""
        return ()

    @property
    def has_units(self) -> bool:
        """Whether each operand has a unit-stride mode."""
        return not any(self.k_unit[t] is None and self.mn_unit[t] is None for t in (A, B))

    @property
    def majors(self) -> tuple[str, str]:
        """Groups along the rows of A and of B."""
        a, b = ("k" if self.k_unit[t] is not None else "mn" for t in (A, B))
        return a, b

    def tiles(self, tile: WgmmaTile) -> int:
        """Tiles of D, batches included."""
        return tile.m.box.tiles * tile.n.box.tiles * self.batches

    @property
    def groups(self) -> list[Warpgroups]:
        """Who may multiply: of more rows than the fewest those that M does not fill by half are left out."""
        fewest, most = min(x.rows for x in self.tried.groups), 2 * max(64, self.plan.extent_m)
        return [x for x in self.tried.groups if x.rows == fewest or x.rows < most]

    def widths(self) -> list[int]:
        """Columns of a tile worth trying: usual ones, those of the fewest tiles, and those of whole waves of tiles."""
        plan, most = self.plan, self.tried.widths[0]
        usual = [n for n in self.tried.widths if n <= max(8, plan.extent_n)][:6]
        panels = {self.batches * -(-plan.extent_m // x.rows) for x in self.groups}
        whole = {w * self.facts.sm_count // m for w in range(1, self.tried.waves + 1) for m in panels} - {0}
        of_waves = (up(-(-plan.extent_n // tiles), 8) for tiles in whole)
        fewest = up(-(-plan.extent_n // -(-plan.extent_n // most)), 8)
        return sorted({*usual, fewest, *(n for n in of_waves if usual[-1] <= n <= most)}, reverse=True)

    def of_step(self, of_16: Iterable[int]) -> list[int]:
        """Lengths along K for as many instructions as they are of types with 16 k in one."""
        return [x * self.atom.k // 16 for x in of_16]

    @property
    def patient(self) -> bool:
        """Whether the start of a tile is hidden behind others: those of 256 x 128 would be many."""
        rows, columns = -(-self.plan.extent_m // 256), -(-self.plan.extent_n // 128)
        return not self.cost.hurried(rows * columns * self.batches)

    def best_of_depths(self, patient: bool, most: int) -> list[Box]:
        """Boxes of K: the best of every depth; of `most` 2 the next one if it has fewer tiles.

        Shorter rows may have less padding behind the ends of modes: the cost model says which is better.
        """
        found = dict[Box, None]()
        for deep in self.of_step(self.tried.depths):
            best = self.k_boxes(patient, (deep,))
            found |= dict.fromkeys((*best[:1], *(b for b in best[1:most] if b.tiles < best[0].tiles)))
        return [*found]

    def k_boxes(self, patient: bool, depths: Sequence[int]) -> list[Box]:
        """The best three boxes of K of some depths, and the shallowest."""
        lead, leads = next(iter(self.leads), None), self.of_step(self.tried.leads)
        return k_boxes(self.extents_k, lead, self.size, self.atom.k, patient, depths, leads)

    def walked(self, boxes: Sequence[Box]) -> Sequence[Box]:
        """Boxes of K, also walked along the memory of the larger operand where they have parts of its lines."""
        lines = self.cost.partial_lines
        unit, strides = self.k_unit[lines.larger], [s.strides[lines.larger] for s in self.plan.k]
        if unit is None or not lines.come_again:
            return boxes
        parts = (x.walked(strides, tiled=True) for x in boxes if x.cut[unit] * self.size < L2_LINE)
        return [*dict.fromkeys((*boxes, *parts))]

    def sides(self, tensor: int, blocks: Iterable[int]) -> Iterator[OperandTiling]:
        """The boxes of an operand's free group, of any of some blocks."""
        return (side for block in blocks for side in self.boxes.boxes(tensor, block, self.mn_unit[tensor]))

    def choices(self) -> Iterator[WgmmaTile | Later[WgmmaTile]]:
        """Every combination of warpgroups, columns and boxes, where tensor maps move both operands."""
        if not self.takes():
            return
        groups, widths, boxes_k = self.groups, self.widths(), self.walked(self.boxes_of_k())
        for tensor, blocks in ((A, [x.rows for x in groups]), (B, widths)):
            if not any(self.movable(tensor, side, boxes_k) for side in self.sides(tensor, blocks)):
                return
        for of, n in product(groups, widths):
            if held := [x for x in boxes_k if self.holds(of, n, x)]:
                least_us = self.cost.least_of_shape(of, n, held, self.tried.shares, self.may_stay(of, n))
                yield Later(least_us, partial(self.of_shape, of, n, held))

    def of_shape(self, groups: Warpgroups, n: int, boxes_k: Sequence[Box]) -> Iterator[Later[WgmmaTile]]:
        """The tiles of a shape's boxes of M and N with each box of K, made when they may be among the best."""
        sides = [*self.sides(A, (groups.rows,))], [*self.sides(B, (n,))]

        def made(box_k: Box) -> Iterator[WgmmaTile]:
            for m_side, n_side in product(*sides):
                tile = WgmmaTile(self.atom, groups, m_side, n_side, box_k, tma_source=self.tma_source)
                yield from self.with_variants(tile)

        for box_k in boxes_k if all(sides) else ():
            stay = self.stay(groups, sides, box_k)
            least_us = self.cost.least_of_sides(groups, n, sides, box_k, self.tried.shares, stay)
            yield Later(least_us, partial(made, box_k))

    def movable(self, tensor: int, side: OperandTiling, boxes_k: Sequence[Box]) -> bool:
        """Whether tensor maps move a side with any box of K, which is sooner found out than tiles are estimated."""
        maps = self.maps(tensor, side)
        return any(maps.load(side, box_k) is not None for box_k in boxes_k)

    def maps(self, tensor: int, side: OperandTiling) -> OperandMaps:
        """Tensor maps of an operand whose free modes are split as those of a side are."""
        key = tensor, side.split
        if key not in self.known_maps:
            plan = lowering.split_modes(self.plan, (side.split,) if side.split is not None else ())
            self.known_maps[key] = OperandMaps(plan, tensor, self.size)
        return self.known_maps[key]

    def estimate(self, choice: WgmmaTile) -> Estimate:
        """Expected time of a tile."""
        return self.cost.estimate(choice)

    def least_us(self, choice: WgmmaTile) -> float:
        """A bound of the forecasts of a tile and of its variants."""
        least, slowest = self.cost.least_us(choice)
        variants = self.in_clusters(choice) if slowest == "L2" else ()
        return min([least, *(self.cost.least_us(x)[0] for x in variants)])

    def paced_us(self, choice: WgmmaTile, estimate: Estimate) -> float:
        """A bound of the forecasts of a tile's schedules."""
        return estimate.us * self.cost.least_pace(choice.warpgroups, *self.cost.operands(choice))

    def lowered_us(self, choice: WgmmaTile, estimate: Estimate) -> float:
        """The same with the operands' maps, and the estimate as it is once no map is known to store D."""
        estimate = estimate if self.cost.staging(choice).bulk else self.estimate(choice)
        maps = [x.tma.map for x in self.loads(self.plan, choice) or () if x.tma is not None]
        dims = sum(2 * (b > 1) for of in maps for b in of.box) + self.swap_ab
        more = estimate.us * self.cost.tile_rates.map_share * dims
        return (self.paced_us(choice, estimate) + more) * ROUNDED

    def variants(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[WgmmaTile]:
        """The same tile in clusters."""
        return self.in_clusters(choice) if estimate.bound == "L2" else ()

    def in_clusters(self, tile: WgmmaTile) -> Iterator[WgmmaTile]:
        """The same tile in clusters that share one operand. Sharing costs a little everywhere and relieves L2 alone."""
        if not self.tried.shares or tile.blocks > 1 or tile.stationary or tile.mma_tile is not None or tile.k.tiles < 8:
            return
        for cluster in ((2, 1), (1, 2)):
            if tile.m.box.tiles >= cluster[0] and tile.n.box.tiles >= cluster[1]:
                yield replace(tile, cluster=cluster)

    def one_tile(self, tile: WgmmaTile, cluster: tuple[int, int]) -> bool:
        """Whether a block makes one tile at most where `cluster` blocks share operands."""
        clusters = cluster_tiles(tile.m.box.tiles, tile.n.box.tiles, cluster) * self.batches
        return clusters <= self.facts.sm_count // math.prod(cluster)

    def lower(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[Schedule]:
        """The schedules of a tile; none where a rule of the hardware forbids it."""
        yield from self.lowered(choice, estimate)
        if estimate.stream_k:
            yield from self.lowered(choice, self.cost.whole(choice))

    def lowered(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[Schedule]:
        """The same by one way to divide the work among the blocks."""
        plan = lowering.split_modes(self.plan, choice.tiling(self.swap_ab).splits)
        loads, (slices, workspace) = self.loads(plan, choice), self.split(choice, estimate)
        if loads is None or (choice.panel and slices > 1):
            return
        epilogue = self.epilogue(plan, choice, slices)
        if epilogue is None:
            if choice.tma_source:  # C's strides refuse a tensor map
                plain = replace(choice, tma_source=False)
                yield from self.lowered(plain, self.estimate(plain))
            return
        if estimate.stream_k:
            epilogue = replace(epilogue, store=store_beside_parts(plan, choice, epilogue.store))
        if slices == 1 and epilogue.store.map is None:
            if self.cost.staging(choice).bulk:
                self.cost.unmapped(choice)
            estimate = self.cost.whole(choice, stream_k=estimate.stream_k)
        order = self.scheduler(choice, estimate, slices)
        parts = Parts(choice, *loads, epilogue, slices, workspace, order)
        for found in self.made(parts):
            made = self.restaged(plan, parts, found, estimate)
            us = self.cost.forecast_us(choice, estimate, made)
            reason = self.reason(choice) + (", those left over divided" if estimate.stream_k else "")
            yield replace(made, forecast=Forecast(us, estimate.bound, reason))

    def loads(self, plan: GemmPlan, tile: WgmmaTile) -> tuple[Loader, Loader] | None:
        """How the operands come; None where one does not."""
        a, b = self.maps(A, tile.m).load(tile.a, tile.k), self.maps(B, tile.n).load(tile.n, tile.k)
        return None if a is None or b is None else (multicast(a, tile.cluster[1]), multicast(b, tile.cluster[0]))

    def split(self, tile: WgmmaTile, estimate: Estimate) -> tuple[int, int]:
        """Slices of K, and bytes of partial sums."""
        partial, limit = self.cost.partial_bytes(tile), self.facts.workspace_limit
        if estimate.stream_k:
            return 1, PARTS * self.cost.grid(tile)[1] * partial
        return bounded_split(estimate.split_k, partial, self.tiles(tile), tile.k.tiles, limit)

    def epilogue(self, plan: GemmPlan, tile: WgmmaTile, split: int) -> Epilogue | None:
        """How D is stored and C read, None where the tile needs a tensor map that does not exist."""
        return epilogue_of(self.cost, plan, tile, split)

    def restaged(self, plan: GemmPlan, parts: Parts, made: Schedule, estimate: Estimate) -> Schedule:
        """The schedule, or the one that stages D's tiles in two buffers by turns, or in parts."""
        tile, store = parts.tile, made.epilogue.store.tma
        if store is None or store.reuse_mainloop_smem or store.exchange is not None or made.epilogue.source is not None:
            return made
        if tile.warpgroups.ping_pong or tile.stationary or tile.mma_tile is not None or made.hopper.by_warps:
            return made
        if tile.k.tiles == 1 and self.tiles(tile) > self.facts.sm_count and self.device.stores.two_buffers:
            asked = parts._replace(epilogue=replace(made.epilogue, store=replace(store, buffers=2)))
            return self.fitted(asked, self.loops(tile, parts.a, parts.b)) or made
        # Where memory limits, a part would wait until it took the ones before.
        return made if estimate.bound == "DRAM" else self.subtiled(plan, parts, made, store)

    def subtiled(self, plan: GemmPlan, parts: Parts, made: Schedule, store: TmaStore) -> Schedule:
        """The schedule, or the one that stages D's tile in parts where few stages have room beside the whole tile."""
        tile, stages = parts.tile, made.hopper.stages
        if stages >= tile.k.tiles:
            return made
        for count, buffers in self.tried.subtiles if self.size_d >= WORD and stages <= self.tried.few_stages else ():
            subtiled = store_of_parts(self.cost, plan, tile, store, count, buffers)
            if subtiled is None:
                continue
            asked = parts._replace(epilogue=replace(made.epilogue, store=subtiled))
            found = self.fitted(asked, self.loops(tile, parts.a, parts.b))
            if found is not None and found.hopper.stages > stages:
                return found
        return made

    def scheduler(self, tile: WgmmaTile, estimate: Estimate, split: int) -> TileScheduler:
        """Which tiles a block makes: there is a block a multiprocessor."""
        blocks, rates, rows = self.facts.sm_count, self.device.hopper, RASTER
        memory = self.cost.least_dram_us(tile) >= rates.batches.memory * estimate.us
        busy = self.tiles(tile) > blocks and estimate.bound in ("tensor cores", "shared memory") and not memory
        if self.tried.squares and busy:
            # Tiles under way make a square of D: what they read is least, and with it the power that it takes.
            rows = max(rows, round(math.sqrt(blocks * tile.shape[1] / tile.shape[0])))
            if rows * tile.n.box.tiles <= blocks and self.plan.extent_k > rates.tiles.short_k:
                # Any number of rows makes that square; so those of a GPC do.
                rows = round(math.sqrt(GPC_BLOCKS * tile.shape[1] / tile.shape[0]))
        group_m = max(1, min(rows, tile.m.box.tiles) // tile.cluster[0])
        if estimate.stream_k:
            return StreamK(blocks // tile.blocks * tile.blocks, group_m, tile.cluster)
        # Clusters of two that fill the device take tiles in its order of clusters.
        order = self.device.l2.cluster_order
        ordered = tile.blocks == 2 and blocks == 2 * len(order)
        made = PersistentRaster(blocks, group_m, split, tile.cluster, order if ordered else ())
        batched = self.tried.squares and memory
        return with_batches(made, tile, self.plan, self.cost.bytes, rates.batches) if batched else made

    def reason(self, tile: WgmmaTile) -> str:
        """Why, in a line."""
        m, n, _ = tile.shape
        said = [f"{self.tiles(tile)} tiles of {m} x {n}, {tile.k.size} deep", self.words(tile)]
        said += ["ping-pong"] if tile.warpgroups.ping_pong else []
        said += [f"shared by {tile.blocks} blocks"] if tile.blocks > 1 else []
        said += ["which exchange halves of D's"] if tile.exchange else []
        if tile.stationary:
            panel = {"": "", "one": " for the block's panel", "each": " for a panel"}[tile.panel]
            said.append(f"{tile.stationary.upper()} stationary{panel}")
        said += [f"{tile.mma_tiles} of them a tile of D"] if tile.mma_tile is not None else []
        return ", ".join(said)

    def made(self, parts: Parts) -> Iterable[Schedule]:
        """The schedule with as much under way as shared memory holds, none where it holds too little."""
        found = self.fitted(parts, self.loops(parts.tile, parts.a, parts.b))
        return () if found is None else (found,)

    def fitted(self, parts: Parts, loops: Iterable[Hopper]) -> Schedule | None:
        """The schedule with the first of some loops that shared memory holds, None where it holds none.

        A loop that differs from one that it does not hold in too few stages is not asked.
        """
        tiling, most, fewer = parts.tile.tiling(self.swap_ab), self.facts.smem_per_block, 0.0
        refused: Hopper | None = None
        for loop in loops:
            if refused and 0 < refused.stages - loop.stages < fewer and replace(loop, stages=refused.stages) == refused:
                continue
            made = Schedule(self.facts.arch, tiling, loop, parts.epilogue, parts.order, SmemPlan(0), parts.workspace)
            smem = smem_plan(made, self.plan)
            if smem.size <= most:
                return replace(made, smem=smem)
            refused, fewer = loop, (smem.size - most) / (smem.stage + barrier_bytes(1))
        return None


def both_roles(kind: type[Made], plan: GemmPlan, facts: ArchFacts) -> Sequence[Made]:
    """A search for either assignment of roles to A and B."""
    return [kind(plan, facts, swap_ab) for swap_ab in (False, True)]
