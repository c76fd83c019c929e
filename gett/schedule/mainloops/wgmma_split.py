"""WgmmaSplit: products of planes; a warpgroup makes B's in shared memory, A's are made on the way to registers."""

from __future__ import annotations

import math
from dataclasses import replace

from gett.hw.tensor_types import Planes
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops import hopper
from gett.schedule.mainloops.kind import Constants, Fact, WgmmaText
from gett.schedule.rules.gather import COPY_RULES, row_table_bytes
from gett.schedule.rules.hopper import MAP_RULES
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.spec.epilogue import Store
from gett.schedule.spec.hopper_needs import GRAIN, MOST_STAGES, leads, parts, planes, up
from gett.schedule.spec.loader import CpAsyncTile, HopperLoader, Tma
from gett.schedule.spec.mainloop import Hopper, WgmmaSplit
from gett.schedule.spec.schedule import Schedule, SmemPlan
from layouts.swizzle import CHUNK

SUMS_OF_A_ROW = 128  # most real sums of a row of a tile: short sums take as many registers as those of the tile
ONE_CHUNK = 64  # columns up to which a tile is one chunk; wider ones are halved, since they have no room for two sums

TWO_LEADS = 8, 4
"""K of A's and of B's rows in a k-tile where they run along two contracted modes. Longer rows of B would make k-tiles
of 64, for few of which there is room."""

GUARD_BYTES = 96  # barrier and words by which a kernel knows the tiles that it makes again

REGISTERS = {96: (64, 192), 128: (56, 200)}
"""Registers of a thread that fetches and of one that multiplies, by the real sums of a row of the tile. The first
number is the mean of a thread that issues copies and of one that splits B, to which the other one leaves what it does
not need."""

SCALED_REGISTERS = {112: (56, 200), 128: (48, 208)}  # the same where planes are scaled


def _planes(plan: GemmPlan) -> Planes:
    made = planes(plan)
    assert made is not None
    return made


def widest_split(plan: GemmPlan, a: HopperLoader, b: HopperLoader, deep: int) -> int:
    """Most columns of a tile whose planes are multiplied, `deep` k at a time."""
    columns = SUMS_OF_A_ROW // parts(plan)
    # Those who multiply store D too, where those who would do it copy: sums of complex numbers leave no registers.
    if parts(plan) > 1 and (a.by_warps or b.by_warps):
        return columns * 3 // 4
    # Complex fragments along K beside planes along N, two steps of each: registers do not suffice.
    crowded = parts(plan) > 1 and deep > 16 and (a.major, b.major) == ("k", "mn")
    return columns - 8 if crowded else columns


def vectors_spill(plan: GemmPlan, a: HopperLoader, b: HopperLoader, shape: tuple[int, int, int], store: Store) -> bool:
    """Whether threads that multiply complex numbers have no registers for a store of D in vectors.

    All of eight kernels with the widest tile spilled, 52 to 88 bytes a thread, those that spare registers too. With 56
    columns these did not. Where a tensor map brings one operand and threads the other, in k-tiles of two steps, tiles
    of 40 columns spilled and those of 48 did not. Where D leaves in single elements neither does.
    """
    if parts(plan) == 1 or _planes(plan).scaled or store.map is not None or store.vector == 1:
        return False
    _, columns, deep = shape
    copied = [x.by_warps for x in (a, b)]
    if any(copied):
        return not all(copied) and deep > 16 and columns > 32 and columns % 16 > 0
    return columns * parts(plan) == SUMS_OF_A_ROW


def least_row(load: Tma | CpAsyncTile, name: str, size: int) -> int:
    """Bytes of the shortest rows of elements of `size` bytes of operand `name` that planes are made of.

    Fragments of A out of shorter ones meet in the same banks of shared memory, which is worth it where a whole mode is
    no longer. Who splits B along K takes a row; planes of rows along N have as many columns, in rows of a chunk at
    least.
    """
    if load.major != "k":
        return CHUNK // 2 * size
    if load.tma is None:
        return CHUNK
    made = load.tma.map
    whole = made.extents[0] * size <= CHUNK or (len(made.order) > 1 and made.modes[made.order[1]].dim == 0)
    return CHUNK if name == "b" or whole else 2 * CHUNK


