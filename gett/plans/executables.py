"""Schedules and executables of a plan's steps: the model's choice, what was measured, or NumPy.

Owns which of these a step gets, and that cached plans are dropped when the choice changes. Knows `Step`s and no arrays.
The runtime, the tuner and the NumPy executor are imported when a step first needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.network.steps import Executable, Step
from gett.network.together import LEAST, made_together
from gett.plans.plan_cache import plan_cache

if TYPE_CHECKING:
    from gett.schedule.spec.grouped import GroupedSchedule
    from gett.schedule.spec.schedule import Schedule
    from gett.tune.recall import Kernels


def choose_schedules(steps: Sequence[Step], arch: str, limit: int = WORKSPACE_LIMIT) -> tuple[Step, ...]:
    """Steps with the model's first choices, whose workspaces are at most `limit` bytes."""
    from gett.schedule.search.select import select_schedule

    facts = limited_facts(arch, limit)
    return _with_schedules(steps, lambda gemms: [select_schedule(gemm, arch, facts) for gemm in gemms])


def limited_facts(arch: str, limit: int) -> ArchFacts:
    """An architecture's nominal facts, with the user's limit of the workspace."""
    return replace(arch_facts(arch), workspace_limit=limit)


def _with_schedules(
    steps: Sequence[Step], choose: Callable[[Sequence[GemmPlan]], Sequence[Schedule]]
) -> tuple[Step, ...]:
    """Steps with the schedules that are chosen for those of them that differ."""
    signatures = [None if s.together is not None else s.gemm.signature for s in steps]
    distinct = {name: s.gemm for name, s in zip(signatures, steps, strict=True) if name is not None}
    chosen = dict(zip(distinct, choose([*distinct.values()]), strict=True))
    return tuple(
        s if name is None else replace(s, schedule=chosen[name]) for s, name in zip(steps, signatures, strict=True)
    )


def with_launches(steps: Sequence[Step], arch: str) -> tuple[Step, ...]:
    """Steps of which one launch makes small ones together, where there are many."""
    from gett.codegen.grouped import MOST_LISTED
    from gett.hw.device import nearest
    from gett.schedule.grouped import listed_schedule
    from gett.schedule.spec.schedule import Forecast

    if len(steps) < LEAST or any(any(s.offsets) for s in steps):
        return tuple(steps)
    last = steps[-1].output
    found = {s.gemm.signature: s.gemm for s in steps}
    kernels = {name: listed_schedule(gemm, arch) for name, gemm in found.items()}
    launches = nearest(arch_facts(arch)).launches

    def share(count: int) -> Forecast:
        us = (launches.launch_us + launches.fill_us) / count
        return Forecast(us, "launches", f"one of {count} small steps of a launch")

    own = [None if s.output == last else kernels[s.gemm.signature] for s in steps]
    return made_together(steps, own, MOST_LISTED, share)


def bind_steps(
    steps: Sequence[Step], arch: str, tuned: bool, limit: int = WORKSPACE_LIMIT, kernels: Kernels | None = None
) -> tuple[Step, ...]:
    """Steps with what runs them on the current device, and the schedules of that.

    Args:
        steps: Of a plan.
        arch: What they are planned for.
        tuned: Whether kernels are measured where none was before.
        limit: Most bytes of workspace that a call may take.
        kernels: Of the steps that are made alone, some of them there already; default: they are looked up here.
    """
    alone = [s.gemm for s in steps if s.together is None]
    with together_beside(s.together.schedule for s in steps if s.together is not None):
        if kernels is None:
            made = _build_executables(alone, arch, tuned, limit)
        else:
            kernels.compile()
            made = kernels.load(alone)
    return with_executables(steps, made)


def with_executables(steps: Sequence[Step], alone: Iterable[Any]) -> tuple[Step, ...]:
    """Steps with what runs them on the current device.

    Args:
        steps: Of a plan.
        alone: What runs those that are made alone; others are built here.
    """
    own, together = iter(alone), _build_together(steps)
    return tuple(
        with_executable(s, next(own)) if s.together is None else replace(s, executable=together[s.together.number])
        for s in steps
    )


def with_executable(step: Step, executable: Any) -> Step:
    """A step that is made alone, with what runs it and the schedule of that."""
    schedule = getattr(executable, "schedule", None)
    if any(step.offsets):
        from gett.runtime.shifted import ShiftedExecutable

        executable = ShiftedExecutable(executable, step.offsets)
    return replace(step, schedule=schedule, executable=executable)


def _build_executables(gemms: Sequence[GemmPlan], arch: str, tuned: bool, limit: int) -> list[Any]:
    """What runs each plan on the current device."""
    if arch == "cpu":
        from gett.cpu import NumpyExecutable

        kinds = [gemm.contraction.nameless for gemm in gemms]
        made = {kind: NumpyExecutable(gemm) for kind, gemm in dict(zip(kinds, gemms, strict=True)).items()}
        return [made[kind] for kind in kinds]
    if tuned:
        return [_tune(gemm, arch, limit) for gemm in gemms]
    from gett.tune.recall import build_all

    return [*build_all(gemms, arch, limit)]


@contextmanager
def together_beside(
    schedules: Iterable[GroupedSchedule], most: int | None = None, *, wait: bool = True
) -> Iterator[dict[GroupedSchedule, Future[Any]]]:
    """Kernels that make steps together are compiled in threads meanwhile; `compile_grouped` then has them.

    Args:
        schedules: Theirs.
        most: Threads; default: one for each kernel.
        wait: Whether the end waits for them; who does not need them all asks for results of those that it needs.
    """
    distinct = dict.fromkeys(schedules)
    if not distinct:
        yield {}
        return
    from gett.runtime.grouped import compile_grouped

    pool = ThreadPoolExecutor(most or len(distinct))
    try:
        yield {schedule: pool.submit(compile_grouped, schedule) for schedule in distinct}
    finally:
        pool.shutdown(wait=wait, cancel_futures=not wait)


def _build_together(steps: Sequence[Step]) -> dict[int, Any]:
    """The launches of steps that are made together, by number."""
    found: dict[int, tuple[Any, list[GemmPlan]]] = {}
    for step in steps:
        if step.together is not None:
            found.setdefault(step.together.number, (step.together.schedule, []))[1].append(step.gemm)
    if not found:
        return {}
    from gett.runtime.together import build_together

    return {**build_together(found)}


def _tune(gemm: GemmPlan, arch: str, limit: int) -> Executable:
    """What was measured to run one plan fastest on the current device; measured now if it never was."""
    from gett.tune.tuner import tuned_executable

    executable = tuned_executable(gemm, arch, limit)
    drop_plans({gemm.signature}, tuned=False)
    return executable


def drop_plans(signatures: Collection[str], *, tuned: bool) -> int:
    """Forget the cached plans that have a step of one of these signatures, so that the next call finds the store.

    Args:
        signatures: Of the steps' plans.
        tuned: Also those whose step was tuned before.
    """

    def affected(plan: Any) -> bool:
        if plan.stands_in:  # its own kernels are being compiled as the model chose them
            return any(s.gemm.signature in signatures for s in plan.planned_steps)
        return any(replaced(step) and step.gemm.signature in signatures for step in plan.steps)

    def replaced(step: Step) -> bool:
        built = step.executable
        if built is None or step.schedule is None:
            return False
        return tuned or getattr(built, "measured", None) is None

    return plan_cache.discard(affected)
