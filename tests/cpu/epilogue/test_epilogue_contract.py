"""What `gett.contract` computes with an epilogue on NumPy: every type, shape and route, networks, cut contractions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import gett
from gett.cpu import NumpyExecutable
from gett.epilogue.traced import trace
from gett.hw.dtypes import data_type
from gett.ir.contraction import Operand
from gett.ir.gemm import make_gemm_plan
from gett.network.cutting import cut_free, cut_sum, partial_sums, uncut
from tests.cpu.helpers import at, contraction_of, seeded
from tests.sampling import given_few

ops = gett.ops

DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "uint8", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_result_is_rounded_once_after_the_function(dtype: str) -> None:
    """Small integers make the product exact, so the bits of the result tell where it was rounded."""
    a, b = seeded(7, 30, dtype=dtype), seeded(30, 9, dtype=dtype, seed=1)
    x, y = seeded(9, dtype=dtype, seed=2), seeded(7, 1, dtype=dtype, seed=3)
    compute = np.dtype(data_type(dtype).accumulator)

    def function(d: Any, x: Any, y: Any) -> Any:
        if compute.kind in "iu":
            return d * x + y
        return (d * x + y) / 3

    found = gett.contract("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, y))
    product = (a.astype(compute) @ b.astype(compute)).astype(compute)
    expected = function(product, x.astype(compute), y.astype(compute)).astype(compute).astype(dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_small_integers_have_not_wrapped_around_before_the_function() -> None:
    a, b = np.full((4, 50), 3, np.int8), np.full((50, 5), 7, np.int8)
    a[0] = -3
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d: ops.clip(d, -128, 127))
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.clip(a.astype(int) @ b.astype(int), -128, 127))
    # Summed before the product, as a sum of one operand alone is.
    c = np.full((50, 600), 1, np.int8)
    found = gett.contract("ij,jk->i", a, c, epilogue=lambda d: ops.clip(d, -128, 127))
    np.testing.assert_array_equal(found, np.clip((a.astype(int) @ c.astype(int)).sum(1), -128, 127))


def test_truths() -> None:
    a, b = seeded(4, 5, dtype=bool), seeded(5, 6, dtype=bool, seed=1, low=0)
    m = seeded(6, dtype=bool, seed=2, low=0)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, m: ~d ^ m, epilogue_args=(m,))
    np.testing.assert_array_equal(found, ~(a @ b) ^ m)


SHAPES = [
    ("ij,jk->ik", (60, 90), (90, 80)),
    ("bij,bjk->bik", (6, 30, 40), (6, 40, 50)),
    ("ijef,aebf->ijab", (6, 5, 20, 21), (7, 20, 8, 21)),
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,ij->ij", (30, 40), (30, 40)),
    ("i,j->ij", (30,), (40,)),
    ("ij,j->i", (300, 400), (400,)),
]


@pytest.mark.parametrize(("subscripts", "shape_a", "shape_b"), SHAPES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_every_shape(subscripts: str, shape_a: Any, shape_b: Any, dtype: str) -> None:
    a, b = seeded(*shape_a, dtype=dtype), seeded(*shape_b, dtype=dtype, seed=1)
    wide = "complex128" if np.dtype(dtype).kind == "c" else "float64"
    product = np.einsum(subscripts, a.astype(wide), b.astype(wide))
    x = seeded(*product.shape, dtype=dtype, seed=2)
    y = seeded(*(product.shape[-1:]), dtype=np.int32, seed=3)
    c = seeded(*product.shape, dtype=dtype, seed=4)

    def function(d: Any, x: Any, y: Any) -> Any:
        return (d - x) * 2 + y

    plan = gett.plan(subscripts, a, b, epilogue=function, epilogue_args=(x, y))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x, y)), function(product, x, y).astype(dtype))
    out = np.full(product.shape[::-1], 99, dtype).T
    found = gett.contract(
        subscripts, a, b, c, alpha=2, beta=-1, out=out, epilogue=function, epilogue_args=(x.T.copy().T, y)
    )
    assert found is out
    np.testing.assert_array_equal(out, function(2 * product - c, x, y).astype(dtype))


@pytest.mark.parametrize(
    ("route", "subscripts", "shapes", "dtype"),
    [
        ("one BLAS call", "ij,jk->ik", ((60, 90), (90, 80)), "float64"),
        ("batched BLAS", "bij,bjk->bik", ((6, 60, 90), (6, 90, 80)), "float64"),
        ("packed boxes", "ij,jk->ik", ((60, 90), (90, 80)), "float16"),
        ("packed boxes", "ijef,aebf->ijab", ((6, 5, 20, 21), (7, 20, 8, 21)), "float32"),
        ("element-wise", "ij,ij->ij", ((30, 40), (30, 40)), "float64"),
        ("sum", "ijk->ki", ((30, 40, 20),), "float32"),
        ("permutation", "ijk->kij", ((30, 40, 50),), "float32"),
    ],
)
def test_every_route(route: str, subscripts: str, shapes: Any, dtype: str) -> None:
    operands = [seeded(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    product = np.einsum(subscripts, *(x.astype(np.float64) for x in operands))
    x = seeded(*product.shape[1:], dtype=dtype, seed=9)
    plan = gett.plan(subscripts, *operands, epilogue=lambda d, x: d * x - 1, epilogue_args=(x,))
    assert plan.steps[0].executable.route == route
    for alpha in (1, 2):
        found = plan(*operands, alpha=alpha, epilogue_args=(x,))
        np.testing.assert_array_equal(found, (alpha * product * x - 1).astype(dtype))


@pytest.mark.parametrize("subscripts", ["ij->ji", "ijk->k", "ii->i", "ijk->", "ij->ij"])
def test_contractions_of_one_operand(subscripts: str) -> None:
    labels = subscripts.partition("->")[0]
    a = seeded(*(5 for _ in labels))
    product = np.einsum(subscripts, a)
    x = seeded(*product.shape, seed=1)
    found = gett.contract(subscripts, a, epilogue=lambda d, x: d * 3 + x, epilogue_args=(x,))
    np.testing.assert_array_equal(found, product * 3 + x)
    assert type(found) is type(product if product.ndim else np.float64(0))


def test_many_tiles_and_threads() -> None:
    a, b = seeded(300, 64, dtype=np.float32), seeded(64, 3000, dtype=np.float32, seed=1)
    x, y = seeded(3000, dtype=np.float32, seed=2), seeded(300, dtype=np.float16, seed=3)
    expected = (a @ b + x) * y[:, None]
    for order in "CF":
        plan = gett.plan("ij,jk->ik", a, b, order=order, epilogue=lambda d, x, y: (d + x) * y[:, None],
                         epilogue_args=(x, y))  # fmt: skip
        np.testing.assert_array_equal(plan(a, b, epilogue_args=(x, y)), expected)
    a = seeded(200, 300, 40)
    found = gett.contract("abc->cab", a, epilogue=lambda d, x: d * 2 - x, epilogue_args=(a.transpose(2, 0, 1) + 1,))
    np.testing.assert_array_equal(found, a.transpose(2, 0, 1) - 1)
    a, b = seeded(50, 16, 16), seeded(50, 16, 16, seed=1)
    found = gett.contract("bij,bjk->bik", a, b, epilogue=lambda d, x: d - x, epilogue_args=(b,))
    np.testing.assert_array_equal(found, a @ b - b)


def test_where_the_result_alone_varies() -> None:
    """Modes that neither operand has come from the shape of `out`."""
    a, x, out = seeded(1, 4), seeded(5, 1, seed=1), np.empty((5, 4))
    gett.contract("ij->ij", a, out=out, epilogue=lambda d, x: d + x, epilogue_args=(x,))
    np.testing.assert_array_equal(out, a + x)


def test_bias_and_activation_in_half_precision() -> None:
    rng = np.random.default_rng(0)
    a, w = rng.normal(size=(40, 64)).astype(np.float16), rng.normal(size=(64, 50)).astype(np.float16)
    bias = rng.normal(size=50).astype(np.float16)
    for approximate in ("none", "tanh"):

        def function(d: Any, b: Any, approximate: str = approximate) -> Any:
            return ops.gelu(d + b, approximate=approximate)

        found = gett.contract("ij,jk->ik", a, w, epilogue=function, epilogue_args=(bias,))
        exact = function(a.astype(np.float64) @ w.astype(np.float64), bias.astype(np.float64))
        assert found.dtype == np.float16
        # Half a unit of float16, and what sums of 64 products lose in float32.
        assert (abs(found - exact) <= 2.0**-11 * abs(exact) + 2.0**-24 + 64 * 2.0**-24 * 64).all()


def test_energy_denominators() -> None:
    """As in MP2: an amplitude is an integral over a sum of orbital energies."""
    rng = np.random.default_rng(0)
    b = rng.normal(size=(30, 4, 7))
    e_i, e_a = -rng.random(4) - 1, rng.random(7) + 1

    def divided(r: Any, i: Any, a: Any) -> Any:
        return r / (i[:, None, None, None] + i[:, None] - a[:, None, None] - a)

    found = gett.contract("Qia,Qjb->iajb", b, b, epilogue=divided, epilogue_args=(e_i, e_a))
    denominators = e_i[:, None, None, None] + e_i[:, None] - e_a[:, None, None] - e_a
    np.testing.assert_allclose(found, np.einsum("Qia,Qjb->iajb", b, b) / denominators, rtol=1e-12)


def test_networks_apply_it_once_at_the_end() -> None:
    a, b, c, e = seeded(4, 5), seeded(5, 6, seed=1), seeded(6, 7, seed=2), seeded(7, 3, seed=3)
    x = seeded(4, 3, seed=4)

    def function(d: Any, x: Any) -> Any:
        return d * d - x

    for optimize in (True, False, "greedy"):
        plan = gett.plan("ij,jk,kl,lm->im", a, b, c, e, optimize=optimize, epilogue=function, epilogue_args=(x,))
        assert [s.gemm.contraction.epilogue is not None for s in plan.steps] == [False, False, True]
        assert [len(s.gemm.contraction.extras) for s in plan.steps] == [0, 0, 1]
        np.testing.assert_array_equal(plan(a, b, c, e, epilogue_args=(x,)), function(a @ b @ c @ e, x))
        found = gett.contract("ij,jk,kl,lm->im", a, b, c, e, x, alpha=2, optimize=optimize, epilogue=function,
                              epilogue_args=(x,))  # fmt: skip
        np.testing.assert_array_equal(found, function(2 * (a @ b @ c @ e) + x, x))
    # A sum of one operand alone comes first, as a step of its own.
    a, b = seeded(300, 200), seeded(200, 400, seed=1)
    plan = gett.plan("ij,jk->i", a, b, epilogue=lambda d: d * d, epilogue_args=())
    assert len(plan.steps) > 1
    np.testing.assert_array_equal(plan(a, b), (a @ b).sum(1) ** 2)


def test_empty_sums_and_empty_results() -> None:
    a, b, x = np.ones((3, 0)), np.ones((0, 4)), seeded(4)
    np.testing.assert_array_equal(
        gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d + x, epilogue_args=(x,)), np.tile(x, (3, 1))
    )
    assert gett.contract("ij,jk->ik", np.ones((0, 3)), np.ones((3, 4)), epilogue=ops.relu).shape == (0, 4)
    with pytest.raises(gett.EpilogueError, match="does not broadcast"):
        gett.contract("ij,jk->ik", np.ones((0, 3)), np.ones((3, 4)), epilogue=lambda d, x: d + x, epilogue_args=(a,))
    found = gett.contract("i,i,i->", b[:, 0], b[:, 0], b[:, 0], epilogue=lambda d: d + 2)
    assert found == 2


@given_few(12, 60,
    st.sampled_from(["ij,jk->ik", "ij,jk->ki", "ijk,kl->lij", "ik,jk->ij", "bij,bj->bi", "ij,jk->", "ij,kl->ijkl"]),
    st.sampled_from([1, 2, 3]), st.booleans(), st.data(),
)  # fmt: skip
def test_cut_contractions_apply_it_once(subscripts: str, limit: int, with_c: bool, data: Any) -> None:
    """What is too large for one launch: sections of D have their shares, partial sums are added up before."""
    left = subscripts.partition("->")[0]
    extents = {x: data.draw(st.integers(1, 5)) for x in sorted(set(left) - {","})}
    first, second = left.split(",")
    a = seeded(*(extents[x] for x in first))
    b = seeded(*(extents[x] for x in second), seed=1)
    whole = contraction_of(subscripts, a, b)
    shape = whole.shape_d
    product = np.einsum(subscripts, a, b)
    x, y = seeded(*shape, seed=2), seeded(*(shape[-1:]), seed=3)
    c = seeded(*shape, seed=4)

    def function(d: Any, x: Any, y: Any) -> Any:
        return d * d + 2 * x - y

    function_of = trace(function, [x.ndim, y.ndim])
    modes = whole.d.modes
    extras = (Operand(modes, x.strides, "float64"), Operand(modes[len(modes) - y.ndim :], y.strides, "float64"))
    whole = replace(whole, c=whole.d if with_c else None, epilogue=function_of, extras=extras)
    out = np.full(shape, 99.0)
    tensors = [a, b, c if with_c else None, out, x, y]
    factors = (3, 2 if with_c else 0)

    def run(section: Any, tensors: Any, factors: Any) -> None:
        k = section.contraction
        operands = (k.a, k.b, k.c, k.d, *k.extras)
        (*views,) = [at(x, o, k.extents, by) for x, o, by in zip(tensors, operands, section.offsets, strict=True)]
        NumpyExecutable(make_gemm_plan(k))(*views[:4], *factors, views[4:])

    sections = cut_sum(whole, limit)
    if len(sections) > 1:
        written, total = partial_sums(sections, whole.dtype)
        assert all(p.contraction.epilogue is None for p in written)
        sums = np.full((len(sections), *shape), 55.0)
        for section in written:
            for part in cut_free(section, limit):
                run(part, [a, b, None, sums], (1, 0))
        sections, tensors = [uncut(total)], [sums, None, *tensors[2:]]
    for part in cut_free(sections[0], limit):
        run(part, tensors, factors)
    np.testing.assert_array_equal(out, function(3 * product + (2 * c if with_c else 0), x, y))
