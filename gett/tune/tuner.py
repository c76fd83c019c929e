"""The autotuner: the model's best few schedules of a plan are compiled, compared, measured; the fastest is stored.

Owns which schedules are tried, in what order, and who wins. The tensors and the clock are `gett.tune.measure`'s. Knows
no subscripts and no user arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gett.console.progress import Step, progress
from gett.env import shows_progress
from gett.errors import CompileError, GettError, ScheduleError, TuneWarning
from gett.hw.archs import WORKSPACE_LIMIT, ArchFacts
from gett.ir.gemm import GemmPlan
from gett.jit.workers import side_by_side
from gett.runtime.build import load_executable
from gett.runtime.compiled import CompiledKernel
from gett.runtime.compiling import compile_schedule
from gett.runtime.device import DeviceFacts, device_facts, require_cupy
from gett.runtime.executable import GpuExecutable
from gett.schedule.spec.schedule import Schedule
from gett.tune.measure import Bench, Run
from gett.tune.recall import remember
from gett.tune.store import plan_key

if TYPE_CHECKING:
    from gett.jit.compile import Compiler

CANDIDATES = 12
REPEAT = 20
FINALISTS = 3  # measured once more, in turns: clocks drift
CLOSE = 1.1  # ... if within this factor of the fastest


@dataclass(frozen=True, slots=True)
class Trial:
    """One schedule that was tried.

    Attributes:
        schedule: Its forecast is what the model expected.
        measured_us: Median time on the device in microseconds; None where it was not measured.
        note: Why not, else empty.
    """

    schedule: Schedule
    measured_us: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What tuning one contraction found.

    Attributes:
        plan: The contraction.
        trials: The fastest first, then those that were not measured; the model's order is that of their estimates.
        executable: The fastest, loaded; None where nothing was measured.
    """

    plan: GemmPlan
    trials: tuple[Trial, ...]
    executable: GpuExecutable | None = None

    @property
    def best(self) -> Trial | None:
        """The fastest, None where nothing was measured."""
        return self.trials[0] if self.trials and self.trials[0].measured_us is not None else None

    @property
    def chosen(self) -> Trial | None:
        """What runs without tuning: the model's first that was measured."""
        measured = [t for t in self.trials if t.measured_us is not None]
        return min(measured, key=lambda t: t.schedule.forecast.us, default=None)

    @property
    def gain(self) -> float:
        """How many times faster the fastest is than the model's choice."""
        if self.best is None or self.chosen is None:
            return 1.0
        assert self.best.measured_us is not None
        assert self.chosen.measured_us is not None
        return self.chosen.measured_us / self.best.measured_us


class Clock(Protocol):
    """What tuning asks of `Bench`."""

    def agreeing(self, runs: Sequence[Run]) -> list[int]:
        """Positions of the runs that give the same bits."""

    def shuffle(self) -> None:
        """Fill the operands with ordinary values."""

    def time(self, run: Run, repeat: int) -> float:
        """Median microseconds."""


