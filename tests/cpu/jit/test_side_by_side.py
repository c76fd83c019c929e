"""Many kernels compiled side by side: their order, equal ones, errors."""

from __future__ import annotations

import threading
from functools import partial

import pytest

import gett
import gett.jit.compile
import gett.runtime.compiling
from gett.console.progress import progress
from gett.errors import CompileError
from gett.jit.workers import side_by_side
from tests.cpu.tuning import compile_by


@pytest.mark.parametrize("size", [None, lambda task: task % 4])
def test_the_largest_begin_and_results_are_in_order(size, monkeypatch):
    monkeypatch.setattr(gett.runtime.compiling.os, "cpu_count", lambda: 1)
    begun = []

    def begin(task):
        begun.append(task)
        return lambda compiler: -task

    assert side_by_side(begin, range(6), lambda text: None, size) == [0, -1, -2, -3, -4, -5]
    assert begun == ([0, 1, 2, 3, 4, 5] if size is None else [3, 2, 1, 5, 0, 4])


def test_steps_that_are_alike_are_compiled_once_and_others_side_by_side(fake_gpu, monkeypatch):
    """Two compilers wait for each other here, so one after the other would never end."""
    real, together = gett.jit.compile.compile_kernel, threading.Barrier(2, timeout=30)

    def compile_kernel(source, arch, **options):
        together.wait()
        return real(source, arch, **options)

    compile_by(monkeypatch, compile_kernel)
    monkeypatch.setattr(gett.runtime.compiling.os, "cpu_count", lambda: 2)
    pairs = [((n, m), "float32") for n, m in ((64, 64), (64, 48), (48, 32), (32, 16), (16, 8))]
    plan = gett.plan("ab,bc,cd,de,ef->af", *pairs, optimize=False, arch="sm_90a")
    bound = gett.plans.executables.bind_steps(plan.steps * 2, "sm_90a", False)
    assert len(bound) == 8
    assert len(fake_gpu.compiled) == len({s.gemm.signature for s in plan.steps}) == 4
    assert len({id(s.executable) for s in bound}) == 8


def test_the_first_error_ends_it_and_nothing_new_begins(monkeypatch):
    monkeypatch.setattr(gett.runtime.compiling.os, "cpu_count", lambda: 1)
    begun = []

    def begin(task):
        return partial(make, task)

    def make(task, compiler):
        begun.append(task)
        raise CompileError(f"task {task}")

    with progress(5, "test", False) as step, pytest.raises(CompileError, match="task 0"):
        side_by_side(begin, range(5), step)
    assert len(begun) < 5
