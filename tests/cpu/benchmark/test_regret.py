"""Stored times of schedules load as the records that they were, and today's choices are near the best of them."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks import regret
from benchmarks.regret import Replay, by_kind, replay, table
from benchmarks.schedule_times import read, write

MEAN, WORST = 1.05, 1.75
"""Of the sample; of all 445 contractions the geometric mean is 1.019 to 1.045 by element type, the worst 1.71."""


def test_choices_are_near_the_best_that_was_timed() -> None:
    cases = replay(regret.STORED, every=11)
    timed = [case.regret for case in cases if case.regret is not None]
    assert len(timed) >= 0.9 * len(cases) > 30
    assert math.exp(sum(map(math.log, timed)) / len(timed)) < MEAN
    assert max(timed) < WORST


def test_a_choice_that_is_slower_has_more_regret(tmp_path: Path) -> None:
    stored = read(regret.STORED)
    case = next(c for c in stored["cases"] if len(c["schedules"]) > 4)
    path = tmp_path / "one.json.gz"
    write(path, stored["device"], stored["commit"], [case])
    (before,) = replay(path)
    assert before.regret is not None
    min(case["schedules"], key=lambda x: x["schedule"]["forecast"]["us"])["us"] *= 100  # the model's first
    write(path, stored["device"], stored["commit"], [case])
    (after,) = replay(path)
    assert after.regret is not None
    assert after.regret > 50 * before.regret


def test_a_choice_that_was_not_timed_has_no_regret(tmp_path: Path) -> None:
    stored = read(regret.STORED)
    case = next(c for c in stored["cases"] if len(c["schedules"]) > 4)
    case["schedules"].sort(key=lambda x: x["schedule"]["forecast"]["us"])
    del case["schedules"][0]  # the model's first
    path = tmp_path / "one.json.gz"
    write(path, stored["device"], stored["commit"], [case])
    (found,) = replay(path)
    assert found.regret is None
    assert by_kind([found]) == {}


def test_the_table_has_means_and_the_worst() -> None:
    found = by_kind([Replay("a", "float16", 1.0), Replay("b", "float16", 1.44), Replay("c", "float64", None)])
    assert found == {"float16": [(1.44, "b"), (1.0, "a")]}
    (_, _, row) = table(found)
    assert row.split() == ["float16", "2", "1.2000", "1.44", "b", "1"]
