"""Runs of `python -m benchmarks tccg`, `random` and `workloads`: which cases, in which size, beside whom, and how long.

Owns what these commands share: a task of one run for each dtype. Knows no command line but the options that it parsed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import distribution, report, run_cpu, workloads, workloads_report
from benchmarks.cases import ELEMENT_TYPES, Case, choose, load_cases
from benchmarks.random_cases import random_cases
from benchmarks.records import Run, write_json
from benchmarks.rivals.cutensor import EMULATIONS
from benchmarks.rivals.table import ON_GPU

CUTENSOR = tuple(r for r in ON_GPU if r.startswith("cutensor:"))
RANDOM_RIVALS = (*CUTENSOR, "torch.einsum")
RANDOM_BUDGET_US = 12_000.0  # of one rival on one case: sixty cases and seven rivals take a minute at most
# Of a generated case without a GPU: `numpy.einsum` multiplies batches element by element.
CPU_ELEMENTS, CPU_VOLUME = 1 << 22, 1 << 27
WORKLOAD_ELEMENTS, WORKLOAD_VOLUME = 1 << 20, 1 << 25  # the same of a workload
ELEMENTS_A_PRODUCT = WORKLOAD_ELEMENTS / WORKLOAD_VOLUME  # for other sizes, with --gflop
WORKLOAD_BUDGET_US = 15_000.0


@dataclass(frozen=True, slots=True)
class Part:
    """The cases of one dtype, and the rivals by name; on a GPU, none means all."""

    dtype: str
    cases: tuple[Case, ...]
    rivals: list[str]


@dataclass(frozen=True, slots=True)
class Task:
    """What a command is asked for.

    Attributes:
        options: What both commands share: check, label, files, precision.
        on_gpu: Whether there is a GPU to run on.
        parts: One run each.
        scale: Share of each case's elements.
        cases: How the cases differ from the published ones, for the heading.
        budget_us: GPU time of one rival on one case.
        rounds: Without a GPU, how often each rival is timed.
        ahead: Whether kernels are compiled before.
        table: Prints the runs.
        plot: Draws runs.
    """

    options: argparse.Namespace
    on_gpu: bool
    parts: list[Part]
    scale: float
    cases: str
    budget_us: float
    rounds: int
    ahead: bool
    table: Callable[[Sequence[Run]], str]
    plot: Callable[[Sequence[Run], str | Path], None]


def prepare_tccg(options: argparse.Namespace, on_gpu: bool, dtypes: list[str], rivals: list[str]) -> Task:
    cases = load_cases(options.case, quick=options.quick)
    scale = options.scale if options.scale is not None else (1.0 if on_gpu else run_cpu.DEFAULT_SCALE)
    if options.gflop is not None:
        if options.scale is not None or options.gflop <= 0:
            raise ValueError("--gflop takes a positive number, and the place of --scale")
        limit = options.gflop * 1e9
        parts = [Part(t, tuple(c.limited(limit, ELEMENT_TYPES[t]) for c in cases), rivals) for t in dtypes]
        note = f"extents reduced to {options.gflop:g} GFLOP a case"
        return Task(options, on_gpu, parts, 1.0, note, 150_000.0, 5, False, _each(report.table), report.plot)
    if options.odd:  # after scaling, which rounds
        cases, scale = tuple(case.scaled(scale).odd() for case in cases), 1.0
    else:
        for case in cases:
            case.scaled(scale)
    note = "every extent odd" + ("" if options.scale in (None, 1) and on_gpu else ", reduced") if options.odd else ""
    return Task(
        options, on_gpu, [Part(t, cases, rivals) for t in dtypes], scale, note,
        30_000.0 if options.quick else 150_000.0, 3 if options.quick else 5, False, _each(report.table), report.plot,
    )  # fmt: skip


def prepare_random(options: argparse.Namespace, on_gpu: bool, dtypes: list[str], rivals: list[str]) -> Task:
    cases = choose(random_cases(options.count, options.seed), options.case)
    note = f"{len(cases)} generated cases, seed {options.seed}"
    if not on_gpu:
        cases = tuple(case.reduced(CPU_ELEMENTS, CPU_VOLUME) for case in cases)
        note += f", reduced to {CPU_ELEMENTS} elements and {CPU_VOLUME} products"
    return Task(
        options, on_gpu, [Part(t, cases, rivals or list(RANDOM_RIVALS)) for t in dtypes], 1.0, note,
        RANDOM_BUDGET_US, 3, True, _each(distribution.table), distribution.plot,
    )  # fmt: skip


def prepare_workloads(options: argparse.Namespace, on_gpu: bool, dtypes: list[str], rivals: list[str]) -> Task:
    fields = [f for f in options.field.split(",") if f]
    found = workloads.choose_workloads(workloads.load_workloads(), fields, options.case, large=options.large)
    volume = WORKLOAD_VOLUME
    if options.gflop is not None:
        if on_gpu or options.gflop <= 0:
            raise ValueError("--gflop takes a positive number, and needs --cpu where there is a GPU")
        volume = int(options.gflop * 1e9 / 2)
    elements = int(ELEMENTS_A_PRODUCT * volume)
    parts = []
    for dtype, cases in workloads.by_dtype(found, dtypes, on_gpu=on_gpu, precision=options.precision).items():
        if not on_gpu:
            cases = tuple(case.reduced(elements, volume) for case in cases)
        parts.append(Part(dtype, cases, rivals or workload_rivals(dtype, options.precision)))
    note = "" if on_gpu else f"reduced to {elements} elements and {volume} products"
    return Task(
        options, on_gpu, parts, 1.0, note, WORKLOAD_BUDGET_US, 3, True, workloads_report.table, workloads_report.plot
    )


def workload_rivals(dtype: str, precision: str | None) -> list[str]:
    """Who is as accurate: cuTENSOR with all ways to form such products; PyTorch, which compiles no complex numbers."""
    emulated = [e for e, dtypes in EMULATIONS.items() if dtype in dtypes and precision is None]
    compiled = [] if dtype.startswith("complex") else ["torch.compile"]
    return [*CUTENSOR, *(f"{r}/{e}" for e in emulated for r in CUTENSOR), "torch.einsum+order", *compiled, "cublas"]


def _each(table: Callable[[Run], str]) -> Callable[[Sequence[Run]], str]:
    return lambda runs: "\n\n".join(map(table, runs))


def run_task(task: Task) -> int:
    options = task.options
    check = not options.no_check
    runs: list[Run] = []
    for part in task.parts:
        if task.on_gpu:
            from benchmarks import run_gpu

            run = run_gpu.run(
                part.cases, part.dtype, precision=options.precision, rivals=part.rivals, scale=task.scale, check=check,
                label=options.label, budget_us=task.budget_us, ahead=task.ahead,
            )  # fmt: skip
        else:
            run = run_cpu.run(
                part.cases, part.dtype, scale=task.scale, check=check, label=options.label, rounds=task.rounds
            )
        if task.cases:
            run.environment["cases"] = task.cases
        runs.append(run)
        if options.json:  # after each dtype: a run that is cut short keeps what it has
            write_json(runs, options.json)
    if options.plot:
        task.plot(runs, options.plot)
    print(task.table(runs))
    return 1 if any(r.failed or r.unverified for r in runs) else 0
