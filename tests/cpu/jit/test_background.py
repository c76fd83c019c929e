"""Compiling that nobody waits for: its order, errors, and what is left for the program."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gett.errors import CompileError
from gett.jit import background as module
from gett.jit.background import Background, crew_size


class Crew:
    def __init__(self, count: int) -> None:
        self.count, self.closed = count, False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def crews(monkeypatch: pytest.MonkeyPatch) -> list[Crew]:
    made: list[Crew] = []

    def start(count: int) -> Crew:
        made.append(Crew(count))
        return made[-1]

    monkeypatch.setattr(module, "Workers", start)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 8)
    return made


def begin(work: Any, most: int = 4, failed: Any = None, before: Any = lambda: None) -> Background:
    return Background(work, most, before, failed or (lambda error: None))


def test_work_is_done_one_after_the_other_with_processors_to_spare(crews: list[Crew]) -> None:
    go, seen = threading.Event(), []

    def first(crew: Any) -> None:
        assert go.wait(30)
        seen.append(("first", crew))

    both = [
        begin(first, 100, before=lambda: seen.append("before")),
        begin(lambda crew: seen.append(("second", crew)), 0),
    ]
    assert not any(x.done for x in both)
    go.set()
    for x in both:
        x.wait()
    assert [x.count for x in crews] == [6, 1]
    assert seen == ["before", ("first", crews[0]), ("second", crews[1])]
    assert all(x.done and x.error is None for x in both)
    assert all(x.closed for x in crews)
    assert not module._crews


def test_small_work_is_done_side_by_side(crews: list[Crew]) -> None:
    inside = threading.Barrier(3)
    made = [begin(lambda crew: inside.wait(30) and None, 2) for _ in range(3)]
    for x in made:
        x.wait()
    assert [x.count for x in crews] == [2, 2, 2]
    assert module._taken == 0


def test_an_error_is_told_once_and_raised_for_who_waits(crews: list[Crew]) -> None:
    told: list[Exception] = []

    def work(crew: Any) -> None:
        raise CompileError("no")

    made = begin(work, failed=told.append)
    for _ in range(2):
        with pytest.raises(CompileError, match="no"):
            made.wait()
    assert not made.done
    assert told == [made.error]
    assert crews[0].closed


def test_the_end_closes_what_is_under_way_and_begins_nothing(
    crews: list[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go, told = threading.Event(), threading.Event(), []

    def work(crew: Any) -> None:
        inside.set()
        assert go.wait(30)
        raise CompileError("given up")

    monkeypatch.setattr(module, "_ended", False)
    made = [begin(work, failed=told.append), begin(lambda crew: told.append("begun"), failed=told.append)]
    assert inside.wait(30)
    module._end()
    assert [x.closed for x in crews] == [True]
    go.set()
    with pytest.raises(CompileError, match="given up"):
        made[0].wait()
    with pytest.raises(CompileError, match="the interpreter ends"):
        made[1].wait()
    assert told == []


def test_a_thread_of_another_process_is_not_waited_for(crews: list[Crew]) -> None:
    made = begin(lambda crew: None)
    made.wait()
    made.done = False  # as a fork has it
    with pytest.raises(CompileError, match="another process"):
        made.wait()


@pytest.mark.parametrize(("processors", "count"), [(None, 1), (1, 1), (2, 1), (4, 3), (16, 12)])
def test_the_program_keeps_processors(monkeypatch: pytest.MonkeyPatch, processors: int | None, count: int) -> None:
    monkeypatch.setattr(module.os, "cpu_count", lambda: processors)
    assert crew_size() == count
