"""Prints a run as a table and draws it as a chart. Knows only records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.picture import picture
from benchmarks.records import Row, Run

DASH = "-"
GETT_ALGORITHM = "cutensor:GETT"
TBLIS = "TBLIS"


# Title and name of the rivals: whose ratios the summary gives, and whose points the chart shows.
_SUMMED = {
    "gpu": (
        ("best cuTENSOR", "cutensor:"),
        ("cuTENSOR GETT", GETT_ALGORITHM),
        ("torch.einsum", "torch.einsum"),
        ("torch.einsum, C order", "torch.einsum+order"),
        ("cupy.einsum", "cupy.einsum"),
        ("TTGT by hand", "ttgt"),
        ("cuBLAS of equal size", "cublas"),
    ),
    "cpu": (("numpy.einsum", "numpy.einsum"), ("opt_einsum", "opt_einsum"), (TBLIS, "tblis")),
}
_DRAWN = 3
_MARKS = (("s", "#4e79a7"), ("^", "#f28e2b"), ("x", "#59463c"))


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, its width, and the text of a row."""

    title: str
    width: int
    text: Callable[[Row], str]
    left: bool = False


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Geometric mean of the values that are there; None if there are none.

    Raises:
        ValueError: A value is not positive.
    """
    present = [v for v in values if v is not None]
    if any(v <= 0 for v in present):
        raise ValueError("a geometric mean needs positive values")
    return math.exp(sum(map(math.log, present)) / len(present)) if present else None


def ratio(row: Row, rival: str) -> float | None:
    """How many times faster gett is than the rival; a rival ending in `:` stands for the best of its kind."""
    mine = row.us("gett")
    best = row.best(rival) if rival.endswith(":") else None
    theirs = best[1] if best else row.us(rival)
    return theirs / mine if mine and theirs else None


def share(row: Row, rival: str = "gett") -> float | None:
    """The part of the roofline that a rival reaches, 0 to 1 (caches can lift it above 1)."""
    best = row.best(rival) if rival.endswith(":") else None
    time = best[1] if best else row.us(rival)
    return row.roofline_us / time if time else None


def table(run: Run) -> str:
    """The run as text, at most 110 columns wide, ending in the geometric means and the worst case."""
    columns = _gpu_columns() if run.kind == "gpu" else _cpu_columns(with_tblis(run))
    lines = [*heading(run), ""]
    lines.append(" ".join(cell(c, c.title) for c in columns))
    lines.append(" ".join("-" * c.width for c in columns))
    lines += [" ".join(cell(c, c.text(row)) for c in columns) for row in run.rows]
    lines += ["", *_summary(run)]
    return "\n".join(line.rstrip() for line in lines)


def cell(column: Column, text: str) -> str:
    """The text in the column's width."""
    return text[: column.width].ljust(column.width) if column.left else text.rjust(column.width)


def number(value: float | None, digits: int = 1) -> str:
    """The value with so many digits, none from 10,000 on, a dash where there is no value."""
    if value is None:
        return DASH
    if digits and value >= 10_000:
        digits = 0
    return f"{value:.{digits}f}"


def shape(row: Row) -> str:
    """Batch (where there is one), rows, columns and depth of the matrix product."""
    b, m, n, k = row.bmnk
    return "x".join(map(str, ([b] if b > 1 else []) + [m, n, k]))


def mine(row: Row) -> str:
    """Time of gett, or that its result is wrong."""
    return "WRONG" if row.check == "WRONG" else number(row.us("gett"))


def _rate(row: Row, amount: float, unit: float) -> float | None:
    time = row.us("gett")
    return amount / (time * 1e-6) / unit if time else None


def percent(row: Row) -> str:
    """Share of the roofline that gett reaches, in percent."""
    part = share(row)
    return DASH if part is None else f"{100 * part:.0f}"


