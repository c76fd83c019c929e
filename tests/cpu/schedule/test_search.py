"""The skeleton of searches: bounds are bounds, and what is not estimated would not have been chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from gett.hw.archs import arch_facts
from gett.ir.gemm import make_gemm_plan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.lower import at_precision
from gett.schedule.search.base import best_schedules
from gett.schedule.search.hopper.fragments import DmmaTmaSearch, WgmmaTf32Search
from gett.schedule.search.hopper.search import HopperSearch, both_roles
from gett.schedule.search.hopper.wgmma_split import WgmmaSplitSearch
from gett.schedule.search.hopper.wgmma_ss import WgmmaSSSearch
from gett.schedule.search.multistage import MultistageSearch
from gett.schedule.search.select import candidates, select_schedule
from gett.schedule.search.stream import is_stream
from gett.schedule.spec.schedule import Schedule
from gett.schedule.tile.wgmma_tile import WgmmaTile
from tests.cases import AWKWARD, Case, Layout, tccg
from tests.cpu.choices import bounded_choices
from tests.sampling import slow_but

FACTS = arch_facts("sm_90a")
CASES = (*tccg()[::4], Case("few-tiles", "mk,nk->mn", {"m": 256, "n": 512, "k": 8192}))
PRODUCTS = (*CASES[::2], *(x for x in AWKWARD if not is_stream(make_gemm_plan(x.contraction("float16")))))


class Unbounded:
    """A search whose choices are all estimated, with their variants, before one is lowered."""

    gain = 1.0

    def __init__(self, search: WgmmaSSSearch) -> None:
        self.search, self.estimated = search, 0

    def choices(self) -> Iterator[WgmmaTile]:
        return (choice for _, choice in bounded_choices(self.search))

    def least_us(self, choice: WgmmaTile) -> float:
        return 0.0

    def estimate(self, choice: WgmmaTile) -> Estimate:
        self.estimated += 1
        return self.search.estimate(choice)

    def paced_us(self, choice: WgmmaTile, estimate: Estimate) -> float:
        return self.search.paced_us(choice, estimate)

    def variants(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[WgmmaTile]:
        return self.search.variants(choice, estimate)

    def lower(self, choice: WgmmaTile, estimate: Estimate) -> Iterable[Schedule]:
        return self.search.lower(choice, estimate)


SEARCHES = (
    (WgmmaSSSearch, "float16", ""),
    (WgmmaSplitSearch, "float32", "bf16x6"),
    (WgmmaSplitSearch, "complex64", "bf16x3"),
    (WgmmaTf32Search, "float32", "tf32"),
    (DmmaTmaSearch, "float64", ""),
    (DmmaTmaSearch, "complex128", ""),
)


@pytest.mark.parametrize("case", slow_but(CASES[::2], lambda x: x in CASES[::4]), ids=lambda c: c.name)
@pytest.mark.parametrize("with_c", [None, Layout()], ids=["", "C"])
@pytest.mark.parametrize(("kind", "dtype", "precision"), SEARCHES, ids=lambda x: getattr(x, "__name__", x))
def test_bounds_are_not_above_forecasts(
    kind: type[HopperSearch], dtype: str, precision: str, case: Case, with_c: Layout | None
) -> None:
    plan = make_gemm_plan(case.contraction(dtype, with_c=with_c))
    plan = at_precision(plan, precision) if precision else plan
    for search in both_roles(kind, plan, FACTS):
        for later, choice in [*bounded_choices(search)][::7]:
            estimate = search.estimate(choice)
            assert later <= search.paced_us(choice, estimate), choice
            for other in search.variants(choice, estimate):
                found = search.paced_us(other, search.estimate(other))
                assert max(later, search.least_us(other)) <= found, other


@pytest.mark.parametrize("case", CASES[::3], ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_schedule_takes_no_less_than_its_tile(case: Case, dtype: str) -> None:
    plan = make_gemm_plan(case.contraction(dtype))
    kind = WgmmaSSSearch if dtype == "float16" else DmmaTmaSearch
    for search in both_roles(kind, plan, FACTS):
        for _, choice in [*bounded_choices(search)][::97]:
            estimate = search.estimate(choice)
            assert all(search.paced_us(choice, estimate) <= s.forecast.us for s in search.lower(choice, estimate))


@pytest.mark.parametrize("case", slow_but(CASES, lambda x: x in CASES[::2]), ids=lambda c: c.name)
def test_bounds_change_no_choice(case: Case) -> None:
    plan = make_gemm_plan(case.contraction("float16"))
    unbounded = [Unbounded(search) for search in both_roles(WgmmaSSSearch, plan, FACTS)]
    assert best_schedules(both_roles(WgmmaSSSearch, plan, FACTS), 12) == best_schedules(unbounded, 12)


def test_few_choices_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_gemm_plan(CASES[0].contraction("float16"))
    counted = [0]
    estimate = WgmmaSSSearch.estimate

    def count(self: WgmmaSSSearch, choice: WgmmaTile) -> Estimate:
        counted[0] += 1
        return estimate(self, choice)

    searches = both_roles(WgmmaSSSearch, plan, FACTS)
    choices = sum(len([*bounded_choices(search)]) for search in searches)
    monkeypatch.setattr(WgmmaSSSearch, "estimate", count)
    assert best_schedules(searches, 12)
    assert 0 < 3 * counted[0] < choices


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("case", slow_but(PRODUCTS, lambda x: x in PRODUCTS[::2]), ids=lambda c: c.name)
def test_bounds_of_multistage_tiles_are_not_above_estimates(case: Case, dtype: str) -> None:
    plan = make_gemm_plan(case.contraction(dtype))
    search = MultistageSearch(plan, FACTS)
    for least, choice in bounded_choices(search):
        assert least <= search.estimate(choice).us, choice.tiling


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("case", CASES[:3], ids=lambda c: c.name)
def test_the_schedule_that_is_selected_is_the_first_candidate(case: Case, dtype: str) -> None:
    plan = make_gemm_plan(case.contraction(dtype))
    assert select_schedule(plan, "sm_90a") == candidates(plan, "sm_90a")[0]
