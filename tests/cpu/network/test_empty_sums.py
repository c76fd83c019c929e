"""A sum over an extent of 0 is a step like any other: bit for bit what a sum over one zero gives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gett
from gett.codegen.render import render_kernel
from gett.errors import GettError
from gett.ir.gemm import make_gemm_plan
from gett.jit.compile import compile_uncached
from gett.schedule.search.select import select_schedule
from gett.schedule.spec.mainloop import StreamMap, StreamSum
from tests.cpu.helpers import Array
from tests.sampling import slow_but

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "longdouble", "complex64", "complex128"]  # fmt: skip
#: Subscripts, and the extents of each operand; k is what is summed.
SUMS = [
    ("ik->i", 1),
    ("ik,kj->ij", 2),
    ("ki,kj->ji", 2),
    ("ikl,jl->ji", 2),
    ("lk,l->", 2),
    ("ik,kj,jl->li", 3),
    ("ij,jk,kl,lm->mi", 4),
]
EXTENTS = dict(i=3, j=4, l=2, m=3)
FACTORS = [(1, 0), (3, 0), (-1, 1), (-1, 2), (2, 300), (0, -1), (1, 1)]
SMALL_AND_LARGE = [1e-3, 1e6, -0.0, 0.0, 1e30, np.inf, -np.inf, np.nan]


def operands(subscripts: str, extent_k: int, dtype: str) -> list[Array]:
    terms = subscripts.split("->")[0].split(",")
    return [np.zeros([extent_k if x == "k" else EXTENTS[x] for x in term], dtype) for term in terms]


def same_bits(x: Array, y: Array) -> None:
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    np.testing.assert_array_equal(x, y)
    if x.dtype.kind in "fc":  # the zeros' signs too
        np.testing.assert_array_equal(np.signbit(x.real), np.signbit(y.real))
        np.testing.assert_array_equal(np.signbit(x.imag), np.signbit(y.imag))


def outcome(
    subscripts: str,
    arrays: list[Array],
    c: Any,
    alpha: Any,
    beta: Any,
    out: Array | None,
    formed: str | None = None,
    casting: Any = "safe",
) -> Any:
    """The result, or the type of what it raises."""
    try:
        out_of = None if out is None else out.copy()
        plan = gett.plan(subscripts, *arrays, c=c, out=out_of, dtype=formed, casting=casting)
        with np.errstate(all="ignore"):
            return np.asarray(plan(*arrays, c=c, out=out_of, alpha=alpha, beta=beta))
    except GettError as error:
        return type(error)


def check(subscripts: str, dtype: str, **options: Any) -> None:
    c, alpha, beta, out = (options.pop(x, y) for x, y in (("c", None), ("alpha", 1), ("beta", 0), ("out", None)))
    none = outcome(subscripts, operands(subscripts, 0, dtype), c, alpha, beta, out, **options)
    one = outcome(subscripts, operands(subscripts, 1, dtype), c, alpha, beta, out, **options)
    if isinstance(one, type):
        assert none is one
    else:
        same_bits(none, one)


def result_shape(subscripts: str) -> tuple[int, ...]:
    return tuple(EXTENTS[x] for x in subscripts.split("->")[1])


def values(shape: tuple[int, ...], dtype: str) -> Array:
    """Every kind of value in turn."""
    size = int(np.prod(shape))
    kind = np.dtype(dtype).kind
    if kind in "fc":
        return np.resize(np.array(SMALL_AND_LARGE), size).reshape(shape).astype(dtype)
    info = None if kind == "b" else np.iinfo(dtype)
    return (
        np.resize(np.array([0, 1, 5] if info is None else [info.min, info.max, 0, 1, 77]), size)
        .reshape(shape)
        .astype(dtype)
    )


TYPED = [(*case, dtype) for dtype in DTYPES for case in SUMS]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize(("subscripts", "count", "dtype"), slow_but(TYPED, lambda x: x in TYPED[::7]))
def test_beta_c_is_what_a_sum_over_one_zero_gives(subscripts: str, count: int, dtype: str) -> None:
    shape = result_shape(subscripts)
    check(subscripts, dtype)
    for alpha, beta in FACTORS:
        if np.dtype(dtype).kind == "b" and not {alpha, beta} <= {0, 1}:
            continue
        check(subscripts, dtype, alpha=alpha)
        c = values(shape, dtype)
        check(subscripts, dtype, c=c, alpha=alpha, beta=beta)
        check(subscripts, dtype, c=c, out=np.ones(shape[::-1], dtype).T, alpha=alpha, beta=beta)
        if len(shape) == 2:
            for row in (c[:1], c[:, :1], c[0], values((), dtype)):
                check(subscripts, dtype, c=row, alpha=alpha, beta=beta)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize(("subscripts", "count"), SUMS)
def test_conversions_are_what_a_sum_over_one_zero_has(subscripts: str, count: int) -> None:
    shape = result_shape(subscripts)
    for dtype, c_type in itertools.product(("int8", "float16", "float32", "complex64"), repeat=2):
        check(subscripts, dtype, c=values(shape, c_type), alpha=-1, beta=3)
    for dtype, out_type in itertools.product(("float16", "float32", "float64"), repeat=2):
        out = np.ones(shape, out_type)
        check(subscripts, dtype, out=out, casting="same_kind")
        check(subscripts, dtype, c=values(shape, dtype), out=out, alpha=-2, beta=1e6, casting="same_kind")
    check(subscripts, "float16", formed="float32", c=values(shape, "float16"), beta=1e6)
    check(subscripts, "float32", alpha=np.inf)
    check(subscripts, "float32", alpha=np.nan, c=values(shape, "float32"), beta=1)
    check(subscripts, "int32", alpha=0.5)
    check(subscripts, "int32", c=values(shape, "int32"), beta=0.5)
    check(subscripts, "float32", c=values(shape, "float32"), beta=2j)


def test_beta_is_multiplied_in_the_type_of_the_sum() -> None:
    c = np.full((2, 3), 7, "int8")
    empty = np.ones((2, 0), "int8"), np.ones((0, 3), "int8")
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", *empty, c, beta=300), np.full((2, 3), 7 * 300 % 256))
    small = np.full((2, 3), 1e-3, "float16")
    halves = (x.astype("float16") for x in empty)
    result = gett.contract("ij,jk->ik", *halves, small, beta=1e6)
    np.testing.assert_array_equal(result, (np.float32(1e6) * small.astype("float32")).astype("float16"))
    assert result[0, 0] == np.float16(1000.5)


def test_c_is_not_read_where_beta_is_zero() -> None:
    c = np.full((2, 3), np.nan)
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", np.ones((2, 0)), np.ones((0, 3)), c, beta=0), 0)
    plan = gett.plan("ij,jk,kl->il", np.ones((2, 0)), np.ones((0, 3)), np.ones((3, 3)), c=c)
    np.testing.assert_array_equal(plan(np.ones((2, 0)), np.ones((0, 3)), np.ones((3, 3)), c=c, beta=0), 0)


def test_steps_of_empty_sums_and_of_empty_results() -> None:
    assert len(gett.plan("ij,jk->ik", np.ones((2, 0)), np.ones((0, 3))).steps) == 1
    network = gett.plan("ij,jk,kl->il", np.ones((2, 3)), np.ones((3, 0)), np.ones((0, 4)))
    assert [s.inputs for s in network.steps] == [(1,)]
    assert network.intermediate_bytes == 0
    assert "sum" in str(network)
    for subscripts, *shapes in (("ij,jk->ik", (0, 2), (2, 3)), ("ij,jk,kl->il", (0, 2), (2, 3), (3, 4))):
        arrays = [np.ones(s) for s in shapes]
        plan = gett.plan(subscripts, *arrays)
        assert plan.steps == ()
        assert "no elements" in str(plan)
        assert plan(*arrays).shape == (0, shapes[-1][1])


def test_more_modes_than_numpy_can_name() -> None:
    a = np.ones((1, *[2] * 3, *[1] * 50, 0)[:60])
    b = np.ones((*[2] * 3, 0))
    letters = [chr(0x100 + i) for i in range(70)]
    first = letters[: a.ndim - 1]
    last = letters[60:63]
    subscripts = f"{''.join(first)}z,{''.join(last)}z->{''.join(first)}{''.join(last)}"
    np.testing.assert_array_equal(gett.einsum(subscripts, a, b), np.zeros((*a.shape[:-1], 2, 2, 2)))


GPU_DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "bool", "int8", "int32"]
ARCHS = ["sm_80", "sm_90a"]


EMPTY_SUMS = [(dtype, arch) for dtype in GPU_DTYPES for arch in ARCHS]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "arch"), EMPTY_SUMS)
def test_kernels_of_empty_sums_compile(dtype: str, arch: str) -> None:
    for subscripts, _ in SUMS:
        terms = subscripts.split("->")[0].split(",")
        shapes = [tuple(0 if x == "k" else 40 * EXTENTS[x] for x in term) for term in terms]
        plan = gett.plan(subscripts, *((s, dtype) for s in shapes), arch=arch)
        (step,) = plan.steps
        assert step.gemm.extent_k == 0
        contraction = step.gemm.contraction
        with_c = replace(contraction, c=contraction.d)
        for gemm in (step.gemm, make_gemm_plan(with_c)):
            schedule = select_schedule(gemm, arch)
            assert isinstance(schedule.mainloop, StreamMap | StreamSum)
            kernel = render_kernel(gemm, schedule)
            assert all(0 not in launch.grid for launch in kernel.launches)
            assert compile_uncached(kernel.source.text, arch).cubin
