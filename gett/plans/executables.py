"""Schedules and executables of a plan's steps: the model's choice, what was measured, or NumPy.

Owns which of these a step gets, and that cached plans are dropped when the choice changes. Knows `Step`s and no arrays.
The runtime, the tuner and the NumPy executor are imported when a step first needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.network.steps import Executable, Step
from gett.plans.plan_cache import plan_cache

if TYPE_CHECKING:
    from gett.schedule.spec.schedule import Schedule


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
    distinct = {s.gemm.signature: s.gemm for s in steps}
    chosen = dict(zip(distinct, choose([*distinct.values()]), strict=True))
    return tuple(replace(s, schedule=chosen[s.gemm.signature]) for s in steps)


def bind_steps(steps: Sequence[Step], arch: str, tuned: bool, limit: int = WORKSPACE_LIMIT) -> tuple[Step, ...]:
    """Steps with what runs them on the current device, and the schedules of that.

    Args:
        steps: Of a plan.
        arch: What they are planned for.
        tuned: Whether kernels are measured where none was before.
        limit: Most bytes of workspace that a call may take.
    """
    made = _build_executables([s.gemm for s in steps], arch, tuned, limit)
    bound = []
    for step, executable in zip(steps, made, strict=True):
        schedule = getattr(executable, "schedule", None)
        if any(step.offsets):
            from gett.runtime.shifted import ShiftedExecutable

            executable = ShiftedExecutable(executable, step.offsets)
        bound.append(replace(step, schedule=schedule, executable=executable))
    return tuple(bound)


def _build_executables(gemms: Sequence[GemmPlan], arch: str, tuned: bool, limit: int) -> list[Any]:
    """What runs each plan on the current device."""
    if arch == "cpu":
        from gett.cpu import NumpyExecutable

        return [NumpyExecutable(gemm) for gemm in gemms]
    if tuned:
        return [_tune(gemm, arch, limit) for gemm in gemms]
    from gett.tune.recall import build_all

    return [*build_all(gemms, arch, limit)]


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

    def affected(step: Step) -> bool:
        built = step.executable
        if built is None or step.schedule is None or (not tuned and getattr(built, "measured", None) is not None):
            return False
        return step.gemm.signature in signatures

    return plan_cache.discard(lambda plan: any(affected(s) for s in plan.steps))
