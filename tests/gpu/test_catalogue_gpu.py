"""Every kernel of the catalogue on the GPU, exactly, whichever the model would take; clusters made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gett.hw.archs import ArchFacts
from gett.runtime.build import build_executable
from gett.schedule.spec.schedule import PersistentPanel, PersistentRaster
from tests.by_hand import by_hand
from tests.cases import DENSE, Case, Layout, to_host
from tests.gpu.catalogue import good, kernels, problem_of, run_spec
from tests.gpu.support import (
    NANS,
    Problem,
    check_nans_stay,
    device_facts,
    gemm_plan,
    needs_hopper,
    run_case,
    schedules,
)
from tests.specs import FAMILIES, Spec, few

EXACT = [name for name, family in FAMILIES.items() if "bfloat16" not in family.dtypes]
CASES = [(name, case, c) for name in EXACT for case, c in FAMILIES[name].cases]


def of(family: str, case: Case, c: Layout | None = None) -> list[Spec]:
    return [spec for spec in kernels(family) if spec.case == case and spec.c == c]


@pytest.mark.parametrize(("family", "case", "c"), CASES, ids=str)
def test_every_kernel_is_exact(cupy: Any, family: str, case: Case, c: Layout | None) -> None:
    for spec in good(of(family, case, c)):
        run_spec(cupy, spec)
        if c is None:
            run_spec(cupy, spec, alpha=2)


CLUSTERED = (
    *("tma", "staged", "k_residue", "mma_tiles", "tma_source", "vector_source"),
    *("tf32", "tf32_k", "dmma", "dmma_complex", "subtiled_k", "subtiled_tf32"),
)


DIVIDED = (
    *("tma", "staged", "k_residue", "tma_source", "vector_source", "split", "split_source", "split_complex"),
    *("split_copies", "split_copies_source", "split_copies_complex", "finer", "tf32", "tf32_source", "tf32_k"),
    *("dmma", "dmma_source", "dmma_complex", "dmma_complex_source", "split_fp16", "gather"),
    *("row_store", "row_store_maps", "subtiled_k", "subtiled_tf32"),
    *("wgmma_rs", "tf32_rs", "multistage", "multistage_source"),
)


@pytest.mark.parametrize("family", CLUSTERED)
def test_blocks_of_a_cluster_share_operands(cupy: Any, family: str) -> None:
    """Surplus blocks included; C comes to each block for itself."""
    for spec in good(by_hand(kernels(family))):
        run_spec(cupy, spec)


@pytest.mark.parametrize("family", ["tma", "wgmma_rs", "split", "split_copies", "tf32", "dmma", "gather"])
def test_batches_are_visited_together(cupy: Any, family: str) -> None:
    made = [spec for spec in by_hand(kernels(family)) if spec.family.endswith("-batches")]
    assert made
    for spec in good(made):
        run_spec(cupy, spec)


@pytest.mark.parametrize("family", DIVIDED)
def test_tiles_are_divided(cupy: Any, family: str) -> None:
    """Stream-K: parts of tiles meet in the workspace, beside tiles that are stored as a whole."""
    made = [spec for spec in by_hand(kernels(family)) if spec.schedule.scheduler.stream_k]
    assert made
    for spec in good(made):
        run_spec(cupy, spec)
        run_spec(cupy, spec, alpha=2)


@pytest.mark.parametrize("family", ["tma", "split", "tf32", "dmma", "wgmma_rs", "multistage"])
def test_divided_tiles_have_the_same_bits_on_every_run(cupy: Any, family: str) -> None:
    made = [spec for spec in by_hand(kernels(family)) if spec.schedule.scheduler.stream_k]
    rng = cupy.random.default_rng(5)
    for spec in good(made):
        case, dtype = spec.case, spec.dtype
        a, b = (rng.standard_normal(case.shape(x)).astype(dtype) for x in case.labels[:2])
        run, results = build_executable(gemm_plan(problem_of(spec)), None, spec.schedule), set()
        for _ in range(20):
            d, _ = case.result(cupy, dtype)
            run(a, b, None, d)
            results.add(to_host(d).tobytes())
        assert len(results) == 1, spec


def planning(family: str) -> ArchFacts:
    """The GPU at hand, with the multiprocessors of the family's first search."""
    return few(device_facts().planning, FAMILIES[family].sm_counts[0])


@pytest.mark.parametrize("family", ["stationary", "each_panel", "one_panel", "wgmma_rs", "gather", "gather_transpose"])
def test_c_is_added(cupy: Any, family: str) -> None:
    """Kernels that the search gives for the same contraction with a C."""
    needs_hopper()
    chosen = FAMILIES[family]
    for case, _ in chosen.cases[:2]:
        problem = Problem(case, "float16", c=DENSE)
        plan = gemm_plan(problem)
        found = [s for s in chosen.find(plan, planning(family), chosen.limit) if chosen.keeps(s)][:4]
        assert found
        for spec in good(Spec(family, case, "float16", DENSE, plan, s, i) for i, s in enumerate(found)):
            run_spec(cupy, spec)


