"""An `out` that overlaps what is read, and whether strided arrays overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gett
from gett.arrays.kinds import allocate, overlap, overlaps_itself
from gett.ir.tensors import TensorSpec
from gett.plans import bound_steps
from tests.cpu.strategies import contractions, integers_of, values

RNG = np.random.default_rng(23)
EXAMPLES = settings(max_examples=40, deadline=None)
integers = integers_of(RNG)


# --- an out that overlaps what is read


def _strided_out(data, base: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """An array of a shape somewhere in the memory of `base`, whose elements do not overlap; None where none fits."""
    step = data.draw(st.sampled_from([1, -1, 2]))
    axes = data.draw(st.permutations(range(len(shape))))
    strides, reach = [0] * len(shape), base.itemsize * abs(step)
    for axis in axes:
        strides[axis] = reach if step > 0 else -reach
        reach *= max(shape[axis], 1)
    low = sum((e - 1) * s for e, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((e - 1) * s for e, s in zip(shape, strides, strict=True) if s > 0)
    room = base.nbytes - (high - low) - base.itemsize
    if room < 0 or 0 in shape:
        return None
    offset = data.draw(st.integers(0, room // base.itemsize)) * base.itemsize - low
    return np.ndarray(shape, base.dtype, base, offset, strides)


@EXAMPLES
@given(st.data(), st.integers(1, 3), st.booleans())
def test_out_may_overlap_anything_that_is_read(data, count, with_c):
    """The result is the one for arrays apart from it, whatever lies where in one block of memory."""
    case = data.draw(contractions(operands=count, dtypes=("int64", "float64"), max_modes=4, extents=(1, 2, 3)))
    base = values(RNG, (200,), case.operands[0].dtype)
    operands = [_strided_out(data, base, x.shape) for x in case.operands]
    operands = [x if y is None else y for x, y in zip(case.operands, operands, strict=True)]
    out = _strided_out(data, base, case.shape)
    if out is None:
        return
    c = _strided_out(data, base, case.shape[data.draw(st.integers(0, len(case.shape))) :]) if with_c else None
    apart = [x.copy() for x in operands]
    expected = np.einsum(case.subscripts, *apart) + (0 if c is None else c.copy())
    before, mask = base.copy(), np.zeros(base.shape, bool)
    np.ndarray(out.shape, bool, mask, (_address(out) - _address(base)) // 8, [s // 8 for s in out.strides])[...] = True
    run = data.draw(st.sampled_from(["einsum", "contract", "plan"]))
    for _ in range(2):  # planned, then from the cache
        base[:] = before
        if c is not None or run == "contract":
            found = gett.contract(case.subscripts, *operands, c=c, out=out)
        elif run == "plan":
            found = gett.plan(case.subscripts, *operands, out=out)(*operands, out=out)
        else:
            found = gett.einsum(case.subscripts, *operands, out=out)
        assert found is out
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(base[~mask], before[~mask])


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_c_may_overlap_out_in_part():
    a, memory = integers(3, 3), integers(4, 3)
    c, out = memory[1:], memory[:3]
    expected = a @ a + c
    assert gett.contract("ij,jk->ik", a, a, c, out=out) is out
    np.testing.assert_array_equal(out, expected)
    expected = a @ a + 2 * out[0]
    gett.plan("ij,jk->ik", a, a)(a, a, c=out[0], beta=2, out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "complex128", "bool"])
@pytest.mark.parametrize("extent", [5, 600])
def test_element_wise_products_are_written_in_place(dtype, extent, monkeypatch):
    """Where `out` is an operand of the same layout, no second array is made."""
    a, b = integers(extent, extent, dtype=dtype), integers(extent, extent, dtype=dtype)
    row, diagonal = b[0].copy(), np.einsum("ii->i", a)
    taken = []
    monkeypatch.setattr(bound_steps, "allocate", lambda *x: taken.append(x) or allocate(*x))
    for subscripts, others, out in (
        ("ij,ij->ij", (b,), a),
        ("ij,j->ij", (row,), a),
        ("ij,ij->ij", (a,), a),
        ("ji,ij->ij", (b,), a.T),
        ("i,i->i", (row,), diagonal),
    ):
        for _ in range(2):
            first = out.T if subscripts.startswith("ji") else out
            expected = np.einsum(subscripts, first.copy(), *(x.copy() for x in others))
            gett.einsum(subscripts, first, *others, out=out)
            np.testing.assert_array_equal(out, expected)
            out[...] = values(RNG, out.shape, out.dtype)
    expected = np.einsum("ij,ij->ij", a, b) + a
    gett.contract("ij,ij->ij", a, b, a, out=a)
    np.testing.assert_array_equal(a, expected)
    assert not taken
    expected = np.einsum("ij,ij->ij", a.T, b)
    gett.einsum("ij,ij->ij", a.T, b, out=a)
    np.testing.assert_array_equal(a, expected)
    expected = np.einsum("ij->i", a)
    gett.einsum("ij->i", a, out=a[0])
    np.testing.assert_array_equal(a[0], expected)
    assert len(taken) == 2


def test_out_of_a_subclass_gets_the_result():
    class Stubborn(np.ndarray):
        __array_ufunc__ = None

    a = integers(3, 3)
    out = np.zeros((3, 3)).view(Stubborn)
    plan = gett.plan("ij,jk->ik", a, a)
    calls = (
        lambda: gett.einsum("ij,jk->ik", a, a, out=out),
        lambda: plan(2 * a, a, alpha=0.5, out=out),
        lambda: gett.contract("ij,jk->ik", a, a, a, beta=0, out=out),
        lambda: plan(a, a, out=out),
        lambda: gett.einsum("ij,jk->ik", a.view(Stubborn), a, out=out),
    )
    for call in calls:
        out.view(np.ndarray)[...] = -1
        assert call() is out
        np.testing.assert_array_equal(np.asarray(out), a @ a)
    out.view(np.ndarray)[...] = 2
    gett.einsum("ij,ij->ij", a, a, out=out)
    np.testing.assert_array_equal(np.asarray(out), a * a)
    gett.contract("ij,jk->ik", a, a, beta=1, out=out)
    np.testing.assert_array_equal(np.asarray(out), a * a + a @ a)


def test_an_empty_c_of_stride_0():
    a, b = np.ones((0, 3)), np.ones((3, 3))
    for dtype in ("f4", "f8"):
        for strides in ((0, 0), (0, 8), (8, 0)):
            c = np.lib.stride_tricks.as_strided(np.ones(3, dtype), (0, 3), strides)
            assert gett.contract("ij,jk->ik", a, b, c).shape == (0, 3)
            assert gett.plan("ij,jk->ik", a, b)(a, b, c=c, beta=2).shape == (0, 3)


# --- overlap


@EXAMPLES
@given(st.data())
def test_overlap_is_exact(data):
    shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
    marks = []
    specs = []
    for _ in range(2):
        shape = data.draw(shapes)
        strides = tuple(data.draw(st.integers(-6, 6)) * 2 for _ in shape)
        address = data.draw(st.integers(0, 40)) * 2
        offsets = {address + sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)}
        assert overlaps_itself(TensorSpec(shape, strides, np.dtype("i2"))) == (len(offsets) < np.prod(shape))
        marks.append(offsets)
        specs.append((address + 4096, TensorSpec(shape, strides, np.dtype("i2"))))
    assert overlap(*specs[0], *specs[1]) == bool(marks[0] & marks[1])
