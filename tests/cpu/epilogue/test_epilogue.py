"""Epilogues as expressions: what is traced, what is refused, and their values against NumPy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import gett
from gett.epilogue.evaluate import Evaluator
from gett.epilogue.expression import Constant, Expression, Extra
from gett.epilogue.operations import OPERATIONS
from gett.epilogue.special import erf, round_bfloat16
from gett.epilogue.traced import trace
from gett.epilogue.types import kind_of, value_types
from gett.errors import EpilogueError
from tests.sampling import given_few

ops = gett.ops
ACCUMULATORS = ["bool", "int32", "uint32", "int64", "uint64", "float32", "float64", "complex64", "complex128"]


def values(dtype: str, count: int = 64, seed: int = 0) -> Any:
    """Ordinary and special values of a dtype."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(count) < 0.5
    if kind in "iu":
        low = 0 if kind == "u" else -100
        found = rng.integers(low, 100, count).astype(dtype)
        found[-2:] = np.iinfo(dtype).min, np.iinfo(dtype).max
        return found
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5]
    if kind == "f":
        return np.concatenate([rng.normal(0, 3, count - len(special)), special]).astype(dtype)
    return (rng.normal(0, 2, count) + 1j * rng.normal(0, 2, count)).astype(dtype)


def run(function: Any, d: Any, *args: Any) -> Any:
    """A function traced, and evaluated on arrays in the first one's dtype."""
    arrays = [np.asarray(x) for x in args]
    expression = trace(function, [x.ndim for x in arrays])
    types = value_types(expression, d.dtype.name, [arrays[x.argument].dtype.name for x in expression.extras])
    views = []
    for extra in expression.extras:
        index = tuple(np.newaxis if axis < 0 else slice(None) for axis in extra.axes)
        views.append(arrays[extra.argument][index])
    return Evaluator(expression, types)(d, views)


@pytest.mark.parametrize("dtype", ACCUMULATORS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_gives_what_numpy_gives(name: str, dtype: str) -> None:
    operation = OPERATIONS[name]
    operands = [values(dtype, seed=i) for i in range(operation.arity)]
    if operation.condition:
        operands[0] = values("bool")
    own = operands[operation.condition]

    def function(d: Any, *args: Any) -> Any:
        return getattr(ops, name)(*([args[0], d, *args[1:]] if operation.condition else [d, *args]))

    rest = [x for x in operands if x is not own]
    if operation.form(kind_of(dtype)) is None:
        with pytest.raises(EpilogueError, match=rf"{name} is not defined for {dtype}"):
            run(function, own, *rest)
        return
    found = run(function, own, *rest)
    with np.errstate(all="ignore"):
        expected = operation.numpy(*operands)
        at_once = getattr(ops, name)(*operands)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(at_once, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_composed_functions(dtype: str) -> None:
    x = np.linspace(-9, 9, 1001).astype(dtype)
    eps = 8 * np.finfo(dtype).eps
    wide = x.astype(np.float64)
    phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in wide])
    cube = wide + 0.044715 * wide**3
    for function, expected in (
        (ops.relu, np.maximum(wide, 0)),
        (ops.sigmoid, 1 / (1 + np.exp(-wide))),
        (ops.silu, wide / (1 + np.exp(-wide))),
        (ops.gelu, wide * phi),
        (lambda d: ops.gelu(d, approximate="tanh"), 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * cube))),
        (ops.square, wide**2),
        (lambda d: ops.power(d, 5), wide**5),
        (lambda d: ops.power(d, -2), 1 / np.where(wide == 0, 1, wide) ** 2 + np.where(wide == 0, np.inf, 0)),
        (lambda d: ops.power(abs(d), 0.5), np.sqrt(abs(wide))),
        (lambda d: ops.power(d, 0), np.ones_like(wide)),
        (lambda d: ops.clip(d, -1, 2.5), np.clip(wide, -1, 2.5)),
        (lambda d: ops.clip(d, high=2), np.minimum(wide, 2)),
        (lambda d: ops.bias(ops.scale(d, 3), 0.5), wide * 3 + 0.5),
        (lambda d: ops.reciprocal(d + 20), 1 / (wide + 20)),
        (lambda d: ops.logical_and(d > 1, d < 2), (wide > 1) & (wide < 2)),
        (lambda d: ops.logical_xor(d, d > 2), (wide != 0) ^ (wide > 2)),
        (lambda d: ops.logical_not(ops.logical_or(d < 1, 0)), ~(wide < 1)),
    ):
        found = run(function, x)
        assert found.dtype == (bool if expected.dtype == bool else dtype)
        np.testing.assert_allclose(np.broadcast_to(found, x.shape), expected, rtol=eps * 4, atol=eps)
    with pytest.raises(EpilogueError, match="approximate='sigmoid'"):
        run(lambda d: ops.gelu(d, "sigmoid"), x)


