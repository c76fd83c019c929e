"""Rules of the copies from registers to the staged tile of D: vectors and matrices lie where the fragments have them.

Fragments (PTX ISA, wgmma accumulators): lane 4g + t of warp w holds rows 16w + g and 16w + g + 8 of each atom of 64
rows, columns 8j + 2t and 8j + 2t + 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gett.hw.dtypes import WORD, data_type
from gett.ir.gemm import D
from gett.schedule.rules.rule import Lowered, mma_box, rule
from gett.schedule.rules.smem_places import Places, staged_places
from gett.schedule.spec.epilogue import R2SCopy
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.vectors import tiled_dims
from layouts.swizzle import CHUNK

ATOM_M, MATRIX = 64, 8  # rows of an MMA atom; rows and columns of a matrix that `stmatrix` stores
VECTORS = (2, 4, 8)
WORDS = {"pair_n": 2, "one": 1}
"""Elements of whole registers that a copy writes at once."""


@rule
def copy_kind(x: Lowered) -> Iterator[str]:
    """Vectors and matrices of 16-bit elements, words and float64 are staged for tensor maps, other elements dense."""
    store, d = x.s.epilogue.store, x.plan.contraction.d
    if store.stage is None:
        return
    copy, dense = store.stage.copy, store.stage.swizzle_bytes == CHUNK and store.stage.copy.rows == ATOM_M
    if copy.kind == "scalar":
        if not dense or copy.vector > 1:
            yield f"{copy.vector} elements go to dense places, not to a swizzle of {store.stage.swizzle_bytes} bytes"
        return
    if store.map is None:
        yield f"{copy.kind} of {copy.vector} elements belongs to a store by tensor map"
    if copy.kind in WORDS:
        whole = x.size_d == WORD or (data_type(d.dtype).doubled and copy.vector * x.size_d <= CHUNK)
        if not whole or copy.vector != WORDS[copy.kind]:
            yield f"{copy.kind} of {copy.vector} elements of {x.size_d} bytes, {WORDS[copy.kind]} of {WORD} are written"
        return
    if copy.kind == "vec_n" and x.size_d == WORD and copy.vector in VECTORS and copy.vector * WORD <= CHUNK:
        return
    if not data_type(d.dtype).stmatrix or data_type(d.dtype).tensor is None:
        yield f"{copy.kind} takes 16-bit floats, {d.dtype} has {x.size_d} bytes"
    if copy.vector not in VECTORS or (copy.kind.startswith("stsm") and copy.vector != MATRIX):
        yield f"{copy.kind} of {copy.vector} elements, vectors have {VECTORS}"


@rule
def rows_apart(x: Lowered) -> Iterator[str]:
    """MMA atoms that take parts of swizzle atoms read an MN-major A with such atoms."""
    stage, a = x.s.epilogue.store.stage, x.s.hopper.a
    if stage is None or stage.copy.rows == ATOM_M:
        return
    atom, run, load = a.swizzle_bytes // x.size, stage.copy.rows, a.tma
    if stage.copy.kind != "vec_m" or a.major != "mn" or run != atom or (load is not None and load.run):
        yield f"MMA atoms take {run} rows at a time, A is {a.major}-major with swizzle atoms of {atom}"


def _rows(s: Schedule, copy: R2SCopy) -> Places:
    """Row of M's box in row [warpgroup, MMA atom, row of it] of the accumulators; for padding the number of rows."""
    loop, rows = s.hopper, mma_box(s.tiling).size
    groups = 1 if loop.ping_pong else loop.warpgroups
    first = np.arange(groups)[:, None, None] * loop.mma_m
    mma, x = np.arange(loop.mma_m)[None, :, None], np.arange(ATOM_M)[None, None, :]
    held, room = loop.held_rows(rows)
    row: Places = (first + mma) * ATOM_M + x
    if held:
        row = np.where(row % room < held, row // room * held + row % room, rows)
    elif copy.rows != ATOM_M:
        per = ATOM_M // copy.rows
        row = (first * per + mma + loop.mma_m * (x // copy.rows)) * copy.rows + x % copy.rows
    return np.minimum(row, rows)


@rule
def fragments(x: Lowered) -> Iterator[str]:
    """Neighbours that are written at once lie side by side in the staged tile, aligned."""
    stage, tiles = x.s.epilogue.store.stage, x.s.tiling.mma_tiles
    if stage is None or x.s.split_k > 1:
        return
    n, every = staged_places(stage, "n", x.s.tiling.n), staged_places(stage, "m", x.s.tiling.m)
    for m in every.reshape(tiles, -1):
        yield from _misplaced(x, stage.copy, m, n)


def _misplaced(x: Lowered, copy: R2SCopy, m: Places, n: Places) -> Iterator[str]:
    """What does not lie as the copy writes it; places of M's rows and N's columns in elements."""
    vector, rows = copy.vector, _rows(x.s, copy)
    real = rows < m.size
    at = m[np.minimum(rows, m.size - 1)]
    if copy.kind == "scalar":
        whole = n.size % MATRIX == 0 and all(d.box % MATRIX == 0 for _, d in x.s.tiling.n.tiled[:1])
        if whole and n.size > 1 and n[1] - n[0] == 1 and (np.any(m % 2) or np.any(n[::2] % 2)):
            yield f"columns are written in pairs, rows begin at {m[m % 2 > 0][:1]} and columns at odd places"
        return
    if copy.kind == "one":
        return
    if copy.kind in ("stsm", "vec_n", "pair_n") and n.size % MATRIX:
        yield f"{copy.kind} takes {MATRIX} columns at a time, box_n has {n.size}"
    columns = n
    if copy.kind in ("stsm", "pair_n"):
        run, columns = n.reshape(-1, vector), n[::vector]
    elif copy.kind == "vec_n":
        dims = tiled_dims((("m", x.plan.m, x.s.tiling.m), ("n", x.plan.n, x.s.tiling.n)), D)
        step = dims[0].prefix if dims and dims[0].group == "n" else 0
        if step == 0 or step % MATRIX or n.size % (step * vector):
            yield f"{vector} neighbours of D are {step} columns apart among {n.size}, not whole {MATRIX}"
        run = n.reshape(-1, vector, step).swapaxes(1, 2).reshape(-1, vector)
        columns = run[:, 0]
    elif copy.kind == "stsm_t":
        eights = at.reshape(-1, MATRIX), real.reshape(-1, MATRIX)
        held = eights[1].any(axis=1)
        if np.any(eights[1][held] != 1):
            yield f"{m.size} rows are no whole matrices of {MATRIX}"
        run = eights[0][held]
    else:
        mma_m = x.s.hopper.mma_m
        if mma_m % vector:
            yield f"{vector} neighbours of D are in MMA atoms one after the other, a warpgroup has {mma_m}"
        shape = (-1, mma_m // vector, vector, ATOM_M)
        run, present = (x.reshape(shape).swapaxes(2, 3).reshape(-1, vector) for x in (at, real.astype(np.int64)))
        held = present.any(axis=1)
        if np.any(present[held] != 1):
            yield f"{m.size} rows are no whole groups of {vector} MMA atoms"
        run = run[held]
    apart = np.count_nonzero(run - run[:, :1] != np.arange(vector))
    # Either side starts at whole vectors: the rows' places and the columns', of which the run's own are the first ones.
    starts = [run[:, 0], m if copy.kind in ("stsm", "vec_n", "pair_n") else columns]
    odd = sum(np.count_nonzero(x % vector) for x in starts)
    if apart or odd:
        yield f"{apart} of {run.size} elements apart, {odd} vectors of {vector} start inside others"


FRAGMENT_RULES = (copy_kind, rows_apart, fragments)
"""How accumulators get to the staged tile."""
