"""From a plan to schedules: which main loops are searched, and in what order their schedules stand."""

from __future__ import annotations

import math
from dataclasses import replace

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts, arch_facts
from gett.hw.dtypes import data_type, finer
from gett.ir.gemm import GemmPlan
from gett.schedule.cost.estimate import products_us
from gett.schedule.cost.hopper_bounds import least_hopper_us
from gett.schedule.cost.hopper_units import SPLIT
from gett.schedule.known.lookup import known_schedule
from gett.schedule.lower import at_precision
from gett.schedule.mainloops.stream import LIMITS
from gett.schedule.rules.rule import first_broken
from gett.schedule.search.base import best_schedules
from gett.schedule.search.hopper.fragments import DmmaTmaSearch, WgmmaTf32Search
from gett.schedule.search.hopper.gather import GatherSearch
from gett.schedule.search.hopper.search import Made, both_roles
from gett.schedule.search.hopper.wgmma_rs import WgmmaRSSearch
from gett.schedule.search.hopper.wgmma_split import WgmmaSplitCopySearch, WgmmaSplitSearch
from gett.schedule.search.hopper.wgmma_ss import WgmmaSSSearch
from gett.schedule.search.multistage import MultistageSearch, tiled_searches
from gett.schedule.search.packed import packed_schedules
from gett.schedule.search.stream import is_stream, stream_schedule
from gett.schedule.search.stream_matrix import matrix_schedules
from gett.schedule.spec.hopper_needs import dmma_takes, planes, wgmma_takes
from gett.schedule.spec.schedule import Schedule

WGMMA, DMMA, MULTISTAGE, MATRIX = 12, 6, 64, 4
"""Schedules kept of each kind of main loop."""


def select_schedule(plan: GemmPlan, arch: str, facts: ArchFacts | None = None) -> Schedule:
    """The schedule that was the fastest of those timed, else the one that the cost model expects to be.

    Raises:
        ScheduleError: None meets the hard limits; the text names the last one that was broken.
    """
    return candidates(plan, arch, facts, every=False, first=True)[0]


def candidates(
    plan: GemmPlan, arch: str, facts: ArchFacts | None = None, *, every: bool = True, first: bool = False
) -> list[Schedule]:
    """The most promising schedules of every main loop that takes the plan, best first; one that is known leads.

    Args:
        plan: What to run.
        arch: Architecture, e.g. `"sm_90a"`.
        facts: Of the GPU at hand; the architecture's nominal ones by default.
        every: Whether main loops are searched that cannot have the first one, since a bound of their time is above it.
        first: Whether only the first one is wanted: searches then end when they cannot have it.

    Raises:
        ScheduleError: None meets the hard limits.
    """
    facts = facts or arch_facts(arch)
    known = known_schedule(plan, facts)
    if known is None:
        return searched(plan, facts, every=every, first=first)
    return [known] if first else [known, *(s for s in searched(plan, facts, every=every) if s != known)]


def searched(plan: GemmPlan, facts: ArchFacts, *, every: bool = True, first: bool = False) -> list[Schedule]:
    """The same by the cost model alone.

    Raises:
        ScheduleError: None meets the hard limits.
    """
    found: list[Schedule] = []

    def below() -> float | None:
        return min((s.forecast.us for s in found), default=math.inf) if first else None

    if is_stream(plan):
        made = stream_schedule(plan, facts)
        if (broken := first_broken(LIMITS, made, plan, facts)) is not None:
            raise ScheduleError(broken.reason)
        return [made]
    in_planes = planes(plan) is not None and wgmma_takes(plan, facts.arch)
    tiled = tiled_searches(plan, facts)
    # Planes cost their making: where multiply-adds may be faster than any planes, they are searched first.
    before = in_planes and not (first and least_hopper_us(plan, facts, SPLIT) < min(x.least for x in tiled))
    found += best_schedules(tiled, MULTISTAGE, below()) if before else []
    if every or not found or least_hopper_us(plan, facts, SPLIT) < found[0].forecast.us:
        found += wgmma_schedules(plan, facts, below())
    found += dmma_schedules(plan, facts, below())
    if not before:
        found += best_schedules(tiled, MULTISTAGE, below(), needed=not found)
    found += matrix_schedules(plan, facts)[:MATRIX]
    refusal = tiled[0].refusal
    if not found:  # small extents and single elements: a tile with enough threads, though most of it is padding
        fallback = MultistageSearch(plan, facts, fallback=True)
        found = best_schedules([fallback], MULTISTAGE, below())
        refusal = fallback.refusal or refusal
    if not found:
        raise ScheduleError(refusal or f"no tile fits extents {plan.extent_m} x {plan.extent_n}")
    least = min(s.forecast.us for s in found)
    found += packed_schedules(plan, facts, tensor_map_schedules, least, least_tensor_map_us(plan, facts), first)
    return sorted(found, key=lambda s: s.forecast.us)


