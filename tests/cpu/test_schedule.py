"""Schedules: hard limits, boxes, vectors proven on addresses, split-K, texts of errors, planning time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gett.codegen.types import accumulator
from gett.errors import ScheduleError
from gett.hw.archs import ARCHS, ArchFacts, arch_facts
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import A, B, D, GemmPlan, itemsize, make_gemm_plan
from gett.schedule.records import Schedule
from gett.schedule.select import candidates, select_schedule
from gett.schedule.space import (
    ACCESS_LIMIT,
    REGISTER_LIMIT,
    WORKSPACE_LIMIT,
    check_limits,
    family_of,
    register_estimate,
)
from layouts.box import Box
from tests.cases import AWKWARD, STREAMS, TILED, Case, Layout, small_tccg, spread, tccg
from tests.cpu.walk import Walk

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "bool")
SMALL = (*small_tccg(1 << 18), *TILED)


def plan_of(case: Case, dtype: str, *, precision: str = "ieee", with_c: bool = False) -> GemmPlan:
    return make_gemm_plan(case.contraction(dtype, precision=precision, with_c=Layout() if with_c else None))


def tiled(plan: GemmPlan, arch: str, facts: ArchFacts | None = None) -> list[Schedule]:
    """The candidates of the families that run any layout."""
    return [s for s in candidates(plan, arch, facts) if s.family in ("sm80", "simt")]


def group_boxes(plan: GemmPlan, s: Schedule) -> list[tuple[Box, tuple[int, ...], int]]:
    return [
        (box, tuple(x.extent for x in modes), block)
        for box, modes, block in zip(
            (s.box_m, s.box_n, s.box_k), (plan.m, plan.n, plan.k), s.block, strict=True
        )
    ]  # fmt: skip


def check_hard_limits(plan: GemmPlan, s: Schedule) -> None:
    facts = arch_facts(s.arch)
    threads = s.threads
    assert s.smem_bytes <= facts.smem_per_block
    assert 32 <= threads <= 1024
    assert register_estimate(s) <= REGISTER_LIMIT
    for box, extents, block in group_boxes(plan, s):
        assert box.extents == extents
        assert box.size <= block
        assert box.tiles * box.size >= box.volume
    assert s.b is not None
    tensor_cores = s.family == "sm80"
    assert s.block[0] % (s.warps[0] * (16 if tensor_cores else 4)) == 0
    assert s.block[1] % (s.warps[1] * 8) == 0
    step = {"float16": 16, "bfloat16": 16, "float32": 8, "float64": 4}[plan.contraction.dtype] if tensor_cores else 1
    assert s.block[2] % step == 0
    assert s.num_stages >= 2
    for access, side in ((s.a, s.block[0]), (s.b, s.block[1])):
        assert side * s.batches * s.block[2] <= ACCESS_LIMIT * access.vector * threads
    assert s.workspace_bytes <= WORKSPACE_LIMIT
    if s.split_k > 1:
        acc = itemsize(accumulator(plan.contraction.dtype))
        tiles = s.box_m.tiles * s.box_n.tiles * plan.extent_l
        assert s.workspace_bytes == s.split_k * tiles * s.block[0] * s.block[1] * acc
        per = -(-s.box_k.tiles // s.split_k)
        assert (s.split_k - 1) * per < s.box_k.tiles <= s.split_k * per
    else:
        assert s.workspace_bytes == 0
    stages = s.num_stages * (s.a.smem.bytes + s.b.smem.bytes)
    c = plan.contraction
    element = itemsize(accumulator(c.dtype)) if c.c is not None else itemsize(c.d.dtype)
    pitch = -(-s.block[1] * element // 16) * 16 + 16
    rows = s.block[0] * s.batches
    offsets = 8 * (rows + s.block[1]) * (2 if c.c is not None else 1)
    table = (s.num_stages + 1) * 16 * s.block[2] if s.k_table else 0
    assert s.smem_bytes == max(stages, rows * pitch) + table + offsets
    if not s.k_table:
        ragged = [d for i, d in enumerate(s.box_k.dims) if d.box > 1 and not s.box_k.divides(i)]
        assert len(ragged) <= 1
        assert all(len(d.modes) == 1 or d.box == 1 for d in s.box_k.dims)


@pytest.mark.parametrize("case", tccg(), ids=repr)
def test_every_candidate_of_the_benchmark_meets_the_hard_limits(case: Case) -> None:
    for i, dtype in enumerate(("float16", "float32", "float64", "complex64", "complex128")):
        for arch in ("sm_80", "sm_90a") if i < 2 else ("sm_90a",):
            plan = plan_of(case, dtype)
            found = candidates(plan, arch)
            assert all(s.smem_bytes <= arch_facts(arch).smem_per_block for s in found)
            for s in tiled(plan, arch):
                check_hard_limits(plan, s)
            assert [s.estimate_us for s in found] == sorted(s.estimate_us for s in found)
            assert len(set(found)) == len(found)


@pytest.mark.parametrize("case", TILED, ids=repr)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_candidate_of_awkward_cases_meets_the_hard_limits(case: Case, dtype: str) -> None:
    for arch in ARCHS if dtype in ("float16", "complex128") else ("sm_80",):
        plan = plan_of(case, dtype, with_c=True)
        for s in tiled(plan, arch):
            check_hard_limits(plan, s)


@pytest.mark.parametrize("case", SMALL, ids=repr)
def test_every_access_is_legal_and_right(case: Case) -> None:
    """The proof of vector widths, alignment and index functions together: all accesses of first and last tiles."""
    turn = sum(case.name.encode())
    for dtype in ("float16", DTYPES[turn % len(DTYPES)]):
        plan = plan_of(case, dtype)
        for s in spread(tiled(plan, "sm_90a"), 3):
            walk = Walk(plan, s)
            last = {"m": s.box_m.tiles - 1, "n": s.box_n.tiles - 1, "k": s.box_k.tiles - 1}
            for m, n, k in {(0, 0, 0), (last["m"], last["n"], last["k"]), (last["m"], 0, last["k"] // 2)}:
                batch = s.batch.box.tiles - 1 if s.batch is not None and m else 0
                assert walk.check_loads("a", m, k, batch) > 0
                assert walk.check_loads("b", n, k, batch) > 0
                assert walk.check_stores(m, n, batch) > 0


def test_the_cases_meet_every_path_of_the_kernels() -> None:
    """A path that no case takes would be tested by nobody."""
    met = set()
    for case in SMALL:
        for dtype in ("float16", "float32", "complex64", "int8"):
            plan = plan_of(case, dtype)
            for s in spread(tiled(plan, "sm_90a"), 3):
                assert s.b is not None
                for w in (s.a, s.b):
                    met.add((s.family, w.major, "copied" if w.asynchronous else "through registers"))
                    met.add((s.family, "vectors" if w.vector > 1 else "elements"))
                    met |= {(s.family, "walked vectors")} if w.walk and w.vector > 1 else set()
                    met |= {(s.family, "turned")} if w.walk and w.major != w.vector_group else set()
                    holes = w.walk and s.box_k.size < s.block[2]
                    met |= {("holes",)} if holes else set()
                met.add((s.family, "table" if s.k_table else "boxed"))
                met |= {("batches", w.vector_group == "l") for w in (s.a, s.b) if s.batch is not None}
                met.add((s.family, "split" if s.split_k > 1 else "whole"))
                met.add(("store", s.vector_d > 1))
                met.add(("ragged k", any(d.box > 1 and not s.box_k.divides(i) for i, d in enumerate(s.box_k.dims))))
                met |= {("flat", g) for g, b in (("m", s.box_m), ("n", s.box_n))
                        if any(len(d.modes) > 1 and d.box > 1 for d in b.dims)}  # fmt: skip
                met |= {("batch",)} if plan.l else set()
                met.add(("swapped", plan.swapped))
    hows = ("copied", "through registers")
    ways = {(f, major, how) for f in ("sm80", "simt") for major in ("k", "mn") for how in hows}
    wanted = ways | {(f, x) for f in ("sm80", "simt") for x in (
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


def test_widest_accesses_where_the_layout_allows() -> None:
    plan = plan_of(Case("", "ij,jk->ik", {"i": 1024, "j": 1024, "k": 1024}), "float16")
    s = select_schedule(plan, "sm_80")
    assert s.b is not None
    assert (s.a.vector, s.b.vector, s.vector_d) == (8, 8, 8)
    assert s.a.asynchronous
    assert s.b.asynchronous
    odd = plan_of(Case("", "ij,jk->ik", {"i": 1024, "j": 1023, "k": 1024}), "float16")
    s = select_schedule(odd, "sm_80")
    assert s.b is not None
    assert s.a.vector == 1  # rows of 1023 elements start at odd addresses
    assert s.b.vector == 8
    assert not s.a.asynchronous  # 2 bytes are below what a copy can take


@pytest.mark.parametrize(("dtype", "family"), [("float16", "sm80"), ("float32", "simt"), ("float64", "sm80"),
                                               ("complex64", "simt"), ("int8", "simt"), ("bool", "simt")])  # fmt: skip
def test_the_family_follows_from_dtype_and_precision(dtype: str, family: str) -> None:
    case = Case("", "ij,jk->ik", {"i": 64, "j": 64, "k": 64})
    assert family_of(plan_of(case, dtype)) == family
    if dtype == "float32":
        assert family_of(plan_of(case, dtype, precision="tf32")) == "sm80"
    for name in STREAMS:
        assert family_of(plan_of(next(c for c in AWKWARD if c.name == name), dtype)) == "stream"


def test_selection_is_repeatable() -> None:
    for case in (*tccg()[::4], *TILED[::4]):
        plan = plan_of(case, "float16")
        first, second = candidates(plan, "sm_90a"), candidates(plan_of(case, "float16"), "sm_90a")
        assert first == second
        assert [s.reason for s in first] == [s.reason for s in second]
        assert select_schedule(plan, "sm_90a") == first[0]


def processor_ms(work: Callable[..., object], *args: object) -> float:
    """Milliseconds of processor time that `work(*args)` takes."""
    start = time.process_time()
    work(*args)
    return (time.process_time() - start) * 1e3


@pytest.mark.parametrize(("arch", "limit"), [("sm_80", 3.2), ("sm_90a", 9)])
def test_planning_is_quick(arch: str, limit: float) -> None:
    """Best of three, twice what it should be, in units of some 30 ms: what 100 000 entries of a table take then."""

    def select(case: Case, dtype: str) -> Schedule:
        return select_schedule(plan_of(case, dtype), arch)

    times = {}
    for case in tccg():
        for dtype in ("float16", "float64"):
            best = math.inf
            for _ in range(3):
                unit = processor_ms(lambda: {(i, -i): str(i) for i in range(100_000)})
                best = min(best, processor_ms(select, case, dtype) / unit)
            times[case.name, dtype] = best
    assert max(times.values()) < limit, max(times.items(), key=lambda x: x[1])


def test_k_is_split_where_few_tiles_leave_the_machine_idle() -> None:
    plan = plan_of(Case("", "ki,kj->ij", {"k": 1 << 20, "i": 32, "j": 32}), "float32")
    s = select_schedule(plan, "sm_90a")
    tiles = s.box_m.tiles * s.box_n.tiles
    assert s.split_k * tiles >= arch_facts("sm_90a").sm_count // 2
    assert "leave SMs idle" in s.reason
    short = plan_of(Case("", "ki,kj->ij", {"k": 64, "i": 4096, "j": 4096}), "float32")
    assert select_schedule(short, "sm_90a").split_k == 1


def test_workspace_is_bounded() -> None:
    for extent in (64, 256, 1000):
        plan = plan_of(Case("", "lki,lkj->lij", {"l": 2, "k": 1 << 17, "i": extent, "j": extent}), "complex128")
        for s in candidates(plan, "sm_90a"):
            assert s.workspace_bytes <= WORKSPACE_LIMIT


def test_limits_are_named() -> None:
    facts = arch_facts("sm_80")
    plan = plan_of(Case("", "ij,jk->ik", {"i": 512, "j": 512, "k": 512}), "float16")
    good = select_schedule(plan, "sm_80")
    check_limits(good, facts)
    bad = {
        "shared memory: 999999 bytes needed, sm_80 gives a block 166912": replace(good, smem_bytes=999999),
        "threads: more than 1024": replace(good, warps=(8, 8)),
        "registers: about": replace(good, block=(256, 256, 64), warps=(2, 2)),
        "accesses: 64 a thread to load operand A, the limit is 24": replace(
            good, block=(128, 64, 64), warps=(2, 2), a=replace(good.a, vector=1), b=replace(good.b, vector=8)),
        r"box_m of 512 elements does not fit block_m = \d+": replace(good, box_m=replace(good.box_m, dims=(
            replace(good.box_m.dims[0], box=512), *good.box_m.dims[1:]))),
    }  # fmt: skip
    for text, schedule in bad.items():
        with pytest.raises(ScheduleError, match=text):
            check_limits(schedule, facts)


def test_groups_beyond_31_bits_are_refused() -> None:
    plan = plan_of(Case("", "ij,jk->ik", {"i": 1 << 31, "j": 64, "k": 64}), "float16")
    with pytest.raises(ScheduleError, match=rf"extents of group [MN] multiply to {1 << 31}, the limit is 2\*\*31 - 1"):
        select_schedule(plan, "sm_80")


def test_no_memory_for_two_stages_is_named() -> None:
    facts = replace(arch_facts("sm_80"), smem_per_block=1024, smem_per_sm=2048)
    plan = plan_of(Case("", "ij,jk->ik", {"i": 512, "j": 512, "k": 512}), "float16")
    with pytest.raises(ScheduleError, match=r"two stages of \d+ bytes exceed the shared memory of a block \(1024 b"):
        candidates(plan, "sm_80", facts)


def test_unknown_architectures_are_refused() -> None:
    plan = plan_of(Case("", "ij,jk->ik", {"i": 64, "j": 64, "k": 64}), "float16")
    with pytest.raises(ScheduleError, match=r"arch='sm_70' is not known; known architectures: sm_80"):
        select_schedule(plan, "sm_70")


def test_addresses_that_split_elements_never_get_vectors() -> None:
    """Strides that are no multiple of the item size, and addresses aligned to less than it, give single elements."""
    a = Operand((0, 1), (2 * 1000, 2), "float16", 2)
    contraction = Contraction(
        ("i", "j", "k"), (100, 100, 100), a, Operand((1, 2), (200, 2), "float16", 1),
        Operand((0, 2), (200, 2), "float16", 1), None, "float16",
    )  # fmt: skip
    for s in candidates(make_gemm_plan(contraction), "sm_80"):
        assert s.b is not None
        assert (s.a.vector, s.b.vector, s.vector_d) == (1, 1, 1)


def test_facts_change_the_choice_and_not_the_limits() -> None:
    plan = plan_of(Case("", "ij,jk->ik", {"i": 2048, "j": 2048, "k": 2048}), "float16")
    small = arch_facts("sm_90a").resized("half of it", 66, 25 << 20, 1.5, 2.0)
    slow, fast = candidates(plan, "sm_90a", small)[0], candidates(plan, "sm_90a")[0]
    assert slow.estimate_us > fast.estimate_us
    for s in tiled(plan, "sm_90a", small):
        check_hard_limits(plan, s)


def test_traffic_and_roles_of_the_plan_are_used() -> None:
    """D's unit stride is N's, so that stores follow it; the case list says so of every tensor with a matrix product."""
    for case in tccg():
        plan = plan_of(case, "float16")
        units = [i for i, x in enumerate(plan.n) if x.strides[D] == 2]
        assert len(units) == 1
        assert plan.extent_m * plan.extent_n * plan.extent_k * plan.extent_l == case.volume
        assert np.prod([x.extent for x in plan.k if x.strides[A] and x.strides[B]]) == plan.extent_k


def test_batches_share_a_block_where_neighbours_belong_to_different_batches() -> None:
    extents = {"l": 64, "i": 512, "j": 96, "k": 40}
    s = select_schedule(plan_of(Case("", "ikl,kjl->ijl", extents), "float16"), "sm_80")
    assert s.batch is not None
    assert s.batches * 2 >= 32  # stores of whole sectors
    assert s.vector_d == 8
    assert s.b is not None
    assert (s.a.vector_group, s.b.vector_group) == ("l", "l")
    for sub in ("lik,lkj->lij", "ik,kj->ij"):  # batches far apart, or none
        found = tiled(plan_of(Case("", sub, extents), "float16"), "sm_80")
        assert all(x.batch is None for x in found)


def test_vectors_run_on_from_mode_to_mode() -> None:
    """7 x 8 elements that lie together make vectors of 8, though no mode has an extent that 8 divides but the outer."""
    case = Case("", "iab,jba->ij", {"i": 512, "j": 512, "a": 64, "b": 7})
    for s in tiled(plan_of(case, "float16"), "sm_80"):
        assert s.b is not None
        if not s.k_table and [d.box for d in s.box_k.dims] == [7, 8] and s.box_k.dims[0].modes == (0,):
            assert max(s.a.vector, s.b.vector) == 8
            break
    else:
        raise AssertionError("no box of 7 x 8 was tried")
