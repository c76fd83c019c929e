"""What NumPy's own einsum computes for this package, and this package in the place of NumPy's einsum."""

from __future__ import annotations

import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gett
from tests.cpu.strategies import Case, contractions, strided_arrays, values

ROOT = Path(__file__).parents[3]
RNG = np.random.default_rng(41)
WIDE = ("longdouble", "clongdouble", "object")


def integers(*shape: int, dtype: str) -> np.ndarray:
    return values(RNG, shape, np.dtype("int64" if dtype == "object" else dtype)).astype(dtype)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4), st.sampled_from(WIDE))
def test_einsum_and_contract_as_for_other_dtypes(data, count, dtype):
    case: Case = data.draw(contractions(operands=count, dtypes=("int64",)))
    operands = [x.astype(dtype) for x in case.operands]
    if data.draw(st.booleans()):
        operands[0] = case.operands[0]  # an integer among them
    expected, result_type = case.reference(), np.result_type(*operands)
    for optimize in (True, False, "greedy", ("greedy", 10**6)):
        result = gett.einsum(case.subscripts, *operands, optimize=optimize)
        assert np.asarray(result).dtype == result_type or dtype == "object"
        np.testing.assert_array_equal(result, expected)
    c = data.draw(strided_arrays(case.shape, np.dtype("int64"))).astype(dtype)
    np.testing.assert_array_equal(gett.contract(case.subscripts, *operands, c, alpha=2, beta=-1), 2 * expected - c)


@pytest.mark.parametrize("dtype", WIDE)
def test_options_of_einsum(dtype):
    a, b = integers(3, 4, dtype=dtype), integers(4, 5, dtype=dtype)
    expected = a @ b
    assert gett.einsum("ij,jk->ik", a, b, order="F").flags.f_contiguous
    out = np.zeros((5, 3), dtype)
    assert gett.einsum("ij,jk->ki", a, b, out=out) is out
    np.testing.assert_array_equal(out, expected.T)
    narrow = np.zeros((3, 5), "c16" if dtype != "object" else "i8")
    gett.einsum("ij,jk->ik", a, b, out=narrow, casting="unsafe")
    np.testing.assert_array_equal(narrow, expected)
    np.testing.assert_array_equal(gett.einsum(a, [0, 1], b, [1, 2], [0, 2]), expected)
    np.testing.assert_array_equal(gett.einsum("...j,jk", a, b), expected)
    np.testing.assert_array_equal(gett.tensordot(a, b, 1), expected)
    diagonal = gett.einsum("ii->i", a[:, :3])
    assert not np.shares_memory(diagonal, a)
    small = integers(3, 4, dtype="int64")
    found = gett.einsum("ij,kj->ik", small, small, dtype=dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, small @ small.T)
    for options, error in (
        ({"dtype": "int8"}, gett.DTypeError),
        ({"order": "Z"}, gett.OptionError),
        ({"optimize": [(0, 5)]}, gett.OptionError),
        ({"precision": "tf32"}, gett.PrecisionError),
        ({"out": np.zeros((3, 4), dtype)}, gett.OutputError),
        ({"out": np.zeros((3, 5), "f4")}, gett.DTypeError),
    ):
        with pytest.raises(error):
            gett.einsum("ij,jk->ik", a, b, **options)
    with pytest.raises(gett.ShapeError, match="mode 'j' has extent 4 in operand 0 and 3 in operand 1"):
        gett.einsum("ij,jk", a, b[:3])
    many = "".join(chr(0x4E00 + i) for i in range(53))
    with pytest.raises(gett.SubscriptsError, match="53 modes"):
        gett.einsum(f"{many},{many}->", np.ones((1,) * 53, dtype), np.ones((1,) * 53, dtype))


@pytest.mark.parametrize("dtype", WIDE)
def test_out_that_overlaps_operands(dtype):
    a, b = integers(4, 4, dtype=dtype), integers(4, 4, dtype=dtype)
    expected = a @ b
    gett.einsum("ij,jk->ki", a, b, out=a)
    np.testing.assert_array_equal(a, expected.T)
    expected = 2 * a @ b + a
    gett.contract("ij,jk->ik", a, b, alpha=2, beta=1, out=a)
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("dtype", WIDE)
def test_empty_sums(dtype):
    result = gett.einsum("ij,jk->ik", np.ones((2, 0), dtype), np.ones((0, 3), dtype))
    np.testing.assert_array_equal(result, np.zeros((2, 3)))
    assert gett.einsum("ij,k->ijk", np.ones((4, 3), dtype), np.ones(0, dtype)).shape == (4, 3, 0)
    c = np.ones(3, dtype)
    result = gett.contract("ij,jk->ik", np.ones((2, 0), dtype), np.ones((0, 3), dtype), c, beta=2)
    np.testing.assert_array_equal(result, np.full((2, 3), 2))


def test_precision_of_longdouble_is_kept():
    tiny = np.finfo(np.longdouble).eps
    a = np.array([1, tiny], np.longdouble)
    assert gett.einsum("i->", a) == 1 + tiny
    assert gett.contract("i->", a, alpha=np.longdouble(1) + tiny) == (1 + tiny) * (1 + tiny)


def test_objects_keep_their_own_arithmetic():
    a = np.array([[Fraction(1, 3), Fraction(1, 2)], [Fraction(0), Fraction(5, 7)]])
    result = gett.einsum("ij,jk->ik", a, a)
    assert result[0, 1] == Fraction(1, 3) * Fraction(1, 2) + Fraction(1, 2) * Fraction(5, 7)
    assert gett.contract("ij,ij->", a, a, alpha=Fraction(1, 2)) == sum(x * x for x in a.ravel()) / 2
    assert gett.einsum("i,i->", [Decimal("0.1")] * 2, [3, 4]) == Decimal("0.7")
    assert gett.einsum("i,i->", [10**30], [10**30]) == 10**60
    with pytest.raises(TypeError, match="unsupported operand"):  # the objects' own
        gett.einsum("i,i->", np.array([None]), np.array([None]))


def test_there_are_no_plans_for_them():
    for dtype in WIDE:
        a = np.ones((2, 2), dtype)
        with pytest.raises(gett.DTypeError, match="einsum, contract and tensordot give NumPy arrays of it to NumPy"):
            gett.plan("ij,jk", a, a)
        with pytest.raises(gett.DTypeError, match=r"c has dtype"):
            gett.plan("ij,jk", np.ones((2, 2)), np.ones((2, 2)), c=a)


# --- in the place of numpy.einsum

IN_PLACE = """
import sys
import numpy as np, pytest
import gett
np.einsum = gett.einsum
sys.exit(pytest.main(["-q", "-o", "addopts=", "-p", "no:cacheprovider", "--pyargs", *sys.argv[1:]]))
"""


def run_suite(module: str) -> dict[str, int]:
    """Counts in the last line of a suite of tests, with this package in the place of NumPy's einsum."""
    done = subprocess.run(
        [sys.executable, "-c", IN_PLACE, module], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = done.stdout.strip().splitlines()[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}


@pytest.mark.slow
def test_numpys_own_tests_pass() -> None:
    """All but four: views as results, permuted orders, an unsafe cast, and the limit of 52 labels."""
    counts = run_suite("numpy._core.tests.test_einsum")
    assert counts["passed"] >= 74
    assert counts["failed"] <= 4
