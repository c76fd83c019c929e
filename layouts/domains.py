"""Domains: what the numbers and words of a record may be. Fields say it in their types, as in `stages: Count`.

A record may come from a file or be made by hand, and then holds anything. `outside` finds what does not fit, so that
whoever asks it first may divide and index. Knows no record by name.
"""

from __future__ import annotations

import reprlib
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Union


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers from the least to the most; of a tuple or text, how long it is."""

    least: float
    most: float

    def __contains__(self, x: Any) -> bool:
        return self.least <= (len(x) if x.__class__ in (tuple, str) else x) <= self.most

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Some words, or some numbers."""

    values: tuple[int | str, ...]

    def __contains__(self, x: Any) -> bool:
        return x in self.values

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.values))


MOST = 2**31 - 1
"""Most of what kernels count."""

Count = Annotated[int, Span(1, MOST)]
Index = Annotated[int, Span(0, MOST)]
"""Positions, and what may be 0."""
Size = Annotated[int, Span(0, 2**63 - 1)]
"""Extents and bytes in device memory."""
Signed = Annotated[int, Span(-(2**63), 2**63 - 1)]
Bits = Annotated[int, OneOf((0, 1, 3, 7))]
"""Low bits of a number that permute the chunks of 16 bytes of a row."""
Conflicts = Annotated[int, Span(1, 32)]
"""How often an access of a warp is served."""
Shift = Annotated[int, Span(0, 31)]
Vector = Annotated[int, OneOf((1, 2, 4, 8, 16))]
"""Elements of an access."""
Swizzle = Annotated[int, OneOf((16, 32, 64, 128))]
"""Bytes of a row that the hardware's swizzle permutes, 16 for none."""
Text = Annotated[str, Span(0, 1 << 16)]

_KINDS = {bool: "a truth value", int: "an integer", float: "a float", str: "a text", type(None): "None"}

Check = Callable[[Any], str | None]
"""Where a value is outside its domain and how, None where it is not."""


def outside(record: Any) -> str | None:
    """The first value of a record, or of records inside it, that its field does not allow; None where all fit.

    Types are compared exactly: True is no number, and 1.0 no count.
    """
    kind: Any = type(record)
    found = _check_of(kind)(record)
    return None if found is None else found.removeprefix(".")


@cache
def _check_of(hint: Any) -> Check:
    """What compares a value with a type hint.

    Raises:
        TypeError: Numbers or words without a domain.
    """
    if typing.get_origin(hint) is Annotated:
        hint, domain = typing.get_args(hint)
        return _within(domain, _plain(hint) if hint in (int, float, str) else _check_of(hint))
    if typing.get_origin(hint) in (Union, types.UnionType):
        return _union(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return _sequence(typing.get_args(hint))
    if is_dataclass(hint):
        return _record(hint)
    if hint in (bool, type(None)):
        return _plain(hint)
    raise TypeError(f"no domain of {hint!r}")


def _shown(value: Any) -> str:
    if value.__class__ is int and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return reprlib.repr(value)


def _named(kind: type) -> str:
    return _KINDS.get(kind, f"a {kind.__name__}")


def _plain(kind: type) -> Check:
    return lambda x: None if x.__class__ is kind else f" = {_shown(x)}, which is to be {_named(kind)}"


def _within(domain: Span | OneOf, check: Check) -> Check:
    return lambda x: check(x) or (None if x in domain else f" = {_shown(x)}, which is to be {domain}")


def _kind(hint: Any) -> Any:
    """The class of a type hint's values."""
    origin = typing.get_origin(hint)
    return _kind(typing.get_args(hint)[0]) if origin is Annotated else origin or hint


def _union(hints: tuple[Any, ...]) -> Check:
    """Of values that their classes tell apart."""
    checks = {_kind(h): _check_of(h) for h in hints}
    names = " or ".join(map(_named, checks))

    def found(x: Any) -> str | None:
        check = checks.get(x.__class__)
        return f" = {_shown(x)}, which is to be {names}" if check is None else check(x)

    return found


def _sequence(hints: tuple[Any, ...]) -> Check:
    each = _check_of(hints[0]) if hints[1:] == (Ellipsis,) else None
    checks = [] if each else [_check_of(h) for h in hints]

    def found(x: Any) -> str | None:
        if x.__class__ is not tuple or (each is None and len(x) != len(checks)):
            return f" = {_shown(x)}, which is to be a tuple{'' if each else f' of {len(checks)}'}"
        for i, value in enumerate(x):
            reason = (each or checks[i])(value)
            if reason is not None:
                return f"[{i}]{reason}"
        return None

    return found


def _record(kind: Any) -> Check:
    hints = typing.get_type_hints(kind, include_extras=True)
    checks = [(f.name, _check_of(hints[f.name])) for f in fields(kind)]

    def found(x: Any) -> str | None:
        if x.__class__ is not kind:
            return f" = {_shown(x)}, which is to be {_named(kind)}"
        for name, check in checks:
            reason = check(getattr(x, name))
            if reason is not None:
                return f".{name}{reason}"
        return None

    return found
