"""Rules of the Hopper schedules: one schedule breaks each of them, those that the searches find break none."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from benchmarks.cases import load_cases
from benchmarks.random_cases import random_cases
from gett.errors import ScheduleError
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.legality import can_implement, check_schedule, shared_memory_plan
from gett.schedule.lower import lower_plan
from gett.schedule.mainloops.table import HOPPER_KINDS, KINDS, smem_plan
from gett.schedule.rules.common import architecture, domains, precision, splits
from gett.schedule.rules.rule import Rule, name_of
from gett.schedule.search.base import best_schedules
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.search.stream import is_stream, stream_schedule
from gett.schedule.spec.epilogue import Epilogue, RowStore
from gett.schedule.spec.loader import Stationary, Tma
from gett.schedule.spec.mainloop import Multistage, StreamMap, StreamSum
from gett.schedule.spec.schedule import PersistentPanel, Schedule
from tests import spec_cases
from tests.cases import AWKWARD, DENSE, Case, small_tccg
from tests.cpu.schedule import hopper_schedules as hopper
from tests.cpu.schedule.broken_kinds import breaking
from tests.cpu.schedule.broken_schedules import CASES, panel_of_none
from tests.cpu.schedule.changed_schedules import loop
from tests.cpu.schedule.hopper_schedules import FACTS, Found, schedules, store_of
from tests.specs import few

FIRST = (domains, architecture, splits, precision)
RULES = [(kind, r) for kind, found in HOPPER_KINDS.items() for r in (*FIRST, *found.rules, shared_memory_plan)]


def test_each_rule_has_a_sentence_and_a_name_of_its_own() -> None:
    for found in KINDS.values():
        assert len(set(map(name_of, found.rules))) == len(found.rules)
        assert all((r.__doc__ or "").endswith(".") for r in found.rules)
    assert set(CASES) <= {name_of(r) for _, r in RULES}


@pytest.mark.parametrize(("kind", "rule"), RULES, ids=lambda x: x.__name__)
def test_each_rule_of_each_main_loop_refuses_a_schedule(kind: type, rule: Rule) -> None:
    found = breaking(kind, name_of(rule))
    assert found
    for make in found:
        s, plan, facts = make()
        refusal = can_implement(s, plan, facts)
        assert type(s.mainloop) is kind
        assert refusal is not None
        assert refusal.rule == rule, refusal.reason


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_that_breaks_a_rule_is_refused_by_it(name: str) -> None:
    for make in CASES[name]:
        s, plan, facts = make()
        refusal = can_implement(s, plan, facts)
        assert refusal is not None
        assert name_of(refusal.rule) == name, refusal.reason
        assert re.search(r"\d", refusal.reason), refusal.reason
        with pytest.raises(ScheduleError, match=re.escape(refusal.reason)):
            check_schedule(s, plan, facts)


def planned(s: Schedule, plan: GemmPlan) -> Schedule:
    """The schedule with the shared-memory plan that its parts make."""
    return replace(s, smem=smem_plan(s, lower_plan(plan, s.tiling)))


BASES = (hopper.plain, hopper.vectors, hopper.stationary, hopper.one_panel, hopper.mma_tiles, hopper.exchanging)
BASES += (hopper.clustered, hopper.residue, hopper.mixed, hopper.unsliced)
BASES += (hopper.added, hopper.gathered, hopper.transposed, hopper.registers, hopper.shared_registers)


@pytest.mark.parametrize("base", BASES)
def test_what_the_cases_start_from_is_legal(base: Callable[[], Found]) -> None:
    s, plan, facts = base()
    assert can_implement(s, plan, facts) is None
    check_schedule(s, plan, facts)


def test_an_operand_that_stays_must_fit() -> None:
    s, plan, facts = hopper.plain()
    assert isinstance(s.hopper.a, Tma)
    group_m = 1
    made = loop(s, a=Stationary(s.hopper.a, s.tiling.k.tiles), ping_pong=s.hopper.ping_pong)
    made = planned(replace(made, scheduler=PersistentPanel(132, "a", False, group_m)), plan)
    refusal = can_implement(made, plan, facts)
    assert refusal is not None
    assert name_of(refusal.rule) == "shared memory"
    assert str(facts.smem_per_block) in refusal.reason


def row_store_for_a_map() -> Found:
    s, plan, facts = hopper.plain()
    return replace(s, epilogue=Epilogue(RowStore(s.tiling.n.size, store_of(s).stage))), plan, facts


# Schedules that compile, start, and would be wrong or hang.
WRONG: dict[str, tuple[Callable[[], Found], str]] = {
    "a block of one tile on 4096^3": (CASES["reuse"][0], "reuse"),
    "gather with a cluster": (CASES["producers"][3], "producers"),
    "a panel scheduler and nothing stationary": (panel_of_none, "panel"),
    "rows from a tile that is staged for a map": (row_store_for_a_map, "copy kind"),
    "ping-pong of three warpgroups": (CASES["warpgroups"][0], "warpgroups"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_schedules_that_compile_are_refused(what: str) -> None:
    make, rule = WRONG[what]
    refusal = can_implement(*make())
    assert refusal is not None
    assert name_of(refusal.rule) == rule


@pytest.mark.slow
def test_numbers_changed_at_random_are_refused_or_legal_but_never_an_error() -> None:
    rng = random.Random(7)
    legal = 0
    for base in BASES:
        s, plan, facts = base()
        for _ in range(60):
            made = shaken(s, rng)
            if made is not None:
                legal += can_implement(made, plan, facts) is None
    assert legal < len(BASES) * 60 / 2


def shaken(x: Any, rng: random.Random) -> Any:
    """A record with one number somewhere in it changed, None where a record refuses to be made."""
    names = [f.name for f in fields(x) if f.name != "forecast"]
    for name in rng.sample(names, len(names)):
        value = getattr(x, name)
        if isinstance(value, tuple) and value:
            i = rng.randrange(len(value))
            part = changed_number(value[i], rng)
            new = None if part is None else (*value[:i], part, *value[i + 1 :])
        else:
            new = changed_number(value, rng)
        if new is not None:
            try:
                return replace(x, **{name: new})
            except ValueError:
                return None
    return None


def changed_number(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, max(0, value - 1), 2 * value, value // 2, 0])
    return shaken(value, rng) if is_dataclass(value) else None


# Everything that kernels are tested with, on few multiprocessors too, so that blocks make one tile, or many.
FEATURES = (*spec_cases.REUSE, *spec_cases.MMA_TILES, *spec_cases.STATIONARY, *spec_cases.EACH_PANEL)
FEATURES += (*spec_cases.ONE_PANEL, *spec_cases.K_RESIDUE, *spec_cases.EXCHANGE, *spec_cases.TMA)
FEATURES += (*spec_cases.GATHER_TRANSPOSE, *spec_cases.ROW_STORE)


def bench() -> Iterator[Case]:
    for x in load_cases():
        yield Case(x.name, x.einsum, dict(x.extents))
        yield Case(f"{x.name}-odd", x.einsum, dict(x.odd().extents))
    for x in random_cases():
        yield Case(x.name, x.einsum, dict(x.extents))


def refused(
    cases: tuple[Case, ...], counts: tuple[int, ...], limit: int, dtypes: tuple[str, ...] = ("float16",)
) -> tuple[int, list[tuple[Case, str]]]:
    """How many schedules there are, and those that are refused."""
    total, found = 0, []
    for case in cases:
        for dtype, c in itertools.product(dtypes, (None, DENSE)):
            plan = make_gemm_plan(case.contraction(dtype, with_c=c))
            for facts in (few(FACTS, n) for n in counts):
                for s in schedules(plan, facts, limit):
                    total += 1
                    if (refusal := can_implement(s, plan, facts)) is not None:
                        found.append((case, refusal.reason))
    return total, found


@pytest.mark.parametrize(("part", "parts"), [(0, 32), *(pytest.param(i, 8, marks=pytest.mark.slow) for i in range(8))])
def test_the_searches_find_legal_schedules_of_every_kind(part: int, parts: int) -> None:
    total, found = refused(FEATURES[part::parts], (2, 16, 132), 8, ("float16", "bfloat16")[: 2 if part % 4 == 1 else 1])
    assert total > 1600 // parts
    assert not found


def test_the_other_searches_find_legal_schedules() -> None:
    kinds = set()
    for case in AWKWARD:
        plan = make_gemm_plan(case.contraction("float32"))
        streams = [stream_schedule(plan, FACTS)] if is_stream(plan) else []
        for s in streams or best_schedules([MultistageSearch(plan, FACTS)], 4):
            kinds.add(type(s.mainloop))
            assert can_implement(s, plan, FACTS) is None
    assert kinds == {Multistage, StreamMap, StreamSum}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_searches_find_legal_schedules_of_real_cases(part: int) -> None:
    cases = (*AWKWARD, *small_tccg(), *bench())
    total, found = refused(cases[part::4], (132,), 4)
    assert total > 200
    assert not found