def best_name(row: Row) -> str:
    """Which of cuTENSOR's algorithms was the fastest."""
    best = row.best("cutensor:")
    return best[0].partition(":")[2] if best else DASH


def best_us(row: Row) -> str:
    """The time of the fastest of them."""
    best = row.best("cutensor:")
    return number(best[1] if best else None)


def _common() -> list[Column]:
    return [Column("case", 16, lambda r: r.case, left=True), Column("(b)mnk", 14, shape, left=True)]


def _gpu_columns() -> list[Column]:
    return [
        *_common(),
        Column("gett us", 7, mine),
        Column("TF/s", 5, lambda r: number(_rate(r, r.flops, 1e12))),
        Column("TB/s", 4, lambda r: number(_rate(r, r.bytes, 1e12), 2)),
        Column("roof%", 5, percent),
        Column("cuT us", 7, best_us),
        Column("algo", 7, best_name, left=True),
        Column("GETT us", 7, lambda r: number(r.us(GETT_ALGORITHM))),
        Column("/best", 5, lambda r: number(ratio(r, "cutensor:"), 2)),
        Column("/GETT", 5, lambda r: number(ratio(r, GETT_ALGORITHM), 2)),
        Column("torch", 7, lambda r: number(r.us("torch.einsum"))),
        Column("cuBLAS", 7, lambda r: number(r.us("cublas"))),
    ]


def with_tblis(run: Run) -> bool:
    """Whether TBLIS took part, which is not installed everywhere."""
    return any("tblis" in row.times for row in run.rows)


def _cpu_columns(tblis: bool) -> list[Column]:
    columns = [
        *_common(),
        Column("gett us", 8, mine),
        Column("GF/s", 6, lambda r: number(_rate(r, r.flops, 1e9))),
        Column("GB/s", 5, lambda r: number(_rate(r, r.bytes, 1e9))),
        Column("roof%", 5, percent),
        Column("numpy us", 8, lambda r: number(r.us("numpy.einsum"))),
        Column("opt_e us", 8, lambda r: number(r.us("opt_einsum"))),
        Column("/numpy", 6, lambda r: number(ratio(r, "numpy.einsum"), 2)),
        Column("/opt_e", 6, lambda r: number(ratio(r, "opt_einsum"), 2)),
    ]
    if tblis:
        columns.insert(-2, Column("tblis us", 8, lambda r: number(r.us("tblis"))))
        columns.append(Column("/tblis", 6, lambda r: number(ratio(r, "tblis"), 2)))
    return columns


def heading(run: Run) -> list[str]:
    """Device, rates and legend above a table."""
    e = run.environment
    unit, name = (1e12, "T") if run.kind == "gpu" else (1e9, "G")
    scale = f", {run.scale:g} of the elements" if run.scale != 1 else ""
    lines = [
        f"{run.device}: {run.dtype}, precision {run.precision or 'default'}{scale}",
        f"measured in this run: copy {run.bandwidth / unit:.2f} {name}B/s, "
        f"matrix product {run.peak / unit:.1f} {name}FLOP/s",
    ]
    lines += [str(e["cases"])] if e.get("cases") else []
    marks = [str(e[k]) for k in ("date", "commit", "label") if e.get(k)]
    lines += [", ".join(marks)] if marks else []
    legend = (
        "us: median; cuT: best of cuTENSOR's algorithms (algo), GETT: its GETT; /x: how many times faster gett is"
        if run.kind == "gpu"
        else "us: best of the rounds, results C-contiguous; /x: how many times faster gett is"
    )
    return [*lines, legend, "roof%: share of max(bytes / copy bandwidth, flops / matrix-product rate)"]


def _summary(run: Run) -> list[str]:
    lines = [_mean_line("share of the roofline", [(r.case, share(r)) for r in run.rows], percent=True)]
    lines += [
        _mean_line(f"ratio to {title}", [(r.case, ratio(r, rival)) for r in run.rows])
        for title, rival in _SUMMED[run.kind]
        if title != TBLIS or with_tblis(run)
    ]
    return lines + closing(run)


