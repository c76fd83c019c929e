"""WgmmaRS: A in registers, where the operands' rows run along two contracted modes.

A k-tile of A lies as [row][k2][k1] and B comes in slabs of one k1 each, [row][k2]: k1 is the mode along which A's rows
run, k2 that of B's.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.mainloops import hopper
from gett.schedule.mainloops.kind import Constants
from gett.schedule.rules.hopper import mapped_modes, whole_operands, wrong_map
from gett.schedule.rules.rule import Lowered, Reasons
from gett.schedule.rules.smem_places import coordinates, copied_places, swizzled
from gett.schedule.spec.epilogue import Store
from gett.schedule.spec.hopper_needs import ACCUMULATORS, up
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.schedule import Schedule, SmemPlan, Tiling

WIDEST_WITH_C, WIDEST_SHARED_A = 224, 192
"""Columns of a tile beside C, and where blocks share A; wider tiles run out of registers."""

COPIES = 8  # most copies of a k-tile of A: where blocks share A, each has a barrier
BATCH = 16  # instructions whose fragments of A are loaded together
ROW_BYTES = 1024  # most bytes of a k-tile of one row of A: the rows of two warpgroups take half of shared memory
SENT = 1024  # bytes that the warps which send A to another block move at a time


def depth_width(loop: WgmmaRS, tiling: Tiling) -> tuple[int, int]:
    """How much a k-tile has of the modes along which A's and B's rows run."""
    return tiling.k.cut[loop.unit_a], tiling.k.cut[loop.unit_b]


def steps_over_gaps(store: Store, rows: int, split: int) -> bool:
    """Whether an epilogue steps over the padding behind each warpgroup's share of `rows` rows.

    Copies of whole MMA atoms do not, nor do slices of K.
    """
    kind = store.stage.copy.kind if store.stage is not None else "scalar"
    return split == 1 and kind in ("scalar", "stsm", "vec_n", "pair_n", "one") and rows % WgmmaRS.warpgroups == 0


def data_types(x: Lowered) -> Reasons:
    """Wgmma multiplies the operands' type as it comes, with A in registers."""
    yield from whole_operands(x, "rs")


def units(x: Lowered) -> Reasons:
    """The rows of A and of B run along two different contracted modes."""
    loop, k = x.s.loop(WgmmaRS), x.plan.k
    if loop.a.major != "k" or loop.b.major != "k":
        yield f"rows along {loop.a.major} of A and {loop.b.major} of B, both are along 2 modes of K"
    if loop.unit_a == loop.unit_b or not all(u < len(k) for u in (loop.unit_a, loop.unit_b)):
        yield f"modes {loop.unit_a} and {loop.unit_b} of {len(k)} contracted ones are no two"
    for o, unit in zip(x.operands, (loop.unit_a, loop.unit_b), strict=True):
        if k[unit].strides[o.tensor] != x.size:
            yield f"operand {o.name} has stride {k[unit].strides[o.tensor]} along mode {unit} of K, not {x.size}"


def k_tile(x: Lowered) -> Reasons:
    """A k-tile is one or two instructions' k of either mode: whole batches of fragments, in rows that fit."""
    runs, (depth, width) = (x.atom.k, 2 * x.atom.k), depth_width(x.s.loop(WgmmaRS), x.s.tiling)
    if depth not in runs or width not in runs or not depth * width == x.s.tiling.k.size == x.s.tiling.shape[2]:
        yield f"{depth} of A's mode times {width} of B's in {x.s.tiling.shape[2]} k; each is {runs[0]} or {runs[1]}"
    if depth * width // x.atom.k < BATCH:
        yield f"{depth} times {width} k are {depth * width // x.atom.k} instructions, fragments are read for {BATCH}"
    if depth * width * x.size > ROW_BYTES:
        yield f"{depth} times {width} k take {depth * width * x.size} bytes of a row, there is room for {ROW_BYTES}"


def rs_cluster(x: Lowered) -> Reasons:
    """At most two blocks of a raster share an operand, without multicast."""
    if x.s.scheduler.tensor or x.blocks > 2:
        yield f"{x.s.cluster} of a {type(x.s.scheduler).__name__}, 1 or 2 blocks of a raster share an operand"
    for o, load in x.by_map:
        if load.multicast is not None:
            yield f"operand {o.name} is multicast to {load.blocks} blocks; the main loop shares it by itself"


