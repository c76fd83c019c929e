"""`python -m gett run`: one problem planned, run, verified, and timed beside the rivals installed.

Owns the printed report.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from benchmarks.rivals.table import Libraries, math_mode
from gett.cli.device import Place, find_place
from gett.cli.execute import Outcome, execute
from gett.cli.measure import Peaks, time_cpu, time_gpu
from gett.cli.problem import Problem
from gett.cli.rivals import find_rivals
from gett.console.formatting import format_quantity, format_seconds, format_table, printable

if TYPE_CHECKING:
    from gett.api.contraction_plan import ContractionPlan


def run_run(problem: Problem, device: str | None, precision: str | None, repeat: int | None) -> int:
    """Print plan, verdict, times and rivals of a problem; returns 0, or 1 if the result is wrong."""
    place = find_place(device)
    outcome = execute(problem, place, precision=precision, repeat=repeat)
    print(outcome.plan)
    print()
    print("\n".join(describe_outcome(outcome, place, place.measure_peaks(problem.dtype))))
    if not outcome.verdict.ok:
        return 1
    print()
    print("\n".join(_rival_table(outcome, place, precision, repeat)))
    return 0


def describe_outcome(outcome: Outcome, place: Place, peaks: Peaks) -> list[str]:
    """The measured part of the report as lines."""
    plan, timing, verdict = outcome.plan, outcome.timing, outcome.verdict
    seconds = timing.seconds
    if verdict.exact:
        text = "right: every element equal" if verdict.ok else "WRONG: elements differ"
    else:
        text = f"{'right' if verdict.ok else 'WRONG'}: max error / bound = {verdict.ratio:.3g}"
    facts = [
        ("on", place.name),
        ("planned", f"{format_seconds(outcome.plan_seconds)} (a first call compiles where there is a GPU)"),
        ("result", f"{outcome.result.dtype}, shape {tuple(outcome.result.shape)}; {text}"),
        ("time", f"{format_seconds(seconds)}, median of {timing.repeats} warm calls into an existing result"),
        ("rate", ", ".join(_rates(plan, seconds))),
        (
            "roofline",
            f"{100 * peaks.share(plan.flops, plan.bytes, seconds):.0f} % (copy {format_quantity(peaks.bandwidth)}B/s "
            f"and matrix product {format_quantity(peaks.flops)}FLOP/s, measured just now)",
        ),
    ]
    return [f"  {name:<9} {value}" for name, value in facts]


def _rival_table(outcome: Outcome, place: Place, precision: str | None, repeat: int | None) -> list[str]:
    spare = place.xp.empty_like(outcome.result)
    libraries = Libraries()
    seconds = {"gett": outcome.timing.seconds}
    with math_mode(precision, libraries) if place.is_gpu else contextlib.nullcontext():
        calls, reasons = find_rivals(
            outcome.problem, outcome.operands, spare, precision, gpu=place.is_gpu, libraries=libraries
        )
        for name, call in calls.items():
            seconds[name] = (time_gpu([call], repeat) if place.is_gpu else time_cpu(call, repeat)).seconds
    rows = [
        [name, format_seconds(s), _rates(outcome.plan, s)[0], f"{s / outcome.timing.seconds:.2f}"]
        for name, s in seconds.items()
    ]
    lines = format_table(["who", "time", "rate", "times gett's"], rows)
    return lines + [printable(f"no {name}: {reason}") for name, reason in reasons.items()]


def _rates(plan: ContractionPlan, seconds: float) -> list[str]:
    """Arithmetic, where there is any, and traffic a second."""
    moved = f"{format_quantity(plan.bytes / seconds)}B/s"
    return [f"{format_quantity(plan.flops / seconds)}FLOP/s", moved] if plan.flops else [moved]