def test_numpys_functions_and_pythons_operators_trace() -> None:
    x, y = values("float64", seed=1), values("float64", seed=2)
    for function in (
        lambda d, e: np.maximum(d, e) + np.minimum(d, 1) - np.abs(e) / 2,
        lambda d, e: np.where(d > e, np.exp(-abs(d)), np.tanh(e)),
        lambda d, e: np.clip(d, -1, 1) * np.clip(e, a_min=0, a_max=None) + np.clip(d, min=-2, max=2),
        lambda d, e: np.sqrt(np.square(d)) ** 2 - d**3,
        lambda d, e: 2 - d + 3 * e + 1 / (2 + abs(d)) + (+d) - (-e),
        lambda d, e: np.float32(2) * d + np.float64(3) * e - np.array(2.5) * d,
        lambda d, e: ((d < e) | (d > 2)) & ~(e == 1) ^ (d != e) & (d <= 1) | (e >= 3),
        lambda d, e: np.where(np.logical_and(d, e), d.real - d.imag, np.conj(e)) + e.conj() + d.clip(0, 1),
        lambda d, e: np.isnan(d) | np.isnan(e),
        lambda d, e: d.clip(min=0) + e.clip(max=1) * d.clip(-1) + e.clip(None, 2) - d.clip(min=None, max=3, out=None),
        lambda d, e: d.clip(max=-1, min=2) + np.round(e) + d.round() + np.around(e, 0) + e.copy(),
        lambda d, e: ~np.imag(d > e) | (np.real(d > 0) & (e > 0).imag),
        lambda d, e: np.positive(d) + np.expm1(-abs(e)) + np.log1p(abs(d)) + np.sign(e) + np.floor(d) + np.rint(e),
    ):
        with np.errstate(all="ignore"):
            expected = function(x, y)
        np.testing.assert_allclose(run(function, x, y), expected, rtol=1e-14, atol=1e-14)


def test_complex_results_may_meet_real_numbers() -> None:
    z, r = values("complex128"), values("float64")[:64]
    r = np.where(np.isfinite(r), r, 1.0) + 0.25
    found = run(lambda d, e: np.where(abs(d) > 1, d / e, d.conj() * 2 + e), z, r)
    np.testing.assert_allclose(found, np.where(abs(z) > 1, z / r, z.conj() * 2 + r), rtol=1e-15)
    assert run(lambda d: abs(d), z).dtype == np.float64
    assert run(lambda d: d.real * 2, z.astype(np.complex64)).dtype == np.float32


def test_arguments_are_indexed_and_broadcast() -> None:
    d = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    occupied, virtual = np.arange(1.0, 3), np.arange(3.0, 6)
    four, five = np.arange(4.0), np.arange(5.0) + 9
    found = run(
        lambda r, i, a, b, c: r / (i[:, None, None, None] + a[:, None, None] - b[:, None] - c),
        d, occupied, virtual, four, five,
    )  # fmt: skip
    expected = d / (occupied[:, None, None, None] + virtual[:, None, None] - four[:, None] - five)
    np.testing.assert_array_equal(found, expected)
    expression = trace(lambda d, x: d[...] + x[..., None] * x[None, ..., :] + x[None][..., None] + x[...], [1])
    assert sorted(x.axes for x in expression.extras) == [(-1, 0), (-1, 0, -1), (0,), (0, -1)]


