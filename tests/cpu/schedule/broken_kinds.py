"""For each Hopper main loop and each of its rules a schedule that breaks the rule, made out of one that is legal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.search.base import best_schedules
from gett.schedule.search.hopper.fragments import DmmaTmaSearch, WgmmaTf32Search
from gett.schedule.search.hopper.search import both_roles
from gett.schedule.search.hopper.tma import OperandMaps
from gett.schedule.search.hopper.wgmma_rs import WgmmaRSSearch
from gett.schedule.search.hopper.wgmma_split import WgmmaSplitCopySearch, WgmmaSplitSearch
from gett.schedule.spec.epilogue import DsmemExchange, Epilogue, R2SCopy, RowStore, TmaSource, VectorSource, VectorStore
from gett.schedule.spec.loader import CpAsyncTile, Multicast
from gett.schedule.spec.mainloop import DmmaTma, WgmmaRS, WgmmaSplit, WgmmaSS, WgmmaTf32
from gett.schedule.spec.schedule import PersistentPanel, Schedule, Split
from gett.schedule.tile.wgmma_tile import OperandTiling
from layouts.box import Box, TileDim
from tests.cases import DENSE, Case
from tests.cpu.schedule.broken_schedules import CASES
from tests.cpu.schedule.changed_schedules import longer, loop, raster, staged, stream_k, tiling, with_mode
from tests.cpu.schedule.hopper_schedules import FACTS, Found, WholeSS

Change = Callable[[Found], Found]
Where = Callable[[Schedule], bool]

GEMM = Case("gemm", "ik,jk->ij", {"i": 4096, "j": 4096, "k": 4096})
TURNED = Case("turned", "ik,kj->ij", {"i": 4096, "j": 4096, "k": 4096})
GROUPED = Case("grouped", "ilk,ljk->ij", {"i": 1024, "j": 1024, "l": 8, "k": 64})
TWO_K = Case("two-k", "mkl,nlk->mn", {"m": 2048, "n": 2048, "k": 64, "l": 64})
SMALL = Case("small", "ik,kj->ij", {"i": 328, "j": 416, "k": 96})
ODD = Case("odd", "ik,jk->ij", {"i": 1024, "j": 1024, "k": 1022})


class WholeTf32(WgmmaTf32Search):
    """D's tile is staged in one piece."""

    tried = replace(WgmmaTf32Search.tried, subtiles=())


BASES: dict[type, tuple[Case, str, str, Any]] = {
    WgmmaSS: (GEMM, "float16", "ieee", WholeSS),
    WgmmaRS: (TWO_K, "float16", "ieee", WgmmaRSSearch),
    WgmmaSplit: (GEMM, "float32", "bf16x3", WgmmaSplitSearch),
    WgmmaTf32: (TURNED, "float32", "tf32", WholeTf32),
    DmmaTma: (GEMM, "float64", "ieee", DmmaTmaSearch),
}
"""What has a legal schedule of each main loop: case, type, precision, search."""


def is_plain(s: Schedule) -> bool:
    """D leaves by tensor map, blocks share nothing, and the plan is taken as it is."""
    return s.epilogue.store.map is not None and s.cluster == (1, 1) and s.split_k == 1 and not s.tiling.swap_ab


def is_narrow(s: Schedule) -> bool:
    """The same, with a tile beside which registers hold C."""
    return is_plain(s) and s.tiling.shape[1] < 224


def always(s: Schedule) -> bool:
    return True


def one_by_one(s: Schedule) -> bool:
    """Accumulators go one by one to where a swizzle puts them."""
    return s.epilogue.store.stage is not None and s.epilogue.store.stage.copy.kind == "one"


@lru_cache
def base(kind: type, where: Where = is_plain, c: bool = False, case: Case | None = None) -> Found:
    """The first legal schedule of a main loop that is as asked for."""
    usual, dtype, precision, search = BASES[kind]
    plan = make_gemm_plan((case or usual).contraction(dtype, precision=precision, with_c=DENSE if c else None))
    found = best_schedules(both_roles(search, plan, FACTS), 60)
    return next(s for s in found if where(s)), plan, FACTS


def copied() -> Found:
    """Planes of operands that `cp.async` brings."""
    plan = make_gemm_plan(ODD.contraction("float32", precision="bf16x3"))
    return best_schedules(both_roles(WgmmaSplitCopySearch, plan, FACTS), 1)[0], plan, FACTS


def widest_complex() -> Found:
    """Complex numbers in the widest tile, which leaves by tensor map."""
    plan = make_gemm_plan(GEMM.contraction("complex64", precision="bf16x6"))
    found = best_schedules(both_roles(WgmmaSplitSearch, plan, FACTS), 60)
    return next(s for s in found if s.tiling.shape[1] == 64 and s.epilogue.store.tma), plan, FACTS


def of_schedule(change: Callable[[Schedule], Schedule]) -> Change:
    return lambda found: (change(found[0]), *found[1:])


def dtype(name: str) -> Change:
    return lambda found: (found[0], make_gemm_plan(GEMM.contraction(name)), found[2])


