"""Domains of the fields of records: all have one, and what does not fit is named, whatever it is."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from gett.schedule.spec.mainloop import Mainloop
from gett.schedule.spec.schedule import Schedule
from layouts.domains import Count, OneOf, Span, outside


def without_domain(kind: Any, seen: set[Any]) -> Iterator[str]:
    """Fields of a record, and of those inside it, whose numbers and words may be anything."""
    if kind in seen:
        return
    seen.add(kind)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name in {f.name for f in fields(kind)}:
            yield from (f"{kind.__name__}.{name}: {x}" for x in _bare(hint, seen))


def _bare(hint: Any, seen: set[Any]) -> Iterator[str]:
    if get_origin(hint) is Annotated:
        inner, *domains = get_args(hint)
        assert all(isinstance(x, Span | OneOf) for x in domains)
        if get_origin(inner) is not None:
            yield from _bare(inner, seen)
    elif get_origin(hint) in (tuple, Union, types.UnionType):
        for x in get_args(hint):
            yield from _bare(x, seen)
    elif is_dataclass(hint):
        yield from without_domain(hint, seen)
    elif hint not in (bool, type(None), Ellipsis):
        yield str(hint)


def test_every_field_of_every_record_of_a_schedule_has_a_domain() -> None:
    seen: set[Any] = set()
    assert list(without_domain(Schedule, seen)) == []
    assert seen >= {*get_args(Mainloop), Schedule}
    assert len(seen) > 40


@dataclass(frozen=True)
class Inner:
    word: Annotated[str, OneOf(("k", "mn"))]
    at: tuple[Count, Count] | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    numbers: Annotated[tuple[Count, ...], Span(1, 2)] = (1,)
    flag: bool = False


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Outer(None), None),
        (Outer(Inner("k", (1, 2**31 - 1))), None),
        (Outer(Inner("zz")), "inner.word = 'zz', which is to be one of 'k', 'mn'"),
        (Outer(Inner([])), "inner.word = [], which is to be a text"),
        (Outer(Inner("k", (0, 1))), "inner.at[0] = 0, which is to be 1 to 2147483647"),
        (Outer(Inner("k", (1, True))), "inner.at[1] = True, which is to be an integer"),
        (Outer(Inner("k", (1,))), "inner.at = (1,), which is to be a tuple of 2"),
        (Outer(Inner("k", [1, 1])), "inner.at = [1, 1], which is to be a tuple or None"),
        (Outer(Outer(None)), "inner = Outer("),
        (Outer(None, ()), "numbers = (), which is to be 1 to 2"),
        (Outer(None, (1, 2.0)), "numbers[1] = 2.0, which is to be an integer"),
        (Outer(None, (1, 10**5000)), "numbers[1] = a number of 16610 bits"),
        (Outer(None, (1,), 1), "flag = 1, which is to be a truth value"),
        (Outer(None, (1,), None), "flag = None"),
    ],
)
def test_what_does_not_fit_is_named(record: Any, text: str | None) -> None:
    found = outside(record)
    assert (found is None) == (text is None)
    assert text is None or (found is not None and found.startswith(text)), found


@dataclass(frozen=True)
class Forgotten:
    number: int


def test_a_field_without_a_domain_is_an_error_of_its_author() -> None:
    with pytest.raises(TypeError, match="no domain of <class 'int'>"):
        outside(Forgotten(1))
