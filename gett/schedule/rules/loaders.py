"""Rules of the loaders of Hopper main loops, but for those in which warps bring an operand.

Which map brings which tile, who shares it, and what stays in shared memory for how long.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gett.schedule.rules.map_check import wrong_map
from gett.schedule.rules.rule import Lowered, rule
from gett.schedule.rules.smem_places import coordinates, copied_places, wgmma_places
from gett.schedule.spec.hopper_needs import shared_dimension, valid_k
from gett.schedule.spec.loader import Stationary
from layouts.swizzle import CHUNK

CLUSTER = 8
"""Most blocks of a cluster that every GPU with clusters takes."""


@rule
def operand_tile(x: Lowered) -> Iterator[str]:
    """A k-tile of an operand fits a block's shared memory."""
    widest, deep = max(o.box.size for o in x.operands), x.s.tiling.k.size
    if widest * deep * x.size > x.facts.smem_per_block:
        yield f"{widest} x {deep} elements of an operand, a block has {x.facts.smem_per_block} bytes"


@rule
def full_k_tiles(x: Lowered) -> Iterator[str]:
    """The box of K fills its block."""
    if x.s.tiling.k.size != x.s.tiling.shape[2]:
        yield f"k-tiles of {x.s.tiling.k.size} in blocks of {x.s.tiling.shape[2]}"


@rule
def flattened(x: Lowered) -> Iterator[str]:
    """K, and the modes of an operand by tensor map, are tiled one by one."""
    if x.s.tiling.k.flattens:
        yield f"box_k = {x.s.tiling.k.dims} takes several modes as one"
    for o, _ in x.by_map:
        if o.box.flattens:
            yield f"a tensor map brings operand {o.name}, its box {o.box.dims} takes several modes as one"


@rule
def atom_majors(x: Lowered) -> Iterator[str]:
    """Wgmma reads 16-bit types along either mode out of shared memory, others along K."""
    for o in x.operands:
        if o.loader.major not in x.atom.majors:
            yield f"wgmma reads {len(x.atom.majors)} major, operand {o.name} is {o.loader.major}-major"


@rule
def majors(x: Lowered) -> Iterator[str]:
    """An operand's rows run along its unit-stride mode."""
    for o in x.operands:
        if o.unit is None and o.loader.tma is not None:
            modes = len(o.k if o.loader.major == "k" else o.free)
            yield f"operand {o.name} is {o.loader.major}-major, but {modes} modes have no unit stride"


@rule
def maps(x: Lowered) -> Iterator[str]:
    """A tensor map is what the hardware has for its operand, tile, order and swizzle."""
    for o, load in x.by_map:
        yield from wrong_map(o.name, load.map, o.operand, o.tensor, o.modes)


