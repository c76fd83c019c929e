"""Whether a GPU can run a plan by a schedule: the rules of its main loop, asked in order.

A schedule that is legal computes the right result; one that is not would not compile, would not start, or would be
wrong. What it takes is the cost models'.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.lower import lower_plan, swap_ab
from gett.schedule.mainloops.table import kind_of
from gett.schedule.packed import copy_schedule, plans_of, product_of
from gett.schedule.rules.common import architecture, domains, precision, splits
from gett.schedule.rules.packing import PACKING_RULES
from gett.schedule.rules.rule import Lowered, Rule
from gett.schedule.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schedule cannot be run.

    Attributes:
        rule: The rule that it breaks.
        reason: How, with the numbers.
    """

    rule: Rule
    reason: str


def can_implement(schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> Refusal | None:
    """The first rule that a schedule breaks, None where a GPU can run a plan by it.

    The plan is as it was made, not lowered.
    """
    for rule in (domains, architecture):
        if reason := rule.broken(Lowered(schedule, plan, facts)):
            return Refusal(rule, reason)
    if schedule.packing is not None:
        return _refused_packing(schedule, plan, facts)
    swapped = swap_ab(plan) if schedule.tiling.swap_ab else plan
    for rule in (splits, precision):
        if reason := rule.broken(Lowered(schedule, swapped, facts)):
            return Refusal(rule, reason)
    x = Lowered(schedule, lower_plan(plan, schedule.tiling, schedule.precision), facts)
    found = ((rule, rule.broken(x)) for rule in kind_of(schedule).rules)
    return next((Refusal(rule, reason) for rule, reason in found if reason is not None), None)


def _refused_packing(schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> Refusal | None:
    """The same for a schedule with copies: their own rules, then those of each copy and of the product."""
    assert schedule.packing is not None
    whole = Lowered(schedule, plan, facts)
    for rule in PACKING_RULES:
        if (reason := rule.broken(whole)) is not None:
            return Refusal(rule, reason)
    made = plans_of(plan, schedule.packing)
    parts = [(copy_schedule(schedule.arch, getattr(schedule.packing, t.name)), t.plan) for t in made.tensors]
    found = (can_implement(part, its_plan, facts) for part, its_plan in [*parts, (product_of(schedule), made.product)])
    return next((refusal for refusal in found if refusal is not None), None)


def check_schedule(schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> None:
    """Do nothing where a GPU can run a plan by a schedule.

    Raises:
        ScheduleError: A rule forbids it; the text says which and how it is broken.
    """
    refusal = can_implement(schedule, plan, facts)
    if refusal is not None:
        raise ScheduleError(f"{refusal.reason} (rule: {refusal.rule.sentence})")
