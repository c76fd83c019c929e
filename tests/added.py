"""Small contractions whose C comes by tensor map to where D is staged, on a GPU of few multiprocessors."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.schedule.records import Schedule
from gett.schedule.sm90 import sm90_candidates
from tests.cases import DENSE, Case, Layout
from tests.parted import CASES as PARTED
from tests.resident import few

# Every way of writing D, each with boxes that hang over the edge; C as D, with its slow modes in another order, with
# gaps between its rows, the same for all batches; tiles in parts.
CASES: tuple[tuple[Case, Layout], ...] = (
    (Case("added-rows", "ap,srqp->srqa", {"a": 96, "p": 96, "s": 4, "r": 9, "q": 84}), Layout((1, 0, 2, 3))),
    (Case("added-rows-cut", "bmji,cakm->kjicba", {"b": 20, "m": 24, "j": 4, "i": 24, "c": 5, "a": 24, "k": 3}), DENSE),
    (Case("added-turned", "cabk,kj->cjba", {"c": 5, "a": 96, "b": 7, "k": 96, "j": 24}), Layout((2, 0, 1, 3))),
    (Case("added-columns", "amji,cbkm->kjicba", {"a": 24, "m": 24, "j": 4, "i": 24, "c": 5, "b": 12, "k": 6}),
     Layout((0, 1, 2, 4, 3, 5))),
    (Case("added-blocks", "akbc,jk->cjba", {"c": 96, "a": 64, "b": 3, "k": 40, "j": 24}), Layout((2, 1, 0, 3))),
    (Case("added-spare", "cabkd,kj->dcjba", {"c": 3, "a": 48, "b": 5, "k": 36, "d": 48, "j": 24}),
     Layout((), (1, 1, 1, 2, 1))),
    (Case("added-elements", "adb,cd->cba", {"a": 24, "b": 24, "c": 64, "d": 40}), Layout((1, 0, 2))),
    (Case("added-padded", "mk,kn->mn", {"m": 137, "k": 72, "n": 200}), Layout((), (2, 1), 8)),
    (Case("added-batched", "lmk,lkn->lmn", {"l": 3, "m": 200, "k": 72, "n": 136}), Layout(ones=(0,))),
    *((case, DENSE) for case in PARTED[:4]),
)  # fmt: skip
# No tensor map brings C's boxes as D's leave: another unit-stride mode, elements apart, addresses, one row for all.
VECTORS: tuple[tuple[Case, Layout], ...] = tuple(
    (Case("vectors", "mk,kn->mn", {"m": 136, "k": 72, "n": 200}), layout)
    for layout in (Layout((1, 0)), Layout((), (1, 2)), Layout(offset=4), Layout(ones=(0,)))
)
WAYS = {"", "rows", "turned", "columns", "blocks"}


def added(plan: GemmPlan, facts: ArchFacts, limit: int = 40) -> list[Schedule]:
    """One schedule of every kind whose C comes by tensor map."""
    kinds: dict[tuple[object, ...], Schedule] = {}
    for s in sm90_candidates(plan, few(facts), limit):
        roles = s.roles
        assert roles is not None
        if roles.c is not None:
            assert roles.d is not None
            stage = (roles.stage.put, roles.stage.chunk, roles.stage.span, roles.c.slabs > 1, s.box_m.size < s.block[0])
            makers = (roles.ping_pong, roles.m_blocks, roles.parts > 1, roles.resident, roles.line)
            kinds.setdefault((*stage, *makers, roles.c.box == roles.d.box), s)
    return list(kinds.values())
