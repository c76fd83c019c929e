"""Stored times of schedules load as the records that they were, and today's choices are near the best of them."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import regret
from benchmarks.regret import STORED, Replay, by_kind, replay, table
from benchmarks.schedule_times import Problem, read, write
from gett.schedule.search.select import select_schedule
from gett.schedule.spec.schedule import Schedule
from gett.tune.codec import decode

MEAN, WORST = 1.04, 1.5
"""Of each sample. Of all contractions geometric means by element type and the worst are: H200, 445, 1.018 to 1.052 and
1.48; H100, 792, 1.009 to 1.037 and 1.72."""


@pytest.mark.slow
@pytest.mark.parametrize(("path", "every"), [(STORED[0], 11), (STORED[1], 21)], ids=["h200", "h100"])
def test_choices_are_near_the_best_that_was_timed(path: Path, every: int) -> None:
    cases = replay(path, every=every)
    timed = [case.regret for case in cases if case.regret is not None]
    assert len(timed) >= 0.9 * len(cases) > 30
    assert min(timed) >= 1.0
    assert math.exp(sum(map(math.log, timed)) / len(timed)) < MEAN
    assert max(timed) < WORST


def chosen_of(case: dict[str, Any]) -> dict[str, Any] | None:
    """The stored schedule that the model chooses, None where it was not timed."""
    problem = Problem(case["name"], case["einsum"], tuple(case["extents"].items()), case["kind"])
    wanted = select_schedule(problem.gemm("sm_90a"), "sm_90a")
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
    """A copy of that contraction, for a test to change."""
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
    assert text.count("some GPU, 1 contractions; 0 choices were not timed") == 2
    assert text.count(f" {case['name']} ") == 2


def test_the_table_has_means_and_the_worst() -> None:
    found = by_kind([Replay("a", "float16", 1.0), Replay("b", "float16", 1.44), Replay("c", "float64", None)])
    assert found == {"float16": [(1.44, "b"), (1.0, "a")]}
    (_, _, row) = table(found)
    assert row.split() == ["float16", "2", "1.2000", "1.44", "b", "1"]