def chunk_columns(plan: GemmPlan, loop: WgmmaSplit, columns: int) -> tuple[int, ...]:
    """Columns that a set of short sums has, in a tile of `columns`.

    Halves are whole slabs of B's planes. Complex sums have a set of all columns for each part.
    """
    slab = GRAIN["b"] if loop.b.major == "k" else loop.b.swizzle_bytes // itemsize(plan.contraction.dtype)
    halved = columns > ONE_CHUNK and parts(plan) == 1
    first = up(up(columns, 2) // 2, slab) if halved else columns
    return (first, columns - first) if first < columns else (columns,)


def data_types(x: Lowered) -> Reasons:
    """The precision is one of planes."""
    c = x.plan.contraction
    if planes(x.plan) is None:
        yield f"{c.dtype} at precision {c.precision} by a {type(x.s.mainloop).__name__}"


def splitting(x: Lowered) -> Reasons:
    """Planes are made of rows that are long enough, by blocks that share nothing, for sums that registers hold."""
    loop, (_, columns, deep) = x.s.loop(WgmmaSplit), x.s.tiling.shape
    if columns > (most := widest_split(x.plan, loop.a, loop.b, deep)):
        yield f"{columns} columns, the most are {most}"
    if x.blocks > 1:
        yield f"{x.blocks} blocks of a cluster"
    for o, load in x.by_map:
        if load.run or load.multicast is not None:
            yield f"operand {o.name}: {load.run} rows of an atom are full, {load.blocks} blocks share it"
    for o, source in zip(x.operands, (loop.a, loop.b), strict=True):
        if source.swizzle_bytes < least_row(source, o.name.lower(), x.size):
            yield f"rows of {source.swizzle_bytes} bytes of operand {o.name}"


def vectors_of_sums(x: Lowered) -> Reasons:
    """Who multiplies complex numbers has registers left for a store of D in vectors, unless slices are added."""
    loop, shape, store = x.s.loop(WgmmaSplit), x.s.tiling.shape, x.s.epilogue.store
    if x.s.split_k == 1 and vectors_spill(x.plan, loop.a, loop.b, shape, store):
        yield f"vectors of {store.vector} of D beside {shape[1]} columns of complex sums, {shape[2]} deep"


def k_order(x: Lowered) -> Reasons:
    """K-tiles are 16 or 32 in one order of k, or 32 of the two modes along which A's and B's rows run."""
    loop, deep = x.s.loop(WgmmaSplit), x.s.tiling.k.size
    found, (a, b) = leads(loop, x.s.tiling.k), ([d for _, d in o.box_k.tiled] for o in x.operands)
    if found != (1, 1):
        if found != TWO_LEADS or deep != math.prod(TWO_LEADS):
            yield f"k-tiles of {deep} with {found} k of A's and B's rows, which are {TWO_LEADS}"
    elif a != b or deep not in (16, 32):
        yield f"k-tiles of {deep}, A's are {a} and B's are {b}"


def registers(plan: GemmPlan, loop: Hopper, columns: int) -> tuple[int, int]:
    """Of a thread that fetches and of one that multiplies a tile of `columns`."""
    made, sums = planes(plan), columns * parts(plan)
    return hopper.by_accumulators(SCALED_REGISTERS if made is not None and made.scaled else REGISTERS, sums)


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """Stages, planes of B, staged tiles, barriers, then tables of those who copy by `cp.async`."""
    t, loop, made, deep = s.tiling, s.loop(WgmmaSplit), _planes(plan), s.tiling.shape[2]
    plane = parts(plan) * hopper.tile_bytes("b", t.n.size, deep * made.tensor.bytes)
    barriers = hopper.barrier_bytes(MOST_STAGES + loop.plane_stages) + GUARD_BYTES
    barriers += hopper.barrier_bytes(loop.plane_stages) if made.scaled else 0
    found = hopper.laid_out(s, plan, loop.plane_stages * made.count * plane, barriers=barriers)
    tables = row_table_bytes(loop.a, t.m.size, deep) + row_table_bytes(loop.b, t.n.size, deep)
    if not tables:
        return found
    loaders = up(found.size - hopper.ALIGN, 16)
    return replace(found, size=hopper.ALIGN + loaders + tables, loaders=loaders)


def traits(plan: GemmPlan, s: Schedule) -> Constants:
    """How many planes a number has, which products of them are formed and summed, and columns of the first chunk."""
    loop, made, (_, columns, deep) = s.loop(WgmmaSplit), _planes(plan), s.tiling.shape
    return hopper.orders(
        plan,
        s,
        kPlanes=made.count,
        kProducts=len(made.products),
        kSumSteps=made.sum_steps(parts(plan), deep),
        kScaled=made.scaled,
        kChunkColumns=chunk_columns(plan, loop, columns)[0],
    )


def multiplies(plan: GemmPlan, s: Schedule) -> WgmmaText:
    """A wgmma for each width of a chunk."""
    loop = s.loop(WgmmaSplit)
    chunks = tuple(sorted(set(chunk_columns(plan, loop, s.tiling.shape[1]))))
    return WgmmaText(_planes(plan).tensor, chunks, (loop.b.major,), signed=True)


def products(plan: GemmPlan, s: Schedule) -> list[Fact]:
    """Which products are formed, and how far off their sums may be."""
    lowered = lower_plan(plan, s.tiling, s.precision)
    made, pairs = _planes(lowered), parts(lowered) ** 2
    deep = 16 * made.sum_steps(parts(lowered), s.tiling.shape[2])
    kind = f"{'scaled ' if made.scaled else ''}{made.tensor.name} planes of each {'part' if pairs > 1 else 'operand'}"
    formed = f"{pairs * len(made.products)}, of {made.count} {kind}; float32 sums of every {deep} k"
    asked = plan.contraction.precision
    worst = made.bound_complex if pairs > 1 else made.bound
    bound = f"errors at most {worst} units of 2^-24 of a sum's magnitudes; other data by multiply-adds"
    counted = f"where numbers count as {made.low} or more of the largest that they are scaled with"
    more = [("", f"{s.precision} in place of {asked}, and at least as accurate")] if s.precision else []
    return [("products", formed), *more, ("", bound), *([("", counted)] if made.scaled else [])]


WGMMA_SPLIT = hopper.HopperKind(
    words="wgmma of planes, A's in registers",
    rules=hopper.hopper_rules(data_types, (*MAP_RULES, *COPY_RULES, splitting, vectors_of_sums, k_order)),
    smem=smem,
    products=products,
    registers=registers,
    fields={"kProducerWarpgroups": "producers", "kPlaneStages": "plane_stages"},
    traits=traits,
    multiplies=multiplies,
    brings="copying",
    makes="splits B",
    repairs=True,
)