@pytest.mark.parametrize("family", ["each_panel", "one_panel"])
def test_some_blocks_have_no_panel(cupy: Any, family: str) -> None:
    for case, _ in FAMILIES[family].cases:
        for spec in good(of(family, case)[:8]):
            scheduler = spec.schedule.scheduler
            assert isinstance(scheduler, PersistentPanel)
            run_spec(cupy, replace(spec, schedule=replace(spec.schedule, scheduler=replace(scheduler, blocks=7))))


@pytest.mark.parametrize("split", [5, 9, 11, 15, 23, 47])
def test_what_is_left_over_of_k_is_divided(cupy: Any, split: int) -> None:
    """Forty-eight k-tiles: slices of blocks that share A differ by one at most."""
    case = FAMILIES["wgmma_rs"].cases[1][0]
    shared = [spec for spec in of("wgmma_rs", case) if spec.schedule.cluster == (1, 2)]
    assert shared
    for spec in shared[:3]:
        s, scheduler = spec.schedule, spec.schedule.scheduler
        assert isinstance(scheduler, PersistentRaster)
        assert s.tiling.k.tiles == 48
        workspace = s.workspace_bytes // s.split_k * split
        sliced = replace(s, scheduler=replace(scheduler, split_k=split), workspace_bytes=workspace)
        run_spec(cupy, replace(spec, schedule=sliced))


@pytest.mark.parametrize("family", ["tma", "mma_tiles", "stationary"])
def test_the_same_bits_again(cupy: Any, family: str) -> None:
    """In clusters too; a store tile's first MMA tile must not overwrite a tile that is still being stored."""
    first = kernels(family)[0]
    case = first.case
    rng = cupy.random.default_rng(5)
    a, b = (rng.standard_normal(case.shape(x)).astype("float16") for x in case.labels[:2])
    made = [spec for spec in by_hand([first]) if spec.schedule.cluster != (2, 2)]
    made = [spec for spec in made if not spec.schedule.scheduler.stream_k]  # which adds in another order
    results = set()
    for spec in (first, *made):
        run = build_executable(gemm_plan(problem_of(spec)), None, spec.schedule)
        for _ in range(5):
            d, _ = case.result(cupy, "float16")
            run(a, b, None, d)
            results.add(to_host(d).tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(("rows", "columns"), NANS, ids=["one", "every-other"])
@pytest.mark.parametrize(
    ("family", "case"),
    [(name, case) for name in ("gather", "gather_transpose", "row_store", "row_store_maps")
     for case, _ in FAMILIES[name].cases
     if {"i", "j"} <= set(case.labels[2]) and "i" in case.labels[0] and "j" in case.labels[1]],
    ids=str,
)  # fmt: skip
def test_nans_stay_in_their_rows_and_columns(cupy: Any, family: str, case: Case, rows: slice, columns: slice) -> None:
    """They end where others' pieces and chunks begin; paddings, which read a tile's first piece, do not show."""
    if min(case.extents["i"], case.extents["j"]) < 18:
        pytest.skip("too few rows")
    found = good(of(family, case)[:6])
    check_nans_stay(cupy, problem_of(found[0]), [spec.schedule for spec in found], rows, columns)


RUNS = (
    Case("runs-whole", "ap,sqp->sqa", {"a": 95, "p": 47, "s": 5, "q": 83}),
    Case("runs-transposed", "cabk,kj->cjba", {"c": 3, "a": 95, "b": 7, "k": 33, "j": 23}),
    Case("runs-ragged", "ik,kj->ij", {"i": 137, "j": 333, "k": 43}),
    Case("runs-batched", "lik,lkj->lij", {"l": 3, "i": 65, "j": 131, "k": 37}),
    Case("rows-gaps", "ik,kj->ij", {"i": 131, "j": 211, "k": 99}, d=Layout(steps=(2, 1), offset=3)),
)


@pytest.mark.parametrize("case", RUNS, ids=repr)
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("with_c", [False, True])
def test_rows_of_d_that_start_anywhere(cupy: Any, case: Case, dtype: str, with_c: bool) -> None:
    problem = Problem(case, dtype, "ieee", DENSE if with_c else None)
    found = schedules(problem, 4)
    assert any(s.epilogue.store.vector * np.dtype(dtype).itemsize <= 4 for s in found)
    for schedule in found:
        run_case(cupy, problem, schedule, **({"alpha": 2, "beta": 3} if with_c else {}))
