"""What was found out about operands is known when a call has them again, and of no others."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from gett.graphs import seen as seen_module
from gett.graphs.seen import Seen


class Array:
    """Has no equality, as arrays have none that is a truth."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("arrays are not compared: that would be a launch")

    __hash__ = None  # type: ignore[assignment]


def arrays(count: int = 9) -> tuple[Any, ...]:
    return tuple(Array() for _ in range(count))


def test_operands_are_known_once_two_calls_had_them() -> None:
    seen, given = Seen[str](), arrays()
    assert seen.known(given) is None
    seen.note(given, "a")
    assert seen.known(given) is None
    seen.note(given, "b")
    assert seen.known(given) == seen.known([*given]) == "b"


def test_where_a_tuple_is_stored_otherwise_id_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "_stored", lambda things: b"")
    monkeypatch.setattr(seen_module, "_numbers", seen_module._numbers_of())
    seen, given = Seen[str](), arrays()
    seen.note(given, "a")
    seen.note(given, "a")
    assert seen.known(given) == "a"
    assert seen.known(given[::-1]) is None


def test_numbers_that_a_tuple_stores_are_those_that_id_tells() -> None:
    for count in range(5):
        given = arrays(count)
        assert seen_module._stored(given) == seen_module._asked(given)


def test_others_are_not() -> None:
    seen, given = Seen[str](), arrays()
    seen.note(given, "a")
    seen.note(given, "a")
    assert seen.known((*given[:-1], Array())) is None
    assert seen.known(given[::-1]) is None
    assert seen.known(given[:-1]) is None
    for others in [arrays() for _ in range(3)]:  # calls that take turns
        seen.note(others, "b")
    assert seen.known(given) == "a"


def test_nothing_is_kept_alive_and_a_number_of_what_is_gone_means_nothing() -> None:
    seen, given = Seen[str](), arrays()
    seen.note(given, "a")
    seen.note(given, "a")
    alive = weakref.ref(given[0])
    del given
    gc.collect()
    assert alive() is None
    for _ in range(50):  # some have the numbers of those that are gone
        assert seen.known(arrays()) is None


def test_operands_of_which_one_goes_are_forgotten() -> None:
    seen, given = Seen[str](), [*arrays()]
    numbers = [*map(id, given)]
    seen.note(given, "a")
    seen.note(given, "a")
    given[4] = None
    made = [Array() for _ in range(1000)]
    again = next((x for x in made if id(x) == numbers[4]), made[0])
    given[4] = again
    assert seen.known(given) is None
    seen.note(given, "b")
    seen.note(given, "b")
    assert seen.known(given) == "b"
