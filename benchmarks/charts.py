"""The charts of the README and of the site, drawn from the records: `python -m benchmarks.charts`.

One colour means one library in all of them. Owns what is shown and how; measures nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.picture import picture
from benchmarks.records import Row, Run, from_json
from benchmarks.workloads_report import TORCH

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parent.parent / "docs" / "images"
WORKLOADS = "2026-11-23-h200-workloads.json"
TCCG_FLOAT16 = "2026-11-23-h200-tccg-float16-all.json"
TCCG_FLOAT32 = "2026-11-22-h200-float32.json"
TCCG_DOUBLE = "2026-11-23-h200-tccg-double.json"
ACCURACY = "2026-11-23-h200-accuracy.json"
GPUS = "2026-11-27-h200-gpus.json"
NETWORKS, NETWORKS_FIRST = "2026-11-27-h200-networks.json", "2026-11-27-h200-branches-first-calls.json"
GEMM, GEMM_FLOAT64 = "2026-11-29-h200-gemm.json", "2026-11-29-h200-gemm-float64.json"
ACCURACY_COMPLEX = "2026-11-23-h200-accuracy-complex64.json"

GETT, CUTENSOR, TORCH_EINSUM, COMPILED, CUBLAS = "#1565c0", "#ef8a17", "#7d8791", "#8e44ad", "#2e8b57"
TBLIS, NUMPY = "#c0a16b", "#4d77a5"
INK, GRID = "#263238", "#e3e7ea"
# A rival's title, the names of its times, its colour and its mark.
RIVALS = (
    ("cuTENSOR, best of five algorithms", ("cutensor:",), CUTENSOR, "s"),
    ("torch.einsum, in C order", (TORCH[0],), TORCH_EINSUM, "D"),
    ("torch.compile", (TORCH[1],), COMPILED, "^"),
)


SHORT = {RIVALS[0][0]: "cuTENSOR", RIVALS[1][0]: "torch.einsum", RIVALS[2][0]: "torch.compile"}


def load(name: str) -> list[Run]:
    """The runs of a record."""
    return from_json((RESULTS / name).read_text(encoding="utf-8"))


def loose(name: str) -> Any:
    """A record that is not one of runs."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def latest(pattern: str) -> Path | None:
    """The newest record whose name fits; their names begin with the date."""
    return max(RESULTS.glob(pattern), default=None)


def us_of(row: Row, names: Sequence[str]) -> float | None:
    """The fastest of some rivals; emulations, of other precision, are left out."""
    found = [m.median_us for n, m in row.times.items() if n.startswith(tuple(names)) and "/" not in n]
    return min((t for t in found if t is not None), default=None)


def dress(ax: Any, *, grid: str) -> None:
    """The look of all charts."""
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color("#90a4ae")
    ax.tick_params(colors=INK, length=0, labelsize=9)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)


# --- the README


FAMOUS = (
    (WORKLOADS, "float64", "ladder", "CCSD\nparticle ladder"),
    (WORKLOADS, "float64", "triples-hole", "CCSD(T)\ntriples"),
    (WORKLOADS, "float64", "df-half", "Density fitting\nAO to MO"),
    (WORKLOADS, "complex64", "dmrg-theta", "DMRG\ntwo-site step"),
    (WORKLOADS, "complex64", "peps-corner", "PEPS\ncorner"),
    (TCCG_FLOAT16, "float16", "abrs-qb-aqrs", "TCCG\nabrs-qb-aqrs"),
    (WORKLOADS, "float16", "attn-qk", "Attention\nscores"),
    (WORKLOADS, "float16", "trimul-out", "AlphaFold\ntriangle update"),
)


def famous_rows() -> list[tuple[str, Run, Row]]:
    """The eight contractions: a title, the run and the row of each."""
    found = []
    for name, dtype, case, title in FAMOUS:
        (run,) = (r for r in load(name) if r.dtype == dtype)
        (row,) = (r for r in run.rows if r.case == case)
        found.append((title, run, row))
    return found


