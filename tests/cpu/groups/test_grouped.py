"""`gett.grouped` and its plans: on NumPy, and by tables on a GPU that reads them at their addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gett
from gett.groups.reading import read
from gett.groups.table import group_outputs, make_tables
from tests.cpu.groups.table_machine import TableDriver, table_gpu

Arrays = NDArray[Any]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[TableDriver]:
    with table_gpu(monkeypatch) as driver:
        yield driver


def numbers(*shape: int, dtype: str = "float64", seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed + sum(shape))
    values = rng.integers(-4, 5, shape)
    return (values + 1j * rng.integers(-4, 5, shape) if dtype.startswith("c") else values).astype(dtype)


def problems(dtype: str = "float64") -> list[tuple[str, Arrays, Arrays]]:
    """Problems of all kinds of groups, strides and orders."""
    wide = numbers(40, 50, dtype=dtype)
    found = [
        ("ij,jk->ik", numbers(5, 7, dtype=dtype), numbers(7, 3, dtype=dtype)),
        ("ij,jk->ki", numbers(5, 7, dtype=dtype), numbers(7, 3, dtype=dtype)),
        ("ij,jk->ik", wide[::2, 1:31:3], wide[:10, ::-1]),
        ("ij,kj", wide, numbers(9, 50, dtype=dtype)),
        ("bij,bjk->bik", numbers(4, 3, 6, dtype=dtype), numbers(4, 6, 5, dtype=dtype)),
        ("abcd,cbe->eda", numbers(3, 4, 5, 6, dtype=dtype), numbers(5, 4, 2, dtype=dtype)),
        ("iij,kj->ki", numbers(4, 4, 6, dtype=dtype), numbers(5, 6, dtype=dtype)),
        ("ij,k->i", numbers(4, 6, dtype=dtype), numbers(3, dtype=dtype)),
        ("ij,ij->", wide, wide),
        ("i,j->ij", numbers(6, dtype=dtype), numbers(200, dtype=dtype)),
        ("ij,jk->ik", numbers(0, 7, dtype=dtype), numbers(7, 3, dtype=dtype)),
        ("ij,jk->ik", numbers(5, 0, dtype=dtype), numbers(0, 3, dtype=dtype)),
        ("...ij,jk->...ik", numbers(2, 3, 4, 5, dtype=dtype), numbers(5, 6, dtype=dtype)),
        ("ij,jk->ik", numbers(1, 1, dtype=dtype), numbers(1, 4, dtype=dtype)),
    ]
    return found * 2


def check(listed: list[tuple[str, Arrays, Arrays]], results: list[Any]) -> None:
    for (subscripts, a, b), d in zip(listed, results, strict=True):
        assert np.array_equal(d, np.einsum(subscripts, a, b)), subscripts


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int32", "bool"])
def test_results_on_numpy(dtype: str) -> None:
    check(problems(dtype), gett.grouped(problems(dtype)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int32", "float16"])
def test_results_by_tables(dtype: str, gpu: TableDriver) -> None:
    listed = problems(dtype)
    plan = gett.plan_grouped(listed)
    assert (plan.arch, plan.apart) == ("sm_90a", 0)
    check(listed, plan())
    assert len(gpu.launches) == plan.launches < len(listed)


def test_a_real_and_a_complex_operand(gpu: TableDriver) -> None:
    a, b = numbers(5, 7), numbers(7, 3, dtype="complex128")
    plan = gett.plan_grouped([("ij,jk->ik", a, b), ("ij,jk->ki", a, b)])
    assert plan.apart == 0
    check([("ij,jk->ik", a, b), ("ij,jk->ki", a, b)], plan())


def sums() -> tuple[list[tuple[str, Arrays, Arrays]], list[int]]:
    """Problems and the numbers of the arrays that they sum into."""
    return [
        ("ij,jk->ik", numbers(5, 7), numbers(7, 3)),
        ("ij,jk->ik", numbers(8, 2), numbers(2, 4)),
        ("axy,yxb->ab", numbers(5, 2, 3), numbers(3, 2, 3)),
        ("ij,jk->ik", numbers(5, 0), numbers(0, 3)),
        ("ij,kj->ik", numbers(8, 6), numbers(4, 6)),
        ("ij,jk->ik", numbers(5, 1), numbers(1, 3)),
    ], [0, 1, 0, 0, 1, 0]


def check_sums(plan_for: Any) -> None:
    listed, places = sums()
    outs = [np.full((5, 3), np.nan), np.full((8, 4), np.nan)]
    given = [outs[i] for i in places]
    results = plan_for(listed, given)
    assert all(x is y for x, y in zip(results, given, strict=True))
    for i, d in enumerate(outs):
        exact = sum(np.einsum(*p) for p, at in zip(listed, places, strict=True) if at == i)
        assert np.array_equal(d, exact)


def test_problems_sum_into_one_array() -> None:
    check_sums(lambda listed, outs: gett.grouped(listed, out=outs))


def test_problems_sum_into_one_array_by_tables(gpu: TableDriver) -> None:
    check_sums(lambda listed, outs: gett.grouped(listed, out=outs))
    assert gpu.launches


def test_pairs_without_a_kernel_in_common_are_added_one_by_one(gpu: TableDriver) -> None:
    d = np.full((4, 6), np.nan)
    outer, product = ("i,j->ij", numbers(4), numbers(6)), ("ij,ij->ij", numbers(4, 6), numbers(4, 6))
    plan = gett.plan_grouped([outer, product], out=[d, d])
    assert plan.apart == 2
    plan()
    assert np.array_equal(d, np.einsum(*outer) + np.einsum(*product))


def test_sums_of_16_bits_are_rounded_once() -> None:
    a, b = np.array([[2048.0]], "float16"), np.array([[1.0]], "float16")
    d = np.empty((1, 1), "float16")
    gett.grouped([("ij,jk->ik", a, b), ("ij,jk->ik", b, b), ("ij,jk->ik", b, b)], out=[d] * 3)
    assert d[0, 0] == 2050


def test_a_plan_runs_again_on_other_arrays(gpu: TableDriver) -> None:
    listed = problems()
    plan = gett.plan_grouped(listed)
    first = plan()
    others = [
        (2 * a, b.copy()) if a.size and a.flags.c_contiguous and b.flags.c_contiguous else (a, b) for _, a, b in listed
    ]
    assert all(x is y for x, y in zip(plan(others), first, strict=True))
    check([(s, *pair) for (s, _, _), pair in zip(listed, others, strict=True)], first)
    outs = [np.full_like(x, 9) for x in first]
    assert plan(out=outs)[0] is outs[0]
    check([(s, *pair) for (s, _, _), pair in zip(listed, others, strict=True)], outs)
    again = plan()
    assert again[0] is outs[0]


def test_a_plan_on_numpy_runs_again_on_other_arrays() -> None:
    a, b = numbers(5, 7), numbers(7, 3)
    plan = gett.plan_grouped([("ij,jk->ik", a, b)] * 2)
    assert np.array_equal(plan([(a, b), (2 * a, b)])[1], 2 * a @ b)
    assert (plan.problems, plan.launches, plan.apart, plan.arch) == (2, 0, 2, "cpu")


def test_problems_of_one_class_are_one_launch(gpu: TableDriver) -> None:
    rng = np.random.default_rng(3)
    sizes = [tuple(2 * int(x) for x in rng.integers(1, 9, 3)) for _ in range(200)]
    listed = [("ij,jk->ik", numbers(m, k), numbers(k, n)) for m, k, n in sizes]
    plan = gett.plan_grouped(listed)
    check(listed, plan())
    assert plan.launches == 1
    assert "200 outputs" in str(plan)


def test_100_000_problems_make_one_table() -> None:
    count = 100_000
    a, b, d = np.empty((count, 20, 10)), np.empty((10, 10)), np.empty((count, 20, 10))
    reading = read([("ij,jk->ik", x, b) for x in a], list(d), None)
    assert reading is not None
    outputs = group_outputs(reading.which, reading.d, reading.layouts)
    (table,), rest = make_tables(reading.layouts, reading.which, outputs, reading.a, reading.b, reading.d, "sm_90a")
    table.point(reading.a, reading.b, reading.d)
    assert not len(rest)
    assert table.blocks == count
    assert np.array_equal(np.diff(table.outputs["d"].astype(np.int64)), np.full(count - 1, 1600))
    assert np.array_equal(table.tiles, np.arange(count))


def test_no_problem_at_all(gpu: TableDriver) -> None:
    assert gett.grouped([]) == []
    assert gett.grouped([], out=[]) == []
    assert not gpu.launches


A, B = numbers(5, 7), numbers(7, 3)
GOOD = ("ij,jk->ik", A, B)


@pytest.mark.parametrize(
    ("listed", "out", "error", "text"),
    [
        ([GOOD, ("ij,jk->ik", A, A)], None, gett.ShapeError, "problem 1: mode 'j' has extent 7 in operand 0 and 5 in"),
        ([GOOD, ("ij->i", A, B)], None, gett.SubscriptsError, "problem 1: 'ij->i' describes 1 operands"),
        ([GOOD, ("ij,jk->ix", A, B)], None, gett.SubscriptsError, "problem 1: the output names mode 'x'"),
        ([GOOD, ("ijk,jk->i", A, B)], None, gett.SubscriptsError, "problem 1: operand 0 has 2 axes"),
        ([GOOD, (A, B)], None, gett.OptionError, "problem 1: it must be"),
        ("ij,jk->ik", None, gett.OptionError, "problems must be a list"),
        ([GOOD], [], gett.OptionError, "out must be a list of one array for each of 1 problems, not 0 arrays"),
        ([GOOD], [None], gett.OptionError, "problem 0: out is None"),
        ([GOOD], [np.empty((5, 4))], gett.OutputError, "problem 0: out has extent 4 along mode 'k'"),
        ([GOOD], [np.empty((5, 3), "float32")], gett.DTypeError, "problem 0: the result cannot be cast"),
        ([GOOD], [A[:, :3]], gett.OutputError, "problem 0: out overlaps operand 0 of problem 0"),
    ],
)
def test_errors_number_the_problem(listed: Any, out: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(")):
        gett.grouped(listed, out=out)


def test_outputs_that_overlap_in_part_are_refused() -> None:
    whole = np.empty(40)
    outs = [whole[:15].reshape(5, 3), whole[14:29].reshape(5, 3)]
    with pytest.raises(gett.OutputError, match="problem 1: out overlaps out of problem 0"):
        gett.grouped([GOOD, GOOD], out=outs)
    interleaved = np.empty((5, 6))
    gett.grouped([GOOD, GOOD], out=[interleaved[:, ::2], interleaved[:, 1::2]])
    assert np.array_equal(interleaved[:, 1::2], A @ B)


def test_a_plan_refuses_other_layouts() -> None:
    plan = gett.plan_grouped([GOOD, GOOD])
    with pytest.raises(gett.ShapeError, match="problem 1: shapes, strides or dtypes"):
        plan([(A, B), (A[::-1], B)])
    with pytest.raises(gett.OptionError, match="2 problems, 1 pairs"):
        plan([(A, B)])
