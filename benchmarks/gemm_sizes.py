"""Matrix products of many sizes, square and 16 times as long along M, N or K, beside cuBLAS through `torch.matmul`.

Owns the sizes and the table: products whose tiles do not fill the GPU in whole waves are among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import gett
from benchmarks import environment
from benchmarks.ahead import compile_ahead
from benchmarks.cases import ELEMENT_TYPES, Case
from benchmarks.conversions import L2_BYTES
from benchmarks.records import write_text
from benchmarks.report import geometric_mean
from benchmarks.timing import GpuTimer, measure_cpu
from gett.console.formatting import format_table
from gett.console.progress import progress
from gett.measure.timer import sets_to_rotate
from gett.measure.verify import make_tolerance

KINDS = ("float16", "tf32", "float64", "complex128")
STEP, MOST = 128, 4096
LONG = 16  # times as long one side of a product that is not square is
BUDGET_US = 20_000.0


def products(step: int = STEP, most: int = MOST) -> list[Case]:
    """All products; the short sides of those that are not square are a quarter of a square's."""
    shapes = [("square", (n, n, n)) for n in range(4 * step, most + 1, step)]
    for q in range(step, most // 4 + 1, step):
        shapes += [(f"long {'MNK'[i]}", tuple(LONG * q if i == k else q for k in range(3))) for i in range(3)]
    return [
        Case(f"{name} {'x'.join(map(str, mnk))}", "ik,kj->ij", tuple(sorted(zip("ijk", mnk, strict=True))), name)
        for name, mnk in shapes
    ]


def measure(case: Case, kind: str, on_gpu: bool) -> dict[str, Any]:
    """Microseconds of both sides, and how far their results are apart beside how far they may be."""
    dtype = "float32" if kind == "tf32" else kind
    precision = "tf32" if kind == "tf32" and on_gpu else None
    shapes, depth = case.shapes, dict(case.extents)["k"]
    calls: dict[str, Any]
    if on_gpu:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        count = sets_to_rotate(case.elements * ELEMENT_TYPES[dtype].itemsize, L2_BYTES)
        made = {"device": "cuda", "dtype": getattr(torch, dtype)}
        data = [[torch.randn(*s, **made) for s in shapes[:2]] for _ in range(count)]
        outs = [torch.empty(*shapes[2], **made) for _ in range(count)]
        calls = {
            "gett": lambda i: gett.einsum(case.einsum, *data[i], out=outs[i], precision=precision),
            "cublas": lambda i: torch.matmul(*data[i], out=outs[i]),
        }
        times = {name: GpuTimer(count, budget_us=BUDGET_US).measure(call) for name, call in calls.items()}
        a, b = data[0]
        mine, theirs = ((call(0), outs[0].clone())[1] for call in calls.values())
    else:
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal(s).astype(dtype) for s in shapes[:2])
        calls = {"gett": lambda: gett.einsum(case.einsum, a, b), "cublas": lambda: a @ b}
        times = measure_cpu(calls, rounds=1)
        mine, theirs = (call() for call in calls.values())
    tolerance = make_tolerance([depth], dtype, precision)
    bound = 2 * (tolerance.product * float((abs(a) @ abs(b)).max()) + tolerance.output * float(abs(theirs).max()))
    return {
        "case": case.name,
        "group": case.group,
        "kind": kind,
        "us": {name: m.median_us for name, m in times.items()},
        "errors": [m.error for m in times.values() if m.error],
        "apart": float(abs(mine - theirs).max()) / bound,
    }


def shares(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, int, float, float, str]]:
    """For each dtype and shape, "" for all, how many products; cuBLAS's time over gett's: mean, lowest and its case."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind and not row["errors"]]
        for group in ("", *dict.fromkeys(row["group"] for row in mine)):
            found = [r for r in mine if group in ("", r["group"])]
            ratios = [(r["us"]["cublas"] / r["us"]["gett"], r["case"]) for r in found]
            low, which = min(ratios, default=(0.0, ""))
            yield kind, group, len(ratios), geometric_mean(x for x, _ in ratios), low, which


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For each dtype and shape the mean of cuBLAS's time over gett's, and the lowest."""
    lines = [
        [kind, group or "all", str(count), f"{mean:.3f}", f"{low:.3f}", which]
        for kind, group, count, mean, low, which in shares(rows)
    ]
    return [*format_table(["kind", "shape", "products", "cuBLAS / gett", "lowest", "of"], lines)]


def main(
    *, on_gpu: bool, kinds: Sequence[str] = KINDS, step: int = STEP, most: int = MOST, json_path: str | None = None
) -> int:
    """Measure, print, and write JSON where asked; 1 when the results of both sides are too far apart."""
    cases, rows = products(step, most), []
    for kind in kinds:
        if on_gpu:
            from gett.runtime.device import device_facts

            precision = "tf32" if kind == "tf32" else None
            compile_ahead(cases, "float32" if precision else kind, precision, device_facts().planning)
        with progress(len(cases), kind) as done:
            for case in cases:
                rows.append(measure(case, kind, on_gpu))
                done(case.name)
    record = {
        "environment": environment.describe() | ({"clocks": environment.clocks()} if on_gpu else {}),
        "rows": rows,
    }
    if json_path:
        write_text(json.dumps(record, indent=1) + "\n", json_path)
    print("\n".join(table(rows)))
    wrong = [f"{r['kind']} {r['case']}" for r in rows if r["errors"] or r["apart"] > 1]
    if wrong:
        print("failed, or too far from cuBLAS's result:", ", ".join(wrong))
    return 1 if wrong else 0
