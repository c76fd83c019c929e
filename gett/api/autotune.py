"""`gett.autotune`: measure the kernels of a contraction on the GPU at hand, and remember the fastest.

Owns the public function and the table of what it found. Which schedules are tried and how they are timed is
`gett.tune`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gett.api.plan import plan
from gett.console.formatting import brief, format_table, printable
from gett.console.progress import progress as bar
from gett.errors import OptionError
from gett.ir.subscripts import split_arguments
from gett.ir.tensors import Casting
from gett.network.optimize import asks_autotune
from gett.network.steps import Step
from gett.plans.checks import is_integer
from gett.plans.executables import drop_plans
from gett.runtime.device import device_facts, require_cupy
from gett.schedule.spec.mainloop import Stream, StreamMatrix, WgmmaSS
from gett.tune.tuner import CANDIDATES, REPEAT, Trial, Tuning, steps_of, tune
from gett.typing import DType, Optimize, Order, Precision


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TuneResult:
    """What `autotune` found; its text is a table.

    Attributes:
        subscripts: The explicit form.
        arch: What was tuned for, `"cpu"` where there was nothing to tune.
        names: Subscripts of each step.
        steps: What was found for each step, in the order of the steps; empty on the CPU. Steps that are alike share
            one.
        route: On the CPU, what the NumPy executor makes of each step.
    """

    subscripts: str
    arch: str
    names: tuple[str, ...]
    steps: tuple[Tuning, ...]
    route: tuple[str, ...] = ()

    @property
    def measured_us(self) -> float | None:
        """Sum over the steps of the fastest kernel's time, in microseconds; None on the CPU."""
        times = [s.best.measured_us for s in self.steps if s.best is not None and s.best.measured_us is not None]
        return sum(times) if times else None

    def __repr__(self) -> str:
        """For each step the schedules tried, fastest first, with the model's estimate and the measured time."""
        if not self.steps:
            lines = [f"  {name}: {route}" for name, route in zip(self.names, self.route, strict=False)]
            return printable("\n".join([f"{self.subscripts} on {self.arch}: nothing to tune, NumPy runs it", *lines]))
        total = "nothing was measured" if self.measured_us is None else f"{self.measured_us:.1f} us of kernels"
        sections = [f"{self.subscripts} on {self.arch}: {total}"]
        for name, step in zip(self.names, self.steps, strict=True):
            rows = [_row(trial, trial is step.chosen) for trial in step.trials]
            header = ["kernel", "tile", "detail", "model us", "measured us", ""]
            table = format_table(header, rows, left=3)
            head = f"{name}: {step.gain:.2f} times as fast as the model's choice"
            sections.append("\n".join([head, *("  " + x for x in table)]))
        return printable("\n\n".join(sections))


def _row(trial: Trial, chosen: bool) -> list[str]:
    s = trial.schedule
    loop = s.mainloop
    if isinstance(loop, Stream | StreamMatrix):
        tile, detail = f"{s.tiling.m.size} outputs", [f"{loop.threads} threads"]
    else:
        tile, detail = " x ".join(map(str, s.tiling.shape)), [f"{loop.stages} stages"]
    if s.split_k > 1:
        detail.append(f"split-K {s.split_k}")
    if s.scheduler.stream_k:
        detail.append("stream-K")
    if isinstance(loop, WgmmaSS) and loop.ping_pong:
        detail.append("ping-pong")
    time = "-" if trial.measured_us is None else f"{trial.measured_us:.1f}"
    note = "the model's choice" if chosen else trial.note[:60]
    return [s.kind, tile, ", ".join(detail), f"{s.forecast.us:.1f}", time, note]


def autotune(
    subscripts: Any,
    /,
    *operands: Any,
    candidates: int = CANDIDATES,
    repeat: int = REPEAT,
    precision: Precision | None = None,
    progress: bool = True,
    out: Any = None,
    dtype: DType = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    optimize: Optimize = True,
    conj: Sequence[bool] | None = None,
) -> TuneResult:
    """Measure the model's best kernels for a contraction and remember the fastest, in this process and on disk.

    Later calls of `einsum`, `contract` and `plan` for the same shapes, strides, dtypes and alignment on this kind of
    GPU use it; plans that you already hold do not change. `optimize="autotune"` in those calls does the same at the
    first call, unless it was done before. Each step of a network is tuned by itself.

    The operands are only looked at: kernels run on scratch tensors of the same layout, with random values, rotated
    beyond the L2 cache where they are small. Kernels that disagree with the others on integers are dropped with a
    `TuneWarning`. On NumPy arrays nothing is done, and the result says how NumPy runs the contraction.

    Args:
        subscripts: As for `einsum`.
        operands: Arrays on a GPU, or `(shape, dtype)` pairs, which are tuned for the current GPU.
        candidates: How many kernels are compiled and measured for each step.
        repeat: Most repetitions of each.
        precision: As for `einsum`.
        progress: Whether a bar is shown on stderr (if tqdm is installed).
        out: Array or pair that stands for the `out` of calls.
        dtype: As for `einsum`.
        order: As for `einsum`.
        casting: As for `einsum`.
        optimize: As for `einsum`.
        conj: As for `einsum`.

    Returns:
        The candidates of each step with the model's estimate and the measured time; print it.

    Raises:
        MissingPackageError, DeviceError: Pairs were given, and there is no GPU.
        OutOfMemoryError: The GPU has no room for a second copy of the tensors.
        GettError: As `plan`; OptionError for `candidates` or `repeat` below 1.
    """
    for name, value in (("candidates", candidates), ("repeat", repeat)):
        if not is_integer(value) or value < 1:
            raise OptionError(f"{name}={brief(value)}; it must be an integer of at least 1")
    _, found = split_arguments(subscripts, operands)
    # Shapes alone say nothing of a device; arrays do.
    arch = device_facts().arch if found and all(isinstance(x, tuple) for x in found) else None
    if asks_autotune(optimize):  # what this function does anyway
        optimize = True
    made = plan(
        subscripts, *operands, out=out, dtype=dtype, order=order, casting=casting, optimize=optimize,
        precision=precision, arch=arch, conj=conj,
    )  # fmt: skip
    made.take_own()  # what is compiled in the background would disturb the clock
    names = tuple(s.name for s in made.steps)
    if made.arch == "cpu":
        routes = tuple(str(getattr(s.executable, "route", "")) for s in made.steps)
        return TuneResult(made.subscripts, "cpu", names, (), routes)
    plans = {s.gemm.signature: s.gemm for s in made.steps}
    tunings: dict[str, Tuning] = {}
    with _device(made.steps), bar(len(plans) * steps_of(candidates), "autotune", progress) as step:
        for key, gemm in plans.items():
            tunings[key] = tune(gemm, candidates=candidates, repeat=repeat, step=step)
    drop_plans(plans, tuned=True)
    return TuneResult(made.subscripts, made.arch, names, tuple(tunings[s.gemm.signature] for s in made.steps))


def _device(steps: Sequence[Step]) -> AbstractContextManager[Any]:
    """Makes the device current that the steps were built for; the current one stays where they were not."""
    device = next((d for s in steps if (d := getattr(s.executable, "device", None)) is not None), None)
    context: AbstractContextManager[Any] = nullcontext() if device is None else require_cupy().cuda.Device(device)
    return context
