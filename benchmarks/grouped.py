"""Many contractions at once: small products beside a loop of calls, ragged ones beside PyTorch's, block-sparse sums.

Owns the cases, and the comparison of results. Rivals compute the same arrays; a loop is cuBLAS's through CuPy, on the
CPU NumPy's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

import gett
from benchmarks import environment
from benchmarks.records import write_text
from benchmarks.timing import GpuTimer, host_time_us, measure_cpu
from gett.console.formatting import format_table

SMALL = (20, 10, 10)  # rows, k, columns of the small products
COUNTS = {True: 10_000, False: 200}  # of small products, on a GPU and on the CPU
SECTORS = {True: 24, False: 5}  # of a block-sparse index
EXPERTS = {True: (64, 2048, 4096, 4096), False: (4, 32, 48, 40)}  # count, k, columns, most rows
ALLOWED = {"bfloat16": 2.0**-7, "float32": 1e-4, "float64": 1e-12}  # differences of results by dtype

Calls = dict[str, Callable[[], object]]


def _random(xp: Any, rng: np.random.Generator, *shape: int) -> Any:
    return xp.asarray(rng.standard_normal(shape))


def small_products(xp: Any, on_gpu: bool) -> tuple[Calls, Any, Any]:
    """Products of one size in float64: calls, and the results of gett and of the loop."""
    rng, (m, k, n) = np.random.default_rng(0), SMALL
    count = COUNTS[on_gpu]
    a, b = list(_random(xp, rng, count, m, k)), list(_random(xp, rng, count, k, n))
    ours, theirs = ([xp.zeros((m, n)) for _ in range(count)] for _ in range(2))
    plan = gett.plan_grouped([("ij,jk->ik", x, y) for x, y in zip(a, b, strict=True)], out=ours)
    pairs = list(zip(a, b, strict=True))

    def loop() -> None:
        for x, y, d in zip(a, b, theirs, strict=True):
            xp.matmul(x, y, out=d)

    loop()
    plan()
    return {"gett": plan, "loop": loop, "gett, addresses anew": lambda: plan(pairs)}, ours, theirs


def block_sums(xp: Any, on_gpu: bool) -> tuple[Calls, Any, Any]:
    """Blocks of a matrix of sectors of unequal size, each the sum of the products of its row and column of blocks."""
    rng, sectors = np.random.default_rng(1), SECTORS[on_gpu]
    sizes = rng.integers(1, 64, sectors)
    found: list[tuple[int, int, Any, Any]] = []
    for i in range(sectors):
        for j in range(sectors):
            inner = rng.choice(sectors, size=4, replace=False)
            found += [(i, j, _random(xp, rng, sizes[i], sizes[s]), _random(xp, rng, sizes[s], sizes[j])) for s in inner]
    ours, theirs = ({(i, j): xp.zeros((sizes[i], sizes[j])) for i, j, _, _ in found} for _ in range(2))
    plan = gett.plan_grouped([("ij,jk->ik", a, b) for _, _, a, b in found], out=[ours[i, j] for i, j, _, _ in found])

    def loop() -> None:
        for d in theirs.values():
            d[...] = 0
        for i, j, a, b in found:
            theirs[i, j] += a @ b

    loop()
    plan()
    return {"gett": plan, "loop": loop}, list(ours.values()), list(theirs.values())


def ragged_rows(on_gpu: bool) -> tuple[Calls, Any, Any]:
    """Rows sorted by expert times the expert's matrix: in bfloat16 beside PyTorch, on the CPU in float32."""
    rng, (count, k, n, most) = np.random.default_rng(2), EXPERTS[on_gpu]
    ends = np.cumsum(rng.integers(1, most + 1, count)).astype(np.int32)
    if not on_gpu:
        x, w = (rng.standard_normal(s, np.float32) for s in ((ends[-1], k), (count, k, n)))
        bounds = [0, *ends.tolist()]
        theirs = np.concatenate([x[p:q] @ w[e] for e, (p, q) in enumerate(pairwise(bounds))])
        ours = np.empty_like(theirs)
        return {"gett": lambda: gett.ragged("tk,ekn->tn", x, w, ends, out=ours)}, [ours], [theirs]
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    x, w = (
        torch.randn(s, dtype=torch.bfloat16, device="cuda", generator=generator)
        for s in ((int(ends[-1]), k), (count, k, n))
    )
    offsets = torch.as_tensor(ends, device="cuda")
    out = torch.empty((int(ends[-1]), n), dtype=torch.bfloat16, device="cuda")
    calls: Calls = {"gett": lambda: gett.ragged("tk,ekn->tn", x, w, offsets, out=out)}
    calls["torch._grouped_mm"] = lambda: torch._grouped_mm(x, w, offs=offsets)
    calls["gett"]()
    return calls, [out], [torch._grouped_mm(x, w, offs=offsets)]


