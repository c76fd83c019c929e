"""`python -m gett run`: one problem planned, run, verified, and timed beside the rivals installed.

Owns the printed report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gett.arrays.kinds import CPU, NUMPY
from gett.cli.apart import LIMIT_S, OverTimeError, time_rival
from gett.cli.device import Place, find_place
from gett.cli.execute import Outcome, execute
from gett.cli.exits import say
from gett.cli.measure import Peaks, time_gpu
from gett.cli.problem import Problem
from gett.cli.rivals import cpu_rivals, find_rivals, rival_table
from gett.console.formatting import format_quantity, format_seconds, format_table, printable
from gett.errors import GettError, MissingPackageError
from gett.typing import Precision

if TYPE_CHECKING:
    from gett.plans.contraction_plan import ContractionPlan


def run_run(
    problem: Problem,
    device: str | None,
    precision: Precision | None,
    repeat: int | None,
    devices: Sequence[int] | None = None,
) -> int:
    """Print plan, verdict, times and rivals of a problem; returns 0, or 1 if the result is wrong."""
    place = find_place(device)
    outcome = execute(problem, place, precision=precision, repeat=repeat, devices=devices)
    print(outcome.plan)
    print()
    print("\n".join(describe_outcome(outcome, place, place.measure_peaks(problem.dtype))))
    if not outcome.verdict.ok:
        return 1
    if devices is not None:
        alone = execute(problem, place, precision=precision, repeat=repeat).timing.seconds
        gain = alone / outcome.timing.seconds
        print(f"  {'alone':<9} {format_seconds(alone)} on one device; {len(devices)} take 1/{gain:.2f} of it")
    print()
    try:
        lines = _rival_table(outcome, place, precision, repeat)
    except MissingPackageError as error:
        lines = [f"no rivals: {error}"]
    print("\n".join(lines))
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


def _rival_table(outcome: Outcome, place: Place, precision: Precision | None, repeat: int | None) -> list[str]:
    times, reasons = (_times_on_gpu if place.is_gpu else _times_on_cpu)(outcome, place, precision, repeat)
    own = outcome.timing.seconds
    rows = [["gett", format_seconds(own), _rates(outcome.plan, own)[0], "1.00"]]
    for name, seconds in times.items():
        if seconds is None:
            rows.append([name, f"over {LIMIT_S:g} s", "-", f"over {LIMIT_S / own:.2f}"])
        else:
            rows.append([name, format_seconds(seconds), _rates(outcome.plan, seconds)[0], f"{seconds / own:.2f}"])
    lines = format_table(["who", "time", "rate", "times gett's"], rows)
    if None in times.values():
        end = "not repeated" if place.is_gpu else "stopped"
        lines.append(f"A rival has {LIMIT_S:g} s; one whose call takes longer is {end}.")
    return lines + [printable(f"no {name}: {reason}") for name, reason in reasons.items()]


Times = tuple[dict[str, float | None], dict[str, str]]
"""Seconds of each rival, None for one that takes over its limit; and why the others have none."""


def _times_on_cpu(outcome: Outcome, place: Place, precision: Precision | None, repeat: int | None) -> Times:
    """Each in a process of its own, which can be stopped."""
    times: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    if 2 * outcome.problem.bytes > NUMPY.memory(CPU):
        return times, dict.fromkeys(cpu_rivals(), "there is no room for its copy of the tensors")
    for name in cpu_rivals():
        say(f"timing {name}, at most {LIMIT_S:g} s ...", end="")
        try:
            times[name] = time_rival(outcome.problem, name, precision, repeat, limit=LIMIT_S).seconds
        except OverTimeError:
            times[name] = None
        except GettError as error:
            reasons[name] = str(error)
        say(" over" if times.get(name, 0) is None else " done")
    return times, reasons


def _times_on_gpu(outcome: Outcome, place: Place, precision: Precision | None, repeat: int | None) -> Times:
    """Each in this process, on the same memory; one whose first call takes too long is not repeated."""
    spare = place.xp.empty_like(outcome.result)
    table = rival_table()
    libraries = table.Libraries()
    times: dict[str, float | None] = {}
    with table.math_mode(precision, libraries):
        calls, reasons = find_rivals(outcome.problem, outcome.operands, spare, precision, gpu=True, libraries=libraries)
        for name, call in calls.items():
            seconds = time_gpu([call], 1).seconds
            times[name] = time_gpu([call], repeat).seconds if seconds <= LIMIT_S else None
    return times, reasons


def _rates(plan: ContractionPlan, seconds: float) -> list[str]:
    """Arithmetic, where there is any, and traffic a second."""
    moved = f"{format_quantity(plan.bytes / seconds)}B/s"
    return [f"{format_quantity(plan.flops / seconds)}FLOP/s", moved] if plan.flops else [moved]
