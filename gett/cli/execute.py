"""One problem from plan to verdict: what `run` and `demo` share.

Owns the order of events: random data, plan, a poisoned result, the call, the check, the timing. Prints nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import gett
from gett.cli.device import Place
from gett.cli.measure import Timing, time_cpu, time_gpu
from gett.cli.problem import Problem, random_operand
from gett.console.formatting import format_bytes
from gett.errors import OptionError, OutOfMemoryError
from gett.measure.timer import sets_to_rotate
from gett.measure.verify import Verdict, poison, verify
from gett.typing import Precision

if TYPE_CHECKING:
    from gett.plans.contraction_plan import ContractionPlan


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one problem gave.

    Attributes:
        problem: The problem.
        plan: Its plan.
        plan_seconds: Planning, with compilation on a GPU.
        timing: The warm call into an existing result.
        verdict: Whether the result was right.
        operands: The arrays, for rivals.
        result: The result, likewise.
    """

    problem: Problem
    plan: ContractionPlan
    plan_seconds: float
    timing: Timing
    verdict: Verdict
    operands: tuple[Any, ...]
    result: Any


def execute(
    problem: Problem,
    place: Place,
    *,
    precision: Precision | None = None,
    repeat: int | None = None,
    host_reference: bool = False,
    seed: int = 0,
    devices: Sequence[int] | None = None,
) -> Outcome:
    """Plan, run, verify and time one problem.

    Args:
        problem: What to compute.
        place: Where.
        precision: As `gett.einsum` takes it.
        repeat: Timed calls, None to choose by the time of one.
        host_reference: Check on the host with NumPy even where the result is on a GPU.
        seed: Of the random data.
        devices: GPUs that share the problem, None for one.

    Raises:
        GettError: The problem cannot be planned or run.
    """
    _check_room(problem)
    try:
        operands = tuple(map(place.put, random_operands(problem, seed)))
        result = place.xp.empty(problem.shape(problem.output), problem.dtype)
    except ValueError as error:  # more axes than arrays have
        raise OptionError(f"there is no array for {problem.subscripts}: {error}") from error
    start = time.perf_counter()
    plan = gett.plan(problem.subscripts, *operands, precision=precision, devices=devices)
    plan_seconds = time.perf_counter() - start
    poison(result)
    plan(*operands, out=result)
    arrays, found, xp = operands, result, place.xp
    if host_reference:
        arrays, found, xp = tuple(map(place.fetch, operands)), place.fetch(result), np
    lengths = [step.gemm.extent_k for step in plan.steps] or [1]
    verdict = verify(problem.subscripts, arrays, found, lengths, xp, precision=precision)
    timing = _time(place, plan, operands, result, repeat)
    return Outcome(problem, plan, plan_seconds, timing, verdict, operands, result)


def random_operands(problem: Problem, seed: int) -> tuple[Any, ...]:
    """The operands of a problem as NumPy arrays of random data, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return tuple(random_operand(rng, shape, problem.dtype) for shape in problem.shapes)


def _check_room(problem: Problem) -> None:
    """Refuse what the host's memory cannot hold: allocations succeed, and filling them ends the process."""
    with contextlib.suppress(AttributeError, ValueError, OSError):  # where the system does not tell
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if problem.bytes > memory > 0:
            raise OutOfMemoryError(
                f"the tensors of {problem.subscripts} take {format_bytes(problem.bytes)}, this machine has "
                f"{format_bytes(memory)} of memory"
            )


def _time(place: Place, plan: ContractionPlan, operands: tuple[Any, ...], result: Any, repeat: int | None) -> Timing:
    if not place.is_gpu:
        return time_cpu(lambda: plan(*operands, out=result), repeat)
    used = sum(int(x.nbytes) for x in (*operands, result))
    sets = [(operands, result)]
    for _ in range(sets_to_rotate(used, place.l2_bytes) - 1):
        sets.append((tuple(x.copy() for x in operands), place.xp.empty_like(result)))

    def make_call(inputs: tuple[Any, ...], out: Any) -> Any:
        return lambda: plan(*inputs, out=out)

    return time_gpu([make_call(*s) for s in sets], repeat)
