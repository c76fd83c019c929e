"""When a Hopper kernel may run a schedule: tiles, warpgroups, stages, resources of a block.

Loaders and epilogues have rules of their own. Rules are asked in order, and later ones rely on those before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gett.hw.dtypes import WORD, data_type
from gett.schedule.spec import rules_common as common
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.loader import Gather
from gett.schedule.spec.mainloop import DmmaTma, WgmmaRS, WgmmaSplit, WgmmaSS, WgmmaTf32
from gett.schedule.spec.rule import Lowered, rule
from gett.schedule.spec.rules_cp_async import COPY_RULES
from gett.schedule.spec.rules_epilogue import EPILOGUE_RULES
from gett.schedule.spec.rules_gather import GATHER_RULES
from gett.schedule.spec.rules_loaders import LOADER_RULES, cluster, copies, flattened, majors, maps, multicast, panel
from gett.schedule.spec.rules_wgmma_rs import RS_RULES
from gett.schedule.spec.scheduler import OneTile, PersistentRaster
from gett.schedule.spec.wgmma_needs import (
    ACCUMULATORS,
    ARCHS,
    DEEP,
    DEEPEST,
    DMMA_LEADS,
    DMMA_LEADS_COMPLEX,
    RS_WIDEST_SHARED_A,
    RS_WIDEST_WITH_C,
    SPLIT_LEADS,
    WIDEST_TRANSPOSED,
    gathers,
    leads,
    least_row,
    multiplied,
    parts,
    planes,
    swizzle_of,
    up,
    widest_split,
)
from gett.schedule.spec.wgmma_registers import dmma_registers, tf32_registers, thread_registers

REGISTERS = 512
"""Registers of the four threads, one of each quarter of a multiprocessor, that lanes of a warpgroup share."""


ORDERED = 256
"""Most clusters whose first tiles a table of bytes has."""


@rule
def wgmma(x: Lowered) -> Iterator[str]:
    """The architecture has wgmma."""
    if x.facts.arch not in ARCHS:
        yield f"{x.facts.arch} has none, {ARCHS[0]} has"


@rule
def data_types(x: Lowered) -> Iterator[str]:
    """The instruction multiplies the operands' type as it comes, or in planes, out of the sources of the main loop."""
    dtype, loop = x.plan.contraction.dtype, x.s.hopper
    source, tensor = "rs" if isinstance(loop, WgmmaRS | WgmmaTf32) else "ss", multiplied(x.plan)
    made = planes(x.plan)
    if isinstance(loop, DmmaTma):
        operands = [o.dtype for o in (x.plan.a, x.plan.b) if o is not None]
        if data_type(dtype).by_warps() is None:
            yield f"{dtype} of {data_type(dtype).bytes} bytes by a {type(loop).__name__}"
        elif any(o != dtype for o in operands):
            yield f"operands of {operands}, products of 1 type, {dtype}"
    elif isinstance(loop, WgmmaSplit) != (made is not None):
        yield f"{dtype} at precision {x.plan.contraction.precision} by a {type(loop).__name__}"
    elif made is not None:
        return
    elif tensor is None:
        yield f"wgmma does not multiply {dtype} of {data_type(dtype).bytes} bytes as it is"
    elif isinstance(loop, WgmmaTf32) and tensor.bytes != WORD:
        yield f"{tensor.name} of {tensor.bytes} bytes by a {type(loop).__name__}"
    elif gathers(loop) and not data_type(dtype).exact:
        yield f"operands are gathered as they are, {dtype} is to be rounded to {tensor.name}"
    elif source not in x.atom.sources:
        yield f"wgmma of {dtype} has sources {x.atom.sources}, not {source}"


