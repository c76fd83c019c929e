"""Bandwidth-bound kernels on a GPU, exactly: small integers, poisoned results, awkward strides, repeatable bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gett.errors import PoorKernelError
from gett.hw.archs import ArchFacts
from gett.hw.device import DeviceModel, nearest
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.runtime.build import build_executable
from gett.runtime.device import device_facts
from gett.runtime.executable import GpuExecutable
from gett.schedule.search import stream as stream_search
from gett.schedule.search.select import select_schedule
from gett.schedule.spec.mainloop import Stream

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "uint16", "int32", "int64", "bool")

# Subscripts, shapes, layouts of A, B, D, C (see `place`).
CASES = [
    ("ab->ba", [(257, 130)], "CCCC"),
    ("ab->ba", [(256, 512)], "CCCC"),
    ("ab->ba", [(130, 96)], "RCGC"),
    ("abc->cba", [(40, 33, 64)], "CCCF"),
    ("abc->acb", [(6, 48, 72)], "SCCC"),
    ("abc->bac", [(21, 30, 64)], "CCCC"),
    ("abcd->cadb", [(16, 24, 8, 40)], "CCFC"),
    ("abcdef->fcbeda", [(4, 3, 2, 4, 6, 8)], "GCCR"),
    ("abcdefghijklmnop->ponmlkjihgfedcba", [(2,) * 16], "CCCC"),
    ("aab->ba", [(29, 29, 40)], "CCCC"),
    ("aa->a", [(300, 300)], "CCCC"),
    ("a->a", [(100_003,)], "SCSS"),
    ("->", [()], "CCCC"),
    ("ij,ij->ij", [(200, 136), (200, 136)], "CCCC"),
    ("ij,ij->ij", [(200, 136), (200, 136)], "CGFR"),
    ("ij,ji->ij", [(200, 136), (136, 200)], "CCCC"),
    ("ij,ji->ij", [(97, 53), (53, 97)], "SRGF"),
    ("ij,j->ij", [(200, 136), (136,)], "CCCC"),
    ("ij,i->ji", [(200, 136), (200,)], "CRCC"),
    ("i,j->ij", [(301,), (256,)], "CCCC"),
    ("ik,jl->lijk", [(9, 16), (24, 40)], "CCCC"),
    ("ij->i", [(200, 1024)], "CCCC"),
    ("ij->i", [(200, 1023)], "RCCC"),
    ("ij->j", [(1000, 264)], "CCCC"),
    ("ij->j", [(1000, 261)], "SCGC"),
    ("ij->", [(301, 200)], "GCCC"),
    ("ijk->ik", [(30, 17, 64)], "CCCC"),
    ("ijk->ki", [(30, 8, 128)], "CCCR"),
    ("ijk->j", [(30, 17, 64)], "CCCC"),
    ("ii->", [(300, 300)], "CCCC"),
    ("ij,j->i", [(300, 1000), (1000,)], "CCCC"),
    ("ij,j->i", [(300, 999), (999,)], "SGRC"),
    ("ij,i->j", [(1000, 304), (1000,)], "CCCC"),
    ("ij,i->j", [(1000, 304), (1000,)], "FCCC"),
    ("i,i->", [(500_000,), (500_000,)], "CCCC"),
    ("ij,ji->", [(200, 144), (144, 200)], "CCCC"),
    ("lij,lj->li", [(7, 40, 128), (7, 128)], "CCFC"),
    ("lij,lji->l", [(7, 40, 24), (7, 24, 40)], "CCCC"),
    ("ij,ij->j", [(300, 56), (300, 56)], "CRCC"),
    ("ijkl,kj->il", [(12, 9, 10, 16), (10, 9)], "CCCC"),
]
LAYOUTS = {"C": "dense", "F": "Fortran", "R": "reversed", "G": "every second element", "S": "shifted by an element"}


def place(xp: Any, values: Any, layout: str, poison: bool = False) -> tuple[Any, Any]:
    """An array with these values in a layout, and the flat buffer that it lies in.

    The rest of the buffer holds 0xFF bytes, all of it for `poison`.
    """
    shape = values.shape
    if layout == "G":
        whole = tuple(2 * e for e in shape)
        buffer = xp.full(math.prod(whole) * values.itemsize, 0xFF, np.uint8).view(values.dtype)
        out = buffer.reshape(whole)[tuple(slice(None, None, 2) for _ in shape)] if shape else buffer.reshape(())
    else:
        first = 1 if layout == "S" else 0
        size = math.prod(shape)
        buffer = xp.full((size + 3) * values.itemsize, 0xFF, np.uint8).view(values.dtype)
        dense = buffer[first : first + size]
        out = dense.reshape(shape[::-1]).T if layout == "F" else dense.reshape(shape)
        if layout == "R" and shape:
            out = out[tuple(slice(None, None, -1) for _ in shape)]
    # CuPy's shares_memory denies it for rank 0, whatever the addresses are.
    assert not out.ndim or not out.size or xp.shares_memory(out, buffer)
    if not poison:
        out[...] = xp.asarray(values)
    return out, buffer


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, depth: int) -> Any:
    """Small integers whose sums of `depth` products are exact in every dtype."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.1)
    real = rng.integers(0 if kind == "u" else -2, 3, shape)
    if depth > 400 and dtype == "float16":  # sums stay below 2048, the last integer that float16 follows
        real = real * (rng.random(shape) < 0.2)
    return np.asarray(real + 1j * rng.integers(-2, 3, shape) if kind == "c" else real).astype(dtype)


