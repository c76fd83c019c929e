"""Compiles gett's kernels before the clock runs, on all cores: a long list of cases would wait for the compiler.

The kernels reach the run through gett's own cache on disk, so what is timed afterwards is what any user gets. Knows
cases and gett, no device.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

from benchmarks.cases import Case
from gett.console.progress import progress
from gett.hw.archs import ArchFacts


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to compile: a case of C-contiguous, aligned operands.

    `facts` are the fields of `ArchFacts`, whose read-only tables do not travel to another process.
    """

    case: Case
    dtype: str
    precision: str | None
    facts: dict[str, Any]


def make_job(case: Case, dtype: str, precision: str | None, facts: ArchFacts) -> Job:
    """The job of compiling a case for a GPU."""
    values = {f.name: getattr(facts, f.name) for f in fields(facts)}
    return Job(case, dtype, precision, {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()})


def compile_case(job: Job) -> str:
    """Compile what a call would compile; the name of the main loop that was chosen.

    Raises:
        GettError: The case cannot be planned or no kernel of it compiles well.
    """
    import gett
    from gett.jit.compile import compile_uncached
    from gett.runtime.compiling import compile_best

    facts = ArchFacts(**job.facts)
    shape_a, shape_b, _ = job.case.shapes
    pairs = ((shape_a, job.dtype), (shape_b, job.dtype))
    plan = gett.plan(job.case.einsum, *pairs, precision=job.precision, arch=facts.arch)
    return compile_best(plan.steps[0].gemm, facts.arch, facts, compiler=compile_uncached).schedule.kind


@contextlib.contextmanager
def _dropped_on_interrupt(pool: ProcessPoolExecutor) -> Iterator[None]:
    """All jobs are given up when an interrupt ends the block: waiting for them would take minutes.

    The pool's own thread is waited for, which sees that the children are gone: at the interpreter's end it may close a
    pipe that is about to be written to.
    """
    try:
        yield
    except KeyboardInterrupt:
        for child in multiprocessing.active_children():
            child.terminate()
        pool.shutdown(cancel_futures=True)
        raise


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal; those that are started here leave it to this one."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def compile_ahead(cases: Sequence[Case], dtype: str, precision: str | None, facts: ArchFacts) -> int:
    """Compile the kernels of all cases in processes of their own; the number that were compiled.

    A case that fails is left to the run, which tells what is wrong with it. Without a cache on disk nothing is done.
    """
    from gett.jit import kernel_cache

    cache = kernel_cache()
    if cache.directory is None or cache.distrust:
        return 0
    jobs = [make_job(case, dtype, precision, facts) for case in cases]
    workers = max(1, min(len(jobs), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))
    done = 0
    # A forked child of a process that has used the GPU must not touch it, so children start afresh.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    with pool, _dropped_on_interrupt(pool), progress(len(jobs), "compile") as step:
        with _interrupts_ignored():  # which the children inherit
            futures = [(job, pool.submit(compile_case, job)) for job in jobs]
        for job, future in futures:
            with contextlib.suppress(Exception):
                future.result()
                done += 1
            step(job.case.name)
    return done
