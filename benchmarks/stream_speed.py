"""Bandwidth of the `stream` kernels beside a plain copy, in one run: `python -m benchmarks.stream_speed`.

TB/s are the bytes of a plan (each tensor's elements once, read plus written) over the median time by CUDA events; the
share is that of copy speed. Every working set is larger than the L2 cache, and buffers take turns.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from benchmarks.timing import GpuTimer
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.measure.timer import sets_to_rotate
from gett.runtime.build import build_executable
from gett.runtime.device import device_facts, require_cupy
from gett.schedule.search.stream import stream_schedule

# Name, subscripts, extents, dtype.
SHAPES: list[tuple[str, str, dict[str, int], str]] = [
    ("transpose", "ab->ba", {"a": 16384, "b": 16384}, "float32"),
    ("transpose", "ab->ba", {"a": 16384, "b": 24576}, "float16"),
    ("transpose", "ab->ba", {"a": 12288, "b": 12288}, "float64"),
    ("permutation, 3 modes", "abc->cba", {"a": 512, "b": 640, "c": 768}, "float16"),
    ("permutation, rows kept", "abc->bac", {"a": 2048, "b": 2048, "c": 64}, "float32"),
    ("permutation, 4 modes", "abcd->cadb", {"a": 96, "b": 96, "c": 128, "d": 160}, "float32"),
    ("permutation, 6 modes", "abcdef->fcbeda", dict(zip("abcdef", (24, 20, 24, 24, 20, 24), strict=True)), "float64"),
    ("permutation, 26 modes", "abcdefghijklmnopqrstuvwxyz->zyxwvutsrqponmlkjihgfedcba",
     dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 2), "float32"),
    ("diagonal and sum", "aab->b", {"a": 4096, "b": 65536}, "float16"),
    ("row sums", "ij->i", {"i": 16384, "j": 16384}, "float16"),
    ("column sums", "ij->j", {"i": 16384, "j": 16384}, "float32"),
    ("sum of a middle mode", "ijk->ki", {"i": 1024, "j": 64, "k": 4096}, "float32"),
    ("sum of a short mode", "ijk->ki", {"i": 8192, "j": 4, "k": 8192}, "float32"),
    ("matrix by vector", "ij,j->i", {"i": 16384, "j": 16384}, "float32"),
    ("matrix by vector", "ij,j->i", {"i": 16384, "j": 16384}, "float16"),
    ("vector by matrix", "ij,i->j", {"i": 16384, "j": 16384}, "float32"),
    ("vector by matrix", "ij,i->j", {"i": 16384, "j": 16384}, "float16"),
    ("batched matrix by vector", "lij,lj->li", {"l": 512, "i": 512, "j": 1024}, "float32"),
    ("dot", "i,i->", {"i": 1 << 28}, "float32"),
    ("trace of a product", "ij,ji->", {"i": 12288, "j": 12288}, "float32"),
    ("Hadamard", "ij,ij->ij", {"i": 12288, "j": 12288}, "float32"),
    ("Hadamard, one turned", "ij,ji->ij", {"i": 12288, "j": 12288}, "float16"),
    ("scaled rows", "ij,i->ij", {"i": 16384, "j": 16384}, "float16"),
    ("outer product", "i,j->ij", {"i": 24576, "j": 24576}, "float32"),
    ("outer product, 4 modes", "ik,jl->lijk", {"i": 96, "k": 128, "j": 160, "l": 192}, "float16"),
]  # fmt: skip


def make_plan(subscripts: str, extents: dict[str, int], dtype: str, itemsize: int) -> GemmPlan:
    """The plan of dense tensors in C order."""
    names = tuple(extents)

    def operand(labels: str) -> Operand:
        strides: dict[str, int] = {}
        step = itemsize
        for x in reversed(labels):
            strides[x] = strides.get(x, 0) + step
            step *= extents[x]
        return Operand(tuple(names.index(x) for x in strides), tuple(strides.values()), dtype, 256)

    inputs, output = subscripts.split("->")
    terms = [operand(t) for t in inputs.split(",")]
    b = terms[1] if len(terms) > 1 else None
    return make_gemm_plan(Contraction(names, tuple(extents.values()), terms[0], b, operand(output), None, dtype))


def tensor(cupy: Any, labels: str, extents: dict[str, int], dtype: str, seed: int) -> Any:
    """Random values; the bits of a float16 would limit nothing, so a cheap generator will do."""
    shape = tuple(extents[x] for x in labels)
    count = math.prod(shape)
    return (((cupy.arange(count, dtype=cupy.uint32) * 2654435761 + seed) >> 20) & 7).astype(dtype).reshape(shape)


def copy_rate(cupy: Any) -> float:
    """TB/s of a copy of 1 GiB, read plus written."""
    x = cupy.ones(1 << 28, cupy.float32)
    y = cupy.empty_like(x)
    result = GpuTimer().measure(lambda _: cupy.copyto(y, x))
    if result.median_us is None:
        raise SystemExit(result.error)
    return float(2 * x.nbytes / result.median_us * 1e-6)


def measure(cupy: Any, name: str, subscripts: str, extents: dict[str, int], dtype: str, copy_tbps: float) -> str:
    """One line of the table."""
    import numpy as np

    facts = device_facts()
    plan = make_plan(subscripts, extents, dtype, np.dtype(dtype).itemsize)
    schedule = stream_schedule(plan, facts.planning)
    executable = build_executable(plan, schedule=schedule)
    inputs, output = subscripts.split("->")
    sets = []
    for i in range(sets_to_rotate(plan.bytes, facts.l2_bytes)):
        operands = [tensor(cupy, t, extents, dtype, i) for t in inputs.split(",")]
        d = cupy.empty(tuple(extents[x] for x in output), dtype)
        sets.append((operands[0], operands[1] if len(operands) > 1 else None, None, d))
    result = GpuTimer(len(sets)).measure(lambda i: executable(*sets[i]))
    title = f"{name:26}{subscripts if len(subscripts) < 20 else '...':18}{dtype:9}"
    if result.median_us is None:
        return f"{title} {result.error}"
    tbps = plan.bytes / result.median_us * 1e-6
    return (
        f"{title}{plan.bytes / 1e6:8.0f} MB{result.median_us:9.1f} us{tbps:7.2f} TB/s{100 * tbps / copy_tbps:5.0f} %"
        f"  model {schedule.forecast.us:7.1f} us  {schedule.forecast.reason}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name or of subscripts")
    only = parser.parse_args().only
    cupy = require_cupy()
    copy_tbps = copy_rate(cupy)
    print(f"{device_facts().name}: copy of 1 GiB {copy_tbps:.2f} TB/s, read plus written")
    for name, subscripts, extents, dtype in SHAPES:
        if only in name or only in subscripts:
            print(measure(cupy, name, subscripts, extents, dtype, copy_tbps), flush=True)
            cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
