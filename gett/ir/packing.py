"""Contractions in pieces, with dense copies of tensors in which the batch modes come last: what is computed.

Owns the layout of the copies and what copies them. Where the unit stride of a tensor lies in a batch mode, a row of its
matrices is spread over memory; in the copy it is contiguous. Knows neither tiles nor devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import itemsize
from gett.ir.tensors import ALIGNMENT_LIMIT

Cuts = tuple[tuple[int, int], ...]
"""Modes of the result, slowest piece first, and the length of a piece along each."""

BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
"""What elements are copied as, by their bytes: no value is converted, whatever its bits say."""

PADDED_ROW = 64  # bytes from which a row of a copy is padded to 16: a shorter one would grow by more than a quarter


def batch_modes(c: Contraction) -> tuple[int, ...]:
    """The modes of A, B and D that vary in all three, slowest in D first."""
    if c.b is None:
        return ()
    found = [m for m in c.d.modes if c.extents[m] > 1 and c.a.stride(m) and c.b.stride(m)]
    return tuple(sorted(found, key=lambda m: -abs(c.d.stride(m))))


def batch_nearest(c: Contraction, operand: Operand) -> bool:
    """Whether the mode along which a tensor's neighbours lie is a batch mode."""
    varying = [m for m, s in zip(operand.modes, operand.strides, strict=True) if s and c.extents[m] > 1]
    return bool(varying) and min(varying, key=lambda m: abs(operand.stride(m))) in batch_modes(c)


def count_pieces(c: Contraction, cuts: Cuts) -> int:
    """How many pieces there are."""
    return math.prod(c.extents[m] // length for m, length in cuts)


def piece_starts(c: Contraction, cuts: Cuts, operand: Operand) -> Iterator[int]:
    """Bytes from a tensor to its share of each piece."""
    steps = [range(0, c.extents[m], length) for m, length in cuts]
    for at in itertools.product(*steps):
        yield sum(operand.stride(m) * i for (m, _), i in zip(cuts, at, strict=True))


def count_copies(c: Contraction, cuts: Cuts, operand: Operand) -> int:
    """How often a tensor is copied: for each piece whose share of it is not that of the piece before."""
    starts = list(piece_starts(c, cuts, operand))
    return 1 + sum(x != y for x, y in itertools.pairwise(starts))


def piece_of(c: Contraction, cuts: Cuts) -> Contraction:
    """The contraction of one piece, with the alignment that the tensors' shares have in all of them."""
    lengths = dict(cuts)

    def aligned(x: Operand) -> Operand:
        steps = (abs(x.stride(m)) * length for m, length in cuts if c.extents[m] > length)
        return replace(x, alignment=math.gcd(x.alignment, *steps))

    extents = tuple(lengths.get(m, e) for m, e in enumerate(c.extents))
    return replace(c, extents=extents, a=aligned(c.a), b=c.b and aligned(c.b), d=aligned(c.d))


def packed_operand(c: Contraction, operand: Operand) -> Operand:
    """A tensor's dense copy: batch modes slowest, in an order that all copies share, the others as they lie.

    Rows of `PADDED_ROW` bytes or more begin at multiples of 16 bytes, so that tensor maps move them.
    """
    batch = [m for m in batch_modes(c) if m in operand.modes]
    free = [m for m in operand.modes if m not in batch]
    order = [*sorted(free, key=lambda m: abs(operand.stride(m))), *reversed(batch)]
    strides, step = {}, itemsize(operand.dtype)
    for m in order:
        strides[m] = step
        step *= c.extents[m]
        if step >= PADDED_ROW:
            step = -(-step // ALIGNMENT_LIMIT) * ALIGNMENT_LIMIT
    return replace(operand, strides=tuple(strides[m] for m in operand.modes), alignment=ALIGNMENT_LIMIT)


def packed_bytes(c: Contraction, packed: Operand) -> int:
    """Bytes of a copy, padding included."""
    last = sum(s * (c.extents[m] - 1) for m, s in zip(packed.modes, packed.strides, strict=True))
    return last + itemsize(packed.dtype)


def copy_of(c: Contraction, source: Operand, target: Operand) -> Contraction:
    """What copies a tensor of a contraction from one layout to another, bit by bit."""
    bits = BITS[itemsize(source.dtype)]
    modes = tuple(range(len(source.modes)))

    def place(x: Operand) -> Operand:
        return Operand(modes, tuple(x.stride(m) for m in source.modes), bits, x.alignment)

    names, extents = tuple(c.names[m] for m in source.modes), tuple(c.extents[m] for m in source.modes)
    return Contraction(names, extents, place(source), None, place(target), None, bits)


def packed_contraction(c: Contraction, packed: Sequence[Operand | None]) -> Contraction:
    """The contraction with copies in the places of A, B and D, where there are any."""
    a, b, d = packed
    return replace(c, a=a or c.a, b=b or c.b, d=d or c.d)
