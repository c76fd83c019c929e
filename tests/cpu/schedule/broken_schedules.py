"""Hopper schedules that each break one rule, by the rule's name, made out of schedules that the searches find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.lower import lower_plan
from gett.schedule.search.base import best_schedules
from gett.schedule.search.hopper.search import both_roles
from gett.schedule.search.hopper.tma import OperandMaps
from gett.schedule.spec.epilogue import Epilogue, R2SCopy, RowStore, TmaSource, VectorSource, VectorStore
from gett.schedule.spec.hopper_needs import tensor_map
from gett.schedule.spec.loader import Stationary, Tma, Transpose
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import OneTile, PersistentPanel, Schedule, Split
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box, TileDim
from layouts.tma import TmaMap
from tests.cases import DENSE, Case
from tests.cpu.schedule import hopper_schedules as hopper
from tests.cpu.schedule.changed_schedules import changed, longer, loop, raster, staged, stream_k, tiling, with_mode
from tests.cpu.schedule.hopper_schedules import Found, store_of, with_store

GROUPED = Case("two-k", "ilk,ljk->ij", {"i": 1024, "j": 1024, "l": 8, "k": 64})
SQUARE_K = Box.of_cuts((64, 64), {0: 32, 1: 32})
OTHER = {"k": "mn", "mn": "k"}
CROWDED = Case("folded", "acbmlk,abcnkl->abcmn", {"a": 2, "b": 3, "c": 2, "m": 256, "n": 512, "k": 64, "l": 64})


def blackwell() -> Found:
    s, plan, _ = hopper.plain()
    return replace(s, arch="sm_100a"), plan, arch_facts("sm_100a")


def doubles() -> Found:
    s, _, facts = hopper.plain()
    return s, make_gemm_plan(hopper.SQUARE.contraction("float64")), facts


def without_k() -> Found:
    s, plan, facts = hopper.plain()
    return s, replace(plan, k=()), facts


def endless() -> Found:
    s, plan, facts = hopper.plain()
    side = Box.of_cuts((2**31,), {0: s.tiling.m.size})
    group = "n" if s.tiling.swap_ab else "m"
    return tiling(s, m=side), with_mode(plan, group, extent=2**31), facts


def vast() -> Found:
    s, plan, facts = hopper.plain()
    m, n = (Box.of_cuts((2**30,), {0: x.size}) for x in (s.tiling.m, s.tiling.n))
    return tiling(s, m=m, n=n), with_mode(with_mode(plan, "m", extent=2**30), "n", extent=2**30), facts


def wide() -> Found:
    s, plan, facts = hopper.plain()
    box = Box.of_cuts(s.tiling.n.extents, {0: 256})
    return (
        loop(tiling(s, shape=(256, 256, s.tiling.shape[2]), n=box), warpgroups=2, mma_m=2, ping_pong=False),
        plan,
        facts,
    )


def deep(s: Schedule) -> Schedule:
    """With k-tiles of which a block's shared memory does not hold one."""
    return tiling(s, k=Box.of_cuts(s.tiling.k.extents, {0: 2048}), shape=(*s.tiling.shape[:2], 2048))


def by_rows() -> Found:
    """TF32, of which wgmma reads no tile whose rows run along M."""
    case = Case("tf32", "ik,jk->ij", {"i": 512, "j": 512, "k": 512})
    plan = make_gemm_plan(case.contraction("float32", precision="tf32"))
    s = best_schedules(both_roles(hopper.WgmmaSSSearch, plan, hopper.FACTS), 1)[0]
    return loop(s, a=replace(s.hopper.a, major="mn")), plan, hopper.FACTS


def beside_c() -> Found:
    """A in registers beside C, with as many columns as there are registers for without it."""
    s, _, facts = hopper.unsliced()
    case = Case("crossed-wide", "mkl,nlk->mn", {"m": 2048, "n": 2048, "k": 64, "l": 64})
    box = Box.of_cuts(s.tiling.n.extents, {0: 256})
    made = tiling(s, n=box, shape=(s.tiling.shape[0], 256, s.tiling.shape[2]))
    return made, make_gemm_plan(case.contraction("float16", with_c=DENSE)), facts


