"""Kernels on the GPU against exact references: dtypes, layouts, candidates, C, alpha and beta, rounding bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett
from gett.hw.archs import WORKSPACE_LIMIT
from gett.runtime.build import build_executable
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import Multistage
from tests.cases import AWKWARD, DENSE, Case, Layout, by_name, small_tccg, to_host
from tests.gpu.support import (
    Problem,
    compile_ahead,
    describe,
    device_facts,
    gemm_plan,
    run_case,
    schedules,
)
from tests.tolerances import assert_within

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int32", "int64", "bool")
TCCG = small_tccg(1 << 20)
TOP = 3  # candidates that are run


def backwards(case: Case) -> Layout:
    """C in the opposite memory order of a dense D."""
    return Layout(tuple(reversed(range(len(case.labels[2])))))


BENCHMARK = [Problem(c, d) for c in TCCG for d in DTYPES] + [Problem(c, "float32", "tf32") for c in TCCG]
CORNERS = [Problem(c, DTYPES[(i + j) % len(DTYPES)]) for i, c in enumerate(AWKWARD) for j in (0, 3, 5)]
CORNERS += [Problem(c, "float16") for c in AWKWARD if Problem(c, "float16") not in CORNERS]
CORNERS += [Problem(c, "float32", "tf32") for c in AWKWARD[::4]]
SMALL_BATCHES = [
    Problem(Case(f"batches-{m}x{n}x{k}", sub, {"l": 3001, "m": m, "n": n, "k": k}), dtype, precision)
    for sub, m, n, k in (("lmk,lkn->lmn", 4, 4, 4), ("lkm,lnk->lnm", 3, 5, 7), ("mlk,lnk->lmn", 16, 8, 24))
    for dtype, precision in (*((d, "ieee") for d in DTYPES), ("float32", "tf32"))
]
"""Many products of a few elements that lie together."""
SMALL_INTEGERS = [Problem(c, d) for c in AWKWARD[::3] for d in ("int8", "uint8", "int16")]
ADDED = [
    Problem(replace(c, name=f"{c.name}-added"), d, "ieee", backwards(c))
    for i, c in enumerate([*TCCG[::6], *AWKWARD[::2], *(p.case for p in SMALL_BATCHES[:: len(DTYPES) + 1])])
    for d in (DTYPES[i % 7], "float16")
]
IN_PLACE = [replace(p, c=p.case.d) for p in ADDED][::2]
BOUNDED = [Problem(c, d) for c in (*TCCG[::4], *AWKWARD[::6]) for d in DTYPES[:5]]
BOUNDED += [Problem(c, "float32", "tf32") for c in TCCG[::4]]


@pytest.fixture(scope="module", autouse=True)
def _compiled(gpu: None) -> None:
    """All kernels of this file, compiled side by side; one that fails is raised by its own test."""
    compile_ahead([*BENCHMARK, *CORNERS, *SMALL_BATCHES], TOP)
    compile_ahead([*SMALL_INTEGERS, *ADDED, *IN_PLACE, *BOUNDED], 1)


@pytest.mark.parametrize("problem", BENCHMARK, ids=repr)
def test_benchmark_cases_are_exact(cupy: Any, problem: Problem) -> None:
    for schedule in schedules(problem, TOP):
        run_case(cupy, problem, schedule)


@pytest.mark.parametrize("problem", CORNERS, ids=repr)
def test_awkward_cases_are_exact(cupy: Any, problem: Problem) -> None:
    for schedule in schedules(problem, TOP):
        run_case(cupy, problem, schedule)


@pytest.mark.parametrize("problem", SMALL_BATCHES, ids=repr)
def test_blocks_make_several_small_products(cupy: Any, problem: Problem) -> None:
    found = schedules(problem, TOP)
    assert any(isinstance(s.mainloop, Multistage) and s.tiling.batches > 1 for s in found)
    for schedule in found:
        run_case(cupy, problem, schedule)


@pytest.mark.parametrize("problem", SMALL_INTEGERS, ids=repr)
def test_small_integers_wrap_around(cupy: Any, problem: Problem) -> None:
    run_case(cupy, problem, schedules(problem, 1)[0])


@pytest.mark.parametrize("problem", ADDED, ids=repr)
@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (-3, 2), (2, 0), (0, 1)])
def test_alpha_beta_and_c(cupy: Any, problem: Problem, alpha: int, beta: int) -> None:
    if problem.dtype == "bool":
        alpha, beta = abs(alpha) > 0, abs(beta) > 0
    run_case(cupy, problem, schedules(problem, 1)[0], alpha=alpha, beta=beta)


@pytest.mark.parametrize("problem", IN_PLACE, ids=repr)
def test_c_may_be_d_itself(cupy: Any, problem: Problem) -> None:
    run_case(cupy, problem, schedules(problem, 1)[0], alpha=2, beta=1, in_place=True)


def test_complex_factors(cupy: Any) -> None:
    for problem in ADDED:
        if problem.dtype.startswith("complex"):
            run_case(cupy, problem, schedules(problem, 1)[0], alpha=2 - 1j, beta=1j)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_beta_zero_reads_nothing_of_c(cupy: Any, dtype: str) -> None:
    for problem in (Problem(TCCG[0], dtype, "ieee", DENSE), Problem(by_name("huge-k"), dtype, "ieee", DENSE)):
        run = build_executable(gemm_plan(problem))
        a, b = problem.case.operands(cupy, dtype)
        d, _ = problem.case.result(cupy, dtype)
        c = cupy.full(d.shape, np.nan, dtype)
        run(a, b, c, d, 1, 0)
        host = problem.case.operands(np, dtype)
        np.testing.assert_array_equal(to_host(d), problem.case.reference(*host, dtype).astype(dtype))


@pytest.mark.parametrize("problem", BOUNDED, ids=repr)
def test_random_data_stay_within_the_bound(cupy: Any, problem: Problem) -> None:
    """No norm: each element has its own bound."""
    case, dtype = problem.case, problem.dtype
    rng = np.random.default_rng(11)

    def normal(like: Any) -> Any:
        x = rng.standard_normal(like.shape)
        return (x + 1j * rng.standard_normal(like.shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)

    plain = replace(case, a=DENSE, b=DENSE, d=DENSE)
    a, b = (normal(x) for x in plain.operands(np, dtype))
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    if np.finfo(dtype).bits == 64:
        wide = np.clongdouble if np.dtype(dtype).kind == "c" else np.longdouble
        if case.volume > 1 << 18:  # extended precision has no fast product
            wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    reference = np.asarray(np.einsum(case.subscripts, a.astype(wide), b.astype(wide), optimize=True))
    magnitude = np.asarray(np.einsum(case.subscripts, np.abs(a).astype(float), np.abs(b).astype(float), optimize=True))
    got = gett.einsum(case.subscripts, cupy.asarray(a), cupy.asarray(b), precision=problem.precision)
    # A reference in the result's own precision has an error of its own, of the same bound.
    depth = case.depth * (2 if wide in (np.float64, np.complex128) and np.finfo(dtype).bits == 64 else 1)
    assert_within(to_host(got), reference, magnitude, depth, dtype, problem.precision)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_split_k_gives_the_same_bits_twice(cupy: Any, dtype: str) -> None:
    case = by_name("huge-k")
    problem = Problem(case, dtype)
    schedule = next(s for s in candidates(gemm_plan(problem), device_facts().arch) if s.split_k > 1)
    run = build_executable(gemm_plan(problem), None, schedule)
    assert 0 < run.workspace_bytes <= WORKSPACE_LIMIT
    rng = cupy.random.default_rng(5)
    a, b = (rng.standard_normal(case.shape(x)).astype(dtype) for x in case.labels[:2])
    results = []
    for _ in range(3):
        d, _ = case.result(cupy, dtype)
        run(a, b, None, d)
        results.append(to_host(d).tobytes())
    assert len(set(results)) == 1, describe(schedule)
    reference = np.einsum(
        case.subscripts, to_host(a).astype(np.complex128), to_host(b).astype(np.complex128), optimize=True
    )
    magnitude = np.einsum(case.subscripts, *(np.abs(to_host(x)).astype(float) for x in (a, b)), optimize=True)
    got = np.frombuffer(results[0], dtype).reshape(reference.shape)
    kept = reference if np.dtype(dtype).kind == "c" else reference.real
    assert_within(got, kept, magnitude, 2 * case.depth, dtype)


def test_operands_are_only_read(cupy: Any) -> None:
    for case in AWKWARD[::7]:
        a, b = case.operands(cupy, "float32")
        before = to_host(a), to_host(b)
        gett.einsum(case.subscripts, a, b)
        np.testing.assert_array_equal(to_host(a), before[0])
        np.testing.assert_array_equal(to_host(b), before[1])


SUBSCRIPTS = (
    ("ij,jk->ik", (17, 33), (33, 9)), ("ij,jk", (5, 8), (8, 7)), ("ji,jk->ki", (30, 20), (30, 12)),
    ("ij,ij->ij", (13, 21), (13, 21)), ("ij,ij->i", (13, 21), (13, 21)), ("ij,ij->", (13, 21), (13, 21)),
    ("ij,ij", (4, 5), (4, 5)), ("i,i", (100,), (100,)), ("i,j->ij", (31,), (45,)), ("i,j->ji", (31,), (45,)),
    ("ij,j->i", (64, 48), (48,)), ("ij,i->j", (64, 48), (64,)), ("ij,j->ij", (9, 16), (16,)),
    ("bij,bjk->bik", (4, 8, 16), (4, 16, 24)), ("bij,bjk->ikb", (4, 8, 16), (4, 16, 24)),
    ("...ij,...jk->...ik", (3, 2, 8, 5), (3, 2, 5, 4)), ("...ij,jk->...ik", (6, 7, 5), (5, 4)),
    ("i...,...j->ij...", (4, 6), (6, 5)), ("ab...,b...->a...", (4, 5, 6), (5, 6)),
    ("ijkl,klmn->ijmn", (3, 4, 5, 6), (5, 6, 7, 8)), ("ijkl,lkmn->mnji", (3, 4, 5, 6), (6, 5, 7, 8)),
    ("aij,bij->ab", (5, 6, 7), (8, 6, 7)), ("ijk,k->ij", (6, 7, 8), (8,)), ("ijk,ij->k", (6, 7, 8), (6, 7)),
    ("ii,ij->j", (9, 9), (9, 5)), ("iij,jk->ik", (6, 6, 4), (4, 5)), ("iji,j->i", (6, 4, 6), (4,)),
    ("ij,kl->ikjl", (3, 4), (5, 6)), ("ij,kl->", (3, 4), (5, 6)), ("ij,kl->il", (3, 4), (5, 6)),
    ("ijs,jk->ik", (5, 6, 7), (6, 8)), ("ij,jkt->ik", (5, 6), (6, 8, 3)), ("xij,jk->ikx", (2, 5, 6), (6, 8)),
    ("abc,cd->abd", (1, 7, 9), (9, 1)), ("ab,bc->ac", (1, 9), (9, 8)), ("ab,bc->ac", (8, 1), (1, 8)),
    (",ij->ji", (), (5, 6)), ("i,->i", (7,), ()), (",->", (), ()), ("a,b,c->abc", (3,), (4,), (5,)),
    ("ij,jk,kl->il", (6, 7), (7, 8), (8, 9)), ("ij,jk,ki->", (6, 7), (7, 8), (8, 6)),
    ("abc,bd,ce->ade", (5, 6, 7), (6, 8), (7, 9)), ("ij,ij,ij->ij", (6, 7), (6, 7), (6, 7)),
    ("ij,j,i->", (6, 7), (7,), (6,)), ("ab,cb,cd,de->ae", (4, 5), (6, 5), (6, 7), (7, 3)),
    ("ij->ji", (13, 27)), ("ijk->kij", (6, 17, 11)), ("ij->", (13, 27)), ("ij->i", (13, 27)), ("ij->j", (13, 27)),
    ("ii", (9, 9)), ("ii->i", (9, 9)), ("iij->ji", (5, 5, 7)), ("ijij->ij", (4, 5, 4, 5)), ("ijkl->ljki", (3, 5, 7, 9)),
    ("...i->...", (3, 4, 50)), ("...i->i...", (3, 4, 50)), ("i->i", (77,)), ("->", ()), ("abcd->", (5, 6, 7, 8)),
    ("ij,jk->ik", (0, 5), (5, 4)), ("ij,jk->ik", (4, 0), (0, 5)),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(SUBSCRIPTS)), ids=lambda i: f"{i}-{SUBSCRIPTS[i][0]}")
def test_einsum_agrees_with_numpy(cupy: Any, number: int) -> None:
    subscripts, *shapes = SUBSCRIPTS[number]
    rng = np.random.default_rng(number)
    dtype = ("float32", "complex64", "int32", "float64", "float16")[number % 5]
    host = [np.asarray(rng.integers(-2, 3, s), dtype) for s in shapes]
    got = gett.einsum(subscripts, *(cupy.asarray(x) for x in host))
    wide = [x.astype("complex128" if dtype.startswith("c") else "float64") for x in host]
    wanted = np.einsum(subscripts, *wide)
    assert isinstance(got, cupy.ndarray)
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(to_host(got), np.asarray(wanted).astype(dtype))


def test_mixed_types_are_promoted_as_numpy_does(cupy: Any) -> None:
    rng = np.random.default_rng(3)
    kinds = ("float16", "float32", "float64", "complex64", "int8", "int32", "bool")
    for first in kinds:
        for second in kinds:
            a, b = rng.integers(0, 2, (6, 8)).astype(first), rng.integers(0, 2, (8, 5)).astype(second)
            wanted = np.einsum("ij,jk->ik", a, b)
            got = gett.einsum("ij,jk->ik", cupy.asarray(a), cupy.asarray(b))
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(to_host(got), wanted)


def test_out_in_any_strides(cupy: Any) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-2, 3, (24, 40)).astype("f4"), rng.integers(-2, 3, (40, 33)).astype("f4")
    wanted = a @ b
    memory = cupy.full((80, 120), 7, "f4")
    views = (
        memory[:24, :33],
        memory[:48:2, :33],
        memory[30:6:-1, 99::-3][:, :33],
        memory.T[:24, :33],
        memory[1:25, 1:34],
    )
    for out in views:
        memory[...] = 7
        result = gett.einsum("ij,jk->ik", cupy.asarray(a), cupy.asarray(b), out=out)
        assert result is out
        np.testing.assert_array_equal(to_host(out), wanted)
        assert int((memory == 7).sum()) == memory.size - wanted.size + int((wanted == 7).sum())


def test_all_main_loops_agree(cupy: Any) -> None:
    """Every main loop that the architecture offers for a product, not only the one that the model prefers."""
    case = Case("square", "ikj,jl->kli", {"i": 24, "k": 16, "j": 128, "l": 96})
    for dtype in ("float16", "float32", "float64"):
        problem = Problem(case, dtype)
        firsts = {}
        for s in candidates(gemm_plan(problem), device_facts().arch):
            firsts.setdefault(s.kind, s)
        assert firsts
        for s in firsts.values():
            run_case(cupy, problem, s)