def readme(path: Path) -> None:
    """Eight contractions in TFLOP/s, and PySCF's RCCSD in seconds where a record has it."""
    rows = famous_rows()
    record = latest("*-pyscf.json")
    widths = [4.6, 1.0] if record else [1.0]
    with picture(path, 1, len(widths), figsize=(12, 4.8), width_ratios=widths) as axes:
        ax = axes[0][0]
        series = [("gett", ("gett",), GETT), *((t, n, c) for t, n, c, _ in RIVALS[:2])]
        for i, (title, names, colour) in enumerate(series):
            rates = [row.flops / us / 1e6 if (us := us_of(row, names)) else 0.0 for _, _, row in rows]
            places = [n + (i - 1) * 0.27 for n in range(len(rows))]
            ax.bar(places, rates, 0.25, color=colour, label=title, zorder=2)
            for x, rate in zip(places, rates, strict=True):
                ax.annotate(f"{rate:.0f}", (x, rate), xytext=(0, 2), textcoords="offset points", ha="center",
                            fontsize=8.5, color=INK, weight="bold" if not i else "normal")  # fmt: skip
        ax.set_xticks(range(len(rows)), [f"{title}\n{run.dtype}" for title, run, _ in rows])
        dress(ax, grid="y")
        ax.set_ylabel("TFLOP/s, more is better", color=INK)
        ax.set_title("Eight contractions on one NVIDIA H200", loc="left", color=INK, fontsize=13, weight="bold")
        ax.legend(frameon=False, loc="upper left", fontsize=9.5)
        if record:
            _ccsd(axes[0][1], json.loads(record.read_text(encoding="utf-8")))


def _ccsd(ax: Any, record: Any) -> None:
    titles = {
        "gett": ("gett", GETT),
        "PySCF, TBLIS": ("PySCF,\nTBLIS", TBLIS),
        "PySCF, NumPy": ("PySCF,\nNumPy", NUMPY),
    }
    rows = {row["einsum"]: row["cpu_s"] for row in record["rows"]}
    shown = [(*titles[name], rows[name]) for name in titles if name in rows]
    for i, (title, colour, seconds) in enumerate(shown):
        ax.bar(i, seconds, 0.62, color=colour, zorder=2)
        ax.annotate(f"{seconds:.2f}", (i, seconds), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=9,
                    color=INK, weight="bold" if title == "gett" else "normal")  # fmt: skip
    ax.set_xticks(range(len(shown)), [title for title, *_ in shown])
    dress(ax, grid="y")
    ax.set_ylabel("seconds of one CPU thread, less is better", color=INK)
    ax.set_title("RCCSD in PySCF", loc="left", color=INK, fontsize=13, weight="bold")
    ax.set_xlabel(f"whose einsum; H2O, {record['basis']}", fontsize=9, color=INK)


# --- times of many cases: a point for gett, one for its best rival


def times(path: Path, runs: Sequence[tuple[Run, Sequence[Row]]], title: str) -> None:
    """Cases below each other: milliseconds of gett and of its fastest rival, whose mark says which it is."""
    from matplotlib.ticker import LogLocator, NullLocator

    cases = [(run, row) for run, rows in runs for row in rows if us_of(row, ("gett",))]
    with picture(path, 1, 1, figsize=(9.2, 0.26 * len(cases) + 1.7)) as axes:
        ax = axes[0][0]
        seen: dict[str, Any] = {}
        for place, (_, row) in enumerate(reversed(cases)):
            mine = us_of(row, ("gett",))
            rivals = [(us, t, c, m) for t, names, c, m in RIVALS if (us := us_of(row, names))]
            assert mine
            ax.plot([row.roofline_us / 1e3] * 2, [place - 0.33, place + 0.33], color="#b0bec5", linewidth=2, zorder=1)
            if rivals:
                us, name, colour, mark = min(rivals)
                ax.plot([mine / 1e3, us / 1e3], [place] * 2, color="#cfd8dc", linewidth=2.5, zorder=1)
                point = ax.scatter(us / 1e3, place, s=44, color=colour, marker=mark, zorder=3)
                seen.setdefault(name, point)
                ax.annotate(f"{us / mine:.2f}", (1.005, place), xycoords=("axes fraction", "data"), va="center",
                            fontsize=8.5, color=INK if us >= mine else "#c62828", weight="bold")  # fmt: skip
            seen["gett"] = ax.scatter(mine / 1e3, place, s=52, color=GETT, marker="o", zorder=4)
        several = len(runs) > 1
        ax.set_yticks(range(len(cases)), [f"{row.case}  {run.dtype}" if several else row.case
                                          for run, row in reversed(cases)])  # fmt: skip
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_ylim(-0.8, len(cases) - 0.2)
        dress(ax, grid="both")
        ax.grid(axis="y", color="#f1f3f4")
        ax.set_xlabel("milliseconds on an H200 (logarithmic), less is better", color=INK)
        ax.set_title(f"{title}: gett and its fastest rival", loc="left", color=INK, fontsize=12, weight="bold", pad=24)
        ax.annotate("rival / gett", (1.005, 1.0), xycoords="axes fraction", va="bottom", fontsize=8.5, color=INK)
        bar = ax.plot([], [], color="#b0bec5", linewidth=2, marker="|", linestyle="none", markersize=11,
                      markeredgewidth=2)[0]  # fmt: skip
        order = ["gett", *(t for t, *_ in RIVALS if t in seen)]
        labels = ["gett", *(SHORT[t] for t in order[1:]), "roofline"]
        ax.legend([seen[t] for t in order] + [bar], labels, frameon=False, ncols=len(labels), fontsize=8.5,
                  loc="lower left", bbox_to_anchor=(-0.01, 1.0), columnspacing=1.2, handletextpad=0.3)  # fmt: skip


