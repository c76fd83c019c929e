"""Small steps of a network that one launch makes together: which ones, and the order of steps in which they stand.

Knows dependencies and classes of kernels, neither tables nor devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gett.network.steps import Step, Together

if TYPE_CHECKING:  # plans of NumPy arrays have none
    from gett.schedule.spec.grouped import GroupedSchedule
    from gett.schedule.spec.schedule import Forecast

LEAST = 8
"""Small steps from which a network has any made together: fewer take no longer by kernels of their own."""


def made_together(
    steps: Sequence[Step],
    small: Sequence[GroupedSchedule | None],
    most: int,
    shares: Callable[[int], Forecast],
) -> tuple[Step, ...]:
    """Steps in an order in which those of a launch are neighbours.

    A small step is made behind the last of the other steps that it needs, with those that need as many small steps
    between. So other steps keep their order, and what small steps write, which is little, is made early.

    Args:
        steps: In order.
        small: For each step the kernel that makes it with others; None where it is made alone.
        most: Steps of one launch.
        shares: What is expected of each of so many steps of a launch.
    """
    if sum(x is not None for x in small) < LEAST:
        return tuple(steps)
    stands: dict[int, tuple[int, int]] = {}  # of each result: other steps before it, then small steps in a row
    levels: dict[tuple[int, int], dict[GroupedSchedule | None, list[Step]]] = {}
    others = 0
    for step, kernel in zip(steps, small, strict=True):
        if kernel is None:
            others += 1
            at = others, 0
        else:
            last, depth = max((stands[i] for i in step.inputs if i in stands), default=(0, 0))
            at = last, depth + 1
        stands[step.output] = at
        levels.setdefault(at, {}).setdefault(kernel, []).append(step)
    ordered: list[Step] = []
    number = 0
    for at in sorted(levels):
        for kernel, found in levels[at].items():
            # A step that sums nothing takes half as long by a kernel of its own, which compiles in a tenth of a second.
            if kernel is None or (len(found) == 1 and found[0].gemm.extent_k == 1):
                ordered += found
                continue
            for first in range(0, len(found), most):
                own = found[first : first + most]
                number += 1
                together = Together(number, kernel, shares(len(own)))
                ordered += [replace(s, together=together) for s in own]
    return tuple(ordered)


def made_for_now(steps: Sequence[Step], kernels: Sequence[GroupedSchedule | None], share: Forecast) -> tuple[Step, ...]:
    """Steps in their order, of which some are made by kernels that others share, each by a launch of its own.

    So a call holds no more memory than with kernels of the steps' own.

    Args:
        steps: In order.
        kernels: For each step what makes it for now; None where it stays as it is.
        share: What is expected of a step that is made so.
    """
    number = max((s.together.number for s in steps if s.together is not None), default=0)
    found = []
    for step, kernel in zip(steps, kernels, strict=True):
        if kernel is not None:
            number += 1
            step = replace(step, schedule=None, together=Together(number, kernel, share))
        found.append(step)
    return tuple(found)