def test_casts_round_and_keep_the_accumulator() -> None:
    x = np.random.default_rng(0).normal(0, 5, 1000).astype(np.float32)
    np.testing.assert_array_equal(run(lambda d: ops.cast(d, "float16") + 0, x), x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(run(lambda d: d.astype(np.int8), x), np.trunc(x))
    np.testing.assert_array_equal(run(lambda d: ops.cast(d, "float64"), x), x)
    np.testing.assert_array_equal(run(lambda d: ops.cast(d, bool), x), x != 0)
    np.testing.assert_array_equal(run(lambda d: np.astype(d > 0, np.float16) * 2, x), np.where(x > 0, 2, 0))
    near = run(lambda d: ops.cast(d, "bfloat16"), x)
    assert (abs(near - x) <= abs(x) * 2.0**-8).all()
    assert not (near.view(np.uint32) & 0xFFFF).any()
    np.testing.assert_array_equal(round_bfloat16(np.float32([1 + 2**-8, 1 + 3 * 2**-8])), [1, 1 + 2**-6])
    assert np.isnan(round_bfloat16(np.float32([np.nan]))).all()
    n = np.array([300, -129, 5], np.int32)
    np.testing.assert_array_equal(run(lambda d: ops.cast(d, "int8"), n), [44, 127, 5])
    z = values("complex128")
    np.testing.assert_array_equal(run(lambda d: ops.cast(d, "complex64"), z), z.astype(np.complex64))
    np.testing.assert_array_equal(ops.cast(x, "float16"), x.astype(np.float16))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda d: d if d > 0 else 0, r"gett\.ops\.where"),
        (lambda d: 0 < d < 1, r"& \| ~ in place of and"),
        (lambda d: max(d, 0), r"gett\.ops\.where"),
        (lambda d: math.exp(d), "__float__"),
        (lambda d: [x for x in d], "__iter__"),
        (lambda d: np.asarray(d), "__array__"),
        (lambda d: range(d), "__index__"),
        (lambda d: d.sum(), "no attribute 'sum'"),
        (lambda d: d.shape, "no attribute 'shape'"),
        (lambda d: np.sum(d), r"numpy\.sum is no operation"),
        (lambda d: np.add.reduce(d), r"numpy\.add\.reduce is no operation"),
        (lambda d: d.max(), "'max'; it is computed element by element"),
        (lambda d: np.mean(d, axis=0), r"numpy\.mean is no operation.*element by element"),
        (lambda d: d.T, "'T'; it sees elements, no shape"),
        (lambda d: np.reshape(d, (2, 3)), r"numpy\.reshape is no operation.*no shape"),
        (lambda d: d.relu(), r"'relu'; write gett\.ops\.relu\("),
        (lambda d: d.clamp(0), r"'clamp'; write gett\.ops\.clip\("),
        (lambda d: d.tolist(), "'tolist'; what there is stands in gett.ops"),
        (lambda d: d.clip(0, out=d), r"numpy\.clip takes no 'out'"),
        (lambda d: d.clip(0, low=1), r"numpy\.clip takes no 'low'"),
        (lambda d: np.clip(d, 0, 1, min=2), "takes each bound once"),
        (lambda d: d.round(2), r"numpy\.round takes no decimals=2"),
        (lambda d: d + 10**400, "add takes an integer of 1329 bits, beyond float64's range"),
        (lambda d: ops.clip(d, -(10**5000)), "maximum takes an integer of 16610 bits"),
        (lambda d: 10**400, "the function's result takes an integer of 1329 bits"),
        (lambda d: d ** (10**5000), "not <int>"),
        (lambda d: np.arctan(d), r"numpy\.arctan is no operation.*exp"),
        (lambda d: np.exp(d, out=np.ones(3)), r"numpy\.exp takes no 'out'"),
        (lambda d: np.where(d), "where takes 3 operands, 1"),
        (lambda d: ops.exp(d, d), "exp takes 1 operands, 2"),
        (lambda d: ops.nothing(d), "no function 'nothing'"),
        (lambda d: d @ d, "@"),
        (lambda d: d // 2, "//"),
        (lambda d: d[0], r"\[0\] indexes a computed value"),
        (lambda d: (d + 1)[None], "indexes a computed value"),
        (lambda d: d**d, "power takes a tensor and a whole number"),
        (lambda d: 2**d, "power takes a tensor and a whole number"),
        (lambda d: d**1.5, r"no exponent of 1\.5"),
        (lambda d: d**17, "whole number from -16 to 16"),
        (lambda d: d * np.ones(3), r"multiply takes a ndarray of shape \(3,\).*epilogue_args"),
        (lambda d: np.ones((2, 2)) + d, r"add takes a ndarray of shape \(2, 2\)"),
        (lambda d: d + "x", "add takes tensors of the function and numbers, no str"),
        (lambda d: (d, d), "the function's result takes .* no tuple"),
        (lambda d: None, "no NoneType"),
        (lambda d: 1 / 0, "failed when it was traced: ZeroDivisionError"),
        (lambda d: d.astype("U3"), "cast to <U3"),
        (lambda d: d.astype("nothing"), "cast to 'nothing', which is no dtype"),
        (lambda d: d.__setitem__(0, 1), "cannot be written"),
        (lambda: 0, "the 0 of epilogue_args"),
        (lambda d, x: d, "missing a required argument: 'x'"),
        (3, "must be a function of the result, not int"),
        (None, "must be a function"),
    ],
)
def test_what_an_epilogue_cannot_do_is_named(function: Any, message: str) -> None:
    with pytest.raises(EpilogueError, match=message):
        trace(function, [])


