"""A network of many steps told in few lines: what bounds its time, its launches, its costliest steps.

Owns the wording of what networks have and single contractions have not. Decides nothing and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gett.console.formatting import format_seconds, format_table
from gett.explain.detail import CPU_RIDGE, Plan, step_cost
from gett.explain.launches import launches_of
from gett.explain.schedule import count
from gett.network.steps import Step

COSTLIEST = 10  # steps that are listed
KINDS = 4  # bounds and kernels that are named, by the time that they take

Fact = tuple[str, str]

# What multiplies, by the `kind` of a schedule's main loop: the words of a table's column.
SHORT = {
    "wgmma ss": "wgmma",
    "wgmma rs": "wgmma",
    "wgmma split": "wgmma, planes",
    "wgmma tf32": "wgmma, TF32",
    "dmma tma": "float64 cores",
    "mma.sync": "mma.sync",
    "simt": "multiply-adds",
    "stream map": "one pass",
    "stream sum": "pass that sums",
    "stream matrix": "one pass, matrix",
}


def network_totals(plan: Plan) -> list[Fact]:
    """What bounds the time, and the kernels with their launches; of the CPU the bound alone."""
    costs = [step_cost(s) for s in plan.steps]
    bounds = _shares(zip(map(bound_of, plan.steps), costs, strict=True))
    told = [("bound by", bounds)]
    if plan.arch == "cpu":
        return told
    launches = launches_of(plan.steps, plan.once, plan.slices)
    kinds = len({s.gemm.signature for s in plan.steps})
    how = "one by one"
    if plan.graphs:
        how = f"in {count(plan.graphs, 'CUDA graph')} from the second call on"
    told.append(("launches", f"{count(launches, 'kernel')}, {how}; {kinds} different contractions"))
    told.append(("kernels", _shares(zip(map(kernel_of, plan.steps), costs, strict=True))))
    return told


def bound_of(step: Step) -> str:
    """What bounds a step: the word of its forecast; on the CPU arithmetic or memory."""
    if step.forecast is not None:
        return step.forecast.bound or "unknown"
    return "arithmetic" if step.gemm.flops > CPU_RIDGE * step.gemm.bytes else "memory"


def kernel_of(step: Step) -> str:
    """What multiplies."""
    if step.together is not None:
        return "together"
    return "NumPy" if step.schedule is None else SHORT[step.schedule.mainloop.kind]


def costliest(steps: Sequence[Step]) -> list[Fact]:
    """A table of the steps that take longest: one fact each, behind one that heads the columns."""
    times = [step_cost(s) for s in steps]
    whole = sum(times) or 1.0
    order = sorted(range(len(times)), key=lambda i: -times[i])[:COSTLIEST]
    rows = []
    for i in order:
        gemm, forecast = steps[i].gemm, steps[i].forecast
        rows.append(
            [
                f"{100 * times[i] / whole:.1f} %",
                "-" if forecast is None else format_seconds(1e-6 * forecast.us),
                bound_of(steps[i]),
                f"{gemm.extent_l} x {gemm.extent_m} x {gemm.extent_n} x {gemm.extent_k}",
                kernel_of(steps[i]),
                steps[i].name,
            ]
        )
    header, _, *lines = format_table(
        ["share", "time", "bound by", "L x M x N x K", "kernel", "subscripts"], rows, left=6
    )
    names = [f"step {i + 1}" for i in order]
    told = [("costliest", header), *zip(names, lines, strict=True)]
    rest = len(steps) - len(order)
    return told if not rest else [*told, ("", f"and {count(rest, 'step')} more")]


def _shares(parts: Iterable[tuple[str, float]]) -> str:
    """The words that stand for most of the time, each with its share and how many steps it stands for."""
    times: dict[str, list[float]] = {}
    for word, time in parts:
        times.setdefault(word, []).append(time)
    totals = {word: sum(found) for word, found in times.items()}
    whole = sum(totals.values()) or 1.0
    longest = sorted(totals, key=lambda word: -totals[word])[:KINDS]
    named = [f"{word} {100 * totals[word] / whole:.0f} % ({count(len(times[word]), 'step')})" for word in longest]
    return ", ".join(named) + (f" and {len(times) - KINDS} more" if len(times) > KINDS else "")
