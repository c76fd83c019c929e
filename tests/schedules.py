"""Which schedules of a search the tests take. Knows the parts of schedules, and no contraction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.search.select import candidates
from gett.schedule.spec.loader import CpAsync, RegisterStaged
from gett.schedule.spec.mainloop import Multistage, Stream, StreamMatrix
from gett.schedule.spec.schedule import Schedule


def spread(found: Iterable[Schedule], count: int) -> list[Schedule]:
    """The first schedule, then those that differ from all before in tile, in loaders or in the rest of the loop."""
    kept: list[Schedule] = []
    seen: list[set[Any]] = [set(), set(), set()]
    rest = []
    for s in found:
        marks = _marks(s)
        if all(m in old for m, old in zip(marks, seen, strict=True)):
            rest.append(s)
            continue
        kept.append(s)
        for m, old in zip(marks, seen, strict=True):
            old.add(m)
    return (kept + rest)[:count]


def _marks(s: Schedule) -> tuple[Any, Any, Any]:
    """What `spread` compares: tile, main loop, loaders."""
    t, loop = s.tiling, s.mainloop
    if not isinstance(loop, Multistage):
        return (s.kind, t.shape, s.threads, 1), (False, s.split_k > 1, False), ()
    loaders = tuple(_loader(x) for x in (loop.a, loop.b))
    return (s.kind, t.shape, loop.warps, t.batches), (loop.k_table, s.split_k > 1, t.l is not None), loaders


def _loader(x: CpAsync | RegisterStaged) -> tuple[str, str, int, str]:
    return type(x).__name__, x.major, x.vector, x.vector_group


def multistage_candidates(plan: GemmPlan, arch: str, facts: ArchFacts | None = None) -> list[Schedule]:
    """The candidates of the main loops that take any layout."""
    return [s for s in candidates(plan, arch, facts) if isinstance(s.mainloop, Multistage)]


def part_names(s: Schedule) -> str:
    """The types of a schedule's parts: main loop with its loaders, store, tile scheduler."""
    loop = s.mainloop
    loaders = "" if isinstance(loop, Stream | StreamMatrix) else f"<{type(loop.a).__name__}, {type(loop.b).__name__}>"
    return f"{type(loop).__name__}{loaders} {type(s.epilogue.store).__name__} {type(s.scheduler).__name__}"