def test_indices_that_select_are_refused() -> None:
    for function, message in (
        (lambda d, x: d + x[0], r"epilogue_args\[0\]\[0\] selects elements"),
        (lambda d, x: d + x[1:], "selects elements"),
        (lambda d, x: d + x[..., ...], "more than one"),
        (lambda d, x: d + x[:, :], "has 1 axes, its index takes 2"),
        (lambda d, x: d + x[x > 0], "selects elements"),
    ):
        with pytest.raises(EpilogueError, match=message):
            trace(function, [1])


def test_a_value_of_another_call_is_refused() -> None:
    kept: list[Any] = []
    trace(lambda d: kept.append(d) or d, [])
    for function in (lambda d: d + kept[0], lambda d: kept[0]):
        with pytest.raises(EpilogueError, match="belongs to another call"):
            trace(function, [])


@pytest.mark.parametrize(
    ("function", "dtype", "extras", "message"),
    [
        (lambda d: d * 0.5, "int32", [], "the constant 0.5 is no int32"),
        (lambda d: d + 2**40, "int32", [], "beyond the range of int32"),
        (lambda d: d - 1, "uint32", [], None),
        (lambda d: d + (-1), "uint32", [], "beyond the range of uint32"),
        (lambda d: d / 2, "int64", [], "divide is not defined for int64; it takes complex numbers or real numbers"),
        (lambda d: np.exp(d), "int32", [], "exp is not defined for int32"),
        (lambda d: d * 1j, "float32", [], "the constant 1j is complex"),
        (lambda d: np.maximum(d, 0), "complex64", [], "maximum is not defined for complex64"),
        (lambda d: d < 1, "complex64", [], "less is not defined for complex64"),
        (lambda d: ops.gelu(d), "complex64", [], "erf is not defined for complex64"),
        (lambda d: d & d, "float32", [], "bitwise_and is not defined for float32; it takes integers or truths"),
        (lambda d: ~d, "float64", [], "invert is not defined"),
        (lambda d: d + 1, "bool", [], "the constant 1 is no bool"),
        (lambda d: -d, "bool", [], "negative is not defined for bool"),
        (lambda d: d | (d == True), "bool", [], None),  # noqa: E712
        (lambda d, x: d + x, "float32", ["complex64"], r"epilogue_args\[0\] has dtype complex64.*float32"),
        (lambda d, x: d + x, "int32", ["float32"], r"epilogue_args\[0\] has dtype float32"),
        (lambda d, x: d + x, "uint32", ["int8"], None),
        (lambda d, x: d | x, "bool", ["int8"], r"epilogue_args\[0\] has dtype int8"),
        (lambda d, x: d + x, "float32", ["float64"], None),
        (lambda d, x: d + x, "float32", ["bfloat16"], None),
        (lambda d, x: d + x, "int32", ["bfloat16"], "has dtype bfloat16"),
        (lambda d, x: d + x, "complex64", ["int64"], None),
        (lambda d: ops.cast(d, "float32"), "int32", [], "cast to float32 leaves int32"),
        (lambda d: ops.cast(d, "float32"), "complex64", [], "cast of a complex value to float32"),
        (lambda d: ops.cast(d, "complex64"), "float32", [], "cast to complex64"),
        (lambda d: (d > 0) * 2 + (d < 0), "float32", [], None),
        (lambda d: (d > 0) - (d < 0), "float32", [], None),
    ],
)
def test_what_may_be_combined(function: Any, dtype: str, extras: list[str], message: str | None) -> None:
    expression = trace(function, [0] * len(extras))
    if message is None:
        assert len(value_types(expression, dtype, extras)) == len(expression.names)
        return
    with pytest.raises(EpilogueError, match=message):
        value_types(expression, dtype, extras)


