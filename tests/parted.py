"""Small contractions whose tiles of D are made in parts, on a GPU of few multiprocessors; for all tests."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from layouts.box import Box, TileDim
from tests.cases import Case
from tests.resident import few

# A's rows along one free mode and D's along another: chunks with rows to spare, chunks of 64 and of 32 rows; two to six
# parts; K that ends inside a tile; B that stays or does not, of columns that come in no eights; batches.
CASES = (
    Case("parts-spare", "cabkd,kj->dcjba", {"c": 2, "a": 48, "b": 3, "k": 36, "d": 48, "j": 24}),
    Case("parts-k-major", "akdbc,jk->cjbda", {"a": 48, "k": 48, "d": 2, "b": 3, "c": 48, "j": 24}),
    Case("parts-thirds", "akbc,jk->cjba", {"a": 96, "k": 40, "b": 3, "c": 96, "j": 24}),
    Case("parts-halves", "abkc,kj->cbja", {"a": 32, "k": 84, "b": 5, "c": 64, "j": 24}),
    Case("parts-columns", "akbc,jk->cjba", {"a": 64, "k": 56, "b": 2, "c": 64, "j": 20}),
    Case("parts-batched", "lakbc,ljk->lcjba", {"l": 3, "a": 32, "k": 48, "b": 3, "c": 64, "j": 24}),
)


def part_of(schedule: Schedule) -> Box:
    """The rows of M that the accumulators hold at a time."""
    box = schedule.box_m
    parts = schedule.roles.parts if schedule.roles is not None else 1
    last = max((i for i, d in enumerate(box.dims) if d.box > 1), default=-1)
    dims = (TileDim(d.modes, d.box // parts) if i == last else d for i, d in enumerate(box.dims))
    return Box(box.extents, tuple(dims))


def parted(plan: GemmPlan, facts: ArchFacts, limit: int = 60) -> list[Schedule]:
    """One schedule of every kind that makes tiles of D in parts."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in sm90_candidates(plan, few(facts), limit):
        roles = s.roles
        assert roles is not None
        if roles.parts > 1:
            assert roles.a is not None
            way = (roles.a.run, roles.a.map.span, roles.stage.row, roles.stage.span, s.box_k.tiles > 1)
            kinds.setdefault((roles.parts, roles.m_blocks, roles.resident, *way), s)
    return list(kinds.values())
