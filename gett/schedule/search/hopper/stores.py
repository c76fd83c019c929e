"""How D leaves a tile of the Hopper main loops, and how C comes to it: by tensor map, row by row, or as vectors."""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import D, GemmPlan
from gett.schedule.cost.hopper import HopperCost
from gett.schedule.cost.staging import Staging
from gett.schedule.search.hopper.tma import c_map, staged_map
from gett.schedule.spec.epilogue import Epilogue, RowStore, Store, TmaSource, TmaStore, VectorSource, VectorStore
from gett.schedule.spec.vectors import store_vector
from gett.schedule.tile.wgmma_tile import WgmmaTile
from layouts.tma import TmaMap


def epilogue_of(cost: HopperCost, plan: GemmPlan, tile: WgmmaTile, split: int) -> Epilogue | None:
    """How D is stored and C read, None where the tile needs a tensor map that does not exist.

    Args:
        cost: Of the main loop; knows how tiles are staged.
        plan: Lowered.
        tile: The tile.
        split: Slices of K.
    """
    staging, boxes, added = cost.staging(tile), (tile.m.box, tile.n.box), plan.contraction.c is not None
    mapped = staging.bulk and split == 1 and not any(box.flattens for box in boxes)
    d = staged_map(plan, D, boxes, staging.dense) if mapped else None
    c = c_map(plan, boxes, staging.dense, d) if added and d is not None else None
    if (added and d is not None and c is None) or (d is None and (tile.exchange or tile.mma_tile is not None)):
        return None
    if d is None or not tile.exchange:
        source = None if not added else VectorSource() if c is None else TmaSource(c)
        return Epilogue(_store(cost, plan, tile, staging, d, split), source)
    found = cost.exchanged(tile)
    assert found is not None
    whole = staged_map(plan, D, (found.m, found.n), replace(staging.dense, row=2 * staging.dense.row))
    if whole is None:
        return None
    vector = store_vector(plan, *boxes)
    return Epilogue(TmaStore(whole, staging.dense, vector, exchange=found.exchange))


def _store(cost: HopperCost, plan: GemmPlan, tile: WgmmaTile, staging: Staging, d: TmaMap | None, split: int) -> Store:
    """How D leaves: by the tensor map `d`, else row by row or as vectors."""
    if d is not None:
        return TmaStore(d, staging.dense, store_vector(plan, tile.m.box, tile.n.box))
    staged = split == 1 and plan.contraction.c is None
    vector = store_vector(plan, tile.m.box, tile.n.box, staged=staged)
    # Single elements also leave where strides or addresses forbid the vectors that the tile itself would allow.
    row, padded = cost.row_of_d(tile) if vector == 1 else staging.row, cost.padded(tile)
    return RowStore(row, padded) if row and split == 1 else VectorStore(vector, padded)


def store_of_parts(
    cost: HopperCost, plan: GemmPlan, tile: WgmmaTile, store: TmaStore, count: int, buffers: int
) -> TmaStore | None:
    """The store of a tile in `count` parts, `buffers` of them staged at a time; None where no map stores a part."""
    part = tile.n.box.divided(count)
    if part.size * count != tile.n.box.size or part.size % 8:
        return None
    staging = cost.staging(replace(tile, n=replace(tile.n, box=part)))
    d = staged_map(plan, D, (tile.m.box, part), staging.dense) if staging.bulk else None
    return None if d is None else replace(store, map=d, stage=staging.dense, subtiles=count, buffers=buffers)


def store_beside_parts(plan: GemmPlan, tile: WgmmaTile, store: Store) -> Store:
    """The store of whole tiles beside parts of tiles, whose sums leave as vectors that are not staged."""
    if store.tma is not None:
        return replace(store.tma, reuse_mainloop_smem=False)
    if isinstance(store, VectorStore):
        return replace(store, vector=store_vector(plan, tile.m.box, tile.n.box))
    return store
