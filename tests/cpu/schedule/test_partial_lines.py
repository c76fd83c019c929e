"""Lines that tiles read in parts: how many memory sends, counted address by address, and how K is walked for it."""

from __future__ import annotations

from itertools import product

import pytest

from gett.hw.archs import arch_facts
from gett.ir.gemm import A, B, GemmPlan, make_gemm_plan
from gett.schedule.cost.partial_lines import Cut, PartialLines, Walk
from gett.schedule.lower import lower_plan
from gett.schedule.search.select import select_schedule
from layouts.box import Box
from layouts.rates import L2_LINE
from tests.cases import Case

FACTS = arch_facts("sm_90a")
FLOAT = 4
ROWS = 4096


def plan_of(inner: int, outer: int) -> GemmPlan:
    """Rows of A have `outer` pieces of `inner` numbers; B has the pieces in another order."""
    extents = {"m": ROWS, "n": 16, "i": inner, "o": outer}
    return make_gemm_plan(Case("", "moi,ion->mn", extents).contraction("float32"))


def box_k(plan: GemmPlan, cut: dict[int, int]) -> Box:
    return Box.of_cuts([s.extent for s in plan.k], cut)


def cuts(plan: GemmPlan, cut: dict[int, int]) -> tuple[Cut, ...]:
    return ("l", plan.l, None), ("m", plan.m, Box.of_cuts((ROWS,), {0: 128})), ("k", plan.k, box_k(plan, cut))


def walk(plan: GemmPlan, cut: dict[int, int]) -> Walk:
    return Walk(box_k(plan, cut).tiles, rows=8, columns=1, of_batch=32, blocks=32, at_once=FACTS.sm_count)


def lines_of(plan: GemmPlan, distinct: float) -> PartialLines:
    return PartialLines(plan, FACTS, {A: 1, B: 1}, distinct)


def lines(inner: int, taken: int, outer: int) -> float:
    """Bytes of the lines that pieces of `taken` numbers touch one by one, against those of the numbers."""
    touched = 0
    for row, piece in product(range(0, L2_LINE * inner * outer * FLOAT, inner * outer * FLOAT), range(0, inner, taken)):
        first = row + piece * FLOAT
        touched += (first + taken * FLOAT - 1) // L2_LINE - first // L2_LINE + 1
    return touched * L2_LINE / (L2_LINE * inner * FLOAT)


@pytest.mark.parametrize(("inner", "taken", "outer"), [(32, 8, 64), (16, 4, 64), (24, 8, 64), (60, 20, 63)])
def test_lines_that_are_read_in_parts_come_with_each_part(inner: int, taken: int, outer: int) -> None:
    plan = plan_of(inner, outer)
    unit = next(i for i, s in enumerate(plan.k) if s.strides[A] == FLOAT)
    found = lines_of(plan, 1e12)  # L2 keeps nothing
    (part, *_) = found.parts(A, cuts(plan, {unit: taken}))
    assert part.sent == pytest.approx(lines(inner, taken, outer))
    own = 1e6
    last = {unit: taken, 1 - unit: 1}
    away = part._replace(step=walk(plan, last).steps // 2)
    assert found.again([away], walk(plan, last), own) == pytest.approx((part.sent - 1) * own, rel=0.01)


def test_lines_come_once_where_l2_keeps_them_or_parts_are_read_together() -> None:
    plan = plan_of(32, 64)
    few, many = (lines_of(plan, x) for x in (FACTS.l2_bytes / 8, 100.0 * FACTS.l2_bytes))
    unit = next(i for i, s in enumerate(plan.k) if s.strides[A] == FLOAT)
    assert few.parts(A, cuts(plan, {unit: 8})) == ()  # all of it stays
    assert many.parts(A, cuts(plan, {unit: 32})) == ()  # a tile has whole lines
    (part, *_) = many.parts(A, cuts(plan, {unit: 8}))
    order = walk(plan, {unit: 8})
    assert order.between(part._replace(group="n", step=1)) == 0.0  # blocks that run at the same time
    assert many.again([part._replace(group="n", step=1)], order, 1e6) == 0.0
    assert order._replace(blocks=10**6).between(part._replace(group="n", step=10**4)) == pytest.approx(0.08)


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "tf32"), ("complex64", "ieee")])
def test_k_is_walked_along_the_larger_operand(dtype: str, precision: str) -> None:
    """Half a line of A is followed by the other half, though B, and the plan's order, go on along another mode."""
    extents = {"a": 8, "b": 4096, "c": 2, "d": 5, "e": 5, "f": 31, "g": 13}
    case = Case("", "abcde,bfgda->gfce", extents)
    plan = make_gemm_plan(case.contraction(dtype, precision=precision))
    chosen = select_schedule(plan, "sm_90a")
    lowered, box = lower_plan(plan, chosen.tiling), chosen.tiling.k
    larger = max((0, 1), key=lambda t: sum(abs(s.strides[t]) for s in lowered.k))
    steps = [abs(lowered.k[d.modes[0]].strides[larger]) for i, d in enumerate(box.dims) if box.tiles_per_dim[i] > 1]
    assert steps == sorted(steps)


def test_a_walked_box_has_the_same_tiles() -> None:
    box = Box.of_cuts((8, 6, 10, 3), {2: 5, 0: 4})
    for tiled, strides in product((False, True), [(1, 8, 480, 48), (60, 10, 1, 480), (0, 1, 6, 0)]):
        found = box.walked(strides, tiled=tiled)
        want, have = (
            {frozenset(x.coordinates(tile, i) for i in range(x.size)) for tile in range(x.tiles)} for x in (box, found)
        )
        assert want == have
        if not tiled:  # what lies in a tile keeps its place
            assert [d for _, d in found.tiled] == [d for _, d in box.tiled]
        steps = [strides[d.modes[0]] or 10**9 for d in found.dims if tiled or d.box == 1]
        assert steps == sorted(steps)
