"""What `gett.einsum` refuses, as `numpy.einsum` does, and what its messages say."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gett
from tests.cpu.public_calls import calls_with


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (("ii", np.ones((1, 3))), {}),
        (("ij,jk", np.ones((2, 3)), np.ones((4, 5))), {}),
        (("i,i->i", np.ones(0), np.ones(2)), {}),
        (("...i,...i->...", np.ones((4, 3)), np.ones((5, 3))), {}),
        (("i,i", [1, 2], [1, 2]), {"order": "Z"}),
        (("i,i", [1, 2], [1, 2]), {"casting": "zz"}),
        (("i,i", [1, 2], [1, 2]), {"casting": None}),
        (("i,i", [1, 2], [1, 2]), {"dtype": "zz"}),
        (("i,i", [1.5, 2], [1, 2]), {"dtype": int}),
        (("i,j->ij", np.ones(3), np.ones(4)), {"out": np.zeros((1, 3, 4))}),
        (("i,j->ij", np.ones(3), np.ones(4)), {"out": np.zeros((1, 4))}),
        (("i,j->ij", np.ones(3), np.ones(4)), {"out": np.zeros((3, 5))}),
        (("i,j->ij", np.ones(3), np.ones(4)), {"out": [[0]]}),
        (("i,j->ij", np.ones(3), np.ones(4)), {"out": np.broadcast_to(0.0, (3, 4))}),
        (("i,i", np.array(["a"]), np.array(["b"])), {}),
        (("i", [[1], [1, 2]]), {}),
        (("i", None), {}),
        (("i",), {}),
        ((np.ones(2),), {}),
        ((np.ones(2), [[0]]), {}),
        ((3, 4), {}),
        (("i", np.ones(2)), {"no_such_option": 1}),
    ],
)
def test_errors_are_numpys_built_ins(args, options):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - the type is compared below
        np.einsum(*args, **options)
    with pytest.raises(theirs.type):
        gett.einsum(*args, **options)


def test_messages_name_mode_operands_and_extents():
    with pytest.raises(gett.ShapeError, match="mode 'j' has extent 3 in operand 0 and 4 in operand 1"):
        gett.einsum("ij,jk", np.ones((2, 3)), np.ones((4, 5)))
    with pytest.raises(gett.ShapeError, match="mode 'i' occurs twice in operand 0 with extents 2 and 3"):
        gett.einsum("ii", np.ones((2, 3)))
    with pytest.raises(gett.OutputError, match="out has extent 5 along mode 'k', the result has 4"):
        gett.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((3, 4)), out=np.ones((2, 5)))
    with pytest.raises(gett.DTypeError, match="operand 1 has dtype <U1"):
        gett.einsum("i,i", np.ones(2), np.array(["a", "b"]))
    with pytest.raises(gett.DTypeError, match=r"operand 0 has dtype (longdouble|float128).*give NumPy arrays of it"):
        gett.plan("i,i", np.ones(2, np.longdouble), np.ones(2))


def test_nothing_to_contract():
    for call in (gett.einsum, gett.contract):
        with pytest.raises(gett.SubscriptsError, match="needs a subscripts string"):
            call()
    for call in (gett.einsum, gett.contract, gett.plan):
        with pytest.raises(gett.SubscriptsError, match="needs at least one operand"):
            call("ij")


class Sparse:
    """As much of scipy.sparse's matrices as NumPy meets: an object with axes of its own, which is no sequence."""

    shape = (2, 2)

    def toarray(self):
        return np.eye(2)


class Refusing:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ([[1, 2], [3]], "cannot become an array"),
        (Refusing(), "cannot become an array: not now"),
        (Sparse(), r"sparse arrays are not supported: pass its \.toarray\(\)"),
        (None, "NoneType is no array"),
        ({"a": 1}, "dict is no array"),
        ((i for i in range(2)), "generator is no array"),
    ],
)
def test_what_is_no_array_is_named(operand, text):
    a = np.ones((2, 2))
    for call in calls_with(a, operand):
        with pytest.raises(gett.OperandError, match=f"operand 1 .*{text}") as caught:
            call()
        assert isinstance(caught.value, ValueError)  # NumPy's for a list
        assert isinstance(caught.value, TypeError)  # and for an object
    with pytest.raises(gett.OperandError, match=text):
        gett.transpose(operand)


def test_results_of_more_axes_than_arrays_have():
    labels = [chr(0x4E00 + i) for i in range(66)]
    half = np.ones((1,) * 33)
    subscripts = f"{''.join(labels[:33])},{''.join(labels[33:])}"
    for call in (gett.einsum, gett.contract, gett.plan):
        with pytest.raises(gett.SubscriptsError, match="66 modes; arrays have at most 64"):
            call(subscripts, half, half)
    with pytest.raises(gett.SubscriptsError, match="66 modes"):
        gett.tensordot(half, half, 0)
    assert gett.einsum(subscripts + "->" + "".join(labels[2:]), half, half).ndim == 64


def test_results_beyond_all_memory(monkeypatch):
    """The error comes before planning; plans are made whatever the extents, and their calls refuse."""
    wide = np.broadcast_to(1.0, (1 << 20, 1 << 20))
    plan = gett.plan("ij,kl->ijkl", wide, wide)
    monkeypatch.setattr("gett.slices.finder.make_plan", None)
    gett.plan_cache.clear()
    for call in (lambda: gett.einsum("ij,kl->ijkl", wide, wide), lambda: gett.contract("ij,kl->ijkl", wide, wide)):
        with pytest.raises(
            gett.OutOfMemoryError, match="cannot allocate 9671406556917033397649408 bytes of host memory"
        ):
            call()
    with pytest.raises(gett.OutOfMemoryError, match="cannot allocate"):
        plan(wide, wide)


def test_results_beyond_physical_memory_are_not_begun(monkeypatch):
    """A system that promises more memory than it has would end the program later."""
    monkeypatch.setattr("gett.arrays.kinds._host_memory", lambda: 1 << 20)
    with pytest.raises(gett.OutOfMemoryError, match=r"cannot allocate 2097152 bytes .* of shape \(512, 512\)"):
        gett.einsum("i,j->ij", np.ones(512), np.ones(512))
    assert gett.einsum("i,j->", np.ones(512), np.ones(512)) == 512**2


def test_dtypes_that_no_array_here_has():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(gett.DTypeError, match="no dtype bfloat16 unless the package ml_dtypes"):
            gett.einsum("i,i->i", np.ones(0, "f4"), np.ones(0, "f4"), dtype="bfloat16", casting="same_kind")
    with pytest.raises(gett.DTypeError, match="is no dtype"):
        gett.einsum("i,i->i", np.ones(2), np.ones(2), dtype="i,i->")
