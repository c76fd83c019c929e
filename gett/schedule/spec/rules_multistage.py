"""When a multistage kernel (`mma.sync` or multiply-adds) may run a schedule: one rule, one sentence each.

`LIMITS` are what a search runs into. It meets the rest by construction; schedules made by hand or read from a file need
not. Rules are asked in order, and later ones rely on those before.
"""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.spec.epilogue import VectorStore
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.multistage_needs import (
    multistage_registers,
    multistage_smem,
    thread_accesses,
    warp_step,
)
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.rules_common import BOXES, EXTENTS, GRID, GROUPS, SHARED_MEMORY, THREADS, WORKSPACE
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import OneTile
from gett.schedule.spec.vectors import Groups, TiledDim, row_vector, store_vector, tiled_dims, widest_vector

REGISTER_LIMIT = 252
"""Registers of the fit that a thread may need; it has 255."""

ACCESS_LIMIT = 24
"""Accesses of a thread for one operand's tile; the kernels could hold 32, a bit of validity each, but spill by then."""


def _accesses(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = s.multistage
    for name, loader, side in (("A", loop.a, s.tiling.block[0]), ("B", loop.b, s.tiling.block[1])):
        count = thread_accesses(s.tiling, loop, loader, side)
        if count > ACCESS_LIMIT:
            return f"accesses: {count} a thread to load operand {name}, the limit is {ACCESS_LIMIT}"
    return None


def _registers(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    count = multistage_registers(s.tiling, s.multistage, itemsize(plan.contraction.dtype))
    return (
        f"registers: about {count} a thread, the limit is {REGISTER_LIMIT} of 255" if count > REGISTER_LIMIT else None
    )


def _parts(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not isinstance(s.scheduler, OneTile):
        return f"scheduler: a multistage block makes one tile, not those of a {type(s.scheduler).__name__}"
    store = s.epilogue.store
    if not isinstance(store, VectorStore) or store.stage is not None:
        return "store: a multistage kernel stages D where its stages were and stores vectors"
    return None if s.tiling.mma_tiles == 1 else f"mma_tiles: a multistage block multiplies 1, not {s.tiling.mma_tiles}"


def _source(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if (s.epilogue.source is None) == (plan.contraction.c is None):
        return None
    return "source: C is added, but the schedule reads none" if s.epilogue.source is None else "source: there is no C"


def _tensor_cores(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    c = plan.contraction
    if not s.multistage.tensor_cores or data_type(c.dtype).multiplied(c.precision) is not None:
        return None
    return f"tensor cores do not multiply {c.dtype} under precision {c.precision!r}"


def _warps(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = s.multistage
    steps = warp_step(loop.tensor_cores)
    for name, side, warps, step in zip("mn", s.tiling.block, loop.warps, steps, strict=False):
        if side % (warps * step):
            return f"warps: block_{name} = {side} is no multiple of {warps} warps times {step}"
    return None


def _depth(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    tensor = data_type(plan.contraction.dtype).tensor if s.multistage.tensor_cores else None
    step = tensor.mma.k if tensor is not None and tensor.mma is not None else 1
    k = s.tiling.block[2]
    return f"block_k = {k} is no multiple of {step}, the K of one mma.sync" if k % step else None


def _stages(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    count = s.multistage.stages
    return None if count >= 2 else f"stages: {count}, a pipeline has at least 2"


def _k_table(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    box = s.tiling.k
    if s.multistage.k_table:
        flat = len(box.dims) == 1 and (box.size == s.tiling.block[2] or box.tiles == 1)
        return None if flat else "k_table: offsets from a table need K flattened into one dimension"
    if box.flattens:
        return "k_table: K is flattened, so offsets must come from a table"
    return (
        f"k_table: {box.ragged} dimensions of K are ragged, without a table at most 1 may be"
        if box.ragged > 1
        else None
    )


def _split(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    split, k_tiles = s.split_k, s.tiling.k.tiles
    if split < 1 or (split > 1 and (split - 1) * -(-k_tiles // split) >= k_tiles):
        return f"split_k = {split}: {k_tiles} k-tiles in slices of {-(-k_tiles // max(split, 1))} leave a slice empty"
    if split > 1 and s.tiling.l is not None:
        return f"split_k = {split}: a block that makes several batches takes all of K"
    return None


def _batches(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    groups, batches = s.multistage.batch_warps, s.tiling.batches
    if s.tiling.l is not None and not s.multistage.tensor_cores:
        return f"batches: {batches} in a block, without tensor cores it makes 1"
    if groups < 1 or batches % groups:
        return f"batches: {batches} in a block are not shared evenly by {groups} groups of warps"
    return None


def _operands(s: Schedule, plan: GemmPlan) -> list[tuple[str, int, CpAsync | RegisterStaged, int, list[TiledDim]]]:
    """Name, number, loader, rows and tiled dimensions in memory order of A and B."""
    t, loop = s.tiling, s.multistage
    out = []
    for name, tensor, loader, rows, modes, box in (
        ("A", A, loop.a, t.block[0], plan.m, t.m), ("B", B, loop.b, t.block[1], plan.n, t.n)
    ):  # fmt: skip
        groups: Groups = (("k", plan.k, t.k), ("mn", modes, box))
        groups = (*groups, ("l", plan.l, t.l)) if t.l is not None else groups
        out.append((name, tensor, loader, rows, tiled_dims(groups, tensor)))
    return out


def _vectors(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for name, tensor, loader, rows, dims in _operands(s, plan):
        if isinstance(loader, CpAsync):
            widest = row_vector(plan, tensor, dims, rows, s.tiling.block[2])
            if widest and dims[0].group != loader.major:
                unit = dims[0].group
                return f"vector: rows of operand {name} run along {loader.major}, its unit-stride mode lies in {unit}"
            size = itemsize(plan.contraction.dtype)
            if not widest or loader.vector * size not in (4, 8, 16) or widest % loader.vector:
                return f"vector: cp.async of {loader.vector} elements of operand {name}, its strides allow {widest}"
        else:
            widest = widest_vector(plan, tensor, dims)
            if loader.vector < 1 or widest % loader.vector:
                return f"vector: loads of {loader.vector} elements of operand {name}, its strides allow {widest}"
    return None


def _walks(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for name, _, loader, _, dims in _operands(s, plan):
        if isinstance(loader, RegisterStaged):
            if sorted(loader.walk) != sorted((d.group, d.index) for d in dims):
                return f"walk: {loader.walk} of operand {name} does not take each tiled dimension once"
            if loader.vector > 1 and loader.walk[0] != (dims[0].group, dims[0].index):
                return f"walk: vectors of operand {name} do not run along the first dimension, {loader.walk[0]}"
    return None


def _tiles(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    size, k = itemsize(plan.contraction.dtype), s.tiling.block[2]
    for name, _, loader, rows, _ in _operands(s, plan):
        tall = rows * s.tiling.batches
        shape = (tall, k * size) if loader.major == "k" else (k, tall * size)
        if (loader.smem.rows, loader.smem.row_bytes) != shape:
            found = f"{loader.smem.rows} rows of {loader.smem.row_bytes} bytes"
            return f"layout: {found} hold operand {name}, its tile has {shape[0]} of {shape[1]}"
    return None


def _smem_plan(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = s.multistage
    smem = multistage_smem(plan, s.tiling, loop.a, loop.b, loop.k_table).plan(loop.stages, s.split_k > 1)
    return None if s.smem == smem else f"shared memory: planned as {s.smem}, the parts make {smem}"


def _store(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    vector, widest = s.epilogue.store.vector, store_vector(plan, s.tiling.m, s.tiling.n, s.tiling.l)
    allowed = vector >= 1 and widest % vector == 0
    return None if allowed else f"store: vectors of {vector} elements of D, its strides allow {widest}"


LIMITS = (
    SHARED_MEMORY,
    THREADS,
    Rule("accesses", f"A thread loads a k-tile of an operand in at most {ACCESS_LIMIT} accesses.", _accesses),
    Rule("registers", f"A thread needs about {REGISTER_LIMIT} registers at most.", _registers),
    BOXES,
    EXTENTS,
)
"""What a search runs into."""

RULES = (
    GROUPS,
    Rule("parts", "The main loop goes with one tile a block, one MMA tile and a store of vectors.", _parts),
    Rule("source", "C is read where there is one.", _source),
    Rule("tensor cores", "Tensor cores multiply types that they form exact enough products of.", _tensor_cores),
    Rule("batches", "Groups of warps share the batches of a block evenly; several need tensor cores.", _batches),
    Rule("warps", "Each warp multiplies as many whole instructions.", _warps),
    Rule("depth", "A k-tile is whole instructions deep.", _depth),
    Rule("stages", "The pipeline has two stages or more.", _stages),
    Rule("k table", "Offsets along K come from a table where K is flattened, and only there.", _k_table),
    Rule("split", "No slice of K is empty; a block of several batches takes all of K.", _split),
    WORKSPACE,
    GRID,
    *LIMITS,
    Rule("vectors", "Strides and alignment allow the vectors of A and B.", _vectors),
    Rule("walks", "A walk takes each tiled dimension once, the one that vectors lie along first.", _walks),
    Rule("layouts", "Rows in shared memory hold the operands' tiles, padding included.", _tiles),
    Rule("shared memory plan", "The parts of shared memory lie where the kernel expects them.", _smem_plan),
    Rule("store", "Strides and alignment allow the vectors of D.", _store),
)
"""All conditions."""
