"""Running executables on scratch tensors: do they agree, and how long do they take.

Owns the tensors, laid out exactly as the plan says, gaps, negative strides and misaligned addresses included. The clock
is `gett.measure.timer`'s. Works on copies of its own, never on a user's arrays. Knows no schedule and no store; CuPy is
handed to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gett.errors import OutOfMemoryError
from gett.ir.contraction import Operand
from gett.ir.gemm import GemmPlan, itemsize
from gett.ir.tensors import ALIGNMENT_LIMIT
from gett.measure.timer import EventTimer, sets_to_rotate

Run: TypeAlias = Callable[..., object]
"""Called with (a, b, c, d, alpha, beta) and, where there is an epilogue, what it reads; a tensor has an address."""

PATTERN = 1_000_003  # elements; a prime, so that copies of it meet no tile at the same place
ALLOCATION = 256  # what the addresses of allocations are multiples of
BUDGET_US = 20_000.0  # device time for one round of one candidate
EXACT = 1 << 24  # sums of integers below it are exact in float32, in any order


@dataclass(frozen=True, slots=True)
class Span:
    """Where a tensor lies in a buffer of its own.

    Attributes:
        first: Bytes from the buffer's start to the element at coordinate 0.
        size: Bytes of the buffer.
    """

    first: int
    size: int


def span_of(operand: Operand, extents: Sequence[int]) -> Span:
    """A buffer for a tensor, in which the element at coordinate 0 has exactly the planned alignment.

    Plans look at no more than 16 bytes (`ALIGNMENT_LIMIT`); what has them usually starts an allocation.
    """
    reach = [s * (extents[m] - 1) for m, s in zip(operand.modes, operand.strides, strict=True)]
    below, above = -sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    first = -(-below // ALLOCATION) * ALLOCATION + (operand.alignment if operand.alignment < ALIGNMENT_LIMIT else 0)
    return Span(first, first + above + itemsize(operand.dtype))


def pattern(dtype: str, seed: int, *, most: int = 0, count: int = PATTERN) -> Any:
    """Bytes of random elements: integers of at most `most` in absolute value, or with 0 values all over [-1, 1).

    Args:
        dtype: NumPy dtype name, or `"bfloat16"`. Types without fractions get integers in any case; unsigned ones none
            below 0; complex ones in both parts.
        seed: Of the generator.
        most: Largest integer.
        count: Elements.
    """
    rng = np.random.default_rng(seed)
    kind = "f" if dtype == "bfloat16" else np.dtype(dtype).kind
    parts = 2 if kind == "c" else 1
    values: Any
    if kind == "b":
        values = rng.random(count) < 0.5
    elif most or kind in "iu":
        values = rng.integers(0 if kind == "u" else -(most or 2), (most or 2) + 1, count * parts)
    else:
        values = rng.random(count * parts, np.float32) * 2 - 1
    if dtype == "bfloat16":  # the upper half of a float32
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return values.astype(real).view(np.uint8)


class Bench:
    """Scratch tensors of one plan on the current device.

    Small tensors have several copies, which are used in turn. So a candidate finds nothing in the L2 cache that a first
    call would not.

    Args:
        cupy: The CuPy module.
        plan: What the executables compute.
        l2_bytes: Size of the cache that the sets must overflow; 0 for a single set.

    Raises:
        OutOfMemoryError: The device has no room for a copy of the tensors; the text gives the bytes.
    """

    def __init__(self, cupy: Any, plan: GemmPlan, l2_bytes: int) -> None:
        self._cupy, self._plan = cupy, plan
        c = plan.contraction
        self._operands = (c.a, c.b, c.c, c.d, *c.extras)
        self._spans = tuple(None if o is None else span_of(o, c.extents) for o in self._operands)
        total = sum(s.size for s in self._spans if s is not None)
        count = sets_to_rotate(total, l2_bytes)
        needed = count * total + self._size_d
        try:
            self._buffers = [self._allocate() for _ in range(count)]
            self._reference = cupy.empty(self._size_d, np.uint8)
        except MemoryError as error:
            raise OutOfMemoryError(
                f"tuning needs {needed} bytes of device memory beside the operands: {error}"
            ) from error
        self._sets = [tuple(map(self._start, self._spans, buffers)) for buffers in self._buffers]
        self._timer = EventTimer(cupy, count, budget_us=BUDGET_US, fewest=3, give_up_us=math.inf)
        self._beta = 0 if c.c is None else 1  # with 0 a kernel would not read C

    @property
    def sets(self) -> int:
        """How many copies of the tensors take turns."""
        return len(self._sets)

    def agreeing(self, runs: Sequence[Run]) -> list[int]:
        """The largest group of runs that give the same bits on integers, by position; the earlier of equal groups.

        Sums of integers do not depend on their order as long as they are exact, so every right kernel gives the same.
        What lies between D's elements is compared too.
        """
        self._fill(self._magnitude())
        rest = list(range(len(runs)))
        while rest:
            leader = rest[0]
            self._result(runs[leader])
            self._reference[...] = self._buffers[0][3]
            same = [leader]
            for i in rest[1:]:
                self._result(runs[i])
                if not bool((self._words(self._reference) != self._words(self._buffers[0][3])).any()):
                    same.append(i)
            rest = [i for i in rest if i not in same]
            if len(same) >= len(rest):
                return same
        return []

    def shuffle(self) -> None:
        """Fill the operands with values of every magnitude: power, and with it the clock, depends on the data."""
        self._fill(0)

    def time(self, run: Run, repeat: int) -> float:
        """Median microseconds of a run on the device.

        Args:
            run: Asynchronous.
            repeat: Most repetitions; slow runs get fewer, at least 3.
        """
        return statistics.median(self._timer.times(lambda i: self._call(run, i), repeat))

    def _call(self, run: Run, i: int) -> None:
        tensors, extras = self._sets[i][:4], self._sets[i][4:]
        run(*tensors, 1, self._beta, *([extras] if extras else []))

    def _result(self, run: Run) -> None:
        """Run once over a D of ones in all bits, so that what is left out shows."""
        self._buffers[0][3][...] = 0xFF
        self._call(run, 0)

    def _magnitude(self) -> int:
        """Largest integers whose sums stay exact; long sums of signs do, since they cancel."""
        return 2 if 8 * self._plan.extent_k <= EXACT else 1

    def _fill(self, most: int) -> None:
        cupy = self._cupy
        for position, operand in enumerate(self._operands):
            if operand is None or position == 3:
                continue
            source = cupy.asarray(pattern(operand.dtype, position + 1, most=most))
            # Elements stay whole: the pattern starts where the element at coordinate 0 is a whole number away.
            for buffers, span in ((b, s) for b in self._buffers if (s := self._spans[position]) is not None):
                skip = span.first % itemsize(operand.dtype)
                for at in range(skip, span.size, source.size):
                    length = min(source.size, span.size - at)
                    buffers[position][at : at + length] = source[:length]

    @property
    def _size_d(self) -> int:
        """Bytes of D's buffer, whole words."""
        span = self._spans[3]
        assert span is not None
        return -(-span.size // 4) * 4

    def _allocate(self) -> tuple[Any, ...]:
        sizes = [None if s is None else s.size for s in self._spans]
        sizes[3] = self._size_d
        return tuple(None if n is None else self._cupy.empty(n, np.uint8) for n in sizes)

    @staticmethod
    def _start(span: Span | None, buffer: Any) -> Any:
        return None if span is None else buffer[span.first :]

    @staticmethod
    def _words(buffer: Any) -> Any:
        return buffer.view(np.uint32)