def tune(
    plan: GemmPlan,
    *,
    candidates: int = CANDIDATES,
    repeat: int = REPEAT,
    step: Step = lambda text, units=1, /: None,
    bench: Callable[[GemmPlan], Clock] | None = None,
    store: bool = True,
    limit: int = WORKSPACE_LIMIT,
) -> Tuning:
    """Measure the model's best schedules of a plan on the current device.

    Args:
        plan: What to compute, every extent at least 1.
        candidates: How many schedules are tried at most.
        repeat: Most repetitions of each; those of the finalists are measured twice.
        step: Told of progress, twice for each candidate (`steps_of` in all).
        bench: Makes the scratch tensors; default: on the device.
        store: Whether the fastest is remembered.
        limit: Most bytes of workspace that a call may take.

    Raises:
        MissingPackageError, DeviceError: There is no GPU to measure on.
        OutOfMemoryError: The device has no room for a copy of the tensors.
        ScheduleError: There is no schedule at all. Kernels that do not compile well are trials without a time.
    """
    facts = replace(device_facts(), workspace_limit=limit)
    tried = shortlist(plan, facts, candidates)
    made = compile_all(plan, tried, step, facts.planning)
    kernels = [x for _, x in made if isinstance(x, CompiledKernel)]
    refused = [Trial(s, None, _first_line(x)) for s, x in made if isinstance(x, GettError)]
    if not kernels:
        return Tuning(plan, tuple(refused))
    clock = bench(plan) if bench is not None else Bench(require_cupy(), plan, facts.l2_bytes)
    runs = [load_executable(plan, kernel) for kernel in kernels]
    right = clock.agreeing(runs)
    wrong = [Trial(k.schedule, None, "wrong result") for i, k in enumerate(kernels) if i not in right]
    for trial in wrong:
        s = trial.schedule
        warnings.warn(
            f"a {s.kind} schedule with tiles {s.tiling.shape} gives another result than {len(right)} others do; "
            "it is not used. Please report it, with the subscripts and shapes",
            TuneWarning,
            stacklevel=2,
        )
    clock.shuffle()
    times = measure(clock, [runs[i] for i in right], repeat, step)
    order = sorted(range(len(right)), key=times.__getitem__)
    trials = [Trial(kernels[right[i]].schedule, times[i]) for i in order]
    fastest, measured = right[order[0]], (times[order[0]], len(right))
    runs[fastest].measured = measured
    key = plan_key(plan, facts)
    if store and key is not None:
        remember(key, replace(kernels[fastest], measured=measured))
    return Tuning(plan, (*trials, *wrong, *refused), runs[fastest])


def steps_of(candidates: int) -> int:
    """Most calls of `step` that tuning one contraction makes."""
    return 2 * candidates


def shortlist(plan: GemmPlan, facts: DeviceFacts, count: int) -> list[Schedule]:
    """The model's best schedules, and the best of each other main loop: the model compares those least well."""
    from gett.schedule.search.select import candidates

    found = candidates(plan, facts.arch, facts.planning)
    first: dict[str, Schedule] = {}
    for s in found:
        first.setdefault(s.kind, s)
    others = [s for s in first.values() if s not in found[:count]][: max(0, count - 1)]
    return [*found[: count - len(others)], *others]


def compile_all(
    plan: GemmPlan, schedules: Sequence[Schedule], step: Step, facts: ArchFacts | None = None
) -> list[tuple[Schedule, CompiledKernel | GettError]]:
    """Each schedule with its kernel, or with the error that says why there is none."""

    def compile_one(schedule: Schedule, compiler: Compiler | None) -> CompiledKernel | GettError:
        try:
            return compile_schedule(plan, schedule, facts=facts, compiler=compiler)
        except (ScheduleError, CompileError) as error:
            return error

    return list(zip(schedules, side_by_side(lambda x: partial(compile_one, x), schedules, step), strict=True))


def measure(clock: Clock, runs: Sequence[Run], repeat: int, step: Step) -> list[float]:
    """Microseconds of each run. The fastest few are measured once more, in turns, and their lower time stands."""
    times = []
    for i, run in enumerate(runs):
        times.append(clock.time(run, repeat))
        step(f"measured {i + 1} of {len(runs)}: {times[-1]:.1f} us, best {min(times):.1f} us")
    fastest = min(times)
    finalists = [i for i in sorted(range(len(runs)), key=times.__getitem__) if times[i] <= CLOSE * fastest][:FINALISTS]
    if len(finalists) > 1:
        for i in finalists:
            times[i] = min(times[i], clock.time(runs[i], repeat))
    return times


def tuned_executable(plan: GemmPlan, arch: str, limit: int = WORKSPACE_LIMIT) -> GpuExecutable:
    """The measured executable of a plan on the current device: from the store, else tuned now.

    Progress is shown where stderr is a terminal, or as `GETT_PROGRESS` says. Raises what `tune` raises.
    """
    from gett.tune.recall import build_remembered

    found = build_remembered(plan, arch, limit, tuned_only=True)
    if found is None:
        with progress(steps_of(CANDIDATES), "autotune", shows_progress()) as step:
            found = tune(plan, step=step, limit=limit).executable
    if found is None:  # no kernel compiles well enough to be worth a measurement
        found = build_remembered(plan, arch, limit)
    assert found is not None
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return " ".join(lines[:2]) if lines else type(error).__name__
