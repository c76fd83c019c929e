"""A plan in ten lines, for people: what it is, what runs it, its time, what bounds it, what would help.

A network takes at most forty lines: totals and its costliest steps. Owns the choice of facts and their wording, as text
and as HTML. Every detail is in `detail.py`.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from gett.console.formatting import WIDEST, format_bytes, format_quantity, format_seconds, printable, shortened
from gett.explain.advice import Make, advice
from gett.explain.detail import CPU_RIDGE, Plan, explain_held, explain_slices
from gett.explain.network import costliest, network_totals
from gett.explain.path import explain_path
from gett.explain.roofline import Roofline, roofline, total
from gett.explain.schedule import count, spell
from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type, is_complex, planes_of
from gett.ir.gemm import GemmPlan
from gett.network.request import PlanRequest
from gett.network.steps import Step
from gett.schedule.spec.schedule import Schedule
from layouts.modes import Strided

LINES = 10  # of the text of a contraction
MOST = 40  # of that of a network

# What multiplies, by the `kind` of a schedule's main loop.
KERNELS = {
    "wgmma ss": "wgmma, operands in shared memory",
    "wgmma rs": "wgmma, one operand through registers",
    "wgmma split": "wgmma on planes of 16 bits",
    "wgmma tf32": "wgmma in TF32, one operand through registers",
    "dmma tma": "float64 tensor cores (mma.sync)",
    "mma.sync": "tensor cores (mma.sync)",
    "simt": "multiply-adds without tensor cores",
    "stream map": "one pass over memory",
    "stream sum": "one pass over memory that sums",
    "stream matrix": "one pass over the large operand, the small one in shared memory",
}
# How a tile comes, by the name of a loader's class.
LOADERS = {
    "Tma": "by tensor map",
    "Stationary": "by tensor map once",
    "Gather": "gathered by warps",
    "CpAsync": "by cp.async",
    "CpAsyncTile": "by cp.async",
    "RegisterStaged": "through registers",
}

Fact = tuple[str, str]


def summary(plan: Plan, request: PlanRequest, facts: ArchFacts | None, make: Make) -> str:
    """A plan as text of at most ten lines, of a network at most forty.

    Args:
        plan: What to tell.
        request: What it was made for.
        facts: Of its GPU; None on the CPU.
        make: Plans a changed request, to see whether it would be faster.
    """
    lines = [_title(plan, facts)]
    lines += [f"  {name:<9} {text}" for name, text in _facts(plan, request, facts, make)]
    most = MOST if len(plan.steps) > 1 else LINES
    return printable("\n".join(shortened(line) for line in lines[:most]))


def summary_html(plan: Plan, request: PlanRequest, facts: ArchFacts | None, make: Make) -> str:
    """The same as a table, for notebooks."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(printable(text))}</td></tr>'
        for name, text in _facts(plan, request, facts, make)
    )
    return f"<table><caption><code>{html.escape(printable(_title(plan, facts)))}</code></caption>{rows}</table>"


def plan_roofline(plan: Plan, facts: ArchFacts) -> Roofline | None:
    """The roofline of all steps together; None where no time is expected of one."""
    parts = [roofline(step, facts) for step in plan.steps]
    known = [x for x in parts if x is not None]
    return total(known) if known and len(known) == len(parts) else None


def _title(plan: Plan, facts: ArchFacts | None) -> str:
    where = "the CPU" if facts is None else f"{plan.arch} ({facts.name})"
    steps = "" if len(plan.steps) < 2 else f", {len(plan.steps)} steps"
    tail = f" on {where}, {plan.dtype}{steps}"
    return shortened(plan.subscripts, WIDEST - len(tail)) + tail


def _facts(plan: Plan, request: PlanRequest, facts: ArchFacts | None, make: Make) -> list[Fact]:
    if not plan.steps:
        return [("result", "no elements: nothing to compute")]
    roof = None if facts is None else plan_roofline(plan, facts)
    if len(plan.steps) == 1:
        told = _contraction_facts(plan.steps[0], facts)
    else:
        told = [("path", explain_path(plan.request, plan.path))]
    if plan.slices > 1:
        told.append(("slices", explain_slices(plan)))
    if plan.held_steps:
        told.append(("held", explain_held(plan)))
    told += _time(plan, roof)
    if len(plan.steps) > 1:
        told += network_totals(plan)
    if plan.stands_in:
        told.append(("now", "shared kernels make its steps until its own are compiled"))
    told.append(("memory", _memory(plan)))
    room = LINES - 2 - len(told)
    if len(plan.steps) > 1:
        told += costliest(plan.steps)
    if roof is not None and facts is not None:
        told += [("advice", text) for text in advice(request, plan, roof.share, facts, make)[: max(1, room)]]
    told.append(("more", "plan.explain(detail=True)"))
    return told


def _contraction_facts(step: Step, facts: ArchFacts | None) -> list[Fact]:
    gemm, schedule = step.gemm, step.schedule
    told = [("is", _product(gemm))]
    if facts is None or schedule is None:
        told.append(("runs as", f"NumPy: {getattr(step.executable, 'route', None) or 'not bound to a device'}"))
    else:
        told.append(("kernel", _kernel(schedule, gemm.extent_l)))
    told.append(("products", _products(gemm, schedule)))
    return told