def far() -> Found:
    s, plan, facts = hopper.gathered()
    longest = tuple(replace(m, strides=tuple(x << 30 if x > 2 else x for x in m.strides)) for m in plan.k)
    return s, replace(plan, k=longest), facts


def deep_pieces() -> Found:
    s, plan, facts = hopper.gathered()
    box = Box.of_cuts(s.tiling.k.extents, {s.tiling.k.dims[0].modes[0]: 768})
    made = loop(
        tiling(s, k=box, shape=(*s.tiling.shape[:2], 768)), a=replace(s.hopper.a, run=8), b=replace(s.hopper.b, run=8)
    )
    return made, plan, facts


def short_rows() -> Found:
    s, plan, facts = hopper.gathered()
    box = Box.of_cuts(s.tiling.k.extents, {s.tiling.k.dims[0].modes[0]: 48})
    sides = {name: replace(getattr(s.hopper, name), run=16) for name in "ab"}
    return loop(tiling(s, k=box, shape=(*s.tiling.shape[:2], 48)), **sides), plan, facts


def gathered_residue() -> Found:
    s, plan, facts = hopper.gathered()
    box = Box.of_cuts(s.tiling.k.extents, {s.tiling.k.dims[0].modes[0]: 24})
    sides = {}
    for name in "ab":
        loader = getattr(s.hopper, name)
        sides[name] = replace(loader, run=8, swizzle_bytes=16)
    return loop(tiling(s, k=box, shape=(*s.tiling.shape[:2], 32)), **sides), plan, facts


def flattened() -> Found:
    s, plan, facts = hopper.first(GROUPED, lambda s: s.cluster == (1, 1))
    box = Box(s.tiling.k.extents, (TileDim(tuple(range(len(s.tiling.k.extents))), s.tiling.k.size),))
    return tiling(s, k=box), plan, facts


