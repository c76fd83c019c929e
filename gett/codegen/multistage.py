"""The multistage kernels, `mma.sync` and simt: traits, index functions and entry.

The pipeline is `gett/kernels/kernel/multistage_gemm.cuh`. Emits declarations only; no loop and no arithmetic beyond the
index functions is made of strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gett.codegen.common import (
    REDUCE_BLOCKS,
    entry,
    factor_types,
    finish_kernel,
    named_counts,
    raster_table,
    reach,
    store_order,
    strides_of,
    work_tiles,
)
from gett.codegen.epilogue_op import extra_tensors, op_struct, tile_op
from gett.codegen.index import Function, ParamTable
from gett.codegen.params import declare_params, pack_params
from gett.codegen.records import Kernel
from gett.codegen.tiles import (
    batch_index,
    group_index,
    k_box_index,
    k_table_index,
    unpack,
)
from gett.codegen.traits import (
    problem_traits,
    scheduler_class,
    scheduler_traits,
    smem_struct,
    store_traits,
    store_types,
    struct,
    tile_shape,
)
from gett.hw.archs import arch_facts
from gett.hw.device import nearest
from gett.ir.gemm import A, B, C, D, GemmPlan
from gett.schedule.mainloops.kind import Constants
from gett.schedule.mainloops.multistage import atom_of, cache_bytes, loads_ahead, resident_blocks
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.schedule import Schedule, Tiling
from gett.schedule.spec.vectors import operand_dims
from gett.schedule.tile.lane_order import LoadedTile, Order, batch_spread, elements_of, lane_order, memory_order
from layouts.box import Box
from layouts.modes import Strided, volume
from layouts.swizzle import CHUNK

LEAST_REGISTERS = 64  # of a thread that launch bounds may leave: with fewer, mma of float64 does not compile

# Tiles that read an operand. On an H200 33 of 80 operands with 16 or more are faster by 3 %, up to 3.6 times, and one
# is slower; where one tile reads it, up to 1.9 times slower.
FEWEST_READS = 16


def render_multistage(plan: GemmPlan, schedule: Schedule) -> Kernel:
    """The kernel of a lowered plan whose k-tiles all warps fill and multiply."""
    t, loop = schedule.tiling, schedule.multistage
    contraction = plan.contraction
    table = raster_table(schedule)
    has_c = contraction.c is not None
    out = {"d": D, **({"c": C} if has_c else {}), **extra_tensors(contraction)}
    m = group_index("m", t.m, t.shape[0], strides_of(plan, plan.m, {"a": A, **out}), table)
    n = group_index("n", t.n, t.shape[1], strides_of(plan, plan.n, {"b": B, **out}), table)
    batch = _batches(plan, t, {"a": A, "b": B, **out}, table)
    if loop.k_table:
        flat = flattened_k(plan, t)
        k_struct, k = k_table_index([s.extent for s in flat], strides_of(plan, flat, {"a": A, "b": B}), table)
    else:
        k_strides = strides_of(plan, plan.k, {"a": A, "b": B})
        k_struct, k = k_box_index(t.k, t.shape[2], k_strides, table)
    loads = loading(plan, A, loop.a, t), loading(plan, B, loop.b, t)
    walks = (*walk_function(loads[0].walk, "a"), *walk_function(loads[1].walk, "b"))
    order = store_order(plan, schedule)
    index = "\n".join(
        [
            *(m.to_cpp(), n.to_cpp(), batch, k_struct),
            *(f.to_cpp() for f in (*k, *walks, unpack_d(t, order))),
            *tile_op(plan, t.l is not None),
        ]
    )
    names, tiles, reduce_blocks = named_counts(plan, schedule), t.tiles(plan.extent_l), 0
    grid = tiles * schedule.split_k
    if schedule.scheduler.stream_k:
        work, tiles = work_tiles(schedule, tiles)
        names, grid = names | work, schedule.shares
        # Where the compiler chose, it might spill. Both kernels would be compiled again, with few blocks of the first.
        reduce_blocks = REDUCE_BLOCKS
    params = declare_params(contraction, names, table, factors=factor_types(plan))
    # By itself the compiler saves registers for more blocks than that, at the price of instructions side by side.
    facts = arch_facts(schedule.arch)
    resident = resident_blocks(plan, schedule, facts, nearest(facts).multistage.factors.registers)
    resident = min(resident, facts.regs_per_sm // (LEAST_REGISTERS * schedule.threads))
    s = schedule.smem
    places = {"kStaging": s.staging, "kKTable": s.k_table, "kOffsets": s.offsets}
    mainloop, mma = ("mma_sync", "WarpMma") if loop.tensor_cores else ("simt", "SimtMma")
    text = (
        f'#include "gett/kernel/multistage_gemm.cuh"\n#include "gett/mainloop/{mainloop}.cuh"\n\n{params}\n'
        f"{op_struct(contraction)}{_traits(plan, schedule, order, loads)}\n{smem_struct(s, places)}\n"
        f"struct Index {{\n{index}\n}};\n\n"
        "typedef gett::BatchedIndex<EpilogueTraits, Index, (TileShape::kBatch > 1)> Offsets;\n"
        f"typedef gett::{scheduler_class(schedule)}<SchedulerTraits> Scheduler;\n"
        f"typedef gett::Multistage<MainloopTraits, Offsets, gett::{mma}<MainloopTraits>, Smem> Mainloop;\n"
        "typedef gett::PaddedEpilogue<EpilogueTraits, Offsets, Scheduler, Smem> Epilogue;\n"
        "typedef gett::MultistageGemm<Mainloop, Epilogue, Scheduler, Offsets> Kernel;\n\n"
        f"{entry('gett_tiled', 'Kernel::run', f'Kernel::kThreads GETT_MIN_BLOCKS_OF({resident})')}"
    )
    packed, blocks = pack_params(names, table, extras=len(contraction.extras)), (grid, 1, 1)
    return finish_kernel(
        schedule, contraction, "gett_tiled", text, blocks, schedule.threads, tiles, packed, names,
        reduce_blocks=reduce_blocks, cache_bytes=cache_bytes(plan, loop, facts),
    )  # fmt: skip


def flattened_k(plan: GemmPlan, tiling: Tiling) -> list[Strided]:
    """Modes of K in the order of the box, fastest first: an operand's vectors run along the first of them."""
    return [plan.k[m] for d in tiling.k.dims for m in d.modes]


