"""Prints and draws a run over generated cases: each case on a line, then how the ratios are distributed.

Knows only records. The kind of a case is what follows the first hyphen of its name.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.picture import picture
from benchmarks.records import Row, Run
from benchmarks.report import Column, geometric_mean, ratio, share

AIM = 0.8  # no case should be slower than this against the best rival
LISTED = 5  # of the lowest cases
_COLOURS = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#59463c"),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """How values are distributed: lowest, 10th percentile, median, geometric mean, count."""

    low: float
    tenth: float
    median: float
    mean: float
    count: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """The distribution of the values that are there, None if there are none.

    Raises:
        ValueError: A value is not positive.
    """
    present = sorted(v for v in values if v is not None)
    mean = geometric_mean(present)
    if mean is None:
        return None
    tenth = statistics.quantiles(present, n=10, method="inclusive")[0] if len(present) > 1 else present[0]
    return Spread(present[0], tenth, statistics.median(present), mean, len(present))


def kind_of(row: Row) -> str:
    """The class of shapes that a generated case belongs to."""
    return row.case.partition("-")[2] or row.case


def table(run: Run) -> str:
    """The run as text, at most 110 columns wide: cases, distributions, kinds, lowest cases, checks."""
    rival, title = _rival(run)
    lines = [*report.heading(run), ""]
    columns = _columns(run.kind == "gpu")
    lines.append(" ".join(report.cell(c, c.title) for c in columns))
    lines.append(" ".join("-" * c.width for c in columns))
    lines += [" ".join(report.cell(c, c.text(row)) for c in columns) for row in run.rows]
    ratios = [ratio(r, rival) for r in run.rows]
    lines += ["", f"{'':<30} {'median':>8} {'10 %':>8} {'lowest':>8} {'geo.mean':>8} {'cases':>6}"]
    lines.append(_spread_line(f"ratio to {title}", spread(ratios), percent=False))
    if run.kind == "gpu":
        lines.append(_spread_line("ratio to torch.einsum", spread([ratio(r, "torch.einsum") for r in run.rows]), False))
    else:
        lines.append(_spread_line("ratio to opt_einsum", spread([ratio(r, "opt_einsum") for r in run.rows]), False))
    lines.append(_spread_line("share of the roofline", spread([share(r) for r in run.rows]), True))
    if run.kind == "gpu":
        lines.append(_spread_line(f"the same of {title}", spread([share(r, rival) for r in run.rows]), True))
    lines += ["", *_kinds(run, rival, title)]
    low = sorted((v, r.case) for r, v in zip(run.rows, ratios, strict=True) if v is not None)
    if low:
        under = sum(v < AIM for v, _ in low)
        names = ", ".join(f"{case} {v:.2f}" for v, case in low[:LISTED])
        lines += ["", f"under {AIM}: {under} of {len(low)}; lowest: {names}"]
    return "\n".join(line.rstrip() for line in [*lines, *report.closing(run)])


def _rival(run: Run) -> tuple[str, str]:
    return ("cutensor:", "best cuTENSOR") if run.kind == "gpu" else ("numpy.einsum", "numpy.einsum")


def _einsum(row: Row, width: int) -> str:
    return row.einsum if len(row.einsum) <= width else row.einsum[: width - 2] + ".."


def _columns(on_gpu: bool) -> list[Column]:
    rivals = [
        Column("cuT us", 8, report.best_us),
        Column("algo", 7, report.best_name, left=True),
        Column("/best", 5, lambda r: report.number(ratio(r, "cutensor:"), 2)),
        Column("torch", 8, lambda r: report.number(r.us("torch.einsum"))),
    ]
    if not on_gpu:
        rivals = [
            Column("numpy us", 8, lambda r: report.number(r.us("numpy.einsum"))),
            Column("/numpy", 6, lambda r: report.number(ratio(r, "numpy.einsum"), 2)),
            Column("opt_e us", 8, lambda r: report.number(r.us("opt_einsum"))),
        ]
    return [
        Column("case", 12, lambda r: r.case, left=True),
        Column("(b)mnk", 18, report.shape, left=True),
        Column("gett us", 8, report.mine),
        Column("roof%", 5, report.percent),
        *rivals,
        Column("einsum", 30, lambda r: _einsum(r, 30), left=True),
    ]


def _spread_line(title: str, found: Spread | None, percent: bool) -> str:
    if found is None:
        return f"{title:<30} {report.DASH:>8}"
    form = "{:8.1%}" if percent else "{:8.2f}"
    numbers = " ".join(form.format(v) for v in (found.median, found.tenth, found.low, found.mean))
    return f"{title:<30} {numbers} {found.count:6d}"


def _kinds(run: Run, rival: str, title: str) -> list[str]:
    """Geometric means by kind, the slowest against the rival first."""
    groups: dict[str, list[Row]] = {}
    for row in run.rows:
        groups.setdefault(kind_of(row), []).append(row)
    lines = [f"{'kind':<12} {'cases':>6} {'/rival':>7} {'lowest':>7} {'roof':>6}   (rival: {title})"]
    found = [
        (k, spread([ratio(r, rival) for r in rows]), spread([share(r) for r in rows])) for k, rows in groups.items()
    ]
    for kind, ratios, shares in sorted(found, key=lambda f: f[1].mean if f[1] else 0.0):
        numbers = f"{ratios.mean:7.2f} {ratios.low:7.2f}" if ratios else f"{report.DASH:>7} {report.DASH:>7}"
        part = f"{shares.mean:6.0%}" if shares else f"{report.DASH:>6}"
        lines.append(f"{kind:<12} {len(groups[kind]):6d} {numbers} {part}")
    return lines


def plot(runs: Sequence[Run], path: str | Path) -> None:
    """Draw the sorted ratios and roofline shares of each run and write them as a picture (e.g. PNG).

    Raises:
        ImportError: matplotlib is not installed; it comes with the `bench` extra.
    """
    with picture(path, len(runs), 2, figsize=(13, 4.6 * len(runs))) as axes:
        for (left, right), run in zip(axes, runs, strict=True):
            _draw_ratios(left, run)
            _draw_shares(right, run)


def _draw_ratios(ax: Any, run: Run) -> None:
    rival, title = _rival(run)
    points = sorted((v, kind_of(r)) for r in run.rows if (v := ratio(r, rival)) is not None)
    colour = dict(zip(dict.fromkeys(kind_of(r) for r in run.rows), _COLOURS * 9, strict=False))
    for kind in colour:
        at = [(i, v) for i, (v, k) in enumerate(points) if k == kind]
        if at:
            ax.scatter(*zip(*at, strict=True), s=30, color=colour[kind], label=kind, zorder=3)
    found = spread([v for v, _ in points])
    if found is not None:
        ax.axhline(found.median, color="#59463c", linewidth=0.9, linestyle=":", label=f"median {found.median:.2f}")
    ax.axhline(1, color="#888888", linewidth=0.8, linestyle="--")
    ax.set_yscale("log")
    ax.set(
        xlabel="cases, sorted", ylabel=f"times faster than {title}", title=f"{len(points)} generated cases, {run.dtype}"
    )
    ax.grid(axis="y", color="#dddddd", linewidth=0.6, which="both")
    ax.legend(fontsize=7, ncols=2, loc="upper left")


def _draw_shares(ax: Any, run: Run) -> None:
    rival, title = _rival(run)
    for name, label, marker, colour in (("gett", "gett", "o", "#4e79a7"), (rival, title, "x", "#f28e2b")):
        values = sorted(100 * s for r in run.rows if (s := share(r, name)) is not None)
        if values:
            ax.plot(range(len(values)), values, marker=marker, markersize=4, linewidth=1, color=colour, label=label)
    ax.axhline(100, color="#888888", linewidth=0.8, linestyle="--")
    ax.set(xlabel="cases, each side sorted by itself", ylabel="share of the roofline, %", title=run.device)
    ax.grid(axis="y", color="#dddddd", linewidth=0.6)
    ax.legend(fontsize=8, loc="upper left")