def rs_copies(x: Lowered) -> Reasons:
    """A k-tile of A in 8 copies at most, a slab of B in one, come to where warps read them; past K's end are zeros."""
    loop, (a, b), (depth, width) = x.s.loop(WgmmaRS), x.operands, depth_width(x.s.loop(WgmmaRS), x.s.tiling)
    half = width // x.s.cluster[1]
    # Most copies, mode along the rows and its elements, those of the other mode in a copy and in a k-tile.
    for o, load, most, unit, row, other, part, whole in (
        (a, loop.a, COPIES, loop.unit_a, depth, loop.unit_b, half, width),
        (b, loop.b, 1, loop.unit_b, width, loop.unit_a, 1, depth),
    ):
        made, first = load.map, len(o.batch) + len(o.free)
        yield from wrong_map(o.name, made, o.operand, o.tensor, o.modes, load.repeats)
        if load.copies > most:
            yield f"{load.copies} of operand {o.name}, the most are {most}"
        if load.run or (load.pitch and not load.repeats):
            yield f"{load.run} rows an atom of operand {o.name}, {load.copies} copies {load.pitch} bytes apart"
        dims = [(first + unit, row), (first + other, part), *o.free_dims]
        count = math.prod(n for _, n in dims)
        fits = load.bytes == count * x.size and made.swizzle_bytes == row * x.size
        found = copied_places(load, coordinates(dims)) if fits else None
        if found is None:
            held = f"{load.copies} of {made.box} in rows of {made.swizzle_bytes} bytes"
            yield f"{held} are not the {count} elements of operand {o.name}, {row * x.size} bytes a row"
        elif misplaced := np.count_nonzero(found != swizzled(made.swizzle_bytes, np.arange(count) * x.size)):
            yield f"{misplaced} of {count} elements of operand {o.name} are not where warps read"
        step, extent = made.modes[first + other], x.plan.k[other].extent
        slower = [m.weight for i, m in enumerate(made.modes) if m.dim == step.dim and m.weight and i != first + other]
        if step.weight <= 0:
            yield f"operand {o.name} takes a step of {step.weight} along mode {other} of K"
        if whole != part and extent % whole and any(w < 0 or w >= step.weight for w in slower):
            yield f"extent {extent} of mode {other} ends in a tile of {whole}; operand {o.name} reads on past it"


def columns(x: Lowered) -> Reasons:
    """Fragments of A leave a thread registers for 224 columns beside C, for 192 where blocks share A."""
    most = WIDEST_WITH_C if x.plan.contraction.c is not None else 2 * ACCUMULATORS
    most = min(most, WIDEST_SHARED_A) if x.s.cluster[1] > 1 else most
    if x.s.tiling.shape[1] > most:
        yield f"{x.s.tiling.shape[1]}, the most are {most}"


def per_warpgroup(x: Lowered) -> Reasons:
    """A warpgroup that waits for its own rows of A has copies of its own, and an epilogue that steps over gaps."""
    loop, t, count = x.s.loop(WgmmaRS), x.s.tiling, WgmmaRS.warpgroups
    if not loop.per_warpgroup_a:
        return
    if loop.a.copies % count:
        yield f"{loop.a.copies} copies of A are not shared evenly by {count} warpgroups"
    if t.m.size != t.shape[0] and not steps_over_gaps(x.s.epilogue.store, t.m.size, x.s.split_k):
        yield f"{t.m.size} rows of {t.shape[0]} leave gaps that this epilogue does not step over"


def sharing_a(x: Lowered) -> Reasons:
    """Blocks share A where K is sliced, by warpgroups with rows of their own and halves of k2."""
    loop, sent = x.s.loop(WgmmaRS), x.s.loop(WgmmaRS).a.map.transaction_bytes
    if x.s.cluster[1] == 1:
        return
    _, width = depth_width(loop, x.s.tiling)
    if x.s.split_k == 1 or not loop.per_warpgroup_a or width != 2 * x.atom.k:
        own = "own" if loop.per_warpgroup_a else "all"
        yield f"K in {x.s.split_k} slices, {own} rows of A waited for, {width} of B's mode, halved"
    if sent % SENT:
        yield f"copies of {sent} bytes are sent {SENT} at a time"


def smem(s: Schedule, plan: GemmPlan) -> SmemPlan:
    """A k-tile of A, where D is staged, too; slabs of B, barriers."""
    t, loop, size = s.tiling, s.loop(WgmmaRS), itemsize(plan.contraction.dtype)
    rows, columns, deep = t.shape
    stages = up(max(rows * deep * size, hopper.staging_bytes(s, plan)), hopper.ALIGN)
    slab = up(columns * depth_width(loop, t)[1] * size, hopper.ALIGN)
    barriers = stages + loop.stages * slab
    shared = 128 if s.cluster[1] > 1 else 48 if loop.per_warpgroup_a else 32
    return SmemPlan(hopper.ALIGN + barriers + 16 * loop.stages + shared, slab, stages, barriers=barriers)


def loader_traits(plan: GemmPlan, s: Schedule) -> tuple[Constants, Constants]:
    """The copies of a k-tile of A, and that of a slab of B."""
    a, b = s.loop(WgmmaRS).a, s.loop(WgmmaRS).b.map
    return (
        {"kSwizzleBytes": a.swizzle_bytes, "kTmaCopies": a.copies, "kCopyBytes": a.map.transaction_bytes},
        {"kSwizzleBytes": b.swizzle_bytes, "kTransactionBytes": b.transaction_bytes},
    )


_OWN_RULES = (columns, mapped_modes, units, k_tile, rs_cluster, rs_copies, per_warpgroup, sharing_a)

WGMMA_RS = hopper.HopperKind(
    words="wgmma, A in registers, operands along two contracted modes",
    rules=hopper.hopper_rules(data_types, _OWN_RULES),
    smem=smem,
    fields={"kPerWarpgroupA": "per_warpgroup_a"},
    loader_traits=loader_traits,
    multiplies=partial(hopper.one_wgmma, majors=("k",)),
    fetches_lines=False,
)
