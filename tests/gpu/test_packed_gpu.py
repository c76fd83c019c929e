"""Packed copies on the GPU: bit for bit on integers, in one piece and in many, of tensors that no tensor map moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett
from gett.schedule.search.packed import packed_schedules
from gett.schedule.search.select import tensor_map_schedules
from gett.schedule.spec.schedule import Schedule
from tests.cases import Case, Layout
from tests.gpu.support import Problem, compiles_well, device_facts, gemm_plan, needs_hopper, run_case

EXTENTS = {"b": 2, "i": 136, "j": 200, "k": 96, "c": 32}
CASES = [
    Case("out", "bikc,bjkc->bijc", EXTENTS),
    Case("in", "bkic,bkjc->bijc", EXTENTS),
    Case("turned", "bikc,bjkc->bjic", EXTENTS),
    Case("odd", "ikc,jkc->ijc", {"i": 67, "j": 45, "k": 77, "c": 24}),
    Case("one-operand", "ikc,cjk->cij", {"i": 72, "j": 88, "k": 64, "c": 16}),
    Case("result", "abcd,cbefa->fdea", {"a": 64, "b": 3, "c": 13, "d": 256, "e": 31, "f": 5}),
    Case("rows-anywhere", "ik,jk->ij", {"i": 250, "j": 131, "k": 301}),
    Case("short-rows", "abcd,ebfga->fedgc", {"a": 64, "b": 4, "c": 96, "d": 3, "e": 31, "f": 2, "g": 3}),
    Case("long-k", "abcde,edfg->fcgba", {"a": 4, "b": 8, "c": 4, "d": 64, "e": 127, "f": 31, "g": 3}),
    Case("gaps", "ikc,jkc->ijc", {"i": 40, "j": 56, "k": 64, "c": 16}, d=Layout((), (1, 2, 1))),
]
KINDS = [("float16", "ieee"), ("float32", "bf16x6"), ("float32", "tf32"), ("complex64", "bf16x6"), ("float64", "ieee")]
KINDS += [("complex128", "ieee")]  # elements of two words
TWOS = Case("twos", "bculfjiqdoamtgphreknvs,baxAwyzEicBCdjGHDgefFh->yxAvCEDHpwqBFrsnumtoGzlk",
            dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGH", 2))  # fmt: skip


def found(problem: Problem, limit: int) -> list[Schedule]:
    facts = replace(device_facts().planning, workspace_limit=limit)
    schedules = packed_schedules(gemm_plan(problem), facts, tensor_map_schedules, 1e9)
    return list({s.packing: s for s in reversed(schedules)}.values())[:6]  # one for each way to copy


@pytest.mark.parametrize(("dtype", "precision"), KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bit_for_bit(cupy: Any, case: Case, dtype: str, precision: str) -> None:
    needs_hopper()
    problem = Problem(case, dtype, precision)
    whole = found(problem, 1 << 30)
    assert whole or (case.name, precision) == ("result", "tf32")  # K of 39 suits no main loop of TF32
    for limit in (1 << 30, max((s.workspace_bytes for s in whole), default=0) // 3):
        every = found(problem, limit)
        good = [s for s in every if compiles_well(problem, s)]
        assert good or not every
        for schedule in good:
            run_case(cupy, problem, schedule, alpha=2)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_modes_of_extent_two(cupy: Any, dtype: str) -> None:
    """Tensor maps move copies of both operands, D is stored where it is."""
    needs_hopper()
    problem = Problem(TWOS, dtype, "ieee")
    schedule = found(problem, 1 << 28)[0]
    assert schedule.packing is not None
    assert schedule.packing.d is None
    run_case(cupy, problem, schedule)


def test_the_call_itself(cupy: Any) -> None:
    needs_hopper()
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, (1, 256, 256, 128)).astype("float16") for _ in range(2))
    wanted = np.einsum("bikc,bjkc->cij", a.astype("float32"), b.astype("float32"), optimize=True)
    on_gpu = cupy.asarray(a), cupy.asarray(b)
    for limit in (0, 4 << 20, None):
        plan = gett.plan("bikc,bjkc->bijc", *on_gpu, workspace_limit=limit)
        assert limit is None or plan.workspace_bytes <= limit
        for _ in range(3):
            d = cupy.full((1, 256, 256, 128), np.nan, "float16")
            gett.einsum("bikc,bjkc->bijc", *on_gpu, out=d, workspace_limit=limit)
            np.testing.assert_array_equal(cupy.asnumpy(d)[0].transpose(2, 0, 1), wanted)
