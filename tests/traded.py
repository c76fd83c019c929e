"""Contractions of which two blocks trade halves of their tiles of D; for all tests."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import Case
from tests.resident import few

# The unit mode of an operand (b) and D's (a) in one group, and rows of D too short for both: whole tiles, tiles and
# k-tiles that hang over the edge in every mode, batches, a short way from one tile of the two to the other.
CASES = (
    Case("traded", "adb,cd->cba", {"a": 32, "b": 32, "c": 512, "d": 256}),
    Case("traded-ragged", "adb,cd->cba", {"a": 48, "b": 24, "c": 456, "d": 200}),
    Case("traded-batched", "ladb,lcd->lcba", {"l": 3, "a": 16, "b": 40, "c": 264, "d": 136}),
    Case("traded-neighbours", "cd,adb->cba", {"a": 64, "b": 16, "c": 504, "d": 512}),
)
COUNTS = (8, 16, 32, 132)  # multiprocessors


def traded(plan: GemmPlan, facts: ArchFacts, limit: int = 60) -> list[Schedule]:
    """One schedule of every kind whose blocks trade."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in (s for count in COUNTS for s in sm90_candidates(plan, few(facts, count), limit)):
        assert s.roles is not None
        if s.roles.trade is not None:
            kinds.setdefault((s.block, s.roles.cluster, s.roles.stage.put, s.roles.trade.between, s.exchanged), s)
    return list(kinds.values())
