"""Rules of all Hopper main loops: tiles, warpgroups, stages, blocks of the grid, and how tensor maps bring operands.

How warps bring operands and how D leaves have rules of their own; what one main loop alone asks is beside it in
`gett.schedule.mainloops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gett.hw.dtypes import data_type
from gett.ir.contraction import Operand
from gett.schedule.rules.common import shares
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.rules.smem_places import coordinates, copied_places, wgmma_places
from gett.schedule.spec import hopper_needs as needs
from gett.schedule.spec.loader import Repeats, Stationary
from gett.schedule.spec.mainloop import tile_warpgroups
from layouts.modes import Strided
from layouts.swizzle import CHUNK
from layouts.tma import TmaMap
from layouts.tma_map import Refusal

CLUSTER = 8  # most blocks of a cluster that every GPU with clusters takes
ORDERED = 256  # most clusters whose first tiles a table of bytes has


def hopper(x: Lowered) -> Reasons:
    """The architecture has tensor maps, clusters and wgmma as Hopper has them."""
    if x.facts.arch not in needs.ARCHS:
        yield f"{x.facts.arch} has not, {needs.ARCHS[0]} has"


def whole_operands(x: Lowered, source: str) -> Reasons:
    """Why wgmma does not multiply operands as they come; `source` is where it reads them, `"ss"` or `"rs"`."""
    dtype, loop, tensor = x.plan.contraction.dtype, x.s.hopper, needs.multiplied(x.plan)
    if needs.planes(x.plan) is not None:
        yield f"{dtype} at precision {x.plan.contraction.precision} by a {type(loop).__name__}"
    elif tensor is None:
        yield f"wgmma does not multiply {dtype} of {data_type(dtype).bytes} bytes as it is"
    elif loop.by_warps and not data_type(dtype).exact:
        yield f"operands are gathered as they are, {dtype} is to be rounded to {tensor.name}"
    elif source not in x.atom.sources:
        yield f"wgmma of {dtype} has sources {x.atom.sources}, not {source}"


def scheduler(x: Lowered) -> Reasons:
    """Blocks are persistent; there are enough for a cluster, which begin in some order; the plan says which tiles."""
    made, order = x.s.scheduler, x.s.scheduler.cluster_order
    if made.ragged:
        yield f"a {type(made).__name__} reads the ends of problems, which the plan has not"
    elif not made.persistent:
        yield "Hopper blocks are persistent, this one makes 1 tile and ends"
    elif not x.blocks <= made.blocks <= x.facts.sm_count * x.facts.blocks_per_sm:
        yield f"{made.blocks} blocks in clusters of {x.s.cluster}, for {x.facts.sm_count} multiprocessors"
    if sorted(order) != list(range(len(order))) or len(order) > ORDERED:
        yield f"{len(order)} clusters begin at {order}, no permutation of {ORDERED} at most"


def batches_together(x: Lowered) -> Reasons:
    """Batches that are visited together exist; single blocks make whole sums of their tiles."""
    made, group = x.s.scheduler, x.s.scheduler.group_l
    if group > max(1, x.plan.extent_l) or (group > 1 and (x.blocks > 1 or made.split_k > 1)):
        yield f"{group} of {x.plan.extent_l} batches, clusters of {x.s.cluster}, {made.split_k} slices of K"


def stream_k(x: Lowered) -> Reasons:
    """Stream-K divides tiles that are left over, in shares of a k-tile or more, where stages and D's tile allow it."""
    loop, store, t = x.s.hopper, x.s.epilogue.store, x.s.tiling
    yield from shares(x)
    if not x.s.scheduler.stream_k:
        return
    if loop.keeps:
        yield f"the {t.k.tiles} k-tiles of an operand of a {type(loop).__name__} stay"
    if store.exchange is not None or store.reuse_mainloop_smem or t.mma_tiles > 1:
        yield f"a tile of {t.mma_tiles} MMA tiles that two blocks store, or that is staged where stages are"


def mma_tiles(x: Lowered) -> Reasons:
    """MMA tiles of one tile of D divide the last tiled dimension of M, come and leave together by tensor map."""
    count, tiled, loop, store = x.s.tiling.mma_tiles, x.s.tiling.m.tiled, x.s.hopper, x.s.epilogue.store
    if count == 1:
        return
    if not tiled or tiled[-1][1].box % count:
        yield f"{count} do not divide the last dimension of box_m, {tiled[-1][1].box if tiled else 1}"
    if not loop.many_mma_tiles or loop.by_warps or loop.ping_pong or store.map is None:
        how = "in ping-pong " if loop.ping_pong else ""
        yield f"{count} of a {type(loop).__name__} {how}that leave by a {type(store).__name__}"


