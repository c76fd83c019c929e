"""The C++ of epilogues, compiled for the host and compared with NumPy."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gett
from gett.codegen.params import cpp_type
from gett.epilogue.cpp import print_functor
from gett.epilogue.evaluate import Evaluator
from gett.epilogue.expression import Expression
from gett.epilogue.operations import OPERATIONS
from gett.epilogue.traced import trace
from gett.epilogue.types import kind_of, value_types

ops = gett.ops
ACCUMULATORS = ["bool", "int32", "uint32", "int64", "uint64", "float32", "float64", "complex64", "complex128"]
# Operations whose C++ form is one IEEE operation or a choice: the same bits as NumPy's.
EXACT = {
    "add", "subtract", "negative", "maximum", "minimum", "sign", "floor", "ceil", "rint", "conj", "real", "imag",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isnan", "truth", "bitwise_and",
    "bitwise_or", "bitwise_xor", "invert", "where",
}  # fmt: skip
PRELUDE = """
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#define GETT_DEVICE inline
namespace gett {
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
template <class R> struct alignas(2 * sizeof(R)) complex_t { R re, im; };
typedef complex_t<float> complex64;
typedef complex_t<double> complex128;
struct half_t { _Float16 x; };
struct bhalf_t { uint16 bits; };
template <class To, class From> struct Convert { static To apply(From x) { return To(x); } };
template <class To> struct Convert<To, half_t> { static To apply(half_t x) { return To(float(x.x)); } };
template <class From> struct Convert<half_t, From> { static half_t apply(From x) { return {_Float16(x)}; } };
template <class To> struct Convert<To, bhalf_t> {
  static To apply(bhalf_t x) { uint32 y = uint32(x.bits) << 16; float f; memcpy(&f, &y, 4); return To(f); }
};
template <class From> struct Convert<bhalf_t, From> {
  static bhalf_t apply(From x) {
    float f = float(x); uint32 y; memcpy(&y, &f, 4);
    return {uint16((y + 0x7fff + (y >> 16 & 1)) >> 16)};
  }
};
template <class R, class S> struct Convert<complex_t<R>, complex_t<S>> {
  static complex_t<R> apply(complex_t<S> x) { return {R(x.re), R(x.im)}; }
};
template <class To, class From> To convert(From x) { return Convert<To, From>::apply(x); }
}
inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
template <class T> std::vector<T> read_all(int count) {
  std::vector<T> x(count + 1);
  if (std::fread((void*)&x[0], sizeof(T), count, stdin) != size_t(count)) std::exit(1);
  return x;
}
"""


@dataclass(frozen=True)
class Case:
    """An expression with its types and data."""

    expression: Expression
    types: tuple[str, ...]
    d: Any
    extras: tuple[Any, ...]


def make_case(function: Any, d: Any, *args: Any) -> Case:
    expression = trace(function, [x.ndim for x in args])
    used = [args[x.argument] for x in expression.extras]
    types = value_types(expression, d.dtype.name, [x.dtype.name for x in used])
    kept = [x.astype(t) for x, t in zip(used, types[1:], strict=False)]
    return Case(expression, types, d, tuple(kept))


def cpp(dtype: str) -> str:
    return "bool" if dtype == "bool" else cpp_type(dtype)


def run_on_host(tmp: Path, cases: Sequence[Case]) -> list[Any]:
    """What the printed functors give for each case, all in one program."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no compiler for the host")
    text, body, data = PRELUDE, "", b""
    for i, case in enumerate(cases):
        text += f"namespace case{i} {{\n{print_functor(case.expression, case.types, cpp_type)}}}\n"
        inputs = [case.d, *case.extras]
        reads, arguments = "", []
        for n, x in enumerate(inputs):
            # std::vector<bool> has no addresses.
            kind = cpp(x.dtype.name) if x.dtype != bool else "gett::uint8"
            reads += f"    auto a{n} = read_all<{kind}>({case.d.size});\n"
            arguments.append(f"a{n}[i]")
            data += np.ascontiguousarray(np.broadcast_to(x, case.d.shape)).tobytes()
        result = cpp(case.types[case.expression.result])
        body += f"  {{\n{reads}    for (int i = 0; i < {case.d.size}; ++i) {{\n"
        body += f"      const {result} y = case{i}::EpilogueOp::apply({', '.join(arguments)});\n"
        body += "      std::fwrite(&y, sizeof(y), 1, stdout);\n    }\n  }\n"
    source, program = tmp / "program.cpp", tmp / "program"
    source.write_text(f"{text}int main() {{\n{body}}}\n")
    flags = ["-std=c++17", "-O1", "-w", "-ffp-contract=off"]
    done = subprocess.run([compiler, *flags, str(source), "-o", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    out = subprocess.run([str(program)], input=data, capture_output=True, check=True).stdout
    found, at = [], 0
    for case in cases:
        dtype = np.dtype(case.types[case.expression.result])
        found.append(np.frombuffer(out, dtype, case.d.size, at).reshape(case.d.shape))
        at += case.d.size * dtype.itemsize
    assert at == len(out)
    return found


def expected(case: Case) -> Any:
    with np.errstate(all="ignore"):
        result = Evaluator(case.expression, case.types)(case.d, case.extras)
    return np.broadcast_to(result, case.d.shape)


def data(dtype: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(96) < 0.5
    if kind in "iu":
        found = rng.integers(0 if kind == "u" else -50, 50, 96).astype(dtype)
        found[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
        return found
    if kind == "c":
        return (rng.normal(0, 2, 96) + 1j * rng.normal(0, 2, 96)).astype(dtype)
    found = rng.normal(0, 2, 96).astype(dtype)
    found[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5
    return found


def test_each_operation_in_each_type(tmp_path: Path) -> None:
    cases, names = [], []
    for name, operation in OPERATIONS.items():
        for dtype in ACCUMULATORS:
            if operation.form(kind_of(dtype)) is None:
                continue
            operands = [data(dtype, i) for i in range(operation.arity)]
            own = 1 if operation.condition else 0
            if operation.condition:
                operands[0] = data("bool", 9)

            def function(d: Any, *args: Any, name: str = name, own: int = own) -> Any:
                return getattr(ops, name)(*args[:own], d, *args[own:])

            cases.append(make_case(function, operands[own], *operands[:own], *operands[own + 1 :]))
            names.append((name, dtype))
    found = run_on_host(tmp_path, cases)
    for (name, dtype), case, values in zip(names, cases, found, strict=True):
        wanted = expected(case)
        if name in EXACT or kind_of(dtype) in "biu" or (name in ("multiply", "divide") and kind_of(dtype) == "f"):
            np.testing.assert_array_equal(values, wanted, err_msg=f"{name} {dtype}")
            continue
        kept = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isfinite(values), kept, err_msg=f"{name} {dtype}")
        eps = np.finfo(dtype).eps
        assert (abs(values[kept] - wanted[kept]) <= 6 * eps * abs(wanted[kept])).all(), (name, dtype)
    assert len(cases) > 150


def test_casts_constants_and_mixed_types(tmp_path: Path) -> None:
    x, y, z = data("float32", 1), data("float64", 2), data("complex128", 3)
    n, t = data("int32", 4), data("bool", 5)
    small = np.where(np.isfinite(x), x, 3)
    cases = [
        make_case(lambda d: ops.cast(d, "float16"), x),
        make_case(lambda d: ops.cast(d, "bfloat16") * 3, small),
        make_case(lambda d: ops.cast(d, "int8") + 0.5, small),
        make_case(lambda d: ops.cast(d, "float64") - ops.cast(d, "float32"), small),
        make_case(lambda d: ops.cast(ops.cast(d, bool), "float16") + d, x),
        make_case(lambda d: ops.cast(d, "float32"), y),
        make_case(lambda d: ops.cast(d, "complex64") + ops.cast(d, bool), z),
        make_case(lambda d: ops.cast(d.real, "complex64") * ops.cast(d.imag, "float32"), z),
        make_case(lambda d: ops.cast(d, "int8") + ops.cast(d, "uint16") + ops.cast(d, "int64"), n),
        make_case(lambda d: np.where(d > np.inf, -np.inf, np.nan) + 0 * d, x),
        make_case(lambda d: np.where(d > -np.inf, d, np.nan) * 1e300, x),
        make_case(lambda d: np.where(d > 0, np.inf, -np.inf) + np.nan * d, y),
        make_case(lambda d: d + 0.1 + (2.0**-140), x),
        make_case(lambda d: d * (0.1 + 2j) + 3, z),
        make_case(lambda d: d - (-(2**31)) + (2**31 - 1), n),
        make_case(lambda d: d - (-(2**63)), n.astype(np.int64)),
        make_case(lambda d: d ^ (2**64 - 1), n.astype(np.uint64)),
        make_case(lambda d, m, r: np.where(m, d, r) * r + m, z, t, small.astype(np.float64)),
        make_case(lambda d, m, k: d + m - k, x, t, n),
        make_case(lambda d, m: (d > 0) + (d < 1) * m - (d == 0), x, t),
        make_case(lambda d, m: (d & m) | (~d ^ m) | (d == True), t, data("bool", 6)),  # noqa: E712
        make_case(lambda d: 2.5, x),
        make_case(lambda d, m: ~m, x, t),
    ]
    for case, found in zip(cases, run_on_host(tmp_path, cases), strict=True):
        wanted = expected(case)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted), err_msg=str(case.expression))
        rtol = 0 if found.dtype.kind in "biu" else 4 * np.finfo(found.dtype).eps
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol, err_msg=str(case.expression))


def test_composed_functions(tmp_path: Path) -> None:
    cases = []
    for dtype in ("float32", "float64"):
        x = np.linspace(-8, 8, 401).astype(dtype)
        cases += [
            make_case(function, x)
            for function in (
                ops.relu, ops.sigmoid, ops.silu, ops.gelu, lambda d: ops.gelu(d, "tanh"), ops.square,
                lambda d: ops.clip(d, -1, 3), lambda d: d**5 + (d + 20) ** -2 + abs(d) ** 0.5,
            )
        ]  # fmt: skip
    for case, found in zip(cases, run_on_host(tmp_path, cases), strict=True):
        eps = 16 * np.finfo(found.dtype).eps
        np.testing.assert_allclose(found, expected(case), rtol=eps, atol=eps, err_msg=str(case.expression))


def test_random_functions_of_small_integers_have_the_same_bits(tmp_path: Path) -> None:
    """Sums and products of small integers are exact, so no order of rounding can tell the two apart."""
    rng = random.Random(0)
    cases = []
    for number in range(80):
        dtype = rng.choice(["int32", "int64", "float32", "float64", "complex128"])
        kind = kind_of(dtype)
        names = ["add", "subtract", "multiply", "where", "equal", "negative", "conj", "real"]
        names += ["maximum", "minimum", "less", "abs", "sign"] if kind != "c" else ["imag"]
        steps = [(rng.choice(names), [rng.randrange(99) for _ in range(3)]) for _ in range(rng.randrange(1, 9))]
        constants = [rng.randrange(-3, 4) for _ in range(2)]

        def function(d: Any, x: Any, m: Any, steps: Any = steps, constants: Any = constants) -> Any:
            found = [d, x, m + constants[0], d - constants[1]]
            for name, picks in steps:
                operands = [found[i % len(found)] for i in picks[: OPERATIONS[name].arity]]
                if name == "where":
                    operands[0] = operands[0] == 1
                made = getattr(ops, name)(*operands)
                # Products of products would leave what float32 holds exactly.
                if name == "multiply" and not isinstance(made, bool):
                    made = ops.where(operands[0] == operands[1], made, operands[0])
                found.append(made)
            return found[-1]

        def integers(seed: int, low: int = -2, dtype: str = dtype) -> Any:
            return np.random.default_rng(seed).integers(low, 3, 50).astype(dtype)

        cases.append(make_case(function, integers(number), integers(number + 100), data("bool", number)[:50]))
    for case, found in zip(cases, run_on_host(tmp_path, cases), strict=True):
        np.testing.assert_array_equal(found, expected(case), err_msg=str(case.expression))


def test_helpers_are_printed_once_and_only_where_they_are_called() -> None:
    z, x = data("complex64", 1), data("float32", 1)
    case = make_case(lambda d: 1 / (d / (d + 1)) + np.sqrt(d) * np.sqrt(d + 2), z)
    text = print_functor(case.expression, case.types, cpp_type, "Op")
    assert text.count("complex_divide(C a, C b)") == 1
    assert text.count("complex_sqrt(C z)") == 1
    assert "struct Op {" in text
    case = make_case(lambda d: 1 / np.sqrt(d), x)
    assert "complex" not in print_functor(case.expression, case.types, cpp_type)
