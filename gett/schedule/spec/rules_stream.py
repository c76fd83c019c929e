"""When a bandwidth-bound kernel (maps and sums) may run a schedule: one rule, one sentence each.

`LIMITS` are what a search runs into; it meets the rest by construction. Rules are asked in order, and later ones rely
on those before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.spec.epilogue import VectorStore
from gett.schedule.spec.mainloop import Digit, Stream, StreamLoad, StreamMap, StreamSum
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import OneTile
from gett.schedule.spec.stream_needs import staged_bytes, sum_block, sum_bytes
from gett.schedule.spec.stream_views import (
    TensorView,
    cut_modes,
    is_splat,
    output_modes,
    output_views,
    sum_views,
    vector_along,
)
from layouts.box import Box


def _loop(s: Schedule) -> Stream:
    assert isinstance(s.mainloop, StreamMap | StreamSum)
    return s.mainloop


def _loads(s: Schedule) -> dict[int, StreamLoad]:
    loop = _loop(s)
    return {t: x for t, x in ((A, loop.a), (B, loop.b), (C, loop.c)) if x is not None}


def _name(tensor: int) -> str:
    return {A: "A", B: "B", C: "C", D: "D"}[tensor]


def _grid(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    blocks = s.tiling.m.tiles * s.split_k
    return f"{blocks} blocks exceed the grid's limit of 2**31 - 1" if blocks >= 2**31 else None


def _smem_limit(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if s.smem.size <= facts.smem_per_block:
        return None
    return f"shared memory: {s.smem.size} bytes needed, {facts.arch} gives a block {facts.smem_per_block}"


def _kind(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if isinstance(s.mainloop, StreamSum) == (plan.extent_k != 1):
        return None
    return f"sums: K has {plan.extent_k} elements, which are no matter for a {type(s.mainloop).__name__}"


def _groups(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    extents_k = tuple(x.extent for x in plan.k) if plan.extent_k not in (0, 1) else ()
    expected = (tuple(x.extent for x in output_modes(plan)), (), extents_k)
    boxes = (s.tiling.m, s.tiling.n, s.tiling.k)
    for name, box, extents in zip("mnk", boxes, expected, strict=True):
        if box.extents != extents:
            return f"box_{name} is for extents {box.extents}, its modes have {extents}"
    return None


def _parts(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not isinstance(s.scheduler, OneTile):
        return f"scheduler: a block makes one tile, not those of a {type(s.scheduler).__name__}"
    loop, store = _loop(s), s.epilogue.store
    vector = loop.vector if isinstance(loop, StreamMap) else 1
    if not isinstance(store, VectorStore) or store.stage is not None or store.vector != vector:
        return f"store: D is stored in vectors of {vector}, straight from registers"
    return None


def _tensors(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loads, tensors = _loads(s), output_views(plan)
    for t in (A, B, C):
        if (t in loads) != (t in tensors):
            return (
                f"operands: the plan has {'a' if t in tensors else 'no'} {_name(t)}, the schedule reads it differently"
            )
    return None if (s.epilogue.source is None) == (C not in tensors) else "source: C is read where there is one"


def _threads(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    threads = _loop(s).threads
    return None if threads % 32 == 0 and 32 <= threads <= 1024 else f"threads: {threads}, whole warps up to 1024 run"


def _lanes(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = _loop(s)
    if isinstance(loop, StreamSum) and (loop.lanes_k & (loop.lanes_k - 1) or not 1 <= loop.lanes_k <= loop.threads):
        return f"lanes_k: {loop.lanes_k} threads along K, powers of two up to {loop.threads} add up"
    return None


def _counts(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = _loop(s)
    rows = loop.rows if isinstance(loop, StreamSum) else 1
    return (
        None if min(loop.unroll, rows) >= 1 else f"unroll: {loop.unroll} steps of {rows} rows, at least 1 of 1 is made"
    )


def _block(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, t = _loop(s), s.tiling
    block = (t.m.size, 1, 1) if isinstance(loop, StreamMap) else sum_block(loop)
    return None if t.block == block else f"block: {t.block}, the threads make {block}"


def _boxes_fit(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    t = s.tiling
    for name, box, block in (("m", t.m, t.block[0]), ("k", t.k, t.block[2])):
        if box.size > block:
            return f"box_{name} of {box.size} elements does not fit block_{name} = {block}"
    return None


def _one_mode(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for box in (s.tiling.m, s.tiling.k):
        if box.flattens:
            return f"boxes: {box.dims} flattens modes, each tiled dimension is one mode"
    return None


def _smem(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = _loop(s)
    needed = (
        sum_bytes(plan, loop) if isinstance(loop, StreamSum) else staged_bytes(s.tiling.m, loop, output_views(plan))
    )
    return None if s.smem.size == needed else f"shared memory: {s.smem.size} bytes planned, the kernel uses {needed}"


def _split(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    split, k_tiles = s.split_k, s.tiling.k.tiles
    if split != 1 and not isinstance(s.mainloop, StreamSum):
        return f"split_k = {split}: nothing is summed"
    if split < 1 or (split > 1 and (split - 1) * -(-k_tiles // split) >= k_tiles):
        return f"split_k = {split}: {k_tiles} k-tiles in slices of {-(-k_tiles // max(split, 1))} leave a slice empty"
    return None


def _workspace(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    tiles = s.tiling.m.tiles * s.tiling.block[0] * data_type(plan.contraction.dtype).accumulator_bytes
    needed = s.split_k * tiles if s.split_k > 1 else 0
    return f"workspace: {s.workspace_bytes} bytes, partial sums take {needed}" if s.workspace_bytes < needed else None


def _covers(box: Box, walk: Sequence[Digit]) -> bool:
    """Whether a walk takes each element of a box once."""
    for i, d in box.tiled:
        step = 1
        for digit in sorted((x for x in walk if x.dim == i), key=lambda x: x.step):
            if digit.step != step:
                return False
            step *= digit.size
        if step != d.box:
            return False
    return math.prod(x.size for x in walk) == box.size


def _walks(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    walks = {D: _loop(s).walk_d, **{t: x.walk for t, x in _loads(s).items() if x.staged}}
    for t, walk in walks.items():
        if not _covers(s.tiling.m, walk):
            return f"walk: {walk} does not take each element of {_name(t)}'s tile once"
    return None


def _staged(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for t, x in _loads(s).items():
        if x.staged and (isinstance(s.mainloop, StreamSum) or x.splat):
            return f"staging: {_name(t)} passes through shared memory in maps only, and then element by element"
        if x.mask not in (0, 1, 3, 7) or x.shift < 0:
            return f"staging: {_name(t)}'s swizzle takes {x.mask} of the 7 in which rows of 128 bytes are permuted"
    return None


def _vectors(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, tensors = _loop(s), output_views(plan)
    along_k = isinstance(loop, StreamSum) and loop.along_k
    views = {**tensors, **sum_views(plan)} if along_k else tensors
    box = s.tiling.k if along_k else s.tiling.m
    cuts = cut_modes(box)
    if isinstance(loop, StreamMap):
        widest = vector_along(cuts, box.extents, tensors[D])
        if loop.vector < 1 or widest % loop.vector:
            return f"vector: {loop.vector} elements of D at a time, its strides allow {widest}"
    # Single elements of C are read where sums are stored.
    for t, x in ((t, x) for t, x in _loads(s).items() if isinstance(loop, StreamMap) or t != C):
        reason = _load(_name(t), x, views[t], box, loop.vector)
        if reason is not None:
            return reason
    return None


def _load(name: str, load: StreamLoad, view: TensorView, box: Box, vector: int) -> str | None:
    cuts = cut_modes(box)
    if load.splat:
        repeated = is_splat(cuts, view, vector)
        return None if repeated else f"vector: {vector} elements of {name} are read as one, which they are not"
    if load.staged:
        cuts = [(d.modes[0], d.box) for d in (box.dims[x.dim] for x in load.walk if x.step == 1)]
    # A walk may continue with a part of a dimension that it has left; vectors end before.
    widest = vector_along(cuts, box.extents, view)
    if load.width < 1 or widest % load.width:
        return f"vector: accesses of {load.width} elements of {name}, its strides allow {widest}"
    if not load.staged and load.width < vector and cuts and cuts[0][1] % vector:
        return f"vector: {vector} elements of {name} in accesses of {load.width} lie along {cuts[0][1]} of a mode"
    return None


def _shared(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    tensors = output_views(plan)
    for t, x in _loads(s).items():
        if x.shared and any(tensors[t].strides[m] for m, _ in cut_modes(s.tiling.m)):
            return f"shared: the outputs of a tile read different elements of {_name(t)}"
    return None


LIMITS = (
    Rule("grid", "The grid has less than 2**31 blocks.", _grid),
    Rule("shared memory", "A block asks for no more shared memory than the GPU gives it.", _smem_limit),
)
"""What a search runs into."""

RULES = (
    Rule("kind", "A kernel that sums runs plans with sums, one that maps the others.", _kind),
    Rule("groups", "One box has all modes of D, one those of K, the third is empty.", _groups),
    Rule("parts", "The main loop goes with one tile a block and a store of vectors.", _parts),
    Rule("operands", "The tensors of the plan are read, and no others.", _tensors),
    Rule("threads", "A block has whole warps, at most 1024 threads.", _threads),
    Rule("lanes", "Threads along K are a power of two.", _lanes),
    Rule("counts", "A thread has something in flight.", _counts),
    Rule("block", "The block is what its threads make.", _block),
    Rule("boxes", "Each box fits its block.", _boxes_fit),
    Rule("modes", "No tiled dimension flattens modes.", _one_mode),
    Rule("shared memory plan", "The shared memory is what the kernel uses.", _smem),
    Rule("split", "No slice of K is empty, and only sums are sliced.", _split),
    Rule("workspace", "The workspace holds the partial sums.", _workspace),
    Rule("walks", "Walks take each element of a tile once.", _walks),
    Rule("staging", "Only maps stage operands, swizzled within rows of 128 bytes.", _staged),
    Rule("vectors", "Strides and alignment allow the vectors.", _vectors),
    Rule("shared", "An operand is shared by the outputs of a tile only if it does not vary among them.", _shared),
    *LIMITS,
)
"""All conditions."""
