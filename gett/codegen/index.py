"""The index expression: the only intermediate form between a layout and CUDA text.

An `Expr` evaluates in Python (tests compare it with `layouts.Box`) and prints as C++ (the kernels run it). Knows
integers and parameter slots; knows no einsum, no tile sizes, no driver.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Expr:
    """An integer (or truth) valued expression.

    Attributes:
        op: `const`, `var`, `param` (a run-time parameter), `add`, `mul`, `div`, `mod`, `lt`, `and`.
        args: Operands; for leaves the value, the name, or (C++ spelling, value for this plan).
    """

    op: str
    args: tuple[Expr | int | str, ...]

    def __add__(self, other: Expr) -> Expr:
        if self == ZERO:
            return other
        return self if other == ZERO else Expr("add", (self, other))

    def __mul__(self, other: Expr) -> Expr:
        if ZERO in (self, other):
            return ZERO
        if self == ONE:
            return other
        return self if other == ONE else Expr("mul", (self, other))

    def __floordiv__(self, other: Expr) -> Expr:
        return self if other == ONE else Expr("div", (self, other))

    def __mod__(self, other: Expr) -> Expr:
        return ZERO if other == ONE else Expr("mod", (self, other))

    def less(self, other: Expr) -> Expr:
        """Truth of `self < other`."""
        return Expr("lt", (self, other))

    def both(self, other: Expr) -> Expr:
        """Truth of both."""
        if self == TRUE:
            return other
        return self if other == TRUE else Expr("and", (self, other))

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Value with variables taken from `env` and parameters from the plan; arrays of integers give arrays."""
        if self.op == "const":
            return int(self.args[0])  # type: ignore[arg-type]
        if self.op == "var":
            return env[str(self.args[0])]
        if self.op == "param":
            return int(self.args[1])  # type: ignore[arg-type]
        x, y = (a.evaluate(env) if isinstance(a, Expr) else int(a) for a in self.args)
        match self.op:
            case "add":
                return x + y
            case "mul":
                return x * y
            case "div":
                return x // y
            case "mod":
                return x % y
            case "lt":
                return (x < y) * 1
            case _:
                return ((x != 0) & (y != 0)) * 1

    def to_cpp(self) -> str:
        """The expression as C++; products are widened where a stride takes part."""
        if self.op in ("const", "var", "param"):
            text = str(self.args[0])
            return f"p.{text}.d" if self.op == "param" and text.startswith("f[") else _leaf(self.op, text)
        x, y = self.args
        assert isinstance(x, Expr)
        assert isinstance(y, Expr)
        if self.op in ("div", "mod") and y.op == "param":
            name = "fast_div" if self.op == "div" else "fast_mod"
            return f"gett::{name}({x.to_cpp()}, p.{y.args[0]})"
        if self.op == "mul" and y.op == "param":
            return f"gett::wide({x.to_cpp()}, {y.to_cpp()})"
        sign = {"add": "+", "mul": "*", "div": "/", "mod": "%", "lt": "<", "and": "&&"}[self.op]
        return f"({x.to_cpp()} {sign} {y.to_cpp()})"


def _leaf(op: str, text: str) -> str:
    return f"p.{text}" if op == "param" else text


def const(value: int) -> Expr:
    """A literal."""
    return Expr("const", (value,))


def var(name: str) -> Expr:
    """A C++ variable of type int."""
    return Expr("var", (name,))


ZERO, ONE = const(0), const(1)
TRUE = ONE


@dataclass
class ParamTable:
    """Run-time parameters of one kernel: strides, divisors and counts, in the order in which they were asked for.

    Values that shape the text (0 and 1) become literals; all else is a slot, so that one kernel serves many extents.
    """

    strides: list[int] = field(default_factory=list)
    divisors: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def stride(self, value: int) -> Expr:
        """A stride in elements."""
        if value in (0, 1):
            return const(value)
        self.strides.append(value)
        return Expr("param", (f"s[{len(self.strides) - 1}]", value))

    def divisor(self, value: int) -> Expr:
        """A positive number below 2**31 that others are divided by (multiplication by its reciprocal)."""
        if value == 1:
            return ONE
        self.divisors.append(value)
        return Expr("param", (f"f[{len(self.divisors) - 1}]", value))

    def count(self, value: int) -> Expr:
        """Any other number below 2**31."""
        self.counts.append(value)
        return Expr("param", (f"i[{len(self.counts) - 1}]", value))

    @property
    def wide(self) -> bool:
        """Whether strides need 64 bits."""
        return any(abs(s) >= 2**31 for s in self.strides)

    def declare(self) -> str:
        """Members of the C++ struct, in the order of `pack`."""
        kind = "long long" if self.wide else "int"
        return (
            f"  {kind} s[{max(1, len(self.strides))}];\n"
            f"  gett::FastDiv f[{max(1, len(self.divisors))}];\n"
            f"  int i[{max(1, len(self.counts))}];\n"
        )

    def pack(self) -> bytes:
        """The members' bytes."""
        strides = self.strides or [0]
        out = struct.pack(f"<{len(strides)}{'q' if self.wide else 'i'}", *strides)
        for d in self.divisors or [1]:
            out += struct.pack("<III", *magic(d))
        counts = self.counts or [0]
        return out + struct.pack(f"<{len(counts)}i", *counts)


def magic(d: int) -> tuple[int, int, int]:
    """(d, multiplier, shift) such that `n // d == (umulhi(n, multiplier) + n) >> shift` for 0 <= n < 2**31.

    Source: Granlund and Montgomery, Division by invariant integers using multiplication, 1994, figure 4.1.
    """
    if not 1 <= d < 2**31:
        raise ValueError(f"divisor {d} is out of range")
    shift = (d - 1).bit_length()
    return d, ((1 << 32) * ((1 << shift) - d)) // d + 1, shift


@dataclass(frozen=True, slots=True)
class Function:
    """A device function made of index statements.

    Attributes:
        name: C++ name.
        inputs: Names of its int arguments.
        body: Statements (C++ type, name, value), in order.
        outputs: (member of the result, value); a single output named "" makes a plain return value.
        result: C++ type of the result.
    """

    name: str
    inputs: tuple[str, ...]
    body: tuple[tuple[str, str, Expr], ...]
    outputs: tuple[tuple[str, Expr], ...]
    result: str
    extra: str = ""

    def evaluate(self, **inputs: int) -> dict[str, int]:
        """Run it in Python."""
        env = dict(inputs)
        for _, name, value in self.body:
            env[name] = value.evaluate(env)
        return {name: value.evaluate(env) for name, value in self.outputs}

    def to_cpp(self) -> str:
        """Its definition."""
        args = "".join(f", int {name}" for name in self.inputs)
        lines = [f"  static GETT_DEVICE {self.result} {self.name}(const Params& p{self.extra}{args}) {{"]
        lines += [f"    const {kind} {name} = {value.to_cpp()};" for kind, name, value in self.body]
        if len(self.outputs) == 1 and not self.outputs[0][0]:
            lines.append(f"    return {self.outputs[0][1].to_cpp()};")
        else:
            lines.append(f"    return {{{', '.join(value.to_cpp() for _, value in self.outputs)}}};")
        return "\n".join([*lines, "  }"])
