"""`contract`: factors, the added tensor, accumulation, any number of operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gett
from tests.cpu.strategies import Case, contractions, integers_of, outputs, strided_arrays
from tests.sampling import given_few

EXAMPLES = settings(max_examples=40, deadline=None)
integers = integers_of(np.random.default_rng(23))


@EXAMPLES
@given(
    st.data(),
    contractions(operands=2, dtypes=("int64", "float64", "complex128")),
    st.integers(-2, 2),
    st.integers(-2, 2),
)
def test_contract_scales_and_adds(data, case: Case, alpha, beta):
    dropped = data.draw(st.integers(0, len(case.shape)))
    shape = [1 if data.draw(st.integers(0, 4)) == 0 else e for e in case.shape[dropped:]]
    c = data.draw(strided_arrays(shape, case.operands[0].dtype))
    expected = alpha * case.reference() + beta * c
    result = gett.contract(case.subscripts, *case.operands, c, alpha=alpha, beta=beta)
    np.testing.assert_array_equal(result, expected)


@EXAMPLES
@given(st.data(), contractions(operands=2, dtypes=("int64", "float64", "complex128")))
def test_contract_accumulates_in_place(data, case: Case):
    out = data.draw(outputs(case.shape, case.operands[0].dtype))
    expected = 2 * case.reference() - out
    assert gett.contract(case.subscripts, *case.operands, out, alpha=2, beta=-1, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_c_is_not_read_when_beta_is_zero():
    a, c = integers(3, 3), np.full((3, 3), np.nan)
    for beta in (0, 0.0, False, 0j):
        np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, a, c, beta=beta), a @ a)
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", a[:, :0], a[:0], c, beta=0), np.zeros((3, 3)))
    out = np.full((3, 3), np.nan)
    for beta in (None, 0, 0.0):  # without c, what out holds
        np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, a, beta=beta, out=out), a @ a)


def test_an_empty_sum_leaves_beta_c():
    c = integers(3)
    result = gett.contract("ij,jk->ik", np.ones((2, 0)), np.ones((0, 3)), c, beta=2)
    np.testing.assert_array_equal(result, np.broadcast_to(2 * c, (2, 3)))


def test_contract_promotes_c():
    a, c = integers(3, 3, dtype="float32"), integers(3, 3)
    result = gett.contract("ij,jk->ik", a, a, c, beta=1)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, a.astype(float) @ a + c)
    wide = gett.contract("ij,jk->ik", c, c, a, alpha=np.float32(2), beta=np.array(1))
    np.testing.assert_array_equal(wide, 2 * c @ c + a)


def test_contract_rejects():
    a, whole = integers(3, 3), integers(3, 3, dtype="int32")
    with pytest.raises(gett.OptionError, match="beta=1 scales c"):
        gett.contract("ij,jk->ik", a, a, beta=1)
    with pytest.raises(gett.ShapeError, match=r"c of shape \(2,\)"):
        gett.contract("ij,jk->ik", a, a, np.ones(2), beta=1)
    with pytest.raises(gett.ShapeError, match=r"c of shape \(2,\)"):
        gett.contract("ij,jk->ik", a, a, np.ones(2))
    with pytest.raises(gett.DTypeError, match="complex"):
        gett.contract("ij,jk->ik", a, a, alpha=1j)
    with pytest.raises(gett.DTypeError, match="no integer"):
        gett.contract("ij,jk->ik", whole, whole, alpha=0.5)
    with pytest.raises(gett.DTypeError, match="alpha must be a number"):
        gett.contract("ij,jk->ik", a, a, alpha="2")
    with pytest.raises(gett.OptionError, match="c is given twice"):
        gett.contract("ij,jk->ik", a, a, a, c=a)
    for wrong in ((a,), (a, a, a, a)):
        with pytest.raises(gett.SubscriptsError, match=r"describe 2 operands, . arrays were given; one array"):
            gett.contract("ij,jk->ik", *wrong)


# --- what c and beta mean


def test_c_that_is_given_counts_once():
    a, b, c = (integers(3, 3) for _ in range(3))
    for result in (gett.contract("ij,jk->ik", a, b, c), gett.contract("ij,jk->ik", a, b, c=c)):
        np.testing.assert_array_equal(result, a @ b + c)
    np.testing.assert_array_equal(gett.contract("ij,jk->ik", a, b, None), a @ b)
    plan = gett.plan("ij,jk->ik", a, b)
    np.testing.assert_array_equal(plan(a, b, c=c), a @ b + c)
    np.testing.assert_array_equal(plan(a, b, c=c, alpha=3), 3 * a @ b + c)


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128"])
def test_beta_without_c_scales_what_out_holds(dtype):
    a, b, r = (integers(3, 3, dtype=dtype) for _ in range(3))
    plan = gett.plan("ij,jk->ik", a, b)
    for run in (lambda *x, **y: gett.contract("ij,jk->ik", *x, **y), plan):
        for beta in (1, -2):
            before = r.copy()
            assert run(a, b, beta=beta, out=r) is r
            np.testing.assert_array_equal(r, a @ b + beta * before)
    for run in (lambda *x, **y: gett.contract("ij,jk->ik", *x, **y), plan):
        with pytest.raises(gett.OptionError, match="beta=1 scales c or what out holds"):
            run(a, b, beta=1)
    narrow = integers(3, 3, dtype=dtype)
    before = narrow.copy()
    gett.contract("ij,jk->ik", a[:, :0], b[:0], beta=2, out=narrow)
    np.testing.assert_array_equal(narrow, 2 * before)


@given_few(20, 40, st.data(), st.integers(1, 4))
def test_contract_of_any_number_of_operands(data, count):
    case = data.draw(contractions(operands=count, dtypes=("int64", "float64", "complex128")))
    c = data.draw(strided_arrays(case.shape, case.operands[0].dtype))
    expected = case.reference() + c
    np.testing.assert_array_equal(gett.contract(case.subscripts, *case.operands, c), expected)
    np.testing.assert_array_equal(gett.contract(case.subscripts, *case.operands, c=c), expected)
    np.testing.assert_array_equal(gett.contract(case.subscripts, *case.operands), case.reference())


def test_contract_takes_the_interleaved_form():
    a, b, c = (integers(3, 3) for _ in range(3))
    np.testing.assert_array_equal(gett.contract(a, [0, 1], b, [1, 2], [0, 2], c=c, alpha=2), 2 * a @ b + c)


def test_factors_are_within_the_dtypes_range():
    a = integers(3, 3)
    for call in (
        lambda: gett.contract("ij,jk", a, a, alpha=10**400),
        lambda: gett.contract("ij,jk", a, a, a, beta=10**400),
        lambda: gett.plan("ij,jk", a, a)(a, a, alpha=10**400),
    ):
        with pytest.raises(gett.OptionError, match=r"(alpha|beta) is beyond the range of"):
            call()
    np.testing.assert_array_equal(gett.plan("ij,jk", a, a)(a, a, alpha=-3), -3 * a @ a)
    np.testing.assert_array_equal(gett.plan("ij,jk", a, a)(a, a, alpha=1000), 1000 * a @ a)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint64"])
def test_factors_of_integers_wrap_as_products_do(dtype):
    a = integers(3, 3, dtype="int64").astype(dtype)
    plan = gett.plan("ij,jk", a, a)
    for factor in (128, 256, 300, -1, -129, 2**31, 2**64 + 3, 10**400):
        wanted = ((a.astype(object) @ a.astype(object)) * factor + a.astype(object) * (factor + 1)) % 2**64
        wanted = wanted.astype("uint64").astype(dtype)
        np.testing.assert_array_equal(gett.contract("ij,jk", a, a, a, alpha=factor, beta=factor + 1), wanted)
        np.testing.assert_array_equal(plan(a, a, c=a, alpha=factor, beta=factor + 1), wanted)
