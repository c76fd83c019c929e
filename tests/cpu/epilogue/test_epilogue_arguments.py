"""The arguments of an epilogue and the `out` of its result: scalars, views, types, overlap, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gett
from gett.errors import EpilogueError
from tests.cpu.helpers import seeded

ops = gett.ops


def test_scalars_broadcasts_and_strides_of_arguments() -> None:
    a, b = seeded(4, 5), seeded(5, 6, seed=1)
    product = a @ b
    grid = seeded(8, 12, seed=2)
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
    a, b = seeded(4, 5, dtype=np.complex128), seeded(5, 6, dtype=np.complex128, seed=1)
    x = seeded(6, seed=2)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: d.conj() * x + abs(d), epilogue_args=(x,))
    np.testing.assert_allclose(found, (a @ b).conj() * x + abs(a @ b), rtol=1e-15)


def test_out_may_be_or_overlap_an_argument() -> None:
    a, b = seeded(6, 5), seeded(5, 6, seed=1)
    product = a @ b

    out = seeded(6, 6, seed=2)
    before = out.copy()
    assert gett.contract("ij,jk->ik", a, b, out=out, epilogue=lambda d, x: d * x - x, epilogue_args=(out,)) is out
    np.testing.assert_array_equal(out, product * before - before)
    # Shifted, transposed, a row of it, and a column.
    for view in (lambda m: m[1:, :6], lambda m: m[:6, :6].T, lambda m: m[0, :6], lambda m: m[:6, 1:2]):
        memory = seeded(7, 7, seed=3)
        before = view(memory).copy()
        gett.contract("ij,jk->ik", a, b, out=memory[:6, :6], epilogue=lambda d, x: d - x, epilogue_args=(view(memory),))
        np.testing.assert_array_equal(memory[:6, :6], product - before)
    # The memory of `out`, read as it is and turned round: through two indices that meet in no element.
    cube = seeded(6, 6, seed=3)[None]
    before = cube.copy()
    found = gett.contract("ij,jk->ik", a, b, out=cube[0], epilogue=lambda d, x, y: d + x * y,
                          epilogue_args=(cube[0], cube[0].T))  # fmt: skip
    np.testing.assert_array_equal(found, product + before[0] * before[0].T)
    line = seeded(6, seed=4)
    before = line.copy()
    gett.contract("ij,jk->i", a, b, out=line, epilogue=lambda d, x: d + x[..., :] * x, epilogue_args=(line,))
    np.testing.assert_array_equal(line, product.sum(1) + before**2)
    plan = gett.plan("ij,jk->ik", a, b, epilogue=lambda d, x: d - x, epilogue_args=(product.T,))
    out = seeded(6, 6, seed=4)
    before = out.copy()
    plan(a, b, out=out, epilogue_args=(out.T,))
    np.testing.assert_array_equal(out, product - before.T)


def test_out_of_another_dtype_and_accumulation() -> None:
    a, b, x = seeded(4, 5, dtype=np.float32), seeded(5, 6, dtype=np.float32, seed=1), seeded(6, seed=2)
    out = seeded(4, 6, seed=3)
    before = out.copy()
    gett.contract("ij,jk->ik", a, b, beta=1, out=out, epilogue=lambda d, x: ops.relu(d + x), epilogue_args=(x,))
    np.testing.assert_array_equal(out, np.maximum(a @ b + before + x, 0))
    wide = np.zeros((4, 6), np.complex128)
    plan = gett.plan("ij,jk->ik", a, b, out=wide, dtype=np.float32, casting="unsafe", epilogue=lambda d: d / 3)
    plan(a, b, out=wide)
    np.testing.assert_array_equal(wide, (a @ b) / np.float32(3))


def test_bad_arguments_are_named() -> None:
    a, b, x = seeded(4, 5), seeded(5, 6, seed=1), seeded(4, 6)

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


def test_numpy_gives_no_warnings(recwarn: Any) -> None:
    a, b = np.array([[1.0, 0.0]]), np.eye(2)
    found = gett.contract("ij,jk->ik", a, b, epilogue=lambda d: np.log(d - 0.5) / (d - 1) + np.exp(d * 1e6))
    assert not np.isfinite(found).any()
    half = gett.contract("ij,jk->ik", a.astype("f2"), b.astype("f2"), epilogue=lambda d: d * 1e6)
    np.testing.assert_array_equal(half, [[np.inf, 0]])
    assert not recwarn.list


@pytest.mark.parametrize("arch", [None, "sm_90a"])
@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "int64"])
@pytest.mark.parametrize("number", [10**400, -(2**1024)], ids=["positive", "negative"])
def test_an_integer_beyond_float64_is_refused_when_planned(arch, dtype, number):
    pair = ((8, 8), dtype)
    with pytest.raises(EpilogueError, match="takes an integer of"):
        gett.plan("ij,jk->ik", pair, pair, epilogue=lambda d: d + number, arch=arch)
    with pytest.raises(EpilogueError, match="takes an integer of"):
        gett.contract("ij,jk->ik", np.ones((2, 2), dtype), np.ones((2, 2), dtype), epilogue=lambda d: d * number)


def test_arguments_that_are_not_read_have_a_shape_that_fits():
    a, long = np.ones((3, 3)), np.ones(7)

    def first(d, *_):
        return d * 2

    for epilogue_args in ((long,), (a[0], np.ones((1, 3, 3)))):
        with pytest.raises(
            EpilogueError, match=rf"epilogue_args\[{len(epilogue_args) - 1}\] of shape .* not broadcast"
        ):
            gett.contract("ij,jk->ik", a, a, epilogue=first, epilogue_args=epilogue_args)
    with pytest.raises(EpilogueError, match=r"epilogue_args\[0\] of shape \(7,\)"):
        gett.plan("ij,jk->ik", a, a, epilogue=first, epilogue_args=(((7,), "float64"),))
    plan = gett.plan("ij,jk->ik", a, a, epilogue=first, epilogue_args=(a[0],))
    with pytest.raises(EpilogueError, match=r"epilogue_args\[0\] of shape \(7,\)"):
        plan(a, a, epilogue_args=(long,))
    for fits in (a, a[0], a[:, :1], 3.0):
        found = gett.contract("ij,jk->ik", a, a, epilogue=first, epilogue_args=(fits,))
        np.testing.assert_array_equal(found, np.full((3, 3), 6.0))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float32", "complex64"])
def test_parts_of_truths_are_truths(dtype):
    a = np.eye(3, dtype=dtype)
    for part in (np.real, np.imag, lambda x: x.real, lambda x: x.imag):
        for function in (part, lambda d, part=part: ~part(d)):
            found = gett.contract("ij,jk->ik", a, a, epilogue=lambda d, f=function: f(d == d[...]))
            np.testing.assert_array_equal(found, function(np.ones((3, 3), bool)).astype(dtype))
