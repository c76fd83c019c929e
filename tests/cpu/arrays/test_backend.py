"""`backend="gett"` in autoray, cotengra and quimb: each result is that of the backend NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gett

A = np.arange(6.0).reshape(2, 3) + 1j
B = np.arange(12.0).reshape(3, 4)


def test_functions_of_the_arrays_library_are_found_and_not_listed() -> None:
    for name in ("array", "asarray", "conj", "matmul", "multiply", "reshape", "stack", "sum"):
        assert callable(getattr(gett, name))
        assert name not in gett.__all__
    with pytest.raises(AttributeError, match="module 'gett' has no attribute 'zeros'"):
        _ = gett.zeros
    assert gett.array(A) is A
    assert type(gett.array([[1, 2], [3, 4]])) is np.ndarray
    np.testing.assert_array_equal(gett.stack([B, B], 1), np.stack([B, B], 1))
    np.testing.assert_array_equal(gett.sum(B, 0), B.sum(0))


@pytest.mark.parametrize(
    ("first", "second"),
    [((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (6, 3, 4))],
)
def test_matmul(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = np.arange(np.prod(first)).reshape(first), np.arange(np.prod(second)).reshape(second)
    np.testing.assert_array_equal(gett.matmul(a, b), np.matmul(a, b))
    with pytest.raises(gett.OptionError, match="of one axis at least, not of 0 and"):
        gett.matmul(np.float64(1), b)


def test_autoray() -> None:
    do = pytest.importorskip("autoray").do
    for name, args in (
        ("array", (A,)),
        ("conj", (A,)),
        ("einsum", ("ij,jk->ik", A, B)),
        ("matmul", (A, B)),
        ("reshape", (A, (3, 2))),
        ("tensordot", (A, B, 1)),
        ("transpose", (A, (1, 0))),
        ("sum", (A, 0)),
    ):
        np.testing.assert_array_equal(do(name, *args, like="gett"), do(name, *args, like="numpy"))


def test_tensors_and_jax_arrays_stay_what_they_are() -> None:
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    for make, kind in ((torch.from_numpy, torch.Tensor), (jax.numpy.asarray, jax.Array)):
        a, b = make(A), make(B)
        assert gett.array(a) is a
        for name, args, like in (
            ("conj", (a,), (A,)),
            ("matmul", (a, b), (A, B)),
            ("multiply", (a, a), (A, A)),
            ("reshape", (a, (3, 2)), (A, (3, 2))),
            ("stack", ([a, a], 0), ([A, A], 0)),
            ("sum", (a, 1), (A, 1)),
        ):
            result = getattr(gett, name)(*args)
            assert isinstance(result, kind), name
            np.testing.assert_allclose(
                np.asarray(result.resolve_conj() if kind is torch.Tensor else result), getattr(np, name)(*like)
            )


@pytest.fixture
def quimb() -> Any:
    return pytest.importorskip("quimb.tensor")


def test_amplitudes_of_a_circuit(quimb: Any) -> None:
    circuit = quimb.Circuit(6)
    rng = np.random.default_rng(0)
    for depth in range(3):
        for i in range(6):
            circuit.apply_gate("U3", *rng.uniform(size=3), i)
        for i in range(depth % 2, 5, 2):
            circuit.apply_gate("CZ", i, i + 1)
    for bits in ("000000", "010101", "110010"):
        expected = circuit.amplitude(bits, backend="numpy")
        assert abs(circuit.amplitude(bits, backend="gett") - expected) < 1e-14
    # Where nothing is contracted, the array is only converted.
    single = quimb.Circuit(1)
    single.apply_gate("H", 0)
    assert abs(single.amplitude("1", backend="gett") - 0.5**0.5) < 1e-14


def test_dmrg2(quimb: Any) -> None:
    energies = {}
    for backend in ("numpy", "gett"):
        with quimb.contract_backend(backend), quimb.tensor_linop_backend(backend):
            dmrg = quimb.DMRG2(quimb.MPO_ham_heis(8), bond_dims=[8, 16], cutoffs=1e-10)
            assert dmrg.solve(tol=1e-6, verbosity=0)
            energies[backend] = dmrg.energy
    assert abs(energies["gett"] - energies["numpy"]) < 1e-9
    assert abs(energies["gett"] + 3.374932598687893) < 1e-6


def test_cotengra_by_backend_and_by_implementation() -> None:
    cotengra = pytest.importorskip("cotengra")
    rng = np.random.default_rng(1)
    a, b, c = rng.standard_normal((4, 5)), rng.standard_normal((5, 6, 4)), rng.standard_normal((6, 7))
    equation = "ab,bca,cd->d"
    expected = np.einsum(equation, a, b, c)
    for options in ({"backend": "gett"}, {"implementation": (gett.einsum, gett.tensordot)}):
        np.testing.assert_allclose(cotengra.einsum(equation, a, b, c, **options), expected, rtol=1e-12)
    np.testing.assert_allclose(cotengra.einsum("ab->ba", a, backend="gett"), a.T)
    np.testing.assert_array_equal(cotengra.einsum("ab->ab", a, backend="gett"), a)
    tree = cotengra.einsum_tree(equation, a.shape, b.shape, c.shape)
    for sliced in tree.inputs[0][0], tree.output[0]:  # parts are added, and stacked
        tree.remove_ind_(sliced)
        np.testing.assert_allclose(tree.contract([a, b, c], backend="gett"), expected, rtol=1e-12)
