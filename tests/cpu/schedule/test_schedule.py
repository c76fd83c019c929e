"""Multistage schedules of many contractions: hard limits, shared memory, every access walked and checked."""

from __future__ import annotations

import pytest

from gett.hw.archs import ARCHS, WORKSPACE_LIMIT, arch_facts
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan, itemsize, make_gemm_plan
from gett.schedule.mainloops.multistage import ACCESS_LIMIT, REGISTER_LIMIT, multistage_registers, thread_accesses
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.schedule import Schedule
from layouts.box import Box
from tests.cases import TILED, Case, Layout, small_tccg, tccg
from tests.cpu.walk import Walk
from tests.sampling import slow_but
from tests.schedules import multistage_candidates, spread

HALF = arch_facts("sm_90a").resized("half of it", 66, 25 << 20, 1.5, 2.0)
DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "bool")
SMALL = (*small_tccg(1 << 18), *TILED)


def plan_of(case: Case, dtype: str, *, precision: str = "ieee", with_c: bool = False) -> GemmPlan:
    return make_gemm_plan(case.contraction(dtype, precision=precision, with_c=Layout() if with_c else None))


def group_boxes(plan: GemmPlan, s: Schedule) -> list[tuple[Box, tuple[int, ...], int]]:
    return [
        (box, tuple(x.extent for x in modes), block)
        for box, modes, block in zip(
            (s.tiling.m, s.tiling.n, s.tiling.k), (plan.m, plan.n, plan.k), s.tiling.shape, strict=True
        )
    ]  # fmt: skip


