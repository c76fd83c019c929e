"""`strip_exponent=`: results beyond the range of their dtype as mantissa and exponent, with the same digits."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gett
from gett.arrays.exponents import NOTHING, in_tens, larger, scale, take_power
from gett.arrays.kinds import NUMPY

CHAIN = "ab,bc,cd,de->ae"


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def chain(dtype: str, n: int = 7) -> list[Any]:
    return [floats(n, n, dtype=dtype, seed=i) for i in range(4)]


def rebuilt(mantissa: Any, exponent: float) -> Any:
    """The result, where it is within the range: the exponent is one of two."""
    power = exponent / math.log10(2)
    assert abs(power - round(power)) < 1e-6
    parts = [mantissa.real, mantissa.imag] if np.iscomplexobj(mantissa) else [mantissa]
    scaled = [np.ldexp(x, round(power)) for x in parts]
    return scaled[0] if len(scaled) == 1 else scaled[0] + 1j * scaled[1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("call", [gett.einsum, gett.contract])
def test_digits_are_those_of_the_plain_result(dtype: str, call: Any) -> None:
    arrays = chain(dtype)
    plain = call(CHAIN, *arrays)
    mantissa, exponent = call(CHAIN, *arrays, strip_exponent=True)
    assert isinstance(exponent, np.float64)
    assert mantissa.dtype == plain.dtype
    largest = max(np.abs(mantissa.real).max(), np.abs(mantissa.imag).max())
    assert 0.5 <= largest < 1
    if dtype != "float16":  # intermediates of 16 bits are rounded, and sums of them in NumPy's loops as well
        np.testing.assert_array_equal(rebuilt(mantissa, exponent), plain)
    np.testing.assert_allclose(rebuilt(mantissa, exponent), plain, rtol=2e-2)
    planned = gett.plan(CHAIN, *arrays)(*arrays, strip_exponent=True)
    np.testing.assert_array_equal(planned[0], mantissa)
    assert planned[1] == exponent


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_a_result_beyond_the_range_is_exact(factor: float) -> None:
    """A chain of 40 diagonal matrices, whose product is known as a fraction."""
    value = np.float32(factor)
    labels = [chr(0x4E00 + i) for i in range(41)]
    subscripts = ",".join(x + y for x, y in pairwise(labels)) + f"->{labels[0]}{labels[-1]}"
    matrices = [np.diag(np.full(2, np.float32(3 if i % 2 else value))) for i in range(40)]
    with np.errstate(over="ignore", invalid="ignore"):
        plain = gett.einsum(subscripts, *matrices, optimize=False)
    assert not plain[0, 0] or not np.isfinite(plain[0, 0])
    mantissa, exponent = gett.einsum(subscripts, *matrices, optimize=False, strip_exponent=True)
    exact = Fraction(float(value)) ** 20 * 3**20
    expected = math.log10(exact.numerator) - math.log10(exact.denominator)
    assert math.isclose(math.log10(mantissa[0, 0]) + exponent, expected, rel_tol=1e-6)
    assert mantissa[0, 1] == 0


def test_zeros_have_exponent_0_and_what_is_not_finite_stays() -> None:
    a = np.full((3, 3), 1e20, "float32")
    mantissa, exponent = gett.einsum("ab,bc,cd->ad", a, np.zeros_like(a), a, strip_exponent=True)
    assert exponent == 0
    assert not mantissa.any()
    for odd in (np.inf, np.nan):
        b = np.eye(3, dtype="float32")
        b[1, 1] = odd
        with np.errstate(invalid="ignore"):
            mantissa, exponent = gett.einsum("ab,bc->ac", b, np.eye(3, dtype="float32"), strip_exponent=True)
        assert not np.isfinite(mantissa).all()
        assert exponent == 0
    mantissa, exponent = gett.einsum("ab,bc->ac", np.ones((0, 3)), np.ones((3, 2)), strip_exponent=True)
    assert mantissa.shape == (0, 2)
    assert exponent == 0


def test_one_operand_scalars_and_a_factor() -> None:
    a = floats(5, 5, dtype="float64")
    mantissa, exponent = gett.einsum("ii->", a, strip_exponent=True)
    assert isinstance(mantissa, np.float64)
    assert rebuilt(mantissa, exponent) == gett.einsum("ii->", a)
    mantissa, exponent = gett.contract("ij,jk->ik", a, a, alpha=-3, strip_exponent=True)
    np.testing.assert_array_equal(rebuilt(mantissa, exponent), gett.contract("ij,jk->ik", a, a, alpha=-3))
    conjugated = gett.einsum("ij,jk->ik", a + 1j * a.T, a, conj=(True, False), strip_exponent=True)
    np.testing.assert_array_equal(rebuilt(*conjugated), gett.einsum("ij,jk->ik", a + 1j * a.T, a, conj=(True, False)))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16"])
@pytest.mark.parametrize("last", ["ca->", "cd->ad", "cd->da"])
def test_slices_are_added_with_exponents_of_their_own(dtype: str, last: str) -> None:
    n = 32
    a, b, c = (floats(n, n, n, dtype=dtype, seed=i) for i in range(3))
    a *= np.dtype(dtype).type(2.0) ** np.arange(-6, 6, 12 / n).astype("float32").reshape(-1, 1, 1).astype(dtype)
    if dtype == "float16":
        c /= 64  # so that the plain result is within the range
    subscripts = f"xab,xbc,x{last}"
    plan = gett.plan(subscripts, a, b, c, memory_limit="20kB")
    assert plan.slices > 1
    plain = plan(a, b, c)
    mantissa, exponent = plan(a, b, c, strip_exponent=True)
    tolerance = 1e-2 if dtype == "float16" else 1e-4
    np.testing.assert_allclose(
        rebuilt(np.asarray(mantissa, "complex128" if dtype[0] == "c" else "float64"), exponent), plain,
        rtol=tolerance, atol=tolerance * float(np.abs(plain).max()),
    )  # fmt: skip
    whole = gett.einsum(subscripts, a, b, c, strip_exponent=True, memory_limit="20kB")
    np.testing.assert_array_equal(whole[0], mantissa)
    assert whole[1] == exponent


@pytest.mark.parametrize("last", ["ca->", "ca->x", "cd->ad"])
def test_slices_beyond_the_range_are_exact_on_small_integers(last: str) -> None:
    """Each slice along x underflows in float32, in another power; zeros among them do not count."""
    rng = np.random.default_rng(1)
    n = 24
    parts = [rng.integers(-3, 4, (n, n, n)).astype("float32") for _ in range(3)]
    parts[0][5] = 0
    tiny = [np.ldexp(x, -60) for x in parts]  # two of these have a product in the range, three have none
    subscripts = f"xab,xbc,x{last}"
    expected = np.einsum(subscripts, *[x.astype("float64") for x in parts])
    for limit in (None, "12kB"):
        plan = gett.plan(subscripts, *tiny, memory_limit=limit)
        assert (plan.slices > 1) is (limit is not None)
        mantissa, exponent = plan(*tiny, strip_exponent=True)
        np.testing.assert_array_equal(
            np.ldexp(np.asarray(mantissa, "float64"), round(exponent / math.log10(2)) + 180), expected
        )


def test_what_runs_once_for_all_slices_counts_once() -> None:
    a, b = floats(4, 400, seed=1) * np.float32(1e-17), floats(400, 4, seed=2) * np.float32(1e-17)
    c, d = floats(4, 90, 30, seed=3) * np.float32(1e-17), floats(30, 90, 4, seed=4) * np.float32(1e-17)
    path = [(0, 1), (0, 1), (0, 1)]
    plan = gett.plan("ab,bc,cxy,yxd->ad", a, b, c, d, optimize=path, memory_limit="10kB")
    assert plan.slices > 1
    mantissa, exponent = plan(a, b, c, d, strip_exponent=True)
    expected = np.einsum("ab,bc,cxy,yxd->ad", *(x.astype("float64") for x in (a, b, c, d)), optimize=True)
    np.testing.assert_allclose(mantissa.astype("float64") * 10**exponent, expected, rtol=1e-4)


def test_what_needs_the_result_itself_is_refused() -> None:
    a = np.ones((3, 3))
    for options in ({"out": np.empty((3, 3))}, {"c": a}, {"epilogue": lambda d: d + 1}):
        with pytest.raises(gett.OptionError, match=f"^{next(iter(options))}= needs the result itself"):
            gett.contract("ij,jk->ik", a, a, strip_exponent=True, **options)  # type: ignore[call-overload]
    with pytest.raises(gett.OptionError, match="out= needs"):
        gett.plan("ij,jk->ik", a, a)(a, a, out=np.empty((3, 3)), strip_exponent=True)
    with pytest.raises(gett.OptionError, match="True or False"):
        gett.einsum("ij,jk->ik", a, a, strip_exponent=10)  # type: ignore[call-overload]
    with pytest.raises(gett.OptionError, match="floating-point numbers, but the contraction is in int64"):
        gett.einsum("ij,jk->ik", a.astype(int), a.astype(int), strip_exponent=True)
    with pytest.raises(gett.DTypeError, match="object"):
        gett.einsum("ij,jk->ik", a.astype(object), a, strip_exponent=True)
    with pytest.raises(gett.OptionError, match="several devices"):
        gett.einsum("ij,jk->ik", a, a, strip_exponent=True, devices=[0, 1])
    shared = gett.plan("ij,jk->ik", *[np.ones((64, 64))] * 2, devices=[0, 1])
    if type(shared).__name__ == "DevicesPlan":
        with pytest.raises(gett.OptionError, match="several devices"):
            shared(*[np.ones((64, 64))] * 2, strip_exponent=True)


# --- powers of each library


class Kind:
    """An array kind as far as powers ask for it."""

    def __init__(self, name: str) -> None:
        self.name = name


def check_powers(kind: Any, make: Any, dtype: str) -> None:
    """Scaling is exact from the largest numbers of a type to the smallest, and adds up."""
    limits = np.finfo(dtype)
    values = [limits.max, limits.tiny, limits.smallest_subnormal, limits.dtype.type(1), limits.dtype.type(-3)]
    for value in values:
        host = np.array([[value, 0], [value / 2, -value]]).astype(dtype)
        array = make(host)
        power = take_power(kind, array)
        _, expected = np.frexp(np.float64(abs(value)))
        assert int(power) == expected
        np.testing.assert_array_equal(np.asarray(array, "float64"), np.ldexp(host.astype("float64"), -expected))
        scale(kind, array, power)
        np.testing.assert_array_equal(np.asarray(array), host)
    array = make(np.zeros((2, 3), dtype))
    assert int(take_power(kind, array)) == NOTHING
    assert float(in_tens(kind, take_power(kind, array) + take_power(kind, make(np.ones(3, dtype))))) == 0
    for odd in (np.inf, -np.inf, np.nan):
        host = np.array([1, odd, 4]).astype(dtype)
        array = make(host)
        assert int(take_power(kind, array)) == 0
        np.testing.assert_array_equal(np.asarray(array), host)
    one, two = take_power(kind, make(np.ones(3, dtype))), take_power(kind, make(np.full(3, 2, dtype)))
    assert int(larger(kind, one, two)) == 2
    assert math.isclose(float(in_tens(kind, two)), 2 * math.log10(2))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_powers_of_numpy(dtype: str) -> None:
    check_powers(NUMPY, np.copy, dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_powers_of_cupy(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", np)  # whose functions have the same names and meaning
    check_powers(Kind("CuPy"), np.copy, dtype)
    z = (floats(3, 4, dtype="complex64") * 1e-20).T
    before, power = z.copy(), take_power(Kind("CuPy"), z)  # type: ignore[arg-type]
    scale(Kind("CuPy"), z, power)  # type: ignore[arg-type]
    np.testing.assert_array_equal(z, before)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_powers_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    check_powers(Kind("PyTorch"), lambda x: torch.from_numpy(x.copy()), dtype)
    z = torch.from_numpy(floats(3, 4, dtype="complex64") * 1e-20).T
    before, power = z.clone(), take_power(Kind("PyTorch"), z)  # type: ignore[arg-type]
    assert 0.5 <= float(torch.view_as_real(z).abs().max()) < 1
    scale(Kind("PyTorch"), z, power)  # type: ignore[arg-type]
    assert torch.equal(z, before)
    b = torch.tensor([3e-39, 1e38], dtype=torch.bfloat16)
    assert int(take_power(Kind("PyTorch"), b)) == 127  # type: ignore[arg-type]


def test_tensors_give_tensors_and_record_nothing() -> None:
    torch = pytest.importorskip("torch")
    a = torch.full((3, 3), 1e-17)
    mantissa, exponent = gett.einsum("ab,bc,cd->ad", a, a, a, strip_exponent=True)
    assert isinstance(mantissa, torch.Tensor)
    assert math.isclose(math.log10(float(mantissa[0, 0])) + float(exponent), math.log10(9) - 51, rel_tol=1e-6)
    with pytest.raises(gett.GradientError, match="strip_exponent= records no derivatives"):
        gett.einsum("ab,bc->ac", a.requires_grad_(), a, strip_exponent=True)


def test_the_convention_is_that_of_cotengra() -> None:
    ctg = pytest.importorskip("cotengra")
    arrays = [floats(4, 4, seed=i).astype("float64") * 1e-120 for i in range(4)]
    tree = ctg.array_contract_tree([tuple(x) for x in ("ab", "bc", "cd", "da")], (), dict.fromkeys("abcd", 4))
    theirs, ours = (f(strip_exponent=True) for f in (
        lambda **x: tree.contract(arrays, **x),
        lambda **x: gett.einsum("ab,bc,cd,da->", *arrays, optimize=tree, **x),
    ))  # fmt: skip
    mine, exact = (np.log10(abs(m)) + e for m, e in (ours, theirs))
    assert math.isclose(mine, exact, rel_tol=1e-12)
    assert np.sign(ours[0]) == np.sign(theirs[0])
