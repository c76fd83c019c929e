"""Orders of copies and of batches in multistage kernels, run whole on the host: small integers bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gett.ir.gemm import make_gemm_plan
from tests.access_orders import (
    BATCHES,
    MEMORY,
    PADDED,
    RAGGED,
    WIDE,
    Asked,
    Case,
    batches_differ,
    from_row_to_row,
    in_memory_order,
    schedules,
)
from tests.cpu.helpers import contraction_of
from tests.cpu.host_blocks import run_kernel
from tests.cpu.strategies import values

RNG = np.random.default_rng(5)
CASES: list[tuple[Case, str, Asked]] = [
    (BATCHES, "float64", batches_differ),
    (BATCHES, "complex128", from_row_to_row),
    (WIDE, "complex64", batches_differ),
    (MEMORY, "float32", in_memory_order),
    (RAGGED, "float32", in_memory_order),
    (MEMORY, "complex64", from_row_to_row),
]


@pytest.mark.parametrize(("case", "dtype", "asked"), CASES, ids=lambda x: x[0] if isinstance(x, tuple) else None)
def test_kernels_in_each_order(case: Case, dtype: str, asked: Asked, tmp_path: Path) -> None:
    _, subscripts, shape_a, shape_b = case
    arrays = [values(RNG, shape, np.dtype(dtype), 4) for shape in (shape_a, shape_b)]
    plan = make_gemm_plan(contraction_of(subscripts, *arrays))
    schedule = next(schedules(plan, asked, "sm_90a"))
    want = np.einsum(subscripts, *arrays).astype(dtype)
    d = np.full(want.shape, 77, want.dtype)
    run_kernel(tmp_path, plan, schedule, dict(zip("ba" if plan.swapped else "ab", arrays, strict=True)), d)
    np.testing.assert_array_equal(d, want, str(schedule.mainloop))


def test_what_an_order_leaves_out_of_a_ragged_k_is_zero(tmp_path: Path) -> None:
    """On multiply-adds, which the host runs; they add up what tensor cores would. Shared memory holds NaN at first."""
    _, subscripts, shape_a, shape_b = PADDED
    a, b = (values(RNG, shape, np.dtype("float16"), 2) for shape in (shape_a, shape_b))
    plan = make_gemm_plan(contraction_of(subscripts, a, b))
    found = next(s for s in schedules(plan, in_memory_order, "sm_90a") if s.tiling.k.size < s.tiling.shape[2])
    assert found.tiling.k.ragged
    schedule = replace(found, mainloop=replace(found.multistage, tensor_cores=False))
    want = np.einsum(subscripts, a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    d = np.full(want.shape, 77, want.dtype)
    run_kernel(tmp_path, plan, schedule, {"a": a, "b": b}, d)
    np.testing.assert_array_equal(d, want)
