"""Rules that hold for more than one kind of main loop: groups, boxes, stores, resources of a block, the grid, copies.

The rules of packed copies refer to the plan as it was made; copies and product have their own rules.
"""

from __future__ import annotations

from gett.hw.dtypes import data_type, finer
from gett.ir.packing import count_pieces
from gett.schedule.packed import plans_of
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.epilogue import RowStore
from gett.schedule.spec.schedule import MAX_PIECES, Packing
from gett.schedule.spec.stream_views import output_modes
from gett.schedule.spec.vectors import store_vector
from layouts.domains import MOST, outside

THREAD_BYTES = 2048  # most elements and sums of a thread, in bytes: twice what it has registers for


def domains(x: Lowered) -> Reasons:
    """Each field of each record has a value of its domain, which its type says."""
    if found := outside(x.s):
        yield found


def architecture(x: Lowered) -> Reasons:
    """A schedule runs on the architecture that it was made for."""
    if x.s.arch != x.facts.arch:
        yield f"made for {x.s.arch}, the GPU is {x.facts.arch}"


def product(x: Lowered) -> Reasons:
    """There are two operands and a contracted mode."""
    if x.plan.b is None or not x.plan.k:
        yield f"{1 if x.plan.b is None else 2} operands and {len(x.plan.k)} contracted modes"


