"""The search of packed schedules: dense copies of tensors are multiplied where no tensor map moves the tensors.

A copy costs its bytes. That is little beside a main loop that picks single elements out of lines, or whose warps copy
what the copy engine cannot. The workspace is bounded by the user's limit: what does not fit is computed in pieces.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.hw.stream_rates import PackingRates
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import A, B, GemmPlan, itemsize
from gett.ir.packing import (
    Cuts,
    batch_modes,
    batch_nearest,
    count_copies,
    count_pieces,
    packed_bytes,
    packed_operands,
)
from gett.ir.tensors import ALIGNMENT_LIMIT
from gett.schedule.packed import packed_plans
from gett.schedule.search.stream import stream_schedule
from gett.schedule.spec.mainloop import StreamMap
from gett.schedule.spec.schedule import MAX_PIECES, CopyPass, Forecast, Packing, Schedule
from layouts.tma import MAX_RANK

KEPT = 3  # products whose schedules are tried
LEAST_ROWS, LEAST_DEPTH = 32, 8  # elements along M or N and along K that a box has at least, where there are so many

Products = Callable[[GemmPlan, ArchFacts, float | None], list[Schedule]]


def packed_schedules(
    plan: GemmPlan,
    facts: ArchFacts,
    products: Products,
    least_us: float,
    bound_us: float = 0.0,
    first: bool = False,
) -> list[Schedule]:
    """Schedules with copies that are expected to be clearly faster than `least_us`.

    Args:
        plan: What to run.
        facts: Of the GPU, with the limit of the workspace.
        products: The schedules of the product of the copies, best first.
        least_us: What the best schedule without copies is expected to take.
        bound_us: What no schedule of the product is expected to be below.
        first: Whether only the best is wanted.
    """
    c, device = plan.contraction, nearest(facts)
    rates = device.packing
    most_us = least_us / (rates.short_clearly if least_us < rates.short_us else rates.clearly)
    found: list[Schedule] = []
    known: dict[str, Schedule] = {}  # copies, of which sets of tensors have the same

    def copy_of(tensor: GemmPlan) -> Schedule:
        if (name := tensor.signature) not in known:
            known[name] = stream_schedule(tensor, facts)
        return known[name]

    def least_with(copied_bytes: int) -> float:
        return bound_us + 2 * copied_bytes / device.memory.copy_tbps * 1e-6 + device.launches.launch_us

    def of(names: tuple[str, ...], cuts: Cuts, limit: int, within_us: float) -> list[Schedule]:
        made = packed_plans(c, cuts, names)
        copies = {tensor.name: copy_of(tensor.plan) for tensor in made.tensors}
        taken_us, pieces = copies_us(c, cuts, copies, facts), count_pieces(c, cuts)
        if taken_us + bound_us > within_us:
            return []
        a, b, d = (CopyPass(x.tiling.m, x.loop(StreamMap), x.smem) if (x := copies.get(n)) else None for n in "abd")
        packing = Packing(cuts, a, b, d, made.workspace_bytes)
        left = replace(facts, workspace_limit=limit - made.workspace_bytes)
        best = products(made.product, left, (within_us - taken_us) / pieces if first else None)
        joined = [_joined(s, packing, taken_us, pieces) for s in best[:KEPT]]
        return [s for s in joined if s.forecast.us <= within_us]

    if least_with(0) > most_us:  # most small products end here, and those that tensor cores limit
        return found
    sets, tried = packed_names(plan), set[tuple[tuple[str, ...], Cuts]]()
    for limit in sorted({min(facts.workspace_limit, rates.large_bytes), facts.workspace_limit}):
        most_us = min([most_us, *(s.forecast.us / rates.large_clearly for s in found)])
        for copied_bytes, names in sets:
            for cuts in choose_cuts(c, names, limit) if least_with(copied_bytes) <= most_us else ():
                if (names, cuts) in tried:
                    continue
                tried.add((names, cuts))
                found += of(names, cuts, limit, most_us)
                most_us = min([most_us, *(s.forecast.us for s in found)]) if first else most_us
    return sorted(found, key=lambda s: s.forecast.us)


def _joined(product: Schedule, packing: Packing, taken_us: float, pieces: int) -> Schedule:
    """The schedule of a product and of copies that take so long, for so many pieces."""
    products_us = pieces * product.forecast.us
    bound = product.forecast.bound if products_us > taken_us else "DRAM"
    share = f"copies {taken_us:.0f} us, products {products_us:.0f} us"
    reason = f"dense copies are multiplied: {share}; {product.forecast.reason}"
    forecast = Forecast(taken_us + products_us, bound, reason)
    workspace = packing.bytes + product.workspace_bytes
    return replace(product, workspace_bytes=workspace, packing=packing, forecast=forecast)


def copies_us(c: Contraction, cuts: Cuts, copies: dict[str, Schedule], facts: ArchFacts) -> float:
    """The time of all copies; what is copied between two products is one launch."""
    device = nearest(facts)
    launch_us, rates = device.launches.launch_us, device.packing
    tensors = {"a": c.a, "b": c.b, "d": c.d}
    total, launches = 0.0, 0
    for name, copy in copies.items():
        tensor = tensors[name]
        assert tensor is not None
        times = count_copies(c, cuts, tensor)
        elements = math.prod(dict(cuts).get(m, c.extents[m]) for m in tensor.modes)
        lengths = (abs(tensor.stride(m)) * n for m, n in cuts if tensor.stride(m))
        rows = rates.cut_rows if any(x < rates.cut_bytes for x in lengths) else 1.0
        total += times * rows * max(copy.forecast.us - launch_us, elements * _element_ps(copy, rates) * 1e-6)
        launches = max(launches, times)
    both = "d" in copies and len(copies) > 1
    return total + (launches + both) * launch_us


def _element_ps(copy: Schedule, rates: PackingRates) -> float:
    """Picoseconds of an element as far as instructions limit a copy."""
    loop = copy.loop(StreamMap)
    if not loop.a.staged:
        return rates.write_ps / loop.vector + rates.element_ps
    return rates.read_ps / loop.a.width + rates.staged_ps / loop.vector + rates.element_ps


def packed_names(plan: GemmPlan) -> list[tuple[int, tuple[str, ...]]]:
    """The bytes of copies that may be worth them, with the names of the tensors, of `a`, `b` and `d`; fewest first.

    With them tensor maps move both operands, in rows that do not run along two contracted modes. D is copied where its
    unit stride lies in a batch mode, and may be where its rows begin anywhere.
    """
    c = plan.contraction
    if c.b is None or c.c is not None or c.extras:
        return []
    tensors = {"a": c.a, "b": c.b, "d": c.d}
    always = batch_nearest(c, c.d)
    sets = [s for n in (1, 2, 3) for s in itertools.combinations("abd", n) if "d" in s or not always]
    if not always and not _cuts_chunks(c, c.d):
        sets = [s for s in sets if "d" not in s]
    found = [
        (sum(packed_bytes(c, x) for x in packed_operands(c, names).values()), names)
        for names in sets
        if all(_may_copy(c, tensors[n]) for n in names) and _by_tensor_map(packed_plans(c, (), names).product)
    ]
    return sorted(found, key=itemgetter(0))


def _by_tensor_map(plan: GemmPlan) -> bool:
    """Whether tensor maps move both operands: boxes of few modes, in aligned rows of 16 bytes along no batch mode."""
    return all(_has_rows(plan, t) and _has_box(plan, t) for t in (A, B))


def _has_box(plan: GemmPlan, tensor: int) -> bool:
    """Whether the modes that are nearest in memory make a box that fills some of a tile."""
    needed = 0
    for group, least in ((plan.m if tensor == A else plan.n, LEAST_ROWS), (plan.k, LEAST_DEPTH)):
        size = 1
        for mode in sorted(group, key=lambda s: abs(s.strides[tensor])):
            if size < least:
                size, needed = size * mode.extent, needed + 1
    return needed <= MAX_RANK


def _has_rows(plan: GemmPlan, tensor: int) -> bool:
    operand = plan.a if tensor == A else plan.b
    assert operand is not None
    size = itemsize(operand.dtype)
    modes = [s for s in (*plan.m, *plan.n, *plan.k) if s.strides[tensor]]
    rows = [s for s in modes if abs(s.strides[tensor]) == size and s.extent * size >= ALIGNMENT_LIMIT]
    others = [s for s in (*plan.l, *modes) if s not in rows]
    return (
        len(rows) == 1
        and operand.alignment % ALIGNMENT_LIMIT == 0
        and all(s.strides[tensor] % ALIGNMENT_LIMIT == 0 for s in others)
    )


def _cuts_chunks(c: Contraction, x: Operand) -> bool:
    """Whether rows of a tensor begin within pieces of 16 bytes, which no tensor map moves."""
    size = itemsize(x.dtype)
    steps = (s for m, s in zip(x.modes, x.strides, strict=True) if c.extents[m] > 1 and abs(s) != size)
    return any(s % ALIGNMENT_LIMIT for s in steps)


def _may_copy(c: Contraction, x: Operand) -> bool:
    """Whether a copy has each element of a tensor once."""
    repeated = any(s == 0 and c.extents[m] > 1 for m, s in zip(x.modes, x.strides, strict=True))
    return not repeated


def choose_cuts(c: Contraction, names: tuple[str, ...], limit: int) -> list[Cuts]:
    """Pieces whose copies fit into the limit: all at once, else few along each group of D's modes.

    Pieces along batch modes share no operand but cut the rows in which tensors lie; along M or N one operand is copied
    whole, once. Fewer cuts of a batch mode leave longer rows, and the rest is cut along M or N.
    """
    if packed_plans(c, (), names).workspace_bytes <= limit:
        return [()]
    batch, groups = batch_modes(c), []
    for name, x in (("a", c.a), ("b", c.b)):
        assert x is not None
        slowest_in = x if name in names else c.d
        free = [m for m in c.d.modes if x.stride(m) and m not in batch]
        groups.append(tuple(sorted(free, key=lambda m: -abs(slowest_in.stride(m)))))
    first: list[Cuts] = [(), *(((m, c.extents[m] // n),) for m in batch[-1:] for n in (2, 4) if c.extents[m] % n == 0)]
    tried = [((), batch), *((cuts, modes) for cuts in first for modes in groups)]
    found = dict.fromkeys(
        cuts
        for before, modes in tried
        for divides in (True, False)
        for room in (limit, limit // 2)  # the rest is room for partial sums
        if (cuts := _fewest(c, names, room, modes, divides, before)) is not None
    )
    least = min((count_pieces(c, cuts) for cuts in found), default=0)
    return [cuts for cuts in found if count_pieces(c, cuts) <= 4 * least]


def _fewest(
    c: Contraction, names: tuple[str, ...], limit: int, modes: Sequence[int], divides: bool, before: Cuts
) -> Cuts | None:
    """The fewest pieces along some modes that fit into a limit, the first mode cut first; None where none do.

    Args:
        c: What is computed.
        names: The tensors that are copied.
        limit: Bytes of their copies.
        modes: That may be cut.
        divides: Whether lengths divide the extents.
        before: Cuts that there are already.
    """
    cuts = before
    for mode in modes:
        extent = c.extents[mode]
        counts = range(2, min(extent, MAX_PIECES) + 1)
        lengths = dict.fromkeys(-(-extent // n) for n in counts if not divides or extent % n == 0)
        for length in lengths:
            tried = (*cuts, (mode, length))
            if count_pieces(c, tried) > MAX_PIECES:
                return None
            if packed_plans(c, tried, names).workspace_bytes <= limit:
                return tried
        if 1 in lengths:
            cuts = (*cuts, (mode, 1))
    return None
