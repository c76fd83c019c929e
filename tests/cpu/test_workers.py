"""Compilers in processes of their own: the same kernels and the same errors, and no harm where a process is lost."""

from __future__ import annotations

import sys
import threading

import pytest

import gett.runtime.compiled
from gett.errors import CompileError, PoorKernelError
from gett.jit import workers as module
from gett.jit.compile import compile_uncached
from gett.jit.workers import WORTH, Workers, workers
from gett.runtime.compiled import side_by_side

GOOD = 'extern "C" __global__ void double_it(float* x) { x[threadIdx.x] *= 2; }'
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y) {
    float held[256];
    for (int i = 0; i < 256; ++i) held[i] = x[threadIdx.x * 256 + i];
    for (int r = 0; r < 256; ++r) for (int i = 0; i < 256; ++i) held[i] = held[(i + r) & 255] * held[i] + 1;
    for (int i = 0; i < 256; ++i) y[threadIdx.x * 256 + i] = held[i];
}
"""


def test_a_process_compiles_what_this_one_does():
    with workers(2) as made:
        first = made.compile(GOOD, "sm_90a", name="double_it")
        with pytest.raises(CompileError, match="kernel 'broken' does not compile"):
            made.compile("this is no C++", "sm_90a", name="broken")
        with pytest.raises(PoorKernelError, match="kernel 'spills' compiles badly"):
            made.compile(SPILLS, "sm_90a", name="spills")
        assert made.compile(SPILLS, "sm_90a", name="spills", allow_spills=True).cubin
        processes = made._started
        assert all(p.poll() is None for p in processes)  # errors end no process
    assert len(processes) == 2
    assert all(p.poll() is not None for p in processes)
    assert first.cubin == compile_uncached(GOOD, "sm_90a", name="double_it").cubin


def test_the_work_of_a_lost_process_is_done_here():
    with workers(1) as made:
        made._started[0].kill()
        made._started[0].wait()
        for _ in range(2):
            assert made.compile(GOOD, "sm_90a").cubin == compile_uncached(GOOD, "sm_90a").cubin


@pytest.mark.parametrize("executable", ["", "/no/such/python"])
def test_without_processes_all_is_done_here(monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    with workers(3) as made:
        assert made._started == []
        assert made.compile(GOOD, "sm_90a").cubin


def test_processes_work_at_the_same_time(monkeypatch):
    """Two tasks wait for each other while both are under way."""
    together = threading.Barrier(2, timeout=30)
    ask = module._ask

    def both(process, task):
        together.wait()
        return ask(process, task)

    monkeypatch.setattr(module, "_ask", both)
    with workers(2) as made:
        results = []
        threads = [threading.Thread(target=lambda: results.append(made.compile(GOOD, "sm_90a").cubin)) for _ in "ab"]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(results) == 2


@pytest.mark.parametrize(("count", "expected"), [(WORTH - 1, False), (WORTH, True)])
def test_many_tasks_get_processes(monkeypatch, count, expected):
    monkeypatch.setattr(gett.runtime.compiled.os, "cpu_count", lambda: 2)
    seen = []

    def make(task, compiler):
        seen.append(compiler is not None and isinstance(compiler.__self__, Workers))
        return task

    done = []
    assert side_by_side(make, range(count), done.append) == [*range(count)]
    assert seen == [expected] * count
    assert len(done) == count
