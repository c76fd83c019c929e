"""What a path and a plan consist of: `PathStep` and `Step`.

Owns how long tensors live and which operands the result may be written over. Knows no arrays, only their descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gett.ir.contraction import Operand
from gett.ir.gemm import GemmPlan, itemsize
from gett.network.request import PlanRequest

if TYPE_CHECKING:  # plans of NumPy arrays have none
    from gett.schedule.spec.grouped import GroupedSchedule
    from gett.schedule.spec.schedule import Forecast, Schedule

# (a, b, c, d, alpha, beta) in the user's order of operands; b and c may be None. Where the contraction has extras, a
# seventh argument is the sequence of their arrays.
Executable = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PathStep:
    """One contraction of a network.

    Attributes:
        inputs: One or two tensors: numbers below the count of operands are operands, the others results of steps.
        output: Number of the result.
        modes: Modes of the result, slowest first (the last step's: the requested output).
        wide: Whether the result is kept in the type that sums are formed in, where that is wider than the operands'.
    """

    inputs: tuple[int, ...]
    output: int
    modes: tuple[int, ...]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """The launch that makes a step with others.

    Attributes:
        number: Of the launch; those of its steps, which are neighbours, are equal.
        schedule: Its kernel.
        forecast: What is expected of the step: its share of a launch.
    """

    number: int
    schedule: GroupedSchedule
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class Step:
    """One contraction of a plan.

    Attributes:
        name: Its subscripts, e.g. `"bmji,cakm->kjicba"`.
        inputs: One or two tensors: numbers below the count of operands are operands, the others results of steps.
        output: Number of the result. What is too large for one launch has several steps, which write one result.
        shape: Extents of the whole result.
        gemm: The plan of this contraction.
        schedule: How a GPU runs it; None on the CPU, and where a launch makes it together with others.
        executable: What runs it where the plan was made for a device of this machine, else None.
        offsets: Bytes from the address of each tensor (a, b, c, d, then the epilogue's) to this step's share of it.
        together: The launch that makes it with others; None where it has a launch of its own.
    """

    name: str
    inputs: tuple[int, ...]
    output: int
    shape: tuple[int, ...]
    gemm: GemmPlan
    schedule: Schedule | None = None
    executable: Executable | None = field(default=None, compare=False, repr=False)
    offsets: tuple[int, ...] = (0, 0, 0, 0)
    together: Together | None = None

    @property
    def forecast(self) -> Forecast | None:
        """What the cost model expects on a GPU; None on the CPU."""
        made = self.schedule or self.together
        return None if made is None else made.forecast


def launch_numbers(steps: Sequence[Step]) -> tuple[int, ...]:
    """For each step the number of its launch; those that are made together have one."""
    found: list[int] = []
    before = None
    for step in steps:
        same = step.together is not None and step.together == before
        found.append(found[-1] if same else found[-1] + 1 if found else 0)
        before = step.together
    return tuple(found)


def last_uses(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """For each step the tensors that no later one reads: their memory goes once it was called.

    What steps that are made together read stays until the last of them.
    """
    launches = launch_numbers(steps)
    final = {launch: n for n, launch in enumerate(launches)}
    last = {i: final[launches[n]] for n, step in enumerate(steps) for i in step.inputs}
    gone: list[list[int]] = [[] for _ in steps]
    for i, n in last.items():
        gone[n].append(i)
    return tuple(map(tuple, gone))


def step_bytes(
    steps: Sequence[Step], uses: Sequence[tuple[int, ...]], copies: Mapping[int, int] | None = None
) -> tuple[int, ...]:
    """Memory that intermediates hold while each step runs; the result does not count.

    Args:
        steps: Of a plan.
        uses: Their `last_uses`.
        copies: Bytes of the operands that are converted before a step reads them first. Where it is given, these count
            as intermediates, and so does what runs a step: its workspace on a GPU, its scratch on the CPU.
    """
    sizes: dict[int, int] = {}
    held, alive = [], 0  # `alive` is the sum of `sizes`, which may have thousands
    for step, done in zip(steps, uses, strict=True):
        made = {i: copies[i] for i in step.inputs if copies and i in copies}
        if step.output != steps[-1].output:
            made[step.output] = math.prod(step.shape) * itemsize(step.gemm.contraction.d.dtype)
        alive += sum(made.values()) - sum(sizes.get(i, 0) for i in made)
        sizes |= made
        held.append(alive + (0 if copies is None else scratch_bytes(step)))
        alive -= sum(sizes.pop(i, 0) for i in done)
    return tuple(held)


def peak_bytes(steps: Sequence[Step], uses: Sequence[tuple[int, ...]], copies: Mapping[int, int] | None = None) -> int:
    """Most memory that intermediates hold at one time, with the arguments of `step_bytes`."""
    return max(step_bytes(steps, uses, copies), default=0)


def scratch_bytes(step: Step) -> int:
    """Memory that a step takes while it runs: workspace on a GPU, scratch of the NumPy executor on the CPU."""
    if step.schedule is not None:
        return step.schedule.workspace_bytes
    return int(getattr(step.executable, "scratch_bytes", 0))


def own_places(request: PlanRequest, steps: Sequence[Step]) -> tuple[bool, ...]:
    """For each operand, whether the result may take its place: element by element, each read where it is written.

    That holds where nothing is summed and the operand lies as the result does. Of the GPU's kernels, the
    stream kernels read all of a place before they write it.
    """
    every = tuple(range(len(request.operands)))
    if len(steps) != 1 or steps[0].inputs != every or not _reads_before_writing(steps[0].schedule, request.arch):
        return (False,) * len(request.operands)
    contraction = steps[0].gemm.contraction

    def places(operand: Operand) -> set[tuple[int, int]]:
        strides = zip(operand.modes, operand.strides, strict=True)
        return {(m, s) for m, s in strides if contraction.extents[m] != 1}

    d = contraction.d
    sides = [contraction.a] if contraction.b is None else [contraction.a, contraction.b]
    alike = [x.dtype == d.dtype and places(x) == places(d) for x in sides]
    summed = any(contraction.extents[m] != 1 for m in contraction.summed)
    return tuple(x and not summed for x in alike)


def _reads_before_writing(schedule: Schedule | None, arch: str) -> bool:
    """Whether what runs a step reads all of a place before it writes it."""
    if schedule is None:
        return arch == "cpu"
    from gett.schedule.spec.mainloop import Stream

    return isinstance(schedule.mainloop, Stream)
