"""Contractions as data: entries of a file or a list, which name subscripts, shapes and dtypes.

Owns the form of entries, and the errors that name one. Plans nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gett.console.formatting import brief, printable
from gett.errors import GettError, OptionError

OPTIONS = ("order", "precision", "conj", "workspace_limit", "memory_limit")
"""What an entry may say of its plan, beside subscripts, shapes, dtypes and path; as `gett.plan` takes it."""

_NEEDED = ("eq", "shapes", "dtype")
_KNOWN = (*_NEEDED, "path", *OPTIONS)


@dataclass(frozen=True, slots=True)
class Entry:
    """One contraction.

    Attributes:
        name: What errors call it.
        subscripts: As `gett.plan` takes them.
        operands: (shape, dtype) of each operand.
        options: Of `gett.plan`.
    """

    name: str
    subscripts: str
    operands: tuple[tuple[tuple[int, ...], Any], ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors of the block say which entry they are about.

    Raises:
        GettError: What the block raises, in its own class.
    """
    try:
        yield
    except GettError as error:
        raise named(error, name) from error


def named(error: GettError, name: str) -> GettError:
    """An error of the same class whose text begins with an entry's name."""
    return type(error)(f"entry {brief(name)}: {error}")


def read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The entries of a JSON file by name; those of a list by their number.

    Raises:
        OptionError: The file cannot be read, or is no JSON object or list.
    """
    shown = printable(os.fspath(path))
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise OptionError(f"{shown} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{shown} is no JSON: {error}") from error
    if isinstance(found, list):
        return {str(i): x for i, x in enumerate(found)}
    if isinstance(found, dict):
        return found
    raise OptionError(f"{shown} has a {type(found).__name__}; it must be an object or a list of entries")


def make_entry(name: str, given: Any) -> Entry:
    """An entry of a mapping as files have it, or of a tuple `(subscripts, shapes, dtypes)`.

    Raises:
        OptionError: It has another form, or a key that is not known.
    """
    if isinstance(given, tuple | list) and len(given) == 3:
        given = dict(zip(_NEEDED, given, strict=True))
    if not isinstance(given, Mapping):
        form = "a plan, a mapping with 'eq', 'shapes' and 'dtype', or a tuple (subscripts, shapes, dtypes)"
        raise OptionError(f"entry {brief(name)} is {brief(given)}; it must be {form}")
    unknown = [x for x in given if x not in _KNOWN]
    if unknown:
        raise OptionError(f"entry {brief(name)} has a key {brief(unknown[0])}; known are {', '.join(_KNOWN)}")
    missing = [x for x in _NEEDED if x not in given]
    if missing:
        raise OptionError(f"entry {brief(name)} has no {missing[0]!r}")
    if not isinstance(given["eq"], str):
        raise OptionError(f"entry {brief(name)}: 'eq' is {brief(given['eq'])}; it must be subscripts")
    shapes, dtypes = _listed(name, "shapes", given["shapes"]), given["dtype"]
    dtypes = list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes] * len(shapes)
    if len(dtypes) != len(shapes):
        raise OptionError(f"entry {brief(name)}: {len(dtypes)} dtypes for {len(shapes)} shapes")
    options = {x: given[x] for x in OPTIONS if given.get(x) is not None}
    if given.get("path") is not None:
        options["optimize"] = [tuple(x) for x in _listed(name, "path", given["path"])]
    return Entry(name, given["eq"], tuple(zip(shapes, dtypes, strict=True)), options)


def _listed(name: str, key: str, value: Any) -> list[tuple[int, ...]]:
    """A list of lists of integers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        rows = [x for x in value if isinstance(x, list | tuple) and all(type(n) is int for n in x)]
        if len(rows) == len(value):
            return [tuple(x) for x in rows]
    raise OptionError(f"entry {brief(name)}: {key!r} is {brief(value)}; it must be a list of lists of integers")
