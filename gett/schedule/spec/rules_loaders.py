"""Rules of the loaders of a Hopper kernel with both operands in shared memory, but for those that gather.

Which map brings which tile, who shares it, and what stays in shared memory for how long.
"""

from __future__ import annotations

import numpy as np

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.loader import Gather, Stationary, Tma, tma_of
from gett.schedule.spec.map_check import wrong_map
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentPanel, PersistentRaster
from gett.schedule.spec.smem_places import coordinates, copied_places, wgmma_places
from gett.schedule.spec.wgmma_needs import multiplied, shared_dimension, tile_rows, valid_k
from gett.schedule.spec.wgmma_operand import cluster_size, operands, stationary_operand
from layouts.swizzle import CHUNK

CLUSTER = 8
"""Most blocks of a cluster that every GPU with clusters takes."""


def _flattened(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if s.tiling.k.flattens:
        return f"flattened: box_k = {s.tiling.k.dims} takes several modes as one"
    for x in operands(s, plan):
        if tma_of(x.loader) is not None and x.box.flattens:
            return f"flattened: a tensor map brings operand {x.name}, its box {x.box.dims} takes several modes as one"
    return None


def _majors(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    kind = multiplied(plan)
    assert kind is not None
    assert kind.wgmma is not None
    for x in operands(s, plan):
        if x.loader.major not in kind.wgmma.majors:
            majors = len(kind.wgmma.majors)
            return f"majors: wgmma reads {majors} major of {kind.name}, operand {x.name} is {x.loader.major}-major"
        if (x.k_unit if x.loader.major == "k" else x.free_unit) is None:
            group = x.k if x.loader.major == "k" else x.free
            return f"majors: operand {x.name} is {x.loader.major}-major, but {len(group)} modes have no unit stride"
    return None


def _maps(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for x in operands(s, plan):
        load = tma_of(x.loader)
        if load is not None and (wrong := wrong_map(x.name, load.map, x.operand, x.tensor, x.modes)):
            return wrong
    return None


def _tiles(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    size, deep = itemsize(plan.contraction.dtype), s.tiling.block[2]
    for x in operands(s, plan):
        load = tma_of(x.loader)
        if load is None:
            continue
        found = copied_places(load, coordinates([*x.free_dims, *x.k_dims]))
        shape = (x.box.size, x.box_k.size)
        if found is None or load.bytes != shape[0] * shape[1] * size:
            return f"copies: {load.copies} of {load.map.box} are not the {shape[0]} x {shape[1]} of operand {x.name}"
        if load.run and (load.run > load.map.span // size or shape[0] % load.run):
            return f"copies: {load.run} rows an atom of {load.map.span} bytes, operand {x.name} has {shape[0]}"
        if load.major == "mn" and not load.run and shape[0] * size % load.map.span:
            return f"copies: {shape[0]} rows of operand {x.name} do not fill atoms of {load.map.span} bytes"
        atom = (load.run, load.map.span // size) if load.run else (0, 0)
        wanted = wgmma_places(load.major, load.map.span, shape, tile_rows(load, shape[0]), deep, size, atom)
        misplaced = np.count_nonzero(wanted != np.broadcast_to(found, shape[0] * shape[1]).reshape(shape[::-1]).T)
        if misplaced:
            return f"copies: {misplaced} of {wanted.size} elements of operand {x.name} are not where wgmma reads"
    return None


def _residue(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    t, size = s.tiling, itemsize(plan.contraction.dtype)
    if t.k.size == t.block[2]:
        return None
    for m, (mode, cut) in enumerate(zip(plan.k, t.k.cut, strict=True)):
        if mode.extent % cut:
            return f"K residue: k-tiles of {t.k.size} k, but extent {mode.extent} of mode {m} is no multiple of {cut}"
    for x in operands(s, plan):
        load = tma_of(x.loader)
        if load is None:
            return f"K residue: k-tiles of {t.k.size} k in blocks of {t.block[2]}, operand {x.name} is gathered"
        if (written := valid_k(load, len(plan.k))) != t.k.size:
            return f"K residue: copies of operand {x.name} write {written} k of {t.k.size}"
        if load.major == "k" and (t.k.size * size % CHUNK or t.block[2] * size > load.map.span):
            span = load.map.span
            return f"K residue: rows of {t.k.size * size} bytes of operand {x.name}, a swizzled row has {span}"
    return None


def _cluster(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    blocks = cluster_size(s)
    if min(s.cluster) < 1 or blocks > CLUSTER:
        return f"cluster: {s.cluster}, a cluster has 1 to {CLUSTER} blocks"
    for x in operands(s, plan):
        if blocks > 1 and not isinstance(x.loader, Tma):
            return f"cluster: {blocks} blocks, but operand {x.name} comes by a {type(x.loader).__name__} loader"
    return None


def _multicast(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for x, blocks in zip(operands(s, plan), reversed(s.cluster), strict=True):
        load = tma_of(x.loader)
        if load is None:
            continue
        if load.blocks != blocks:
            return f"multicast: {load.blocks} blocks share operand {x.name}, {blocks} of a cluster need the same tile"
        divided = load.multicast.divided if load.multicast is not None else None
        if divided is not None and divided != shared_dimension(load.map, blocks):
            return f"multicast: dimension {divided} of {load.map.box} of operand {x.name} cannot be shared by {blocks}"
    return None


def _stationary(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    both = operands(s, plan)
    loaders = [x.loader for x in both]
    kept = [x for x in both if isinstance(x.loader, Stationary)]
    if len(kept) > 1:
        return "stationary: 2 operands stay, then nothing is fetched for a tile"
    for x in kept:
        assert isinstance(x.loader, Stationary)
        if any(isinstance(other, Gather) for other in loaders):
            return f"stationary: operand {x.name} stays and 1 operand is gathered; gathering fills whole stages"
        if x.loader.k_tiles != s.tiling.k.tiles:
            return f"stationary: {x.loader.k_tiles} k-tiles of operand {x.name} stay, K has {s.tiling.k.tiles}"
        if x.name == "A" and s.tiling.mma_tiles > 1:
            return f"stationary: A stays for one MMA tile, a tile of D has {s.tiling.mma_tiles}"
    return None


def _stationary_whole(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for x in operands(s, plan) if isinstance(s.scheduler, PersistentRaster) else ():
        if not isinstance(x.loader, Stationary):
            continue
        if x.box.tiles > 1:
            return f"stationary: all of operand {x.name} stays, but it has {x.box.tiles} tiles"
        if any(m.extent > 1 and m.strides[x.tensor] for m in plan.l):
            return f"stationary: operand {x.name} stays for all tiles, but each of {plan.extent_l} batches has its own"
    return None


def _panel(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not isinstance(s.scheduler, PersistentPanel):
        return None
    kept, group_m = stationary_operand(s), s.scheduler.group_m
    if kept != s.scheduler.tensor:
        stays = f"1 operand stays, {kept.upper()}" if kept else "0 operands stay"
        return f"panel: tiles of a panel share rows of {s.scheduler.tensor.upper()}, but {stays}"
    along = 1 if kept == "a" else s.tiling.m.tiles
    return None if group_m == along else f"panel: {group_m} tiles of M are visited together, not {along}"


def _one_panel(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not isinstance(s.scheduler, PersistentPanel) or not s.scheduler.one_panel:
        return None
    panels = (s.tiling.m if s.scheduler.tensor == "a" else s.tiling.n).tiles
    if s.wgmma.ping_pong:
        return f"one panel: {s.wgmma.warpgroups} warpgroups in ping-pong, blocks of one panel make 1 tile at a time"
    if plan.extent_l > 1:
        return f"one panel: {plan.extent_l} batches, blocks that keep to a panel make 1"
    return None if s.scheduler.blocks >= panels else f"one panel: {s.scheduler.blocks} blocks for {panels} panels"


FLATTENED = Rule("flattened", "K, and the modes of an operand by tensor map, are tiled one by one.", _flattened)
MAJORS = Rule("majors", "wgmma reads an operand's rows along its unit-stride mode.", _majors)

LOADER_RULES = (
    FLATTENED,
    MAJORS,
    Rule("maps", "A tensor map is what the hardware has for its operand, tile, order and swizzle.", _maps),
    Rule("copies", "The copies of a tile bring each element to where wgmma reads it, and nothing else.", _tiles),
    Rule("K residue", "K that is no multiple of an instruction's comes by tensor map, in even parts.", _residue),
    Rule("cluster", f"A cluster has at most {CLUSTER} blocks, whose operands come by tensor map.", _cluster),
    Rule("multicast", "Those blocks of a cluster share a tile that need the same one.", _multicast),
    Rule("stationary", "At most one operand stays, beside one by tensor map, with all of its k-tiles.", _stationary),
    Rule("stationary whole", "What stays for all tiles is one tile of its group, in all batches.", _stationary_whole),
    Rule("panel", "The operand whose rows a panel's tiles share stays, and tiles follow it.", _panel),
    Rule("one panel", "Blocks of one panel each make a tile at a time of one batch; there are enough.", _one_panel),
)
"""How operands travel by tensor map."""
