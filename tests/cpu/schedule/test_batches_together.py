"""Which batches are visited together: those side by side within D's rows, as many as L2 keeps the operands of."""

from __future__ import annotations

import pytest

from gett.hw.archs import arch_facts
from gett.hw.device import nearest
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.search.batches import side_by_side
from gett.schedule.search.select import candidates, select_schedule
from gett.schedule.spec.schedule import PersistentRaster, Schedule
from tests.cases import Case

SIZES = {"i": 2048, "k": 2048, "b": 32, "j": 128, "c": 4}


def plan_of(einsum: str, dtype: str = "float16", precision: str = "ieee", **extents: int) -> GemmPlan:
    sizes = {**SIZES, **extents}
    case = Case("", einsum, {x: sizes[x] for x in dict.fromkeys(einsum) if x.isalpha()})
    return make_gemm_plan(case.contraction(dtype, precision=precision))


def raster(s: Schedule) -> PersistentRaster:
    assert isinstance(s.scheduler, PersistentRaster)
    return s.scheduler


@pytest.mark.parametrize(
    ("einsum", "batches"),
    [
        ("ibj,kbj->ibk", 32),  # within D's rows
        ("ibj,kbj->bik", 1),  # outermost
        ("cibj,ckbj->cibk", 32),  # one mode within, one outermost
        ("cibj,ckbj->icbk", 128),  # both within
        ("ij,kj->ik", 1),
    ],
)
def test_batches_within_rows_of_d(einsum: str, batches: int) -> None:
    assert side_by_side(plan_of(einsum)) == batches


@pytest.mark.parametrize(
    ("dtype", "precision", "batches"), [("float16", "ieee", 16), ("bfloat16", "ieee", 16), ("float32", "tf32", 8)]
)
def test_as_many_as_fill_the_gpu_with_a_row_of_each(dtype: str, precision: str, batches: int) -> None:
    s = select_schedule(plan_of("ibj,kbj->ibk", dtype, precision), "sm_90a")
    made = raster(s)
    assert (made.group_l, made.group_m) == (batches, 1)
    assert made.blocks == batches * s.tiling.n.tiles == 128  # all blocks are in the same rows at the same time
    plain = raster(select_schedule(plan_of("ibj,kbj->bik", dtype, precision), "sm_90a"))
    assert (plain.group_l, plain.blocks) == (1, 132)


def test_l2_keeps_what_rows_of_tiles_share() -> None:
    """Twice the columns are half the batches; where no group fills the GPU and L2 keeps it, there is none."""
    found = (raster(s) for s in candidates(plan_of("ibj,kbj->ibk", k=8192, b=8), "sm_90a") if s.tiling.shape[1] == 256)
    wide = next(x for x in found if x.group_l > 1)
    assert wide.group_l * 8192 * 128 * 2 <= nearest(arch_facts("sm_90a")).hopper.batches.kept_bytes
    assert wide.group_l == 4
    deep = raster(select_schedule(plan_of("ibj,kbj->ibk", k=8192, b=8, j=512), "sm_90a"))
    assert deep.group_l == 1


def test_not_where_operands_are_most_of_the_bytes() -> None:
    made = select_schedule(plan_of("ibj,kbj->ibk", j=4096, i=128, k=128), "sm_90a").scheduler
    assert getattr(made, "group_l", 1) == 1


def test_lines_of_whole_rows_are_chosen_where_stores_of_d_keep_memory_busy() -> None:
    found = select_schedule(plan_of("ibj,kbj->bik", "float32", "tf32"), "sm_90a")
    assert found.tiling.shape[2] * 4 == 128
    assert (found.hopper.stages - 1) * found.smem.stage >= 96 << 10