def tensor_map_schedules(plan: GemmPlan, facts: ArchFacts, below: float | None = None) -> list[Schedule]:
    """Schedules of the main loops that tensor maps feed: what copies are made for; `below` as searches take it."""
    return wgmma_schedules(plan, facts, below, needed=below is None) or dmma_schedules(plan, facts, below)


def least_tensor_map_us(plan: GemmPlan, facts: ArchFacts) -> float:
    """A bound of the time of `tensor_map_schedules`, infinite where there are none."""
    if planes(plan) is not None:
        return max(products_us(plan, facts), least_hopper_us(plan, facts, SPLIT))
    if dmma_takes(plan, facts.arch):
        loops = [DmmaTmaSearch.mainloop]
    else:
        loops = [x.mainloop for x in (WgmmaSSSearch, WgmmaRSSearch, WgmmaTf32Search)]
        loops = loops if wgmma_takes(plan, facts.arch) else []
    return min((least_hopper_us(plan, facts, loop) for loop in loops), default=math.inf)


def dmma_schedules(plan: GemmPlan, facts: ArchFacts, below: float | None = None) -> list[Schedule]:
    """Schedules of float64 by tensor map, none for other types."""
    if not dmma_takes(plan, facts.arch):
        return []
    if below is not None and least_hopper_us(plan, facts, DmmaTmaSearch.mainloop) >= below:
        return []
    return best_schedules(both_roles(DmmaTmaSearch, plan, facts), DMMA, below, needed=False)


def wgmma_schedules(
    plan: GemmPlan, facts: ArchFacts, below: float | None = None, needed: bool = True
) -> list[Schedule]:
    """Schedules of the Hopper main loops; operands are gathered only where tensor maps move nothing.

    Where one is not `needed`, none is looked for that takes `below` or more, or whose operands are gathered.
    """
    if not wgmma_takes(plan, facts.arch):
        return []

    def best(kind: type[Made], needed: bool) -> list[Schedule]:
        if below is not None and not needed and least_hopper_us(plan, facts, kind.mainloop) >= below:
            return []
        return best_schedules(both_roles(kind, plan, facts), WGMMA, below, needed=needed)

    if planes(plan) is not None:
        return best(WgmmaSplitSearch, needed) or best(WgmmaSplitCopySearch, needed)
    found = best(WgmmaSSSearch, needed)
    found += best(WgmmaRSSearch, needed and not found)
    if not data_type(plan.contraction.dtype).exact:  # tensor maps round, gathering warps do not
        found += best(WgmmaTf32Search, needed and not found)
        return found or finer_schedules(plan, facts, below, needed)
    return found or (best(GatherSearch, True) if needed else [])


def finer_schedules(
    plan: GemmPlan, facts: ArchFacts, below: float | None = None, needed: bool = True
) -> list[Schedule]:
    """Schedules in planes where the plan's precision has none: who makes planes takes operands in any order."""
    precision = finer(plan.contraction.dtype, plan.contraction.precision)
    if not precision:
        return []
    found = wgmma_schedules(at_precision(plan, precision), facts, below, needed)
    return [replace(s, precision=precision) for s in found]
