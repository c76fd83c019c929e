"""Contractions whose K is no multiple of 16, and their schedules with K tails; for all tests."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import Case

# Both majors, swizzles of all spans and none, chunks with rows to spare, several k-tiles, K of two modes, batches,
# edges that hang over.
CASES = (
    Case("mixed-24", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 6, "i": 40, "c": 8, "b": 12, "k": 30}),
    Case("chunks-24", "bki,cak->icba", {"b": 7, "i": 24, "c": 32, "a": 33, "k": 24}),
    Case("long-chunks-24", "cmi,bam->icba", {"c": 8, "m": 24, "i": 40, "b": 64, "a": 20}),
    Case("spare-36", "cabkd,kj->dcjba", {"c": 2, "a": 48, "b": 5, "k": 36, "d": 48, "j": 24}),
    Case("thin-84", "abkc,kj->cbja", {"a": 32, "b": 18, "k": 84, "c": 40, "j": 24}),
    Case("k-major-40", "mk,nk->mn", {"m": 200, "n": 136, "k": 40}),
    Case("k-major-56", "bmk,bnk->bmn", {"b": 3, "m": 72, "n": 200, "k": 56}),
    Case("k-major-8", "mk,nk->mn", {"m": 328, "n": 136, "k": 8}),
    Case("three-tiles-72", "mk,kn->mn", {"m": 200, "n": 264, "k": 72}),
    Case("two-modes-6x14", "lkm,kln->mn", {"k": 6, "l": 14, "m": 136, "n": 200}),
)


def tailed(plan: GemmPlan, facts: ArchFacts) -> list[Schedule]:
    """Schedules whose copies fill only a part of their k-tiles."""
    return [s for s in sm90_candidates(plan, facts, 60) if s.box_k.size < s.block[2]]


def kind(schedule: Schedule) -> tuple[object, ...]:
    """What tells apart the tails of two schedules."""
    roles = schedule.roles
    assert roles is not None
    ways = [(x.major, x.map.span, bool(x.run), min(len(x.repeats), 1), x.copies > 8) for x in (roles.a, roles.b) if x]
    return (schedule.box_k.size, schedule.box_k.tiles > 1, roles.ping_pong, *ways)
