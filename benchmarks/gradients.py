"""Gradients in PyTorch: gett beside `torch.einsum`, on the same tensors, in the same run.

Owns the cases and what each reports: workloads forward and backward, a training step, a network, host time of calls.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

import gett
from benchmarks import environment
from benchmarks.records import write_text
from benchmarks.report import geometric_mean
from benchmarks.timing import GpuTimer, host_time_us, measure_cpu
from benchmarks.workloads import load_workloads
from gett.console.formatting import format_table

Einsum = Callable[..., Any]

FIELDS = (("ml", "bfloat16"), ("tn", "complex64"))
SMALL = 1 << 22  # most products of a workload without a GPU
APART = {"bfloat16": 4e-2, "complex64": 1e-4, "float32": 1e-3}  # of a gradient's norm
NETWORK, BOND, PHYSICAL = 50, 64, 2  # sites of <psi|psi>, which has twice as many tensors


def measured(calls: dict[str, Callable[[], object]], on_gpu: bool) -> dict[str, float | None]:
    """Microseconds of each call; None where it fails."""
    if not on_gpu:
        return {name: m.median_us for name, m in measure_cpu(calls).items()}
    timer = GpuTimer()
    return {name: timer.measure(lambda _, call=call: call()).median_us for name, call in calls.items()}


def forward_and_backward(einsum: Einsum, spec: str, tensors: Sequence[Any], seed: Any) -> tuple[Any, ...]:
    """Gradients of all operands."""
    import torch

    found: tuple[Any, ...] = torch.autograd.grad(einsum(spec, *tensors), tensors, seed)
    return found


def apart(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """How far gradients are from others, by their norms."""
    pairs = zip(found, wanted, strict=True)
    return max(float((x - y).norm().double() / y.norm().double().clamp_min(1e-300)) for x, y in pairs)


def workload_rows(device: str, on_gpu: bool) -> list[dict[str, Any]]:
    """Forward and backward of the workloads of machine learning in bfloat16, and of tensor networks in complex64."""
    import torch

    rows = []
    for field, dtype in FIELDS:
        for w in load_workloads():
            extents = dict(w.case.extents)
            if w.field != field or w.large or (not on_gpu and np.prod([float(n) for n in extents.values()]) > SMALL):
                continue
            own = getattr(torch, dtype)
            terms, output = w.case.einsum.split("->")
            shapes = [[extents[x] for x in term] for term in (*terms.split(","), output)]
            *tensors, seed = (torch.randn(shape, dtype=own, device=device) for shape in shapes)
            for x in tensors:
                x.requires_grad_()
            row: dict[str, Any] = {"name": w.case.name, "dtype": dtype, "subscripts": w.case.einsum}
            calls = {
                name: lambda f=f, s=w.case.einsum, t=tensors, g=seed: forward_and_backward(f, s, t, g)
                for name, f in (("gett", gett.einsum), ("torch", torch.einsum))
            }
            with suppress(torch.OutOfMemoryError):
                row["apart"] = apart(calls["gett"](), calls["torch"]())
                row["us"] = measured(calls, on_gpu)
            rows.append(row)
            del tensors, seed, calls
            if on_gpu:
                torch.cuda.empty_cache()
    return rows


def host_rows(device: str) -> dict[str, dict[str, float]]:
    """Host microseconds of small calls: without derivatives, and a contraction of four modes, also with backward."""
    import torch

    def finish() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    a, b = (torch.randn(64, 64, device=device) for _ in range(2))
    x, y = (torch.randn(8, 8, 8, 8, device=device, requires_grad=True) for _ in range(2))
    names = "64 x 64, no derivatives", "four modes, forward", "four modes, forward and backward"
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    for name, einsum in (("gett", gett.einsum), ("torch", torch.einsum)):
        plain, forward, four = found.values()
        plain[name] = host_time_us(lambda f=einsum: f("ij,jk->ik", a, b), finish)

        forward[name] = host_time_us(lambda f=einsum: f("aebf,fdec->abcd", x, y), finish)

        def both(f: Einsum = einsum) -> None:
            d = f("aebf,fdec->abcd", x, y)
            d.backward(d.detach())

        four[name] = host_time_us(both, finish, calls=50)
    return found


class _Layer:
    """A triangle update, attention and a bilinear layer; the einsum is given."""

    def __init__(self, einsum: Einsum, device: str, n: int, channels: int) -> None:
        import torch

        torch.manual_seed(0)
        self.einsum, self.torch = einsum, torch

        def weights(*shape: int) -> Any:
            return (torch.randn(*shape, device=device) / channels**0.5).to(torch.bfloat16).requires_grad_()

        self.left, self.right, self.q, self.k, self.v = (weights(channels, channels) for _ in range(5))
        self.bilinear = weights(channels, channels, channels)
        self.edges = torch.randn(2, n, n, channels, device=device).to(torch.bfloat16)

    @property
    def parameters(self) -> list[Any]:
        return [self.left, self.right, self.q, self.k, self.v, self.bilinear]

    def loss(self, edges: Any) -> Any:
        einsum = self.einsum
        left, right = (einsum("bikc,cd->bikd", edges, w) for w in (self.left, self.right))
        x = edges + einsum("bikc,bjkc->bijc", left, right) / edges.shape[1]
        q, k, v = (einsum("bijc,cd->bijd", x, w) for w in (self.q, self.k, self.v))
        weights = self.torch.softmax(einsum("bijd,bikd->bijk", q, k) / q.shape[-1] ** 0.5, -1)
        x = x + einsum("bijk,bikd->bijd", weights, v)
        rows, columns = x.mean(1), x.mean(2)
        return einsum("bic,ecd,bid->bie", rows, self.bilinear, columns).float().square().mean()


def step_rows(device: str, on_gpu: bool) -> dict[str, dict[str, float | None]]:
    """Microseconds of a training step in bfloat16, as written and compiled."""
    import torch

    layers = {n: _Layer(f, device, *((192, 128) if on_gpu else (12, 16)))
              for n, f in (("gett", gett.einsum), ("torch", torch.einsum))}  # fmt: skip

    def step(layer: _Layer, loss: Callable[[Any], Any]) -> None:
        for parameter, gradient in zip(
            layer.parameters, torch.autograd.grad(loss(layer.edges), layer.parameters), strict=True
        ):
            with torch.no_grad():
                parameter.sub_(gradient, alpha=1e-3)

    plain = measured({n: lambda x=x: step(x, x.loss) for n, x in layers.items()}, on_gpu)
    rows: dict[str, dict[str, float | None]] = {"as written": plain}
    if on_gpu:
        for row, mode in (("compiled", "default"), ("compiled, CUDA graphs", "reduce-overhead")):
            compiled = {n: torch.compile(x.loss, fullgraph=True, mode=mode) for n, x in layers.items()}
            calls = {n: lambda n=n, x=x, c=compiled: step(x, c[n]) for n, x in layers.items()}
            try:
                rows[row] = measured(calls, on_gpu)
            except RuntimeError as error:
                print(f"step, {row}: {error}")
    return rows


def network_row(device: str, on_gpu: bool) -> dict[str, Any]:
    """Gradient of <psi|psi> of a matrix product state: seconds and peak bytes, along the same path."""
    import opt_einsum
    import torch

    sites, bond = (NETWORK, BOND) if on_gpu else (6, 4)
    symbols = iter(map(opt_einsum.get_symbol, range(10_000)))
    physical = [next(symbols) for _ in range(sites)]
    terms, shapes = [], []
    for _ in range(2):
        bonds = [next(symbols) for _ in range(sites - 1)]
        for i, p in enumerate(physical):
            term = (bonds[i - 1] if i else "") + p + (bonds[i] if i < sites - 1 else "")
            terms.append(term)
            shapes.append([PHYSICAL if x == p else bond for x in term])
    spec = ",".join(terms) + "->"
    path, _ = opt_einsum.contract_path(spec, *shapes, shapes=True, optimize="greedy")
    tensors = [(torch.randn(s, device=device) / bond**0.5).requires_grad_() for s in shapes]
    ways: dict[str, Einsum] = {
        "gett": lambda: gett.einsum(spec, *tensors, optimize=path),
        "torch": lambda: opt_einsum.contract(spec, *tensors, optimize=path, backend="torch"),
    }
    row: dict[str, Any] = {"tensors": len(tensors), "bond": bond, "us": {}, "peak": {}}
    found = {}
    for name, way in ways.items():
        times = []
        for _ in range(6):
            if on_gpu:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            found[name] = torch.autograd.grad(way(), tensors)
            if on_gpu:
                torch.cuda.synchronize()
                row["peak"][name] = torch.cuda.max_memory_allocated() - before
            times.append((time.perf_counter() - start) * 1e6)
        row["us"][name] = statistics.median(times[1:])
    row["apart"] = apart(found["gett"], found["torch"])
    return row


def table(record: dict[str, Any]) -> list[str]:
    """The figures as text."""
    rows, ratios = [], {}
    for x in record["workloads"]:
        us = x.get("us") or {}
        if us.get("gett") and us.get("torch"):
            ratios.setdefault(x["dtype"], []).append(us["torch"] / us["gett"])
            figures = [f"{us['gett']:.1f}", f"{us['torch']:.1f}", f"{us['torch'] / us['gett']:.2f}"]
        else:
            figures = ["-", "-", "-"]
        rows.append([x["name"], x["dtype"], *figures, f"{x.get('apart', float('nan')):.1e}"])
    lines = format_table(["forward and backward, us", "dtype", "gett", "torch", "torch/gett", "apart"], rows)
    for dtype, found in ratios.items():
        mean = geometric_mean(found)
        lines.append(f"{dtype}: torch/gett {mean:.2f} in the geometric mean, {min(found):.2f} at least")
    rows = [[name, f"{us['gett']:.1f}", f"{us['torch']:.1f}", f"{us['torch'] / us['gett']:.2f}"]
            for name, us in (*record["host"].items(), *((f"step, {n}", u) for n, u in record["step"].items()))
            if us.get("gett") and us.get("torch")]  # fmt: skip
    network = record["network"]
    us, peak = network["us"], network["peak"]
    rows.append([f"network of {network['tensors']}", f"{us['gett']:.0f}", f"{us['torch']:.0f}",
                 f"{us['torch'] / us['gett']:.2f}"])  # fmt: skip
    lines += ["", *format_table(["us", "gett", "torch", "torch/gett"], rows)]
    if peak:
        lines.append(f"network, peak bytes: gett {peak['gett']}, torch {peak['torch']}; apart {network['apart']:.1e}")
    return lines


def main(*, on_gpu: bool, json_path: str | None = None) -> int:
    """Measure, print, and write JSON where asked; 1 when a gradient is far from PyTorch's."""
    device = "cuda" if on_gpu else "cpu"
    record = {
        "environment": environment.describe() | ({"clocks": environment.clocks()} if on_gpu else {}),
        "host": host_rows(device),
        "step": step_rows(device, on_gpu),
        "network": network_row(device, on_gpu),
        "workloads": workload_rows(device, on_gpu),
    }
    if json_path:
        write_text(json.dumps(record, indent=1) + "\n", json_path)
    print("\n".join(table(record)))
    wrong = [x["name"] for x in record["workloads"] if x.get("apart", 0.0) > APART[x["dtype"]]]
    if wrong or record["network"]["apart"] > APART["float32"]:
        print("far from PyTorch's:", ", ".join(wrong) or "the network")
        return 1
    return 0
