"""`python -m benchmarks refit`: the numbers of the Hopper main loops, fitted to stored times of schedules; no GPU.

What counts is the choice. For each contraction the model's forecasts weigh the schedules that were timed, the lowest
most; the loss is how much longer these take than the best one, and a little of how far forecasts are from times. One
number after the other is changed by a share as long as that lowers the loss. Numbers that a main loop does not have
(the record's defaults) are left out. Owns the fit; the formula is `gett.schedule.cost.hopper`'s.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.device_record import field_at, with_field, write_record
from benchmarks.forecast import LOOPS, Forecaster, Parts, tile_of
from benchmarks.regret import STORED
from benchmarks.schedule_times import Problem, read
from gett.codec import decode
from gett.console.progress import progress
from gett.hw.archs import ArchFacts, arch_facts
from gett.hw.device import DeviceModel, measured
from gett.ir.gemm import GemmPlan
from gett.ir.packing import count_pieces
from gett.schedule.cost.multistage import MultistageCost
from gett.schedule.mainloops.multistage import smem
from gett.schedule.packed import plans_of, product_of
from gett.schedule.search.packed import copies_us
from gett.schedule.search.stream import stream_schedule
from gett.schedule.spec.mainloop import Multistage
from gett.schedule.spec.schedule import OneTile, Schedule

ARCH = "sm_90a"
SHARP = 0.015  # of a forecast: as far apart two schedules are told from each other
FAR = 0.1  # weight of how far forecasts are from times
MOST = 1.0  # a schedule that takes twice the best's time is as bad as any
WITHIN = 3.0  # times what it was, or its part: further no number goes
FASTEST = 1.1  # of a unit's nominal rate: clocks may be above the nominal one, but not by more
FACTOR, SHARE = 0.02, 0.2  # first changes of factors, and of clocks, bytes and shares
FACTORS = ("products", "port", "waits", "two_stages", "cluster_n", "cluster_m", "each_panel", "one_panel",
           "stream_k")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timed:
    """A schedule that was timed, and what its forecast is made of.

    Attributes:
        us: Its time.
        fixed_us: What no fitted number changes: all of it for streams, copies of a packed schedule, launches.
        pieces: How often its product runs.
        parts: Of a Hopper main loop's forecast.
        factor: Of a multistage main loop, its field of `MultistageFactors`, which multiplies `product_us`.
        product_us: Of a multistage main loop, all but launches, without that factor.
    """

    us: float
    fixed_us: float = 0.0
    pieces: int = 1
    parts: Parts | None = None
    factor: str = ""
    product_us: float = 0.0

    def forecast(self, device: DeviceModel) -> float:
        """Microseconds by a device's record."""
        if self.parts is not None:
            return self.fixed_us + self.pieces * Forecaster.of_parts(self.parts, device.hopper)
        factor: float = getattr(device.multistage.factors, self.factor) if self.factor else 0.0
        return self.fixed_us + self.product_us * factor


@dataclass(frozen=True, slots=True)
class Case:
    """The timed schedules of a contraction.

    Attributes:
        kind: Element type, and the precision where it is not the default.
        timed: The schedules.
        own: Whether the times are those of the device whose record is fitted; else only their order counts.
    """

    kind: str
    timed: tuple[Timed, ...]
    own: bool = True


def timed_schedule(plan: GemmPlan, schedule: Schedule, us: float, facts: ArchFacts) -> Timed:
    """What the forecast of a schedule is made of."""
    fixed_us, pieces = 0.0, 1
    if schedule.packing is not None:
        made, c, cuts = plans_of(plan, schedule.packing), plan.contraction, schedule.packing.cuts
        copies = {tensor.name: stream_schedule(tensor.plan, facts) for tensor in made.tensors}
        fixed_us, pieces = copies_us(c, cuts, copies, facts), count_pieces(c, cuts)
        plan, schedule = made.product, product_of(schedule)
    if type(schedule.mainloop) in LOOPS:
        return Timed(us, fixed_us, pieces, Forecaster(plan, facts).parts(schedule, tile_of(schedule, plan)))
    if isinstance(loop := schedule.mainloop, Multistage):
        cost = MultistageCost(plan, facts, tensor_cores=loop.tensor_cores)
        name = MultistageCost.factor_name(loop)
        launch_us = cost.device.launches.launch_us
        product_us = (cost.estimate(unsplit(plan, schedule)).us - launch_us) / getattr(cost.factors, name)
        return Timed(us, fixed_us + pieces * launch_us, pieces, factor=name, product_us=pieces * product_us)
    return Timed(us, schedule.forecast.us)


def unsplit(plan: GemmPlan, s: Schedule) -> Schedule:
    """A multistage schedule without its split of K, as estimates take it."""
    made = replace(s, scheduler=OneTile(s.scheduler.group_m), workspace_bytes=0)
    return replace(made, smem=smem(made, plan))


def record_of(path: Path) -> DeviceModel:
    """The record of the GPU that a file's times are of.

    Raises:
        ValueError: There is none.
    """
    name = read(path)["device"]
    for model in measured():
        if model.name == name:
            return model
    raise ValueError(f"{path.name}: there is no record of {name}")


