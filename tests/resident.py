"""Small contractions whose one operand stays in shared memory, on a GPU of few multiprocessors; for all tests."""

from __future__ import annotations

from dataclasses import replace

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
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
# Lines of tiles whose rows stay: either role, tails and full k-tiles, two k-tiles, batches, ragged lines, rows of a
# wider swizzle, lines that blocks share.
LINES = (
    Case("line-short", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 6, "i": 40, "c": 8, "b": 12, "k": 30}),
    Case("line-full", "bmji,cakm->kjicba", {"b": 24, "m": 32, "j": 12, "i": 40, "c": 8, "a": 24, "k": 10}),
    Case("line-two", "mk,nk->mn", {"m": 1400, "n": 1100, "k": 88}),
    Case("line-batched", "lmk,lnk->lmn", {"l": 3, "m": 1100, "n": 840, "k": 40}),
    Case("line-turned", "km,kn->nm", {"m": 1096, "n": 1032, "k": 48}),
)
# Blocks that keep to one line of tiles: either role, rows along K and along tiles, K and tiles that end early, two to
# four lines, permuted modes.
ONE_LINES = (
    Case("one-rows", "mk,kn->mn", {"m": 1100, "n": 248, "k": 200}),
    Case("one-turned", "km,kn->nm", {"m": 1400, "n": 376, "k": 216}),
    Case("one-deep", "mk,nk->mn", {"m": 1300, "n": 256, "k": 392}),
    Case("one-modes", "lki,jl->kji", {"i": 56, "j": 384, "k": 30, "l": 208}),
    Case("one-four", "mk,nk->nm", {"m": 960, "n": 512, "k": 192}),
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
        if roles.resident and not roles.line:
            kept = roles.a if roles.resident == "a" else roles.b
            assert kept is not None
            way = (kept.major, kept.map.span, bool(kept.run), bool(kept.repeats))
            deep = (s.box_k.tiles > 1, s.box_k.size < s.block[2])
            kinds.setdefault((roles.resident, roles.ping_pong, roles.d is None, *way, *deep), s)
    return list(kinds.values())


def lined(plan: GemmPlan, facts: ArchFacts, limit: int = 60) -> list[Schedule]:
    """One schedule of every kind in which the rows of a line of tiles stay."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in sm90_candidates(plan, few(facts, 3), limit):
        roles = s.roles
        assert roles is not None
        if roles.line == "each":
            ways = [(x.major, x.map.span) for x in (roles.a, roles.b) if x is not None]
            deep = (s.box_k.tiles > 1, s.box_k.size < s.block[2])
            kinds.setdefault((roles.resident, roles.ping_pong, roles.d is None, s.exchanged, *ways, *deep), s)
    return list(kinds.values())


def one_lined(plan: GemmPlan, facts: ArchFacts, limit: int = 60) -> list[Schedule]:
    """One schedule of every kind in which blocks keep to one line of tiles; of four lines, a block each."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in sm90_candidates(plan, few(facts, 4), limit):
        roles = s.roles
        assert roles is not None
        if roles.line == "own":
            ways = [(x.major, x.map.span) for x in (roles.a, roles.b) if x is not None]
            deep = (s.box_k.tiles > 1, s.box_k.size < s.block[2], s.box_k.tiles * s.box_k.size > s.box_k.volume)
            kinds.setdefault((roles.resident, roles.m_blocks, roles.d is None, s.exchanged, *ways, *deep), s)
    return list(kinds.values())
