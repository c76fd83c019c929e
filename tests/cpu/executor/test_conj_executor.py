"""Conjugated and real factors in the NumPy executor: every route exact on small integers, nothing copied as a whole."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gett.cpu import NumpyExecutable
from gett.cpu import boxes as boxes_module
from gett.cpu import elementwise as elementwise_module
from gett.cpu import tiles as tiles_module
from gett.cpu.conjugation import conjugate
from gett.ir.gemm import make_gemm_plan
from gett.ir.pairs import real_pairs
from tests.cpu.helpers import contraction_of
from tests.cpu.strategies import values
from tests.sampling import slow_but

RNG = np.random.default_rng(21)
CASES = {
    "one call": ("ij,jk->ik", (60, 70), (70, 80)),
    "transposed": ("ij,kj->ki", (60, 70), (80, 70)),
    "batched": ("bij,bjk->bik", (3, 30, 40), (3, 40, 20)),
    "packed": ("iajb,bkaj->kij", (12, 10, 9, 8), (8, 20, 10, 9)),
    "sums of one": ("ijx,jky->ik", (20, 30, 3), (30, 25, 2)),
    "hadamard": ("ij,ji->ij", (30, 40), (40, 30)),
    "outer": ("i,j->ij", (30,), (40,)),
    "spread": ("ij,j->ij", (30, 40), (40,)),
    "tiny sum": ("ijk,kij->ij", (9, 10, 2), (2, 9, 10)),
    "dot": ("i,i->", (50,), (50,)),
    "empty": ("ij,jk->ik", (3, 0), (0, 4)),
}
TYPES = (
    *(("complex64", "complex64", x) for x in ((True, False), (False, True), (True, True))),
    *(("complex128", "complex128", x) for x in ((True, False), (True, True))),
    ("float32", "complex64", (False, False)),
    ("float32", "complex64", (False, True)),
    ("complex128", "float64", (False, False)),
    ("complex128", "float64", (True, False)),
)


def integers(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return values(RNG, shape, np.dtype(dtype), 4)


def executable(subscripts: str, arrays: list[NDArray[Any]], conj: tuple[bool, ...], d: NDArray[Any],
               c: NDArray[Any] | None = None, threads: int = 1) -> NumpyExecutable:  # fmt: skip
    made = contraction_of(subscripts, *arrays, **({} if c is None else {"c": c}), d=d)
    b = None if made.b is None else replace(made.b, conj=conj[1])
    return NumpyExecutable(make_gemm_plan(replace(made, a=replace(made.a, conj=conj[0]), b=b)), threads)


def check(subscripts: str, arrays: list[NDArray[Any]], conj: tuple[bool, ...], alpha: complex = 1,
          beta: complex = 0, order: str = "C") -> NumpyExecutable:  # fmt: skip
    want = alpha * np.einsum(subscripts, *(x.conj() if y else x for x, y in zip(arrays, conj, strict=True)))
    want = np.asarray(want, np.result_type(*arrays))
    c = integers(want.shape, want.dtype.name) if beta else None
    d = np.full(want.shape, 77 - 7j, want.dtype, order=order)
    kept = [x.copy() for x in arrays]
    run = executable(subscripts, arrays, conj, d, c)
    run(arrays[0], arrays[1] if len(arrays) == 2 else None, c, d, alpha, beta)
    np.testing.assert_array_equal(d, want if c is None else want + beta * c, run.explain)
    for x, y in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(x, y)
    return run


@pytest.mark.parametrize("name", [*CASES])
@pytest.mark.parametrize(("dtype_a", "dtype_b", "conj"), slow_but(TYPES, lambda x: x in TYPES[::3]), ids=str)
def test_products_of_every_route(name: str, dtype_a: str, dtype_b: str, conj: tuple[bool, bool]) -> None:
    subscripts, shape_a, shape_b = CASES[name]
    arrays = [integers(shape_a, dtype_a), integers(shape_b, dtype_b)]
    for alpha, beta, order in ((1, 0, "C"), (2, 0, "F"), (1 + 2j, 0, "C"), (3, -2, "C"), (1j, 1 - 1j, "C")):
        check(subscripts, arrays, conj, alpha, beta, order)
        check(subscripts, [x[::-1] if x.ndim == 1 else x.swapaxes(0, 1).copy().swapaxes(0, 1) for x in arrays], conj)


def test_the_routes_are_those_that_the_cases_are_called_by() -> None:
    def route(name: str, *kinds: Any) -> str:
        subscripts, shape_a, shape_b = CASES[name]
        return check(subscripts, [integers(shape_a, kinds[0]), integers(shape_b, kinds[1])], kinds[2]).route

    both = ("complex64", "complex64", (True, True))
    assert route("one call", *both) == "one BLAS call"
    assert route("batched", *both) == "batched BLAS"
    assert route("packed", *both) == "packed boxes"
    assert route("one call", "complex64", "complex64", (True, False)) == "packed boxes"  # one of them, in tiles
    assert route("one call", "float32", "complex64", (False, True)).endswith("on pairs of real numbers")
    assert {route(x, *both) for x in ("hadamard", "outer", "spread", "tiny sum")} == {"element-wise"}
    assert check("ij->ji", [integers((30, 40), "complex64")], (True,)).route == "permutation"
    assert check("ij->j", [integers((30, 40), "complex64")], (True,), 2 - 1j).route == "sum"


def test_a_factor_alone_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_module, "CALL", 1 << 8)
    monkeypatch.setattr(elementwise_module, "CONJUGATED", 1 << 6)
    for subscripts in ("ij->ji", "ij->ij", "ij->i", "ij->j", "ij->"):
        for dtype in ("complex64", "complex128"):
            check(subscripts, [integers((30, 40), dtype)], (True,), 1 + 1j, 2)
            check(subscripts, [integers((30, 40), dtype)], (True,))
    for name, conj in itertools.product(("hadamard", "tiny sum", "outer"), ((True, False), (True, True))):
        subscripts, shape_a, shape_b = CASES[name]
        check(subscripts, [integers(shape_a, "complex64"), integers(shape_b, "complex64")], conj)


def test_a_result_over_its_factor() -> None:
    for conj in itertools.product((False, True), repeat=2):
        a, b = integers((30, 40), "complex64"), integers((30, 40), "complex64")
        want = (a.conj() if conj[0] else a) * (b.conj() if conj[1] else b)
        executable("ij,ij->ij", [a, b], conj, a)(a, b, None, a)
        np.testing.assert_array_equal(a, want)


def test_large_arrays_are_conjugated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads, shape in ((1, (70, 50)), (2, (1024, 600))):
        monkeypatch.setattr(tiles_module, "CALL", 1 << 9 if threads == 1 else 1 << 24)
        x = integers(shape, "complex64")
        for view in (x.copy(), x.copy().T):
            want = view.conj()
            conjugate(view, threads)
            np.testing.assert_array_equal(view, want)


@pytest.mark.parametrize(
    ("dtypes", "conj"),
    [(("complex64", "complex64"), (True, False)), (("complex64", "complex64"), (True, True)),
     (("float32", "complex64"), (False, True)), (("complex64", "float32"), (False, False))],
)  # fmt: skip
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,ij->ij", "ij,ij->"])
def test_no_operand_is_copied_as_a_whole(subscripts: str, dtypes: tuple[str, str], conj: tuple[bool, bool],
                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(boxes_module, "SCRATCH_BYTES", 1 << 20)
    product = subscripts == "ij,jk->ik"
    shapes = ((20000, 60), (60, 40)) if product else ((1200, 1000), (1200, 1000))
    a, b = np.ones(shapes[0], dtypes[0]), np.ones(shapes[1], dtypes[1])
    d = np.empty((shapes[0][0], shapes[1][1]) if subscripts[-1] != ">" else (), "complex64")
    run = executable(subscripts, [a, b], conj, d)
    run(a, b, None, d)
    np.testing.assert_array_equal(d, 60 if product else 1 if d.ndim else a.size)
    tracemalloc.start()
    try:
        run(a, b, None, d)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20 < a.nbytes, run.explain


def test_plans_of_real_numbers() -> None:
    a, b, d = (integers((8, 8), x) for x in ("float32", "complex64", "complex64"))
    plan = contraction_of("ij,jk->ik", a, b, d=d)
    real = real_pairs(plan)
    assert real is not None
    assert real.dtype == "float32"
    assert make_gemm_plan(real).flops == make_gemm_plan(plan).flops == 4 * 8**3
    assert real_pairs(contraction_of("ij,jk->ik", b, b, d=d)) is None
    assert real_pairs(contraction_of("ij->ji", b, d=d)) is None
    c = contraction_of("ij,jk->ik", a, b, c=d, d=d)
    assert real_pairs(c) is not None
    assert c.b is not None
    assert real_pairs(replace(c, b=replace(c.b, conj=True))) is None
