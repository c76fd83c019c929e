"""What a rule of legality is: a name, a sentence, and a function that says how a schedule breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition that schedules must meet.

    Attributes:
        name: A few words.
        sentence: The condition.
        broken: How a schedule of a lowered plan breaks it on a GPU, with the numbers; None where it does not.
    """

    name: str
    sentence: str
    broken: Callable[[Schedule, GemmPlan, ArchFacts], str | None]


def first_broken(rules: Iterable[Rule], schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    """The reason of the first rule that a schedule breaks, None where it meets all.

    Args:
        rules: In the order in which they are asked: a rule may rely on those before it.
        schedule: What is checked.
        plan: The lowered plan that its boxes belong to.
        facts: Of the GPU.
    """
    return next((reason for rule in rules if (reason := rule.broken(schedule, plan, facts)) is not None), None)
