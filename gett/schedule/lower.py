"""The plan as a schedule sees it: roles of A and B exchanged, long modes split, products at another precision.

The boxes of a schedule refer to the lowered plan. The first two steps rename what is computed; they do not change it.
"""

from __future__ import annotations

from dataclasses import replace

from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import Split, Tiling
from layouts.modes import Strided


def lower_plan(plan: GemmPlan, tiling: Tiling, precision: str = "") -> GemmPlan:
    """The plan that the boxes of a tiling belong to, at another precision if one is given."""
    plan = at_precision(plan, precision) if precision else plan
    return split_modes(swap_ab(plan) if tiling.swap_ab else plan, tiling.splits)


def at_precision(plan: GemmPlan, precision: str) -> GemmPlan:
    """The same contraction, whose products are formed at another precision."""
    return replace(plan, contraction=replace(plan.contraction, precision=precision))


def swap_ab(plan: GemmPlan) -> GemmPlan:
    """The same contraction with A and B in each other's roles."""

    def swapped(modes: tuple[Strided, ...]) -> tuple[Strided, ...]:
        return tuple(Strided(s.labels, s.extent, (s.strides[1], s.strides[0], *s.strides[2:])) for s in modes)

    l, m, n, k = map(swapped, (plan.l, plan.n, plan.m, plan.k))
    return replace(plan, swapped=not plan.swapped, l=l, m=m, n=n, k=k)


def split_modes(plan: GemmPlan, splits: tuple[Split, ...]) -> GemmPlan:
    """The plan with some modes cut in two: an inner one of the given extent and the rest, right behind it."""
    for s in splits:
        modes = list(getattr(plan, s.group))
        mode = modes[s.mode]
        assert mode.extent % s.inner == 0
        outer = Strided(mode.labels, mode.extent // s.inner, tuple(x * s.inner for x in mode.strides))
        modes[s.mode : s.mode + 1] = [Strided(mode.labels, s.inner, mode.strides), outer]
        plan = replace(plan, **{s.group: tuple(modes)})  # type: ignore[arg-type]
    return plan
