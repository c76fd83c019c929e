"""Operands that a call has again are not looked at twice; others, and changed ones, are."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from gett.plans.seen import Seen


class Array:
    """Has a shape, as arrays do, that may be set."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __eq__(self, other: object) -> bool:
        raise AssertionError("arrays are not compared: that would be a launch")

    __hash__ = None  # type: ignore[assignment]


def arrays(count: int = 9) -> tuple[Any, ...]:
    return tuple(Array((i, 2)) for i in range(count))


def test_operands_are_known_once_two_calls_had_them() -> None:
    seen, given = Seen(), arrays()
    assert not seen.again(given)
    seen.note(given)
    assert not seen.again(given)
    seen.note(given)
    assert seen.again(given)
    assert seen.again([*given])


def test_others_are_not() -> None:
    seen, given = Seen(), arrays()
    seen.note(given)
    seen.note(given)
    assert not seen.again((*given[:-1], Array(given[-1].shape)))
    assert not seen.again(given[::-1])
    for others in [arrays() for _ in range(3)]:  # calls that take turns
        seen.note(others)
    assert seen.again(given)


def test_a_shape_that_was_set_is_seen() -> None:
    seen, given = Seen(), arrays()
    seen.note(given)
    seen.note(given)
    given[3].shape = (2, 3)
    assert not seen.again(given)


def test_nothing_is_kept_alive_and_a_number_of_what_is_gone_means_nothing() -> None:
    seen, given = Seen(), arrays()
    seen.note(given)
    seen.note(given)
    alive = weakref.ref(given[0])
    shapes = [x.shape for x in given]
    del given
    gc.collect()
    assert alive() is None
    for _ in range(50):  # some have the numbers of those that are gone
        assert not seen.again([Array(shape) for shape in shapes])
