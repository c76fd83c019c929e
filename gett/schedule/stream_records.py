"""Records of the `stream` family: how each tensor of a bandwidth-bound plan is read, and who works on what.

Data only. Modes are positions in the merged output group (`output_modes`) or in the plan's K group; digits are
positions in a `Box`'s dimensions. Knows no text and no device.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.ir.gemm import GemmPlan
from layouts.modes import Strided


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a walk through a box: `size` steps of `step` elements along dimension `dim`."""

    dim: int
    step: int
    size: int


@dataclass(frozen=True, slots=True)
class Way:
    """How one tensor is read.

    Attributes:
        staged: Through shared memory, in the tensor's own order; else straight into registers in the walk's order.
        splat: The vector that a thread works on is one element, repeated.
        width: Elements per access, contiguous in memory.
        walk: Order in which a staged tile is read, fastest first.
        mask, shift: Swizzle of a staged tile, whose image is dense in D's order in rows of 128 bytes: the 16-byte
            chunks of a row are permuted by `(row >> shift) & mask`.
        shared: In sums: all outputs of a tile read the same elements.
    """

    staged: bool = False
    splat: bool = False
    width: int = 1
    walk: tuple[Digit, ...] = ()
    mask: int = 0
    shift: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """The part of a schedule that only this family has.

    Attributes:
        sums: Whether K is walked (extent above 1, or 0); else each output is one product.
        threads: Of a block.
        vector: Elements that a thread works on at a time: of D (no sums), or of the streamed operand.
        along_k: In sums: the vector lies along K, so the lanes of an output add up; else it is several outputs.
        lanes_k: In sums: threads along K.
        rows: In sums: vectors of outputs (single outputs if `along_k`) of each thread.
        unroll: In sums: steps of K that a thread has in flight; else vectors.
        a, b, c: Ways of the operands; None where there is none.
        walk_d: Order in which a tile is stored, fastest first.
    """

    sums: bool
    threads: int
    vector: int
    along_k: bool
    lanes_k: int
    rows: int
    unroll: int
    a: Way
    b: Way | None
    c: Way | None
    walk_d: tuple[Digit, ...]


def output_modes(plan: GemmPlan) -> tuple[Strided, ...]:
    """All modes of D: the groups l, m and n, which this family does not tell apart."""
    return (*plan.l, *plan.m, *plan.n)
