"""`gett.contract` and plans with an epilogue, on NumPy."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gett
from gett.api import plan_cache
from gett.api.explain_json import plan_record
from gett.cpu import NumpyExecutable
from gett.epilogue.traced import trace
from gett.hw.dtypes import data_type
from gett.ir.contraction import Operand
from gett.ir.gemm import EXTRA, make_gemm_plan
from gett.network.cutting import cut_free, cut_sum, partial_sums, uncut
from tests.cpu.helpers import at, contraction_of

ops = gett.ops


def integers(*shape: int, dtype: Any = np.float64, seed: int = 0, low: int = -3) -> Any:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "u":
        low = 0
    real = rng.integers(low, 4, shape)
    return (real + 1j * rng.integers(-3, 4, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else real.astype(dtype)


DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int8", "uint8", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_result_is_rounded_once_after_the_function(dtype: str) -> None:
    """Small integers make the product exact, so the bits of the result tell where it was rounded."""
    a, b = integers(7, 30, dtype=dtype), integers(30, 9, dtype=dtype, seed=1)
    x, y = integers(9, dtype=dtype, seed=2), integers(7, 1, dtype=dtype, seed=3)
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
    a, b = integers(4, 5, dtype=bool), integers(5, 6, dtype=bool, seed=1, low=0)
    m = integers(6, dtype=bool, seed=2, low=0)
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
    a, b = integers(*shape_a, dtype=dtype), integers(*shape_b, dtype=dtype, seed=1)
    wide = "complex128" if np.dtype(dtype).kind == "c" else "float64"
    product = np.einsum(subscripts, a.astype(wide), b.astype(wide))
    x = integers(*product.shape, dtype=dtype, seed=2)
    y = integers(*(product.shape[-1:]), dtype=np.int32, seed=3)
    c = integers(*product.shape, dtype=dtype, seed=4)

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
    operands = [integers(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    product = np.einsum(subscripts, *(x.astype(np.float64) for x in operands))
    x = integers(*product.shape[1:], dtype=dtype, seed=9)
    plan = gett.plan(subscripts, *operands, epilogue=lambda d, x: d * x - 1, epilogue_args=(x,))
    assert plan.steps[0].executable.route == route
    for alpha in (1, 2):
        found = plan(*operands, alpha=alpha, epilogue_args=(x,))
        np.testing.assert_array_equal(found, (alpha * product * x - 1).astype(dtype))


@pytest.mark.parametrize("subscripts", ["ij->ji", "ijk->k", "ii->i", "ijk->", "ij->ij"])
def test_contractions_of_one_operand(subscripts: str) -> None:
    labels = subscripts.partition("->")[0]
    a = integers(*(5 for _ in labels))
    product = np.einsum(subscripts, a)
    x = integers(*product.shape, seed=1)
    found = gett.contract(subscripts, a, epilogue=lambda d, x: d * 3 + x, epilogue_args=(x,))
    np.testing.assert_array_equal(found, product * 3 + x)
    assert type(found) is type(product if product.ndim else np.float64(0))


def test_many_tiles_and_threads() -> None:
    a, b = integers(300, 64, dtype=np.float32), integers(64, 3000, dtype=np.float32, seed=1)
    x, y = integers(3000, dtype=np.float32, seed=2), integers(300, dtype=np.float16, seed=3)
    expected = (a @ b + x) * y[:, None]
    for order in "CF":
        plan = gett.plan("ij,jk->ik", a, b, order=order, epilogue=lambda d, x, y: (d + x) * y[:, None],
                         epilogue_args=(x, y))  # fmt: skip
        np.testing.assert_array_equal(plan(a, b, epilogue_args=(x, y)), expected)
    a = integers(200, 300, 40)
    found = gett.contract("abc->cab", a, epilogue=lambda d, x: d * 2 - x, epilogue_args=(a.transpose(2, 0, 1) + 1,))
    np.testing.assert_array_equal(found, a.transpose(2, 0, 1) - 1)
    a, b = integers(50, 16, 16), integers(50, 16, 16, seed=1)
    found = gett.contract("bij,bjk->bik", a, b, epilogue=lambda d, x: d - x, epilogue_args=(b,))
    np.testing.assert_array_equal(found, a @ b - b)


def test_where_the_result_alone_varies() -> None:
    """Modes that neither operand has come from the shape of `out`."""
    a, x, out = integers(1, 4), integers(5, 1, seed=1), np.empty((5, 4))
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
    a, b, c, e = integers(4, 5), integers(5, 6, seed=1), integers(6, 7, seed=2), integers(7, 3, seed=3)
    x = integers(4, 3, seed=4)

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
    a, b = integers(300, 200), integers(200, 400, seed=1)
    plan = gett.plan("ij,jk->i", a, b, epilogue=lambda d: d * d, epilogue_args=())
    assert len(plan.steps) > 1
    np.testing.assert_array_equal(plan(a, b), (a @ b).sum(1) ** 2)


def test_empty_sums_and_empty_results() -> None:
    a, b, x = np.ones((3, 0)), np.ones((0, 4)), integers(4)
    np.testing.assert_array_equal(
        gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d + x, epilogue_args=(x,)), np.tile(x, (3, 1))
    )
    assert gett.contract("ij,jk->ik", np.ones((0, 3)), np.ones((3, 4)), epilogue=ops.relu).shape == (0, 4)
    with pytest.raises(gett.EpilogueError, match="does not broadcast"):
        gett.contract("ij,jk->ik", np.ones((0, 3)), np.ones((3, 4)), epilogue=lambda d, x: d + x, epilogue_args=(a,))
    found = gett.contract("i,i,i->", b[:, 0], b[:, 0], b[:, 0], epilogue=lambda d: d + 2)
    assert found == 2


def test_scalars_broadcasts_and_strides_of_arguments() -> None:
    a, b = integers(4, 5), integers(5, 6, seed=1)
    product = a @ b
    grid = integers(8, 12, seed=2)
    for x in (2, 2.5, True, np.float32(1.5), np.array(3), grid[::2, ::-2], grid[:4, :1], grid[0, ::2], grid[:1, :6],
              np.broadcast_to(grid[0, 0], (4, 6)), grid.astype(">f4")[::2, 1::2], [1, 2, 3, 4, 5, 6],
              grid[:4, :6].astype(np.int8), grid[:4, :6] > 0):  # fmt: skip
        found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d * 2 + x, epilogue_args=(x,))
        np.testing.assert_array_equal(found, product * 2 + np.asarray(x))
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x, y, z: d + y, epilogue_args=(1, grid[:4, :6], 3))
    np.testing.assert_array_equal(found, product + grid[:4, :6])
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d: 7)
    np.testing.assert_array_equal(found, np.full((4, 6), 7.0))
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b, epilogue=lambda d: d > 0), (product > 0) * 1.0)


def test_complex_results_with_real_arguments() -> None:
    a, b = integers(4, 5, dtype=np.complex128), integers(5, 6, dtype=np.complex128, seed=1)
    x = integers(6, seed=2)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d.conj() * x + abs(d), epilogue_args=(x,))
    np.testing.assert_allclose(found, (a @ b).conj() * x + abs(a @ b), rtol=1e-15)


def test_out_may_be_or_overlap_an_argument() -> None:
    a, b = integers(6, 5), integers(5, 6, seed=1)
    product = a @ b

    out = integers(6, 6, seed=2)
    before = out.copy()
    assert gett.contract("ij,jk->ik", a, b, out=out, epilogue=lambda d, x: d * x - x, epilogue_args=(out,)) is out
    np.testing.assert_array_equal(out, product * before - before)
    # Shifted, transposed, a row of it, and a column.
    for view in (lambda m: m[1:, :6], lambda m: m[:6, :6].T, lambda m: m[0, :6], lambda m: m[:6, 1:2]):
        memory = integers(7, 7, seed=3)
        before = view(memory).copy()
        gett.contract("ij,jk->ik", a, b, out=memory[:6, :6], epilogue=lambda d, x: d - x, epilogue_args=(view(memory),))
        np.testing.assert_array_equal(memory[:6, :6], product - before)
    # The memory of `out`, read as it is and turned round: through two indices that meet in no element.
    cube = integers(6, 6, seed=3)[None]
    before = cube.copy()
    found = gett.contract("ij,jk->ik", a, b, out=cube[0], epilogue=lambda d, x, y: d + x * y,
                          epilogue_args=(cube[0], cube[0].T))  # fmt: skip
    np.testing.assert_array_equal(found, product + before[0] * before[0].T)
    line = integers(6, seed=4)
    before = line.copy()
    gett.contract("ij,jk->i", a, b, out=line, epilogue=lambda d, x: d + x[..., :] * x, epilogue_args=(line,))
    np.testing.assert_array_equal(line, product.sum(1) + before**2)
    plan = gett.plan("ij,jk->ik", a, b, epilogue=lambda d, x: d - x, epilogue_args=(product.T,))
    out = integers(6, 6, seed=4)
    before = out.copy()
    plan(a, b, out=out, epilogue_args=(out.T,))
    np.testing.assert_array_equal(out, product - before.T)


def test_out_of_another_dtype_and_accumulation() -> None:
    a, b, x = integers(4, 5, dtype=np.float32), integers(5, 6, dtype=np.float32, seed=1), integers(6, seed=2)
    out = integers(4, 6, seed=3)
    before = out.copy()
    gett.contract("ij,jk->ik", a, b, beta=1, out=out, epilogue=lambda d, x: ops.relu(d + x), epilogue_args=(x,))
    np.testing.assert_array_equal(out, np.maximum(a @ b + before + x, 0))
    wide = np.zeros((4, 6), np.complex128)
    plan = gett.plan("ij,jk->ik", a, b, out=wide, dtype=np.float32, casting="unsafe", epilogue=lambda d: d / 3)
    plan(a, b, out=wide)
    np.testing.assert_array_equal(wide, (a @ b) / np.float32(3))


def test_plans_are_kept_by_what_the_function_computes() -> None:
    a, b, x = integers(4, 5), integers(5, 6, seed=1), integers(6, seed=2)
    plan_cache.plan_cache.clear()

    def misses() -> int:
        return gett.plan_cache.info().misses

    def call(factor: float) -> Any:
        return gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d * factor + x, epilogue_args=(x,))

    for factor in (2.0, 3.0, 2.0, 3.0):
        np.testing.assert_array_equal(call(factor), a @ b * factor + x)
    assert misses() == 2
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b), a @ b)
    assert misses() == 3
    for scale in (1.0, 2.0):  # numbers among the arguments are no part of the plan
        found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, s: d * s, epilogue_args=(scale,))
        np.testing.assert_array_equal(found, a @ b * scale)
    assert misses() == 4
    plan_cache.plan_cache.clear()


def test_plans() -> None:
    a, b, x = integers(4, 5), integers(5, 6, seed=1), integers(4, 6, seed=2)
    calls = []

    def function(d: Any, x: Any, s: Any) -> Any:
        calls.append(d)
        return ops.relu(d + x) * s

    arguments = (((4, 6), "float64"), 2.0)
    plan = gett.plan(
        "ij,jk->ik", (a.shape, "float64"), (b.shape, "float64"), epilogue=function, epilogue_args=arguments
    )

    def expected(x: Any, s: Any) -> Any:
        return np.maximum(a @ b + x, 0) * s

    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x, 2.0)), expected(x, 2))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=[x, 3]), expected(x, 3))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x[:, ::-1], np.float32(1))), expected(x[:, ::-1], 1))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x.astype(np.int8), True)), expected(x, 1))
    np.testing.assert_array_equal(plan(a, b, epilogue_args=(x[:1], 2)), expected(x[:1], 2))
    np.testing.assert_array_equal(
        plan(a, b, c=x, alpha=2, beta=3, epilogue_args=(x, 2)), np.maximum(2 * (a @ b) + 4 * x, 0) * 2
    )
    out = np.empty((4, 6))
    assert plan(a, b, out=out, epilogue_args=(x, 2)) is out
    np.testing.assert_array_equal(out, expected(x, 2))
    assert len(calls) == 1
    for other in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        np.testing.assert_array_equal(other(a, b, epilogue_args=(x, 2.0)), expected(x, 2))
    for arguments, message in (
        ((), "takes 2 epilogue_args, 0 were given"),
        ((x,), "takes 2 epilogue_args, 1 were given"),
        ((x[0], 2), r"epilogue_args\[0\] has shape \(6,\), the plan was made for one of 2 axes"),
        ((x[:, :5], 2), r"epilogue_args\[0\] of shape \(4, 5\) does not broadcast"),
        ((x * 1j, 2), r"epilogue_args\[0\] has dtype complex128"),
        (x, "epilogue_args must be a tuple"),
    ):
        with pytest.raises(gett.EpilogueError, match=message):
            plan(a, b, epilogue_args=arguments)
    with pytest.raises(gett.EpilogueError, match="takes 2 epilogue_args, 0"):
        plan(a, b)
    plain = gett.plan("ij,jk->ik", a, b)
    with pytest.raises(gett.EpilogueError, match="there is no epilogue="):
        plain(a, b, epilogue_args=(x,))
    activated = gett.plan("ij,jk->ik", a, b, epilogue=np.tanh)
    np.testing.assert_array_equal(activated(a, b), np.tanh(a @ b))
    np.testing.assert_array_equal(activated(a, b, alpha=2.0, out=out), np.tanh(2 * (a @ b)))
    with pytest.raises(gett.EpilogueError, match="takes 0 epilogue_args, 1"):
        activated(a, b, epilogue_args=(x,))


def test_bad_arguments_are_named() -> None:
    a, b, x = integers(4, 5), integers(5, 6, seed=1), integers(4, 6)

    def contract(function: Any, *arguments: Any, given: Any = None) -> Any:
        given = arguments if given is None else given
        return gett.contract("ij,jk->ik", a, b, epilogue=function, epilogue_args=given)

    for call, error, message in (
        (lambda: contract(None, x), gett.EpilogueError, "epilogue_args are given, but there is no epilogue="),
        (lambda: contract(lambda d, x: d, given=x), gett.EpilogueError, r"must be a tuple .* not ndarray"),
        (lambda: contract(3), gett.EpilogueError, "must be a function of the result, not int"),
        (lambda: contract(lambda d, x: d), gett.EpilogueError, "the 0 of epilogue_args.*missing .*'x'"),
        (lambda: contract(lambda d: d, x), gett.EpilogueError, "the 1 of epilogue_args.*too many"),
        (lambda: contract(lambda d, x: d + x, x[:3]), gett.EpilogueError, r"epilogue_args\[0\] of shape \(3, 6\)"),
        (lambda: contract(lambda d, x: d + x, x[None]), gett.EpilogueError, r"epilogue_args\[0\] of shape \(1, 4, 6\)"),
        (lambda: contract(lambda d, x: d + x[:, None], x), gett.EpilogueError, r"of shape \(4, 1, 6\) does not"),
        (lambda: contract(lambda d, x: d + x, x * 1j), gett.EpilogueError, "has dtype complex128.*float64"),
        (
            lambda: contract(lambda d, x: d + x, x.astype("O")),
            gett.EpilogueError,
            r"epilogue_args\[0\] has dtype object",
        ),
        (
            lambda: contract(lambda d, x: d + x, x.astype("g")),
            gett.EpilogueError,
            r"epilogue_args\[0\] has dtype float128",
        ),
        (lambda: contract(lambda d, x: d + x, "abc"), gett.EpilogueError, r"epilogue_args\[0\] has dtype <U3"),
        (lambda: contract(lambda d, x: d + x, None), gett.OperandError, r"epilogue_args\[0\]"),
        (lambda: contract(lambda d, x: d + x, {}), gett.OperandError, r"epilogue_args\[0\] of type dict is no array"),
        (lambda: contract(lambda d: d if d > 0 else -d), gett.EpilogueError, r"gett\.ops\.where"),
        (lambda: contract(lambda d: np.cumsum(d)), gett.EpilogueError, r"numpy\.cumsum is no operation"),
        (lambda: contract(lambda d: d * np.ones(6)), gett.EpilogueError, "pass it in epilogue_args"),
        (lambda: contract(lambda d: d & 1), gett.EpilogueError, "bitwise_and is not defined for float64"),
    ):
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(gett.EpilogueError, match="divide is not defined for int32"):
        gett.contract("ij,jk->ik", a.astype(np.int8), b.astype(np.int8), epilogue=lambda d: d / 2)
    with pytest.raises(gett.DTypeError, match="epilogue= takes no arrays of object"):
        gett.contract("ij,jk->ik", a.astype("O"), b.astype("O"), epilogue=lambda d: d)
    with pytest.raises(gett.EpilogueError, match=r"gett\.ops\.where"):
        gett.plan("ij,jk->ik", a, b, epilogue=lambda d: max(d, 0))
    for kind in (ValueError, TypeError):  # what NumPy would raise in its place
        assert issubclass(gett.EpilogueError, kind)


def test_a_plan_says_what_its_epilogue_is() -> None:
    a, b, x = integers(4, 5), integers(5, 6, seed=1), integers(6, seed=2)

    def function(d: Any, x: Any, y: Any) -> Any:
        return np.maximum(d + x, 0) / y[:, None]

    plan = gett.plan("ij,jk->ik", a, b, epilogue=function, epilogue_args=(x, x[:4]))
    text = str(plan)
    assert "epilogue  divide(maximum(add(d, x0), 0), x1[:, None]), in float64, before D is stored" in text
    assert "stride x0" in text
    assert "stride x1[:, None]" in text
    (step,) = plan_record(plan)["steps"]
    assert step["epilogue"] == "divide(maximum(add(d, x0), 0), x1[:, None])"
    assert [m["strides"] for m in step["groups"]["m"]] == [{"a": 40, "b": 0, "d": 48, "x0": 0, "x1[:, None]": 8}]
    assert plan.bytes == gett.plan("ij,jk->ik", a, b).bytes + x.nbytes + x[:4].nbytes
    assert "epilogue" not in str(gett.plan("ij,jk->ik", a, b))
    assert plan_record(gett.plan("ij,jk->ik", a, b))["steps"][0]["epilogue"] is None
    (mode,) = plan.steps[0].gemm.n
    assert mode.strides[EXTRA:] == (8, 0)


def test_numpy_gives_no_warnings(recwarn: Any) -> None:
    a, b = np.array([[1.0, 0.0]]), np.eye(2)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d: np.log(d - 0.5) / (d - 1) + np.exp(d * 1e6))
    assert not np.isfinite(found).any()
    half = gett.contract("ij,jk->ik", a.astype("f2"), b.astype("f2"), epilogue=lambda d: d * 1e6)
    np.testing.assert_array_equal(half, [[np.inf, 0]])
    assert not recwarn.list


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["ij,jk->ik", "ij,jk->ki", "ijk,kl->lij", "ik,jk->ij", "bij,bj->bi", "ij,jk->", "ij,kl->ijkl"]),
    st.sampled_from([1, 2, 3]), st.booleans(), st.data(),
)  # fmt: skip
def test_cut_contractions_apply_it_once(subscripts: str, limit: int, with_c: bool, data: Any) -> None:
    """What is too large for one launch: sections of D have their shares, partial sums are added up before."""
    left = subscripts.partition("->")[0]
    extents = {x: data.draw(st.integers(1, 5)) for x in sorted(set(left) - {","})}
    first, second = left.split(",")
    a = integers(*(extents[x] for x in first))
    b = integers(*(extents[x] for x in second), seed=1)
    whole = contraction_of(subscripts, a, b)
    shape = whole.shape_d
    product = np.einsum(subscripts, a, b)
    x, y = integers(*shape, seed=2), integers(*(shape[-1:]), seed=3)
    c = integers(*shape, seed=4)

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
