"""For each bandwidth-bound main loop and each of its rules a schedule that breaks the rule first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from gett.hw.archs import arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.search.stream import stream_schedule
from gett.schedule.search.stream_matrix import matrix_schedules
from gett.schedule.spec.epilogue import Epilogue, VectorSource, VectorStore
from gett.schedule.spec.mainloop import StreamLoad, StreamMap, StreamMatrix, StreamSum
from gett.schedule.spec.schedule import OneTile, Schedule
from layouts.box import Box, TileDim
from tests.cases import Case
from tests.cpu.schedule.changed_schedules import loop, tiling
from tests.cpu.schedule.hopper_schedules import Found

FACTS = arch_facts("sm_90a")
CASES = {
    StreamMap: Case("transposed", "ijk,ijk->kji", {"i": 64, "j": 80, "k": 96}),
    StreamSum: Case("sums", "ijk,i->kj", {"i": 512, "j": 80, "k": 96}),
    StreamMatrix: Case("gate", "ijk,jx->ikx", {"i": 4096, "j": 4, "k": 512, "x": 4}),
}


@cache
def base(kind: type) -> Found:
    """A legal schedule of a main loop."""
    plan = make_gemm_plan(CASES[kind].contraction("float32"))
    made = matrix_schedules(plan, FACTS)[0] if kind is StreamMatrix else stream_schedule(plan, FACTS)
    return made, plan, FACTS


def of_schedule(change: Callable[[Schedule], Schedule]) -> Callable[[Found], Found]:
    return lambda found: (change(found[0]), *found[1:])


def stored(s: Schedule, vector: int) -> Schedule:
    return replace(s, epilogue=Epilogue(VectorStore(vector)))


def read(s: Schedule, **changes: Any) -> Schedule:
    """With A read in another way."""
    return loop(s, a=replace(s.stream.a, **changes))


def flat(box: Box) -> Box:
    return Box(box.extents, (TileDim(tuple(range(len(box.extents))), box.size),))


def flattened(s: Schedule) -> Schedule:
    return tiling(s, m=flat(s.tiling.m))


def other_plan(kind: type) -> GemmPlan:
    return make_gemm_plan(CASES[kind].contraction("float32"))


def long(found: Found) -> Found:
    """M of more elements than an index has."""
    s, plan, facts = found
    extents = (1 << 31, *s.tiling.m.extents[1:])
    modes = (replace(plan.m[0], extent=1 << 31), *plan.m[1:])
    return tiling(s, m=Box(extents, s.tiling.m.dims)), replace(plan, m=modes), facts


def small(found: Found) -> Found:
    s, plan, facts = found
    return s, plan, replace(facts, smem_per_block=s.smem.size - 1)


SHARED: dict[str, Callable[[Found], Found]] = {
    "groups": of_schedule(lambda s: tiling(s, m=Box((3,), (TileDim((0,), 3),)))),
    "parts": of_schedule(lambda s: stored(s, 16)),
    "operands": of_schedule(lambda s: loop(s, c=StreamLoad())),
    "source": of_schedule(lambda s: replace(s, epilogue=replace(s.epilogue, source=VectorSource()))),
    "threads": of_schedule(lambda s: loop(s, threads=100)),
    "counts": of_schedule(lambda s: loop(s, unroll=4096)),
    "block": of_schedule(lambda s: tiling(s, shape=(1, 1, 1 << 20))),
    "modes": of_schedule(flattened),
    "shared memory plan": of_schedule(lambda s: replace(s, smem=replace(s.smem, size=s.smem.size + 128))),
    "split": of_schedule(lambda s: replace(s, scheduler=OneTile(split_k=1 << 20))),
    "workspace": of_schedule(lambda s: replace(s, workspace_bytes=8)),
    "walks": of_schedule(lambda s: loop(s, walk_d=())),
    "staging": of_schedule(lambda s: read(s, mask=1, staged=False)),
    "vectors": of_schedule(lambda s: read(s, width=16)),
    "grid": of_schedule(lambda s: replace(s, scheduler=OneTile(group_m=1 << 20))),
    "shared memory": small,
}
"""Changes of a legal schedule, by the rule that they break."""

OWN: dict[type, dict[str, Callable[[Found], Found]]] = {
    StreamMap: {
        "operands": lambda found: (found[0], other_plan(StreamSum), found[2]),
        "staging": of_schedule(lambda s: read(s, splat=True)),
    },
    StreamSum: {
        "operands": lambda found: (found[0], other_plan(StreamMap), found[2]),
        "vectors": of_schedule(lambda s: loop(s, b=replace(s.stream.b, width=16))),
        "staging": of_schedule(lambda s: loop(s, b=replace(s.stream.b, shared=True))),
        "boxes": of_schedule(lambda s: tiling(s, k=Box(s.tiling.k.extents, (TileDim((0,), 512),)))),
    },
    StreamMatrix: {
        "product": lambda found: (found[0], replace(found[1], k=()), found[2]),
        "extents": long,
        "small": of_schedule(lambda s: tiling(s, shape=(s.tiling.shape[0], 1, 1))),
        "matrix vectors": of_schedule(lambda s: loop(s, lanes_n=3)),
    },
}
"""Changes that one main loop alone has, or that break a shared rule of it in another way."""


def broken(kind: type, rule: str) -> Found:
    """A schedule of a main loop that breaks a rule first."""
    change = OWN[kind][rule] if rule in OWN[kind] else SHARED[rule]
    return change(base(kind))
