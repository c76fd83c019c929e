"""The NumPy executor beside `numpy.einsum(optimize=True)` with a C-contiguous result: `python -m benchmarks.cpu_speed`.

Prints large contractions with the route taken, then the time of a call on small ones. Both sides write to memory that
was touched before, take turns, and count with their best run. `--clock cpu` counts processor time instead, to compare
on a busy machine (set OPENBLAS_NUM_THREADS=1 then).
"""

from __future__ import annotations

import argparse
import math
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import gett
from benchmarks.cases import load_cases
from gett.cpu import NumpyExecutable

Array = np.ndarray[Any, np.dtype[Any]]

LARGE: dict[str, dict[str, int]] = {
    "abcd,cebf->aefd": dict(a=64, b=32, c=32, d=48, e=48, f=48),
    "zaibk,zbkjc->zajic": dict(z=32, a=16, i=32, b=16, k=16, j=16, c=32),
    "ij,jk->ik": dict(i=2048, j=2048, k=2048),
    "dbea,ec->abcd": dict(a=64, b=48, c=64, d=48, e=64),
}
SMALL: dict[str, dict[str, int]] = {
    "ij,jk->ik": dict(i=8, j=8, k=8),
    "zij,zjk->zik": dict(z=8, i=8, j=8, k=8),
    "ijkl,klmn->ijmn": dict.fromkeys("ijklmn", 4),
    "abcd,cebf->aefd": dict.fromkeys("abcdef", 4),
    "ij,ij->ij": dict(i=8, j=8),
    "ij->ji": dict(i=8, j=8),
}
MOST_FLOPS = 8e9  # of a TCCG case, whose extents shrink until it has no more


def operands_of(subscripts: str, extents: dict[str, int]) -> list[Array]:
    """Random float32 operands."""
    generator = np.random.default_rng(0)
    inputs = subscripts.split("->")[0].split(",")
    return [generator.random([extents[x] for x in labels], dtype=np.float32) for labels in inputs]


def rivals(
    subscripts: str, extents: dict[str, int]
) -> tuple[NumpyExecutable, Callable[[], object], Callable[[], object]]:
    """The executable, a call of it, and the call of NumPy that it is compared with."""
    operands = operands_of(subscripts, extents)
    run = NumpyExecutable(gett.plan(subscripts, *operands, order="C").steps[0].gemm)
    d = np.zeros([extents[x] for x in subscripts.split("->")[1]], np.float32)
    reference = np.zeros_like(d)
    second = operands[1] if len(operands) > 1 else None

    def ours() -> None:
        run(operands[0], second, None, d)

    def numpy() -> None:
        # A copy only where einsum's result is not C-contiguous already, as a user who needs it so would have to.
        found = np.einsum(subscripts, *operands, optimize=True)
        if not found.flags.c_contiguous:
            np.copyto(reference, found)

    ours()
    np.testing.assert_allclose(d, np.einsum(subscripts, *operands, optimize=True), rtol=1e-3)
    return run, ours, numpy


def best_of(calls: list[Callable[[], object]], clock: Callable[[], float], rounds: int) -> list[float]:
    """Least seconds of each call, the calls taking turns."""
    best = [math.inf] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = clock()
            call()
            best[i] = min(best[i], clock() - start)
    return best


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each side runs")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--short", action="store_true", help="without the TCCG cases")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    cases = dict(LARGE)
    for case in () if options.short else load_cases():
        extents = dict(case.extents)
        while 2 * math.prod(extents.values()) > MOST_FLOPS:
            longest = max(extents, key=lambda x: extents[x])
            extents[longest] = extents[longest] * 4 // 5
        cases[case.einsum] = extents
    print(f"{'float32':24}{'gett ms':>9}{'einsum ms':>11}{'times':>7}{'GFLOP/s':>9}  route")
    ratios = []
    for subscripts, extents in cases.items():
        run, ours, numpy = rivals(subscripts, extents)
        a, b = best_of([ours, numpy], clock, options.rounds)
        ratios.append(b / a)
        rate = 2 * math.prod(extents.values()) / a / 1e9
        print(f"{subscripts:24}{a * 1e3:9.2f}{b * 1e3:11.2f}{b / a:7.2f}{rate:9.1f}  {run.explain}", flush=True)
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, worst {min(ratios):.2f}")

    print(f"\n{'small':24}{'gett us':>9}{'einsum us':>11}{'times':>7}{'new plan us':>13}  route")
    for subscripts, extents in SMALL.items():
        run, ours, numpy = rivals(subscripts, extents)
        a, b = (
            min(timeit.repeat(f, timer=clock, number=500, repeat=options.rounds)) / 500 * 1e6 for f in (ours, numpy)
        )
        made = min(timeit.repeat(lambda run=run: NumpyExecutable(run.plan), number=10, repeat=3)) / 10 * 1e6
        print(f"{subscripts:24}{a:9.2f}{b:11.2f}{b / a:7.2f}{made:13.0f}  {run.explain}")


if __name__ == "__main__":
    main()
