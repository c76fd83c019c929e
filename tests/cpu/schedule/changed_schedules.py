"""Schedules and plans with one part changed, whether the result is legal or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import PersistentRaster, Schedule
from layouts.tma import TmaMap
from tests.cpu.schedule.hopper_schedules import Found


def loop(s: Schedule, **changes: Any) -> Schedule:
    return replace(s, mainloop=replace(s.mainloop, **changes))


def tiling(s: Schedule, **changes: Any) -> Schedule:
    return replace(s, tiling=replace(s.tiling, **changes))


def raster(s: Schedule, **changes: Any) -> Schedule:
    assert isinstance(s.scheduler, PersistentRaster)
    return replace(s, scheduler=replace(s.scheduler, **changes))


def longer(made: TmaMap) -> TmaMap:
    return replace(made, extents=(*made.extents[:-1], made.extents[-1] + 1))


def staged(s: Schedule, **changes: Any) -> Schedule:
    store = s.epilogue.store
    return replace(s, epilogue=replace(s.epilogue, store=replace(store, stage=replace(store.stage, **changes))))


def changed(base: Callable[[], Found], change: Callable[[Schedule], Schedule]) -> Callable[[], Found]:
    def make() -> Found:
        s, plan, facts = base()
        return change(s), plan, facts

    return make


def with_mode(plan: GemmPlan, group: str, **changes: Any) -> GemmPlan:
    """The plan with its first mode of a group changed."""
    modes = getattr(plan, group)
    return replace(plan, **{group: (replace(modes[0], **changes), *modes[1:])})