def closing(run: Run) -> list[str]:
    """What stands under a table: who failed, whether results are right, how long it took."""
    lines = _failures(run)
    wrong = [r.case for r in run.rows if r.check == "WRONG"]
    right = sum(r.check == "right" for r in run.rows)
    verdict = f"results checked: {right} of {len(run.rows)} right" + (f", WRONG: {', '.join(wrong)}" if wrong else "")
    why = [f"  {r.case}: {r.check_detail}"[:110] for r in run.rows if r.case in run.unverified]
    return [*lines, verdict, *why, f"took {run.seconds:.1f} s"]


def _failures(run: Run) -> list[str]:
    """Who did not run and on how many cases, with the first text; rivals with the same text share a line."""
    by_text: dict[str, dict[str, int]] = {}
    for row in run.rows:
        for name, m in row.times.items():
            if m.error:
                counts = by_text.setdefault(m.error, {})
                counts[name] = counts.get(name, 0) + 1
    lines = []
    for text, counts in list(by_text.items())[:6]:
        names = ", ".join(f"{name} ({n})" for name, n in counts.items())
        lines += [f"did not run, with number of cases: {names}"[:110], f"  {' '.join(text.split())}"[:110]]
    return lines


def _mean_line(title: str, pairs: Sequence[tuple[str, float | None]], *, percent: bool = False) -> str:
    present = [(case, v) for case, v in pairs if v is not None]
    mean = geometric_mean(v for _, v in present)
    if mean is None:
        return f"{title:<30} {DASH:>7}"
    case, low = min(present, key=lambda p: p[1])
    form = "{:7.1%}" if percent else "{:7.2f}"
    return f"{title:<30} {form.format(mean)}  geometric mean of {len(present)}; lowest{form.format(low)} ({case})"


def plot(runs: Sequence[Run], path: str | Path) -> None:
    """Draw each run's share of the roofline per case, sorted by gett's, and write it as a picture (e.g. PNG).

    Raises:
        ImportError: matplotlib is not installed; it comes with the `bench` extra.
    """
    height = max(3.0, *(0.34 * len(r.rows) + 1.8 for r in runs))
    with picture(path, 1, len(runs), figsize=(8.2 * len(runs), height)) as axes:
        for axis, run in zip(axes[0], runs, strict=True):
            _draw(axis, run)


def _draw(ax: Any, run: Run) -> None:
    rows = sorted(run.rows, key=lambda r: share(r) or 0.0)
    places = range(len(rows))
    draw = ax.barh(places, [100 * (share(r) or 0) for r in rows], color="#76b7b2", height=0.7, label="gett")
    for bar, row in zip(draw, rows, strict=True):
        if row.check == "WRONG":
            bar.set_color("#e15759")
    for (title, rival), (marker, colour) in zip(_SUMMED[run.kind][:_DRAWN], _MARKS, strict=False):
        points = [(100 * s, y) for y, r in zip(places, rows, strict=True) if (s := share(r, rival)) is not None]
        if points:
            ax.scatter(*zip(*points, strict=True), marker=marker, s=34, color=colour, label=title, zorder=3)
    shown = ["gett", *(rival for _, rival in _SUMMED[run.kind][:_DRAWN])]
    limit = max([100.0, *(100 * (share(r, name) or 0) for r in rows for name in shown)]) * 1.04
    ax.set(
        yticks=list(places),
        yticklabels=[f"{r.case}  {shape(r)}" for r in rows],
        xlim=(0, limit),
        ylim=(-0.6, len(rows) - 0.4),
        xlabel="share of the roofline, % (measured copy bandwidth and matrix-product peak)",
        title=f"{run.dtype}, {run.device}",
    )
    ax.axvline(100, color="#888888", linewidth=0.8, linestyle="--")
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", labelsize=8)
    ax.legend(loc="lower right", fontsize=8)
