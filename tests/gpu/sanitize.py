"""A small set of contractions that takes every path of the kernels, to be run under NVIDIA's sanitizer.

    compute-sanitizer --tool memcheck --error-exitcode 1 python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/gpu/sanitize.py racecheck

Extents are tiny because the tools slow kernels down a hundredfold. Operands fill their allocations to the last byte, so
that an access beyond a tensor is one beyond its allocation. Prints what it ran; exits with 1 if a result is wrong.

Of a block that stages several tiles where the stages are, racecheck reports that a tile's staged numbers are written
and the next tile's operands read at one place without a barrier in between. Between them are the store of the tile by
the copy engine, for which the loader waits, and the copy that brings the operands, for which the readers wait. No order
through the copy engine is followed by racecheck; with its name as an argument those kernels are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gett.runtime.device import require_cupy
from gett.schedule.search.select import candidates
from gett.schedule.spec.epilogue import TmaStore
from gett.schedule.spec.schedule import OneTile, Schedule
from tests.cases import DENSE, Case
from tests.gpu.catalogue import problem_of
from tests.gpu.support import Problem, compile_all, compiles_well, describe, device_facts, gemm_plan, run_case
from tests.spec_parts import one_of_each
from tests.specs import FAMILIES, covering, kernel_specs

SMALL, LARGE = 1 << 22, 1 << 26
"""Elementary products of the cases that show pairs of parts, and of those that show a part which no small case has."""

K_MAJOR = Case("k-major", "ik,jk->ij", {"i": 40, "j": 72, "k": 80})
MN_MAJOR = Case("mn-major", "ki,kj->ij", {"i": 40, "j": 72, "k": 72})
ODD = Case("odd", "ik,kj->ij", {"i": 37, "j": 41, "k": 43})
TINY = (
    K_MAJOR,
    MN_MAJOR,
    ODD,
    Case("two-unit-modes", "mkl,nlk->mn", {"m": 40, "n": 33, "k": 24, "l": 16}),
    Case("two-long-unit-modes", "lik,jkl->ji", {"i": 24, "j": 16, "k": 64, "l": 96}),
    Case("table", "abcd,dcef->beaf", {"a": 3, "b": 5, "c": 7, "d": 5, "e": 5, "f": 3}),
    Case("split", "ki,kj->ij", {"k": 1500, "i": 16, "j": 24}),
    Case("batch", "ijl,jkl->ikl", {"l": 3, "i": 9, "j": 11, "k": 7}),
)
STREAMS = (
    Case("gemv", "ij,j->i", {"i": 33, "j": 70}), Case("outer", "i,j->ji", {"i": 33, "j": 21}),
    Case("dot", "ij,ji->", {"i": 17, "j": 19}), Case("hadamard", "ij,ji->ij", {"i": 17, "j": 19}),
)  # fmt: skip


def problems() -> list[Problem]:
    """Contractions in several types, some with C; kernels for them are the model's choices."""
    out = [Problem(c, d) for c in TINY for d in ("float16", "complex64")]
    out += [Problem(c, "complex128") for c in (ODD, TINY[5], TINY[7])]
    out += [Problem(K_MAJOR, "float64"), Problem(MN_MAJOR, "float32", "tf32"), Problem(ODD, "int8")]
    out += [Problem(c, "float16", "ieee", DENSE) for c in (K_MAJOR, TINY[6])] + [Problem(ODD, "float32", "ieee", DENSE)]
    return out + [Problem(c, "float32") for c in STREAMS]


def runs() -> list[tuple[Problem, Schedule]]:
    """What is run: one candidate of each combination of parts of the problems, and what covers the catalogue.

    Clusters made by hand, which no search gives, may lack registers; those are left out.
    """
    facts = device_facts()
    out = [(p, s) for p in problems() for s in one_of_each(candidates(gemm_plan(p), facts.arch))]
    if facts.arch != "sm_90a":
        return out
    every = [s for s in kernel_specs(facts.planning) if s.dtype != "bfloat16"]  # NumPy has no bfloat16
    chosen = covering(s for s in every if s.case.volume <= SMALL)
    met = frozenset().union(*(s.parts for s in chosen))
    chosen += covering((s for s in every if s.case.volume <= LARGE and s.parts - met), pairs=False)
    compile_all((problem_of(s), s.schedule) for s in chosen)
    kept = [s for s in chosen if s.family in FAMILIES or compiles_well(problem_of(s), s.schedule)]
    assert len(kept) >= len(chosen) - 2
    return out + [(problem_of(s), s.schedule) for s in kept]


def by_copy_engine(problem: Problem, schedule: Schedule) -> bool:
    """Whether nothing but copies orders the accesses of two tiles of a block to one place."""
    store, tiles = schedule.epilogue.store, schedule.tiling.tiles(gemm_plan(problem).extent_l)
    if not isinstance(store, TmaStore) or not store.reuse_mainloop_smem:
        return False
    assert not isinstance(schedule.scheduler, OneTile)
    return tiles > schedule.scheduler.blocks


def main() -> int:
    """Run all; the number of wrong results, at most 1, is the exit status."""
    cp: Any = require_cupy()
    cp.cuda.set_allocator(None)  # no pool: what lies behind an array is not another array's memory
    every = runs()
    if "racecheck" in sys.argv[1:]:
        every = [x for x in every if not by_copy_engine(*x)]
    failed = compile_all(every)
    wrong = 0
    for problem, schedule in every:
        try:
            with_c = {"alpha": 2, "beta": 3} if problem.c is not None else {}
            run_case(cp, problem, schedule, **with_c)
            print(f"right  {problem!r}: {describe(schedule)}")
        except AssertionError as error:
            wrong += 1
            print(f"WRONG  {problem!r}: {error}")
    cp.cuda.Device().synchronize()
    print(f"{len(every)} kernels, {wrong} wrong, {len(failed)} did not compile")
    return int(bool(wrong or failed))


if __name__ == "__main__":
    sys.exit(main())
