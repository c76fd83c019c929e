"""What `memory_limit=` asks for: bytes, a share of what is free, or elements of an intermediate.

Knows neither modes nor arrays, nor how a limit is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from gett.arrays.dynamo import leaves_tracing
from gett.env import parse_size, read_environment
from gett.errors import OptionError
from gett.network.optimize import Bytes


@dataclass(frozen=True, slots=True)
class Share:
    """A share of the memory that is free on a device when a call begins."""

    part: float


@dataclass(frozen=True, slots=True)
class Elements:
    """A number of elements of the largest intermediate; 0 stands for those of the largest operand."""

    count: int


Limit = Bytes | Share | Elements


def parse_limit(value: Any, name: str = "memory_limit") -> Limit | None:
    """What a limit means; None, -1 and infinity are none.

    Raises:
        OptionError: It means nothing; the text names it.
    """
    if value is None or (value.__class__ is int and value == -1):
        return None
    if isinstance(value, str):
        if value == "max_input":
            return Elements(0)
        number = _plain_number(value)
        if number is not None and 0 < number < 1:
            return Share(number)
        size = parse_size(value, name)
        if size < 1:
            raise OptionError(f"{name}={value!r} is no limit: it must be a byte at least")
        return Bytes(size)
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        if number in (-1, math.inf):
            return None
        if not isinstance(value, Integral) and 0 < number < 1:
            return Share(number)
        if number >= 1 and (isinstance(value, Integral) or (number.is_integer() and number > 1)):
            count: Any = value
            return Elements(int(count))
    raise OptionError(
        f"{name}={value!r}; it must be a size such as '1GiB', a share of the free memory between 0 and 1 such as 0.5, "
        "a number of elements of at least 1, 'max_input', or -1 or infinity for no limit"
    )


def _plain_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_process: list[Limit | None] = []  # empty until it is first asked for


@leaves_tracing
def usual_limit() -> Limit | None:
    """What holds where a call has no limit of its own: that of the environment when it is first asked for.

    Raises:
        OptionError: `GETT_MEMORY_LIMIT` has a value that means nothing.
    """
    if not _process:
        _process.append(parse_limit(read_environment().memory_limit, "GETT_MEMORY_LIMIT"))
    return _process[0]


def resolved(limit: Bytes | Share | Elements, free: int) -> Bytes | Elements:
    """A limit that does not depend on what is free, of which so many bytes are.

    A share is rounded down to four binary digits, so that calls that find nearly as much free share a plan.
    """
    if not isinstance(limit, Share):
        return limit
    size = max(1, int(limit.part * free))
    unit = max(0, size.bit_length() - 4)
    return Bytes(size >> unit << unit)
