"""The tables of the site, from the records: Markdown on standard output. Measures nothing; owns what a table shows."""

from __future__ import annotations

import json
import math
from typing import Any

from benchmarks.charts import (
    ACCURACY,
    GEMM,
    GEMM_FLOAT64,
    GPUS,
    NETWORKS,
    NETWORKS_FIRST,
    TCCG_DOUBLE,
    WORKLOADS,
    latest,
    load,
    loose,
    us_of,
)
from benchmarks.gemm_sizes import shares
from benchmarks.records import Row
from benchmarks.report import geometric_mean
from benchmarks.workloads_report import TORCH

FIELDS = (
    ("machine learning", "float16", "ml"),
    ("quantum chemistry", "float64", "chem"),
    ("circuits and tensor networks", "complex64", "tn"),
    ("equivariant networks", "float64", "ml"),
)
_RIVALS = {"cuTENSOR": ("cutensor:",), "torch.einsum": (TORCH[0],), "torch.compile": (TORCH[1],)}
MISSING = "**to be measured**"


def _best(row: Row) -> tuple[float, str] | None:
    found = [(us, name) for name, names in _RIVALS.items() if (us := us_of(row, names))]
    return min(found, default=None)


def workload_means() -> None:
    """Each field: how many cases, how many times as fast as the best rival, the lowest and which it is."""
    print("| Field | dtype | cases | geometric mean | lowest |\n|---|---|---|---|---|")
    runs = {run.dtype: run for run in load(WORKLOADS)}
    for title, dtype, group in FIELDS:
        rows = [r for r in runs[dtype].rows if r.group == group]
        ratios = [
            (best[0] / mine, r.case, best[1])
            for r in rows if (best := _best(r)) and (mine := us_of(r, ("gett",)))
        ]  # fmt: skip
        low = min(ratios)
        mean = geometric_mean(x for x, *_ in ratios)
        print(f"| {title} | {dtype} | {len(rows)} | {mean:.2f} | {low[0]:.2f} ({low[1]}, {low[2]}) |")


def workload_cases() -> None:
    """Every case with its subscripts, its time, its rate and its best rival."""
    print("| Case | dtype | subscripts | gett, us | TFLOP/s | TB/s | best rival, us | rival / gett |")
    print("|---|---|---|---|---|---|---|---|")
    for run in load(WORKLOADS):
        for row in run.rows:
            mine, best = us_of(row, ("gett",)), _best(row)
            if not mine:
                continue
            told = f"{best[0]:.0f} {best[1]} | {best[0] / mine:.2f}" if best else "| "
            text = row.einsum if len(row.einsum) < 40 else row.einsum[:37] + "..."
            rates = f"{row.flops / mine / 1e6:.0f} | {row.bytes / mine / 1e6:.2f}"
            print(f"| {row.case} | {run.dtype} | `{text}` | {mine:.0f} | {rates} | {told} |")


def rates() -> None:
    """The two rates of each dtype that rooflines are made of, as that run measured them."""
    print("| dtype | copy, TB/s | cuBLAS's matrix product, TFLOP/s |\n|---|---|---|")
    for run in load(WORKLOADS):
        print(f"| {run.dtype} | {run.bandwidth / 1e12:.2f} | {run.peak / 1e12:.0f} |")