def block(x: Lowered) -> Reasons:
    """A block is whole instructions: rows of all warpgroups, columns and depth of the boxes; products fit registers."""
    loop, atom, (m, n, k) = x.s.hopper, x.atom, x.s.tiling.shape
    rows = atom.m * loop.mma_m * tile_warpgroups(loop)
    columns, deep = needs.up(x.s.tiling.n.size, atom.n), needs.up(x.s.tiling.k.size, atom.k)
    if m != rows:
        yield f"block_m = {m}, but {loop.warpgroups} warpgroups of {loop.mma_m} MMA atoms of {atom.m} rows make {rows}"
    if n != columns or n > atom.most_n:
        yield f"block_n = {n}: box_n needs {columns}, a multiple of {atom.n} up to {atom.most_n}"
    if k != deep:
        yield f"block_k = {k}: box_k needs {deep}, a multiple of {atom.k}"
    if loop.mma_m * n // 2 > needs.ACCUMULATORS:
        yield f"{loop.mma_m * n // 2} registers a thread for its products, the limit is {needs.ACCUMULATORS}"


def stages(x: Lowered) -> Reasons:
    """The pipeline has two stages or more, of which all have barriers."""
    loop = x.s.hopper
    # Transposed k-tiles are deep; each is multiplied while the next one is still in the warps' buffers.
    least = 1 if loop.a.transform else 2
    most = needs.MOST_STAGES_OF_ONE if loop.slabs_of_b or loop.keeps else needs.MOST_STAGES
    if not least <= loop.stages <= most:
        yield f"{loop.stages}, a pipeline has {least} to {most}"


def wrong_map(
    name: str, made: TmaMap, operand: Operand, tensor: int, modes: Sequence[Strided], repeats: Repeats = ()
) -> Reasons:
    """What is wrong with the map of a tensor, whose modes are the map's; nothing where it is right.

    The tile that the map's numbers are for comes in `repeats` copies, in one where there are none.
    """
    whole = list(made.box)
    if {len(made.modes), len(made.tile)} != {len(modes)} or sorted(made.order) != list(range(len(modes))):
        yield f"map of {name}: it is for {len(made.modes)} modes, the tensor has {len(modes)}"
        return
    for dim, step, count in repeats:
        if dim >= len(whole) or step != made.box[dim]:
            yield f"copies of operand {name} are {step} apart along dimension {dim} of {made.box}"
            return
        whole[dim] *= count
    reason, wanted = "", replace(made, box=tuple(whole))
    for row in (0, whole[0]):
        found = needs.tensor_map(
            operand, tensor, modes, made.tile, made.order, made.swizzle_bytes, unit=made.order[0], row=row
        )
        if found == wanted:
            return
        reason = reason or (found.reason if isinstance(found, Refusal) else f"a tile of {made.tile} needs {found}")
    yield f"map of {name}: {reason}; the schedule has boxes of {made.box} of extents {made.extents}"


def operand_tile(x: Lowered) -> Reasons:
    """A k-tile of an operand fits a block's shared memory."""
    widest, deep = max(o.box.size for o in x.operands), x.s.tiling.k.size
    if widest * deep * x.size > x.facts.smem_per_block:
        yield f"{widest} x {deep} elements of an operand, a block has {x.facts.smem_per_block} bytes"


def full_k_tiles(x: Lowered) -> Reasons:
    """The box of K fills its block."""
    if x.s.tiling.k.size != x.s.tiling.shape[2]:
        yield f"k-tiles of {x.s.tiling.k.size} in blocks of {x.s.tiling.shape[2]}"


def mapped_modes(x: Lowered) -> Reasons:
    """K, and the modes of an operand by tensor map, are tiled one by one; rows run along its unit-stride mode."""
    if x.s.tiling.k.flattens:
        yield f"box_k = {x.s.tiling.k.dims} takes several modes as one"
    for o, _ in x.by_map:
        if o.box.flattens:
            yield f"a tensor map brings operand {o.name}, its box {o.box.dims} takes several modes as one"
        if o.unit is None:
            modes = len(o.k if o.loader.major == "k" else o.free)
            yield f"operand {o.name} is {o.loader.major}-major, but {modes} modes have no unit stride"


def atom_majors(x: Lowered) -> Reasons:
    """Wgmma reads 16-bit types along either mode out of shared memory, others along K."""
    for o in x.operands:
        if o.loader.major not in x.atom.majors:
            yield f"wgmma reads {len(x.atom.majors)} major, operand {o.name} is {o.loader.major}-major"


