"""A small set of contractions that takes every path of the kernels, to be run under NVIDIA's sanitizer.

    compute-sanitizer --tool memcheck --error-exitcode 1 python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize.py

Extents are tiny because the tools slow kernels down a hundredfold. Operands fill their allocations to the last byte, so
that an access beyond a tensor is one beyond its allocation. Prints what it ran; exits with 1 if a result is wrong.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gett.runtime.device import require_cupy
from gett.schedule.crossed import crossed_candidates
from gett.schedule.records import Schedule
from gett.schedule.select import candidates
from tests.added import CASES as WITH_C
from tests.added import added
from tests.alone import CASES as ALONE
from tests.alone import alone
from tests.cases import DENSE, Case, by_name
from tests.clusters import can_share, clustered
from tests.gpu.support import Problem, compile_ahead, describe, device_facts, gemm_plan, run_case
from tests.parted import CASES as PARTED
from tests.parted import parted
from tests.resident import CASES as RESIDENT
from tests.resident import LINES, ONE_LINES, lined, one_lined, resident
from tests.traded import CASES as TRADED
from tests.traded import traded

K_MAJOR = Case("k-major", "ik,jk->ij", {"i": 40, "j": 72, "k": 80})
MN_MAJOR = Case("mn-major", "ki,kj->ij", {"i": 40, "j": 72, "k": 72})
ODD = Case("odd", "ik,kj->ij", {"i": 37, "j": 41, "k": 43})
CROSSED = replace(by_name("crossed-units"), extents={"m": 40, "n": 33, "k": 24, "l": 16})
CROSSED_LONG = Case("crossed-long", "lik,jkl->ji", {"i": 24, "j": 16, "k": 64, "l": 96})
CROSSED_SHARED = Case("crossed-shared", "lik,jkl->ji", {"i": 136, "j": 72, "k": 32, "l": 160})
CROSSED_APART = Case("crossed-apart", "lik,jkl->ji", {"i": 128, "j": 128, "k": 32, "l": 64})
TABLE = replace(by_name("primes"), extents={"a": 3, "b": 5, "c": 7, "d": 5, "e": 5, "f": 3})
SPLIT = replace(by_name("huge-k"), extents={"k": 1500, "i": 16, "j": 24})
BATCH = replace(by_name("batch-unit-stride"), extents={"l": 3, "i": 9, "j": 11, "k": 7})
# Tiles of D by tensor map: in vectors from blocks of a thread's rows, by stmatrix, from its columns; then runs of D
# that start anywhere.
STAGED = (
    Case("staged-blocks", "cabkd,kj->dcjba", {"c": 2, "a": 48, "b": 2, "k": 36, "d": 48, "j": 24}),
    Case("staged-turned", "cabk,kj->cjba", {"c": 2, "a": 96, "b": 3, "k": 48, "j": 24}),
    Case("staged-columns", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 2, "i": 24, "c": 2, "b": 12, "k": 3}),
    Case("runs", "ap,qp->qa", {"a": 95, "p": 47, "q": 83}),
)
# K tails: K-major and MN-major, chunks by themselves and whole; chunks with rows to spare.
TAILED = (
    Case("tail-mixed", "bki,cak->icba", {"b": 3, "i": 24, "c": 16, "a": 5, "k": 24}),
    Case("tail-rows", "mk,nk->mn", {"m": 72, "n": 40, "k": 56}),
    Case("tail-spare", "cabkd,kj->dcjba", {"c": 2, "a": 48, "b": 2, "k": 12, "d": 16, "j": 24}),
)
STREAMS = (
    Case("gemv", "ij,j->i", {"i": 33, "j": 70}), Case("outer", "i,j->ji", {"i": 33, "j": 21}),
    Case("dot", "ij,ji->", {"i": 17, "j": 19}), Case("hadamard", "ij,ji->ij", {"i": 17, "j": 19}),
)  # fmt: skip
GATHERED = (
    Case("gathered", "ik,kj->ij", {"i": 133, "j": 75, "k": 101}),
    Case("gathered-b", "ik,kj->ij", {"i": 72, "j": 75, "k": 40}),
    Case("gathered-split", "lki,kjl->ji", {"i": 21, "j": 35, "k": 53, "l": 37}),
    Case("gathered-turned", "lik,jkl->ji", {"i": 45, "j": 37, "k": 27, "l": 19}),
    Case("gathered-rows", "bq,srqa->srba", {"b": 23, "q": 29, "s": 3, "r": 5, "a": 45}),
)
# C by tensor map: one case of each way of writing D, and one of parts.
ADDED = {case.name for case, _ in (*WITH_C[1:7], WITH_C[9])}
SMALL = (K_MAJOR, MN_MAJOR, ODD, CROSSED, CROSSED_LONG, TABLE, SPLIT, BATCH)


def problems() -> list[Problem]:
    """Each case in a dtype of each family, some with C."""
    out = [Problem(c, "float16") for c in GATHERED] + [Problem(c, d) for c in SMALL for d in ("float16", "complex64")]
    out += [Problem(K_MAJOR, "float64"), Problem(MN_MAJOR, "float32", "tf32"), Problem(ODD, "int8")]
    out += [Problem(c, "float16", "ieee", DENSE) for c in (K_MAJOR, SPLIT)] + [Problem(ODD, "float32", "ieee", DENSE)]
    out += [
        Problem(c, "float16")
        for c in (*STAGED, *TAILED, *RESIDENT, *LINES[:3], *ONE_LINES[:2], *PARTED, *ALONE, *TRADED[1:3])
    ]
    out += [Problem(c, "float16") for c in (CROSSED_APART, CROSSED_SHARED)]
    out += [Problem(case, "float16", "ieee", layout) for case, layout in WITH_C if case.name in ADDED]
    return out + [Problem(c, "float32") for c in STREAMS]


def chosen(problem: Problem) -> list[Schedule]:
    """The first candidate, the first of every other family and of split K, the table and several batches; clusters."""
    if problem.c is not None and problem.case.name in ADDED:
        adds = added(gemm_plan(problem), device_facts().planning)
        others = [s for s in adds if s.roles is not None and not s.roles.line]
        return [*adds[:2], *(clustered(replace(s, blocks=4), (2, 1)) for s in others[:1])]
    picked: dict[tuple[object, ...], Schedule] = {}
    for s in candidates(gemm_plan(problem), device_facts().arch):
        tail = s.roles is not None and s.box_k.size < s.block[2]
        picked.setdefault((s.family, s.split_k > 1, s.k_table, s.batch is not None, tail), s)
    boxed = [s for s in picked.values() if s.roles is not None and can_share(s.roles)]
    shared = [clustered(s, shape) for s in boxed for shape in ((2, 1), (1, 2))]
    # Extents of these tests make several tiles only on few multiprocessors.
    planning = device_facts().planning
    stays = resident(gemm_plan(problem), planning)[:3] if problem.case in RESIDENT else []
    stays += lined(gemm_plan(problem), planning)[:2] if problem.case in LINES else []
    stays += one_lined(gemm_plan(problem), planning)[:2] if problem.case in ONE_LINES else []
    parts = parted(gemm_plan(problem), planning)[:3] if problem.case in PARTED else []
    lone = alone(gemm_plan(problem), planning)[:3] if problem.case in ALONE else []
    trades = traded(gemm_plan(problem), planning)[:2] if problem.case in TRADED else []
    crossed = crossed_candidates(gemm_plan(problem), planning, 400) if problem.case is CROSSED_SHARED else []
    teams = {s.roles.cluster: s for s in crossed if s.roles is not None and s.roles.cluster != (1, 1)}
    return [*picked.values(), *shared, *stays, *parts, *lone, *trades, *teams.values()]


def main() -> int:
    """Run all; the number of wrong results, at most 1, is the exit status."""
    cp: Any = require_cupy()
    cp.cuda.set_allocator(None)  # no pool: what lies behind an array is not another array's memory
    every = problems()
    failed = compile_ahead(every, 1)
    wrong = 0
    for problem in every:
        for schedule in chosen(problem):
            try:
                with_c = {"alpha": 2, "beta": 3} if problem.c is not None else {}
                run_case(cp, problem, schedule, **with_c)
                print(f"right  {problem!r}: {describe(schedule)}")
            except AssertionError as error:
                wrong += 1
                print(f"WRONG  {problem!r}: {error}")
    cp.cuda.Device().synchronize()
    print(f"{len(every)} problems, {wrong} wrong, {len(failed)} did not compile")
    return int(bool(wrong or failed))


if __name__ == "__main__":
    sys.exit(main())
