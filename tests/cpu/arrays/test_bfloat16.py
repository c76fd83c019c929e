"""bfloat16 on the CPU in NumPy's arrays (by ml_dtypes) and JAX's: float32 sums, each rounded once, as PyTorch's are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gett

ml_dtypes = pytest.importorskip("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((6, 9)).astype(BFLOAT16), RNG.standard_normal((9, 5)).astype(BFLOAT16)
C = RNG.standard_normal(5).astype(BFLOAT16)


def rounded(wide: Any) -> Any:
    return np.asarray(wide, np.float32).astype(BFLOAT16)


def wide(*arrays: Any) -> list[Any]:
    return [x.astype(np.float32) for x in arrays]


CALLS: list[Callable[..., Any]] = [
    lambda a, b, c: gett.einsum("ij,jk->ik", a, b),
    lambda a, b, c: gett.einsum("ij,jk,k->ik", a, b, c),
    lambda a, b, c: gett.einsum(a, [0, 1], b, [1, 2], [2, 0], order="F"),
    lambda a, b, c: gett.einsum("ij->ji", a),
    lambda a, b, c: gett.einsum("ij->", a),
    lambda a, b, c: gett.tensordot(a, b, 1),
    lambda a, b, c: gett.contract("ij,jk->ik", a, b, c, alpha=2, beta=-1),
    lambda a, b, c: gett.contract("ij,jk->ik", a, b, epilogue=lambda d, x: np.maximum(d + x, 0), epilogue_args=(c,)),
    lambda a, b, c: gett.plan("ij,jk->ik", a, b)(a, b, alpha=0.5),
    lambda a, b, c: gett.plan("ij,jk->ik", a, b)(a, b, c=c, beta=2),
]


@pytest.mark.parametrize("call", CALLS)
def test_results_are_float32s_rounded_once(call: Callable[..., Any]) -> None:
    for _ in range(2):
        result = call(A, B, C)
        assert result.dtype == BFLOAT16
        np.testing.assert_array_equal(result, rounded(call(*wide(A, B, C))))


def test_an_intermediate_is_not_rounded() -> None:
    """257 is no bfloat16, the sum is."""
    a = np.array([[256.0, 1, 256, 3, -4]]).astype(BFLOAT16)
    one = np.ones(1, BFLOAT16)
    assert float(gett.einsum("ij,ij->i", a, np.ones_like(a))[0]) == 512
    assert float(gett.einsum("ij,k,j->", a, one, np.array([1, 1, 0, 0, -1.0]).astype(BFLOAT16))) == 261 - 1


def test_strides_and_broadcasts() -> None:
    spread, reverse = np.broadcast_to(A[:1], (6, 9)), B[::-1, ::2]
    expected = rounded(np.broadcast_to(A[:1], (6, 9)).astype("f4") @ reverse.astype("f4"))
    np.testing.assert_array_equal(gett.einsum("ij,jk->ik", spread, reverse), expected)
    np.testing.assert_array_equal(gett.plan("ij,jk->ik", spread, reverse)(spread, reverse), expected)


def test_mixed_dtypes_and_dtype_option() -> None:
    whole = np.arange(-27, 27).reshape(6, 9)
    for other, expected in (
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int64", "bfloat16"),
    ):
        assert gett.einsum("ij,jk->ik", whole.astype(other), B).dtype.name == expected
    fine = np.full((2, 2), 1 + 2.0**-9, np.float32)  # 1 in bfloat16
    for asked in ("bfloat16", BFLOAT16, ml_dtypes.bfloat16):
        result = gett.einsum("ij,jk->ik", fine, 256 * fine, dtype=asked, casting="same_kind")
        assert result.dtype == BFLOAT16
        np.testing.assert_array_equal(result, np.full((2, 2), 512.0))  # of rounded factors, as on a GPU
    assert gett.einsum("ij,jk->ik", A, B, dtype="float32").dtype == np.float32
    assert float(gett.einsum(",->", A[0, 0], A[0, 0])) == float(rounded(np.float32(A[0, 0]) ** 2))
    with pytest.raises(gett.DTypeError, match="operand 0 cannot be cast from float32 to bfloat16"):
        gett.einsum("ij,jk->ik", fine, fine, dtype=BFLOAT16)


def test_out() -> None:
    expected = rounded(A.astype("f4") @ B.astype("f4"))
    plan = gett.plan("ij,jk->ik", A, B)
    calls: list[Callable[[Any], Any]] = [
        lambda out: gett.einsum("ij,jk->ik", A, B, out=out),
        lambda out: gett.contract("ij,jk->ik", A, B, out=out),
        lambda out: plan(A, B, out=out),
    ]
    memory = np.zeros((6, 10), BFLOAT16)
    for call in calls:
        out = memory[:, ::2]
        assert call(out) is out
        np.testing.assert_array_equal(out, expected)
        assert not memory[:, 1::2].any()
        memory[...] = 0
        fixed = np.zeros((6, 5), BFLOAT16)
        fixed.flags.writeable = False
        with pytest.raises(gett.OutputError, match="out is read-only"):
            call(fixed)
    total = expected.copy()
    assert gett.contract("ij,jk->ik", A, B, beta=1, out=total) is total
    np.testing.assert_array_equal(total, rounded(expected.astype("f4") + A.astype("f4") @ B.astype("f4")))
    narrow = np.zeros((6, 5), np.float16)
    gett.einsum("ij,jk->ik", A, B, out=narrow, casting="same_kind")
    np.testing.assert_array_equal(narrow, (A.astype("f4") @ B.astype("f4")).astype("f2"))


def test_plans_of_pairs_take_arrays_of_it() -> None:
    plan = gett.plan("ij,jk->ik", ((6, 9), "bfloat16"), ((9, 5), "bfloat16"), arch="cpu")
    result = plan(A, B)
    assert result.dtype == BFLOAT16
    np.testing.assert_array_equal(result, rounded(A.astype("f4") @ B.astype("f4")))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4"])
def test_narrower_dtypes_are_refused_by_name(name: str) -> None:
    small = np.ones((2, 2)).astype(getattr(ml_dtypes, name))
    for call in (
        lambda: gett.einsum("ij,jk->ik", A[:2, :2], small),
        lambda: gett.contract("ij,jk->ik", A[:2, :2], small),
        lambda: gett.plan("ij,jk->ik", A[:2, :2], small),
    ):
        with pytest.raises(gett.DTypeError, match=f"operand 1 has dtype {name}; supported are"):
            call()


@pytest.mark.parametrize("call", CALLS)
def test_jax_arrays(call: Callable[..., Any]) -> None:
    jax = pytest.importorskip("jax")
    result = call(*(jax.numpy.asarray(x) for x in (A, B, C)))
    assert isinstance(result, jax.Array)
    assert result.dtype == BFLOAT16
    np.testing.assert_array_equal(np.asarray(result), call(A, B, C))


def test_torch_rounds_factors_likewise() -> None:
    torch = pytest.importorskip("torch")
    fine = torch.full((2, 2), 1 + 2.0**-9)
    result = gett.einsum("ij,jk->ik", fine, 256 * fine, dtype=torch.bfloat16, casting="same_kind")
    assert torch.equal(result, torch.full((2, 2), 512.0, dtype=torch.bfloat16))
    with pytest.raises(gett.DTypeError, match="a plan for the CPU gives bfloat16"):
        gett.plan("ij,jk->ik", fine, fine, dtype=torch.bfloat16, casting="same_kind")
