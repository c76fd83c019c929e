"""Rules of the main loop with A in registers, where the operands' rows run along two contracted modes.

A k-tile of A lies as [row][k2][k1] and B comes in slabs of one k1 each, [row][k2]: k1 is the mode along which A's rows
run, k2 that of B's.
"""

from __future__ import annotations

import math

import numpy as np

from gett.hw.archs import ArchFacts
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.schedule.spec.loader import Tma
from gett.schedule.spec.mainloop import WgmmaRS
from gett.schedule.spec.map_check import wrong_map
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentRaster
from gett.schedule.spec.smem_places import coordinates, copied_places, swizzled
from gett.schedule.spec.wgmma_needs import RS_COPIES, depth_width, multiplied
from gett.schedule.spec.wgmma_operand import WgmmaOperand, cluster_size, operands

SENT = 1024
"""Bytes that the warps which send A to another block move at a time."""

BY_ROWS = ("scalar", "stsm", "vec_n")
"""Copies to the staged tile that take each row for itself."""


def _loop(s: Schedule) -> WgmmaRS:
    assert isinstance(s.mainloop, WgmmaRS)
    return s.mainloop


def _units(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, size = _loop(s), itemsize(plan.contraction.dtype)
    if loop.a.major != "k" or loop.b.major != "k":
        return f"units: rows along {loop.a.major} of A and {loop.b.major} of B, both are along 2 modes of K"
    if loop.unit_a == loop.unit_b or not all(0 <= u < len(plan.k) for u in (loop.unit_a, loop.unit_b)):
        return f"units: modes {loop.unit_a} and {loop.unit_b} of {len(plan.k)} contracted ones are no two"
    for name, tensor, unit in (("A", A, loop.unit_a), ("B", B, loop.unit_b)):
        if (stride := plan.k[unit].strides[tensor]) != size:
            return f"units: operand {name} has stride {stride} along mode {unit} of K, not {size}"
    return None


def _k_tile(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, kind = _loop(s), multiplied(plan)
    assert kind is not None
    assert kind.wgmma is not None
    runs = (kind.wgmma.k, 2 * kind.wgmma.k)
    (depth, width), deep = depth_width(loop, s.tiling), s.tiling.block[2]
    if depth not in runs or width not in runs or depth * width != s.tiling.k.size or s.tiling.k.size != deep:
        return f"k-tile: {depth} of A's mode times {width} of B's in {deep} k; each is {runs[0]} or {runs[1]}"
    # Fragments are read in batches of eight k1 times 32 k2, or sixteen of each.
    most = 2 * runs[0] ** 2
    return None if deep <= most else f"k-tile: {depth} times {width} k are more than {most}"


def _clusters(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not isinstance(s.scheduler, PersistentRaster):
        return f"RS cluster: blocks walk 1 raster, not a {type(s.scheduler).__name__}"
    if min(s.cluster) < 1 or cluster_size(s) > 2:
        return f"RS cluster: {s.cluster}, 1 or 2 blocks share an operand"
    for name, load in (("A", _loop(s).a), ("B", _loop(s).b)):
        if load.multicast is not None:
            return f"RS cluster: operand {name} is multicast to {load.blocks} blocks; the main loop shares it by itself"
    return None


def _shares_a(s: Schedule) -> bool:
    return s.cluster[1] > 1


def _parts(s: Schedule, plan: GemmPlan) -> list[tuple[WgmmaOperand, Tma, tuple[int, int], tuple[int, int], int, int]]:
    """Of A and B: operand, copies, (mode, elements) of the unit and of the other mode, that mode's whole, its place."""
    loop = _loop(s)
    depth, width = depth_width(loop, s.tiling)
    a, b = operands(s, plan)
    first_a, first_b = len(plan.l) + len(plan.m), len(plan.l) + len(plan.n)
    half = width // s.cluster[1]
    return [
        (a, loop.a, (first_a + loop.unit_a, depth), (first_a + loop.unit_b, half), width, loop.unit_b),
        (b, loop.b, (first_b + loop.unit_b, width), (first_b + loop.unit_a, 1), depth, loop.unit_a),
    ]


def _maps(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for x, load, *_ in _parts(s, plan):
        whole = list(load.map.box)
        for dim, step, count in load.repeats:
            if not 0 <= dim < load.map.rank or step != load.map.box[dim]:
                return f"RS maps: copies of operand {x.name} are {step} apart along dimension {dim} of {load.map.box}"
            whole[dim] *= count
        if wrong := wrong_map(x.name, load.map, x.operand, x.tensor, x.modes, whole):
            return wrong
    return None


def _copies(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    size = itemsize(plan.contraction.dtype)
    for x, load, unit, other, _, _ in _parts(s, plan):
        if load.run:
            return f"RS copies: {load.run} rows an atom of operand {x.name}, atoms are full"
        dims = [unit, other, *x.free_dims]
        count = math.prod(n for _, n in dims)
        found = copied_places(load, coordinates(dims))
        if found is None or load.bytes != count * size or load.map.span != unit[1] * size:
            held = f"{load.copies} of {load.map.box} in rows of {load.map.span} bytes"
            return f"RS copies: {held} are not the {count} elements of operand {x.name}, {unit[1] * size} bytes a row"
        wanted = swizzled(load.map.span, np.arange(count) * size)
        if misplaced := np.count_nonzero(found != wanted):
            return f"RS copies: {misplaced} of {count} elements of operand {x.name} are not where warps read"
    return None


def _zeros(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    for x, load, _, other, whole, mode in _parts(s, plan):
        step, extent = load.map.modes[other[0]], plan.k[mode].extent
        if step.weight <= 0:
            return f"zeros: operand {x.name} takes a step of {step.weight} along mode {mode} of K"
        if whole == other[1] or extent % whole == 0:
            continue
        slower = [m.weight for i, m in enumerate(load.map.modes) if m.dim == step.dim and m.weight and i != other[0]]
        if any(w < 0 or w >= step.weight for w in slower):
            return f"zeros: extent {extent} of mode {mode} ends in a tile of {whole}; operand {x.name} reads on past it"
    return None


def _copies_of_a(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = _loop(s)
    if loop.a.copies > RS_COPIES:
        return f"A's copies: {loop.a.copies} for a k-tile, the limit is {RS_COPIES}"
    return None if loop.b.copies == 1 else f"A's copies: a slab of B comes in {loop.b.copies}, it has to in 1"


def _per_warpgroup(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop, t, groups = _loop(s), s.tiling, WgmmaRS.warpgroups
    if not loop.per_warpgroup_a:
        return None
    if loop.a.copies % groups:
        return f"per warpgroup: {loop.a.copies} copies of A are not shared evenly by {groups} warpgroups"
    # Shares below 64 rows leave gaps between them; copies of whole blocks of rows, and slices, have none.
    stage = s.epilogue.store.stage
    gaps = s.split_k == 1 and (stage is None or stage.copy.kind in BY_ROWS) and t.m.size % groups == 0
    if t.m.size == t.block[0] or gaps:
        return None
    return f"per warpgroup: {t.m.size} rows of {t.block[0]} leave gaps that this epilogue does not step over"


def _sharing(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not _shares_a(s):
        return None
    loop, kind = _loop(s), multiplied(plan)
    assert kind is not None
    assert kind.wgmma is not None
    _, width = depth_width(loop, s.tiling)
    if s.split_k == 1 or not loop.per_warpgroup_a:
        each = "each warpgroup" if loop.per_warpgroup_a else "both warpgroups"
        return f"sharing A: K in {s.split_k} slices, rows of A waited for by {each}; slices and own rows are needed"
    if width != 2 * kind.wgmma.k:
        return f"sharing A: {width} of B's mode do not make 2 halves of {kind.wgmma.k}"
    copy = loop.a.map.transaction_bytes
    return None if copy % SENT == 0 else f"sharing A: copies of {copy} bytes are sent {SENT} at a time"


RS_RULES = (
    Rule("units", "The rows of A and of B run along two different contracted modes.", _units),
    Rule("k-tile", "A k-tile is one or two instructions' k of either mode.", _k_tile),
    Rule("RS cluster", "At most two blocks of a raster share an operand.", _clusters),
    Rule(
        "RS maps", "A tensor map is what the hardware has for its operand, divided along its slowest dimension.", _maps
    ),
    Rule("RS copies", "Copies bring each element to where warps read it, and nothing else.", _copies),
    Rule("zeros", "Slabs past the end of K are zeros.", _zeros),
    Rule("A's copies", f"A k-tile of A comes in at most {RS_COPIES} copies, a slab of B in one.", _copies_of_a),
    Rule("per warpgroup", "A warpgroup that waits for its own rows of A has copies of its own.", _per_warpgroup),
    Rule(
        "sharing A",
        "Blocks share A where K is sliced, by warpgroups with rows of their own and halves of k2.",
        _sharing,
    ),
)
"""How operands travel with A in registers."""