@rule
def scheduler(x: Lowered) -> Iterator[str]:
    """Persistent blocks make tiles of one batch each; there are enough for a cluster, which begin in some order."""
    made, order = x.s.scheduler, getattr(x.s.scheduler, "cluster_order", ())
    if isinstance(made, OneTile):
        yield "Hopper blocks are persistent, this one makes 1 tile and ends"
    elif not x.blocks <= made.blocks <= x.facts.sm_count * x.facts.blocks_per_sm:
        yield f"{made.blocks} blocks in clusters of {x.s.cluster}, for {x.facts.sm_count} multiprocessors"
    if sorted(order) != list(range(len(order))) or len(order) > ORDERED:
        yield f"{len(order)} clusters begin at {order}, no permutation of {ORDERED} at most"
    if x.s.tiling.l is not None:
        yield f"{x.s.tiling.batches} batches in a block, a Hopper block makes tiles of 1"


@rule
def batches_together(x: Lowered) -> Iterator[str]:
    """Batches that are visited together exist; single blocks make whole sums of their tiles."""
    made = x.s.scheduler
    group = made.group_l if isinstance(made, PersistentRaster) else 1
    if group > max(1, x.plan.extent_l) or (group > 1 and (x.blocks > 1 or made.split_k > 1)):
        yield f"{group} of {x.plan.extent_l} batches, clusters of {x.s.cluster}, {made.split_k} slices of K"


@rule
def ping_pong(x: Lowered) -> Iterator[str]:
    """Two warpgroups take turns."""
    if x.s.hopper.ping_pong and x.s.hopper.warpgroups != 2:
        yield f"2 warpgroups take turns, not {x.s.hopper.warpgroups}"


@rule
def warpgroups(x: Lowered) -> Iterator[str]:
    """The warpgroups share the registers of a multiprocessor."""
    loop = x.s.hopper
    fetching, multiplying = thread_registers(x.plan, loop, x.s.tiling.shape[1])
    groups = loop.warpgroups + loop.producers
    needed, there = loop.producers * fetching + loop.warpgroups * multiplying, REGISTERS // groups // 8 * 8 * groups
    if needed > there:
        yield f"{groups} need {needed} registers a lane, there are {there}"


@rule
def mma_tiles(x: Lowered) -> Iterator[str]:
    """MMA tiles of one tile of D divide the last tiled dimension of M, come and leave together by tensor map."""
    count, tiled, loop, store = x.s.tiling.mma_tiles, x.s.tiling.m.tiled, x.s.hopper, x.s.epilogue.store
    if count == 1:
        return
    if not tiled or tiled[-1][1].box % count:
        yield f"{count} do not divide the last dimension of box_m, {tiled[-1][1].box if tiled else 1}"
    if not isinstance(loop, WgmmaSS) or gathers(loop) or loop.ping_pong or not isinstance(store, TmaStore):
        how = "in ping-pong " if loop.ping_pong else ""
        yield f"{count} of a {type(loop).__name__} {how}that leave by a {type(store).__name__}"


