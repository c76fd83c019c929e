"""How many kernels a plan launches, by its schedules alone: nothing is rendered or compiled for it."""

from __future__ import annotations

from collections.abc import Sequence

from gett.ir.packing import count_copies, count_pieces
from gett.network.steps import Step, launch_numbers


def count_launches(step: Step) -> int:
    """Kernels that one step launches on a GPU alone; 0 where NumPy runs it, or a launch makes it with others.

    Partial sums take a second launch, and dense copies of operands or of D have launches of their own.
    """
    schedule = step.schedule
    if schedule is None:
        return 0
    each = 2 if schedule.adds_parts else 1
    packing = schedule.packing
    if packing is None:
        return each
    c = step.gemm.contraction
    sides = [x for name, x in (("a", c.a), ("b", c.b)) if x is not None and getattr(packing, name) is not None]
    pieces = count_pieces(c, packing.cuts)
    copies = max((count_copies(c, packing.cuts, x) for x in sides), default=0)
    if packing.d is not None:  # what is copied between two products, D of one and operands of the next, is one launch
        copies = pieces + bool(sides)
    return pieces * each + copies


def launches_of(steps: Sequence[Step], once: int = 0, slices: int = 1) -> int:
    """Kernels that a call launches.

    Args:
        steps: Of a plan.
        once: How many of them run once for all slices; they come first.
        slices: How often the others run.
    """
    return _of_steps(steps[:once]) + slices * _of_steps(steps[once:])


def _of_steps(steps: Sequence[Step]) -> int:
    together = {n for n, s in zip(launch_numbers(steps), steps, strict=True) if s.together is not None}
    return sum(map(count_launches, steps)) + len(together)
