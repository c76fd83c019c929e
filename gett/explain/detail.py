"""Plans as text, in full: what was grouped, fused and swapped, which kernel runs, and what limits it.

Owns all wording and the text tables. Reads plans and schedules; decides nothing and measures nothing.
"""

# ruff: noqa: D102 - `ContractionPlan` documents the properties of `Plan`

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gett.console.formatting import format_bytes, format_quantity, format_seconds, format_table, printable, shortened
from gett.explain.path import explain_path
from gett.explain.schedule import count, schedule_facts, spell
from gett.hw.dtypes import data_type
from gett.ir.contraction import Operand
from gett.ir.gemm import GemmPlan, itemsize
from gett.network.path import Path
from gett.network.request import PlanRequest
from gett.network.steps import Step
from gett.schedule.spec.schedule import Schedule

# Flops a byte above which a CPU's BLAS takes longer than its memory: present cores do 30 to 100 fp32 GFLOP/s and
# move 5 to 15 GB/s each.
CPU_RIDGE = 8.0
LISTED = 10  # of a network's steps, the costliest
NAME = 44  # characters of subscripts in the table of steps


class Plan(Protocol):
    """What this module reads of a `ContractionPlan`, which stands above it and imports it for its text."""

    subscripts: str
    arch: str
    steps: tuple[Step, ...]
    path: Path
    dtype: Any
    shape: Any

    @property
    def request(self) -> PlanRequest: ...
    @property
    def stands_in(self) -> bool: ...
    @property
    def flops(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def intermediate_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def step_bytes(self) -> tuple[int, ...]: ...
    @property
    def slices(self) -> int: ...
    @property
    def sliced(self) -> str: ...
    @property
    def once(self) -> int: ...
    @property
    def overhead(self) -> float: ...
    @property
    def graphs(self) -> int: ...
    @property
    def held_steps(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...


def explain(plan: Plan) -> str:
    """A whole plan as text: of a network the totals, the path and the costliest steps, then every step."""
    steps = plan.steps
    title = f"{plan.subscripts} on {plan.arch}"
    if len(steps) == 1 and plan.slices == 1 and not plan.held_steps:
        return _explain_step(steps[0], title)
    if not steps:
        return printable(f"{title}\n  nothing to compute: the result has no elements")
    head = [
        f"{title}   {count(len(steps), 'step')}",
        f"  {format_quantity(plan.flops)}FLOP, {format_quantity(plan.bytes)}B moved at least; "
        f"intermediates {format_bytes(plan.intermediate_bytes)}, workspace {format_bytes(plan.workspace_bytes)}",
    ]
    if plan.slices > 1:
        head.append(f"  {explain_slices(plan)}; at most {format_bytes(plan.peak_bytes)} held at one time")
    if plan.held_steps:
        head.append(f"  {explain_held(plan)}")
    estimates = [s.forecast.us for s in steps if s.forecast is not None]
    if estimates:
        head.append(f"  estimate {format_seconds(1e-6 * sum(estimates))}, all steps together")
    head += [f"  path {list(plan.path)}", f"  {explain_path(plan.request, plan.path)}"]
    sections = [printable("\n".join(head)), "\n".join(_costliest(steps))]
    sections += [_explain_step(step, _title(steps, number)) for number, step in enumerate(steps)]
    return "\n\n".join(sections)


def explain_slices(plan: Plan) -> str:
    """How a plan is sliced, in words."""
    run_once = "no step" if not plan.once else count(plan.once, "step")
    labels = " ".join(plan.sliced)
    return f"{plan.slices} slices along {labels}, {run_once} computed once, {plan.overhead:.3g} times the FLOP"


def explain_held(plan: Plan) -> str:
    """What a plan holds between calls, in words."""
    return f"results of {count(plan.held_steps, 'step')} are held between calls, {format_bytes(plan.held_bytes)}"


def _title(steps: Sequence[Step], number: int) -> str:
    """How the section of a step begins; what is too large for one launch says which share of its result it writes."""
    step = steps[number]
    title = f"step {number + 1} of {len(steps)}: {step.name}"
    shares = [i for i, other in enumerate(steps) if other.output == step.output]
    return title if len(shares) == 1 else f"{title}, launch {shares.index(number) + 1} of {len(shares)}"


def _explain_step(step: Step, title: str) -> str:
    """One step in full: what its executor says of itself, and how its schedule was found."""
    route = getattr(step.executable, "route", None)
    measured = getattr(step.executable, "measured", None)
    runs = "NumPy"
    if step.together is not None:
        runs, tile = "GPU", " x ".join(map(str, step.together.schedule.tile.shape))
        route = f"{step.together.forecast.reason}, in tiles of {tile}"
    return explain_gemm(step.gemm, step.schedule, route=route, measured=measured, title=title, runs=runs)


def step_cost(step: Step) -> float:
    """What steps are ranked by: the cost model's time; on the CPU arithmetic or memory."""
    if step.forecast is not None:
        return step.forecast.us
    return max(step.gemm.flops / CPU_RIDGE, step.gemm.bytes)


def _costliest(steps: Sequence[Step]) -> list[str]:
    """A table of the steps that take longest, by the cost model, without one by arithmetic or memory."""
    costs = [step_cost(s) for s in steps]
    total = sum(costs)
    order = sorted(range(len(steps)), key=lambda i: -costs[i])[:LISTED]
    rows = []
    for i in order:
        g, forecast = steps[i].gemm, steps[i].forecast
        rows.append(
            [
                str(i + 1),
                shortened(steps[i].name, NAME),
                f"{g.extent_l} x {g.extent_m} x {g.extent_n} x {g.extent_k}",
                format_quantity(g.flops) + "FLOP",
                format_quantity(g.bytes) + "B",
                "-" if forecast is None else format_seconds(1e-6 * forecast.us),
                f"{100 * costs[i] / total:.1f} %" if total else "-",
            ]
        )
    header = ["step", "subscripts", "L x M x N x K", "work", "moved", "estimate", "share"]
    lines = ["  " + line for line in format_table(header, rows, left=2)]
    rest = len(steps) - len(order)
    return lines if not rest else [*lines, f"  and {count(rest, 'step')} more"]


def explain_gemm(
    gemm: GemmPlan,
    schedule: Schedule | None = None,
    *,
    route: str | None = None,
    measured: tuple[float, int] | None = None,
    title: str | None = None,
    runs: str = "NumPy",
) -> str:
    """One contraction as text.

    Args:
        gemm: The plan. Its groups are listed fastest mode first; fused modes are spelled slowest first, as in
            subscripts; strides are in elements of each tensor ("12 B" where a stride is no whole number of them).
        schedule: The kernel's schedule, or None where NumPy runs the plan.
        route: What the executor makes of it, in words.
        measured: Microseconds of the schedule, and among how many it was found; None if the model chose it.
        title: How the first line begins; default: the subscripts.
        runs: What runs it where there is no schedule.
    """
    c = gemm.contraction
    spelled = ",".join(c.spell(o) for o in (c.a, c.b) if o is not None) + "->" + c.spell(c.d)
    lines = [
        f"{title or spelled}   {gemm.shape_class()} in {c.dtype}, precision {c.precision}",
        f"  L {gemm.extent_l} x M {gemm.extent_m} x N {gemm.extent_n} x K {gemm.extent_k}",
        *_explain_roles(gemm),
        "",
        *_group_table(gemm),
        "",
    ]
    facts: list[tuple[str, str]] = []
    if schedule is not None:
        facts += schedule_facts(gemm, schedule)
    else:
        facts.append(("executor", runs if route is None else f"{runs}: {route}"))
    if c.epilogue is not None:
        facts.append(("epilogue", f"{c.epilogue}, in {data_type(c.dtype).accumulator}, before D is stored"))
    intensity = gemm.flops / gemm.bytes if gemm.bytes else 0.0
    moved = f"{format_quantity(gemm.bytes)}B"
    if gemm.flops:
        density = f"{intensity:.3g}" if intensity < 1000 else f"{intensity:.0f}"
        facts.append(("work", f"{format_quantity(gemm.flops)}FLOP, {moved}, {density} FLOP/B"))
    else:
        facts.append(("work", f"{moved}, no arithmetic"))
    facts += _bound_facts(schedule, intensity, measured)
    lines += [f"  {name:<9} {text}" for name, text in facts]
    return printable("\n".join(lines))


def _explain_roles(gemm: GemmPlan) -> list[str]:
    c = gemm.contraction
    if gemm.b is None:
        return [f'  A is "{c.spell(gemm.a)}", the only operand{_read(gemm, gemm.a)}']
    first, second = ("second", "first") if gemm.swapped else ("first", "second")
    roles = f'  A is the {first} operand "{c.spell(gemm.a)}"{_read(gemm, gemm.a)}'
    roles += f', B the {second} "{c.spell(gemm.b)}"{_read(gemm, gemm.b)}'
    return [roles + (": swapped, so that D's unit-stride mode is in N" if gemm.swapped else "")]


def _read(gemm: GemmPlan, operand: Operand) -> str:
    """What is not plain about how an operand is read: its own dtype, and whether it is conjugated."""
    own = [operand.dtype] if operand.dtype != gemm.contraction.dtype else []
    facts = [*own, *(["conjugated"] if operand.conj else [])]
    return f" ({', '.join(facts)})" if facts else ""


def _group_table(gemm: GemmPlan) -> list[str]:
    columns = gemm.tensors
    rows: list[list[str]] = []
    for name, modes in (("L", gemm.l), ("M", gemm.m), ("N", gemm.n), ("K", gemm.k)):
        if not modes:
            rows.append([name, "-", "1", *("" for _ in columns)])
        for i, mode in enumerate(modes):
            strides = [_stride(mode.strides[t], itemsize(operand.dtype)) for _, t, operand in columns]
            rows.append([name if i == 0 else "", spell(gemm, mode), str(mode.extent), *strides])
    header = ["group", "modes", "extent", *(f"stride {n.upper() if len(n) == 1 else n}" for n, _, _ in columns)]
    return ["  " + line for line in format_table(header, rows, left=2)]


def _bound_facts(
    schedule: Schedule | None, intensity: float, measured: tuple[float, int] | None
) -> list[tuple[str, str]]:
    if schedule is None:
        return [("bound", "arithmetic" if intensity > CPU_RIDGE else "memory")]
    facts, forecast = [], schedule.forecast
    estimate = f"estimate {format_seconds(1e-6 * forecast.us)}"
    if forecast.bound or forecast.us:
        facts.append(("bound", f"{forecast.bound or 'unknown'}; {estimate}"))
    if measured is not None:
        time = format_seconds(1e-6 * measured[0])
        facts.append(("choice", f"tuned: measured {time} among {count(measured[1], 'candidate')}"))
    elif forecast.us:
        facts.append(("choice", f"chosen by the model ({estimate})"))
    if forecast.reason:
        facts.append(("why", forecast.reason))
    return facts


def _stride(byte_stride: int, size: int) -> str:
    return str(byte_stride // size) if byte_stride % size == 0 else f"{byte_stride} B"
