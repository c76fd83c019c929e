"""What the tests on a GPU share: plans of cases, kernels compiled ahead in parallel, runs that must be exact."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from gett.codegen.render import render_kernel
from gett.errors import PoorKernelError
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.jit import compile_kernel
from gett.runtime.build import build_executable
from gett.runtime.device import device_facts
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import Multistage, Stream, StreamMatrix
from gett.schedule.spec.schedule import Schedule
from tests.cases import ALIGNED, Case, Layout, round_to, to_host
from tests.schedules import part_names, spread

# Rows of A and columns of B for `check_nans_stay`: one, or every other, so that every tile begins with one.
NANS = ((slice(17, 18), slice(16, 17)), (slice(0, None, 2), slice(0, None, 2)))
MOST_S = 60.0
"""Seconds until kernels of a plan's own are there."""


@dataclass(frozen=True)
class Problem:
    """A case in a type.

    Attributes:
        case: What is contracted.
        dtype: Of all operands.
        precision: How products are formed.
        c: Layout of the added operand, or None.
    """

    case: Case
    dtype: str
    precision: str = "ieee"
    c: Layout | None = None

    def __repr__(self) -> str:
        mark = "" if self.precision == "ieee" else f"-{self.precision}"
        return f"{self.case.name}-{self.dtype}{mark}{'-c' if self.c else ''}"


def needs_hopper() -> None:
    """Skips the test where the GPU has neither tensor maps nor wgmma."""
    if device_facts().arch != "sm_90a":
        pytest.skip("tensor maps, clusters and wgmma are Hopper's")


@cache
def gemm_plan(problem: Problem) -> GemmPlan:
    """The plan for buffers as the library allocates them."""
    return make_gemm_plan(
        problem.case.contraction(problem.dtype, precision=problem.precision, with_c=problem.c, address=ALIGNED)
    )


@cache
def schedules(problem: Problem, count: int) -> tuple[Schedule, ...]:
    """Some candidates for this GPU: the first, and others that differ from it."""
    return tuple(spread(candidates(gemm_plan(problem), device_facts().arch), count))


def compile_ahead(problems: Iterable[Problem], count: int) -> list[str]:
    """Compile what the tests of some problems will load; returns what failed, which the tests then raise again."""
    return compile_all((p, s) for p in problems for s in schedules(p, count))


def compile_all(jobs: Iterable[tuple[Problem, Schedule]]) -> list[str]:
    """Compile kernels on all processors; returns what failed."""

    def compile_one(job: tuple[Problem, Schedule]) -> str | None:
        problem, schedule = job
        try:
            kernel = render_kernel(gemm_plan(problem), schedule)
            compile_kernel(kernel.source, kernel.arch)
        except Exception as error:  # the test that needs it shows it in full
            return f"{problem}: {error}"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [x for x in pool.map(compile_one, jobs) if x is not None]


def compile_gemms(jobs: Iterable[tuple[GemmPlan, Schedule]]) -> None:
    """Compile the kernels of schedules side by side; one that fails is raised by whoever runs it."""

    def compile_one(job: tuple[GemmPlan, Schedule]) -> None:
        kernel = render_kernel(*job)
        compile_kernel(kernel.source, kernel.arch)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(compile_one, job) for job in jobs]:
            done.exception()


def compiles_well(problem: Problem, schedule: Schedule) -> bool:
    """Whether registers suffice; plans go on to the next candidate where they do not."""
    try:
        compile_kernel(render_kernel(gemm_plan(problem), schedule).source, schedule.arch)
    except PoorKernelError:
        return False
    return True


@cache
def exact_product(case: Case, kind: str) -> Any:
    """The exact product of the case's operands, for a kind of dtype; large ones are made once for several dtypes."""
    dtype = {"f": "float64", "c": "complex128", "i": "int64", "u": "uint64", "b": "bool"}[kind]
    a, b = case.operands(np, dtype)
    return case.reference(a, b, dtype)


def run_case(
    cp: Any, problem: Problem, schedule: Schedule, *, alpha: complex = 1, beta: complex = 0, in_place: bool = False
) -> None:
    """Run one schedule of a problem on small integers and compare every element; gaps of D must not be touched."""
    case, dtype = problem.case, problem.dtype
    run = build_executable(gemm_plan(problem), None, schedule)
    a, b = case.operands(cp, dtype)
    d, buffer = case.result(cp, dtype)
    wanted = alpha * exact_product(case, np.dtype(dtype).kind)
    c = None
    if problem.c is not None:
        values = case.added(np, dtype, problem.c)
        wanted = wanted + beta * values.astype(wanted.dtype)
        if in_place:
            d[...] = cp.asarray(values)
            c = d
        else:
            c = case.added(cp, dtype, problem.c)
    strides, start, _ = case.d.place(case.shape(case.labels[2]))
    dense = wanted.size == buffer.size
    before = None if dense else to_host(buffer).view(np.uint8)
    run(a, b, c, d, alpha, beta)
    got = to_host(d)
    np.testing.assert_array_equal(got, round_to(wanted, dtype), err_msg=describe(schedule))
    if before is not None:  # every byte that is no element of D keeps what it held
        after = to_host(buffer)
        inside = np.zeros(after.size, bool)
        size = after.dtype.itemsize
        lattice = np.lib.stride_tricks.as_strided(inside[start:], d.shape, strides)
        lattice[...] = True
        kept = ~np.repeat(inside, size)
        np.testing.assert_array_equal(after.view(np.uint8)[kept], before[kept], err_msg="between the elements of D")


def check_nans_stay(cp: Any, problem: Problem, schedules: Iterable[Schedule], rows: slice, columns: slice) -> None:
    """Rows of A (along i) and columns of B (along j) are NaN: those of D become so, and nothing beside them."""
    case, dtype = problem.case, problem.dtype

    def lines(labels: str, label: str, at: slice) -> tuple[slice, ...]:
        return tuple(at if x == label else slice(None) for x in labels)

    a, b = case.operands(cp, dtype)
    a[lines(case.labels[0], "i", rows)] = np.nan
    b[lines(case.labels[1], "j", columns)] = np.nan
    for s in schedules:
        d, _ = case.result(cp, dtype)
        build_executable(gemm_plan(problem), None, s)(a, b, None, d)
        bad = np.isnan(to_host(d).astype(np.float32))
        wanted = np.zeros_like(bad)
        wanted[lines(case.labels[2], "i", rows)] = True
        wanted[lines(case.labels[2], "j", columns)] = True
        np.testing.assert_array_equal(bad, wanted, err_msg=describe(s))


def describe(schedule: Schedule) -> str:
    """A schedule in one line, for messages."""
    loop = schedule.mainloop
    pipeline = f" stages {loop.stages}" if not isinstance(loop, Stream | StreamMatrix) else ""
    table = " table" if isinstance(loop, Multistage) and loop.k_table else ""
    loads = ""
    if isinstance(loop, Multistage):
        loads = "; " + ", ".join(f"{x.vector} along {x.vector_group}" for x in (loop.a, loop.b))
    return (
        f"{schedule.kind} {schedule.tiling.shape} {part_names(schedule)}{pipeline} split {schedule.split_k}{table}"
        f"{loads}; stores of {schedule.epilogue.store.vector}"
    )


def until_own(plan: Any, arrays: Any, exact: Any) -> None:
    """Call a plan until kernels of its own run; each result must be exact."""
    end = time.monotonic() + MOST_S
    while True:
        np.testing.assert_array_equal(plan(*arrays).get(), exact)
        if not plan.stands_in:
            return
        assert time.monotonic() < end
