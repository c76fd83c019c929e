"""The NumPy executor on views: any strides, addresses and gaps between elements."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.cpu.executor.executing import check, integers, make
from tests.cpu.helpers import Array


def odd_address(array: Array) -> Array:
    """The same values one byte off any alignment."""
    memory = np.empty(array.nbytes + 1, np.uint8)
    moved = memory[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def uneven(array: Array) -> Array:
    """The same values with strides that are no multiple of the item size."""
    record = np.zeros(array.shape, np.dtype([("byte", "u1"), ("value", array.dtype)]))
    record["value"] = array
    view: Array = record["value"]
    return view


VIEWS = {
    "reversed": lambda x: x[::-1, ::-1],
    "one axis reversed": lambda x: x[:, ::-1],
    "fortran": np.asfortranarray,
    "zero stride": lambda x: np.broadcast_to(x[:1], x.shape),
    "all one element": lambda x: np.broadcast_to(x[0, 0], x.shape),
    "overlapping": lambda x: as_strided(x, x.shape, (x.itemsize, x.itemsize)),
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "odd address": odd_address,
    "uneven": uneven,
}


def test_one_plan_serves_aligned_and_misaligned_arrays() -> None:
    a, b, d = integers((90, 80)), integers((80, 70)), np.empty((90, 70), "float32")
    run = make("ij,jk->ik", a, b, None, d)
    for x, y, z in ((a, b, d), (odd_address(a), b, d), (a, odd_address(b), d), (a, b, odd_address(d))):
        z[...] = 77
        run(x, y, None, z)
        np.testing.assert_array_equal(z, a @ b)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,kj->ki", "ij,ij->ji", "ij,jk->", "ij,jk->jki"])
def test_views_of_operands_and_result(subscripts: str, view: str) -> None:
    a, b = integers((24, 24)), integers((24, 24))
    check(subscripts, VIEWS[view](a), b)
    check(subscripts, a, VIEWS[view](b))
    check(subscripts, VIEWS[view](a), VIEWS[view](b))
    if view in ("reversed", "one axis reversed", "every other", "odd address", "uneven") and subscripts[-3] == ">":
        d = VIEWS[view](np.zeros((24, 24), "float32"))
        check(subscripts, a, b, d=d)
        check(subscripts, a, b, c=d, d=d, alpha=2, beta=-1)


def test_elements_between_those_of_a_strided_result_stay() -> None:
    a, b, d = integers((30, 40)), integers((40, 50)), np.full((60, 150), 99, "float32")
    check("ij,jk->ik", a, b, d=d[::2, 1::3])
    rest = np.ones(d.shape, bool)
    rest[::2, 1::3] = False
    assert (d[rest] == 99).all()
