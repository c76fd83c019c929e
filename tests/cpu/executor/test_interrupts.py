"""Ctrl-C ends any call on the CPU at the next piece of work, on every thread, whatever the route."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gett.arrays import kinds
from gett.arrays.kinds import NUMPY
from gett.cpu import tiles
from gett.cpu.threads import parallel, pieces
from gett.cpu.tiles import Part, Tiles

ROOT = Path(__file__).parents[3]
#: Seconds from the signal to the end of the process. Half a second is what users get, the rest is for busy machines.
LIMIT = 3.0

#: Each would take ten seconds to years. Views with overlapping elements hold no memory, zeros only what is written.
ROUTES = {
    "one BLAS call": 'run("ij,jk->ik", zeros("f4", 14000, 14000), zeros("f4", 14000, 14000))',
    "one BLAS call, transposed": 'run("ij,jk->ki", zeros("f8", 10000, 10000), zeros("f8", 10000, 10000))',
    "one BLAS call, long K": 'run("ik,jk->ij", zeros("f8", 2000, 200000), zeros("f8", 2000, 200000))',
    "matrices and vectors": 'run("zij,zj->zi", stack("f8", 10**9, 40, 40), lines("f8", 10**9, 40))',
    "batched BLAS": 'run("zij,zjk->zik", stack("f8", 10**9, 40, 40), stack("f8", 10**9, 40, 40))',
    "batched BLAS, middling": 'run("zij,zjk->zik", stack("f8", 10**6, 300, 300), stack("f8", 10**6, 300, 300))',
    "packed boxes": 'run("dbea,ec->abcd", lines("f4", 200, 100, 300, 240), zeros("f4", 300, 2000))',
    "integers": 'run("ij,jk->ik", zeros("i8", 8000, 8000), zeros("i8", 8000, 8000))',
    "small integers": 'run("ij,jk->ik", lines("i4", 10**6, 10**6), lines("i4", 10**6, 4))',
    "float16": 'run("ij,jk->ik", zeros("f2", 20000, 20000), zeros("f2", 20000, 20000))',
    "long double": 'run("ij,jk->ik", zeros("g", 4000, 4000), zeros("g", 4000, 4000))',
    "sums before products": 'run("iaj,ask->ik", lines("f8", 100, 100, 10**9), lines("f8", 100, 10**6, 100))',
    "element-wise": 'run("ij,ij->ij", lines("f8", 10**6, 10**6), lines("f8", 10**6, 10**6))',
    "element-wise, turned": 'run("ij,ji->ij", lines("f8", 10**6, 10**6), lines("f8", 10**6, 10**6))',
    "dot product": 'run("ij,ij->", lines("f8", 10**6, 10**6), lines("f8", 10**6, 10**6))',
    "dot product, turned": 'run("ij,ji->", lines("f2", 10**6, 10**6), lines("f2", 10**6, 10**6))',
    "two sums": 'run("i,j->", lines("f8", 10**6), lines("f8", 10**6))',
    "sum": 'run("ijk->", lines("f8", 10**4, 10**4, 10**4))',
    "sum of rows": 'run("ij->i", lines("f4", 10**6, 10**7))',
    "sum of columns": 'run("ij->j", lines("f2", 10**7, 10**6))',
    "sum of integers": 'run("ij->j", lines("i1", 10**9, 40))',
    "copy": 'run("ij->ij", lines("f8", 10**6, 10**6))',
    "permutation": 'run("ijk->kji", lines("f8", 10**4, 10**4, 10**4))',
    "broadcast": 'run("ij->ij", np.broadcast_to(np.float32(1), (10**6, 10**6)))',
    "scaled and added": 'run("ij->ji", lines("f8", 10**6, 10**6), alpha=2, with_c=True)',
}

SCRIPT = """
import sys, time
import numpy as np
from numpy.lib.stride_tricks import as_strided
import gett.cpu.executable
from gett.ir.gemm import make_gemm_plan
from tests.cpu.helpers import contraction_of

def zeros(dtype, *shape):
    return np.zeros(shape, dtype)

def lines(dtype, *shape):
    # Neighbours along every axis are neighbours in memory.
    return as_strided(np.zeros(sum(shape), dtype), shape, (np.dtype(dtype).itemsize,) * len(shape))

def stack(dtype, count, rows, columns):
    # Matrices as BLAS reads them, each one element after the one before.
    item = np.dtype(dtype).itemsize
    memory = np.zeros(count + rows * columns, dtype)
    return as_strided(memory, (count, rows, columns), (item, columns * item, item))

