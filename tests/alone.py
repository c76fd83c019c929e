"""Contractions of which every block makes one tile of D, staged where the stages were, on a GPU of few
multiprocessors; for all tests."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import Case
from tests.resident import few

# Both majors, ragged tiles and k-tiles, D's order turned, short rows, batches, clusters with a block to spare.
CASES = (
    Case("alone-rows", "mk,nk->mn", {"m": 248, "k": 1000, "n": 376}),
    Case("alone-turned", "km,kn->nm", {"m": 256, "k": 712, "n": 520}),
    Case("alone-short", "adb,cd->cba", {"a": 16, "d": 640, "b": 24, "c": 256}),
    Case("alone-batched", "lmk,lkn->lmn", {"l": 2, "m": 120, "k": 840, "n": 248}),
    Case("alone-surplus", "mk,kn->mn", {"m": 328, "k": 648, "n": 248}),
)
COUNTS = (2, 3, 4, 6)  # multiprocessors


def alone(plan: GemmPlan, facts: ArchFacts, limit: int = 24) -> list[Schedule]:
    """One schedule of every kind whose blocks make one tile each."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in (s for count in COUNTS for s in sm90_candidates(plan, few(facts, count), limit)):
        roles = s.roles
        assert roles is not None
        if roles.alone:
            ways = [(x.major, x.map.span) for x in (roles.a, roles.b) if x is not None]
            kinds.setdefault((s.block, roles.cluster, roles.stage.put, *ways), s)
    return list(kinds.values())
