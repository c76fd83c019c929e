"""The index expression: the only intermediate form between a layout and CUDA text.

An `Expr` evaluates in Python (tests compare it with `layouts.Box`) and prints as C++ (the kernels run it). Knows
integers and parameter slots; knows no einsum, no tile sizes, no driver.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Expr:
    """An integer (or truth) valued expression."""

    op: str  # `const`, `var`, `param` (a run-time parameter), or one of `OPERATIONS`
    args: tuple[Expr, ...] = ()  # operands; none of a leaf
    text: str = ""  # C++ of a leaf
    value: int = 0  # of a literal, and of a parameter for this plan

    def __add__(self, other: Expr) -> Expr:
        if self == ZERO:
            return other
        return self if other == ZERO else Expr("add", (self, other))

    def __sub__(self, other: Expr) -> Expr:
        return self + Expr("mul", (const(-1), other))

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
        if not self.args:
            return env[self.text] if self.op == "var" else self.value
        x, y = (a.evaluate(env) for a in self.args)
        return OPERATIONS[self.op][1](x, y)

    def to_cpp(self) -> str:
        """The expression as C++; products are widened where a stride takes part."""
        if not self.args:
            return self.text
        x, y = self.args
        if self.op in ("div", "mod"):
            if y.op == "param":
                return f"gett::fast_{self.op}({x.to_cpp()}, {y.text.removesuffix('.d')})"
            return f"gett::tile_{self.op}<{y.to_cpp()}>({x.to_cpp()})"
        if self.op == "mul" and y.op == "param":
            return f"gett::wide({x.to_cpp()}, {y.to_cpp()})"
        return f"({x.to_cpp()} {OPERATIONS[self.op][0]} {y.to_cpp()})"


OPERATIONS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("+", operator.add),
    "mul": ("*", operator.mul),
    "div": ("/", operator.floordiv),
    "mod": ("%", operator.mod),
    "lt": ("<", lambda x, y: (x < y) * 1),
    "and": ("&&", lambda x, y: ((x != 0) & (y != 0)) * 1),
}
"""Sign and meaning of what joins two expressions; of arrays, too."""


def const(value: int) -> Expr:
    """A literal."""
    return Expr("const", (), str(value), value)


def var(name: str) -> Expr:
    """A C++ variable of type int."""
    return Expr("var", (), name)


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
        return Expr("param", (), f"p.s[{len(self.strides) - 1}]", value)

    def divisor(self, value: int) -> Expr:
        """A positive number below 2**31 that others are divided by (multiplication by its reciprocal)."""
        if value == 1:
            return ONE
        self.divisors.append(value)
        return Expr("param", (), f"p.f[{len(self.divisors) - 1}].d", value)

    def count(self, value: int) -> Expr:
        """Any other number below 2**31."""
        self.counts.append(value)
        return Expr("param", (), f"p.i[{len(self.counts) - 1}]", value)

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


Body = Sequence[tuple[str, str, Expr]]  # statements: C++ type, name, value


@dataclass(frozen=True, slots=True)
class Function:
    """A device function made of index statements."""

    name: str  # C++ name
    inputs: tuple[str, ...]  # names of its int arguments
    body: tuple[tuple[str, str, Expr], ...]  # statements (C++ type, name, value), in order
    # (member of the result, value); a single output named "" makes a plain return value.
    outputs: tuple[tuple[str, Expr], ...]
    result: str  # C++ type of the result
    extra: str = ""

    @staticmethod
    def of(name: str, body: Body, value: Expr, result: str, given: str = "local", extra: str = "") -> Function:
        """The function of one value, of one input unless that is empty."""
        return Function(name, (given,) if given else (), tuple(body), (("", value),), result, extra)

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
