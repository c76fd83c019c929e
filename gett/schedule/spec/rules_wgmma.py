"""When a Hopper kernel may run a schedule: tiles, warpgroups, stages, slices of K, resources of a block.

Loaders and epilogues have rules of their own. Rules are asked in order, and later ones rely on those before.
"""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import MmaAtom, data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.loader import Gather, Stationary
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.rules_common import (
    ARCHITECTURE,
    BOXES,
    EXTENTS,
    GRID,
    GROUPS,
    SHARED_MEMORY,
    THREADS,
    WORKSPACE,
)
from gett.schedule.spec.rules_epilogue import EPILOGUE_RULES
from gett.schedule.spec.rules_gather import GATHER_RULES
from gett.schedule.spec.rules_loaders import FLATTENED, LOADER_RULES, MAJORS
from gett.schedule.spec.rules_wgmma_rs import RS_RULES
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import OneTile
from gett.schedule.spec.wgmma_needs import (
    ACCUMULATORS,
    ARCHS,
    DEEP,
    DEEPEST,
    RS_WIDEST_SHARED_A,
    RS_WIDEST_WITH_C,
    multiplied,
    thread_registers,
    up,
    wgmma_smem,
)
from gett.schedule.spec.wgmma_operand import cluster_size

REGISTERS = 512
"""Registers of the four threads, one of each quarter of a multiprocessor, that lanes of a warpgroup share."""


def atom_of(plan: GemmPlan) -> MmaAtom:
    """The instruction that multiplies a plan's operands."""
    kind = multiplied(plan)
    assert kind is not None
    assert kind.wgmma is not None
    return kind.wgmma


