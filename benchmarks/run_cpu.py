"""The run without a GPU: the NumPy executor beside `numpy.einsum`, opt_einsum and TBLIS, at reduced extents."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import environment, verify
from benchmarks.cases import ELEMENT_TYPES, Case, ElementType
from benchmarks.records import Row, Run
from benchmarks.rivals.table import Libraries, Setting, on_cpu
from benchmarks.timing import failure, measure_cpu
from gett.console.progress import progress

DEFAULT_SCALE = 1 / 16
Array = np.ndarray[Any, np.dtype[Any]]
Einsum = Callable[..., Any]


def random_array(shape: tuple[int, ...], dtype: str, generator: np.random.Generator, *, integer: bool = False) -> Array:
    """Uniform values in [-1, 1), or integers from -2 to 2; complex types get both parts."""

    def part() -> Array:
        return generator.integers(-2, 3, shape).astype(float) if integer else generator.uniform(-1, 1, shape)

    values = part() + 1j * part() if np.dtype(dtype).kind == "c" else part()
    return np.asarray(values).astype(dtype)


def copy_bandwidth(size: int = 1 << 26) -> float:
    """Bytes/s of a copy in memory, reads and writes counted."""
    source = np.ones(size // 8)
    target = np.empty_like(source)
    found = measure_cpu({"copy": lambda: np.copyto(target, source)})["copy"]
    assert found.low_us is not None
    return 2 * size / (found.low_us * 1e-6)


def gemm_peak(element: ElementType, size: int = 2048) -> float:
    """FLOP/s of a square matrix product of random data by NumPy's BLAS; float16, which has none, counts as float32."""
    dtype = "float32" if element.name == "float16" else element.name
    generator = np.random.default_rng(0)
    a, b = (random_array((size, size), dtype, generator) for _ in range(2))
    out = np.empty_like(a)
    found = measure_cpu({"gemm": lambda: np.matmul(a, b, out=out)})["gemm"]
    assert found.low_us is not None
    return element.flops * size**3 / (found.low_us * 1e-6)


def run(
    cases: Sequence[Case],
    dtype: str,
    *,
    scale: float = DEFAULT_SCALE,
    engine: Einsum | None = None,
    check: bool = True,
    label: str | None = None,
    rounds: int = 5,
    budget_s: float = 1.5,
) -> Run:
    """Time gett, `numpy.einsum(optimize=True)`, `opt_einsum.contract` and TBLIS, each with a C-contiguous result.

    TBLIS is left out where pytblis is not installed or TBLIS lacks the dtype.

    Args:
        cases: What to compute, at full size; `scale` shrinks them.
        dtype: A key of `ELEMENT_TYPES`.
        scale: Share of each case's elements to keep.
        engine: What takes gett's place: called like `numpy.einsum`, must take `out=`. None is `gett.einsum`.
        check: Whether the engine's results are compared with a reference.
        label: The user's remark, for the record.
        rounds: How often each rival is timed, in turn with the others; the best counts.
        budget_s: No new round of a case starts after this many seconds.
    """
    element = ELEMENT_TYPES[dtype]
    start = time.perf_counter()
    if engine is None:
        import gett

        engine = gett.einsum
    found = Run(
        "cpu", dtype, None, environment.processor(), copy_bandwidth(), gemm_peak(element), scale,
        environment=environment.describe(label),
    )  # fmt: skip
    with progress(len(cases), dtype) as step:
        for case in cases:
            small = case.scaled(scale)
            flops, moved = small.flops(element), small.bytes(element)
            row = Row(small.name, small.einsum, dict(small.extents), small.bmnk, flops, moved, 0.0, group=small.group)
            _time_case(row, small, element, engine, check, rounds, budget_s)
            found.rows.append(row)
            step(case.name)
    # Measured again: other work on the machine may have slowed the first time, never sped it up.
    found.bandwidth = max(found.bandwidth, copy_bandwidth())
    found.peak = max(found.peak, gemm_peak(element))
    for row in found.rows:
        row.roofline_us = max(row.bytes / found.bandwidth, row.flops / found.peak) * 1e6
    found.seconds = time.perf_counter() - start
    return found


def _time_case(
    row: Row, case: Case, element: ElementType, engine: Einsum, check: bool, rounds: int, budget_s: float
) -> None:
    generator = np.random.default_rng(0)
    shape_a, shape_b, shape_d = case.shapes
    a, b = (random_array(s, element.name, generator) for s in (shape_a, shape_b))
    subscripts = case.einsum
    setting = Setting(subscripts, element.name, None, [(a, b, None)], Libraries())
    calls = {"gett": lambda: np.ascontiguousarray(engine(subscripts, a, b, order="C"))}
    calls |= {name: partial(prepare(setting), 0) for name, prepare in on_cpu(element.name).items()}
    row.times = measure_cpu(calls, rounds=rounds, budget_s=budget_s)
    if not check or row.times["gett"].error:
        return

    def into(x: Array, y: Array, out: Array) -> object:
        return engine(subscripts, x, y, out=out)

    try:
        d = np.empty(shape_d, element.name)
        worst = verify.check_bound(case, element, into, a, b, d, np, tf32=False)
        ia, ib = (random_array(s, element.name, generator, integer=True) for s in (shape_a, shape_b))
        differing = verify.check_exact(case, element, into, ia, ib, d, np)
    except Exception as error:  # an engine that fails with out= is no reason to lose the other cases
        row.times["gett"] = failure(error)
        return
    row.check = "right" if differing == 0 and worst <= 1 else "WRONG"
    row.check_detail = f"{differing} elements differ on integers; largest error {worst:.3g} of its bound"
