"""Tables and quantities as text, for reports, plans and errors. Knows nothing of what they tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal

_PREFIXES = (
    *((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")),
    *((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")),
)


WIDEST = 118  # characters of a line of a plan's text
_BRIEF = 200  # characters
_LONG = ((365.25 * 86400, "years"), (86400.0, "days"), (3600.0, "hours"))


def printable(text: str) -> str:
    """The text with everything escaped that is no character to be seen, apart from line ends and tabs.

    Labels may be any characters, and some of them steer a terminal.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def brief(value: Any) -> str:
    """The `repr` of what a user gave, for a message: short, and there even where `repr` fails or never ends."""
    try:
        text = repr(value)
    except Exception:  # of the value's own code; deep lists, integers of thousands of digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 4]} ..."


def shortened(text: str, most: int = WIDEST) -> str:
    """A text of so many characters at most, whose end is left out for three dots."""
    return text if len(text) <= most else text[: most - 3] + "..."


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lines of a text table with a rule under its header; the first `left` columns are flush left, others right."""
    header, rows = list(map(printable, header)), [list(map(printable, row)) for row in rows]
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def align(line: Sequence[str]) -> str:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return [align(header), "  ".join("-" * w for w in widths), *(align(r) for r in rows)]


def count(n: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun: "1 step", "2 steps"."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"


def format_quantity(value: float | Decimal) -> str:
    """Three significant digits and a decimal prefix, ready for a unit: `format_quantity(1.21e9) + "B"` is "1.21 GB"."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if abs(number) >= 1e21:  # the operations of a large network without a path are more than a float holds
        from decimal import Decimal  # here, as hardly anybody needs it

        return f"{Decimal(value):.3g} "
    for factor, prefix in _PREFIXES:
        # What rounds to 1000 of a unit is 1 of the next.
        if abs(number) >= factor * 0.9995:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g} "


def format_seconds(seconds: float) -> str:
    """A time with its unit: "12.5 us", "9.49 ms", "3.2 hours"."""
    for length, unit in _LONG:
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return format_quantity(seconds) + "s" if seconds < 999.5 else f"{seconds:.4g} s"


def format_bytes(size: int) -> str:
    """A size of memory in binary units, e.g. "96 KiB"."""
    for power, unit in ((60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} B"