def _batches(plan: GemmPlan, tiling: Tiling, tensors: dict[str, int], table: ParamTable) -> str:
    """Index functions of the batch group."""
    strides = strides_of(plan, plan.l, tensors)
    if tiling.l is not None:
        return group_index("l", tiling.l, tiling.batches, strides, table).to_cpp()
    struct, function = batch_index([s.extent for s in plan.l], strides, table)
    return f"{struct}\n{function.to_cpp()}"


def unpack_d(t: Tiling, order: Sequence[tuple[str, int]]) -> Function:
    """From a position in D's order, of dimensions (group, number), to the row and column of a tall tile.

    Row `batch * rows + m` of it is row m of a batch (`gett/kernels/core/batched.cuh`).
    """
    boxes = {"m": ("m", t.m, 1), "n": ("n", t.n, 1)} | ({} if t.l is None else {"l": ("m", t.l, t.shape[0])})
    digits = []
    for group, i in order:
        output, box, step = boxes[group]
        digits.append((box.dims[i].box, {output: step * box.prefix(i)}))
    return unpack("idx2crd_d", digits)


class Loading(NamedTuple):
    """What follows of an operand's loader from a plan and a tiling."""

    tile: LoadedTile
    walk: Order  # the order in which threads visit the operand, by elements; none where they do so row by row
    spread: int  # chunks by which batches differ in shared memory, 1 where they do not


def loading(plan: GemmPlan, tensor: int, loader: CpAsync | RegisterStaged, t: Tiling) -> Loading:
    """How the threads of a kernel visit operand A or B, and where they put it."""
    dims, side = operand_dims(plan, tensor, t.m if tensor == A else t.n, t.k, t.l), t.shape[tensor]
    tile = LoadedTile(loader.major, loader.vector, side, t.batches, plan.size(tensor), loader.smem)
    if isinstance(loader, CpAsync):
        return Loading(tile, lane_order(dims, tile), 1)
    placed = {(dim.group, dim.index): dim for dim in dims}
    walk = memory_order([placed[x] for x in loader.walk], side)
    return Loading(tile, walk, batch_spread(walk, tile))


def walk_function(walk: Order, name: str) -> list[Function]:
    """From a position in the order of an operand, `"a"` or `"b"`, to (mn, k) in the tile; none for row by row."""
    digits = [(digit.size, {"m" if digit.group == "mn" else "n": digit.step}) for digit in walk]
    return [unpack(f"idx2crd_{name}", digits)] if walk else []


