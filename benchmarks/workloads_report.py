"""Prints and draws the runs over the workloads: all dtypes in one table. Knows only records.

A row's group is its field. The best rival is the fastest of those that give the same result in the same order: any of
cuTENSOR's algorithms, and `torch.einsum` whose result is put into C order, compiled or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.picture import picture
from benchmarks.records import Row, Run
from benchmarks.report import Column, geometric_mean, number, share

TORCH = ("torch.einsum+order", "torch.compile")
RIVALS = {"gpu": ("cutensor:", *TORCH), "cpu": ("numpy.einsum", "opt_einsum", "tblis")}
LOW = 0.7  # share of the roofline below which a case is named
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2")
_NAMED = 12  # cases in a list


def fastest(row: Row, names: Sequence[str]) -> tuple[str, float] | None:
    """The fastest of some rivals and its time in microseconds; a name stands for all that begin with it."""
    found = [best for name in names if (best := row.best(name)) is not None]
    return min(found, key=lambda best: best[1], default=None)


def ratio(run: Run, row: Row) -> float | None:
    """How many times as fast as the best rival gett is; None where either is missing or gett's result is wrong."""
    best, mine = fastest(row, RIVALS[run.kind]), row.us("gett")
    return best[1] / mine if best and mine and row.check != "WRONG" else None


def part(row: Row) -> float | None:
    """The share of the roofline that gett reaches; None where its result is wrong."""
    return share(row) if row.check != "WRONG" else None


def label(run: Run) -> str:
    """The dtype, and the precision that was asked for."""
    return f"{run.dtype} {run.precision or ''}".rstrip()


def table(runs: Sequence[Run]) -> str:
    """All runs as text, at most 110 columns wide: cases by field, means by field and dtype, what did not run."""
    columns = _columns(runs[0])
    lines = _heading(runs)
    for field, pairs in _by_field(runs):
        lines += ["", field, " ".join(report.cell(c, c.title) for c in columns)]
        lines.append(" ".join("-" * c.width for c in columns))
        for run, row in pairs:
            lines.append(" ".join(report.cell(c, c.text(row)) for c in _columns(run)))
    lines += ["", *_means(runs), "", *_named(runs)]
    for run in runs:
        lines += ["", f"{label(run)}:", *_missing(run), *report.closing(run)]
    return "\n".join(line.rstrip() for line in lines)


def _heading(runs: Sequence[Run]) -> list[str]:
    """Device and commit, the rates of each dtype, and what the columns say."""
    first = runs[0]
    unit, name = (1e12, "T") if first.kind == "gpu" else (1e9, "G")
    marks = [str(first.environment[k]) for k in ("date", "commit", "label", "cases") if first.environment.get(k)]
    rates = [
        f"  {label(r):<14} copy {r.bandwidth / unit:.2f} {name}B/s, matrix product {r.peak / unit:.1f} {name}FLOP/s"
        for r in runs
    ]
    legend = [
        "us: median; cuT: the fastest of cuTENSOR's algorithms (algo); torch: einsum, eager or compiled, in C order"
    ]
    return [
        first.device, *marks, "measured in this run:", *rates, *(legend if first.kind == "gpu" else []),
        "/best: how many times as fast as the best rival; roof%: share of max(bytes / copy, flops / matrix product)",
    ]  # fmt: skip


def _by_field(runs: Sequence[Run]) -> Iterator[tuple[str, list[tuple[Run, Row]]]]:
    """Each field's rows, those of a case together."""
    rows = [(run, row) for run in runs for row in run.rows]
    cases = list(dict.fromkeys(row.case for _, row in rows))
    for field in dict.fromkeys(row.group for _, row in rows):
        mine = [pair for pair in rows if pair[1].group == field]
        yield field, sorted(mine, key=lambda pair: cases.index(pair[1].case))


def _columns(run: Run) -> list[Column]:
    common = [
        Column("case", 16, lambda r: r.case, left=True),
        Column("dtype", 14, lambda r: label(run), left=True),
        Column("(b)mnk", 16, report.shape, left=True),
        Column("gett us", 8, report.mine),
        Column("roof%", 5, report.percent),
    ]
    last = Column("/best", 6, lambda r: number(ratio(run, r), 2))
    if run.kind == "cpu":
        pairs = (("numpy us", "numpy.einsum"), ("opt_e us", "opt_einsum"), ("tblis us", "tblis"))
        return [*common, *(_time(title, (name,)) for title, name in pairs), last]
    return [
        *common,
        _time("cuT us", ("cutensor:",)),
        Column("algo", 11, report.best_name, left=True),
        _time("torch us", TORCH),
        _time("cuBLAS", ("cublas",)),
        last,
    ]


