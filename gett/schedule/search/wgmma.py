"""What the searches of the Hopper main loops share: models and boxes of one assignment of roles, stores, the record.

Owns how D's store and C's source follow from a tile, and how the parts become a `Schedule`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.dtypes import WORD, data_type, warpgroup_atom
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule import lower as lowering
from gett.schedule.cost.estimate import Estimate, bounded_split
from gett.schedule.cost.staging import Staging
from gett.schedule.cost.wgmma import WgmmaCost
from gett.schedule.mainloops.table import smem_plan
from gett.schedule.search.base import Search
from gett.schedule.search.tma import d_map
from gett.schedule.search.wgmma_boxes import WgmmaBoxes
from gett.schedule.spec.epilogue import Epilogue, RowStore, Store, TmaSource, TmaStore, VectorSource, VectorStore
from gett.schedule.spec.hopper_needs import ARCHS, multiplied, planes
from gett.schedule.spec.mainloop import Hopper
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentRaster, TileScheduler
from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.vectors import store_vector
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.modes import unit_mode
from layouts.tma import TmaMap

Made = TypeVar("Made", bound="WgmmaSearch")
RASTER = 8  # rows of tiles that are visited together


def wgmma_takes(plan: GemmPlan, facts: ArchFacts) -> bool:
    """Whether a plan is a product of two operands that wgmma multiplies, as they are, on this architecture."""
    made = planes(plan)
    tensor = made.tensor if made is not None else multiplied(plan)
    wgmma = tensor.wgmma if tensor is not None else None
    if tensor is None or wgmma is None or facts.arch not in ARCHS or plan.b is None or not plan.k:
        return False
    size = itemsize(plan.contraction.dtype)
    if any(x.dtype != plan.contraction.dtype for x in (plan.a, plan.b)):
        return False  # a real operand among complex ones
    if wgmma.either_major or tensor.bytes == WORD:  # words go through registers where wgmma wants another major
        return True
    return all(unit_mode(plan.k, t, size) is not None for t in (A, B))


class WgmmaSearch(Search[WgmmaTile]):
    """One assignment of roles to A and B."""

    Cost: ClassVar[type[WgmmaCost]] = WgmmaCost
    runs: ClassVar[bool] = True  # whether rows of padding are part of operands' tiles

    def __init__(self, plan: GemmPlan, facts: ArchFacts, swap_ab: bool) -> None:
        self.plan, self.facts, self.swap_ab = lowering.swap_ab(plan) if swap_ab else plan, facts, swap_ab
        self.device = nearest(facts)
        plan = self.plan
        self.atom = warpgroup_atom(plan.contraction.dtype, plan.contraction.precision)
        self.size, self.size_d = itemsize(plan.contraction.dtype), itemsize(plan.contraction.d.dtype)
        self.size_sums = data_type(plan.contraction.dtype).accumulator_bytes
        self.k_unit = {t: unit_mode(plan.k, t, self.size) for t in (A, B)}
        self.mn_unit = {A: unit_mode(plan.m, A, self.size), B: unit_mode(plan.n, B, self.size)}
        self.boxes = WgmmaBoxes(plan, facts, self.runs)
        self.cost = self.Cost(plan, facts)

    def estimate(self, choice: WgmmaTile) -> Estimate:
        """Expected time of a tile."""
        return self.cost.estimate(choice)

    @property
    def has_units(self) -> bool:
        """Whether each operand has a unit-stride mode."""
        return not any(self.k_unit[t] is None and self.mn_unit[t] is None for t in (A, B))

    @property
    def majors(self) -> tuple[str, str]:
        """Groups along the rows of A and of B."""
        a, b = ("k" if self.k_unit[t] is not None else "mn" for t in (A, B))
        return a, b

    @property
    def leads(self) -> tuple[int, ...]:
        """Contracted modes along which operands' rows run."""
        return tuple(dict.fromkeys(u for u in self.k_unit.values() if u is not None))

    def lowered(self, tile: WgmmaTile) -> GemmPlan:
        """The plan that the tile's boxes belong to."""
        return lowering.split_modes(self.plan, tile.tiling(self.swap_ab).splits)

    def tiles(self, tile: WgmmaTile) -> int:
        """Tiles of D, batches included."""
        return tile.m.box.tiles * tile.n.box.tiles * self.plan.extent_l

    def split(self, tile: WgmmaTile, estimate: Estimate) -> tuple[int, int]:
        """Slices of K, and bytes of their partial sums."""
        rows, columns, _ = tile.shape
        partial, limit = rows * columns * self.size_sums, self.facts.workspace_limit
        return bounded_split(estimate.split_k, partial, self.tiles(tile), tile.k.tiles, limit)

    def stores(self, plan: GemmPlan, tile: WgmmaTile, staging: Staging, d: TmaMap | None, split: int) -> Store:
        """How D leaves: by the tensor map `d`, else row by row or as vectors."""
        vector = store_vector(plan, tile.m.box, tile.n.box)
        if d is not None:
            return TmaStore(d, staging.dense, vector)
        # Single elements also leave where strides or addresses forbid the vectors that the tile itself would allow.
        row, padded = self.cost.row_of_d(tile) if vector == 1 else staging.row, self.cost.padded(tile)
        return RowStore(row, padded) if row and split == 1 else VectorStore(vector, padded)

    def d_map(self, plan: GemmPlan, tile: WgmmaTile, staging: Staging, split: int) -> TmaMap | None:
        """The tensor map that stores the tile, None where there is none or vectors are cheaper."""
        if not staging.bulk or split > 1 or tile.m.box.flattens or tile.n.box.flattens:
            return None
        return d_map(plan, tile.m.box, tile.n.box, self.size_d, staging.dense)

    def source(self, tma: TmaMap | None = None) -> VectorSource | TmaSource | None:
        """Where C comes from, None where nothing is added."""
        if self.plan.contraction.c is None:
            return None
        return VectorSource() if tma is None else TmaSource(tma)

    def raster(self, tile: WgmmaTile, split: int, rows: int = RASTER) -> PersistentRaster:
        """A block a multiprocessor; clusters of two that fill the device take tiles in its order of clusters."""
        group_m = max(1, min(rows, tile.m.box.tiles) // tile.cluster[0])
        order, blocks = self.device.l2.cluster_order, self.facts.sm_count
        ordered = tile.blocks == 2 and blocks == 2 * len(order)
        return PersistentRaster(blocks, group_m, split, tile.cluster, order if ordered else ())

    def epilogue(self, plan: GemmPlan, tile: WgmmaTile, split: int) -> Epilogue | None:
        """How D is stored, and C read."""
        staging = self.cost.staging(tile)
        return Epilogue(self.stores(plan, tile, staging, self.d_map(plan, tile, staging, split), split), self.source())

    def fitted(
        self,
        tile: WgmmaTile,
        loops: Iterable[Hopper],
        epilogue: Epilogue,
        split: tuple[int, int],
        scheduler: TileScheduler | None = None,
    ) -> Schedule | None:
        """The schedule with the first of some main loops that shared memory holds, None where it holds none.

        The scheduler is a persistent raster unless one is given; who asks adds the forecast.
        """
        if scheduler is None:
            scheduler = self.raster(tile, split[0])
        for loop in loops:
            parts = self.facts.arch, tile.tiling(self.swap_ab), loop, epilogue, scheduler
            smem = smem_plan(Schedule(*parts, SmemPlan(0)), self.plan)
            if smem.size <= self.facts.smem_per_block:
                return Schedule(*parts, smem, split[1])
        return None


def both_roles(kind: type[Made], plan: GemmPlan, facts: ArchFacts) -> Sequence[Made]:
    """A search for either assignment of roles to A and B."""
    return [kind(plan, facts, swap_ab) for swap_ab in (False, True)]