def tccg_means() -> None:
    """Against cuTENSOR's best, by dtype: TCCG and one more, and sixty generated contractions."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for name in ("2026-11-22-h200-float32.json", "2026-11-22-h200-float16-kernels.json"):
        for row in loose(name)["rows"]:
            kind = "TF32" if row["prec"] == "tf32" else row["dtype"]
            if row["group"] in ("tccg", "random") and row["prec"] in ("ieee", "bf16x6", "tf32"):
                ratios.setdefault((row["group"], kind), []).append(row["ratio"])
    for name in (TCCG_DOUBLE, "2026-11-23-h200-tccg-float16.json"):
        for run in load(name):
            found = [c / g for r in run.rows if (c := us_of(r, ("cutensor:",))) and (g := us_of(r, ("gett",)))]
            ratios["tccg", run.dtype] = found
    kinds = ("float16", "float32", "TF32", "complex64", "float64", "complex128")
    print("| | " + " | ".join(kinds) + " |\n|" + "---|" * (len(kinds) + 1))
    for title, group in (("TCCG's 24 and one more", "tccg"), ("sixty generated", "random")):
        cells = []
        for kind in kinds:
            found = ratios.get((group, kind))
            cells.append(f"{geometric_mean(found):.2f}; {min(found):.2f}" if found else "")
        print(f"| {title} | " + " | ".join(cells) + " |")


def accuracy(depths: tuple[int, ...] = (64, 1024, 16384)) -> None:
    """Largest error and median, in units, by data and k."""
    ways = {"gett, default": "gett bf16x6", "gett `\"ieee\"`": "gett ieee", "cuBLAS, PyTorch": "cublas",
            "cuTENSOR": "cutensor, two k", "gett `\"tf32\"`": "gett tf32", "cuBLAS TF32": "cublas tf32"}  # fmt: skip
    kinds = {"normal": "normal", "uniform": "uniform in [0, 1)", "2^30": "exponents within 2^±30"}
    print("| data | k | " + " | ".join(ways) + " |\n|" + "---|" * (len(ways) + 2))
    rows = {(r["data"], r["k"]): r["errors"] for r in loose(ACCURACY)["rows"]}
    for name, told in kinds.items():
        for k in depths:
            cells = [f"{e[0]:.3g} ({e[1]:.2g})" for e in (rows[name, k][w] for w in ways.values())]
            print(f"| {told} | {k} | " + " | ".join(cells) + " |")


# --- the threads


def gpus() -> None:
    """What two GPUs take beside one, and beside cuTENSORMg and cuTENSOR with NCCL."""
    record = loose(GPUS)
    print(
        "| Contraction | one GPU, ms | two, ms | one / two | cuTENSORMg / two | NCCL / two |\n|---|---|---|---|---|---|"
    )
    for row in (record["network"], *record["ladder"]):
        us = row["us"]
        one, two = us["one"], us["all"]
        rivals = [
            f"{us[x] / two:.2f}" if isinstance(us.get(x), float) else "" for x in ("cuTENSORMg", "cuTENSOR and NCCL")
        ]
        print(f"| {row['name']} | {one / 1e3:.1f} | {two / 1e3:.1f} | {one / two:.2f} | {rivals[0]} | {rivals[1]} |")


def gemm() -> None:
    """How many times as long cuBLAS takes, by dtype and shape of a matrix product: geometric mean, then the lowest."""
    rows = [row for row in loose(GEMM)["rows"] if row["kind"] != "float64"] + loose(GEMM_FLOAT64)["rows"]  # timed later
    found = {(kind, group): told for kind, group, *told in shares(rows)}
    groups = [*dict.fromkeys(group for _, group in found if group)]
    print("| dtype | " + " | ".join(groups) + " | lowest of |\n" + "|---" * (len(groups) + 2) + "|")
    for kind in dict.fromkeys(kind for kind, _ in found):
        cells = " | ".join(f"{mean:.2f}; {low:.2f}" for _, mean, low, _ in (found[kind, group] for group in groups))
        print(f"| {kind} | {cells} | {found[kind, ''][-1].split()[-1]} |")


def networks() -> None:
    """Calls of whole networks, warm and first, beside PyTorch along the same path."""
    first = loose(NETWORKS_FIRST)["calls"]
    head = "| Network | steps | warm, ms | PyTorch, ms | PyTorch / gett | first call, s | in a new process, s |"
    print(f"{head}\n|---|---|---|---|---|---|---|")
    for row in loose(NETWORKS)["rows"]:
        mine, rival, found = row["us"]["gett"] / 1e3, row["us"]["rival"] / 1e3, first.get(row["name"])
        calls = f"{found['total_s']:.2f} | {found['cached_s']:.2f}" if found else " | "
        print(f"| {row['name']} | {row['steps']} | {mine:.2f} | {rival:.1f} | {rival / mine:.1f} | {calls} |")


def _threads() -> dict[str, Any]:
    path = latest("*-threads.json")
    return json.loads(path.read_text(encoding="utf-8")) if path else {}


def thread(name: str) -> None:
    """What the record of the threads says of one case: a line for each way, or that it has to be measured."""
    found = {case["name"]: case for case in _threads().get("cases", [])}.get(name)
    print("| | us | peak of memory | |\n|---|---|---|---|")
    if found is None:
        print(f"| {name} | {MISSING} | {MISSING} | `python -m benchmarks.threads --json` |")
        return
    for way, entry in found["calls"].items():
        peak = f"{entry['peak_bytes'] / 2**30:.3g} GiB" if "peak_bytes" in entry else ""
        told = {True: "exact", False: "WRONG"}.get(entry.get("exact"), "")
        text = f"{entry['us']:.3g}" if entry.get("us", math.inf) < 1000 else f"{entry.get('us', math.nan):.0f}"
        print(f"| {way} | {text if 'us' in entry else ''} | {peak} | {entry.get('error', told)} |")


def first_calls() -> None:
    """Seconds of the first, second and third call, each library in a process of its own."""
    print("| | first call | second | third |\n|---|---|---|---|")
    found = _threads().get("first_calls")
    if not found:
        print(f"| gett, cupy.einsum, cuTENSOR, torch.einsum | {MISSING} | {MISSING} | {MISSING} |")
        return
    for name, entry in found.items():
        cells = [
            f"{entry[x]:.3g} s" if x in entry else entry.get("error", "") for x in ("first_s", "second_s", "third_s")
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def refused(name: str) -> None:
    """What cuTENSOR did with a view, in a process of its own."""
    found = _threads().get("cutensor", {}).get(name)
    if found is None:
        print(f"cuTENSOR on the same views: {MISSING}.")
    elif "error" in found:
        print(f"cuTENSOR on the same views: {found['error']}.")
    else:
        print(f"cuTENSOR {found['version']} on the same views: {found['us']:.0f} us.")
