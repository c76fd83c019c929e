"""Rules of the epilogues of Hopper kernels: where C comes from, how a tile of D is staged, how it leaves."""

from __future__ import annotations

import math

import numpy as np

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type
from gett.ir.gemm import C, D, GemmPlan, itemsize
from gett.schedule.spec.epilogue import DsmemExchange, RowStore, StagedTile, TmaSource, TmaStore, VectorSource
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.map_check import wrong_map
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.rules_fragments import FRAGMENT_RULES
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import OneTile
from gett.schedule.spec.smem_places import Places, coordinates, mapped_places, staged_places, swizzled
from gett.schedule.spec.vectors import store_vector, tiled_dims
from gett.schedule.spec.wgmma_needs import gathers
from gett.schedule.spec.wgmma_operand import cluster_size
from layouts.box import TileDim
from layouts.swizzle import CHUNK, SPANS
from layouts.tma import TmaMap


def _source(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    source, store, c = s.epilogue.source, s.epilogue.store, plan.contraction.c
    if (source is None) != (c is None):
        return f"source: {0 if c is None else 1} tensors are added, the schedule reads {0 if source is None else 1}"
    if isinstance(source, VectorSource) and isinstance(store, TmaStore):
        return "source: D leaves by 1 tensor map, so C is added where it is staged, not from vectors"
    if isinstance(source, VectorSource) and isinstance(store, RowStore):
        return f"source: rows of {store.run} elements leave as they are staged, without C"
    return None


def _tma_source(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    source, store, contraction = s.epilogue.source, s.epilogue.store, plan.contraction
    if not isinstance(source, TmaSource):
        return None
    if not isinstance(store, TmaStore) or not isinstance(s.mainloop, WgmmaSS) or gathers(s.mainloop):
        return f"C by tensor map: a {type(store).__name__} of a {type(s.mainloop).__name__} has 0 warps that bring C"
    if store.reuse_mainloop_smem:
        return f"C by tensor map: D is staged where {s.wgmma.stages} stages were, C would come too early"
    assert contraction.c is not None
    if contraction.c.dtype != contraction.d.dtype:
        return f"C by tensor map: {contraction.c.dtype} cannot lie where {contraction.d.dtype} is staged, in place of 1"
    modes = (*plan.l, *plan.m, *plan.n)
    if wrong := wrong_map("C", source.map, contraction.c, C, modes):
        return wrong
    d, c = (_mapped(s, plan, made) for made in (store.map, source.map))
    if d is None or c is None or source.map.tile != store.map.tile or not np.array_equal(c, d):
        return f"C by tensor map: its tile of {source.map.tile} does not lie as D's of {store.map.tile}"
    return None


def _mapped(s: Schedule, plan: GemmPlan, made: TmaMap) -> Places | None:
    """Bytes of all elements of a tile of D, rows of M fastest, where copies of a map move them."""
    return mapped_places(made, coordinates([(m, d.box) for m, d, _ in _tiled(s, plan)]))


def _tiled(s: Schedule, plan: GemmPlan) -> list[tuple[int, TileDim, tuple[str, int]]]:
    """Mode of D, dimension, and its group and position: the tiled dimensions of M, then those of N."""
    groups = (("m", len(plan.l), s.tiling.m), ("n", len(plan.l) + len(plan.m), s.tiling.n))
    return [(first + d.modes[0], d, (g, i)) for g, first, box in groups for i, d in box.tiled]


def _stage(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    t, stage = s.tiling, s.epilogue.store.stage
    if stage is None:
        return None if s.split_k > 1 else f"staging: {t.m.size} x {t.n.size} elements of D are staged nowhere"
    for group, box, steps in (("m", t.m, stage.m), ("n", t.n, stage.n)):
        if len(steps) != len(box.dims):
            return f"staging: {len(steps)} steps for {len(box.dims)} dimensions of box_{group}"
    if stage.swizzle_bytes not in (CHUNK, *SPANS):
        return f"staging: no hardware swizzle spans {stage.swizzle_bytes} bytes"
    if stage.cut is not None and stage.cut[2] < 1:
        return f"staging: rows that hold {stage.cut[2]} elements of dimension {stage.cut[:2]}"
    m, n = staged_places(stage, "m", t.m), staged_places(stage, "n", t.n)
    if m.min() < 0 or n.min() < 0 or m.max() + n.max() >= stage.elements:
        return f"staging: elements at {m.max() + n.max()}, the tile has room for {stage.elements}"
    places = (m[:, None] + n[None, :]).ravel()
    taken = np.count_nonzero(np.bincount(places))
    return None if taken == places.size else f"staging: {places.size} elements of D share {taken} places"


def _vector(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    store, t = s.epilogue.store, s.tiling
    vector, widest = store.vector, store_vector(plan, t.m, t.n)
    if vector < 1 or widest % vector:
        return f"vector: {vector} elements of D a store, its strides allow {widest}"
    stage = store.stage
    if isinstance(store, TmaStore) or stage is None or vector == 1 or s.split_k > 1:
        return None
    lead = tiled_dims((("m", plan.m, t.m), ("n", plan.n, t.n)), D)[0]
    steps = {(g, i): step for g, x in (("m", stage.m), ("n", stage.n)) for i, step in enumerate(x)}
    first = steps.pop((lead.group, lead.index))
    wrong = [step for step in steps.values() if step % vector]
    if first == 1 and not wrong:
        return None
    return f"vector: {vector} neighbours in D are {first} apart in the staged tile, runs of them {wrong or vector}"


def _rows(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    store, t, d = s.epilogue.store, s.tiling, plan.contraction.d
    if not isinstance(store, RowStore):
        return None
    if not data_type(d.dtype).stmatrix:
        return f"row store: {d.dtype} has {itemsize(d.dtype)} bytes, rows are shifted by half-words"
    if s.split_k > 1:
        return f"row store: K in {s.split_k} slices, whose sums leave as vectors"
    dims = tiled_dims((("m", plan.m, t.m), ("n", plan.n, t.n)), D)
    if not dims or dims[0].stride != itemsize(d.dtype) or dims[0].box != store.run:
        return f"row store: rows of {store.run} elements, D's first tiled dimension has {dims[0].box if dims else 1}"
    box, modes = (t.m, plan.m) if dims[0].group == "m" else (t.n, plan.n)
    if len(dims[0].modes) != len(box.dims[dims[0].index].modes):
        return f"row store: {len(dims[0].modes)} modes of D continue each other in a row of {len(modes)}"
    step = (store.stage.m if dims[0].group == "m" else store.stage.n)[dims[0].index]
    return None if step == 1 else f"row store: neighbours in a row are {step} apart in the staged tile"


def _tma_store(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    store, t = s.epilogue.store, s.tiling
    if not isinstance(store, TmaStore):
        return None
    if s.split_k > 1:
        return f"D by tensor map: K in {s.split_k} slices, whose sums leave as vectors"
    if t.m.flattens or t.n.flattens:
        return f"D by tensor map: boxes {t.m.dims} and {t.n.dims} take several modes as one"
    if wrong := wrong_map("D", store.map, plan.contraction.d, D, (*plan.l, *plan.m, *plan.n)):
        return wrong
    if store.exchange is not None:
        return None
    tile = (*(1 for _ in plan.l), *t.m.cut, *t.n.cut)
    found = _mapped(s, plan, store.map)
    if found is None or store.map.tile != tile:
        return f"D by tensor map: copies move a tile of {store.map.tile}, the boxes are {tile}"
    if misplaced := np.count_nonzero(found != _staged_bytes(s, plan, store.stage)):
        return f"D by tensor map: {misplaced} of {found.size} elements are not staged where copies read them"
    return None


def _staged_bytes(s: Schedule, plan: GemmPlan, stage: StagedTile) -> Places:
    """Bytes of all elements of a tile in shared memory, rows of M fastest."""
    m, n = staged_places(stage, "m", s.tiling.m), staged_places(stage, "n", s.tiling.n)
    size = itemsize(plan.contraction.d.dtype)
    return swizzled(stage.swizzle_bytes, (m[None, :] + n[:, None]).ravel() * size)


def _reuse(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    store, t, loop = s.epilogue.store, s.tiling, s.wgmma
    if not isinstance(store, TmaStore) or not store.reuse_mainloop_smem:
        return None
    assert not isinstance(s.scheduler, OneTile)
    size, (side_m, side_n) = cluster_size(s), s.cluster
    clusters = -(-t.m.tiles // side_m) * -(-t.n.tiles // side_n) * plan.extent_l
    if clusters > s.scheduler.blocks // size:
        return f"reuse: {clusters * size} tiles for {s.scheduler.blocks} blocks, whose next stages are under way"
    if not isinstance(loop, WgmmaSS) or not isinstance(loop.a, Tma) or not isinstance(loop.b, Tma):
        loaders = f"{type(loop.a).__name__} and {type(loop.b).__name__}"
        return f"reuse: {loop.stages} stages of a {type(loop).__name__} by {loaders} are not free when D is staged"
    if loop.ping_pong or t.mma_tiles > 1:
        return f"reuse: {loop.warpgroups} warpgroups in ping-pong or {t.mma_tiles} MMA tiles still read the stages"
    return "reuse: 1 tensor is added, which comes while stages are read" if s.epilogue.source is not None else None


def _exchange(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    store, t = s.epilogue.store, s.tiling
    if not isinstance(store, TmaStore) or store.exchange is None:
        return None
    exchange, stage = store.exchange, store.stage
    if not store.reuse_mainloop_smem:
        return f"exchange: a second tile needs the place of {s.wgmma.stages} stages"
    if stage.swizzle_bytes != CHUNK or stage.cut is not None or len(stage.order) < 2:
        return f"exchange: tiles of {len(stage.order)} dimensions and a swizzle of {stage.swizzle_bytes} bytes"
    boxes = {"m": t.m, "n": t.n}
    (group, i), (slow, j) = stage.order[0], stage.order[-1]
    row, last, pairs = boxes[group].dims[i], boxes[slow].dims[j], boxes[group].tiles_per_dim[i]
    if s.cluster != ((1, 2) if group == "n" else (2, 1)) or pairs % 2:
        return f"exchange: {pairs} tiles along {group.upper()} in clusters of {s.cluster}, two neighbours are needed"
    first = {"m": len(plan.l), "n": len(plan.l) + len(plan.m)}
    wanted = DsmemExchange(
        math.prod(boxes[group].tiles_per_dim[:i]),
        (first[group] + row.modes[0], row.box),
        (first[slow] + last.modes[0], last.box // 2),
    )
    if exchange != wanted or row.box * itemsize(plan.contraction.d.dtype) != CHUNK or last.box % 2:
        return f"exchange: {exchange}, the tile has rows of {row.box} and {last.box} of them to halve: {wanted}"
    return _exchanged_map(s, plan, store, exchange)


def _exchanged_map(s: Schedule, plan: GemmPlan, store: TmaStore, exchange: DsmemExchange) -> str | None:
    """Whether the map stores what a block has after the exchange: rows of both, of half of the slowest dimension."""
    (row, length), (half, count) = exchange.row, exchange.half
    tiled = _tiled(s, plan)
    dims = [(m, 2 * length if m == row else count if m == half else d.box) for m, d, _ in tiled]
    tile = [1] * len(store.map.tile)
    for m, n in dims:
        tile[m] = n
    local = coordinates(dims)
    found = mapped_places(store.map, local)
    steps = {m: (store.stage.m if g == "m" else store.stage.n)[i] for m, _, (g, i) in tiled}
    # Vector v of either block's tile comes to 2v of the new one, the other block's right behind it.
    staged = sum((x % length if m == row else x) * steps[m] for m, x in local.items())
    place = staged // length * 2 * length + local[row] // length * length + staged % length
    wanted = place * itemsize(plan.contraction.d.dtype)
    if found is None or tuple(tile) != store.map.tile or not np.array_equal(found, wanted):
        return f"exchange: copies move a tile of {store.map.tile}, blocks have {tuple(tile)} after it"
    return None


def _mma_tiles(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    count, store = s.tiling.mma_tiles, s.epilogue.store
    if count == 1:
        return None
    if not isinstance(s.mainloop, WgmmaSS) or s.wgmma.ping_pong:
        loop = f"{type(s.mainloop).__name__} of {s.wgmma.warpgroups} warpgroups"
        return f"staged MMA tiles: {count} of a {loop}{' in ping-pong' if s.wgmma.ping_pong else ''}"
    if not isinstance(store, TmaStore):
        return f"staged MMA tiles: {count} leave together by tensor map, not by a {type(store).__name__}"
    return None


EPILOGUE_RULES = (
    Rule("staging", "Each element of a tile of D has a place of its own where it is staged.", _stage),
    Rule("vector", "D's strides, and the staged tile, allow the vectors that it is stored in.", _vector),
    Rule("source", "C is read where there is one, in a way that the store adds it.", _source),
    Rule("row store", "Rows of 16-bit elements leave as they lie in D and in the staged tile.", _rows),
    Rule("staged MMA tiles", "MMA tiles of one tile of D leave together by tensor map.", _mma_tiles),
    Rule("D by tensor map", "The copies of a tile of D are its boxes, as they are staged.", _tma_store),
    Rule("C by tensor map", "C's tile comes to the places from which D's leaves.", _tma_source),
    Rule("reuse", "D is staged where the stages were if a block makes one tile and nothing else needs them.", _reuse),
    Rule("exchange", "Two neighbours exchange halves of tiles whose rows have 16 bytes.", _exchange),
    *FRAGMENT_RULES,
)
"""How D leaves and C arrives."""
