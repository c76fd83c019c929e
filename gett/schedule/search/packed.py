"""The search of packed schedules: where the unit stride of tensors lies in a batch mode, dense copies are multiplied.

The copies' bytes cost less than a main loop does that picks single elements out of lines. The workspace is bounded by
the user's limit: what does not fit is computed in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.hw.device import nearest
from gett.ir.contraction import Contraction
from gett.ir.gemm import GemmPlan, itemsize
from gett.ir.packing import (
    BITS,
    Cuts,
    batch_modes,
    batch_nearest,
    count_copies,
    count_pieces,
    packed_bytes,
    packed_operand,
)
from gett.schedule.packed import PackedPlans, packed_plans
from gett.schedule.search.base import best_schedules
from gett.schedule.search.stream import StreamSearch
from gett.schedule.spec.mainloop import StreamMap
from gett.schedule.spec.packing import MAX_PIECES, CopyPass, Packing
from gett.schedule.spec.schedule import Forecast, Schedule

CLEARLY = 1.1
"""How many times faster than all else packed schedules must be expected to be: copies ask for memory."""

KEPT = 3  # products whose schedules are tried


def packed_schedules(
    plan: GemmPlan, facts: ArchFacts, products: Callable[[GemmPlan, ArchFacts], list[Schedule]], least_us: float
) -> list[Schedule]:
    """Schedules with copies that are expected to be clearly faster than `least_us`.

    Args:
        plan: What to run.
        facts: Of the GPU, with the limit of the workspace.
        products: The schedules of the product of the copies, best first.
        least_us: What the best schedule without copies is expected to take.
    """
    c = plan.contraction
    names = packed_names(c)
    if not names or c.c is not None or c.extras or _floor_us(plan, names, facts) * CLEARLY > least_us:
        return []
    found = [
        s for cuts in choose_cuts(c, names, facts.workspace_limit) for s in _of_cuts(c, names, cuts, facts, products)
    ]
    return sorted((s for s in found if s.forecast.us * CLEARLY <= least_us), key=lambda s: s.forecast.us)


def _floor_us(plan: GemmPlan, names: Sequence[str], facts: ArchFacts) -> float:
    """Microseconds of all bytes at copy speed: those of the product, and those of the copies twice."""
    c = plan.contraction
    tensors = {"a": c.a, "b": c.b, "d": c.d}
    copied = sum(packed_bytes(c, packed_operand(c, x)) for name in names if (x := tensors[name]) is not None)
    return (plan.bytes + 2 * copied) / nearest(facts).memory.copy_tbps * 1e-6


def _of_cuts(
    c: Contraction,
    names: Sequence[str],
    cuts: Cuts,
    facts: ArchFacts,
    products: Callable[[GemmPlan, ArchFacts], list[Schedule]],
) -> list[Schedule]:
    """The schedules with pieces of one kind."""
    made = packed_plans(c, cuts, names)
    copies = _copies(made, facts)
    if copies is None:
        return []
    packing = Packing(cuts, *(_copy_pass(copies.get(name)) for name in "abd"))
    tensors = {"a": c.a, "b": c.b, "d": c.d}
    copies_us = 0.0
    for name, copy in copies.items():
        tensor = tensors[name]
        assert tensor is not None
        copies_us += count_copies(c, cuts, tensor) * copy.forecast.us
    found = []
    for product in products(made.product, replace(facts, workspace_limit=0))[:KEPT]:
        products_us = count_pieces(c, cuts) * product.forecast.us
        bound = product.forecast.bound if products_us > copies_us else "DRAM"
        share = f"copies {copies_us:.0f} us, products {products_us:.0f} us"
        reason = f"unit stride in a batch mode, so dense copies are multiplied: {share}; {product.forecast.reason}"
        forecast = Forecast(copies_us + products_us, bound, reason)
        found.append(replace(product, workspace_bytes=made.workspace_bytes, packing=packing, forecast=forecast))
    return found


def packed_names(c: Contraction) -> tuple[str, ...]:
    """The tensors, of `a`, `b` and `d`, whose unit stride lies in a batch mode; none where one cannot be copied."""
    if c.b is None or not batch_modes(c):
        return ()
    found = [(name, x) for name, x in (("a", c.a), ("b", c.b), ("d", c.d)) if batch_nearest(c, x)]
    for _, x in found:
        repeated = any(s == 0 and c.extents[m] > 1 for m, s in zip(x.modes, x.strides, strict=True))
        if repeated or itemsize(x.dtype) not in BITS:
            return ()
    return tuple(name for name, _ in found)


def choose_cuts(c: Contraction, names: Sequence[str], limit: int) -> list[Cuts]:
    """Pieces whose copies fit into the limit: all at once, else the fewest along each group of D's modes.

    Pieces along batch modes share no operand but cut the rows in which tensors lie; along M or N one operand is copied
    whole, once.
    """
    if packed_plans(c, (), names).workspace_bytes <= limit:
        return [()]
    batch = batch_modes(c)
    free = [m for m in sorted(c.d.modes, key=lambda m: -abs(c.d.stride(m))) if m not in batch]
    groups = (batch, [m for m in free if c.a.stride(m)], [m for m in free if c.b is not None and c.b.stride(m)])
    return [cuts for modes in groups if (cuts := _fewest(c, names, limit, modes)) is not None]


def _fewest(c: Contraction, names: Sequence[str], limit: int, modes: Sequence[int]) -> Cuts | None:
    """The fewest pieces along some modes that fit into a limit, the first mode cut first; None where none do."""
    cuts: Cuts = ()
    for mode in modes:
        extent = c.extents[mode]
        lengths = [extent // n for n in range(2, min(extent, MAX_PIECES) + 1) if extent % n == 0]
        for length in lengths:
            tried = (*cuts, (mode, length))
            if count_pieces(c, tried) > MAX_PIECES:
                return None
            if packed_plans(c, tried, names).workspace_bytes <= limit:
                return tried
        if lengths and lengths[-1] == 1:
            cuts = (*cuts, (mode, 1))
    return None


def _copies(made: PackedPlans, facts: ArchFacts) -> dict[str, Schedule] | None:
    """The schedule of each copy by the tensor's name, None where there is none for one of them."""
    found = {}
    for tensor in made.tensors:
        search = StreamSearch(tensor.plan, facts)
        best = best_schedules([search], 1)
        if not best:
            return None
        found[tensor.name] = best[0]
    return found


def _copy_pass(schedule: Schedule | None) -> CopyPass | None:
    if schedule is None:
        return None
    assert isinstance(schedule.mainloop, StreamMap)
    return CopyPass(schedule.tiling.m, schedule.mainloop, schedule.smem)
