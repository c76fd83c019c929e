"""The cases of the benchmarks, and when and how often they are timed."""

from __future__ import annotations

import math
import time

import pytest

from benchmarks.cases import ELEMENT_TYPES, QUICK, load_cases
from benchmarks.timing import measure_cpu
from gett.measure.timer import choose_repetitions, sets_to_rotate, summarise
from tests.cpu.benchmark.benchmark_cases import CASES, FP16, FP32


def test_there_are_24_tccg_cases_and_one_more():
    assert [c.group for c in CASES].count("tccg") == 24
    assert len(CASES) == len({c.name for c in CASES}) == 25


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_case_is_a_plain_contraction(case):
    a, b, d = case.modes
    extents = dict(case.extents)
    assert set(a + b + d) == set(extents)
    assert all((x in a) + (x in b) + (x in d) == 2 for x in extents)
    batch, m, n, k = case.bmnk
    assert batch * m * n * k == case.volume
    assert case.elements == m * k + k * n + m * n
    assert sum(map(math.prod, case.shapes)) == case.elements


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_einsum_is_the_published_string_read_backwards(case):
    d, a, b = (part.partition("(")[0] for part in case.name.split("-"))
    assert {case.modes[0], case.modes[1]} == {a[::-1], b[::-1]} or case.group != "tccg"
    assert case.modes[2] == d[::-1] or case.group != "tccg"


def test_counts_of_three_cases_worked_out_by_hand():
    by_name = {c.name: c for c in CASES}
    tall = by_name["abj-bka-kj"]
    assert tall.bmnk == (1, 384 * 384, 24, 384)
    assert tall.flops(FP16) == 2 * 384**3 * 24
    assert tall.bytes(FP16) == 2 * (384**3 + 24 * 384 + 24 * 384**2)
    square = by_name["ij-ik-kj"]
    assert square.bmnk == (1, 7248, 7240, 7248)
    assert square.bytes(FP32) == 4 * (7248**2 + 2 * 7248 * 7240)
    triples = by_name["abcijk-ijmb-mkac"]
    assert triples.bmnk == (1, 20 * 20 * 24, 24 * 20 * 20, 24)
    assert triples.flops(ELEMENT_TYPES["complex64"]) == 8 * 9600 * 9600 * 24


@pytest.mark.parametrize("scale", [1e-4, 0.01, 0.25, 0.9])
def test_scaling_keeps_at_most_that_share_and_not_much_less(scale):
    for case in CASES:
        small = case.scaled(scale)
        assert small.elements <= scale * case.elements
        # Extents are rounded: one step of each extent at most is lost.
        larger = math.prod((e + 1) / e for _, e in small.extents)
        assert small.elements * larger**2 >= scale * case.elements


def test_scale_outside_its_range_and_unknown_names_are_refused():
    assert CASES[0].scaled(1) is CASES[0]
    for scale in (0, -1, 1.5):
        with pytest.raises(ValueError, match="must lie in"):
            CASES[0].scaled(scale)
    with pytest.raises(ValueError, match="no case is named 'abc'"):
        load_cases(["abc"])
    assert [c.name for c in load_cases(quick=True)] == [c.name for c in CASES if c.name in QUICK]
    assert len(load_cases(quick=True)) == len(QUICK)


@pytest.mark.parametrize(
    ("first_us", "expected"),
    [(1.0, 50), (3_000.0, 50), (5_000.0, 30), (15_000.0, 10), (60_000.0, 5), (100_000.0, 5), (100_001.0, 0), (1e7, 0)],
)
def test_repetitions_follow_the_first_time(first_us, expected):
    assert choose_repetitions(first_us) == expected


def test_repetitions_respect_a_small_cap_and_a_small_budget():
    assert choose_repetitions(1.0, most=3) == 3
    assert choose_repetitions(1_000.0, budget_us=10_000.0) == 10
    assert choose_repetitions(9_000.0, budget_us=10_000.0) == 5


@pytest.mark.parametrize(
    ("size", "l2", "expected"), [(10, 10, 3), (31, 10, 1), (30, 10, 1), (29, 10, 2), (1, 1000, 64)]
)
def test_buffers_fill_three_times_the_cache(size, l2, expected):
    assert sets_to_rotate(size, l2) == expected


def test_summary_of_times():
    m = summarise([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (m.median_us, m.low_us, m.spread_us, m.repetitions) == (3.0, 1.0, 2.0, 5)
    assert summarise([5.0, 1.0, 3.0], best=True).median_us == 1.0
    assert summarise([7.0]).spread_us == 0.0


def test_cpu_rivals_take_turns_and_a_failing_one_is_recorded():
    order = []

    def failing():
        order.append("bad")
        raise RuntimeError("no such kernel")

    calls = {
        "slow": lambda: (order.append("slow"), time.sleep(0.004)),
        "bad": failing,
        "fast": lambda: order.append("fast"),
    }
    found = measure_cpu(calls, rounds=3)
    assert order == ["slow", "bad", "fast", *["slow", "fast"] * 3]
    assert found["bad"].error == "RuntimeError: no such kernel"
    assert found["bad"].median_us is None
    assert found["slow"].repetitions == found["fast"].repetitions == 3
    assert found["slow"].median_us > 4000 > found["fast"].median_us
    assert measure_cpu({"slow": lambda: time.sleep(0.002)}, rounds=50, budget_s=0.0)["slow"].repetitions == 1
