"""`gett.einsum` on NumPy arrays against `numpy.einsum`: exact results, dtypes, layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

import gett
from tests.cpu.strategies import DTYPES, Case, contractions, integers_of, outputs
from tests.sampling import given_few

integers = integers_of(np.random.default_rng(5))


def check_like_numpy(*args, **options) -> None:
    expected = np.einsum(*args, **options)
    result = gett.einsum(*args, **options)
    assert type(result) is type(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)


@given_few(20, 60, contractions(operands=2))
def test_two_operands(case: Case):
    result = gett.einsum(case.subscripts, *case.operands)
    assert result.dtype == case.operands[0].dtype
    np.testing.assert_array_equal(result, case.reference())


@given_few(20, 60, contractions(operands=1))
def test_one_operand(case: Case):
    result = gett.einsum(case.subscripts, *case.operands)
    np.testing.assert_array_equal(result, case.reference())
    assert not isinstance(result, np.ndarray) or not np.shares_memory(result, case.operands[0])


@given_few(20, 60, st.data(), contractions(operands=2, dtypes=("int32", "float32", "complex128")))
def test_out_is_written_in_its_own_strides(data, case: Case):
    out = data.draw(outputs(case.shape, case.operands[0].dtype))
    around = out.base.copy() if out.base is not None else None
    assert gett.einsum(case.subscripts, *case.operands, out=out) is out
    np.testing.assert_array_equal(out, case.reference())
    if around is not None:  # nothing beside the elements of out has changed
        touched = out.copy()
        out[...] = 1 if out.dtype.kind == "b" else 77
        np.testing.assert_array_equal(out.base, around)
        out[...] = touched


@given_few(20, 60, contractions(operands=2, dtypes=("int64", "float64"), max_modes=4))
def test_interleaved_form_is_the_string_form(case: Case):
    left, _, right = case.subscripts.partition("->")
    args = [x for pair in zip(case.operands, map(list, left.split(",")), strict=True) for x in pair]
    np.testing.assert_array_equal(gett.einsum(*args, list(right)), case.reference())


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ii", [(4, 4)]),
        ("ii->i", [(4, 4)]),
        ("iij,jk->ik", [(3, 3, 4), (4, 4)]),
        ("iji->j", [(3, 4, 3)]),
        ("ij->", [(3, 4)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("i...->...", [(3, 2, 2)]),
        ("...,...", [(3, 1), (4,)]),
        ("ij,jk->ik", [(3, 4), (1, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->i", [(3,), (3,)]),
        (",ij,", [(), (2, 3), ()]),
        (",", [(), ()]),
        ("", [()]),
        ("i,i->i", [(0,), (1,)]),
        ("ij,jk->ik", [(3, 0), (0, 2)]),
        ("ij,jk->ik", [(0, 3), (3, 2)]),
        ("i->", [(0,)]),
        ("abc,cd,def->abef", [(2, 3, 4), (4, 5), (5, 2, 3)]),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_forms_like_numpy(subscripts, shapes, dtype):
    check_like_numpy(subscripts, *(integers(*s, dtype=dtype) for s in shapes))


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", ["bool", "int8", "float16", "float32", "complex64"])
def test_promotion_is_numpys(first, second):
    check_like_numpy("ij,jk->ik", integers(3, 4, dtype=first), integers(4, 5, dtype=second))


def test_promotion_keeps_layouts_apart():
    base = integers(4, 6, dtype="float32")
    check_like_numpy("ij,kj->ik", base.T[::-1, ::2], integers(3, 2))
    check_like_numpy("ij,j->i", np.broadcast_to(base[0], (5, 6)), integers(6))
    check_like_numpy("i,i->i", np.arange(3, dtype=">f4"), np.arange(3, dtype=">i2"))


def test_scalars_and_lists():
    check_like_numpy(",ij->ji", 3, integers(2, 3))
    check_like_numpy("i,i", [1, 2], [3, 4])
    check_like_numpy(",", 2, 3.5)
    check_like_numpy(b"ij->ji", integers(2, 3).tolist())
    check_like_numpy("i,i->i", np.float32(2)[None], np.ones(2, "f4"))


def test_float16_accumulates_in_float32():
    a = np.full(4096, 1, np.float16)
    assert gett.einsum("i,i->", a, a) == 4096  # float16 sums stop growing at 2048


@pytest.mark.parametrize("dtype", ["f8", np.complex64, "float32"])
def test_dtype_argument(dtype):
    check_like_numpy("ij,jk->ik", integers(3, 4, dtype="float32"), integers(4, 5, dtype="int16"), dtype=dtype)


def test_narrower_dtype_needs_a_casting_rule():
    a = integers(3, 4)
    with pytest.raises(gett.DTypeError, match="operand 0 cannot be cast from float64 to float32"):
        gett.einsum("ij,ij->i", a, a, dtype="f4")
    check_like_numpy("ij,ij->i", a, a, dtype="f4", casting="same_kind")


def test_out_takes_part_in_promotion_and_casting():
    a = np.full(1000, 0.1, np.float32)
    wide, narrow = np.zeros(()), np.zeros((), np.float32)
    expected = np.einsum("i,i->", a.astype(float), a.astype(float))
    np.testing.assert_allclose(gett.einsum("i,i->", a, a, out=wide), expected, rtol=1e-13)
    with pytest.raises(gett.DTypeError, match="float64 to float32 of out"):
        gett.einsum("i,i->", a.astype(float), a, out=narrow)
    gett.einsum("i,i->", a.astype(float), a, out=narrow, casting="same_kind")
    assert narrow == np.float32(expected)


def test_out_may_be_longer_than_unit_modes():
    a, b, out = integers(1), integers(4), np.zeros((3, 4))
    gett.einsum("i,j->ij", a, b, out=out)
    np.testing.assert_array_equal(out, np.broadcast_to(np.outer(a, b), (3, 4)))


@pytest.mark.parametrize("order", ["C", "F", "A", "c", "f", None])
@pytest.mark.parametrize("layouts", ["CC", "FF", "CF"])
def test_order_is_numpys(order, layouts):
    a = np.asarray(integers(3, 4), order=layouts[0])
    b = np.asarray(integers(4, 5), order=layouts[1])
    if order is None and layouts == "CF":
        order = "C"  # "K" of mixed layouts is this package's own choice
    result, expected = (f("ij,jk->ik", a, b, order=order) for f in (gett.einsum, np.einsum))
    assert result.strides == np.einsum("ij,jk->ik", a, b, order=order, optimize=False).strides
    np.testing.assert_array_equal(result, expected)


def test_order_of_an_outer_product():
    for order in "KACF":
        result = gett.einsum("i,j->ij", integers(3), integers(4), order=order)
        assert result.strides == np.einsum("i,j->ij", np.ones(3), np.ones(4), order=order).strides


def test_default_order_materialises_a_permutation():
    a = integers(3, 4, 5)
    result = gett.einsum("abc->cba", a)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, a.T)


def test_precision():
    a = integers(3, 3, dtype="float32")
    for precision in (None, "ieee", "tf32"):
        np.testing.assert_array_equal(gett.einsum("ij,jk", a, a, precision=precision), a @ a)
    with pytest.raises(gett.PrecisionError, match="'ieee', 'tf32'"):
        gett.einsum("ij,jk", a, a, precision="fp4")
    with pytest.raises(gett.PrecisionError, match="float32, complex64, not to float64"):
        gett.einsum("ij,jk", a.astype(float), a, precision="tf32")


def test_out_may_overlap_operands_but_not_itself():
    start = integers(4, 4)
    for make in (lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[::-1, ::-1].T):
        for _ in range(2):  # planned, then from the cache
            memory = start.copy()
            gett.einsum("ij,jk->ik", np.ones((4, 4)), memory, out=make(memory))
            np.testing.assert_array_equal(make(memory), np.ones((4, 4)) @ start)
    interleaved = np.zeros((4, 8))
    evens, odds = interleaved[:, ::2], interleaved[:, 1::2]
    evens[...] = integers(4, 4)
    for _ in range(2):  # planned, then from the cache
        gett.einsum("ij,jk->ik", np.ones((4, 4)), evens, out=odds)
        np.testing.assert_array_equal(odds, np.ones((4, 4)) @ evens)
        expected = np.ones((4, 4)) @ evens
        gett.einsum("ij,jk->ik", np.ones((4, 4)), evens, out=evens)
        np.testing.assert_array_equal(evens, expected)
    for strides in ((8, 8), (0, 8)):
        out = np.lib.stride_tricks.as_strided(np.zeros(16), (4, 4), strides)
        with pytest.raises(gett.OutputError, match="overlap each other"):
            gett.einsum("ij,jk->ik", np.ones((4, 4)), np.ones((4, 4)), out=out)


def test_cached_call_still_checks_a_read_only_out():
    a, out = integers(3, 3), np.zeros((3, 3))
    gett.einsum("ij,jk->ik", a, a, out=out)
    out.flags.writeable = False
    with pytest.raises(gett.OutputError, match="read-only"):
        gett.einsum("ij,jk->ik", a, a, out=out)


def test_more_than_52_labels():
    labels = "".join(chr(0x4E00 + i) for i in range(60))
    a = np.ones((1,) * 58 + (2, 3), "f4")
    result = gett.einsum(f"{labels},{labels[-1]}->{labels[-2]}", a, integers(3, dtype="float32"))
    assert result.shape == (2,)


def test_operands_are_read_where_they_lie(monkeypatch):
    """No copy is made of strided operands of the common dtype."""
    for name in ("ascontiguousarray", "asfortranarray"):
        monkeypatch.setattr(np, name, lambda *_, **__: pytest.fail("a copy was made"))
    a = integers(8, 6)[::-2, ::3]
    np.testing.assert_array_equal(gett.einsum("ij,kj->ik", a, a), (a[:, None] * a[None]).sum(-1))
