"""The parts that a kernel is made of, by name: what tells apart the ways through the kernels.

Knows the records of `gett.schedule.spec`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from gett.schedule.spec.epilogue import Epilogue, RowStore, StagedTile, TmaSource, TmaStore
from gett.schedule.spec.hopper_needs import leads
from gett.schedule.spec.loader import CpAsync, CpAsyncTile, Gather, HopperLoader, RegisterStaged, Stationary, Tma
from gett.schedule.spec.mainloop import (
    DmmaTma,
    Multistage,
    StreamLoad,
    StreamMatrix,
    StreamSum,
    WgmmaRS,
    WgmmaSplit,
    WgmmaSS,
    WgmmaTf32,
)
from gett.schedule.spec.schedule import OneTile, PersistentPanel, PersistentRaster, Schedule, Tiling


def parts_of(s: Schedule) -> frozenset[str]:
    """Names of a schedule's parts."""
    return frozenset((*_mainloop(s), *_tiling(s), *_epilogue(s.epilogue, s.tiling), *_scheduler(s)))


def one_of_each(found: Iterable[Schedule]) -> list[Schedule]:
    """The first schedule of every combination of parts."""
    out: dict[frozenset[str], Schedule] = {}
    for s in found:
        out.setdefault(parts_of(s), s)
    return list(out.values())


def records(value: object) -> set[type]:
    """Types of all records inside a record."""
    if isinstance(value, tuple):
        return set().union(*map(records, value))
    if not is_dataclass(value):
        return set()
    return {type(value)}.union(*(records(getattr(value, field.name)) for field in fields(value)))


def coarse(part: str) -> str:
    """A part without its numbers: what counts where pairs of parts are wanted."""
    return part.split(", ")[0]


def has_k_residue(s: Schedule) -> bool:
    """Whether copies fill only a part of the k-tiles that wgmma multiplies."""
    return isinstance(s.mainloop, WgmmaSS) and s.tiling.k.size < s.tiling.shape[2]


def _mainloop(s: Schedule) -> Iterator[str]:
    loop = s.mainloop
    yield s.kind
    if isinstance(loop, Multistage):
        if loop.k_table:
            yield "K table"
        if loop.batch_warps > 1:
            yield "batch warps"
    elif isinstance(loop, WgmmaRS):
        yield f"k-tiles of two modes, {loop.a.map.swizzle_bytes // 2} x {loop.b.map.swizzle_bytes // 2}"
        yield "A per warpgroup" if loop.per_warpgroup_a else "A for both warpgroups"
    elif isinstance(loop, WgmmaSplit):
        yield f"k-tiles of planes, {loop.plane_stages} of {s.tiling.shape[2]}"
        if leads(loop, s.tiling.k) != (1, 1):
            yield "planes of two modes"
    elif isinstance(loop, DmmaTma):
        yield f"blocks of rows by mma.sync, {loop.mma_m}"
        yield f"k-tiles of float64, {s.tiling.shape[2]}"
        if (found := leads(loop, s.tiling.k)) != (1, 1):
            yield f"float64 of two modes, {found}"
    elif isinstance(loop, WgmmaTf32):
        yield "one MMA block in registers" if loop.mma_m == 1 else f"several MMA blocks in registers, {loop.mma_m}"
        yield f"k-tiles in two parts, of {s.tiling.shape[2] // 8} steps"
        if loop.transposed_stages:
            yield f"B transposed, {loop.transposed_stages} k-tiles of {s.tiling.shape[2]}"
    elif isinstance(loop, WgmmaSS):
        yield "ping-pong" if loop.ping_pong else "cooperative"
        yield "one MMA block" if loop.mma_m == 1 else f"several MMA blocks, {loop.mma_m}"
        if loop.stages == 1:
            yield "one stage"
    if isinstance(loop, WgmmaSS | WgmmaRS) and loop.mma_m * s.tiling.shape[1] // 2 > 96:
        yield "more than 96 accumulators"
    if isinstance(loop, StreamSum):
        yield "sums along K" if loop.along_k else "sums along outputs"
    if isinstance(loop, StreamMatrix):
        yield "vectors along M" if loop.vector > 1 else "vectors along K and N"
        return
    for name in "ab":
        loader = getattr(loop, name)
        yield from (f"{name}: {x}" for x in _loader(loader))


