"""Schedules with one field changed: refused with a reason, or legal, and then their kernels render and compile."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from gett.codec import Stale, decode, encode
from gett.codegen.records import Kernel
from gett.codegen.render import render_kernel
from gett.jit.compile import compile_uncached
from gett.schedule.legality import can_implement
from gett.schedule.rules.rule import name_of
from gett.schedule.spec.loader import RegisterStaged
from gett.schedule.spec.mainloop import (
    DmmaTma,
    Multistage,
    StreamLoad,
    StreamMap,
    StreamMatrix,
    StreamSum,
    WgmmaSplit,
    WgmmaTf32,
)
from gett.schedule.spec.schedule import OneTile, PersistentPanel, Schedule
from layouts.box import Box
from tests.cpu.schedule.mutations import Base, Mutations, bases, few_bases, mangled


def tried(found: tuple[Base, ...], seed: int, count: int) -> tuple[Counter[str], dict[tuple[str, str], Kernel]]:
    """How many mutations each rule refuses ("" for none), and the kernels of the others by architecture and text."""
    mutations, rules = Mutations(found, seed), Counter[str]()
    kernels: dict[tuple[str, str], Kernel] = {}
    for _ in range(count):
        s, plan, facts, what = mutations.next()
        try:
            refusal = can_implement(s, plan, facts)
            kernel = render_kernel(plan, s) if refusal is None else None
        except Exception as error:
            pytest.fail(f"seed {seed}, {s.kind}, {what}: {error!r}")
        rules[name_of(refusal.rule) if refusal is not None else ""] += 1
        assert refusal is None or refusal.reason
        if kernel is not None:
            kernels.setdefault((kernel.arch, kernel.source.text), kernel)
    return rules, kernels


def check_compile(kernels: list[Kernel]) -> None:
    def compiled(kernel: Kernel) -> bytes:
        return compile_uncached(kernel.source.text, kernel.arch, allow_spills=True).cubin

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(compiled, kernels))


def test_a_field_changed_is_refused_or_renders() -> None:
    rules, kernels = tried(few_bases(), 1, 1000)
    assert len(rules) > 30
    assert rules["domains"] > 150
    assert len(kernels) > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_field_changed_is_refused_or_renders_and_compiles(seed: int) -> None:
    every = bases()
    known = set()
    for s, plan, facts in every:
        assert can_implement(s, plan, facts) is None
        known.add(render_kernel(plan, s).source.text)
    rules, kernels = tried(every, seed, 25_000)
    assert len(rules) > 50
    assert rules[""] > 250
    others = [kernel for (_, text), kernel in kernels.items() if text not in known]
    assert len(others) > 125
    check_compile(random.Random(3).sample(others, 10))


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_stored_schedule_of_any_kind_is_stale_refused_or_renders(count: int) -> None:
    rng, legal = random.Random(4), 0
    stored = [(json.loads(json.dumps(encode(s))), plan, facts) for s, plan, facts in few_bases()]
    for number in range(count):
        data, plan, facts = rng.choice(stored)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            data = mangled(data, rng)
        try:
            schedule = decode(Schedule, data)
        except Stale:
            continue
        try:
            if can_implement(schedule, plan, facts) is None:
                legal += 1
                render_kernel(plan, schedule)
        except Exception as error:
            pytest.fail(f"number {number}, {schedule.kind}: {error!r}")
    assert legal > count // 200


def loop(s: Schedule, **changes: Any) -> Schedule:
    return replace(s, mainloop=replace(s.mainloop, **changes))


def side(s: Schedule, **changes: Any) -> Schedule:
    """The schedule with another loader of A."""
    assert not isinstance(s.mainloop, StreamMatrix)
    return loop(s, a=replace(s.mainloop.a, **changes))


ONE = Box((), ())
PANEL = PersistentPanel(132, "a", False, 1)
# A main loop, what is changed, and the rule that refuses it. Most of these compile, and would be wrong or hang.
HOLES: list[tuple[type, Callable[[Schedule], Schedule], str]] = [
    (WgmmaSplit, lambda s: replace(s, scheduler=PANEL, workspace_bytes=0), "panel"),
    (WgmmaTf32, lambda s: replace(s, scheduler=PANEL, workspace_bytes=0), "panel"),
    (DmmaTma, lambda s: replace(s, scheduler=PANEL, workspace_bytes=0), "panel"),
    (WgmmaSplit, lambda s: replace(s, scheduler=replace(s.scheduler, cluster=(0, 1))), "domains"),
    (WgmmaSplit, lambda s: replace(s, scheduler=replace(s.scheduler, cluster=(-1, -1))), "domains"),
    (WgmmaSplit, lambda s: replace(s, scheduler=replace(s.scheduler, cluster_order=(1,))), "scheduler"),
    (WgmmaSplit, lambda s: side(s, major="zz"), "domains"),
    (DmmaTma, lambda s: side(s, pitch=64), "copies"),
    (Multistage, lambda s: replace(s, scheduler=OneTile(0)), "domains"),
    (Multistage, lambda s: replace(s, scheduler=OneTile(-1)), "domains"),
    (Multistage, lambda s: replace(s, scheduler=OneTile(2**31)), "domains"),
    (Multistage, lambda s: replace(s, scheduler=OneTile(2**31 - 1, s.split_k)), "grid"),
    (Multistage, lambda s: replace(s, workspace_bytes=2**62), "workspace"),
    (Multistage, lambda s: replace(s, arch="sm_100a"), "architecture"),
    (Multistage, lambda s: replace(s, arch="zz"), "domains"),
    (Multistage, lambda s: loop(s, warps=(0, 1)), "domains"),
    (Multistage, lambda s: loop(s, stages=1), "domains"),
    (WgmmaSplit, lambda s: loop(s, plane_stages=1), "domains"),
    (Multistage, lambda s: side(s, vector=0), "domains"),
    (RegisterStaged, lambda s: side(s, vector_group="k" if s.multistage.a.vector_group == "mn" else "mn"), "loaders"),
    (StreamMap, lambda s: side(s, width=16), "vectors"),
    (StreamMap, lambda s: replace(s, tiling=replace(s.tiling, l=ONE)), "groups"),
    (StreamSum, lambda s: loop(s, c=StreamLoad(splat=True)), "staging"),
    (StreamSum, lambda s: loop(s, a=replace(s.mainloop.a, shift=1)), "staging"),
    (StreamMatrix, lambda s: replace(s, tiling=replace(s.tiling, l=ONE)), "groups"),
    (StreamMatrix, lambda s: loop(s, unroll=4096), "matrix vectors"),
]


@pytest.mark.parametrize("number", range(len(HOLES)))
def test_what_a_single_field_makes_wrong_is_refused(number: int) -> None:
    kind, change, rule = HOLES[number]
    found = [(change(s), plan, facts) for s, plan, facts in few_bases() if kind in (type(s.mainloop), loader_of(s))]
    assert found
    for s, plan, facts in found:
        refusal = can_implement(s, plan, facts)
        assert refusal is not None, s
        assert name_of(refusal.rule) == rule, refusal.reason


def loader_of(s: Schedule) -> type:
    return type(getattr(s.mainloop, "a", None))