def load(path: Path, device: str, every: int = 1) -> list[Case]:
    """The contractions of a file of times, or every so-manieth; `device` is the one whose record is fitted."""
    facts, found, stored = arch_facts(ARCH), [], read(path)
    for case in stored["cases"][::every]:
        if len(case.get("schedules", ())) > 1:
            problem = Problem.of(case)
            plan = problem.gemm(ARCH)
            timed = [timed_schedule(plan, decode(Schedule, x["schedule"]), x["us"], facts) for x in case["schedules"]]
            found.append(Case(case["kind"], tuple(timed), stored["device"] == device))
    return found


def numbers(device: DeviceModel) -> list[str]:
    """Paths of the numbers that are fitted."""
    loops = [f"hopper.loops.{x.name}" for x in fields(device.hopper.loops)]
    found = []
    for path in (*loops, "hopper.tiles", "hopper.threads"):
        record = field_at(device, path)
        found += [f"{path}.{f.name}" for f in fields(record) if getattr(record, f.name) != f.default]
    found.append("hopper.stream_k")
    return [*found, *(f"multistage.factors.{x}" for x in ("tensor_cores", "elements", "multiply_adds"))]


def losses(cases: Sequence[Case], device: DeviceModel) -> Iterator[tuple[str, float, float]]:
    """Of each contraction its element type, its loss, and the regret of the choice."""
    for case in cases:
        forecasts, times = [x.forecast(device) for x in case.timed], [x.us for x in case.timed]
        best, least = min(times), min(forecasts)
        weights = [math.exp(-math.log(x / least) / SHARP) for x in forecasts]
        late = sum(w * min(us / best - 1.0, MOST) for w, us in zip(weights, times, strict=True)) / sum(weights)
        late += MOST * sum(map(math.isinf, forecasts))  # a schedule that was timed has a time
        regret = times[forecasts.index(least)] / best
        far = min(MOST, abs(math.log(forecasts[times.index(best)] / best))) if case.own else 0.0
        yield case.kind, late + 0.5 * (regret - 1.0) + FAR * far, regret


def loss(cases: Sequence[Case], device: DeviceModel) -> tuple[float, int]:
    """The sum of the losses of some contractions, and how many there are."""
    return sum(x for _, x, _ in losses(cases, device)), len(cases)


_CASES: list[Case] = []  # of a process that was forked


def _part(wanted: tuple[int, int, DeviceModel]) -> float:
    first, step, device = wanted
    return loss(_CASES[first::step], device)[0]


def fit(cases: Sequence[Case], model: DeviceModel, passes: int = 4, processes: int | None = None) -> DeviceModel:
    """The model with numbers of less loss; each pass goes through all of them."""
    global _CASES
    _CASES = list(cases)
    count = processes or os.cpu_count() or 1
    changes = {path: FACTOR if path.split(".")[-1] in FACTORS else SHARE for path in numbers(model)}
    with get_context("fork").Pool(count) as pool, progress(passes * len(changes), "numbers") as step:

        def total(model: DeviceModel) -> float:
            return sum(pool.map(_part, [(i, count, model) for i in range(count)], chunksize=1))

        def near(other: DeviceModel, path: str) -> bool:
            value = field_at(other, path)
            most = FASTEST if path.endswith((".products", ".port")) else math.inf
            return value <= most and 1.0 / WITHIN <= value / field_at(start, path) <= WITHIN

        best, start = total(model), model
        for _ in range(passes):
            for path, change in changes.items():
                before = model
                for factor in (1.0 + change, 1.0 / (1.0 + change)):
                    while near(other := _changed(model, path, factor), path) and (now := total(other)) < best - 1e-4:
                        best, model = now, other
                    if model is not before:
                        break
                changes[path] = change if model is not before else change / 2
                step(path)
    return model


def _changed(model: DeviceModel, path: str, factor: float) -> DeviceModel:
    value = field_at(model, path)
    made = round(value * factor) if isinstance(value, int) else float(f"{value * factor:.3g}")
    changed: DeviceModel = with_field(model, path, made)
    return changed


def main(paths: Sequence[Path] = STORED, passes: int = 4, every: int = 1, record: str | None = None) -> int:
    """Fit the record that forecasts go by; print what changed, and write the record where one is asked."""
    device = record_of(paths[0])
    cases = [case for path in paths for case in load(path, device.name, every)]
    fitted = fit(cases, device, passes)
    for name in numbers(device):
        old, new = field_at(device, name), field_at(fitted, name)
        if new != old:
            print(f"{name}: {old} -> {new}")
    for model, said in ((device, "before"), (fitted, "after")):
        total, count = loss(cases, model)
        print(f"loss of {count} contractions {said}: {total / max(1, count):.4f}")
    if record is not None:
        files = " ".join(path.name for path in paths)
        write_record(fitted, [f"Numbers of main loops: `python -m benchmarks refit {files}`."], record)
    return 0
