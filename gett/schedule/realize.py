"""The plan as a schedule sees it: roles exchanged, long unit-stride modes split where tiles want them in pieces.

A schedule's boxes refer to the realized plan. Both steps only rename what is computed, never what it means.
"""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule, Split
from layouts.modes import Strided


def realize(plan: GemmPlan, schedule: Schedule) -> GemmPlan:
    """The plan that the schedule's boxes and accesses belong to."""
    return split_modes(exchange(plan) if schedule.exchanged else plan, schedule.splits)


def exchange(plan: GemmPlan) -> GemmPlan:
    """The same contraction with A and B in each other's roles."""

    def turn(modes: tuple[Strided, ...]) -> tuple[Strided, ...]:
        return tuple(Strided(s.labels, s.extent, (s.strides[1], s.strides[0], *s.strides[2:])) for s in modes)

    return replace(plan, swapped=not plan.swapped, l=turn(plan.l), m=turn(plan.n), n=turn(plan.m), k=turn(plan.k))


def split_modes(plan: GemmPlan, splits: tuple[Split, ...]) -> GemmPlan:
    """The plan with some modes cut in two: an inner one of the given extent and the rest, right behind it."""
    for s in splits:
        modes = list(getattr(plan, s.group))
        mode = modes[s.mode]
        assert mode.extent % s.inner == 0
        outer = Strided(mode.labels, mode.extent // s.inner, tuple(x * s.inner for x in mode.strides))
        modes[s.mode : s.mode + 1] = [Strided(mode.labels, s.inner, mode.strides), outer]
        # One group changes; spelled out because `replace` is typed by field.
        plan = replace(
            plan,
            m=tuple(modes) if s.group == "m" else plan.m,
            n=tuple(modes) if s.group == "n" else plan.n,
            k=tuple(modes) if s.group == "k" else plan.k,
        )
    return plan
