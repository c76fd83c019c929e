"""Schedules of the Hopper main loops as their searches find them, one of every kind, for tests of rules and kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.search.base import best_schedules
from gett.schedule.search.hopper.gather import GatherSearch
from gett.schedule.search.hopper.search import HopperSearch, both_roles
from gett.schedule.search.hopper.wgmma_rs import WgmmaRSSearch
from gett.schedule.search.hopper.wgmma_ss import WgmmaSSSearch
from gett.schedule.search.stream import is_stream
from gett.schedule.spec.epilogue import RowStore, TmaStore
from gett.schedule.spec.hopper_needs import wgmma_takes
from gett.schedule.spec.loader import Stationary, Tma
from gett.schedule.spec.schedule import PersistentPanel, Schedule
from tests import spec_cases
from tests.cases import DENSE, Case, Layout
from tests.specs import few

FACTS = arch_facts("sm_90a")
SEARCHES: tuple[type[HopperSearch], ...] = (WgmmaSSSearch, WgmmaRSSearch, GatherSearch)
SQUARE = Case("square", "ik,jk->ij", {"i": 4096, "j": 4096, "k": 4096})
UNITS = Case("crossed", "mkl,nlk->mn", {"m": 512, "n": 512, "k": 64, "l": 64})

Where = Callable[[Schedule], bool]
Found = tuple[Schedule, GemmPlan, ArchFacts]


def schedules(plan: GemmPlan, facts: ArchFacts, limit: int) -> Iterator[Schedule]:
    """The most promising schedules of every Hopper search."""
    if not is_stream(plan) and wgmma_takes(plan, facts.arch):
        for search in SEARCHES:
            yield from best_schedules(both_roles(search, plan, facts), limit)


class WholeSS(WgmmaSSSearch):
    """D's tile is staged in one piece."""

    tried = replace(WgmmaSSSearch.tried, subtiles=())


@lru_cache
def _searched(case: Case, search: type[HopperSearch], sm_count: int, added: bool) -> tuple[GemmPlan, list[Schedule]]:
    plan = make_gemm_plan(case.contraction("float16", with_c=DENSE if added else None))
    return plan, best_schedules(both_roles(search, plan, few(FACTS, sm_count)), 60)


def first(
    case: Case,
    where: Where = lambda s: True,
    *,
    search: type[HopperSearch] = WholeSS,
    sms: int = 132,
    c: bool = False,
) -> Found:
    """The first schedule of a case that is as asked for, with its plan and its GPU."""
    plan, made = _searched(case, search, sms, c)
    return next(s for s in made if where(s)), plan, few(FACTS, sms)


def store_of(s: Schedule) -> TmaStore:
    """The store by tensor map."""
    assert isinstance(s.epilogue.store, TmaStore)
    return s.epilogue.store


def with_store(s: Schedule, **changes: object) -> Schedule:
    """The same schedule with another store by tensor map."""
    return replace(s, epilogue=replace(s.epilogue, store=replace(store_of(s), **changes)))


def plain() -> Found:
    """Both operands and D by tensor map, blocks by themselves."""
    return first(SQUARE, lambda s: isinstance(s.epilogue.store, TmaStore) and s.cluster == (1, 1))


def vectors() -> Found:
    """D in vectors."""
    return first(spec_cases.STATIONARY[0], lambda s: not isinstance(s.epilogue.store, TmaStore), sms=2)


def stays(s: Schedule) -> bool:
    return any(isinstance(x, Stationary) for x in (s.hopper.a, s.hopper.b))


def stationary() -> Found:
    """An operand that stays whole."""
    return first(spec_cases.STATIONARY[0], stays, sms=2)


def one_panel() -> Found:
    """Blocks that keep to a panel each."""

    def keeps(s: Schedule) -> bool:
        return isinstance(s.scheduler, PersistentPanel) and s.scheduler.one_panel

    return first(spec_cases.ONE_PANEL[0], keeps, sms=3)


def clustered() -> Found:
    """Blocks that share operands."""
    return first(spec_cases.REUSE[0], lambda s: s.cluster != (1, 1), sms=6)


def residue() -> Found:
    """K-tiles that are no multiple of an instruction's k."""
    return first(spec_cases.K_RESIDUE[0], lambda s: s.tiling.k.size < s.tiling.shape[2], sms=2)


def mixed() -> Found:
    """One operand gathered, the other by tensor map."""
    case = Case("mixed", "ik,kj->ij", {"i": 301, "j": 512, "k": 192}, a=Layout((), (1, 1), 1))
    return first(case, lambda s: isinstance(s.hopper.a, Tma) or isinstance(s.hopper.b, Tma), search=GatherSearch)


def unsliced() -> Found:
    """A in registers, all of K in a block."""
    case = Case("crossed-wide", "mkl,nlk->mn", {"m": 2048, "n": 2048, "k": 64, "l": 64})
    return first(case, lambda s: s.split_k == 1, search=WgmmaRSSearch)


def mma_tiles() -> Found:
    """Several MMA tiles a tile of D."""
    return first(spec_cases.MMA_TILES[0], lambda s: s.tiling.mma_tiles > 1, sms=2)


def exchanging() -> Found:
    """Two blocks that exchange halves."""
    return first(spec_cases.EXCHANGE[0], lambda s: getattr(s.epilogue.store, "exchange", None) is not None, sms=16)


def added() -> Found:
    """C by tensor map."""
    return first(SQUARE, c=True)


def gathered() -> Found:
    """Both operands gathered, D row by row."""
    return first(spec_cases.ROW_STORE[0], lambda s: isinstance(s.epilogue.store, RowStore), search=GatherSearch)


def transposed() -> Found:
    """A gathered and transposed."""
    return first(spec_cases.GATHER_TRANSPOSE[2], search=GatherSearch)


def registers() -> Found:
    """A in registers."""
    return first(UNITS, lambda s: s.cluster == (1, 1), search=WgmmaRSSearch)


def shared_registers() -> Found:
    """A in registers, shared by two blocks."""
    return first(UNITS, lambda s: s.cluster == (1, 2), search=WgmmaRSSearch)