def workload_charts() -> None:
    """A chart for each field of public programs."""
    by = {run.dtype: run for run in load(WORKLOADS)}
    group = {
        (d, f): [r for r in run.rows if r.group == f] for d, run in by.items() for f in {r.group for r in run.rows}
    }
    times(IMAGES / "workloads-ml-h200.png", [(by["float16"], group["float16", "ml"])],
          "Machine learning, float16")  # fmt: skip
    times(IMAGES / "workloads-chem-h200.png", [(by["float64"], group["float64", "chem"])],
          "Quantum chemistry, float64")  # fmt: skip
    times(IMAGES / "workloads-tn-h200.png",
          [(by["complex64"], group["complex64", "tn"]), (by["float64"], group["float64", "tn"])],
          "Circuits and tensor networks")  # fmt: skip
    times(IMAGES / "workloads-eq-h200.png",
          [(by["float64"], group["float64", "ml"]), (by["complex64"], group["complex64", "ml"])],
          "Equivariant networks, a Fourier operator")  # fmt: skip


# --- TCCG: rates


def rates(path: Path, rows: Sequence[tuple[str, dict[str, float]]], series: dict[str, tuple[str, str]], title: str,
          xlabel: str = "TFLOP/s on an H200, more is better") -> None:  # fmt: skip
    """Cases below each other: a mark for each library at its rate."""
    with picture(path, 1, 1, figsize=(9.2, 0.26 * len(rows) + 1.5)) as axes:
        ax = axes[0][0]
        for place, (_, found) in enumerate(reversed(rows)):
            shown = [found[name] for name in series if name in found]
            ax.plot([min(shown), max(shown)], [place] * 2, color="#cfd8dc", linewidth=2.5, zorder=1)
            for depth, (name, (colour, mark)) in enumerate(series.items()):
                if name in found:
                    ax.scatter(found[name], place, s=48, color=colour, marker=mark, zorder=9 - depth,
                               label=name if place == 0 else None)  # fmt: skip
        ax.set_yticks(range(len(rows)), [name for name, _ in reversed(rows)])
        ax.set_xlim(left=0)
        ax.set_ylim(-0.8, len(rows) - 0.2)
        dress(ax, grid="both")
        ax.grid(axis="y", color="#f1f3f4")
        ax.set_xlabel(xlabel, color=INK)
        ax.set_title(title, loc="left", color=INK, fontsize=12.5, weight="bold", pad=24)
        ax.legend(frameon=False, ncols=len(series), fontsize=9, loc="lower left", bbox_to_anchor=(-0.01, 1.0),
                  handletextpad=0.3)  # fmt: skip


def _run_rates(run: Run, names: dict[str, tuple[str, ...]]) -> list[tuple[str, dict[str, float]]]:
    return [
        (row.case, {title: row.flops / us / 1e6 for title, found in names.items() if (us := us_of(row, found))})
        for row in run.rows
    ]


def tccg_charts() -> None:
    """The 24 contractions of TCCG and one more, a chart for each dtype."""
    names = {"gett": ("gett",), RIVALS[0][0]: ("cutensor:",)}
    torch = {**names, RIVALS[1][0]: (TORCH[0],)}
    marks = {"gett": (GETT, "o"), RIVALS[0][0]: (CUTENSOR, "s"), RIVALS[1][0]: (TORCH_EINSUM, "D")}
    two = {name: marks[name] for name in names}
    (float16,) = load(TCCG_FLOAT16)
    rates(IMAGES / "tccg-float16-h200.png", _run_rates(float16, torch), marks, "TCCG in float16")
    record = loose(TCCG_FLOAT32)
    rows = [
        (r["name"], {"gett": r["tf"], RIVALS[0][0]: r["tf"] * r["us"] / min(r["rivals"].values())})
        for r in record["rows"] if r["group"] == "tccg" and r["dtype"] == "float32" and r["prec"] == "bf16x6"
    ]  # fmt: skip
    rates(IMAGES / "tccg-float32-h200.png", rows, two, "TCCG in float32, gett's default precision")
    double = {run.dtype: run for run in load(TCCG_DOUBLE)}
    rates(IMAGES / "tccg-float64-h200.png", _run_rates(double["float64"], names), two, "TCCG in float64")


# --- accuracy: a question a chart


