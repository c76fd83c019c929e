"""Rules of the epilogues of Hopper kernels: where C comes from, how a tile of D is staged and copied, how it leaves.

Fragments are those of `gett.schedule.tile.staged_tile`.
"""

from __future__ import annotations

import numpy as np

from gett.hw.dtypes import WORD, data_type
from gett.ir.gemm import C, D
from gett.schedule.rules.common import source, vector
from gett.schedule.rules.hopper import wrong_map
from gett.schedule.rules.rule import Lowered, Reasons, mma_box
from gett.schedule.rules.smem_places import Places, coordinates, mapped_places, staged_places, swizzled
from gett.schedule.spec.epilogue import R2SCopy, RowStore
from gett.schedule.spec.hopper_needs import exchanged
from gett.schedule.spec.mainloop import tile_warpgroups
from gett.schedule.spec.schedule import Schedule
from layouts.box import TileDim
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap

ATOM_M, MATRIX = 64, 8  # rows of an MMA atom; rows and columns of a matrix that `stmatrix` stores
VECTORS: dict[str, tuple[int, ...]] = {"stsm": (MATRIX,), "stsm_t": (MATRIX,), "vec_n": (2, 4, 8), "vec_m": (2, 4, 8)}
"""Elements of 16-bit floats that a copy may write at once."""
WORDS: dict[str, tuple[int, ...]] = {"pair_n": (2,), "one": (1,), "vec_n": (2, 4)}
"""The same of elements of 32 bits, and of float64 in whole registers."""


def copy_kind(x: Lowered) -> Reasons:
    """Vectors and matrices of 16-bit elements, words and float64 are staged for tensor maps, other elements dense."""
    store, d = x.s.epilogue.store, data_type(x.plan.contraction.d.dtype)
    if store.stage is None:
        return
    copy = store.stage.copy
    if copy.kind == "scalar":
        if store.stage.swizzle_bytes != CHUNK or copy.rows != ATOM_M or copy.vector > 1:
            yield f"{copy.vector} elements go to dense places, not to a swizzle of {store.stage.swizzle_bytes} bytes"
        return
    if store.map is None:
        yield f"{copy.kind} of {copy.vector} elements belongs to a store by tensor map"
    if d.stmatrix and d.tensor is not None:
        allowed = VECTORS.get(copy.kind, ())
    else:
        words = x.size_d == WORD or (d.doubled and copy.kind != "vec_n" and copy.vector * x.size_d <= CHUNK)
        allowed = WORDS.get(copy.kind, ()) if words else ()
    if copy.vector not in allowed:
        yield f"{copy.kind} of {copy.vector} elements of {d.name}, which has {x.size_d} bytes; it writes {allowed}"
    # MMA atoms that take parts of swizzle atoms read an MN-major A with such atoms.
    a, load, atom = x.s.hopper.a, x.s.hopper.a.tma, x.s.hopper.a.swizzle_bytes // x.size
    full = a.major == "mn" and copy.rows == atom and (load is None or not load.run)
    if copy.rows != ATOM_M and (copy.kind != "vec_m" or not full):
        yield f"MMA atoms take {copy.rows} rows at a time, A is {a.major}-major with swizzle atoms of {atom}"


