"""Contractions as the command line takes them, their random data, and the verification of results."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from gett.cli.problem import Problem, parse_problem, random_operand
from gett.errors import DTypeError, OptionError, SubscriptsError
from gett.measure.verify import Verdict, make_tolerance
from gett.measure.verify import verify as verify_arrays


def test_explicit_and_implicit_results_and_white_space() -> None:
    problem = parse_problem(" ab , bc -> ca ", "a=2, b=3, c=4", "float16")
    assert problem == Problem(("ab", "bc"), "ca", {"a": 2, "b": 3, "c": 4}, "float16")
    assert problem.shapes == ((2, 3), (3, 4))
    assert parse_problem("ba,cb", "7", "f4").subscripts == "ba,cb->ac"
    assert parse_problem("ba,cb", "7", "f4").dtype == "float32"


def test_a_bare_extent_stands_for_the_rest() -> None:
    assert parse_problem("ab,bc->ac", "b=3,9", "f4").extents == {"a": 9, "b": 3, "c": 9}


@pytest.mark.parametrize(
    ("subscripts", "extents", "error", "words"),
    [
        ("ab,bc->ac", "a=2,b=3", OptionError, "no extent for mode 'c'"),
        ("ab,bc->ac", "a=2", OptionError, "no extent for modes 'b', 'c'"),
        ("ab,bc->ac", "a=2,b=3,c=4,x=5", OptionError, "no mode 'x'"),
        ("ab,bc->ac", "a=2,a=3,7", OptionError, "mode 'a' has two extents, 2 and 3"),
        ("ab,bc->ac", "a=-2,7", OptionError, "'a=-2'"),
        ("ab,bc->ac", "a=two,7", OptionError, "'a=two'"),
        ("ab,bc->ad", "7", SubscriptsError, "mode 'd' of the result"),
        ("ab,bc->aa", "7", SubscriptsError, "'a' occurs 2 times"),
        ("a...,b->ab", "7", SubscriptsError, "ellipsis"),
        ("a1,b->ab", "7", SubscriptsError, "'1' is not a mode label"),
    ],
)
def test_bad_problems_name_the_mode(subscripts: str, extents: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        parse_problem(subscripts, extents, "float32")


def test_unknown_dtypes_are_named() -> None:
    for name in ("float31", "f4,", "S-1", "object_"):
        with pytest.raises(DTypeError, match=f"--dtype.*{name}"):
            parse_problem("ab->a", "2", name)
    assert parse_problem("ab->a", "2", "bfloat16").bytes == 2 * (4 + 2)
    with pytest.raises(DTypeError, match="no bfloat16 of its own"):
        random_operand(np.random.default_rng(0), (2,), "bfloat16")
    with pytest.raises(DTypeError, match="'str'"):
        random_operand(np.random.default_rng(0), (2,), "str")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_random_data_fill_both_halves_of_the_range(dtype: str) -> None:
    x = random_operand(np.random.default_rng(0), (1000,), dtype)
    assert x.dtype == dtype
    for part in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
        assert -1 <= part.min() < -0.9
        assert 0.9 < part.max() <= 1


def verify(problem: Problem, operands: list[Any], result: Any, lengths: list[int]) -> Verdict:
    return verify_arrays(problem.subscripts, operands, result, lengths, np)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("subscripts", ["akb,jk->jba", "ab,bc,cd->da"])
def test_verify_accepts_einsum_and_sees_one_wrong_element(dtype: str, subscripts: str) -> None:
    problem = parse_problem(subscripts, "16", dtype)
    rng = np.random.default_rng(1)
    operands = [random_operand(rng, s, dtype) for s in problem.shapes]
    lengths = [16] * (len(operands) - 1)
    if dtype == "float16":
        result = np.einsum(problem.subscripts, *(x.astype("float32") for x in operands)).astype(dtype)
    else:
        result = np.einsum(problem.subscripts, *operands)
    assert verify(problem, operands, result, lengths).ok
    position = tuple(e // 2 for e in result.shape)
    result[position] = not result[position] if dtype == "bool" else result[position] + result.dtype.type(1)
    assert not verify(problem, operands, result, lengths).ok


def test_verify_refuses_an_element_that_was_never_written() -> None:
    problem = parse_problem("ab,bc->ac", "8", "float64")
    operands = [random_operand(np.random.default_rng(2), (8, 8), "float64") for _ in range(2)]
    result = operands[0] @ operands[1]
    result[3, 4] = np.nan
    assert verify(problem, operands, result, [8]).ratio == math.inf


def test_verify_in_chunks_sees_the_last_element(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse_problem("ab,cb->ca", "a=7,b=5,c=11", "float32")
    rng = np.random.default_rng(3)
    operands = [random_operand(rng, s, "float32") for s in problem.shapes]
    result = np.einsum(problem.subscripts, *operands)
    whole = verify(problem, operands, result, [5]).ratio
    monkeypatch.setattr("gett.measure.verify.CHUNK_BYTES", 300)
    assert verify(problem, operands, result, [5]).ratio == pytest.approx(whole)
    result[-1, -1] += 1
    assert not verify(problem, operands, result, [5]).ok


def test_tolerance_follows_the_precision() -> None:
    ieee, tf32 = make_tolerance([100], "float32"), make_tolerance([100], "float32", "tf32")
    assert ieee.product == 2 * 10 * 2.0**-24
    assert tf32.product - ieee.product == pytest.approx(2.0**-9)
    assert make_tolerance([100], "float16").product == 2 * ieee.product  # tensor cores truncate
    assert make_tolerance([100], "bfloat16").product == 2 * ieee.product
    assert make_tolerance([100], "float16").output == 2.0**-11
    assert make_tolerance([100], "bfloat16").output == 2.0**-8
    assert make_tolerance([100], "complex64").product == 2 * ieee.product
    assert make_tolerance([9, 16], "float64").product == pytest.approx(2 * (3 + 4) * 2.0**-53 + 2.0**-53)