WAYS = {
    "gett bf16x6": ("gett, default", GETT, "o", "-"),
    "gett ieee": ('gett, "ieee"', "#d81b60", "v", "-"),
    "gett fp16x3": ('gett, "fp16x3"', "#6d4c41", "P", "-"),
    "gett bf16x3": ('gett, "bf16x3"', "#00acc1", "X", "-"),
    "gett tf32": ('gett, "tf32"', "#5e35b1", "*", "-"),
    "cublas": ("cuBLAS, PyTorch", CUBLAS, "^", "--"),
    "cutensor, two k": ("cuTENSOR, k in two modes", CUTENSOR, "s", "--"),
    "cublas tf32": ("cuBLAS, PyTorch: TF32", "#9e9d24", "<", "--"),
    "cutensor tf32": ("cuTENSOR: TF32", "#d84315", ">", "--"),
}
"""Of each way to multiply: its title, its colour, its mark and its line."""


def errors_by_depth(path: Path, record: Any, ways: Sequence[str], data: dict[str, str], title: str) -> None:
    """The largest error of a component by the number of products that are summed, a panel for each kind of data."""
    with picture(path, 1, len(data), figsize=(12, 4.5), sharey=True) as axes:
        for ax, (name, words) in zip(axes[0], data.items(), strict=True):
            for depth, way in enumerate(ways):
                label, colour, mark, line = WAYS[way]
                found = [(r["k"], r["errors"][way]) for r in record["rows"] if r["data"] == name]
                points = [(k, e[0]) for k, e in found if not isinstance(e, str)]
                ax.loglog(*zip(*points, strict=True), marker=mark, markersize=6, color=colour, linestyle=line,
                          label=label, zorder=9 - depth, linewidth=2.4 if not depth else 1.5)  # fmt: skip
            dress(ax, grid="both")
            ax.set_xlabel("k, the products of one sum", color=INK)
            ax.set_title(words, loc="left", color=INK, fontsize=10.5)
        axes[0][0].set_ylabel("largest error, units of 2$^{-24}$", color=INK)
        axes[0][0].figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=12.5, weight="bold")
        axes[0][0].legend(frameon=False, fontsize=9)


def errors_by_data(path: Path, record: Any, ways: Sequence[str], title: str) -> None:
    """The largest error over all depths, for each kind of data."""
    words = {
        "normal": "normal", "uniform": "uniform in [0, 1)", "2^8": "exponents within 2^±8",
        "2^12": "exponents within 2^±12", "2^30": "exponents within 2^±30", "2^60": "exponents within 2^±60",
        "outliers": "1 % outliers of 2^20", "lognormal": "lognormal", "rows": "rows scaled by up to 2^40",
        "zeros": "nine zeros in ten", "tiny": "tiny: 2^-122 times 2^110", "cancelling": "sums that cancel",
    }  # fmt: skip
    rows = []
    for name, told in words.items():
        mine = [r["errors"] for r in record["rows"] if r["data"] == name]
        worst = {WAYS[w][0]: max(e[w][0] for e in mine if not isinstance(e[w], str)) for w in ways}
        rows.append((told, worst))
    series = {WAYS[w][0]: (WAYS[w][1], WAYS[w][2]) for w in ways}
    rates(path, rows, series, title, "largest error over all k, units of 2$^{-24}$, less is better")


def accuracy_charts() -> None:
    """How exact the default is, on which data it is not, what the other precisions give, and complex64."""
    single, double = loose(ACCURACY), loose(ACCURACY_COMPLEX)
    two = {"normal": "normal data", "uniform": "uniform data in [0, 1)"}
    errors_by_depth(IMAGES / "accuracy-default-h200.png", single, ("gett bf16x6", "cublas", "cutensor, two k"), two,
                    "Is gett's default float32 as accurate as the others' float32?")  # fmt: skip
    errors_by_data(IMAGES / "accuracy-data-h200.png", single, ("gett bf16x6", "gett ieee", "cublas"),
                   "On which data is the default less accurate than multiply-adds?")  # fmt: skip
    errors_by_depth(IMAGES / "accuracy-precisions-h200.png", single,
                    ("gett bf16x6", "gett ieee", "gett fp16x3", "gett bf16x3", "gett tf32"), two,
                    "What do gett's precisions cost in accuracy?")  # fmt: skip
    errors_by_depth(IMAGES / "accuracy-tf32-h200.png", single, ("gett tf32", "cublas tf32", "cutensor tf32"), two,
                    'Is "tf32" the TF32 of the others?')  # fmt: skip
    errors_by_depth(IMAGES / "accuracy-complex64-h200.png", double, ("gett bf16x6", "gett ieee", "cublas"), two,
                    "And complex64?")  # fmt: skip


def main() -> int:
    """Draw all."""
    from benchmarks import gpus_report  # it has the colours from here

    readme(IMAGES / "readme-h200.png")
    workload_charts()
    tccg_charts()
    accuracy_charts()
    gpus_report.chart(loose(GPUS), str(IMAGES / "gpus-h200.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
