"""Rules that hold for more than one kind of main loop: architecture, groups, boxes, resources of a block, the grid."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.schedule import Schedule

MOST_THREADS = 1024
MOST_INDEX = 2**31 - 1


def _arch(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    return None if s.arch == facts.arch else f"architecture: made for {s.arch}, the GPU is {facts.arch}"


def _splits(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    extents = {g: [x.extent for x in getattr(plan, g)] for g in "lmnk"}
    for x in s.tiling.splits:
        group = extents.get(x.group, [])
        if not 0 <= x.mode < len(group):
            return f"splits: group {x.group.upper()} has {len(group)} modes, number {x.mode} is split"
        if x.inner < 1 or group[x.mode] % x.inner:
            return f"splits: extent {group[x.mode]} of {x.group.upper()} is no multiple of {x.inner}"
        group[x.mode : x.mode + 1] = [x.inner, group[x.mode] // x.inner]
    return None


def _smem(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if s.smem.size <= facts.smem_per_block:
        return None
    return f"shared memory: {s.smem.size} bytes needed, {facts.arch} gives a block {facts.smem_per_block}"


def _threads(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if s.threads <= MOST_THREADS:
        return None
    return f"threads: more than {MOST_THREADS} in a block, {s.threads}"


def _boxes_fit(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    t = s.tiling
    for name, box, block, tiles in zip("mnk", (t.m, t.n, t.k), t.block, (t.mma_tiles, 1, 1), strict=True):
        if box.size > block * tiles:
            among = f" in {tiles} MMA tiles" if tiles > 1 else ""
            return f"box_{name} of {box.size} elements does not fit block_{name} = {block}{among}"
    return None


def _extents(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for name, box in zip("MNK", (s.tiling.m, s.tiling.n, s.tiling.k), strict=True):
        if box.volume > MOST_INDEX:
            return f"extents of group {name} multiply to {box.volume}, the limit is 2**31 - 1"
    return None


def _groups(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    t = s.tiling
    boxes = {"m": t.m, "n": t.n, "k": t.k, **({"l": t.l} if t.l is not None else {})}
    for name, box in boxes.items():
        extents = tuple(x.extent for x in getattr(plan, name))
        if box.extents != extents:
            return f"box_{name} is for extents {box.extents}, group {name.upper()} has {extents}"
    return None


def _workspace(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    m, n, _ = s.tiling.block
    sums = data_type(data_type(plan.contraction.dtype).accumulator).bytes
    needed = s.split_k * s.tiling.tiles(plan.extent_l) * m * n * sums if s.split_k > 1 else 0
    return f"workspace: {s.workspace_bytes} bytes, partial sums take {needed}" if s.workspace_bytes < needed else None


def _grid(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    blocks = s.tiling.tiles(plan.extent_l) * s.split_k
    return None if blocks <= MOST_INDEX else f"grid: {blocks} blocks, the limit is 2**31 - 1"


ARCHITECTURE = Rule("architecture", "A schedule runs on the architecture that it was made for.", _arch)
SPLITS = Rule("splits", "A mode that is split exists, and its inner part divides it.", _splits)
SHARED_MEMORY = Rule("shared memory", "A block asks for no more shared memory than the GPU gives it.", _smem)
THREADS = Rule("threads", f"A block has at most {MOST_THREADS} threads.", _threads)
BOXES = Rule("boxes", "Each box fits its block.", _boxes_fit)
EXTENTS = Rule("extents", "The extents of a group multiply to less than 2**31.", _extents)
GROUPS = Rule("groups", "Each box belongs to the extents of its group.", _groups)
WORKSPACE = Rule("workspace", "The workspace holds the partial sums.", _workspace)
GRID = Rule("grid", "The grid has less than 2**31 blocks.", _grid)
