"""Index expressions: what they evaluate to, what they print, and how their parameters are packed."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from gett.codegen.index import ONE, TRUE, ZERO, Expr, Function, ParamTable, const, magic, var
from gett.codegen.params import ALPHA, BETA, NAMED, POINTERS, declare_params, pack_params, scalar_slots
from tests.cases import tccg
from tests.cpu.codegen.cpp import CppParams, run_cpp, tile_div
from tests.cpu.host_cuda import includes, run_host
from tests.sampling import given_few

TOP = 2**31 - 1
numbers = st.integers(0, TOP) | st.integers(0, 100) | st.integers(TOP - 5, TOP)


def reciprocal_division(n: int, d: int) -> int:
    """`fast_div` in 32-bit unsigned arithmetic, as the kernels do it."""
    _, multiplier, shift = magic(d)
    assert multiplier < 2**32
    high = (n * multiplier) >> 32
    return ((high + n) % 2**32) >> shift


@given_few(80, 400, n=numbers, d=numbers.filter(bool), k=st.integers(0, 2**31))
def test_magic_divides(n: int, d: int, k: int) -> None:
    near = min(TOP, k % (TOP // d + 1) * d)  # a multiple, where the quotient changes
    for x in (n, near, max(0, near - 1), min(TOP, near + d - 1)):
        assert reciprocal_division(x, d) == x // d


def test_magic_at_every_small_divisor_and_power_of_two() -> None:
    divisors = [*range(1, 600), *(2**i + j for i in range(1, 31) for j in (-1, 0, 1)), TOP]
    for d in divisors:
        for x in {0, 1, d - 1, d, min(TOP, d + 1), TOP // d * d - 1, TOP // d * d, TOP - 1, TOP}:
            assert reciprocal_division(x, d) == x // d, (x, d)


def test_places_in_a_tile_are_divided_by_every_literal() -> None:
    every = np.arange(2**16)
    for d in (*range(1, 300), *range(301, 2**16, 577), 2**16 - 1, 2**16):
        assert (tile_div(d, every) == every // d).all(), d


def test_kernels_divide_places_in_a_tile(tmp_path: Path) -> None:
    literals = (1, 2, 3, 5, 7, 9, 13, 60, 64, 127, 220, 255, 256, 1023, 4097, 65535, 65536)
    body = "".join(
        f"for (int n = 0; n < 65536; ++n)\n"
        f"  if (gett::tile_div<{d}>(n) != n / {d} || gett::tile_mod<{d}>(n) != n % {d}) return 1;\n"
        for d in literals
    )
    text = f'{includes("core/index")}int main() {{\n{body}  printf("right");\n}}\n'
    assert run_host(tmp_path, text) == b"right"


def test_offsets_that_exist_are_told_from_sums_of_others(tmp_path: Path) -> None:
    text = (
        includes("core/index")
        + """int main() {
  using namespace gett;
  const long long some[] = {0, -1, 1, -(1LL << 50), 1LL << 50};
  for (long long x : some) {
    if (!exists(x) || exists(x + kInvalid)) return 1;
    for (long long y : some)
      if (!exists(x + y)) return 1;
  }
  if (exists(kInvalid) || exists(kInvalid + kInvalid)) return 1;
  const int near[] = {0, -1, 1, 1 - (1 << 29), (1 << 29) - 1};
  for (int x : near)
    if (!exists(x) || exists(x + kShortInvalid)) return 1;
  if (exists(kShortInvalid) || exists(kShortInvalid + kShortInvalid)) return 1;
  printf("right");
}
"""
    )
    assert run_host(tmp_path, text) == b"right"


@pytest.mark.parametrize("d", [0, -1, 2**31])
def test_magic_refuses_other_divisors(d: int) -> None:
    with pytest.raises(ValueError, match=f"divisor {d} is out of range"):
        magic(d)


def test_literals_fold() -> None:
    x = var("x")
    assert x + ZERO is x
    assert ZERO + x is x
    assert x * ONE is x
    assert ONE * x is x
    assert x * ZERO == ZERO
    assert x // ONE is x
    assert x % ONE == ZERO
    assert TRUE.both(x) is x
    assert x.both(TRUE) is x


def test_values_that_shape_the_text_are_literals_and_all_else_is_a_slot() -> None:
    table = ParamTable()
    assert table.stride(0) == ZERO
    assert table.stride(1) == ONE
    assert table.divisor(1) == ONE
    assert [table.stride(s).to_cpp() for s in (7, -7)] == ["p.s[0]", "p.s[1]"]
    assert (var("x") % table.divisor(9)).to_cpp() == "gett::fast_mod(x, p.f[0])"
    assert (var("x") // table.divisor(9)).to_cpp() == "gett::fast_div(x, p.f[1])"
    assert var("x").less(table.divisor(5)).to_cpp() == "(x < p.f[2].d)"
    assert (var("x") * table.stride(12)).to_cpp() == "gett::wide(x, p.s[2])"
    assert table.count(1).to_cpp() == "p.i[0]"


@st.composite
def expressions(draw: st.DrawFn, table: ParamTable, depth: int) -> Expr:
    if depth == 0:
        return draw(st.sampled_from([var("x"), var("y")]) | st.integers(0, 300).map(const))
    inner = expressions(table, depth - 1)
    match draw(st.integers(0, 6)):
        case 0:
            return draw(inner) + draw(inner)
        case 1:
            return draw(inner) // table.divisor(draw(st.integers(1, 50)))
        case 2:
            return draw(inner) % table.divisor(draw(st.integers(1, 50)))
        case 3:
            return draw(expressions(table, 0)) // const(draw(st.integers(1, 50)))  # a place in a tile
        case 4:
            return draw(expressions(table, 0)) % const(draw(st.integers(1, 50)))
        case 5:
            return draw(inner).less(draw(inner)).both(draw(inner).less(table.count(draw(st.integers(0, 300)))))
        case _:
            return draw(inner) + var("x") * table.stride(draw(st.integers(0, 1000)))


@given_few(20, 100, data=st.data(), x=st.integers(0, 1000), y=st.integers(0, 1000))
def test_printed_text_means_what_is_evaluated(data: st.DataObject, x: int, y: int) -> None:
    table = ParamTable()
    value = data.draw(expressions(table, 3))
    function = Function("f", ("x", "y"), (("int", "z", value),), (("", var("z") + ONE),), "long long")
    wanted = function.evaluate(x=x, y=y)
    # Operands of a division are non-negative in every generated function, as the kernels' unsigned division needs.
    assert run_cpp(function, CppParams.unpack(table), x=x, y=y) == wanted


@given_few(
    20,
    100,
    strides=st.lists(st.integers(-(2**40), 2**40) | st.integers(-100, 100), max_size=6),
    divisors=st.lists(numbers.filter(bool), max_size=6),
    counts=st.lists(numbers, max_size=4),
)
def test_pack_follows_declare(strides: list[int], divisors: list[int], counts: list[int]) -> None:
    table = ParamTable()
    for s in strides:
        table.stride(s)
    for d in divisors:
        table.divisor(d)
    for c in counts:
        table.count(c)
    unpacked = CppParams.unpack(table)
    assert unpacked.s[: len(table.strides)] == [s for s in strides if s not in (0, 1)]
    assert [f[0] for f in unpacked.f][: len(table.divisors)] == [d for d in divisors if d != 1]
    assert unpacked.i[: len(counts)] == counts
    assert table.wide == any(abs(s) >= 2**31 for s in table.strides)


@pytest.mark.parametrize("names", [{"m": 3}, {"m": 3, "n": 4}])
@pytest.mark.parametrize("stride", [5, 2**35])
@pytest.mark.parametrize("dtype", ["float16", "int8", "float64", "complex64", "complex128"])
def test_params_are_packed_where_the_struct_has_them(names: dict[str, int], stride: int, dtype: str) -> None:
    table = ParamTable()
    table.stride(stride)
    table.divisor(7)
    table.count(11)
    text = declare_params(tccg()[0].contraction(dtype), names, table)
    packed = pack_params(names, table)
    members = re.findall(r"int (\w+);", text)
    assert [m for m in members if m not in ("alpha", "beta", "pad")] == list(names)
    assert struct.unpack_from(f"<{len(names)}i", packed, NAMED) == tuple(names.values())
    wide = stride >= 2**31
    at = NAMED + 4 * (len(names) + len(names) % 2)
    assert at % 8 == 0
    assert struct.unpack_from("<q" if wide else "<i", packed, at) == (stride,)
    assert struct.unpack_from("<4I", packed, at + (8 if wide else 4)) == (*magic(7), 11)
    assert len(packed) % 16 == 0
    assert not any(packed[:NAMED])
    assert [offset for _, offset in POINTERS] == [0, 8, 16, 24, 32]
    assert [(name, offset) for name, offset, _ in scalar_slots(dtype)] == [("alpha", ALPHA), ("beta", BETA)]