def splits(x: Lowered) -> Reasons:
    """A mode that is split exists, and its inner part divides it."""
    extents = {g: [m.extent for m in getattr(x.plan, g)] for g in "mnk"}
    for split in x.s.tiling.splits:
        group = extents[split.group]
        if split.mode >= len(group):
            yield f"group {split.group.upper()} has {len(group)} modes, number {split.mode} is split"
        elif group[split.mode] % split.inner:
            yield f"extent {group[split.mode]} of {split.group.upper()} is no multiple of {split.inner}"
        else:
            group[split.mode : split.mode + 1] = [split.inner, group[split.mode] // split.inner]


def precision(x: Lowered) -> Reasons:
    """Products are formed at the plan's precision, or at one that takes its place."""
    c, made = x.plan.contraction, x.s.precision
    if made and made != finer(c.dtype, c.precision):
        yield f"{made} in place of {c.precision}, which has {finer(c.dtype, c.precision) or 0} for {c.dtype}"


def groups(x: Lowered) -> Reasons:
    """Each box belongs to the extents of its group; that of L is cut where a block may make several batches."""
    t, plan = x.s.tiling, x.plan
    if t.l is not None and not x.s.mainloop.many_batches:
        yield f"{t.batches} batches in a block of a {type(x.s.mainloop).__name__}, which makes tiles of 1"
    modes = {"m": plan.m, "n": plan.n, "k": plan.k, "l": plan.l}
    if x.s.mainloop.one_group:  # D's modes are one, and what is not summed over has none
        modes |= {"m": output_modes(plan), "n": (), "k": plan.k if plan.extent_k not in (0, 1) else ()}
    batches = (("l", t.l),) if t.l is not None else ()
    for name, box in (("m", t.m), ("n", t.n), ("k", t.k), *batches):
        extents = tuple(m.extent for m in modes[name])
        if box.extents != extents:
            yield f"box_{name} is for extents {box.extents}, group {name.upper()} has {extents}"


def extents(x: Lowered) -> Reasons:
    """The extents of a group multiply to less than 2**31."""
    for name, box in zip("MNK", (x.s.tiling.m, x.s.tiling.n, x.s.tiling.k), strict=True):
        if box.volume > MOST:
            yield f"extents of group {name} multiply to {box.volume}, the limit is 2**31 - 1"


def modes(x: Lowered) -> Reasons:
    """No tiled dimension flattens modes."""
    for box in (x.s.tiling.m, x.s.tiling.n, x.s.tiling.k):
        if box.flattens:
            yield f"{box.dims} flattens modes, each tiled dimension is one mode"


def boxes(x: Lowered) -> Reasons:
    """Each box fits its block."""
    t = x.s.tiling
    for name, box, block, tiles in zip("mnk", (t.m, t.n, t.k), t.shape, (t.mma_tiles, 1, 1), strict=True):
        if box.size > block * tiles:
            yield f"box_{name} of {box.size} elements does not fit block_{name} = {block}, {tiles} of which make a tile"


def parts(x: Lowered) -> Reasons:
    """A block makes one tile of one MMA tile, but for stream-K, and stores vectors; of sums, single elements."""
    loop, store, scheduler = x.s.mainloop, x.s.epilogue.store, x.s.scheduler
    if x.s.epilogue.source_map is not None:
        yield f"C by 1 tensor map, which a {type(loop).__name__} has no warp for"
    if (scheduler.persistent and not (scheduler.stream_k and loop.divides)) or x.s.tiling.mma_tiles != 1:
        yield f"1 tile, not those of a {type(scheduler).__name__} of {x.s.tiling.mma_tiles} MMA tiles"
    vector = loop.stored_vector or store.vector
    if store.stage is not None or store.vector != vector:
        yield f"D is stored in vectors of {vector}, staged where the main loop has its tile if at all"


def source(x: Lowered) -> Reasons:
    """C is read where there is one, in a way that the store adds it."""
    epilogue, c = x.s.epilogue, x.plan.contraction.c
    if (epilogue.source is None) != (c is None):
        there = "there is no C" if c is None else "there is 1 C"
        yield f"{there}, the schedule reads {0 if epilogue.source is None else 1}"
    if epilogue.vector_source and epilogue.store.map is not None:
        yield "D leaves by 1 tensor map, so C is added where it is staged, not from vectors"
    if epilogue.vector_source and isinstance(epilogue.store, RowStore):
        yield f"rows of {epilogue.store.run} elements leave as they are staged, without C"


def vector(x: Lowered) -> Reasons:
    """D's strides, and the staged tile, allow the vectors that it is stored in."""
    store, t = x.s.epilogue.store, x.s.tiling
    vector, stage = store.vector, store.stage
    staged = stage is not None and not x.s.adds_parts and x.plan.contraction.c is None
    widest = store_vector(x.plan, t.m, t.n, t.l, staged=staged)
    if widest % vector:
        yield f"{vector} elements of D a store, its strides allow {widest}"
    if store.map is not None or stage is None or vector == 1 or x.s.split_k > 1:
        return
    steps = {(g, i): step for g, at in (("m", stage.m), ("n", stage.n)) for i, step in enumerate(at)}
    run, apart = 1, []
    for dim in x.dims_d:  # neighbours as far as a vector goes, then whole vectors
        step = steps.pop((dim.group, dim.index))
        if step % vector if run % vector == 0 else step != run:
            apart.append(step)
        run *= dim.box
    apart += [step for step in steps.values() if step % vector]
    if apart:
        yield f"{vector} neighbours in D are {apart} apart in the staged tile"


def split(x: Lowered) -> Reasons:
    """No slice of K is empty; only products and sums are sliced, in blocks of one batch."""
    split, k_tiles = x.s.split_k, x.s.tiling.k.tiles
    if split > 1 and (not x.s.mainloop.sums or x.s.tiling.l is not None):
        yield f"{split} slices, where nothing is summed, or batches of a block take all of K"
    each = 1 if x.s.mainloop.in_turn else -(-k_tiles // split)
    if split > 1 and (split - 1) * each >= k_tiles:
        yield f"{split} slices of {each} out of {k_tiles} k-tiles leave one empty"


def shares(x: Lowered) -> Reasons:
    """Stream-K divides tiles that are left over, in shares of a k-tile or more; nothing else does."""
    if x.s.scheduler.stream_k:
        left, k_tiles = x.clusters % x.s.shares, x.s.tiling.k.tiles
        if not x.s.shares <= left * k_tiles <= MOST:
            yield f"{left} tiles of {k_tiles} k-tiles are left over, for {x.s.shares} shares of one or more"


def workspace(x: Lowered) -> Reasons:
    """The workspace holds the partial sums, and nothing else."""
    (m, n, _), sums = x.s.tiling.shape, data_type(x.plan.contraction.dtype).accumulator_bytes
    needed = x.s.partial_tiles(x.tiles) * m * n * sums
    if x.s.workspace_bytes != needed:
        yield f"{x.s.workspace_bytes} bytes, partial sums take {needed}"


def grid(x: Lowered) -> Reasons:
    """The grid has less than 2**31 blocks, and no more rows of tiles are visited together than there are."""
    together, rows = x.s.scheduler.group_m, x.s.tiling.m.tiles
    if together > max(1, rows):
        yield f"{together} rows of tiles together, there are {rows}"
    if x.tiles * x.s.split_k > MOST:
        yield f"{x.tiles * x.s.split_k} blocks exceed the grid's limit of 2**31 - 1"


def threads(x: Lowered) -> Reasons:
    """A block has whole warps, at most 1024 threads."""
    if x.s.threads % 32 or not 32 <= x.s.threads <= 1024:
        yield f"{x.s.threads}, whole warps up to 1024 run"


def shared_memory(x: Lowered) -> Reasons:
    """A block asks for no more shared memory than the GPU gives it."""
    if x.s.smem.size > x.facts.smem_per_block:
        yield f"{x.s.smem.size} bytes needed, {x.facts.arch} gives a block {x.facts.smem_per_block}"


def packing_of(x: Lowered) -> Packing:
    """The copies, which there are."""
    assert x.s.packing is not None
    return x.s.packing


def packed_product(x: Lowered) -> Reasons:
    """Copies are made for a product of two tensors, to which nothing is added."""
    c, packing = x.plan.contraction, packing_of(x)
    if c.b is None or x.s.mainloop.one_group:
        yield "no main loop multiplies two tensors"
    if packing.a is packing.b is packing.d is None:
        yield "no tensor is copied"
    if c.c is not None or c.extras:
        yield "C or tensors of the epilogue would have to be read piece by piece"


def pieces(x: Lowered) -> Reasons:
    """Modes of D, each once, are cut into pieces no longer than they are; there are at most 64."""
    c, cuts = x.plan.contraction, packing_of(x).cuts
    for mode, length in cuts:
        if mode not in c.d.modes:
            yield f"mode {mode} is none of D"
        elif length > c.extents[mode]:
            yield f"pieces of {length} of {c.extents[mode]} along {c.names[mode]}"
    if len({mode for mode, _ in cuts}) < len(cuts):
        yield "a mode is cut twice"
    elif count_pieces(c, cuts) > MAX_PIECES:
        yield f"{count_pieces(c, cuts)} pieces"


def copied_tensors(x: Lowered) -> Reasons:
    """A copied tensor has each of its elements once; copies have as many threads each."""
    c, packing = x.plan.contraction, packing_of(x)
    threads = {copy.loop.threads for copy in (packing.a, packing.b, packing.d) if copy is not None}
    if len(threads) > 1:
        yield f"copies are launched together, blocks have {threads} threads"
    for name, copy, tensor in (("A", packing.a, c.a), ("B", packing.b, c.b), ("D", packing.d, c.d)):
        if copy is None or tensor is None:
            continue
        if any(s == 0 and c.extents[m] > 1 for m, s in zip(tensor.modes, tensor.strides, strict=True)):
            yield f"{name} has a stride of 0"


def packed_workspace(x: Lowered) -> Reasons:
    """The workspace holds the copies of one piece and partial sums, and is no larger than its user allows."""
    needed, kept = plans_of(x.plan, packing_of(x)).workspace_bytes, packing_of(x).bytes
    if kept != needed:
        yield f"{kept} bytes, copies take {needed}"
    if x.s.workspace_bytes < kept:
        yield f"{x.s.workspace_bytes} bytes in all, {kept} of them for copies"
    if x.s.workspace_bytes > x.facts.workspace_limit:
        yield f"{x.s.workspace_bytes} bytes, workspace_limit is {x.facts.workspace_limit}"


PACKING_RULES = (packed_product, pieces, copied_tensors, packed_workspace)