def cut(extents: tuple[int, ...], side: int) -> Box:
    return Box.of_cuts(extents, {0: side})


def deep(k: int, block: int) -> Change:
    """With k-tiles of `k` in blocks of `block`."""
    return of_schedule(lambda s: tiling(s, k=cut(s.tiling.k.extents, k), shape=(*s.tiling.shape[:2], block)))


def wide(columns: int) -> Change:
    return of_schedule(
        lambda s: tiling(s, n=cut(s.tiling.n.extents, columns), shape=(s.tiling.shape[0], columns, s.tiling.shape[2]))
    )


def endless(found: Found) -> Found:
    s, plan, facts = found
    return tiling(s, m=cut((2**31,), s.tiling.m.size)), with_mode(plan, "m", extent=2**31), facts


def stored(s: Schedule, store: Any, source: Any = None) -> Schedule:
    return replace(s, epilogue=Epilogue(store, source))


def store(s: Schedule, **changes: Any) -> Schedule:
    return replace(s, epilogue=replace(s.epilogue, store=replace(s.epilogue.store, **changes)))


def other_c(found: Found) -> Found:
    """C by a map that is longer than it; there is a C now."""
    s, plan, facts = found
    added = replace(plan, contraction=replace(plan.contraction, c=plan.contraction.d))
    return stored(s, s.epilogue.store, TmaSource(longer(s.epilogue.store.map))), added, facts


def small(found: Found) -> Found:
    s, plan, facts = found
    return s, plan, replace(facts, smem_per_block=s.smem.size - 1)


def flat(found: Found) -> Found:
    s, plan, facts = found
    extents = s.tiling.k.extents
    return tiling(s, k=Box(extents, (TileDim(tuple(range(len(extents))), s.tiling.k.size),))), plan, facts


def whole_k(found: Found) -> Found:
    """K of two modes, taken as one."""
    s, plan, facts = found
    (k,) = plan.k
    outer = replace(k, extent=64, strides=tuple(64 * x for x in k.strides))
    box = Box((64, 64), (TileDim((0, 1), s.tiling.k.size),))
    return tiling(s, k=box), replace(plan, k=(replace(k, extent=64), outer)), facts


def other_map(s: Schedule) -> Schedule:
    return loop(s, a=replace(s.hopper.a, map=longer(s.hopper.a.map)))


def a_copy(s: Schedule, **changes: Any) -> Schedule:
    """With changed copies by `cp.async`."""
    name = "a" if isinstance(s.hopper.a, CpAsyncTile) else "b"
    return loop(s, **{name: replace(getattr(s.hopper, name), **changes)})


def short_rows(s: Schedule) -> Schedule:
    """With a swizzle of 64 bytes."""
    return loop(s, **{x: replace(getattr(s.hopper, x), swizzle_bytes=64) for x in "ab"})


def reusing_pairs(s: Schedule) -> Schedule:
    """Blocks share A in pairs and stage D where the stages were, which the other block fills."""
    return store(
        raster(loop(s, a=replace(s.hopper.a, multicast=Multicast(2, None))), cluster=(1, 2)), reuse_mainloop_smem=True
    )


def taller(s: Schedule) -> Schedule:
    """With twice the rows, the sums of which registers do not hold beside fragments."""
    return loop(tiling(s, shape=(256, *s.tiling.shape[1:])), mma_m=2)


def in_pairs(s: Schedule) -> Schedule:
    return staged(s, copy=R2SCopy("pair_n", 2))


def long_rows() -> Found:
    """K-tiles of 16 times 2 k of two contracted modes."""
    s, plan, facts = base(DmmaTma, case=TWO_K)
    unit = next(i for i, m in enumerate(plan.k) if m.strides[0] == 8)
    box = Box.of_cuts(s.tiling.k.extents, {unit: 16, 1 - unit: 2})
    sides = (("a", 0, OperandTiling(s.tiling.m, plan.m)), ("b", 1, OperandTiling(s.tiling.n, plan.n)))
    loads = {name: OperandMaps(plan, tensor, 8).load(side, box) for name, tensor, side in sides}
    return loop(tiling(s, k=box), **loads), plan, facts


def backwards(found: Found) -> Found:
    """The rows of the operands go down in memory."""
    s, plan, facts = found
    return s, replace(plan, m=tuple(replace(m, strides=tuple(-x for x in m.strides)) for m in plan.m)), facts


