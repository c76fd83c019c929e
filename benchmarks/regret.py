"""`python -m benchmarks regret`: what the cost model's choices cost, by stored times of schedules; needs no GPU.

The regret of a choice is its time over the best that was timed for its contraction. Files of times are
`benchmarks.schedule_times`'. A choice that was not timed has no regret; how many there are is told. Known schedules
come from the same files, so the regret of the model alone says what to expect of other contractions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import geometric_mean
from benchmarks.schedule_times import Problem, read
from gett.codec import decode
from gett.console.formatting import format_table
from gett.hw.archs import ArchFacts, arch_facts
from gett.hw.device import measured
from gett.ir.gemm import GemmPlan
from gett.schedule.search.select import searched, select_schedule
from gett.schedule.spec.schedule import Schedule

STORED = tuple(Path(__file__).parent / "data" / f"{name}-times.json.gz" for name in ("h200", "h100"))
"""Times of schedules on an H200 and on an H100."""
UNSEEN = Path(__file__).parent / "data" / "h200-unseen-times.json.gz"
"""Those of drawn contractions of other seeds, on an H200: numbers are fitted to them as well, no schedule is known."""

REPLAYED = (*STORED, UNSEEN)

BAD = 1.1
"""Regrets above it are counted."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One contraction.

    Attributes:
        name: Of the case.
        kind: Element type, and the precision where it is not the default.
        regret: Of today's choice; None where it was not timed.
    """

    name: str
    kind: str
    regret: float | None


Choose = Callable[[GemmPlan, ArchFacts], Schedule]
"""Of a plan and a GPU a schedule."""


def by_model(plan: GemmPlan, facts: ArchFacts) -> Schedule:
    """What the cost model chooses."""
    return searched(plan, facts, every=False, first=True)[0]


def by_call(plan: GemmPlan, facts: ArchFacts) -> Schedule:
    """What a call chooses: the known schedule, else the model's."""
    return select_schedule(plan, facts.arch, facts)


def facts_of(device: str) -> ArchFacts:
    """Facts of a GPU that has a record, by its product name; nominal ones of another."""
    for record in measured():
        if record.name == device:
            nominal = arch_facts(record.arch)
            rates = record.clock_ghz, record.memory.copy_tbps
            return nominal.resized(device, record.sm_count, nominal.l2_bytes, *rates)
    return arch_facts("sm_90a")


def replay(path: Path, every: int = 1, choose: Choose = by_call, first: int = 0) -> list[Replay]:
    """Today's choices for the contractions of a file, or for every so-manieth from the `first` on."""
    found, stored = [], read(path)
    facts = facts_of(stored["device"])
    for case in stored["cases"][first::every]:
        times = {decode(Schedule, x["schedule"]): x["us"] for x in case["schedules"]}
        if len(times) < 2:
            continue
        problem = Problem.of(case)
        chosen = times.get(choose(problem.gemm(facts.arch), facts))
        found.append(Replay(problem.name, problem.kind, None if chosen is None else chosen / min(times.values())))
    return found


def by_kind(cases: Sequence[Replay]) -> dict[str, list[tuple[float, str]]]:
    """(regret, name) of the choices that were timed, by element type, the worst first."""
    found: dict[str, list[tuple[float, str]]] = {}
    for case in cases:
        if case.regret is not None:
            found.setdefault(case.kind, []).append((case.regret, case.name))
    return {kind: sorted(x, reverse=True) for kind, x in found.items()}


def table(found: Mapping[str, Sequence[tuple[float, str]]]) -> list[str]:
    """Regrets by element type: geometric mean, the worst, and how many are above `BAD`."""
    rows = []
    for kind, cases in found.items():
        (worst, name), bad = cases[0], sum(x > BAD for x, _ in cases)
        rows.append(
            [kind, str(len(cases)), f"{geometric_mean(x for x, _ in cases):.4f}", f"{worst:.2f}", name, str(bad)]
        )
    return format_table(["type", "cases", "regret", "worst", "case", f"above {BAD}"], rows)


def main(paths: Sequence[Path] = REPLAYED) -> int:
    """Print the regrets of today's choices, and of the model's alone."""
    for path in paths:
        known = () if path == UNSEEN else (("with known schedules", by_call),)
        for words, choose in (*known, ("the model alone", by_model)):
            cases = replay(path, choose=choose)
            untimed = sum(case.regret is None for case in cases)
            print("\n".join(table(by_kind(cases))))
            print(f"{read(path)['device']}, {words}, {len(cases)} contractions; {untimed} choices were not timed")
    return 0