@rule
def copies(x: Lowered) -> Iterator[str]:
    """The copies of a tile bring each element to where wgmma reads it, and nothing else."""
    for o, load in x.by_map:
        rows, deep, swizzle = o.box.size, o.box_k.size, load.map.swizzle_bytes
        fits = load.bytes == rows * deep * x.size
        found = copied_places(load, coordinates([*o.free_dims, *o.k_dims])) if fits else None
        if found is None:
            yield f"{load.copies} of {load.map.box} are not the {rows} x {deep} of operand {o.name}"
            return
        if load.run and (load.run >= swizzle // x.size or rows % load.run):
            yield f"{load.run} rows an atom of {swizzle} bytes, operand {o.name} has {rows}"
        if load.pitch and not load.repeats:
            yield f"{load.copies} copies of operand {o.name} follow each other, not {load.pitch} bytes apart"
        if load.major == "mn" and not load.run and rows * x.size % swizzle:
            yield f"{rows} rows of operand {o.name} do not fill atoms of {swizzle} bytes"
        atom = (load.run, load.atom) if load.run else (0, 0)
        wanted = wgmma_places(load.major, swizzle, (rows, deep), load.rows(rows), x.s.tiling.shape[2], x.size, atom)
        misplaced = np.count_nonzero(wanted != np.broadcast_to(found, rows * deep).reshape(deep, rows).T)
        if misplaced:
            yield f"{misplaced} of {wanted.size} elements of operand {o.name} are not where wgmma reads"


@rule
def k_residue(x: Lowered) -> Iterator[str]:
    """K that is no multiple of an instruction's comes by tensor map, in even parts."""
    box, block_k = x.s.tiling.k, x.s.tiling.shape[2]
    if box.size == block_k:
        return
    if uneven := [(mode.extent, cut) for mode, cut in zip(x.plan.k, box.cut, strict=True) if mode.extent % cut]:
        yield f"k-tiles of {box.size} k, but of {uneven} extents are no multiples of cuts"
    if gathered := [o.name for o in x.operands if o.loader.by_warps]:
        yield f"k-tiles of {box.size} k in blocks of {block_k}, operands {gathered} are gathered"
    for o, load in x.by_map:
        if (written := valid_k(load, len(x.plan.k))) != box.size:
            yield f"copies of operand {o.name} write {written} k of {box.size}"
        if load.major == "k" and (box.size * x.size % CHUNK or block_k * x.size > load.map.swizzle_bytes):
            yield f"rows of {box.size * x.size} bytes of operand {o.name}, a swizzled row has {load.map.swizzle_bytes}"


@rule
def cluster(x: Lowered) -> Iterator[str]:
    """A cluster has at most 8 blocks, whose operands come by tensor map."""
    if x.blocks > CLUSTER:
        yield f"{x.s.cluster}, a cluster has 1 to {CLUSTER} blocks"
    for o in x.operands:
        if x.blocks > 1 and o.loader.tma is not o.loader:
            yield f"{x.blocks} blocks, but operand {o.name} comes by a {type(o.loader).__name__} loader"


@rule
def multicast(x: Lowered) -> Iterator[str]:
    """Those blocks of a cluster share a tile that need the same one."""
    for o, load in x.by_map:
        blocks = x.s.cluster[1] if o.name == "A" else x.s.cluster[0]
        if load.blocks != blocks:
            yield f"{load.blocks} blocks share operand {o.name}, {blocks} of a cluster need the same tile"
        elif load.divided is not None and load.divided != shared_dimension(load.map, blocks):
            yield f"dimension {load.divided} of {load.map.box} of operand {o.name} cannot be shared by {blocks}"


@rule
def stationary(x: Lowered) -> Iterator[str]:
    """At most one operand stays, beside one by tensor map, with all of its k-tiles."""
    kept, gathered = x.brought_by(Stationary), [o.name for o in x.operands if o.loader.by_warps]
    if len(kept) > 1 or (kept and gathered):
        yield f"{len(kept)} operands stay and {len(gathered)} are gathered; 1 comes by tensor map for each tile"
    for o, loader in kept:
        if loader.k_tiles != x.s.tiling.k.tiles:
            yield f"{loader.k_tiles} k-tiles of operand {o.name} stay, K has {x.s.tiling.k.tiles}"
        if o.name == "A" and x.s.tiling.mma_tiles > 1:
            yield f"A stays for one MMA tile, a tile of D has {x.s.tiling.mma_tiles}"


@rule
def stationary_whole(x: Lowered) -> Iterator[str]:
    """What stays for all tiles is one tile of its group, in all batches."""
    for o, _ in () if x.s.scheduler.tensor else x.brought_by(Stationary):
        if o.box.tiles > 1 or any(m.extent > 1 and m.strides[o.tensor] for m in o.batch):
            yield f"all of operand {o.name} stays, but it has {o.box.tiles} tiles for {x.plan.extent_l} batches"


@rule
def panel(x: Lowered) -> Iterator[str]:
    """The operand whose rows a panel's tiles share stays, and tiles follow it."""
    made, kept = x.s.scheduler, [o.name.lower() for o in x.operands if o.loader.stays]
    if made.tensor:
        along = 1 if made.tensor == "a" else x.s.tiling.m.tiles
        if kept != [made.tensor] or made.group_m != along:
            yield f"tiles share rows of {made.tensor}, {kept} stay; {made.group_m} tiles of M together, not {along}"


@rule
def one_panel(x: Lowered) -> Iterator[str]:
    """Blocks of one panel each make a tile at a time of one batch; there are enough."""
    made, t = x.s.scheduler, x.s.tiling
    if made.one_panel:
        panels = (t.m if made.tensor == "a" else t.n).tiles
        if x.s.hopper.ping_pong or x.plan.extent_l > 1 or made.blocks < panels:
            how = " in ping-pong" if x.s.hopper.ping_pong else ""
            yield f"{made.blocks} blocks{how} for {panels} panels of {x.plan.extent_l} batches"


MAP_RULES = (operand_tile, full_k_tiles, panel, flattened, majors, maps, copies)
"""How operands travel that no cluster shares."""

CLUSTER_RULES = (cluster, multicast)
"""What blocks of a cluster share."""

LOADER_RULES = (
    *(operand_tile, flattened, atom_majors, majors, maps, copies, k_residue, cluster, multicast),
    *(stationary, stationary_whole, panel, one_panel),
)
"""How operands travel by tensor map with both in shared memory."""
