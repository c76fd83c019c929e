"""Orders of copies and of batches in multistage kernels, run whole on the host: small integers bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gett.ir.gemm import make_gemm_plan
from tests.access_orders import (
    BATCHES,
    MEMORY,
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
    (BATCHES, "complex128", batches_differ),
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