def _rows(s: Schedule, copy: R2SCopy) -> Places:
    """Row of M's box in row [warpgroup, MMA atom, row of it] of the accumulators; for padding the number of rows."""
    loop, rows = s.hopper, mma_box(s.tiling).size
    first = np.arange(tile_warpgroups(loop))[:, None, None] * loop.mma_m
    mma, x = np.arange(loop.mma_m)[None, :, None], np.arange(ATOM_M)[None, None, :]
    held, room = loop.held_rows(rows)
    row: Places = (first + mma) * ATOM_M + x
    if held:
        row = np.where(row % room < held, row // room * held + row % room, rows)
    elif copy.rows != ATOM_M:
        per = ATOM_M // copy.rows
        row = (first * per + mma + loop.mma_m * (x // copy.rows)) * copy.rows + x % copy.rows
    return np.minimum(row, rows)


def fragments(x: Lowered) -> Reasons:
    """Neighbours that are written at once lie side by side in the staged tile, aligned."""
    stage, tiles = x.s.epilogue.store.stage, x.s.tiling.mma_tiles
    if stage is None or x.s.split_k > 1:
        return
    n, every = staged_places(stage, "n", x.s.staged_n), staged_places(stage, "m", x.s.tiling.m)
    for m in every.reshape(tiles, -1):
        yield from _misplaced(x, stage.copy, m, n)


def _misplaced(x: Lowered, copy: R2SCopy, m: Places, n: Places) -> Reasons:
    """What does not lie as the copy writes it; places of M's rows and N's columns in elements."""
    vector, rows = copy.vector, _rows(x.s, copy)
    real = rows < m.size
    at = m[np.minimum(rows, m.size - 1)]
    if copy.kind == "scalar":
        whole = n.size % MATRIX == 0 and all(d.box % MATRIX == 0 for _, d in x.s.staged_n.tiled[:1])
        if whole and n.size > 1 and n[1] - n[0] == 1 and (np.any(m % 2) or np.any(n[::2] % 2)):
            yield f"columns are written in pairs, rows begin at {m[m % 2 > 0][:1]} and columns at odd places"
        return
    if copy.kind == "one":
        return
    if copy.kind in ("stsm", "vec_n", "pair_n") and n.size % MATRIX:
        yield f"{copy.kind} takes {MATRIX} columns at a time, box_n has {n.size}"
    if copy.kind in ("stsm", "pair_n"):
        run = n.reshape(-1, vector)
    elif copy.kind == "vec_n":
        step = next((d.prefix for d in x.dims_d[:1] if d.group == "n"), 0)
        if step == 0 or step % MATRIX or n.size % (step * vector):
            yield f"{vector} neighbours of D are {step} columns apart among {n.size}, not whole {MATRIX}"
        run = n.reshape(-1, vector, step).swapaxes(1, 2).reshape(-1, vector)
    else:
        mma_m = x.s.hopper.mma_m
        if copy.kind == "vec_m" and mma_m % vector:
            yield f"{vector} neighbours of D are in MMA atoms one after the other, a warpgroup has {mma_m}"
        shape = (-1, mma_m // vector, vector, ATOM_M) if copy.kind == "vec_m" else (-1, 1, vector, 1)
        run, present = (x.reshape(shape).swapaxes(2, 3).reshape(-1, vector) for x in (at, real.astype(np.int64)))
        held = present.any(axis=1)
        if np.any(present[held] != 1):
            yield f"{m.size} rows are no whole groups of {vector} neighbours of D"
        run = run[held]
    apart = np.count_nonzero(run - run[:, :1] != np.arange(vector))
    # Either side starts at whole vectors: the rows' places and the columns', of which the run's own are the first ones.
    starts = [run[:, 0], m if copy.kind in ("stsm", "vec_n", "pair_n") else n]
    odd = sum(np.count_nonzero(x % vector) for x in starts)
    if apart or odd:
        yield f"{apart} of {run.size} elements apart, {odd} vectors of {vector} start inside others"


def _tiled(x: Lowered) -> list[tuple[int, TileDim, int]]:
    """Mode of D, dimension, and elements between neighbours as staged, of the tiled dimensions of M, then of N."""
    stage, first = x.s.epilogue.store.stage, len(x.plan.l)
    assert stage is not None
    sides = ((first, x.s.tiling.m, stage.m), (first + len(x.plan.m), x.s.staged_n, stage.n))
    return [(at + d.modes[0], d, steps[i]) for at, box, steps in sides for i, d in box.tiled]


def _mapped(x: Lowered, made: TmaMap) -> Places | None:
    """Bytes of all elements of a tile of D, rows of M fastest, where copies of a map move them."""
    return mapped_places(made, coordinates([(m, d.box) for m, d, _ in _tiled(x)]))


def staging(x: Lowered) -> Reasons:
    """Each element of a tile of D has a place of its own where it is staged."""
    m_box, n_box, stage = x.s.tiling.m, x.s.staged_n, x.s.epilogue.store.stage
    if stage is None:
        yield f"{m_box.size} x {n_box.size} elements of D are staged nowhere"
        return
    if stage.elements * x.size_d > x.facts.smem_per_block:
        yield f"room for {stage.elements} elements, {x.facts.arch} gives a block {x.facts.smem_per_block} bytes"
    if (len(stage.m), len(stage.n)) != (len(m_box.dims), len(n_box.dims)):
        dims = f"{len(m_box.dims)} and {len(n_box.dims)} dimensions"
        yield f"{len(stage.m)} and {len(stage.n)} steps for boxes of {dims}"
    tiled = [(g, i) for g, box in (("m", m_box), ("n", n_box)) for i, _ in box.tiled]
    if (stage.order and sorted(stage.order) != tiled) or (stage.row > 0) != (stage.order != ()):
        yield f"rows of {stage.row} elements in the order {stage.order}, the tiled dimensions are {tiled}"
    m, n = staged_places(stage, "m", m_box), staged_places(stage, "n", n_box)
    if m.min() < 0 or n.min() < 0 or m.max() + n.max() >= stage.elements:
        yield f"elements at {m.max() + n.max()}, the tile has room for {stage.elements}"
    places = (m[:, None] + n[None, :]).ravel()
    if (taken := np.count_nonzero(np.bincount(places))) != places.size:
        yield f"{places.size} elements of D share {taken} places"


def row_store(x: Lowered) -> Reasons:
    """Rows of 16-bit elements leave as they lie in D and in the staged tile, of which no sums are left to add."""
    store, t, d = x.s.epilogue.store, x.s.tiling, x.plan.contraction.d
    if not isinstance(store, RowStore):
        return
    if not data_type(d.dtype).stmatrix or x.s.split_k > 1:
        yield f"{d.dtype} has {x.size_d} bytes, rows are shifted by half-words; K is in {x.s.split_k} slices"
    first = next(iter(x.dims_d), None)
    if first is None or first.stride != x.size_d or first.box != store.run:
        yield f"rows of {store.run} elements, D's first tiled dimension is {first}"
        return
    box, steps = (t.m, store.stage.m) if first.group == "m" else (t.n, store.stage.n)
    if len(first.modes) != len(box.dims[first.index].modes) or steps[first.index] != 1:
        yield f"{len(first.modes)} modes of D continue each other, neighbours are staged {steps[first.index]} apart"


def tma_store(x: Lowered) -> Reasons:
    """The copies of a tile of D are its boxes, as they are staged."""
    store, m_box, n_box = x.s.epilogue.store.tma, x.s.tiling.m, x.s.staged_n
    if store is None:
        return
    if x.s.split_k > 1:
        yield f"K in {x.s.split_k} slices, whose sums leave as vectors"
    if m_box.flattens or n_box.flattens:
        yield f"boxes {m_box.dims} and {n_box.dims} take several modes as one"
    yield from wrong_map("D", store.map, x.plan.contraction.d, D, (*x.plan.l, *x.plan.m, *x.plan.n))
    if store.stage.elements != m_box.size * n_box.size:
        yield f"a tile of {m_box.size} x {n_box.size} elements has room for {store.stage.elements}"
    if store.exchange is not None:
        return
    if store.stage.row not in (0, store.map.box[0]):
        yield f"rows of {store.stage.row} elements, copies have {store.map.box[0]}"
    tile = (*(1 for _ in x.plan.l), *m_box.cut, *n_box.cut)
    found = _mapped(x, store.map)
    m, n = staged_places(store.stage, "m", m_box), staged_places(store.stage, "n", n_box)
    staged = swizzled(store.stage.swizzle_bytes, (m[None, :] + n[:, None]).ravel() * x.size_d)
    if found is None or store.map.tile != tile:
        yield f"copies move a tile of {store.map.tile}, the boxes are {tile}"
    elif misplaced := np.count_nonzero(found != staged):
        yield f"{misplaced} of {found.size} elements are not staged where copies read them"


def subtiles(x: Lowered) -> Reasons:
    """Parts of a tile divide it in whole groups of eight columns; nothing but D comes to where they are staged."""
    store, n = x.s.epilogue.store.tma, x.s.tiling.n
    if store is None or store.subtiles == store.buffers == 1:
        return
    if store.subtiles > 1 and (not n.tiled or n.tiled[-1][1].box % store.subtiles or n.size // store.subtiles % MATRIX):
        yield f"{store.subtiles} parts of a box {n.dims} are no whole groups of {MATRIX} columns"
    if store.subtiles % store.buffers and (store.subtiles, store.buffers) != (1, 2):
        yield f"{store.subtiles} parts of a tile take turns in {store.buffers} buffers"
    if x.s.epilogue.source is not None or store.exchange is not None or store.reuse_mainloop_smem:
        yield f"{store.subtiles} parts of a tile lie neither where C comes, nor with another block's, nor in the stages"
    if x.s.hopper.by_warps or x.s.tiling.mma_tiles > 1:
        yield f"{store.subtiles} parts of {x.s.tiling.mma_tiles} MMA tiles, or no warp that stores them"


def tma_source(x: Lowered) -> Reasons:
    """C's tile comes to the places from which D's leaves, of a main loop that has a warp for it."""
    made, store, c = x.s.epilogue.source_map, x.s.epilogue.store, x.plan.contraction.c
    if made is None:
        return
    assert c is not None
    if store.map is None or not x.s.hopper.loads_c or x.s.hopper.by_warps:
        yield f"a {type(store).__name__} of a {type(x.s.mainloop).__name__} has 0 warps that bring C"
        return
    if store.reuse_mainloop_smem:
        yield f"D is staged where {x.s.hopper.stages} stages were, C would come too early"
    if c.dtype != x.plan.contraction.d.dtype:
        yield f"{c.dtype} cannot lie where {x.plan.contraction.d.dtype} is staged, in place of 1"
    yield from wrong_map("C", made, c, C, (*x.plan.l, *x.plan.m, *x.plan.n))
    at_d, at_c = _mapped(x, store.map), _mapped(x, made)
    if at_d is None or at_c is None or made.tile != store.map.tile or not np.array_equal(at_c, at_d):
        yield f"its tile of {made.tile} does not lie as D's of {store.map.tile}"


def reuse(x: Lowered) -> Reasons:
    """D is staged where the stages were if a block makes one tile, of float64 any, and nothing else needs them."""
    store, t, loop = x.s.epilogue.store, x.s.tiling, x.s.hopper
    if not store.reuse_mainloop_smem:
        return
    waits = loop.waits_for_d and x.blocks == 1  # no zeros stay in its stages, no other block fills them
    if x.clusters > x.s.scheduler.blocks // x.blocks and not waits:
        yield f"{x.clusters * x.blocks} tiles for {x.s.scheduler.blocks} blocks, whose next stages are under way"
    if not loop.frees_stages or loop.keeps or loop.by_warps:
        loaders = f"{type(loop.a).__name__} and {type(loop.b).__name__}"
        yield f"{loop.stages} stages of a {type(loop).__name__} by {loaders} are not free when D is staged"
    if loop.ping_pong or t.mma_tiles > 1 or x.s.epilogue.source is not None:
        how = f"{loop.warpgroups} warpgroups in ping-pong, {t.mma_tiles} MMA tiles or C"
        yield f"{how} still need the stages"


def exchange(x: Lowered) -> Reasons:
    """Two neighbours exchange halves of tiles whose rows have 16 bytes, and store rows of both."""
    store, t = x.s.epilogue.store.tma, x.s.tiling
    if store is None or store.exchange is None:
        return
    if not store.reuse_mainloop_smem:
        yield f"a second tile needs the place of {x.s.hopper.stages} stages"
    made = exchanged(t.m, t.n, store.stage, x.size_d, len(x.plan.l))
    if made is None or made.cluster != x.s.cluster or made.exchange != store.exchange:
        yield f"{store.exchange} in clusters of {x.s.cluster}, the tile has {made}"
        return
    # The map stores what a block has after the exchange: rows of both, of half of the slowest dimension.
    tile, (row, length), tiled = (*(1 for _ in x.plan.l), *made.m.cut, *made.n.cut), store.exchange.row, _tiled(x)
    local = coordinates([(m, tile[m]) for m, _, _ in tiled])
    found = mapped_places(store.map, local)
    # Vector v of either block's tile comes to 2v of the new one, the other block's right behind it.
    staged = sum((local[m] % length if m == row else local[m]) * step for m, _, step in tiled)
    place = staged // length * 2 * length + local[row] // length * length + staged % length
    if found is None or tile != store.map.tile or not np.array_equal(found, place * x.size_d):
        yield f"copies move a tile of {store.map.tile}, blocks have {tile} after it"


EPILOGUE_RULES = (
    *(subtiles, staging, vector, source, row_store, tma_store, tma_source, reuse, exchange, copy_kind, fragments),
)
