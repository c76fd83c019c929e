"""Times of many schedules of many contractions on one GPU, as data that load again.

Owns which schedules are timed and the form in which they are kept: a schedule as the tuner's store has it, beside its
time. `benchmarks.regret` replays such files. Schedules, compiling and timing are gett's.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, fields
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.cases import load_cases
from benchmarks.common_cases import common_cases
from benchmarks.random_cases import random_cases
from benchmarks.workloads import load_workloads

KINDS = ("float16", "float32", "float32 tf32", "float64", "complex64", "complex128")
"""Element types, and the precision where it is not the default."""

TRIED = 48  # schedules of a main loop among which those that are timed are chosen
COUNT = 16  # schedules timed of a contraction
FIRST, PER_KIND = 4, 2  # of them the first ones, and the first ones of each main loop
FAR = 1.6  # times the best forecast up to which others are worth timing
ROUNDS, REPEAT = 2, 12


@dataclass(frozen=True, slots=True)
class Problem:
    """One contraction in one element type.

    Attributes:
        name: Of the case.
        einsum: Its subscripts.
        extents: Extent of each label.
        kind: One of `KINDS`.
    """

    name: str
    einsum: str
    extents: tuple[tuple[str, int], ...]
    kind: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Problem:
        """That of a record in a file of times."""
        return cls(record["name"], record["einsum"], tuple(record["extents"].items()), record["kind"])

    def gemm(self, arch: str) -> Any:
        """Its plan, as a call makes it of dense operands."""
        from gett.ir.build import address, make_contraction
        from gett.ir.gemm import make_gemm_plan
        from gett.ir.subscripts import parse
        from gett.ir.tensors import TensorSpec, dense_strides, parse_dtype, resolve_precision

        name, _, precision = self.kind.partition(" ")
        dtype, sizes = parse_dtype(name), dict(self.extents)
        subscripts = parse(self.einsum, [len(x) for x in self.einsum.split("->")[0].split(",")])
        extents = [sizes[x] for x in subscripts.names]

        def operand(modes: tuple[int, ...]) -> Any:
            shape = tuple(extents[m] for m in modes)
            return address(modes, TensorSpec(shape, dense_strides(shape, dtype.itemsize), dtype), extents)

        sides = dict(zip("ab", map(operand, subscripts.inputs), strict=True))
        used = resolve_precision(precision or None, dtype)
        d = operand(subscripts.output)
        return make_gemm_plan(
            make_contraction(subscripts.names, tuple(extents), **sides, c=None, d=d, dtype=dtype, precision=used)
        )


def problems(kinds: Sequence[str] = KINDS, every: int = 2) -> Iterator[Problem]:
    """Every so-manieth TCCG and random case in some element types, people's workloads in their own, common shapes."""
    cases = [x for pair in zip_longest(load_cases()[::every], random_cases(60)[::every]) for x in pair if x is not None]
    work = load_workloads()
    for i in range(max(len(cases), len(work))):  # in turns, so that a run that ends early has some of each
        for kind in kinds:
            if i < len(cases):
                yield Problem(cases[i].name, cases[i].einsum, cases[i].extents, kind)
            if i < len(work) and not work[i].large and kind.split()[0] in work[i].dtypes:
                yield Problem(work[i].case.name, work[i].case.einsum, work[i].case.extents, kind)
    for case, kind in common_cases():
        yield Problem(case.name, case.einsum, case.extents, kind)


def _plain(facts: Any) -> dict[str, Any]:
    """A GPU's facts for another process, to which views of mappings do not go."""
    found = {f.name: getattr(facts, f.name) for f in fields(facts)}
    return {name: dict(x) if isinstance(x, Mapping) else x for name, x in found.items()}


def _facts(plain: dict[str, Any]) -> Any:
    from gett.hw.archs import ArchFacts

    return ArchFacts(**{name: MappingProxyType(x) if isinstance(x, dict) else x for name, x in plain.items()})


