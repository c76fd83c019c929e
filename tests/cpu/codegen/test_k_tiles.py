"""How multistage kernels bring and multiply k-tiles, run whole on the host: small integers bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.spec.schedule import Schedule
from tests.by_hand import streamed
from tests.cases import Case
from tests.cpu.helpers import contraction_of
from tests.cpu.host_blocks import run_kernel
from tests.cpu.strategies import values
from tests.k_tiles import CASES, by_way

FACTS = arch_facts("sm_90a")
RNG = np.random.default_rng(7)


def plan_of(case: Case, dtype: str) -> tuple[GemmPlan, dict[str, np.ndarray], np.ndarray]:
    """A plan, its operands, and what it computes of them."""
    arrays = [values(RNG, case.shape(x), np.dtype(dtype), 3) for x in case.labels[:2]]
    plan = make_gemm_plan(contraction_of(case.subscripts, *arrays))
    want = np.einsum(case.subscripts, *arrays, optimize=True).astype(dtype)
    return plan, dict(zip("ba" if plan.swapped else "ab", arrays, strict=True)), want


def check(
    tmp: Path, plan: GemmPlan, s: Schedule, arrays: dict[str, np.ndarray], want: np.ndarray, *, sparing: bool = False
) -> None:
    d = np.full(want.shape, 77, want.dtype)
    run_kernel(tmp, plan, s, arrays, d, sparing=sparing)
    np.testing.assert_array_equal(d, want, str(s))


@pytest.mark.parametrize("case", CASES, ids=lambda x: x.name)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_every_way(case: Case, dtype: str, tmp_path: Path) -> None:
    plan, arrays, want = plan_of(case, dtype)
    found = by_way(plan, FACTS)
    for i, s in enumerate(found.values()):
        (folder := tmp_path / str(i)).mkdir()
        check(folder, plan, s, arrays, want)


def test_cases_have_every_way() -> None:
    """What a way consists of: how stages are filled, odd steps, registers, a table, batches of a warp."""
    ways = {
        way for case in CASES for dtype in ("float64", "complex128") for way in by_way(plan_of(case, dtype)[0], FACTS)
    }
    assert {way[0] for way in ways} == {"ahead", "one", "whole", "ring"}
    ahead = [way for way in ways if way[0] == "ahead"]
    assert {way[2] for way in ahead} == {0, 1}  # steps
    assert any(any(way[3]) for way in ahead)  # registers
    assert {way[4] for way in ahead} == {False, True}  # a table
    assert {way[5] for way in ahead} == {1, 2}  # batches of a warp


def test_sparing_kernels_load_nothing_ahead(tmp_path: Path) -> None:
    """They are compiled from the same text."""
    plan, arrays, want = plan_of(CASES[0], "float64")
    s = next(s for way, s in by_way(plan, FACTS).items() if way[0] == "ahead")
    check(tmp_path, plan, s, arrays, want, sparing=True)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_stream_k_ahead(dtype: str, tmp_path: Path) -> None:
    """Blocks begin and end within tiles, with fewer k-tiles than there are stages."""
    plan, arrays, want = plan_of(CASES[0], dtype)
    s = next(s for way, s in by_way(plan, FACTS).items() if way[0] == "ahead")
    made = streamed(s, plan)
    assert made is not None
    check(tmp_path, plan, made, arrays, want)


def test_a_single_instruction_a_step_is_not_loaded_ahead() -> None:
    """ptxas 13.0 does not wait for its sums from one pass of the loop to the next."""
    plan = plan_of(Case("", "mk,nk->mn", {"m": 16, "n": 8, "k": 203}), "float64")[0]
    smallest = [
        way for way, s in by_way(plan, FACTS).items()
        if s.tiling.shape[:2] == (16, 8) and s.multistage.warps == (1, 1)
    ]  # fmt: skip
    assert smallest
    assert not any(way[0] == "ahead" for way in smallest)