def maps(x: Lowered) -> Reasons:
    """A tensor map is what the hardware has for its operand, tile, order and swizzle."""
    for o, load in x.by_map:
        yield from wrong_map(o.name, load.map, o.operand, o.tensor, o.modes)


def copies(x: Lowered) -> Reasons:
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


def k_residue(x: Lowered) -> Reasons:
    """K that is no multiple of an instruction's comes by tensor map, in even parts."""
    box, block_k = x.s.tiling.k, x.s.tiling.shape[2]
    if box.size == block_k:
        return
    if uneven := [(mode.extent, cut) for mode, cut in zip(x.plan.k, box.cut, strict=True) if mode.extent % cut]:
        yield f"k-tiles of {box.size} k, but of {uneven} extents are no multiples of cuts"
    if gathered := [o.name for o in x.operands if o.loader.by_warps]:
        yield f"k-tiles of {box.size} k in blocks of {block_k}, operands {gathered} are gathered"
    for o, load in x.by_map:
        if (written := needs.valid_k(load, len(x.plan.k))) != box.size:
            yield f"copies of operand {o.name} write {written} k of {box.size}"
        if load.major == "k" and (box.size * x.size % CHUNK or block_k * x.size > load.map.swizzle_bytes):
            yield f"rows of {box.size * x.size} bytes of operand {o.name}, a swizzled row has {load.map.swizzle_bytes}"


def cluster(x: Lowered) -> Reasons:
    """A cluster has at most 8 blocks, whose operands come by tensor map; those share a tile that need the same one."""
    if x.blocks > CLUSTER:
        yield f"{x.s.cluster}, a cluster has 1 to {CLUSTER} blocks"
    for o in x.operands:
        if x.blocks > 1 and o.loader.tma is not o.loader:
            yield f"{x.blocks} blocks, but operand {o.name} comes by a {type(o.loader).__name__} loader"
    for o, load in x.by_map:
        blocks = x.s.cluster[1] if o.name == "A" else x.s.cluster[0]
        if load.blocks != blocks:
            yield f"{load.blocks} blocks share operand {o.name}, {blocks} of a cluster need the same tile"
        elif load.divided is not None and load.divided != needs.shared_dimension(load.map, blocks):
            yield f"dimension {load.divided} of {load.map.box} of operand {o.name} cannot be shared by {blocks}"


def stationary(x: Lowered) -> Reasons:
    """At most one operand stays, beside one by tensor map; all tiles and batches share it where it is no panel's."""
    kept, gathered = x.brought_by(Stationary), [o.name for o in x.operands if o.loader.by_warps]
    if len(kept) > 1 or (kept and gathered):
        yield f"{len(kept)} operands stay and {len(gathered)} are gathered; 1 comes by tensor map for each tile"
    for o, loader in kept:
        if loader.k_tiles != x.s.tiling.k.tiles:
            yield f"{loader.k_tiles} k-tiles of operand {o.name} stay, K has {x.s.tiling.k.tiles}"
        if o.name == "A" and x.s.tiling.mma_tiles > 1:
            yield f"A stays for one MMA tile, a tile of D has {x.s.tiling.mma_tiles}"
        varies = any(m.extent > 1 and m.strides[o.tensor] for m in o.batch)
        if not x.s.scheduler.tensor and (o.box.tiles > 1 or varies):
            yield f"all of operand {o.name} stays, but it has {o.box.tiles} tiles for {x.plan.extent_l} batches"


def panel(x: Lowered) -> Reasons:
    """The operand whose rows a panel's tiles share stays, tiles follow it; blocks of one panel each are enough."""
    made, t, kept = x.s.scheduler, x.s.tiling, [o.name.lower() for o in x.operands if o.loader.stays]
    if not made.tensor:
        return
    panels, along = (t.m.tiles, 1) if made.tensor == "a" else (t.n.tiles, t.m.tiles)
    if kept != [made.tensor] or made.group_m != along:
        yield f"tiles share rows of {made.tensor}, {kept} stay; {made.group_m} tiles of M together, not {along}"
    if made.one_panel and (x.s.hopper.ping_pong or x.plan.extent_l > 1 or made.blocks < panels):
        how = " in ping-pong" if x.s.hopper.ping_pong else ""
        yield f"{made.blocks} blocks{how} for {panels} panels of {x.plan.extent_l} batches"


# How operands travel by tensor map: those that no cluster shares, and with both in shared memory.
MAP_RULES = (operand_tile, full_k_tiles, panel, mapped_modes, maps, copies)
LOADER_RULES = (operand_tile, atom_majors, mapped_modes, maps, copies, k_residue, cluster, stationary, panel)