def place_steps(loader: CpAsync | RegisterStaged, load: Loading, threads: int) -> tuple[int, int]:
    """Rows and bytes of a row in shared memory between places that the first one of a thread tells.

    They are those of neighbours in a vector through registers, or of a thread's copies by `cp.async`. Both are 0 where
    the first place does not tell the others.
    """
    s, (tile, walk, spread) = loader.smem, load
    if isinstance(loader, CpAsync):
        step, left = divmod(threads, tile.along)
        return (step, 0) if not left and not walk and s.is_steady(step, lacked=step & (step - 1) == 0) else (0, 0)
    if not walk or spread > 1:
        return 0, 0
    group, length, step = walk[0]
    if length % loader.vector:
        return 0, 0
    if (group == "k") == (loader.major == "k"):  # along a row
        return (0, 0) if s.mask and step * tile.size % ((s.mask + 1) * CHUNK) else (0, step * tile.size)
    begins = step == 1 and (tile.batches == 1 or tile.side % loader.vector == 0)  # rows are multiples of a vector
    return (step, 0) if s.is_steady(step, lacked=begins) else (0, 0)


def _loader(
    loader: CpAsync | RegisterStaged,
    tiling: Tiling,
    box_mn: Box,
    element: str,
    cached: bool,
    load: Loading,
    steps: tuple[int, int],
) -> tuple[Constants, list[str]]:
    """What an operand's loader is told: constants, then the types of its elements and of the layout of its tile."""
    s, walk = loader.smem, load.walk
    # Whether the elements of a vector are neighbours in a shared-memory row.
    row = bool(walk) and walk[0].group == loader.major and walk[0].step == 1 and walk[0].size % loader.vector == 0
    constants = {
        "kCpAsync": not loader.through_registers,
        "kMajorK": loader.major == "k",
        "kVecK": loader.vector_group == "k",
        "kVec": loader.vector,
        "kRowVectors": row,
        "kRowStep": steps[0],
        "kByteStep": steps[1],
        "kWalked": bool(walk),
        "kSpread": load.spread,
        "kZeroFill": tiling.k.size < tiling.shape[2],
        "kCached": cached,
        "kTileElements": elements_of(walk) if walk else tiling.k.size * box_mn.size * tiling.batches,
    }
    layout = f"gett::SwizzledTile<{s.pitch}, {s.mask}, {s.shift}>"
    return constants, [f"typedef {element} Element;", f"typedef {layout} Layout;"]


def _is_cached(plan: GemmPlan, schedule: Schedule, tensor: int) -> bool:
    """Whether copies of an operand go through the first cache: many blocks read it, and it fits.

    L2 serves blocks that read the same lines one after the other. A stream through the first cache is slower.
    """
    t, modes = schedule.tiling, plan.m if tensor == A else plan.n
    read = volume((*modes, *plan.k), tensor) * plan.size(tensor)
    times = t.n.tiles if tensor == A else t.m.tiles
    return times >= FEWEST_READS and read <= arch_facts(schedule.arch).smem_per_sm


def _traits(
    plan: GemmPlan, schedule: Schedule, order: Sequence[tuple[str, int]], loads: tuple[Loading, Loading]
) -> str:
    """The traits of a kernel's parts."""
    t, loop = schedule.tiling, schedule.multistage
    k_tiles = schedule.k_tiles_per_slice
    loaders = []
    sides = zip((A, B), (loop.a, loop.b), (t.m, t.n), factor_types(plan), loads, strict=True)
    for tensor, loader, box, element, load in sides:
        name, cached = "AB"[tensor], _is_cached(plan, schedule, tensor)
        steps = place_steps(loader, load, schedule.threads)
        constants, types = _loader(loader, t, box, element, cached, load, steps)
        loaders.append(struct(f"LoaderTraits{name}", constants, more=types).rstrip().replace("\n", "\n  "))
    mainloop = {
        "kStages": loop.stages,
        "kThreads": schedule.threads,
        "kWarpsM": loop.warps[0],
        "kWarpsN": loop.warps[1],
        "kTensorCores": loop.tensor_cores,
        "kKTiles": k_tiles if k_tiles <= loop.stages else 0,
        "kAhead": loads_ahead(schedule, atom_of(plan, loop), k_tiles),
        "kKTable": loop.k_table,
        "kKRagged": t.k.ragged > 0 and not loop.k_table,
    }
    structs = (
        problem_traits(plan),
        tile_shape(schedule, {"kBatch": t.batches}),
        scheduler_traits(schedule, order),
        struct("MainloopTraits", mainloop, "TileShape", [f"typedef {_offset_type(plan)} Offset;", *loaders]),
        struct("EpilogueTraits", store_traits(plan, schedule, order), "TileShape", store_types(plan)),
    )
    return "".join(structs)


def _offset_type(plan: GemmPlan) -> str:
    """What holds a distance in bytes between two elements of A, or of B: without a sign it joins addresses for free."""
    groups = (plan.l, plan.m, plan.n, plan.k)
    farthest = max(reach(plan, t) for t in (A, B))
    if all(s.strides[t] >= 0 for g in groups for s in g for t in (A, B)) and farthest < 2**32:
        return "gett::uint32"
    return "int" if farthest < 2**31 else "long long"