def _product(gemm: GemmPlan) -> str:
    """The groups as a matrix product, modes slowest first."""
    kind = gemm.shape_class()
    if gemm.b is None:
        text = kind
    else:
        sides = [("M", gemm.extent_m, gemm.m), ("N", gemm.extent_n, gemm.n), ("K", gemm.extent_k, gemm.k)]
        shape = " x ".join(f"{name} {extent}{_modes(gemm, modes)}" for name, extent, modes in sides)
        batch = f", {gemm.extent_l} times{_modes(gemm, gemm.l)}" if gemm.extent_l > 1 else ""
        text = f"{kind} {shape}{batch}"
        if gemm.swapped:
            text += "; the second operand has M"
    return text + ("" if gemm.contraction.epilogue is None else "; then a function of each element")


def _modes(gemm: GemmPlan, modes: Sequence[Strided]) -> str:
    names = " ".join(spell(gemm, mode) for mode in reversed(modes))
    return f" ({names})" if names else ""


def _kernel(schedule: Schedule, batches: int) -> str:
    kind = schedule.mainloop.kind
    text = KERNELS[kind]
    loop = schedule.mainloop
    loaders = [LOADERS.get(type(getattr(loop, side, None)).__name__, "") for side in "ab"]
    if all(loaders):
        a, b = loaders
        text += f"; A and B {a}" if a == b else f"; A {a}, B {b}"
    if kind.startswith("stream"):
        return text
    t = schedule.tiling
    split = f", K in {schedule.split_k} slices" if schedule.split_k > 1 else ""
    split += ", stream-K" if schedule.scheduler.stream_k else ""
    tiles = t.m.tiles * t.n.tiles * (batches if t.l is None else t.l.tiles)
    return f"{text}; {count(tiles, 'tile')} of {' x '.join(map(str, t.shape))}{split}"


def _products(gemm: GemmPlan, schedule: Schedule | None) -> str:
    """How products are formed."""
    c = gemm.contraction
    if gemm.b is None:
        return "none" if gemm.extent_k == 1 else f"none; sums in {data_type(c.dtype).accumulator}"
    if schedule is None:
        return f"in {c.dtype}, by NumPy"
    planes = planes_of(c.dtype, schedule.precision or c.precision) if "split" in schedule.kind else None
    sums = data_type(data_type(c.dtype).accumulator).real
    if planes is not None:
        each = "each part" if is_complex(c.dtype) else "each number"
        worst = planes.bound_complex if is_complex(c.dtype) else planes.bound
        made = f"{len(planes.products)} of {planes.tensor.name} planes of {each}"
        return f"{made}, sums in float32; errors at most {worst} units of 2^-24"
    tensor = data_type(data_type(c.dtype).real).multiplied(c.precision)
    if tensor is not None and "simt" not in schedule.kind and tensor.name == "tf32":
        return "of factors rounded to TF32 (10 bits), sums in float32"
    return f"of {c.dtype} factors as they are, sums in {sums}"


def _time(plan: Plan, roof: Roofline | None) -> list[Fact]:
    if roof is None:
        bound = "arithmetic" if plan.flops > CPU_RIDGE * plan.bytes else "memory"
        work = f"{format_quantity(plan.flops)}FLOP" if plan.flops else "no arithmetic"
        limit = f"; bound by {bound}" if len(plan.steps) == 1 else ""
        return [("work", f"{work}, {format_quantity(plan.bytes)}B{limit}")]
    if not roof.seconds:
        return []
    rates = [f"{format_quantity(roof.flops / roof.seconds)}FLOP/s"] if roof.flops else []
    rates.append(f"{format_quantity(roof.bytes / roof.seconds)}B/s")
    how = "measured" if roof.measured else "expected"
    facts = [("time", f"{format_seconds(roof.seconds)} {how}: {', '.join(rates)}; {_share(roof, len(plan.steps))}")]
    bounds = {s.forecast.bound for s in plan.steps if s.forecast is not None} - {""}
    if len(plan.steps) == 1 and bounds:
        intensity = f", {roof.flops / roof.bytes:.3g} FLOP/B" if roof.flops and roof.bytes else ""
        facts.append(("bound by", f"{', '.join(bounds)}{intensity}"))
    return facts


def _share(roof: Roofline, steps: int) -> str:
    """The share of the roofline, and the rate that is the roof of a single step."""
    share = "under 1 %" if roof.share < 0.01 else f"{100 * roof.share:.0f} %"
    if steps > 1:
        return f"{share} of the roofline"
    rate = f"{format_quantity(roof.flops / roof.least)}FLOP/s" if roof.arithmetic else ""
    return f"{share} of the roofline ({rate or format_quantity(roof.bytes / roof.least) + 'B/s'})"


def _memory(plan: Plan) -> str:
    parts = []
    if len(plan.steps) > 1:
        parts.append(f"intermediates {format_bytes(plan.intermediate_bytes)}")
    if len(plan.steps) > 1 or plan.slices > 1 or plan.held_steps:
        parts.append(f"peak {format_bytes(plan.peak_bytes)}")
    if plan.arch != "cpu":
        parts.append(f"workspace {format_bytes(plan.workspace_bytes)}" if plan.workspace_bytes else "no workspace")
        packed = [s.schedule.packing for s in plan.steps if s.schedule is not None and s.schedule.packing is not None]
        names = [x.upper() for x in "abd" if packed and getattr(packed[0], x) is not None]
        one = f"dense copies of {' and '.join(names)}"
        parts.append(
            "no copies" if not packed else one if len(plan.steps) == 1 else f"copies in {count(len(packed), 'step')}"
        )
    parts.append(f"at least {format_bytes(plan.bytes)} read and written")
    return ", ".join(parts)
