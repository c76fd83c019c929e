"""Frozen records to JSON data and back, by their type hints alone.

Owns the form in which schedules and kernels are kept between processes. Strict when reading: a record with another set
of fields, or a value of another type, is `Stale`. Another version of the record then wrote it. Knows no record by name,
no file and no device.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast

T = TypeVar("T")
TYPE = "type"


class Stale(Exception):
    """Data that does not fit the record as it is now; whoever reads a store treats it as absent."""


def encode(value: Any) -> Any:
    """A record as dictionaries, lists, strings and numbers, ready for `json.dumps`.

    Records become dictionaries by field, with their type's name as `type`, tuples lists, bytes hexadecimal strings.

    Raises:
        TypeError: A value of another kind.
    """
    if value is None or value.__class__ in (bool, int, float, str):
        return value
    if value.__class__ is tuple:
        return [encode(x) for x in value]
    if value.__class__ is bytes:
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return {TYPE: type(value).__name__, **{f.name: encode(getattr(value, f.name)) for f in fields(value)}}
    raise TypeError(f"{value.__class__.__name__} has no form in JSON here")


def decode(kind: type[T], data: Any) -> T:
    """The record of type `kind` that `encode` made `data` of.

    Raises:
        Stale: Fields are missing or unknown, or a value does not have its field's type.
    """
    read: Callable[[Any], T] = _reader(cast("Any", kind))
    return read(data)


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What turns data into a value of a type hint."""
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union(hint)
    if origin is tuple:
        return _sequence(hint)
    if hint is bytes:
        return _bytes
    if hint in (bool, int, float, str):
        return _plain(hint)
    if is_dataclass(hint):
        return _record(hint)
    raise TypeError(f"no reader for {hint!r}")


def _plain(kind: type) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if data.__class__ is not kind:  # exactly: True is no extent, and 1 no time
            raise Stale(f"{data!r} is no {kind.__name__}")
        return data

    return read


def _bytes(data: Any) -> bytes:
    if data.__class__ is not str:
        raise Stale(f"{data!r} is no hexadecimal string")
    try:
        return bytes.fromhex(data)
    except ValueError as error:
        raise Stale(str(error)) from error


def _union(hint: Any) -> Callable[[Any], Any]:
    """Of records, told apart by their names, or of one kind and None."""
    kinds = [a for a in typing.get_args(hint) if a is not type(None)]
    optional = len(kinds) < len(typing.get_args(hint))
    if len(kinds) == 1:
        inner = _reader(kinds[0])
        return lambda data: None if data is None else inner(data)
    if not all(is_dataclass(k) for k in kinds):
        raise TypeError(f"no reader for {hint!r}: of unions, only those of records and of one kind with None")
    readers = {k.__name__: _reader(k) for k in kinds}

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        name = data.get(TYPE) if data.__class__ is dict else None
        if name.__class__ is not str or name not in readers:
            raise Stale(f"{name!r} is none of {', '.join(readers)}")
        return readers[name](data)

    return read


def _sequence(hint: Any) -> Callable[[Any], Any]:
    items = typing.get_args(hint)
    if len(items) == 2 and items[1] is Ellipsis:
        each = _reader(items[0])
        return lambda data: tuple(each(x) for x in _list(data))
    readers = [_reader(i) for i in items]

    def read(data: Any) -> Any:
        if len(_list(data)) != len(readers):
            raise Stale(f"{len(data)} values where {len(readers)} belong")
        return tuple(r(x) for r, x in zip(readers, data, strict=True))

    return read


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise Stale(f"{data!r} is no list")
    return data


def _record(kind: Any) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    readers = {f.name: _reader(hints[f.name]) for f in fields(kind)}

    def read(data: Any) -> Any:
        if data.__class__ is not dict or data.keys() != {TYPE, *readers} or data[TYPE] != kind.__name__:
            raise Stale(f"no {kind.__name__} of fields {', '.join(readers)}")
        values = {name: r(data[name]) for name, r in readers.items()}
        try:
            return kind(**values)
        except ValueError as error:  # a record that checks itself
            raise Stale(str(error)) from error

    return read