def operand(labels: str, array: Any, extents: dict[str, int]) -> Operand:
    """The record of a CuPy array."""
    strides: dict[str, int] = {}
    for x, s in zip(labels, array.strides, strict=True):
        strides[x] = strides.get(x, 0) + s
    names = list(extents)
    return Operand(tuple(names.index(x) for x in strides), tuple(strides.values()), array.dtype.name,
                   math.gcd(array.data.ptr, 256))  # fmt: skip


def make_plan(subscripts: str, operands: list[Any], c: Any, d: Any) -> GemmPlan:
    inputs, output = subscripts.split("->")
    labels = inputs.split(",")
    extents: dict[str, int] = {}
    for term, array in zip(labels, operands, strict=True):
        extents |= dict(zip(term, array.shape, strict=True))
    records = [operand(t, x, extents) for t, x in zip(labels, operands, strict=True)]
    added = None if c is None else operand(output, c, extents)
    b = records[1] if len(records) > 1 else None
    result, dtype = operand(output, d, extents), operands[0].dtype.name
    return make_gemm_plan(Contraction(tuple(extents), tuple(extents.values()), records[0], b, result, added, dtype))


def build(plan: GemmPlan) -> GpuExecutable:
    schedule = select_schedule(plan, device_facts().arch, device_facts().planning)
    try:
        return build_executable(plan, schedule=schedule)
    except PoorKernelError:  # as a user would meet it: the selection takes it all the same, having no other
        made = build_executable(plan)
        assert isinstance(made.schedule.mainloop, Stream)
        return made


def rounded(exact: Any, dtype: str) -> Any:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return exact != 0
    return exact.astype(np.int64).astype(dtype) if kind in "iu" else exact.astype(dtype)


def run(
    cupy: Any, subscripts: str, shapes: list[tuple[int, ...]], layouts: str, dtype: str, *,
    alpha: int = 1, beta: int | None = None, seed: int = 1,
) -> None:  # fmt: skip
    """Runs one case twice and compares it with NumPy, every element of D's buffer included."""
    rng = np.random.default_rng(seed)
    inputs, output = subscripts.split("->")
    extents = dict(zip(inputs.replace(",", ""), [e for s in shapes for e in s], strict=True))
    shape = tuple(extents[x] for x in output)
    depth = math.prod(e for x, e in extents.items() if x not in output)
    host = [draw(rng, s, dtype, depth) for s in shapes]
    operands = [place(cupy, x, k)[0] for x, k in zip(host, layouts, strict=False)]
    with_c = draw(rng, shape, dtype, 1) if beta is not None else None
    if with_c is not None and beta == 0 and with_c.dtype.kind in "fc":
        with_c[...] = np.nan  # not to be read
    c = None if with_c is None else place(cupy, with_c, layouts[3])[0]
    d, buffer = place(cupy, np.empty(shape, dtype), layouts[2], poison=True)

    executable = build(make_plan(subscripts, operands, c, d))
    b = operands[1] if len(operands) > 1 else None
    executable(operands[0], b, c, d, alpha, beta or 0)
    first = buffer.get()
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    exact = np.asarray(alpha * np.einsum(subscripts, *(x.astype(wide) for x in host), optimize=False))
    if beta:
        assert with_c is not None
        exact = exact + beta * with_c.astype(wide)
    np.testing.assert_array_equal(d.get(), rounded(exact, dtype))
    executable(operands[0], b, c, d, alpha, beta or 0)
    assert buffer.get().tobytes() == first.tobytes()
    # What is not D's keeps its poison.
    d[...] = cupy.asarray(np.zeros(shape, dtype))
    mask, where = place(cupy, np.zeros(shape, dtype), layouts[2], poison=True)
    mask[...] = cupy.asarray(np.zeros(shape, dtype))
    assert buffer.get().tobytes() == where.get().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_exact(cupy: Any, case: tuple[str, list[tuple[int, ...]], str], dtype: str) -> None:
    run(cupy, *case, dtype)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (2, 1), (3, 2), (0, 1)])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32", "float64"])