def host_times(xp: Any, on_gpu: bool) -> dict[str, float]:
    """Host time of warm calls that are too small to keep a GPU busy."""
    rng = np.random.default_rng(3)
    x, w = _random(xp, rng, 40, 16), _random(xp, rng, 4, 16, 8)
    offsets = xp.asarray(np.array([8, 8, 30, 40], np.int32))
    out = xp.empty((40, 8))
    plan = gett.plan_grouped([("ij,jk->ik", x, w[0])], out=[out])
    finish = xp.cuda.runtime.deviceSynchronize if on_gpu else lambda: None
    return {
        "gett.ragged": host_time_us(lambda: gett.ragged("tk,ekn->tn", x, w, offsets, out=out), finish),
        "plan_grouped(...)()": host_time_us(plan, finish),
    }


def _apart(ours: Any, theirs: Any) -> float:
    """The largest difference, in units of what rounding allows beside the largest number."""
    worst = 0.0
    for x, y in zip(ours, theirs, strict=True):
        allowed = next(eps for name, eps in ALLOWED.items() if name in str(x.dtype))
        x, y = (t.double() if hasattr(t, "double") else t.astype(np.float64) for t in (x, y))
        worst = max(worst, float(abs(x - y).max()) / (allowed * float(abs(y).max())))
    return worst


def rows(on_gpu: bool) -> Iterator[dict[str, Any]]:
    """A case after the other: times in microseconds by name, and how far results are apart."""
    xp: Any = np
    if on_gpu:
        import cupy as xp
    timer = GpuTimer() if on_gpu else None
    cases: list[tuple[str, Callable[[], tuple[Calls, Any, Any]]]] = [
        ("small products", lambda: small_products(xp, on_gpu)),
        ("sums into blocks", lambda: block_sums(xp, on_gpu)),
        ("ragged rows", lambda: ragged_rows(on_gpu)),
    ]
    for name, make in cases:
        calls, ours, theirs = make()
        if timer is None:
            times = measure_cpu(calls)
        else:
            times = {who: timer.measure(lambda _, call=call: call()) for who, call in calls.items()}
        yield {
            "name": name,
            "us": {who: m.median_us for who, m in times.items()},
            "errors": {who: m.error for who, m in times.items() if m.error},
            "apart": _apart(ours, theirs),
        }
    yield {"name": "host time, warm", "us": host_times(xp, on_gpu), "errors": {}, "apart": 0.0}


def table(found: list[dict[str, Any]], where: str) -> str:
    """The figures as text."""
    lines = []
    for row in found:
        ours = row["us"].get("gett")
        for who, us in row["us"].items():
            ratio = "" if not ours or us is None else f"{us / ours:.2f}"
            lines.append([row["name"], who, row["errors"].get(who) or f"{us:.1f}", ratio])
        if not row["apart"] <= 1:
            lines.append([row["name"], "WRONG", f"{row['apart']:.1f}", ""])
    head = ("", "who", "us", "times gett's")
    return "\n".join([f"grouped contractions ({where})", *format_table(head, lines, left=2)])


def main(*, on_gpu: bool, json_path: str | None = None) -> int:
    """Measure, print, and write JSON where asked; 1 when a result is wrong or missing."""
    found = list(rows(on_gpu))
    if json_path:
        figures = {"environment": environment.describe() | {"clocks": environment.clocks()}, "cases": found}
        write_text(json.dumps(figures, indent=1) + "\n", json_path)
    print(table(found, "on a GPU" if on_gpu else "NumPy arrays, small"))
    return 1 if any(row["errors"] or not row["apart"] <= 1 for row in found) else 0