SHARED: dict[str, Change] = {
    "domains": of_schedule(lambda s: raster(s, group_m=0)),
    "architecture": of_schedule(lambda s: replace(s, arch="sm_80")),
    "splits": of_schedule(lambda s: tiling(s, splits=(Split("m", 0, 24),))),
    "precision": of_schedule(lambda s: replace(s, precision="bf16x6")),
    "hopper": lambda found: (replace(found[0], arch="sm_100a"), found[1], arch_facts("sm_100a")),
    "data types": dtype("float64"),
    "product": lambda found: (found[0], replace(found[1], k=()), found[2]),
    "groups": of_schedule(lambda s: tiling(s, m=cut((4000,), 128))),
    "extents": endless,
    "scheduler": of_schedule(lambda s: raster(s, blocks=1 << 20)),
    "batches together": of_schedule(lambda s: raster(s, group_l=2)),
    "stream k": of_schedule(lambda s: stream_k(s, 1)),
    "mma tiles": of_schedule(lambda s: tiling(s, mma_tiles=3)),
    "block": of_schedule(lambda s: tiling(s, shape=(192, *s.tiling.shape[1:]))),
    "boxes": of_schedule(lambda s: tiling(s, m=cut(s.tiling.m.extents, 1024))),
    "stages": of_schedule(lambda s: loop(s, stages=1)),
    "split": of_schedule(lambda s: raster(s, split_k=s.tiling.k.tiles + 1)),
    "workspace": of_schedule(lambda s: replace(s, workspace_bytes=1 << 30)),
    "grid": of_schedule(lambda s: raster(s, group_m=s.tiling.m.tiles + 1)),
    "operand tile": deep(4096, 4096),
    "full k tiles": deep(12, 16),
    "panel": of_schedule(lambda s: replace(s, scheduler=PersistentPanel(132, "a", False, 1))),
    "mapped modes": whole_k,
    "maps": of_schedule(other_map),
    "copies": of_schedule(lambda s: loop(s, a=replace(s.hopper.a, pitch=128))),
    "cluster": of_schedule(lambda s: raster(s, cluster=(2, 1))),
    "staging": of_schedule(lambda s: staged(s, elements=1)),
    "vector": of_schedule(lambda s: stored(s, VectorStore(16, s.epilogue.store.stage))),
    "source": of_schedule(lambda s: stored(s, s.epilogue.store, VectorSource())),
    "row store": of_schedule(lambda s: stored(s, RowStore(3, s.epilogue.store.stage))),
    "tma store": of_schedule(lambda s: store(s, map=longer(s.epilogue.store.map))),
    "subtiles": of_schedule(lambda s: store(s, subtiles=1, buffers=3)),
    "tma source": other_c,
    "reuse": of_schedule(lambda s: store(s, reuse_mainloop_smem=True)),
    "exchange": of_schedule(lambda s: store(s, exchange=DsmemExchange(1, (0, 1), (0, 1)))),
    "copy kind": of_schedule(lambda s: staged(s, copy=R2SCopy("scalar", 2))),
    "fragments": of_schedule(lambda s: staged(s, copy=R2SCopy("vec_n", 2))),
    "shared memory plan": of_schedule(lambda s: replace(s, smem=replace(s.smem, barriers=s.smem.barriers + 128))),
    "shared memory": small,
}
"""Changes of a plain schedule, by the rule that they break."""


def made(base: Callable[[], Found], change: Change) -> Callable[[], Found]:
    return lambda: change(base())


OWN: dict[type, dict[str, Callable[[], Found]]] = {
    WgmmaRS: {
        "columns": lambda: (base(WgmmaRS)[0], base(WgmmaRS, always, c=True)[1], FACTS),
        "mapped modes": made(lambda: base(WgmmaRS), flat),
        "tma source": made(lambda: base(WgmmaRS, is_narrow), other_c),
    },
    WgmmaSplit: {
        "vectors": made(copied, of_schedule(lambda s: a_copy(s, vector=4))),
        "copying": lambda: (copied()[0], make_gemm_plan(ODD.contraction("float32", precision="fp16x3")), FACTS),
        "offsets": made(copied, backwards),
        "splitting": made(lambda: base(WgmmaSplit), of_schedule(lambda s: raster(s, cluster=(2, 1)))),
        "vectors of sums": made(
            widest_complex, of_schedule(lambda s: stored(s, VectorStore(2, s.epilogue.store.stage)))
        ),
        "k order": made(copied, lambda found: deep(48, 48)(of_schedule(short_rows)(found))),
    },
    WgmmaTf32: {
        "in registers": made(lambda: base(WgmmaTf32), of_schedule(lambda s: loop(s, transposed_stages=0))),
    },
    DmmaTma: {
        "data types": made(lambda: base(DmmaTma), dtype("float16")),
        "doubles": made(
            lambda: base(DmmaTma), of_schedule(lambda s: loop(tiling(s, shape=(256, *s.tiling.shape[1:])), mma_m=2))
        ),
        "reuse": made(lambda: base(DmmaTma), of_schedule(reusing_pairs)),
        "k of doubles": long_rows,
        "fragments": made(lambda: base(DmmaTma, one_by_one, case=SMALL), of_schedule(in_pairs)),
    },
}
"""Schedules that break a rule of one main loop, or a shared one where the plain schedule does not break it so."""


def breaking(kind: type, rule: str) -> list[Callable[[], Found]]:
    """Schedules of a main loop that break a rule first."""
    if rule in OWN.get(kind, {}):
        return [OWN[kind][rule]]
    if rule in SHARED:
        return [made(lambda: base(kind), SHARED[rule])]
    return [make for make in CASES[rule] if type(make()[0].mainloop) is kind]
