"""Whether a GPU can run a plan by a schedule: the rules of its main loop, asked in order.

A schedule that is legal computes the right result; one that is not would not compile, would not start, or would be
wrong. What it takes is the cost models'.
"""

from __future__ import annotations

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.lower import lower_plan, swap_ab
from gett.schedule.mainloops.table import kind_of, smem_plan
from gett.schedule.packed import copy_schedule, plans_of, product_of
from gett.schedule.rules.common import PACKING_RULES, architecture, domains, precision, splits
from gett.schedule.rules.rule import Lowered, Reasons, Refusal, first_broken
from gett.schedule.spec.schedule import Packing, Schedule


def shared_memory_plan(x: Lowered) -> Reasons:
    """The parts of shared memory lie where the kernel expects them."""
    found = smem_plan(x.s, x.plan)
    if x.s.smem != found:
        yield f"planned as {x.s.smem}, the parts make {found}"


def can_implement(schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> Refusal | None:
    """The first rule that a schedule breaks, None where a GPU can run a plan by it.

    The plan is as it was made, not lowered.
    """
    if (found := first_broken((domains, architecture), schedule, plan, facts)) is not None:
        return found
    if schedule.packing is not None:
        return _refused_packing(schedule, schedule.packing, plan, facts)
    swapped = swap_ab(plan) if schedule.tiling.swap_ab else plan
    if (found := first_broken((splits, precision), schedule, swapped, facts)) is not None:
        return found
    lowered = lower_plan(plan, schedule.tiling, schedule.precision)
    return first_broken((*kind_of(schedule).rules, shared_memory_plan), schedule, lowered, facts)


def _refused_packing(schedule: Schedule, packing: Packing, plan: GemmPlan, facts: ArchFacts) -> Refusal | None:
    """The same for a schedule with copies: their own rules, then those of each copy and of the product."""
    if (found := first_broken(PACKING_RULES, schedule, plan, facts)) is not None:
        return found
    made = plans_of(plan, packing)
    parts = [(copy_schedule(schedule.arch, getattr(packing, t.name)), t.plan) for t in made.tensors]
    parts.append((product_of(schedule), made.product))
    return next((found for part, of in parts if (found := can_implement(part, of, facts)) is not None), None)


def check_schedule(schedule: Schedule, plan: GemmPlan, facts: ArchFacts) -> None:
    """Do nothing where a GPU can run a plan by a schedule.

    Raises:
        ScheduleError: A rule forbids it; the text says which and how it is broken.
    """
    refusal = can_implement(schedule, plan, facts)
    if refusal is not None:
        raise ScheduleError(f"{refusal.reason} (rule: {refusal.rule.__doc__})")
