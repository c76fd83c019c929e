"""What the tests of the store and of the tuner share: a GPU that runs nothing, a clock that is told the times."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import gett
import gett.api.autotune
import gett.jit.compile
import gett.plans.planner
import gett.runtime.build
import gett.runtime.compiling
import gett.schedule.search.select
import gett.tune.recall
import gett.tune.store
import gett.tune.tuner
from gett.codegen.render import render_kernel
from gett.ir.gemm import make_gemm_plan
from gett.ir.tensors import ALIGNMENT_LIMIT, TensorSpec
from gett.network.request import PlanRequest
from gett.plans.plan_cache import plan_cache
from gett.runtime.device import DeviceFacts
from gett.schedule.search.select import candidates
from gett.tune.store import Entry
from tests.cpu.helpers import contraction_of

ROOT = Path(__file__).parents[2]
FACTS = DeviceFacts(0, "Stand-in", (9, 0), "sm_90a", 132, 50 << 20, 227 << 10, 228 << 10, 1.98, 4.25, 140 << 30)
GEMM = "mk,kn->mn"


def matrix(rows, columns, dtype="float32"):
    size = np.dtype(dtype).itemsize
    return TensorSpec((rows, columns), (columns * size, size), np.dtype(dtype), ALIGNMENT_LIMIT)


def request(m=64, n=64, k=64, dtype="float32", **options):
    return PlanRequest(
        spec=GEMM, operands=(matrix(m, k, dtype), matrix(k, n, dtype)), arch="sm_90a", device=0, **options
    )


def gemm_plan(m=64, n=64, k=64, dtype="float32"):
    a, b = np.empty((m, k), dtype), np.empty((k, n), dtype)
    c = contraction_of(GEMM, a, b)
    a, b, d = (replace(t, alignment=ALIGNMENT_LIMIT) for t in (c.a, c.b, c.d))
    return make_gemm_plan(replace(c, a=a, b=b, d=d))


def new_process(monkeypatch):
    """What a second process starts with: nothing in memory."""
    monkeypatch.setattr(gett.tune.store, "_current", None)
    monkeypatch.setattr(sys.modules["gett.jit.diskcache"], "_current", None)
    plan_cache.clear()


def forbid(monkeypatch, *names):
    """Make the search, the generator and the compiler unreachable."""

    def refuse(*args, **options):
        raise AssertionError("called")

    for name in names:
        module, _, function = name.rpartition(".")
        monkeypatch.setattr(sys.modules[module], function, refuse)


def compile_by(monkeypatch, compile_kernel):
    """Have kernels compiled by a function, wherever they are."""
    for module in (gett.jit, gett.jit.compile, gett.runtime.compiling):
        monkeypatch.setattr(module, "compile_kernel", compile_kernel, raising=False)


SEARCH = (
    "gett.schedule.search.select.candidates",
    "gett.runtime.compiling.candidates",
    "gett.codegen.render.render_kernel",
    "gett.runtime.compiling.render_kernel",
    "gett.jit.compile.compile_kernel",
    "gett.runtime.compiling.compile_kernel",
)


def entry_of(plan, measured_us=None, position=0):
    schedule = candidates(plan, "sm_90a")[position]
    return Entry(schedule, render_kernel(plan, schedule), bytes(32), measured_us, 0 if measured_us is None else 5)


PLAN = (512, 512, 512, "float16")


class FakeBench:
    """Times by a function of the schedule; results by another."""

    def __init__(self, time_of, bits_of=lambda s: 0):
        self.time_of, self.bits_of = time_of, bits_of
        self.order = []

    def agreeing(self, runs):
        self.order.append("check")
        bits = [self.bits_of(run.schedule) for run in runs]
        most = max(bits, key=bits.count)
        return [i for i, b in enumerate(bits) if b == most]

    def shuffle(self):
        self.order.append("shuffle")

    def time(self, run, repeat):
        self.order.append(run.schedule)
        return self.time_of(run.schedule)
