"""Kernels of the catalogue that no search gives: clusters of any shape, batches together, stream-K on few blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from gett.hw.archs import ArchFacts, arch_facts
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.legality import can_implement
from gett.schedule.search.hopper.tma import multicast
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import DmmaTma, Mainloop, Multistage, WgmmaRS, WgmmaSS, WgmmaTf32
from gett.schedule.spec.schedule import OneTile, PersistentRaster, Schedule, StreamK
from tests.spec_parts import coarse
from tests.specs import Spec, exchanges, reuses_smem

CLUSTERS = ((2, 1), (1, 2), (2, 2))
FEW = (5, 7, 4, 3, 2)
"""Clusters among which tiles of small contractions are divided."""


def by_hand(found: Iterable[Spec]) -> list[Spec]:
    """Schedules that no search gives.

    One of each combination of parts, in each shape of cluster. One of each main loop and store, with batches visited
    together, and, alone and in a cluster, with tiles divided by stream-K.
    """
    firsts: dict[frozenset[str], Spec] = {}
    batched: dict[tuple[type, type, bool], Spec] = {}
    divided: dict[tuple[object, ...], Spec] = {}
    for spec in found:
        s = spec.schedule
        if can_cluster(s):
            firsts.setdefault(frozenset(map(coarse, spec.parts)), spec)
        if can_group(s) and spec.plan.extent_l > 1:
            loop = s.hopper
            batched.setdefault((type(loop), type(s.epilogue.store), loop.ping_pong), spec)
    in_clusters = [
        replace(spec, family=f"{spec.family}-{m}x{n}", schedule=clustered(spec.schedule, (m, n)))
        for spec in firsts.values()
        for m, n in CLUSTERS
    ]
    for spec in (*found, *in_clusters):
        made = streamed(spec.schedule, spec.plan)
        if made is not None:
            loop, epilogue = made.mainloop, made.epilogue
            parts = (type(epilogue.store), type(epilogue.source), made.cluster)
            key = (spec.dtype, *_kind_of(loop), *parts)
            divided.setdefault(key, replace(spec, family=f"{spec.family}-stream-k", schedule=made))
    return [
        *in_clusters,
        *divided.values(),
        *(replace(spec, family=f"{spec.family}-batches", schedule=grouped(spec.schedule)) for spec in batched.values()),
    ]


def _kind_of(loop: Mainloop) -> tuple[object, ...]:
    """What tells main loops apart that tiles leave in different ways."""
    loads = (type(getattr(loop, "a", None)), type(getattr(loop, "b", None)))
    if isinstance(loop, Multistage):
        return (loop.kind, loop.k_table, *loads)
    if isinstance(loop, WgmmaRS):
        return (type(loop), loop.per_warpgroup_a, *loads)
    return (type(loop), getattr(loop, "ping_pong", False), *loads)


def can_group(s: Schedule) -> bool:
    """Whether batches may be visited together: a raster of single blocks makes whole sums."""
    return isinstance(s.scheduler, PersistentRaster) and s.cluster == (1, 1) and s.split_k == 1


def grouped(s: Schedule) -> Schedule:
    """The schedule with a row of tiles of two batches visited together."""
    assert isinstance(s.scheduler, PersistentRaster)
    return replace(s, scheduler=replace(s.scheduler, group_m=1, group_l=2))


def can_cluster(s: Schedule) -> bool:
    """Whether blocks of any cluster may share operands: both come by tensor map, for every tile."""
    if not isinstance(s.mainloop, WgmmaSS | WgmmaTf32 | DmmaTma) or not isinstance(s.scheduler, PersistentRaster):
        return False
    by_map = isinstance(s.mainloop.a, Tma) and isinstance(s.mainloop.b, Tma)
    return by_map and not exchanges(s) and not reuses_smem(s)


def clustered(s: Schedule, cluster: tuple[int, int]) -> Schedule:
    """The schedule with `cluster` neighbouring tiles along M and along N sharing operands, whatever it had before."""
    loop, scheduler = s.mainloop, s.scheduler
    assert isinstance(loop, WgmmaSS | WgmmaTf32 | DmmaTma)
    assert isinstance(scheduler, PersistentRaster)
    assert isinstance(loop.a, Tma)
    assert isinstance(loop.b, Tma)
    a, b = (multicast(replace(x, multicast=None), blocks) for x, blocks in ((loop.a, cluster[1]), (loop.b, cluster[0])))
    scheduler = replace(scheduler, cluster=cluster, group_l=1, blocks=max(scheduler.blocks, cluster[0] * cluster[1]))
    return replace(s, mainloop=replace(loop, a=a, b=b), scheduler=scheduler)


def streamed(s: Schedule, plan: GemmPlan, facts: ArchFacts | None = None) -> Schedule | None:
    """The schedule with the tiles divided that are left over; None where it may not be, or there are none."""
    facts, size = facts or arch_facts(s.arch), math.prod(s.cluster)
    if not isinstance(s.scheduler, PersistentRaster | OneTile) or not s.mainloop.divides or s.split_k > 1:
        return None
    rows, columns, _ = s.tiling.shape
    for shares in FEW:
        made = replace(s, scheduler=StreamK(shares * size, s.scheduler.group_m, s.cluster))
        sums = data_type(plan.contraction.dtype).accumulator_bytes
        made = replace(made, workspace_bytes=made.partial_tiles(0) * rows * columns * sums)
        if can_implement(made, plan, facts) is None:
            return made
    return None