def _wgmma(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    return None if facts.arch in ARCHS else f"wgmma: {facts.arch} has none, {ARCHS[0]} has"


def _data_type(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    c = plan.contraction
    if multiplied(plan) is None:
        return f"data type: wgmma does not multiply {c.dtype} of {data_type(c.dtype).bytes} bytes as it is"
    source = "rs" if isinstance(s.mainloop, WgmmaRS) else "ss"
    if source not in atom_of(plan).sources:
        return f"data type: wgmma of {c.dtype} has sources {atom_of(plan).sources}, not {source}"
    return None


def _product(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if plan.b is not None and plan.k:
        return None
    return f"product: {1 if plan.b is None else 2} operands and {len(plan.k)} contracted modes"


def _scheduler(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if isinstance(s.scheduler, OneTile):
        return "scheduler: Hopper blocks are persistent, this one makes 1 tile and ends"
    if s.tiling.l is not None:
        return f"scheduler: {s.tiling.batches} batches in a block, a Hopper block makes tiles of 1"
    if s.scheduler.group_m < 1 or s.scheduler.blocks < cluster_size(s):
        return f"scheduler: {s.scheduler.blocks} blocks, {s.scheduler.group_m} rows of tiles, clusters of {s.cluster}"
    return None


def _ping_pong(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    count = s.wgmma.warpgroups
    return f"ping-pong: 2 warpgroups take turns, not {count}" if s.wgmma.ping_pong and count != 2 else None


def _warpgroups(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = s.wgmma
    if loop.warpgroups < 1 or loop.mma_m < 1 or loop.producers < 1:
        return f"warpgroups: {loop.warpgroups} of {loop.mma_m} blocks of rows, {loop.producers} that fetch"
    fetching, multiplying = thread_registers(loop, s.tiling.block[1])
    groups = loop.warpgroups + loop.producers
    needed, there = loop.producers * fetching + loop.warpgroups * multiplying, REGISTERS // groups // 8 * 8 * groups
    return None if needed <= there else f"warpgroups: {groups} need {needed} registers a lane, there are {there}"


def _block(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, atom, (m, n, k) = s.wgmma, atom_of(plan), s.tiling.block
    rows = atom.m * loop.mma_m * (1 if loop.ping_pong else loop.warpgroups)
    if m != rows:
        return f"block_m = {m}, but {loop.warpgroups} warpgroups with {loop.mma_m} blocks of {atom.m} rows make {rows}"
    columns = up(s.tiling.n.size, atom.n)
    if n != columns or n > atom.most_n:
        return f"block_n = {n}: box_n needs {columns}, a multiple of {atom.n} up to {atom.most_n}"
    deep = up(s.tiling.k.size, atom.k)
    return None if k == deep else f"block_k = {k}: box_k needs {deep}, a multiple of {atom.k}"


def _accumulators(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, n = s.wgmma, s.tiling.block[1]
    count, most = loop.mma_m * n // 2, ACCUMULATORS
    if isinstance(loop, WgmmaRS):  # fragments of A take registers too
        most = RS_WIDEST_WITH_C // 2 if plan.contraction.c is not None else most
        most = min(most, RS_WIDEST_SHARED_A // 2) if s.cluster[1] > 1 else most
    return None if count <= most else f"accumulators: {count} registers a thread, the limit is {most}"


def _mma_tiles(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    count, tiled = s.tiling.mma_tiles, s.tiling.m.tiled
    if count == 1 or (count > 1 and tiled and tiled[-1][1].box % count == 0):
        return None
    last = tiled[-1][1].box if tiled else 1
    return f"mma_tiles: {count} do not divide the last dimension of box_m, {last}"


def _stages(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = s.wgmma
    if isinstance(loop, WgmmaRS):
        least, most = 2, DEEPEST
    else:
        # Transposed k-tiles are deep; each is multiplied while the next one is still in the warps' buffers.
        least = 1 if isinstance(loop.a, Gather) and loop.a.transpose else 2
        most = DEEPEST if isinstance(loop.a, Stationary) or isinstance(loop.b, Stationary) else DEEP
    return None if least <= loop.stages <= most else f"stages: {loop.stages}, a pipeline has {least} to {most}"


def _split(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    split, k_tiles = s.split_k, s.tiling.k.tiles
    if isinstance(s.mainloop, WgmmaRS):  # k-tiles are dealt out in turn
        return None if 1 <= split <= k_tiles else f"split_k = {split}: {k_tiles} k-tiles leave a slice empty"
    each = -(-k_tiles // max(split, 1))
    if split < 1 or (split - 1) * each >= k_tiles:
        return f"split_k = {split}: {k_tiles} k-tiles in slices of {each} leave a slice empty"
    return None


def _smem_plan(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    smem = wgmma_smem(s, plan)
    return None if s.smem == smem else f"shared memory: planned as {s.smem}, the parts make {smem}"


_TILE_RULES = (
    ARCHITECTURE,
    Rule("wgmma", "The architecture has wgmma.", _wgmma),
    Rule("data type", "wgmma multiplies the operands' type as it is.", _data_type),
    Rule("product", "There are two operands and a contracted mode.", _product),
    GROUPS,
    EXTENTS,
    Rule("scheduler", "Persistent blocks make tiles of one batch each; there are enough for a cluster.", _scheduler),
    Rule("ping-pong", "Two warpgroups take turns.", _ping_pong),
    THREADS,
    Rule("warpgroups", "The warpgroups share the registers of a multiprocessor.", _warpgroups),
    Rule("mma tiles", "MMA tiles divide the last tiled dimension of M.", _mma_tiles),
    Rule("block", "A block is whole instructions: rows of all warpgroups, columns and depth of the boxes.", _block),
    BOXES,
    Rule("accumulators", "A thread's registers hold its products.", _accumulators),
    Rule("stages", "The pipeline has two stages or more, of which all have barriers.", _stages),
    Rule("split", "No slice of K is empty.", _split),
    WORKSPACE,
    GRID,
)
_SMEM_RULES = (
    Rule("shared memory plan", "The parts of shared memory lie where the kernel expects them.", _smem_plan),
    SHARED_MEMORY,
)

SS_RULES = (*_TILE_RULES, *GATHER_RULES, *LOADER_RULES, *EPILOGUE_RULES, *_SMEM_RULES)
"""All conditions with both operands in shared memory."""

RS_ALL_RULES = (*_TILE_RULES, FLATTENED, MAJORS, *RS_RULES, *EPILOGUE_RULES, *_SMEM_RULES)
"""All conditions with A in registers."""
