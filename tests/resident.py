"""Small contractions whose one operand stays in shared memory, on a GPU of few multiprocessors; for all tests."""

from __future__ import annotations

from dataclasses import replace

from gett.plan import GemmPlan
from gett.schedule.archs import ArchFacts
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import Case

# Either role; K-major and MN-major, in slabs, in copies of their own (rows that come in no eights), in rows of a wider
# swizzle; K that ends inside a tile; several batches that share an operand.
CASES = (
    Case("kept-rows", "abk,kj->bja", {"a": 12, "b": 176, "k": 136, "j": 24}),
    Case("kept-slabs", "ap,srqp->srqa", {"a": 96, "p": 96, "s": 3, "r": 4, "q": 84}),
    Case("kept-uneven", "bq,srqa->srba", {"b": 84, "q": 96, "s": 4, "r": 5, "a": 96}),
    Case("kept-ragged-k", "dabkc,kj->cdbja", {"d": 4, "a": 48, "b": 3, "k": 36, "c": 48, "j": 24}),
    Case("kept-k-major", "akdbc,jk->cjbda", {"a": 48, "k": 48, "d": 2, "b": 3, "c": 96, "j": 24}),
    Case("kept-cut", "cr,srba->scba", {"c": 84, "r": 96, "s": 3, "b": 7, "a": 128}),
)


def few(facts: ArchFacts, count: int = 2) -> ArchFacts:
    """A GPU on which every block makes many tiles."""
    return replace(facts, sm_count=count)


def resident(plan: GemmPlan, facts: ArchFacts, limit: int = 40) -> list[Schedule]:
    """One schedule of every kind in which an operand stays."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in sm90_candidates(plan, few(facts), limit):
        roles = s.roles
        assert roles is not None
        if roles.resident:
            kept = roles.a if roles.resident == "a" else roles.b
            assert kept is not None
            way = (kept.major, kept.map.span, bool(kept.run), bool(kept.repeats))
            deep = (s.box_k.tiles > 1, s.box_k.size < s.block[2])
            kinds.setdefault((roles.resident, roles.ping_pong, roles.d is None, *way, *deep), s)
    return list(kinds.values())
