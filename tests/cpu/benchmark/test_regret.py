"""Stored times of schedules load as the records that they were, and today's choices are near the best of them."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import regret
from benchmarks.regret import STORED, UNSEEN, Choose, Replay, by_call, by_kind, by_model, replay, table
from benchmarks.schedule_times import Problem, read, write
from gett.codec import decode
from gett.schedule.search.select import select_schedule
from gett.schedule.spec.schedule import Schedule
from tests.sampling import slow_but

MODEL = 1.05, 2.3
"""The most that the model's choices may cost, in the geometric mean of an element type and at worst."""

KNOWN = 1.02, 1.1
"""The same with known schedules."""

UNKNOWN = 1.08, 2.6
"""What the model's choices may cost for contractions of other seeds."""

SAMPLES = (STORED[0], 29), (STORED[1], 21)
"""Files, and which of their contractions are a sample."""


def check(cases: list[Replay], most: tuple[float, float]) -> None:
    """Regrets by element type are at most `most`, and most choices were timed."""
    found = by_kind(cases)
    assert sum(map(len, found.values())) >= 0.9 * len(cases) > 30
    for regrets in found.values():
        values = [x for x, _ in regrets]
        assert min(values) >= 1.0
        assert math.exp(sum(map(math.log, values)) / len(values)) <= most[0]
        assert max(values) <= most[1]


@pytest.mark.parametrize(
    ("path", "every", "choose", "most"),
    slow_but(
        [(*x, *y) for x in SAMPLES for y in ((by_call, KNOWN), (by_model, MODEL))], [(*SAMPLES[0], by_model, MODEL)]
    ),
)
def test_a_sample_of_choices_is_near_the_best(
    path: Path, every: int, choose: Choose, most: tuple[float, float]
) -> None:
    mean, worst = most
    check(replay(path, every, choose), (mean + 0.02, worst))  # of few cases


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("path", STORED, ids=["h200", "h100"])
def test_choices_are_near_the_best_that_was_timed(path: Path, first: int) -> None:
    """A quarter of the contractions in each test."""
    check(replay(path, every=4, first=first), KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize("path", STORED, ids=["h200", "h100"])
def test_the_models_choices_are_not_far(path: Path) -> None:
    check(replay(path, choose=by_model), MODEL)


@pytest.mark.slow
def test_the_models_choices_for_what_it_has_not_seen() -> None:
    check(replay(UNSEEN, choose=by_model), UNKNOWN)


def chosen_of(case: dict[str, Any]) -> dict[str, Any] | None:
    """The stored schedule that the model chooses, None where it was not timed."""
    wanted = select_schedule(Problem.of(case).gemm("sm_90a"), "sm_90a")
    return next((x for x in case["schedules"] if decode(Schedule, x["schedule"]) == wanted), None)


def write_case(path: Path, case: dict[str, Any]) -> None:
    write(path, "some GPU", "0", [case])


@cache
def first_case() -> dict[str, Any]:
    """The first contraction with more than four schedules whose choice was timed."""
    cases = (c for c in read(STORED[0])["cases"] if len(c["schedules"]) > 4)
    found: dict[str, Any] = next(c for c in cases if chosen_of(c) is not None)
    return found


@pytest.fixture
def case() -> dict[str, Any]:
    """A copy of it, which a test may change."""
    return deepcopy(first_case())


def test_a_choice_that_is_slower_has_more_regret(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / "one.json.gz"
    write_case(path, case)
    (before,) = replay(path)
    assert before.regret is not None
    chosen = chosen_of(case)
    assert chosen is not None
    chosen["us"] *= 100
    write_case(path, case)
    (after,) = replay(path)
    assert after.regret is not None
    assert after.regret > 50 * before.regret


def test_a_choice_that_was_not_timed_has_no_regret(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / "one.json.gz"
    case["schedules"].remove(chosen_of(case))
    write_case(path, case)
    (found,) = replay(path)
    assert found.regret is None
    assert by_kind([found]) == {}


def test_each_file_has_a_table(tmp_path: Path, case: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    paths = tmp_path / "one.json.gz", tmp_path / "other.json.gz"
    for path in paths:
        write_case(path, case)
    assert regret.main(paths) == 0
    text = capsys.readouterr().out
    assert text.count("1 contractions; 0 choices were not timed") == 4
    assert text.count("some GPU, the model alone") == 2
    assert text.count(f" {case['name']} ") == 4


def test_the_table_has_means_and_the_worst() -> None:
    found = by_kind([Replay("a", "float16", 1.0), Replay("b", "float16", 1.44), Replay("c", "float64", None)])
    assert found == {"float16": [(1.44, "b"), (1.0, "a")]}
    (_, _, row) = table(found)
    assert row.split() == ["float16", "2", "1.2000", "1.44", "b", "1"]