def half_of_a() -> Found:
    s, plan, facts = hopper.plain()
    lowered, t = lower_plan(plan, s.tiling), s.tiling
    half = OperandTiling(Box.of_cuts(t.m.extents, {0: t.m.size // 2}), lowered.m)
    return loop(s, a=OperandMaps(lowered, 0, 2).load(half, t.k)), plan, facts


def two_stay() -> Found:
    s, plan, facts = hopper.plain()
    tiles = s.tiling.k.tiles
    return loop(s, a=Stationary(s.hopper.a, tiles), b=Stationary(s.hopper.b, tiles)), plan, facts


def one_stays() -> Found:
    s, plan, facts = hopper.plain()
    assert isinstance(s.hopper.a, Tma)
    return loop(s, a=Stationary(s.hopper.a, s.tiling.k.tiles)), plan, facts


def panel_of_none() -> Found:
    s, plan, facts = hopper.plain()
    return replace(s, scheduler=PersistentPanel(132, "a", False, 1)), plan, facts


def few_blocks() -> Found:
    s, plan, facts = hopper.one_panel()
    assert isinstance(s.scheduler, PersistentPanel)
    return replace(s, scheduler=replace(s.scheduler, blocks=1)), plan, facts


def padded_rows() -> Found:
    s, plan, facts = hopper.registers()
    return loop(s, per_warpgroup_a=True, a=whole_copy(s.mainloop)), plan, facts


def whole_copy(x: Any) -> Tma:
    """A's copies as one."""
    ((dim, _, count),) = x.a.repeats
    box = tuple(b * count if i == dim else b for i, b in enumerate(x.a.map.box))
    return replace(x.a, map=replace(x.a.map, box=box), repeats=(), pitch=0)


def many_copies() -> Found:
    s, plan, facts = hopper.registers()
    assert isinstance(s.mainloop, WgmmaRS)
    a = s.mainloop.a
    ((dim, part, count),) = a.repeats
    made = replace(a.map, box=tuple(part // 2 if i == dim else b for i, b in enumerate(a.map.box)))
    pieces = replace(a, map=made, repeats=((dim, part // 2, 2 * count),), pitch=made.slab_bytes)
    return loop(s, a=pieces), plan, facts


def folded_end() -> Found:
    """K's outer mode ends inside a tile, and slower modes share its dimension of B's map."""
    s, plan, facts = hopper.first(CROWDED, search=hopper.WgmmaRSSearch)
    assert isinstance(s.mainloop, WgmmaRS)
    unit, t = s.mainloop.unit_a, s.tiling
    extents = tuple(e - 4 if i == unit else e for i, e in enumerate(t.k.extents))
    short = replace(plan, k=tuple(replace(m, extent=e) for m, e in zip(plan.k, extents, strict=True)))
    lowered = lower_plan(short, t)
    sides = {}
    for name, tensor, free, operand in (("a", 0, lowered.m, lowered.a), ("b", 1, lowered.n, lowered.b)):
        load, modes = getattr(s.mainloop, name), (*lowered.l, *free, *lowered.k)
        assert operand is not None
        has = load.map
        made = tensor_map(operand, tensor, modes, has.tile, has.order, has.swizzle_bytes, unit=has.order[0])
        assert isinstance(made, TmaMap)
        sides[name] = replace(load, map=replace(made, box=has.box))
    return loop(tiling(s, k=replace(t.k, extents=extents)), **sides), short, facts


def wide_row_store() -> Found:
    s, plan, facts = hopper.gathered()
    store = s.epilogue.store
    assert isinstance(store, RowStore)
    return replace(s, epilogue=Epilogue(replace(store, run=2 * store.run))), plan, facts


def exchanged(s: Schedule) -> Schedule:
    exchange = store_of(s).exchange
    assert exchange is not None
    return with_store(s, exchange=replace(exchange, distance=exchange.distance + 1))


def turned(s: Schedule) -> Schedule:
    kind = "stsm_t" if store_of(s).stage.copy.kind == "stsm" else "stsm"
    return staged(s, copy=R2SCopy(kind, 8))


def without_run(s: Schedule) -> Schedule:
    assert isinstance(s.hopper.b, Stationary)
    assert s.hopper.b.load.run
    return loop(s, b=replace(s.hopper.b, load=replace(s.hopper.b.load, run=0)))


def misplaced(s: Schedule) -> Schedule:
    return replace(s, smem=replace(s.smem, barriers=s.smem.barriers + 128))


def longer_c(s: Schedule) -> Schedule:
    assert isinstance(s.epilogue.source, TmaSource)
    return replace(s, epilogue=replace(s.epilogue, source=TmaSource(longer(s.epilogue.source.map))))


def small_gpu() -> Found:
    s, plan, facts = hopper.plain()
    return s, plan, replace(facts, smem_per_block=s.smem.size - 1)


CASES: dict[str, list[Callable[[], Found]]] = {
    "domains": [
        changed(hopper.plain, lambda s: raster(s, group_m=0)),
        changed(hopper.plain, lambda s: raster(s, group_m=1 << 31)),
        changed(hopper.plain, lambda s: raster(s, cluster=(0, 1))),
        changed(hopper.plain, lambda s: raster(s, cluster=(-1, -1))),
        changed(hopper.plain, lambda s: replace(s, workspace_bytes=-1)),
        changed(hopper.plain, lambda s: staged(s, swizzle_bytes=48)),
        changed(wide_row_store, lambda s: replace(s, epilogue=Epilogue(replace(s.epilogue.store, run=512)))),
        changed(hopper.gathered, lambda s: loop(s, a=replace(s.hopper.a, run=0))),
    ],
    "splits": [changed(hopper.plain, lambda s: tiling(s, splits=(Split("m", 0, 24),)))],
    "architecture": [changed(hopper.plain, lambda s: replace(s, arch="sm_80"))],
    "hopper": [blackwell],
    "data types": [doubles],
    "product": [without_k],
    "groups": [
        changed(hopper.plain, lambda s: tiling(s, m=Box.of_cuts((4000,), {0: 128}))),
        changed(hopper.plain, lambda s: tiling(s, l=Box((), ()))),
    ],
    "extents": [endless],
    "scheduler": [
        changed(hopper.plain, lambda s: replace(s, scheduler=OneTile(1, 1))),
        changed(hopper.plain, lambda s: raster(s, blocks=1 << 20)),
        changed(hopper.clustered, lambda s: raster(s, blocks=1)),
        changed(hopper.plain, lambda s: raster(s, cluster_order=(0, 2))),
        changed(hopper.plain, lambda s: raster(s, cluster_order=tuple(range(300)))),
    ],
    "batches together": [
        changed(hopper.plain, lambda s: raster(s, group_l=2)),
    ],
    "stream k": [
        changed(hopper.plain, lambda s: stream_k(s, 1)),
        changed(hopper.plain, lambda s: stream_k(tiling(s, k=Box.of_cuts(s.tiling.k.extents, {0: 4096})), 120)),
        changed(hopper.stationary, lambda s: stream_k(s, 5)),
        changed(hopper.unsliced, lambda s: stream_k(s, s.cluster[0] * s.cluster[1])),
        changed(hopper.mma_tiles, lambda s: stream_k(s, 5)),
        changed(hopper.exchanging, lambda s: stream_k(s, 10)),
    ],
    "warpgroups": [
        changed(hopper.plain, lambda s: loop(s, ping_pong=True, warpgroups=3)),
        changed(hopper.plain, lambda s: loop(s, warpgroups=8, ping_pong=False)),
        changed(hopper.plain, lambda s: loop(s, warpgroups=3, ping_pong=False)),
    ],
    "mma tiles": [
        changed(hopper.plain, lambda s: tiling(s, mma_tiles=3)),
        changed(hopper.gathered, lambda s: tiling(s, mma_tiles=2, shape=s.tiling.shape)),
        changed(hopper.mma_tiles, lambda s: replace(s, epilogue=Epilogue(VectorStore(1, store_of(s).stage)))),
    ],
    "block": [
        changed(hopper.plain, lambda s: tiling(s, shape=(192, *s.tiling.shape[1:]))),
        changed(hopper.plain, lambda s: tiling(s, shape=(s.tiling.shape[0], 264, s.tiling.shape[2]))),
        changed(hopper.plain, lambda s: tiling(s, shape=(*s.tiling.shape[:2], 24))),
        wide,
    ],
    "boxes": [changed(hopper.plain, lambda s: tiling(s, m=Box.of_cuts((4096,), {0: 1024})))],
    "stages": [
        changed(hopper.plain, lambda s: loop(s, stages=1)),
        changed(hopper.plain, lambda s: loop(s, stages=9)),
        changed(hopper.gathered, lambda s: loop(s, stages=1)),
    ],
    "split": [
        changed(hopper.plain, lambda s: raster(s, split_k=s.tiling.k.tiles + 1)),
        changed(hopper.plain, lambda s: raster(s, split_k=s.tiling.k.tiles - 1)),
        changed(hopper.registers, lambda s: raster(s, split_k=s.tiling.k.tiles + 1)),
    ],
    "workspace": [
        changed(hopper.plain, lambda s: raster(s, split_k=2)),
        changed(hopper.plain, lambda s: replace(s, workspace_bytes=1 << 60)),
    ],
    "grid": [
        vast,
        changed(hopper.plain, lambda s: raster(s, group_m=s.tiling.m.tiles + 1)),
    ],
    "producers": [
        changed(hopper.plain, lambda s: loop(s, cp_async_stages=1)),
        changed(hopper.gathered, lambda s: loop(s, producers=1)),
        changed(hopper.gathered, lambda s: loop(s, cp_async_stages=0)),
        changed(hopper.gathered, lambda s: raster(s, cluster=(2, 1))),
        changed(hopper.gathered, lambda s: replace(s, scheduler=PersistentPanel(132, "a", False, 1))),
    ],
    "transpose": [
        changed(hopper.gathered, lambda s: loop(s, a=replace(s.hopper.a, transform=Transpose(8)))),
        changed(hopper.transposed, lambda s: loop(s, b=replace(s.hopper.b, transform=Transpose(8)))),
        changed(hopper.transposed, lambda s: loop(s, a=replace(s.hopper.a, transform=Transpose(12)))),
        changed(hopper.transposed, lambda s: loop(s, a=replace(s.hopper.a, run=2 * s.hopper.a.run))),
    ],
    "pieces": [
        changed(hopper.gathered, lambda s: loop(s, a=replace(s.hopper.a, run=12))),
        changed(hopper.transposed, lambda s: loop(s, a=replace(s.hopper.a, transform=None))),
        short_rows,
        deep_pieces,
    ],
    "offsets": [far],
    "operand tile": [changed(hopper.plain, deep)],
    "atom majors": [by_rows],
    "mapped modes": [
        flattened,
        changed(hopper.plain, lambda s: loop(s, a=replace(s.hopper.a, major=OTHER[s.hopper.a.major]))),
    ],
    "maps": [
        changed(hopper.plain, lambda s: loop(s, a=replace(s.hopper.a, map=longer(s.hopper.a.map)))),
        changed(hopper.plain, lambda s: loop(s, b=replace(s.hopper.b, map=replace(s.hopper.b.map, base_offset=16)))),
    ],
    "copies": [
        half_of_a,
        changed(hopper.stationary, without_run),
        changed(hopper.plain, lambda s: loop(s, a=replace(s.hopper.a, pitch=128))),
        changed(hopper.plain, lambda s: loop(s, a=replace(s.hopper.a, repeats=((5, 1, 1),)))),
    ],
    "k residue": [gathered_residue],
    "cluster": [
        changed(hopper.plain, lambda s: raster(s, cluster=(3, 3))),
        changed(hopper.stationary, lambda s: raster(s, cluster=(1, 2))),
        changed(hopper.plain, lambda s: raster(s, cluster=(2, 1))),
        changed(hopper.clustered, lambda s: raster(s, cluster=(1, 1))),
        changed(hopper.clustered, lambda s: raster(s, cluster=s.cluster[::-1])),
    ],
    "stationary": [
        two_stay,
        changed(one_stays, lambda s: loop(s, a=replace(s.hopper.a, k_tiles=s.tiling.k.tiles + 1))),
        one_stays,
    ],
    "panel": [
        panel_of_none,
        changed(one_stays, lambda s: replace(s, scheduler=PersistentPanel(132, "b", False, 1))),
        few_blocks,
    ],
    "staging": [
        changed(hopper.plain, lambda s: staged(s, m=tuple(0 for _ in s.tiling.m.dims))),
        changed(hopper.plain, lambda s: staged(s, m=())),
        changed(hopper.plain, lambda s: staged(s, elements=1)),
        changed(hopper.plain, lambda s: staged(s, elements=1 << 20)),
        changed(hopper.plain, lambda s: staged(s, order=(("m", 3),))),
        changed(hopper.plain, lambda s: staged(s, row=0)),
        changed(hopper.plain, lambda s: replace(s, epilogue=Epilogue(VectorStore(1)))),
        changed(hopper.shared_registers, lambda s: replace(s, epilogue=Epilogue(VectorStore(1)))),
    ],
    "vector": [changed(hopper.vectors, lambda s: replace(s, epilogue=Epilogue(replace(s.epilogue.store, vector=16))))],
    "source": [
        changed(hopper.plain, lambda s: replace(s, epilogue=replace(s.epilogue, source=VectorSource()))),
        changed(hopper.added, lambda s: replace(s, epilogue=replace(s.epilogue, source=None))),
        changed(hopper.added, lambda s: replace(s, epilogue=replace(s.epilogue, source=VectorSource()))),
    ],
    "row store": [wide_row_store],
    "tma store": [
        changed(hopper.plain, lambda s: with_store(s, map=longer(store_of(s).map))),
        changed(hopper.plain, lambda s: with_store(s, map=replace(store_of(s).map, base_offset=16))),
        changed(hopper.plain, lambda s: with_store(s, map=replace(store_of(s).map, box=store_of(s).map.box[:1]))),
        changed(hopper.plain, lambda s: staged(s, elements=2 * store_of(s).stage.elements)),
        changed(hopper.plain, lambda s: staged(s, row=2 * store_of(s).stage.row)),
    ],
    "subtiles": [
        changed(hopper.plain, lambda s: with_store(s, subtiles=7)),
        changed(hopper.plain, lambda s: with_store(s, subtiles=4, buffers=3)),
        changed(hopper.plain, lambda s: with_store(s, subtiles=2, reuse_mainloop_smem=True)),
        changed(hopper.plain, lambda s: with_store(s, buffers=3)),
        changed(hopper.plain, lambda s: with_store(s, buffers=2, reuse_mainloop_smem=True)),
        changed(hopper.added, lambda s: with_store(s, buffers=2)),
        changed(hopper.added, lambda s: with_store(s, subtiles=2)),
        changed(hopper.mma_tiles, lambda s: with_store(s, subtiles=2)),
    ],
    "tma source": [
        changed(hopper.added, longer_c),
        changed(hopper.added, lambda s: with_store(s, reuse_mainloop_smem=True)),
    ],
    "reuse": [changed(hopper.plain, lambda s: with_store(s, reuse_mainloop_smem=True))],
    "exchange": [
        changed(hopper.exchanging, exchanged),
        changed(hopper.exchanging, lambda s: with_store(s, reuse_mainloop_smem=False)),
    ],
    "copy kind": [
        changed(hopper.vectors, lambda s: staged(s, copy=R2SCopy("stsm", 8))),
        changed(hopper.plain, lambda s: staged(s, copy=R2SCopy("stsm", 4))),
        changed(hopper.vectors, lambda s: staged(s, copy=R2SCopy("scalar", 2))),
        changed(hopper.plain, lambda s: staged(s, copy=replace(store_of(s).stage.copy, rows=32))),
    ],
    "fragments": [
        changed(hopper.plain, turned),
        changed(hopper.plain, lambda s: staged(s, copy=R2SCopy("vec_n", 8))),
        changed(hopper.mma_tiles, lambda s: staged(s, copy=R2SCopy("vec_n", 4, store_of(s).stage.copy.rows))),
    ],
    "shared memory plan": [changed(hopper.plain, misplaced)],
    "shared memory": [small_gpu],
    "units": [
        changed(hopper.registers, lambda s: loop(s, unit_b=s.mainloop.unit_a)),
        changed(hopper.registers, lambda s: loop(s, unit_b=7)),
        changed(hopper.registers, lambda s: loop(s, unit_a=s.mainloop.unit_b, unit_b=s.mainloop.unit_a)),
    ],
    "k tile": [
        changed(hopper.registers, lambda s: tiling(s, k=SQUARE_K, shape=(*s.tiling.shape[:2], SQUARE_K.size))),
        changed(hopper.registers, lambda s: tiling(s, k=Box.of_cuts((64, 64), {0: 64, 1: 8}))),
    ],
    "rs cluster": [
        changed(hopper.registers, lambda s: raster(s, cluster=(2, 2))),
        changed(hopper.unsliced, lambda s: replace(s, scheduler=PersistentPanel(132, "a", False, 1))),
    ],
    "rs copies": [
        changed(hopper.registers, lambda s: loop(s, b=replace(s.mainloop.b, map=longer(s.mainloop.b.map)))),
        many_copies,
        folded_end,
        changed(hopper.registers, lambda s: loop(s, a=replace(s.mainloop.a, pitch=128))),
        changed(hopper.registers, lambda s: loop(s, a=replace(s.mainloop.a, run=1))),
    ],
    "columns": [beside_c],
    "per warpgroup": [padded_rows],
    "sharing a": [
        changed(hopper.shared_registers, lambda s: loop(s, per_warpgroup_a=False)),
        changed(hopper.shared_registers, lambda s: stream_k(s, 10)),
    ],
}  # fmt: skip
