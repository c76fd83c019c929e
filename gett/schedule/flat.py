"""Composed schedules as the flat records that code generation still reads. Goes when it reads the composed ones."""

from __future__ import annotations

from gett.schedule import records as old
from gett.schedule import stream_records as old_stream
from gett.schedule.spec.epilogue import RowStore, StagedTile, TmaSource, TmaStore
from gett.schedule.spec.loader import CpAsync, Gather, RegisterStaged, Stationary, Tma, WgmmaLoader, tma_of
from gett.schedule.spec.mainloop import Multistage, StreamLoad, StreamMap, StreamSum, WgmmaRS, WgmmaSS
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import OneTile, PersistentPanel
from layouts.box import Box
from layouts.swizzle import SmemLayout

_PUTS = {"scalar": "", "stsm": "rows", "stsm_t": "turned", "vec_n": "columns", "vec_m": "blocks"}


def flat(s: Schedule, item_bytes: int) -> old.Schedule:
    """The flat record; `item_bytes` are those of the operands' elements."""
    loop, t = s.mainloop, s.tiling
    family = {Multistage: "", WgmmaSS: "sm90", WgmmaRS: "sm90", StreamMap: "stream", StreamSum: "stream"}[type(loop)]
    warps, stages, a, b, batch, roles, stream = (s.threads // 32, 1), 1, None, None, None, None, None
    if isinstance(loop, Multistage):
        family, warps, stages = "sm80" if loop.tensor_cores else "simt", loop.warps, loop.stages
        a, b = _access(loop.a), _access(loop.b)
        batch = old.Batch(t.l, loop.batch_warps) if t.l is not None else None
    elif isinstance(loop, WgmmaSS | WgmmaRS):
        roles, stages = _roles(s), loop.stages
    else:
        stream = _stream(loop)
        group = "k" if isinstance(loop, StreamSum) and loop.along_k else "mn"
        a = _image(loop.a, t.m, item_bytes, isinstance(loop, StreamMap), group)
        b = None if loop.b is None else _image(loop.b, t.m, item_bytes, isinstance(loop, StreamMap), group)
    return old.Schedule(
        family=family, arch=s.arch, block=t.block, warps=warps, num_stages=stages, box_m=t.m, box_n=t.n, box_k=t.k,
        k_table=isinstance(loop, Multistage) and loop.k_table, a=a, b=b, vector_d=s.epilogue.store.vector,
        split_k=s.split_k, group_m=8 if stream is not None else s.scheduler.group_m, smem_bytes=s.smem.size,
        item_bytes=item_bytes, exchanged=t.swap_ab, splits=tuple(old.Split(x.group, x.mode, x.inner) for x in t.splits),
        roles=roles, blocks=0 if isinstance(s.scheduler, OneTile) else s.scheduler.blocks,
        workspace_bytes=s.workspace_bytes, estimate_us=s.forecast.us, bound=s.forecast.bound,
        reason=s.forecast.reason, batch=batch, stream=stream,
    )  # fmt: skip


def _access(x: CpAsync | RegisterStaged) -> old.Access:
    if isinstance(x, CpAsync):
        return old.Access(x.major, x.vector, True, x.major, x.smem)
    return old.Access(x.major, x.vector, False, x.vector_group, x.smem, x.walk, x.conflicts)


def _move(x: Tma | None) -> old.BulkMove | None:
    if x is None:
        return None
    divided = x.multicast.divided if x.multicast is not None else None
    return old.BulkMove(x.major, x.map, x.blocks, divided, x.repeats, x.pitch, x.run)


def _gather(x: WgmmaLoader) -> old.Gather | None:
    return old.Gather(x.major, x.run, x.swizzle_bytes, x.transpose) if isinstance(x, Gather) else None


def _stage(x: StagedTile | None) -> old.StageSteps:
    if x is None:
        return old.StageSteps((), (), 0, 1)
    return old.StageSteps(
        x.m, x.n, x.elements, x.conflicts, _PUTS[x.copy.kind], x.copy.vector, x.copy.rows, x.row, x.swizzle_bytes,
        x.cut, x.order,
    )  # fmt: skip


def _roles(s: Schedule) -> old.WarpRoles:
    loop, store, source = s.wgmma, s.epilogue.store, s.epilogue.source
    ss = isinstance(loop, WgmmaSS)
    resident = line = ""
    for name, loader in (("a", loop.a), ("b", loop.b)):
        if isinstance(loader, Stationary):
            resident = name
            if isinstance(s.scheduler, PersistentPanel):
                line = "own" if s.scheduler.one_panel else "each"
    trade = store.exchange if isinstance(store, TmaStore) else None
    return old.WarpRoles(
        loop.warpgroups, loop.mma_m, loop.ping_pong, _move(tma_of(loop.a)), _move(tma_of(loop.b)),
        store.map if isinstance(store, TmaStore) else None, _stage(store.stage), s.cluster,
        _gather(loop.a), _gather(loop.b), loop.producers, loop.cp_async_stages if isinstance(loop, WgmmaSS) else 0,
        old.Crossed(loop.unit_a, loop.unit_b, loop.per_warpgroup_a) if not isinstance(loop, WgmmaSS) else None,
        store.run if isinstance(store, RowStore) else 0, resident, line, s.tiling.mma_tiles if ss else 1,
        isinstance(store, TmaStore) and store.reuse_mainloop_smem,
        source.map if isinstance(source, TmaSource) else None,
        old.Trade(trade.distance, trade.row, trade.half) if trade is not None else None,
    )  # fmt: skip


def _way(x: StreamLoad | None) -> old_stream.Way | None:
    if x is None:
        return None
    walk = tuple(old_stream.Digit(d.dim, d.step, d.size) for d in x.walk)
    return old_stream.Way(x.staged, x.splat, x.width, walk, x.mask, x.shift, x.shared)


def _stream(x: StreamMap | StreamSum) -> old_stream.Stream:
    sums = isinstance(x, StreamSum)
    a = _way(x.a)
    assert a is not None
    along_k, lanes_k, rows = (x.along_k, x.lanes_k, x.rows) if isinstance(x, StreamSum) else (False, 1, 1)
    walk = tuple(old_stream.Digit(d.dim, d.step, d.size) for d in x.walk_d)
    return old_stream.Stream(sums, x.threads, x.vector, along_k, lanes_k, rows, x.unroll, a, _way(x.b), _way(x.c), walk)


def _image(x: StreamLoad, box: Box, size: int, map_: bool, group: str) -> old.Access:
    if map_:
        return old.Access("mn", x.width, False, "mn", SmemLayout(-(-box.size * size // 128), 128, 128, x.mask, x.shift))
    return old.Access(group, x.width, False, group, SmemLayout(1, 128, 128))
