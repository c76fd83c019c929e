"""Arrays of other libraries: lists of operands as in PyTorch, lazy arrays refused by name, eager ones converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gett
from tests.cpu.public_calls import calls_with

A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
SQUARE = np.arange(4.0).reshape(2, 2)


@pytest.mark.parametrize("kind", [list, tuple])
def test_operands_in_one_list(kind: Callable[..., Any]) -> None:
    """PyTorch's older form."""
    for spec, operands in (
        ("ij,jk->ik", [A, B]),
        ("ij,jk", [A, B]),
        ("ij,jk,kl", [A, B, B.T]),
        ("i,i->", [[1, 2], [3, 4]]),
    ):
        expected = np.einsum(spec, *operands)
        np.testing.assert_array_equal(gett.einsum(spec, kind(operands)), expected)
        np.testing.assert_array_equal(gett.contract(spec, kind(operands)), expected)
    z = SQUARE + 1j
    np.testing.assert_array_equal(gett.einsum("ij,jk", kind([z, z]), conj=(True, False)), z.conj() @ z)
    out = np.zeros((2, 4))
    assert gett.einsum("ij,jk->ik", kind([A, B]), out=out) is out
    np.testing.assert_array_equal(out, A @ B)
    np.testing.assert_array_equal(gett.contract("ij,jk", kind([A, B]), c=out, beta=-1), 0 * out)
    np.testing.assert_array_equal(gett.plan("ij,jk", kind([A, B]))(A, B), A @ B)


def test_a_list_for_one_operand_stays_an_array() -> None:
    np.testing.assert_array_equal(gett.einsum("ij->ji", [[1, 2], [3, 4]]), [[1, 3], [2, 4]])
    np.testing.assert_array_equal(gett.einsum("i,j->ij", [1, 2], (3, 4)), [[3, 4], [6, 8]])
    for given, count in (([A], 1), ([A, B, A], 3), ([], 1)):
        with pytest.raises(gett.SubscriptsError, match=f"2 operands, {count} (were given|arrays were given)"):
            gett.einsum("ij,jk->ik", given)
    with pytest.raises(gett.SubscriptsError, match="2 operands, 1"):
        gett.plan("ij,jk->ik", ((2, 3), "float64"))  # a pair, not two operands


def test_lists_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.from_numpy(A), torch.from_numpy(B)
    result = gett.einsum("ij,jk->ik", [a, b])
    assert torch.equal(result, torch.einsum("ij,jk->ik", [a, b]))


class Lazy:
    """As much of a lazy array as dask, cubed and autoray have in common."""

    shape, ndim, dtype = (2, 2), 2, SQUARE.dtype

    def compute(self) -> np.ndarray:
        raise AssertionError("it was computed")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise AssertionError("it was computed")


class Labelled(Lazy):
    """An array with labels, as xarray's: computed where it has no chunks."""

    chunks = None

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return SQUARE


class Chunked(Labelled):
    """One with something left to compute."""

    chunks = ((1, 1), (2,))


class Symbols:
    """An array of symbols, of which NumPy makes an array of its own parts."""

    shape, ndim, dtype = (2, 2), 2, "float64"

    def __init__(self, rank: int = 2) -> None:
        self.rank = rank

    def __len__(self) -> int:
        if not self.rank:
            raise TypeError
        return 2

    def __getitem__(self, i: int) -> Symbols:
        if i > 1 or not self.rank:
            raise IndexError
        return Symbols(self.rank - 1)


@pytest.mark.parametrize("cls", [Lazy, Chunked, Symbols])
def test_lazy_arrays_are_refused_by_name(cls: type) -> None:
    for call in (*calls_with(SQUARE, cls()), lambda: gett.einsum("ij,jk->ik", [SQUARE, cls()])):
        with pytest.raises(gett.OperandError, match=rf"operand 1 is a .*\.{cls.__name__}, .*compute"):
            call()
    for call in (lambda: gett.transpose(cls()), lambda: gett.einsum("ij->ji", cls())):
        with pytest.raises(gett.OperandError, match=rf"operand 0 is a .*\.{cls.__name__}, .*compute"):
            call()
    with pytest.raises(gett.OperandError, match=rf"c is a .*\.{cls.__name__}, .*compute"):
        gett.contract("ij,jk->ik", SQUARE, SQUARE, c=cls())


def test_labelled_arrays_without_chunks_are_converted() -> None:
    for call in calls_with(SQUARE, Labelled()):
        result = call()
        if not isinstance(result, gett.ContractionPlan):
            np.testing.assert_array_equal(result, SQUARE @ SQUARE)


def test_dask() -> None:
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(SQUARE, chunks=1)
    for call in calls_with(SQUARE, lazy):
        with pytest.raises(
            gett.OperandError, match=r"operand 1 is a dask\.array\.core\.Array, a lazy array.*compute\(\)"
        ):
            call()
    with pytest.raises(gett.OperandError, match=r"out is a dask\.array\.core\.Array"):
        gett.einsum("ij->ij", SQUARE, out=lazy)
    with pytest.raises(gett.OperandError, match=r"operand 0 is a dask\.delayed\."):
        gett.einsum("ij->ij", pytest.importorskip("dask").delayed(SQUARE))
    # The advice.
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", SQUARE, lazy.compute()), SQUARE @ SQUARE)
    parts = dask.map_blocks(lambda x: gett.einsum("ij,jk->ik", x, SQUARE), lazy.rechunk((1, 2)), dtype=float)
    np.testing.assert_array_equal(parts.compute(), SQUARE @ SQUARE)


def test_autoray() -> None:
    lazy = pytest.importorskip("autoray").lazy
    for x in (lazy.array(SQUARE), lazy.Variable((2, 2))):
        for call in calls_with(SQUARE, x):
            with pytest.raises(gett.OperandError, match=r"operand 1 is a autoray\.lazy\.core\.LazyArray, a lazy array"):
                call()


def test_torch_fx() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(gett.OperandError, match=r"operand 0 is a torch\.fx\.proxy\.Proxy, which torch\.fx traces with"):
        torch.fx.symbolic_trace(lambda x: gett.einsum("ij->ji", x))


def test_eager_arrays_and_their_like_are_converted(tmp_path: Any) -> None:
    np.save(tmp_path / "a.npy", SQUARE)
    like: list[Any] = [
        SQUARE.tolist(),
        memoryview(SQUARE),
        np.asmatrix(SQUARE),
        np.load(tmp_path / "a.npy", mmap_mode="r"),
        SQUARE.astype(">f8"),
        SQUARE.astype(object),
    ]
    for x in like:
        np.testing.assert_array_equal(gett.einsum("ij,jk->ik", SQUARE, x), SQUARE @ SQUARE)


def test_h5py(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for chunks in (None, (1, 2)):
            found = gett.einsum("ij,jk->ik", SQUARE, file.create_dataset(f"a{chunks}", data=SQUARE, chunks=chunks))
            np.testing.assert_array_equal(found, SQUARE @ SQUARE)


def test_sympy() -> None:
    """Exact arithmetic of objects."""
    matrix = pytest.importorskip("sympy").Matrix([[1, 2], [3, 4]])
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", matrix, matrix), np.array(matrix * matrix))