def choose(problem: Problem, arch: str, facts: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Its plan, and the schedules that are timed: the first, those of every main loop, and others of other tiles."""
    from gett.schedule.search import select

    select.WGMMA = select.DMMA = TRIED
    plan = problem.gemm(arch)
    found = select.searched(plan, _facts(facts))
    least = found[0].forecast.us
    chosen = dict.fromkeys(found[:FIRST])
    for kind in dict.fromkeys(s.kind for s in found):
        chosen |= dict.fromkeys([s for s in found if s.kind == kind and s.forecast.us < 3 * FAR * least][:PER_KIND])
    seen = {(s.kind, s.tiling.shape) for s in chosen}
    for s in found:
        if len(chosen) >= COUNT:
            break
        if (s.kind, s.tiling.shape) not in seen and s.forecast.us < FAR * least:
            seen.add((s.kind, s.tiling.shape))
            chosen[s] = None
    for s in found[: 3 * COUNT]:
        if len(chosen) >= COUNT:
            break
        chosen[s] = None
    return plan, list(chosen)


def _compile(plan: Any, schedule: Any, facts: dict[str, Any]) -> str:
    """Into the store of kernels; what is wrong, "" for nothing."""
    from gett.errors import GettError
    from gett.runtime.compiling import compile_schedule

    try:
        compile_schedule(plan, schedule, facts=_facts(facts))
    except GettError as error:
        return type(error).__name__
    return ""


def measure(wanted: Iterable[Problem], seconds: float, processes: int | None = None) -> Iterator[dict[str, Any]]:
    """A record of each contraction whose schedules are timed before `seconds` have passed."""
    end = time.monotonic() + seconds
    pool = ProcessPoolExecutor((processes or os.cpu_count() or 2) - 1, mp_context=get_context("spawn"))
    import cupy

    from gett.codec import encode
    from gett.runtime.build import load_executable
    from gett.runtime.compiling import compile_schedule
    from gett.runtime.device import device_facts
    from gett.tune.measure import Bench

    facts = device_facts()
    planning = facts.planning
    plain = _plain(planning)
    chosen = [(p, pool.submit(choose, p, facts.arch, plain)) for p in wanted]
    compiling: list[tuple[Problem, Any, list[tuple[Any, Future[str]]]]] = []

    def begin() -> None:
        problem, future = chosen.pop(0)
        plan, schedules = future.result()
        compiling.append((problem, plan, [(s, pool.submit(_compile, plan, s, plain)) for s in schedules]))

    try:
        while (chosen or compiling) and time.monotonic() < end:
            while chosen and len(compiling) < 8:
                begin()
            problem, plan, tasks = compiling.pop(0)
            ready = [s for s, task in tasks if not task.result()]
            try:
                bench = Bench(cupy, plan, planning.l2_bytes)
                bench.shuffle()
                runs = [load_executable(plan, compile_schedule(plan, s, facts=planning)) for s in ready]
                times = [[bench.time(run, REPEAT) for run in runs] for _ in range(ROUNDS)]
            except Exception as error:
                yield {"name": problem.name, "kind": problem.kind, "error": f"{type(error).__name__}: {error}"[:200]}
                continue
            best = [round(min(x), 2) for x in zip(*times, strict=True)]
            timed = [{"us": us, "schedule": encode(s)} for us, s in sorted(zip(best, ready, strict=True), key=_us)]
            del bench, runs
            cupy.get_default_memory_pool().free_all_blocks()
            yield {
                "name": problem.name, "einsum": problem.einsum, "extents": dict(problem.extents),
                "kind": problem.kind, "schedules": timed,
            }  # fmt: skip
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _us(timed: tuple[float, Any]) -> float:
    return timed[0]


def write(path: Path, device: str, commit: str, cases: Sequence[dict[str, Any]]) -> None:
    """The file of a device."""
    data = json.dumps({"device": device, "commit": commit, "cases": cases}, separators=(",", ":"))
    path.write_bytes(gzip.compress(data.encode(), 9, mtime=0))


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def main(out: str, seconds: float) -> int:
    """Time schedules for so many seconds and write them; 1 where a contraction failed."""
    import cupy

    from benchmarks.environment import describe

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    commit = str(describe()["commit"])
    cases: list[dict[str, Any]] = []
    start = time.monotonic()
    for record in measure(problems(), seconds):
        cases.append(record)
        if len(cases) % 10 == 0:
            print(f"{time.monotonic() - start:.0f} s: {len(cases)} contractions", flush=True)
            write(Path(out), name, commit, cases)
    write(Path(out), name, commit, cases)
    timed = sum(len(c.get("schedules", ())) for c in cases)
    errors = sum("error" in c for c in cases)
    print(f"{len(cases)} contractions, {timed} schedules, {errors} errors")
    return 1 if errors else 0