@rule
def block(x: Lowered) -> Iterator[str]:
    """A block is whole instructions: rows of all warpgroups, columns and depth of the boxes."""
    loop, atom, (m, n, k) = x.s.hopper, x.atom, x.s.tiling.shape
    rows = atom.m * loop.mma_m * (1 if loop.ping_pong else loop.warpgroups)
    columns, deep = up(x.s.tiling.n.size, atom.n), up(x.s.tiling.k.size, atom.k)
    if m != rows:
        yield f"block_m = {m}, but {loop.warpgroups} warpgroups of {loop.mma_m} MMA atoms of {atom.m} rows make {rows}"
    if n != columns or n > atom.most_n:
        yield f"block_n = {n}: box_n needs {columns}, a multiple of {atom.n} up to {atom.most_n}"
    if k != deep:
        yield f"block_k = {k}: box_k needs {deep}, a multiple of {atom.k}"
    widest = 0 if isinstance(loop, WgmmaRS) else max(x.s.tiling.m.size // x.s.tiling.mma_tiles, x.s.tiling.n.size)
    if widest * x.s.tiling.k.size * x.size > x.facts.smem_per_block:
        yield f"{widest} x {x.s.tiling.k.size} elements of an operand, a block has {x.facts.smem_per_block} bytes"


@rule
def accumulators(x: Lowered) -> Iterator[str]:
    """A thread's registers hold its products."""
    count, most = x.s.hopper.mma_m * x.s.tiling.shape[1] // 2, ACCUMULATORS
    if isinstance(x.s.mainloop, WgmmaRS):  # fragments of A take registers too
        most = RS_WIDEST_WITH_C // 2 if x.plan.contraction.c is not None else most
        most = min(most, RS_WIDEST_SHARED_A // 2) if x.s.cluster[1] > 1 else most
    if count > most:
        yield f"{count} registers a thread, the limit is {most}"


@rule
def stages(x: Lowered) -> Iterator[str]:
    """The pipeline has two stages or more, of which all have barriers."""
    loop = x.s.hopper
    # Transposed k-tiles are deep; each is multiplied while the next one is still in the warps' buffers.
    least = 1 if isinstance(loop.a, Gather) and loop.a.transform else 2
    most = DEEPEST if isinstance(loop, WgmmaRS) or x.stationary else DEEP
    if not least <= loop.stages <= most:
        yield f"{loop.stages}, a pipeline has {least} to {most}"


@rule
def splitting(x: Lowered) -> Iterator[str]:
    """Planes are made of full k-tiles, by blocks that share nothing."""
    loop, (_, columns, deep) = x.s.mainloop, x.s.tiling.shape
    assert isinstance(loop, WgmmaSplit)
    if x.s.tiling.k.size != deep:
        yield f"k-tiles of {x.s.tiling.k.size} in blocks of {deep}"
    if columns > (most := widest_split(x.plan, loop.a, loop.b, deep)):
        yield f"{columns} columns, the most are {most}"
    if x.blocks > 1 or x.s.tiling.mma_tiles > 1:
        yield f"{x.blocks} blocks of a cluster, {x.s.tiling.mma_tiles} MMA tiles in a tile of D"
    for o, load in x.by_map:
        if load.run or load.multicast is not None:
            yield f"operand {o.name}: {load.run} rows of an atom are full, {load.blocks} blocks share it"
    for o, source in zip(x.operands, (loop.a, loop.b), strict=True):
        if swizzle_of(source) < least_row(source, o.name.lower(), x.size):
            yield f"rows of {swizzle_of(source)} bytes of operand {o.name}"
    if loop.plane_stages < 2:  # one is written while products read the other
        yield f"{loop.plane_stages} k-tiles of planes"


@rule
def k_order(x: Lowered) -> Iterator[str]:
    """K-tiles are 16 or 32 in one order of k, or 32 of the two modes along which A's and B's rows run."""
    loop, deep = x.s.mainloop, x.s.tiling.k.size
    assert isinstance(loop, WgmmaSplit)
    found, (a, b) = leads(loop, x.s.tiling.k), ([d for _, d in o.box_k.tiled] for o in x.operands)
    if found != (1, 1):
        if found != SPLIT_LEADS or deep != math.prod(SPLIT_LEADS):
            yield f"k-tiles of {deep} with {found} k of A's and B's rows, which are {SPLIT_LEADS}"
    elif a != b or deep not in (16, 32):
        yield f"k-tiles of {deep}, A's are {a} and B's are {b}"


def _one_full_tile(x: Lowered) -> Iterator[str]:
    """A part of some rules: k-tiles are full, and a tile of D is one MMA tile."""
    (*_, deep), t = x.s.tiling.shape, x.s.tiling
    if t.k.size != deep:
        yield f"k-tiles of {t.k.size} in blocks of {deep}"
    if t.mma_tiles > 1:
        yield f"{t.mma_tiles} MMA tiles in a tile of D"


@rule
def in_registers(x: Lowered) -> Iterator[str]:
    """TF32 with A in registers takes full k-tiles of two steps or more, and B transposed where its rows run along N."""
    loop, (_, _, deep) = x.s.mainloop, x.s.tiling.shape
    assert isinstance(loop, WgmmaTf32)
    yield from _one_full_tile(x)
    if deep < 2 * x.atom.k:
        yield f"k-tiles of {deep}, two steps are {2 * x.atom.k}"
    made, columns = loop.transposed_stages, x.s.tiling.shape[1]
    needed, there = tf32_registers(loop.mma_m, columns, deep // x.atom.k, made > 0)
    if needed > there:
        yield f"{needed} registers for sums and fragments, a thread has {there}"
    if made and columns > WIDEST_TRANSPOSED:
        yield f"{columns} columns beside a warpgroup that transposes, the most are {WIDEST_TRANSPOSED}"
    if (made > 0) != (loop.b.major == "mn") or made == 1:  # one is written while products read the other
        yield f"{made} k-tiles of B transposed, which is {loop.b.major}-major"


@rule
def doubles(x: Lowered) -> Iterator[str]:
    """Float64 and complex128 take full k-tiles, fragments of which a thread has registers for."""
    loop, columns = x.s.mainloop, x.s.tiling.shape[1]
    assert isinstance(loop, DmmaTma)
    yield from _one_full_tile(x)
    needed, there = dmma_registers(loop.mma_m, columns, parts(x.plan))
    if needed > there:
        yield f"{needed} registers for sums and fragments, a thread has {there}"


@rule
def k_of_doubles(x: Lowered) -> Iterator[str]:
    """There is one order of k, or 4 or 8 k (complex: 4) of each of the two modes along which A's and B's rows run."""
    loop, deep = x.s.mainloop, x.s.tiling.k.size
    assert isinstance(loop, DmmaTma)
    found, (a, b) = leads(loop, x.s.tiling.k), ([d for _, d in o.box_k.tiled] for o in x.operands)
    if found == (1, 1):
        if a != b:
            yield f"A's k are {a} and B's are {b}"
        return
    allowed = DMMA_LEADS if parts(x.plan) == 1 else DMMA_LEADS_COMPLEX
    if not set(found) <= set(allowed) or deep != math.prod(found):
        yield f"k-tiles of {deep} with {found} k of A's and B's rows, which may have {allowed}"


_TILE_RULES = (
    *(wgmma, data_types, common.product, common.groups, common.extents, scheduler, ping_pong),
    batches_together,
    *(common.threads, warpgroups, mma_tiles, block, common.boxes, accumulators, stages),
    *(common.split, common.workspace, common.grid),
)
_SMEM_RULES = (common.shared_memory_plan, common.shared_memory)

SS_RULES = (*_TILE_RULES, *GATHER_RULES, *LOADER_RULES, *EPILOGUE_RULES, *_SMEM_RULES)
"""All conditions with both operands in shared memory."""

SPLIT_RULES = (
    *(*_TILE_RULES, panel, flattened, majors, maps, copies, *COPY_RULES, splitting, k_order),
    *(*EPILOGUE_RULES, *_SMEM_RULES),
)
"""All conditions with planes."""

TF32_RULES = (
    *(*_TILE_RULES, panel, flattened, majors, maps, copies, in_registers, cluster, multicast),
    *(*EPILOGUE_RULES, *_SMEM_RULES),
)
"""All conditions of TF32 with A in registers."""

DMMA_RULES = (
    *(*_TILE_RULES, panel, flattened, majors, maps, copies, doubles, k_of_doubles, cluster, multicast),
    *(*EPILOGUE_RULES, *_SMEM_RULES),
)
"""All conditions of float64 and complex128."""

RS_ALL_RULES = (*_TILE_RULES, flattened, majors, *RS_RULES, *EPILOGUE_RULES, *_SMEM_RULES)
"""All conditions with A in registers."""