def check_hard_limits(plan: GemmPlan, s: Schedule) -> None:
    facts, tiling, loop = arch_facts(s.arch), s.tiling, s.multistage
    m, n, k = tiling.shape
    dtype = plan.contraction.dtype
    assert s.smem.size <= facts.smem_per_block
    assert 32 <= s.threads <= 1024
    assert multistage_registers(tiling, loop, itemsize(dtype)) <= REGISTER_LIMIT
    for box, extents, block in group_boxes(plan, s):
        assert box.extents == extents
        assert box.size <= block
        assert box.tiles * box.size >= box.volume
    rows = {"complex128": 8}.get(dtype, 16) if loop.tensor_cores else 4
    assert m % (loop.warps[0] * rows) == 0
    assert n % (loop.warps[1] * 8) == 0
    steps = {"float16": 16, "bfloat16": 16, "float32": 8, "float64": 4, "complex128": 4}
    assert k % (steps[dtype] if loop.tensor_cores else 1) == 0
    assert loop.stages >= 2
    for loader, side in ((loop.a, m), (loop.b, n)):
        assert thread_accesses(tiling, loop, loader, side) <= ACCESS_LIMIT
    assert s.workspace_bytes <= WORKSPACE_LIMIT
    if s.split_k > 1:
        tiles = tiling.m.tiles * tiling.n.tiles * plan.extent_l
        assert s.workspace_bytes == s.split_k * tiles * m * n * itemsize(data_type(dtype).accumulator)
        per = -(-tiling.k.tiles // s.split_k)
        assert (s.split_k - 1) * per < tiling.k.tiles <= s.split_k * per
    elif s.scheduler.stream_k:
        assert s.workspace_bytes == 2 * s.shares * m * n * itemsize(data_type(dtype).accumulator)
        assert tiling.tiles(plan.extent_l) > s.shares, "the others are whole"
    else:
        assert s.workspace_bytes == 0
    check_smem(plan, s)
    if not loop.k_table:
        ragged = [d for i, d in enumerate(tiling.k.dims) if d.box > 1 and not tiling.k.divides(i)]
        assert len(ragged) <= 1
        assert all(len(d.modes) == 1 or d.box == 1 for d in tiling.k.dims)


def check_smem(plan: GemmPlan, s: Schedule) -> None:
    """The stages, the staged tile, the table along K and the offsets of rows and columns lie side by side."""
    c, loop, at = plan.contraction, s.multistage, s.smem
    m, n, k = s.tiling.shape
    rows = m * s.tiling.batches
    assert at.stage == loop.a.smem.bytes + loop.b.smem.bytes
    assert loop.stages * at.stage <= at.k_table
    assert at.offsets - at.k_table == (16 * k * (loop.stages + 1) if loop.k_table else 0)
    if s.split_k == 1:
        staged = itemsize(data_type(c.dtype).accumulator if c.c is not None else c.d.dtype)
        assert rows * n * staged < at.k_table  # where the stages were, each row with a gap behind it
        assert at.size - at.offsets == 8 * (rows + n) * (1 if c.c is None else 2)
    assert at.offsets % 16 == at.k_table % 16 == 0


BENCHMARK = (("float16", "complex128"), ("float32", "float64", "complex64"))


@pytest.mark.parametrize(
    ("case", "dtypes"),
    [
        pytest.param(case, dtypes, marks=pytest.mark.slow if i % 12 or dtypes is BENCHMARK[1] else ())
        for i, case in enumerate(tccg())
        for dtypes in BENCHMARK
    ],
    ids=str,
)
def test_every_candidate_of_the_benchmark_meets_the_hard_limits(case: Case, dtypes: tuple[str, ...]) -> None:
    for i, dtype in enumerate(dtypes):
        for arch in ("sm_80", "sm_90a") if i == 0 else ("sm_90a",):
            plan = plan_of(case, dtype)
            found = candidates(plan, arch)
            assert all(s.smem.size <= arch_facts(arch).smem_per_block for s in found)
            for s in multistage_candidates(plan, arch):
                check_hard_limits(plan, s)
            assert [s.forecast.us for s in found] == sorted(s.forecast.us for s in found)
            assert len(set(found)) == len(found)


AWKWARD = [(case, dtype) for dtype in DTYPES for case in TILED]


@pytest.mark.parametrize(("case", "dtype"), slow_but(AWKWARD, lambda x: x in AWKWARD[::8]), ids=str)
def test_every_candidate_of_awkward_cases_meets_the_hard_limits(case: Case, dtype: str) -> None:
    for arch in ARCHS if dtype in ("float16", "complex128") else ("sm_80",):
        plan = plan_of(case, dtype, with_c=True)
        for s in multistage_candidates(plan, arch):
            check_hard_limits(plan, s)


# Two schedules of every eighth case; four of all of them.
ACCESSES = [(case, most) for most in (2, 4) for case in SMALL]


@pytest.mark.parametrize(("case", "most"), slow_but(ACCESSES, lambda x: x in ACCESSES[: len(SMALL) : 8]), ids=str)
def test_every_access_is_legal_and_right(case: Case, most: int) -> None:
    """The proof of vector widths, alignment and index functions together: all accesses of first and last tiles."""
    turn = sum(case.name.encode())
    for dtype in ("float16", DTYPES[turn % len(DTYPES)]):
        plan = plan_of(case, dtype)
        for s in spread(multistage_candidates(plan, "sm_90a"), most):
            walk = Walk(plan, s)
            last = {"m": s.tiling.m.tiles - 1, "n": s.tiling.n.tiles - 1, "k": s.tiling.k.tiles - 1}
            for m, n, k in {(0, 0, 0), (last["m"], last["n"], last["k"]), (last["m"], 0, last["k"] // 2)}:
                batch = s.tiling.l.tiles - 1 if s.tiling.l is not None and m else 0
                assert walk.check_loads("a", m, k, batch) > 0
                assert walk.check_loads("b", n, k, batch) > 0
                assert walk.check_stores(m, n, batch) > 0


@pytest.mark.slow
def test_the_cases_meet_every_path_of_the_kernels() -> None:
    """A path that no case takes would be tested by nobody."""
    met = set()
    for case in SMALL:
        for dtype in ("float16", "float32", "complex64", "int8"):
            plan = plan_of(case, dtype)
            for s in spread(multistage_candidates(plan, "sm_90a"), 4):
                for w in (s.multistage.a, s.multistage.b):
                    met.add((s.kind, w.major, type(w)))
                    met.add((s.kind, "vectors" if w.vector > 1 else "elements"))
                    met |= {(s.kind, "walked vectors")} if isinstance(w, RegisterStaged) and w.vector > 1 else set()
                    met |= (
                        {(s.kind, "transposed")}
                        if isinstance(w, RegisterStaged) and w.major != w.vector_group
                        else set()
                    )
                    holes = isinstance(w, RegisterStaged) and s.tiling.k.size < s.tiling.shape[2]
                    met |= {("holes",)} if holes else set()
                met.add((s.kind, "table" if s.multistage.k_table else "boxed"))
                met |= {
                    ("batches", w.vector_group == "l")
                    for w in (s.multistage.a, s.multistage.b)
                    if s.tiling.l is not None
                }
                met.add((s.kind, "split" if s.split_k > 1 else "whole"))
                met.add(("store", s.epilogue.store.vector > 1))
                met.add(
                    ("ragged k", any(d.box > 1 and not s.tiling.k.divides(i) for i, d in enumerate(s.tiling.k.dims)))
                )
                met |= {("flat", g) for g, b in (("m", s.tiling.m), ("n", s.tiling.n))
                        if any(len(d.modes) > 1 and d.box > 1 for d in b.dims)}  # fmt: skip
                met |= {("batch",)} if plan.l else set()
                met.add(("swapped", plan.swapped))
    kinds = ("mma.sync", "simt")
    loaders = {(f, major, loader) for f in kinds for major in ("k", "mn") for loader in (CpAsync, RegisterStaged)}
    wanted = loaders | {(f, x) for f in kinds for x in (
        "vectors", "elements", "walked vectors", "table", "boxed", "split", "whole")}  # fmt: skip
    wanted |= {
        ("batches", True),
        ("batches", False),
        ("holes",),
        ("batch",),
        ("store", True),
        ("store", False),
        ("ragged k", True),
        ("ragged k", False),
    }
    wanted |= {("flat", "m"), ("flat", "n"), ("swapped", True), ("swapped", False)}
    assert wanted - met == set()


def test_limits_hold_on_other_gpus() -> None:
    plan = plan_of(Case("", "ij,jk->ik", {"i": 2048, "j": 2048, "k": 2048}), "float16")
    for s in multistage_candidates(plan, "sm_90a", HALF):
        check_hard_limits(plan, s)