def test_equal_functions_are_equal_records() -> None:
    first = trace(lambda d, x: ops.relu(d * 2 + x), [1])
    again = trace(lambda r, bias: np.maximum(r * 2 + bias, 0), [1])
    assert first == again
    assert hash(first) == hash(again)
    assert first != trace(lambda d, x: ops.relu(d * 2.0 + x), [1])
    assert trace(lambda d: d + 0.0, []) != trace(lambda d: d + -0.0, [])
    assert trace(lambda d: d + math.nan, []) == trace(lambda d: d + -math.nan, [])
    assert trace(lambda d: d * True, []) != trace(lambda d: d * 1, [])
    assert str(first) == "maximum(add(multiply(d, 2), x0), 0)"


def test_what_the_result_does_not_need_is_left_out() -> None:
    def function(d: Any, x: Any, y: Any) -> Any:
        np.exp(d * y)
        return (d + 1) * (d + 1) + x

    expression = trace(function, [1, 2])
    assert expression.arguments == 2
    assert expression.extras == (Extra(0, (0,)),)
    assert expression.constants == (Constant("i", "1"),)
    assert [s.operation for s in expression.instructions] == ["add", "multiply", "add"]
    assert trace(lambda d: d, []) == Expression(0, (), (), (), 0)
    assert trace(lambda d: 2.5, []).constants == (Constant.of(2.5),)


def test_what_is_used_often_does_not_grow() -> None:
    def function(d: Any) -> Any:
        for _ in range(200):
            d = d * d + d
        return d

    expression = trace(function, [])
    assert len(expression.instructions) == 400
    assert hash(expression) == hash(trace(function, []))
    assert len(str(expression)) < 500


@pytest.mark.parametrize("number", [True, 3, -(2**70), 0.1, -0.0, math.inf, 1 + 2j, complex(-0.0, math.inf)])
def test_constants_are_kept_exactly(number: Any) -> None:
    found = Constant.of(number).value
    assert type(found) is type(number)
    assert repr(found) == repr(number)


def test_erf() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), 10.0 ** np.arange(-300, 0), [0.0, -0.0, np.inf, -np.inf]])
    expected = np.array([math.erf(v) for v in x])
    found = erf(x)
    assert (abs(found - expected) <= 4 * np.finfo(np.float64).eps * abs(expected)).all()
    assert np.isnan(erf(np.nan))
    assert math.copysign(1, erf(-0.0)) == -1
    assert erf(x.astype(np.float32)).dtype == np.float32
    assert erf(np.float64(0.5)) == pytest.approx(math.erf(0.5), rel=1e-15)


BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "less", "equal", "greater_equal"]
UNARY = ["negative", "abs", "sign", "floor", "tanh", "exp", "square", "relu", "sigmoid"]


@given_few(30, 150, data=st.data())
def test_random_functions_are_what_numpy_computes(data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(
            st.one_of(
                st.tuples(st.sampled_from(BINARY), st.integers(0, 20), st.integers(0, 20)),
                st.tuples(st.sampled_from(UNARY), st.integers(0, 20)),
                st.tuples(st.just("where"), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)),
                st.tuples(st.just("constant"), st.floats(-4, 4, width=32) | st.integers(-3, 3)),
            ),
            max_size=12,
        )
    )
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    rng = np.random.default_rng(0)
    d, x = rng.normal(size=(3, 4)).astype(dtype), rng.normal(size=4).astype(dtype)

    def function(d: Any, x: Any) -> Any:
        found = [d, x]
        for name, *operands in steps:
            if name == "constant":
                found.append(found[0] * 0 + operands[0])
                continue
            # A truth counts as a number here; NumPy itself refuses some operations on truths.
            inputs = [found[i % len(found)] for i in operands]
            result = getattr(ops, name)(*inputs)
            found.append(result * 1.0 if name in ("less", "equal", "greater_equal") else result)
        return found[-1]

    with np.errstate(all="ignore"):
        expected = np.broadcast_to(function(d, x), (3, 4))
    found = np.broadcast_to(run(function, d, x), (3, 4))
    # A truth times 1.0 is float64 in NumPy, which rounds later than an epilogue of float32.
    np.testing.assert_allclose(found, expected.astype(dtype), rtol=200 * np.finfo(dtype).eps, atol=1e-5)