def run(subscripts, a, b=None, alpha=1, with_c=False):
    extents = {}
    for labels, array in zip(subscripts.split("->")[0].split(","), (a, b)):
        extents.update(zip(labels, array.shape))
    shape = [extents[x] for x in subscripts.split("->")[1]]
    if np.prod([1.0, *shape]) < 1e9:
        d = np.zeros(shape, a.dtype)
    else:
        d = stack(a.dtype, *shape) if subscripts.endswith("->zik") else lines(a.dtype, *shape)
    plan = make_gemm_plan(contraction_of(subscripts, a, b, d if with_c else None, d))
    call = gett.cpu.NumpyExecutable(plan, THREADS)
    print(call.explain, flush=True)
    call(a, b, d if with_c else None, d, alpha, 3 if with_c else 0)
    print("came to its end", flush=True)

try:
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


#: Of programs of pieces and of moves one each, which the quick tests run.
PROGRAMS = ("packed boxes", "permutation")


def routes() -> list[Any]:
    """Every route on two threads, one of each program on one."""
    alone = ("one BLAS call", "packed boxes", "dot product", "copy")
    every = [*((route, 2) for route in ROUTES), *((route, 1) for route in alone)]
    return [x if x in [(p, 2) for p in PROGRAMS] else pytest.param(*x, marks=pytest.mark.slow) for x in every]


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(("route", "threads"), routes())
def test_an_interrupt_ends_every_route(route: str, threads: int) -> None:
    script = SCRIPT.replace("CALL", ROUTES[route]).replace("THREADS", str(threads))
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        start = time.perf_counter()
        said, errors = process.communicate(timeout=60)
        taken = time.perf_counter() - start
    finally:
        process.kill()
        process.wait()
    assert said == "interrupted\n", f"{told}{said}{errors}"
    assert taken < LIMIT, told


def test_a_failure_ends_the_work_of_all_threads() -> None:
    """In the loops within a tile too: a tile may take long."""
    begun, seen = threading.Barrier(2), []

    def work(parts: Iterator[Part]) -> None:
        for part in parts:
            begun.wait(10)
            if part[0].start == 0:
                raise OSError("the first")
            for inner in pieces(Tiles((10**6,), (1,))):
                seen.append(inner)
                time.sleep(1e-3)

    start = time.perf_counter()
    with pytest.raises(OSError, match="the first"):
        parallel(Tiles((2,), (1,)), work, 2)
    assert time.perf_counter() - start < 10
    assert len(seen) < 10**4
    assert list(pieces(Tiles((2,), (1,)))) == [(slice(0, 1),), (slice(1, 2),)]  # the failure is over


def test_no_thread_is_at_work_after_an_interrupt_of_the_wait() -> None:
    """The caller has no tile left and waits for another thread when the interrupt comes."""
    caller, started, at_work = threading.get_ident(), threading.Event(), [0]

    def work(parts: Iterator[Part]) -> None:
        at_work[0] += 1
        for _ in parts:
            if threading.get_ident() == caller:
                started.wait(10)
                continue
            started.set()
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            for _ in pieces(Tiles((10**6,), (1,))):
                time.sleep(1e-3)
        at_work[0] -= 1

    def counted(parts: Iterator[Part]) -> None:
        try:
            work(parts)
        except BaseException:
            at_work[0] -= 1
            raise

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        parallel(Tiles((2,), (1,)), counted, 2)
    assert time.perf_counter() - start < 10
    assert at_work == [0]


def test_every_tile_is_worked_on_once() -> None:
    for threads, count in itertools.product((1, 2, 5), (0, 1, 2, 7, 100)):
        seen: list[Part] = []
        parallel(Tiles((count, 3), (1, 2)), seen.extend, threads)
        assert sorted(seen, key=str) == sorted(Tiles((count, 3), (1, 2)).parts(), key=str)


def test_large_copies_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    copyto = np.copyto

    def spy(target: np.ndarray, source: np.ndarray, **options: Any) -> None:
        sizes.append(target.size)
        copyto(target, source, **options)

    monkeypatch.setattr(np, "copyto", spy)
    monkeypatch.setattr(tiles, "CALL", 1000)
    monkeypatch.setattr(kinds, "_SMALL_COPY", 1000)
    for source in (np.arange(5000), np.arange(6000).reshape(2, 3000), np.arange(4800).reshape(40, 120).T):
        target = np.empty(source.shape, "float32")
        sizes.clear()
        NUMPY.copy(target, source)
        np.testing.assert_array_equal(target, source)
        assert max(sizes) <= 1000
    target = np.empty((60, 70))
    NUMPY.copy(target, np.arange(70))
    np.testing.assert_array_equal(target, np.broadcast_to(np.arange(70), (60, 70)))
