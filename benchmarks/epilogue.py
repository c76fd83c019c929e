"""Epilogues: contractions with a function fused into the one store, beside contraction and element-wise kernel.

Owns the cases, and the comparison of the results of both ways.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gett
from benchmarks import environment
from benchmarks.records import write_text
from benchmarks.timing import GpuTimer, measure_cpu
from gett import ops
from gett.measure.timer import Measurement


@dataclass(frozen=True, slots=True)
class EpilogueCase:
    """A contraction, a function of its result and of one tensor, and the same function as a CuPy kernel.

    Attributes:
        name: What it is.
        subscripts: Of the two operands.
        shapes: Of the operands, then of the tensor that the function reads.
        small: The same for a run without a GPU.
        dtype: Of all of them.
        function: For gett.
        element: Body of the element-wise kernel: sets `y` from the product `d` and from `x`, in `float` or `double`.
    """

    name: str
    subscripts: str
    shapes: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    dtype: str
    function: Callable[[Any, Any], Any]
    element: str


def bias_gelu(d: Any, x: Any) -> Any:
    """A layer's bias, then its activation."""
    return ops.gelu(d + x)


def residual(d: Any, x: Any) -> Any:
    """A layer's output beside its input."""
    return d + x


def denominator(d: Any, x: Any) -> Any:
    """Amplitudes: an energy denominator for each element."""
    return d / x


_LAYER = ("bsd,df->bsf", ((8, 2048, 1024), (1024, 4096), (4096,)), ((2, 64, 128), (128, 512), (512,)))
_LADDER = (
    "abef,ijef->ijab",
    ((96, 96, 96, 96), (32, 32, 96, 96), (32, 32, 96, 96)),
    ((12, 12, 12, 12), (6, 6, 12, 12), (6, 6, 12, 12)),
)
_GELU = "const float v = float(d) + float(x); y = 0.5f * v * (1 + erff(v * 0.70710678f))"
CASES = (
    EpilogueCase("bias + gelu", *_LAYER, "float16", bias_gelu, _GELU),
    EpilogueCase(
        "residual", "bsf,fd->bsd", ((8, 2048, 4096), (4096, 1024), (8, 2048, 1024)),
        ((2, 64, 512), (512, 128), (2, 64, 128)), "float16", residual, "y = float(d) + float(x)",
    ),
    EpilogueCase("energy denominator", *_LADDER, "float16", denominator, "y = float(d) / float(x)"),
    EpilogueCase("energy denominator", *_LADDER, "float64", denominator, "y = d / x"),
    EpilogueCase(
        "outer product over denominator", "ia,jb->ijab", ((64, 256), (64, 256), (64, 64, 256, 256)),
        ((8, 16), (8, 16), (8, 8, 16, 16)), "float32", denominator, "y = d / x",
    ),
)  # fmt: skip


def operands(xp: Any, case: EpilogueCase, on_gpu: bool) -> list[Any]:
    """Random operands, and the function's tensor away from 0; on the CPU small and in float32 at least."""
    rng = np.random.default_rng(0)
    dtype = case.dtype if on_gpu else np.result_type(case.dtype, np.float32)
    made = [rng.standard_normal(shape, np.float32) for shape in (case.shapes if on_gpu else case.small)]
    made[2] = np.abs(made[2]) + 1
    return [xp.asarray(x.astype(dtype)) for x in made]


def run_case(case: EpilogueCase, on_gpu: bool) -> dict[str, Any]:
    """Times of the fused and of the unfused way, and how far their results are apart in units of what is allowed."""
    xp: Any = np
    if on_gpu:
        import cupy as xp
    a, b, x = operands(xp, case, on_gpu)
    d, product = (xp.empty_like(gett.einsum(case.subscripts, a, b)) for _ in range(2))
    fused = gett.plan(case.subscripts, a, b, epilogue=case.function, epilogue_args=(x,))
    alone = gett.plan(case.subscripts, a, b)
    if on_gpu:
        after = xp.ElementwiseKernel("T d, T x", "T y", case.element, "gett_benchmark_element")
    else:

        def after(d: Any, x: Any, out: Any) -> None:
            out[...] = case.function(d, x)

    def unfused() -> None:
        alone(a, b, out=product)
        after(product, x, product)

    calls: dict[str, Callable[[], object]] = {
        "fused": lambda: fused(a, b, out=d, epilogue_args=(x,)),
        "unfused": unfused,
        "contraction alone": lambda: alone(a, b, out=product),
    }
    calls["unfused"]()
    calls["fused"]()
    # The unfused product is rounded to its dtype before the function, which is the larger part of the difference.
    eps = float(np.finfo(d.dtype).eps)
    plain = xp.abs(alone(a, b)).astype(np.float64)
    size = plain + xp.abs(d).astype(np.float64) + xp.abs(x).astype(np.float64)
    apart = float((xp.abs(d.astype(np.float64) - product.astype(np.float64)) / (4 * eps * size)).max())
    times = _times_gpu(calls) if on_gpu else measure_cpu(calls)
    return {
        "name": case.name,
        "subscripts": case.subscripts,
        "dtype": str(d.dtype),
        "schedule": str(fused.steps[-1].schedule.kind) if on_gpu else "numpy",
        "us": {name: m.median_us for name, m in times.items()},
        "errors": {name: m.error for name, m in times.items() if m.error},
        "apart": apart,
    }


def _times_gpu(calls: dict[str, Callable[[], object]]) -> dict[str, Measurement]:
    timer = GpuTimer()
    return {name: timer.measure(lambda _, call=call: call()) for name, call in calls.items()}


def table(rows: list[dict[str, Any]], where: str) -> str:
    """The figures as text."""
    lines = [f"epilogues: fused into the store, and as a kernel of their own, us ({where})"]
    lines.append(f"  {'':<32} {'dtype':<10} {'fused':>9} {'unfused':>9} {'alone':>9}  unfused/fused")
    for row in rows:
        us = row["us"]
        if row["errors"]:
            lines.append(f"  {row['name']:<32} {row['dtype']:<10} {next(iter(row['errors'].values()))}"[:118])
            continue
        figures = " ".join(f"{us[name]:9.1f}" for name in ("fused", "unfused", "contraction alone"))
        wrong = "" if row["apart"] <= 1 else "  WRONG"
        lines.append(f"  {row['name']:<32} {row['dtype']:<10} {figures}  {us['unfused'] / us['fused']:.2f}{wrong}")
    return "\n".join(lines)


def main(*, on_gpu: bool, json_path: str | None = None) -> int:
    """Measure, print, and write JSON where asked; 1 when a result is wrong or missing."""
    rows = [run_case(case, on_gpu) for case in CASES]
    if json_path:
        figures = {"environment": environment.describe() | {"clocks": environment.clocks()}, "cases": rows}
        write_text(json.dumps(figures, indent=1) + "\n", json_path)
    print(table(rows, "CuPy arrays on a GPU" if on_gpu else "NumPy arrays, small"))
    return 1 if any(row["errors"] or not row["apart"] <= 1 for row in rows) else 0
