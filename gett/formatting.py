"""Tables and quantities as text, for reports and plans."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = (
    *((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")),
    *((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")),
)


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lines of a text table with a rule under its header; the first `left` columns are flush left, others right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def align(line: Sequence[str]) -> str:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return [align(header), "  ".join("-" * w for w in widths), *(align(r) for r in rows)]


def format_quantity(value: float) -> str:
    """Three significant digits and a decimal prefix, ready for a unit: `format_quantity(1.21e9) + "B"` is "1.21 GB"."""
    for factor, prefix in _PREFIXES:
        # What rounds to 1000 of a unit is 1 of the next.
        if abs(value) >= factor * 0.9995:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def format_bytes(size: int) -> str:
    """A size of memory in binary units, e.g. "96 KiB"."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"
