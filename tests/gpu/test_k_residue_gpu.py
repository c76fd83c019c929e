"""K residues on the GPU: exact whatever was in shared memory before, and what is no number stays in its own results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gett.ir.gemm import make_gemm_plan
from gett.runtime.build import build_executable
from tests.by_hand import by_hand
from tests.cases import ALIGNED, Case, to_host
from tests.gpu.catalogue import good, kernels, problem_of, run_spec
from tests.gpu.support import describe, device_facts, gemm_plan
from tests.specs import FAMILIES, Spec, ss_schedules

CASES = [case for case, _ in FAMILIES["k_residue"].cases]
DIRTY = Case("dirty", "mk,kn->mn", {"m": 8192, "n": 2048, "k": 256})


def chosen(case: Case) -> list[Spec]:
    return good([spec for spec in kernels("k_residue") if spec.case == case][:6])


@pytest.fixture
def dirty(cupy: Any) -> Any:
    """Fills the shared memory of all multiprocessors with what is no number; kernels do not clean up."""
    plan = make_gemm_plan(DIRTY.contraction("float16", address=ALIGNED))
    run = build_executable(plan, None, ss_schedules(plan, device_facts().planning)[0])
    a, b = (cupy.full(DIRTY.shape(x), np.nan, "float16") for x in DIRTY.labels[:2])
    d = cupy.empty(DIRTY.shape(DIRTY.labels[2]), "float16")
    return lambda: run(a, b, None, d)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_residues_are_zeros_whatever_was_there(cupy: Any, dirty: Any, case: Case) -> None:
    found = chosen(case)
    for spec in (*found, *by_hand(found[:1])):
        dirty()
        run_spec(cupy, spec)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_what_is_no_number_stays_where_it_belongs(cupy: Any, dirty: Any, case: Case) -> None:
    """An infinity in A reaches the results that depend on it and no others, whatever lies beside it in a stage."""
    for spec in chosen(case):
        a, b = case.operands(np, "float16")
        a.reshape(-1)[[0, a.size // 3, a.size - 1]] = np.inf
        b = np.abs(b) + np.float16(1)  # no 0 * Inf of its own
        hit = np.isinf(a).astype(np.float64)
        wanted = np.einsum(case.subscripts, hit, np.ones(b.shape), optimize=True) > 0
        finite = np.where(hit > 0, 0, a).astype(np.float64)
        calm = np.einsum(case.subscripts, finite, b.astype(np.float64), optimize=True)
        d, _ = case.result(cupy, "float16")
        dirty()
        run = build_executable(gemm_plan(problem_of(spec)), None, spec.schedule)
        run(cupy.asarray(a), cupy.asarray(b), None, d)
        got = to_host(d)
        assert np.isposinf(got[wanted]).all(), describe(spec.schedule)
        np.testing.assert_array_equal(got[~wanted], calm[~wanted].astype("float16"), err_msg=describe(spec.schedule))
