"""What the benchmark of several devices measured, for people: a table and a chart. Measures nothing."""

from __future__ import annotations

from typing import Any

from benchmarks.charts import CUBLAS, CUTENSOR, GETT, dress
from benchmarks.picture import picture
from benchmarks.report import geometric_mean
from gett.console.formatting import format_table


def table(record: dict[str, Any]) -> list[str]:
    """The record for people."""
    lines = []
    shared = [x for x in (record["network"], *record["ladder"]) if x]
    if shared:
        rows = [
            [x["name"], _us(x["us"].get("one")), _us(x["us"].get("all")), _ratio(x["us"], "one", "all"),
             *(_ratio(x["us"], rival, "all") for rival in ("cuTENSORMg", "cuTENSOR and NCCL")), f"{x['apart']:.0e}"]
            for x in shared
        ]  # fmt: skip
        head = [f"{record['devices']} devices", "one us", "all us", "one/all", "cuTENSORMg/all", "NCCL/all", "apart"]
        lines += [*format_table(head, rows)]
    for x in record["ladder"]:
        lines.append(f"{x['name']}: {x['planned']['bytes']} bytes over the link as planned, {x['bytes']} counted")
    for x in record["expected"]:
        lines.append(
            f"{x['name']}, {x['devices']} H200 by the cost model: {x['one'] / x['us']:.2f} times as fast as one"
        )
    lines.append("")
    us = record["limit"]["us"]
    rows = [[record["limit"]["name"], _us(us["limited"]), _ratio(us, "limited", "unlimited"),
             _ratio(us, "cotengra and PyTorch", "limited")]]  # fmt: skip
    lines += [*format_table(["under a limit", "us", "of unlimited", "cotengra/gett"], rows), ""]
    ratios = [x["seen"] / x["planned"] for x in record["peaks"]]
    least, most, mean = min(ratios), max(ratios), geometric_mean(ratios)
    lines.append(f"peak bytes of {len(ratios)} networks, seen by planned: {least:.3f} to {most:.3f}, mean {mean:.3f}")
    for x in record["ranks"][1:]:
        one, ranks = record["ranks"][0]["s"], x["ranks"]
        lines.append(f"{ranks} ranks of MPI: {x['s']:.2f} s, one {one:.2f} s: {one / x['s'] / ranks:.2f} a core")
    return lines


def _us(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else "-"


def _ratio(us: dict[str, Any], over: str, under: str) -> str:
    x, y = us.get(over), us.get(under)
    return f"{x / y:.2f}" if isinstance(x, float) and isinstance(y, float) else "-"


def chart(record: dict[str, Any], path: str) -> None:
    """How many times as fast as one device all are."""
    colours = {"all": GETT, "cuTENSORMg": CUTENSOR, "cuTENSOR and NCCL": CUBLAS}
    shared = [x for x in (record["network"], *record["ladder"]) if x]
    with picture(path, 1, 1, figsize=(7.5, 0.6 + 0.7 * len(shared))) as axes:
        ax = axes[0, 0]
        dress(ax, grid="x")
        for k, (name, colour) in enumerate(colours.items()):
            bars = [(i, x["us"]["one"] / x["us"][name]) for i, x in enumerate(shared)
                    if isinstance(x["us"].get(name), float) and isinstance(x["us"].get("one"), float)]  # fmt: skip
            if bars:
                label = "gett" if name == "all" else name
                ax.barh([i + 0.25 * k for i, _ in bars], [y for _, y in bars], 0.22, color=colour, label=label)
        ax.set_yticks([i + 0.25 for i in range(len(shared))], [x["name"] for x in shared])
        ax.invert_yaxis()
        ax.set_xlabel(f"times as fast as gett on one device, {record['devices']} devices")
        ax.legend(frameon=False, fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
