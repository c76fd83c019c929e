"""`contract_expression`: constants in every place, held once, in the library, device and dtype of the call."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(9))
RING = "ab,bc,cd,da->bd"
A, B, C, D = integers(3, 4), integers(4, 5), integers(5, 6), integers(6, 3)
PLACES = [places for r in range(5) for places in itertools.combinations(range(4), r)]


def ring(places: tuple[int, ...], operands: tuple[Any, ...] = (A, B, C, D), **options: Any) -> tuple[Any, list[Any]]:
    """The expression with constants in some places, and the arrays of the other ones."""
    given = [x if i in places else x.shape for i, x in enumerate(operands)]
    expression = gett.contract_expression(RING, *given, constants=places, **options)
    return expression, [x for i, x in enumerate(operands) if i not in places]


@pytest.mark.parametrize("optimize", [True, False, "greedy", [(2, 3), (1, 2), (0, 1)], [(0, 1, 2, 3)]], ids=str)
def test_constants_in_every_place(optimize):
    expected = np.einsum(RING, A, B, C, D)
    for places in PLACES:
        expression, arrays = ring(places, optimize=optimize)
        for _ in range(2):
            np.testing.assert_array_equal(expression(*arrays), expected)
        out = np.full_like(expected, np.nan)
        assert expression(*arrays, out=out) is out
        np.testing.assert_array_equal(out, expected)


def test_an_expression_computes_what_opt_einsum_s_does():
    given = "ab,bc,cd->ad", A.shape, B, C
    ours = gett.contract_expression(*given, constants=[1, 2])
    theirs = opt_einsum.contract_expression(*given, constants=[1, 2])
    np.testing.assert_array_equal(ours(A), theirs(A))
    assert repr(ours) == "<ContractExpression ab,[bc,cd]->ad>"
    assert "Complete contraction:  ab,bc,cd->ad" in str(ours)
    assert ours.path == tuple(ours.path_info.path)


def test_what_constants_alone_make_is_computed_once(monkeypatch):
    called: list[str] = []
    real = gett.api.expression.einsum

    def einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
        called.append(subscripts)
        return real(subscripts, *operands, **options)

    monkeypatch.setattr("gett.api.expression.einsum", einsum)
    expression, (a, d) = ring((1, 2), optimize=[(1, 2), (0, 1), (0, 1)])
    for _ in range(3):
        expression(a, d)
    assert called == ["bc,cd->bd", *["ab,da,bd->bd"] * 3]
    called.clear()
    apart, (b, d) = ring((0, 2), optimize=[(0, 1), (0, 1), (0, 1)])
    for _ in range(2):
        apart(b, d)
    assert called == ["bc,da,ab,cd->bd"] * 2  # the constants never meet before an array does
    np.testing.assert_array_equal(apart(b, d), np.einsum(RING, A, B, C, D))


def test_sums_and_diagonals_of_one_constant_are_taken_once():
    square, a, b = integers(3, 3), integers(3, 5), integers(5, 2)
    given = "ii,i...,...k,zy->...k", square, (3, 5), (5, 2), A
    expression = gett.contract_expression(*given, constants=[0, 3], optimize=[(0, 1), (0, 2), (0, 1)])
    assert expression._spec == "ia,ak,i,->ak"
    np.testing.assert_array_equal(expression(a, b), np.einsum("ii,i...,...k,zy->...k", square, a, b, A))


def test_constants_are_contracted_in_the_dtype_of_the_result():
    thirds = [np.full(x.shape, 1 / 3, "f4") for x in (A, B, C, D)]
    expression, arrays = ring((1, 2), tuple(thirds), optimize=[(1, 2), (0, 1), (0, 1)])
    wide = [x.astype("f8") for x in arrays]
    assert expression(*arrays).dtype == np.float32
    assert expression(*wide).dtype == np.float64
    np.testing.assert_allclose(expression(*wide), np.einsum(RING, wide[0], *thirds[1:3], wide[1]), rtol=1e-14)
    out = np.empty((4, 6), "f8")
    np.testing.assert_allclose(
        expression(*arrays, out=out), np.einsum(RING, *[x.astype("f8") for x in thirds]), rtol=1e-14
    )
    small, _ = ring((1, 2), tuple(np.full(x.shape, 100, "i1") for x in (A, B, C, D)), optimize=[(1, 2), (0, 1), (0, 1)])
    long = np.ones(A.shape, "i8"), np.ones(D.shape, "i8")
    assert (small(*long) == 3 * 100 * 100 * 5).all()


def test_real_constants_stay_real_beside_complex_arrays():
    expression, (a, d) = ring((1, 2), optimize=[(1, 2), (0, 1), (0, 1)])
    expected = np.einsum(RING, a * 1j, B, C, d)
    np.testing.assert_array_equal(expression(a * 1j, d), expected)
    assert [x.dtype for held in expression._held.values() for x in held] == [np.float64]


def test_conj_of_constants_and_arrays():
    z = [x + 1j * integers(*x.shape) for x in (A, B, C, D)]
    for flags in itertools.product([False, True], repeat=4):
        expected = np.einsum(RING, *[x.conj() if f else x for x, f in zip(z, flags, strict=True)])
        for places in ((), (0,), (1, 2), (0, 1, 2, 3)):
            expression, arrays = ring(places, tuple(z), conj=flags)
            np.testing.assert_array_equal(expression(*arrays), expected)


def test_constants_follow_the_library_of_the_call():
    torch = pytest.importorskip("torch")
    for places in PLACES[:-1]:
        expression, arrays = ring(places)
        result = expression(*map(torch.from_numpy, arrays))
        assert type(result) is torch.Tensor
        np.testing.assert_array_equal(result.numpy(), np.einsum(RING, A, B, C, D))
        np.testing.assert_array_equal(expression(*arrays), result.numpy())  # and NumPy's after it
    expression, arrays = ring((1, 2))
    short = [torch.from_numpy(x).to(torch.bfloat16) for x in arrays]
    assert expression(*short).dtype == torch.float64  # as torch promotes with the constants' dtype


def test_constants_beside_jax_s_arrays():
    jnp = pytest.importorskip("jax.numpy")
    expression, arrays = ring((1, 2), tuple(x.astype("f4") for x in (A, B, C, D)))
    result = expression(*map(jnp.asarray, arrays))
    assert type(result) is type(jnp.ones(1))
    np.testing.assert_array_equal(np.asarray(result), np.einsum(RING, A, B, C, D))


def test_other_extents_and_labels():
    expression = gett.contract_expression("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2))
    np.testing.assert_array_equal(expression(A, B, C), A @ B @ C)
    lists = gett.contract_expression((3, 4), ["+", "2"], (4, 5), ["2", 7], ["+", 7])
    np.testing.assert_array_equal(lists(A, B), A @ B)


def test_bad_expressions_and_calls_are_named():
    for constants in ([2], [-1], [True], ["0"], 3):
        with pytest.raises(gett.OptionError, match="constants="):
            gett.contract_expression("ab,bc->ac", A, B, constants=constants)
    with pytest.raises(gett.ShapeError, match=r"operand 0 is .* a shape without a dtype"):
        gett.contract_expression("ab,bc->ac", (3, 4), (4, 5), constants=[0])
    with pytest.raises(gett.OptionError, match="autotune"):
        gett.contract_expression("ab,bc->ac", (3, 4), (4, 5), optimize="autotune")
    with pytest.raises(gett.OptionError, match="memory_limit='lots' is no size"):
        gett.contract_expression(RING, *[(9, 9)] * 4, memory_limit="lots")
    limited = gett.contract_expression(RING, *[(9, 9)] * 4, memory_limit="8B")
    with pytest.raises(gett.OptionError, match="memory_limit= limits a call to 8 bytes"):
        limited(*[np.ones((9, 9))] * 4)
    expression = gett.contract_expression("ab,bc->ac", (3, 4), B, constants=[1])
    with pytest.raises(gett.SubscriptsError, match="takes 1 array, 2 were given"):
        expression(A, B)
    with pytest.raises(gett.SubscriptsError, match="operand 0 has 1 axes"):
        expression(np.ones(4))
    with pytest.raises(gett.OutputError):
        expression(A, out=np.ones((2, 2)))