def _loader(x: CpAsync | RegisterStaged | HopperLoader | StreamLoad | None) -> Iterator[str]:
    if x is None:
        yield "none"
    elif isinstance(x, StreamLoad):
        yield "through shared memory" if x.staged else "straight"
        yield "splat" if x.splat else "vectors"
    elif isinstance(x, CpAsync):
        yield f"cp.async {x.major}-major"
    elif isinstance(x, RegisterStaged):
        yield f"register-staged {x.major}-major, vectors along {x.vector_group}"
    elif isinstance(x, CpAsyncTile):
        yield f"cp.async tile {x.major}-major, swizzle {x.swizzle_bytes}, vectors of {x.vector}"
    elif isinstance(x, Gather):
        yield f"gather {x.major}-major, swizzle {x.swizzle_bytes}"
        if x.transform:
            yield f"transposing gather, {x.transform.elements} x {x.run}"
    elif isinstance(x, Stationary):
        yield "stationary"
        yield from _tma(x.load)
    else:
        yield from _tma(x)


def _tma(x: Tma) -> Iterator[str]:
    yield f"TMA {x.major}-major, swizzle {x.map.swizzle_bytes}"
    if x.run:
        yield "atoms with rows to spare"
    if x.repeats:
        yield "loop of copies" if x.copies > 8 else "several copies"
    elif x.map.slabs > 1:
        yield "slabs"
    if x.multicast is not None:
        yield "multicast in turns" if x.divided is None else "multicast of shares"


def _tiling(s: Schedule) -> Iterator[str]:
    t = s.tiling
    if has_k_residue(s):
        yield "K residue"
    yield "one k-tile" if t.k.tiles == 1 else "k-tiles"
    if t.mma_tiles > 1:
        yield f"several MMA tiles, {t.mma_tiles}"
    if t.l is not None:
        yield "several batches"


def _epilogue(x: Epilogue, tiling: Tiling) -> Iterator[str]:
    store = x.store
    yield type(store).__name__
    if store.stage is not None:
        yield from _staged(store.stage, tiling)
    if isinstance(store, RowStore):
        lanes = 8 if store.run <= 71 else 16 if store.run <= 135 else 32
        yield f"rows, {lanes} lanes each"
    if isinstance(store, TmaStore):
        if store.reuse_mainloop_smem:
            yield "staged in the stages"
        if store.subtiles > 1:
            alone = ", each one index" if tiling.n.tiled[-1][1].box == store.subtiles else ""
            yield f"subtiles, {store.subtiles} in {store.buffers} buffers{alone}"
        elif store.buffers > 1:
            yield "TmaStore, two buffers"
        if store.exchange is not None:
            yield "DSMEM exchange" + (", of neighbours" if store.exchange.distance == 1 else "")
        if isinstance(x.source, TmaSource):
            c, d = x.source.map, store.map
            yield "C's map, " + ("D's box" if c.box == d.box else "another box" if c.rank == d.rank else "another rank")
    if x.source is not None:
        yield type(x.source).__name__


def _staged(x: StagedTile, tiling: Tiling) -> Iterator[str]:
    yield f"R2S {x.copy.kind}"
    yield f"staged tile, swizzle {x.swizzle_bytes}"
    if x.copy.rows < 64:
        yield "pieces of blocks of rows"
    if x.cut is not None:
        yield "cut row of D"
    if x.copy.kind == "vec_n" and math.prod(d.box for d in tiling.n.dims[: x.n.index(1)]) > 8:
        yield "R2S vectors, neighbours apart"


def _scheduler(s: Schedule) -> Iterator[str]:
    x = s.scheduler
    if isinstance(x, PersistentPanel):
        yield f"{'one panel' if x.one_panel else 'each panel'} of {x.tensor}"
    else:
        yield "one tile a block" if isinstance(x, OneTile) else "persistent"
    if isinstance(x, PersistentRaster) and x.group_l > 1:
        yield "batches together"
    if s.split_k > 1:
        yield "split-K"
    if x.stream_k:
        yield "stream-K"
    if s.cluster != (1, 1):
        yield "cluster {} x {}".format(*s.cluster)