def _time(title: str, names: Sequence[str]) -> Column:
    def text(row: Row) -> str:
        best = fastest(row, names)
        return number(best[1] if best else None)

    return Column(title, 8, text)


def _means(runs: Sequence[Run]) -> list[str]:
    """Geometric means of each field in each dtype."""
    lines = [
        f"{'geometric means':<19} {'cases':>5} {'/best':>6} {'lowest':>7} {'roof%':>6} {'/cuBLAS':>8}  slowest case"
    ]
    for field, pairs in _by_field(runs):
        for run in runs:
            rows = [row for owner, row in pairs if owner is run]
            if not rows:
                continue
            ratios = [(value, row.case) for row in rows if (value := ratio(run, row)) is not None]
            low = min(ratios, default=None)
            mean = geometric_mean(part(row) for row in rows)
            cells = (
                f"{field + ' ' + label(run):<19} {len(rows):5d} {number(geometric_mean(v for v, _ in ratios), 2):>6}",
                f"{number(low[0] if low else None, 2):>7} {number(100 * mean if mean else None):>6}",
                f"{number(geometric_mean(report.ratio(row, 'cublas') for row in rows), 2):>8}  {low[1] if low else ''}",
            )
            lines.append(" ".join(cells))
    return lines


def _named(runs: Sequence[Run]) -> list[str]:
    """The cases that are slower than the best rival, and those far from the roofline, lowest first."""
    lines = []
    for title, limit, value in (
        ("slower than the best rival", 1.0, ratio),
        (f"below {LOW:.0%} of the roofline", LOW, lambda _, row: part(row)),
    ):
        found = [
            (v, f"{row.case} {label(run)}") for run in runs for row in run.rows if (v := value(run, row)) is not None
        ]
        low = sorted(pair for pair in found if pair[0] < limit)
        lines.append(f"{title}: {len(low)} of {len(found)}")
        lines += [f"  {name}: {v:.2f}" for v, name in low[:_NAMED]]
        lines += [f"  and {len(low) - _NAMED} more"] if len(low) > _NAMED else []
    return lines


def _missing(run: Run) -> list[str]:
    """The rivals without a figure in the whole run, which `/best` therefore leaves out."""
    titles = {"cutensor:": "cuTENSOR", "torch.einsum+order": "torch.einsum"}
    absent = [titles.get(n, n) for n in RIVALS[run.kind] if all(row.best(n) is None for row in run.rows)]
    return [f"no figures of {', '.join(absent)}: /best is against the others"] if absent else []


def plot(runs: Sequence[Run], path: str | Path) -> None:
    """Draw how many times as fast as the best rival each case is, and its share of the roofline; e.g. PNG.

    Raises:
        ImportError: matplotlib is not installed; it comes with the `bench` extra.
    """
    names = [(field, row.case) for field, pairs in _by_field(runs) for _, row in pairs]
    cases = list(dict.fromkeys(names))
    places = {case: len(cases) - 1 - i for i, (_, case) in enumerate(cases)}
    with picture(path, 1, 2, figsize=(13, 0.2 * len(cases) + 1.8), sharey=True) as axes:
        left, right = axes[0]
        for run, colour in zip(runs, _COLOURS * len(runs), strict=False):
            _points(left, run, places, colour, {row.case: ratio(run, row) for row in run.rows})
            _points(right, run, places, colour, {row.case: part(row) for row in run.rows})
        left.set_xscale("log", base=2)
        left.xaxis.set_major_formatter("{x:g}")
        for ax in (left, right):
            ax.axvline(1, color="#888888", linewidth=0.9, linestyle="--")
            ax.grid(color="#e4e4e4", linewidth=0.6)
            ax.set_axisbelow(True)
            for (above, _), (below, case) in pairwise(cases):
                if above != below:
                    ax.axhline(places[case] + 0.5, color="#59463c", linewidth=0.8)
        left.set(
            yticks=list(places.values()), yticklabels=list(places), ylim=(-0.7, len(cases) - 0.3),
            xlabel="times as fast as the best rival", title=runs[0].device,
        )  # fmt: skip
        left.tick_params(axis="y", labelsize=7)
        commit = str(runs[0].environment.get("commit") or "")[:12]
        right.set(xlabel="share of the roofline", title=commit and f"commit {commit}")
        right.set_xlim(left=0)
        if right.get_legend_handles_labels()[0]:
            right.legend(fontsize=8, loc="lower right")


def _points(ax: Any, run: Run, places: dict[str, int], colour: str, values: dict[str, float | None]) -> None:
    points = [(value, places[case]) for case, value in values.items() if value is not None]
    if points:
        ax.scatter(*zip(*points, strict=True), s=22, color=colour, label=label(run), zorder=3)