@pytest.mark.parametrize("case", CASES[::3], ids=lambda c: f"{c[0]} {c[2]}")
def test_alpha_beta_and_c(
    cupy: Any, case: tuple[str, list[tuple[int, ...]], str], dtype: str, alpha: int, beta: int
) -> None:
    run(cupy, *case, dtype, alpha=alpha, beta=beta)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128", "int8", "int64"])
@pytest.mark.parametrize("case", [c for c in CASES if "->j" in c[0] or "->i" in c[0] or c[0].endswith("->")],
                         ids=lambda c: f"{c[0]} {c[2]}")  # fmt: skip
def test_split_sums(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, case: tuple[str, list[tuple[int, ...]], str], dtype: str
) -> None:
    def small_slices(facts: ArchFacts) -> DeviceModel:
        found = nearest(facts)
        return replace(found, streams=replace(found.streams, least_slice_bytes=1))

    monkeypatch.setattr(stream_search, "nearest", small_slices)
    run(cupy, *case, dtype, alpha=1, beta=1)


def test_broadcast_operands_and_modes_of_d_alone(cupy: Any) -> None:
    a = cupy.broadcast_to(cupy.arange(60, dtype=np.float32).reshape(60, 1), (60, 100))
    d = cupy.full((100, 60), np.nan, np.float32)
    build(make_plan("ij->ji", [a], None, d))(a, None, None, d)
    np.testing.assert_array_equal(d.get(), a.get().T)
    v = cupy.arange(40, dtype=np.float32)
    wide = cupy.full((40, 64), np.nan, np.float32)
    extents = {"i": 40, "j": 64}
    plan = make_gemm_plan(Contraction(("i", "j"), (40, 64), operand("i", v, extents), None,
                                      operand("ij", wide, extents), None, "float32"))  # fmt: skip
    build(plan)(v, None, None, wide)
    np.testing.assert_array_equal(wide.get(), np.repeat(v.get()[:, None], 64, axis=1))


def test_empty_sum_gives_beta_c(cupy: Any) -> None:
    a, c = cupy.empty((5, 0), np.float32), cupy.arange(5, dtype=np.float32)
    d = cupy.full(5, np.nan, np.float32)
    build(make_plan("ij->i", [a], c, d))(a, None, c, d, 1, 3)
    np.testing.assert_array_equal(d.get(), 3 * c.get())


def test_a_mixed_type_result(cupy: Any) -> None:
    rng = np.random.default_rng(5)
    a = cupy.asarray(rng.integers(-3, 4, (130, 260)).astype(np.float16))
    for subscripts, shape in (("ij->ji", (260, 130)), ("ij->j", (260,)), ("ij->i", (130,))):
        d = cupy.full(shape, np.nan, np.float64)
        build(make_plan(subscripts, [a], None, d))(a, None, None, d)
        np.testing.assert_array_equal(d.get(), np.einsum(subscripts, a.get().astype(np.float64)))


def test_more_than_31_bits_of_elements(cupy: Any) -> None:
    # On a small GPU just below 2**31 elements: the walk is the same, the offsets fit.
    n = 46_000 if cupy.cuda.runtime.memGetInfo()[0] < 8 << 30 else 47_000
    i, j = (cupy.asarray(np.arange(n) % m, dtype=np.int8) for m in (11, 7))
    d = cupy.full((n, n), -1, np.int8)
    build(make_plan("i,j->ij", [i, j], None, d))(i, j, None, d)
    for row in (0, 1, 45_999, n - 1):
        np.testing.assert_array_equal(d[row].get(), (row % 11) * j.get())
    del d
    total = cupy.full((), -1, np.int64)
    x = cupy.ones(2**31 - 1, np.int8)
    y = cupy.lib.stride_tricks.as_strided(cupy.ones(1, np.int8), x.shape, (0,))
    build(make_plan("i,i->", [x, y], None, total))(x, y, None, total)
    assert int(total) == 2**31 - 1  # summed in int32, which just holds it
