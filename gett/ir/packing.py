"""Contractions in pieces, with dense copies of tensors: what is computed.

Owns the layout of the copies and what copies them. In a copy the batch modes come last. Rows are contiguous and begin
at multiples of 16 bytes, long ones of 32, wherever they lay before. Knows neither tiles nor devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import itemsize
from gett.ir.tensors import ALIGNMENT_LIMIT
from layouts.rates import SECTOR

Cuts = tuple[tuple[int, int], ...]
"""Modes of the result, slowest piece first, and the length of a piece along each.

Where lengths do not divide an extent, the last piece overlaps the one before: the same results are stored twice.
"""

BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
"""What elements are copied as, by their bytes: no value is converted, whatever its bits say."""
WORD = max(BITS)

LONG_ROW = 256  # bytes from which rows of a copy begin at sectors, within which they would be moved more slowly
PADDED_ROW = 64  # bytes from which a row of a copy is long enough for tensor maps to move it at their rate


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
    return math.prod(-(-c.extents[m] // length) for m, length in cuts)


def _starts(extent: int, length: int) -> list[int]:
    """Where pieces of equal length begin: the last one ends with the mode, and may overlap the one before."""
    return [min(i, extent - length) for i in range(0, extent, length)]


def piece_starts(c: Contraction, cuts: Cuts, operand: Operand) -> Iterator[int]:
    """Bytes from a tensor to its share of each piece."""
    steps = [_starts(c.extents[m], length) for m, length in cuts]
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
        starts = (abs(x.stride(m)) * i for m, length in cuts for i in _starts(c.extents[m], length))
        return replace(x, alignment=math.gcd(x.alignment, *starts))

    extents = tuple(lengths.get(m, e) for m, e in enumerate(c.extents))
    return replace(c, extents=extents, a=aligned(c.a), b=c.b and aligned(c.b), d=aligned(c.d))


def packed_operands(c: Contraction, names: Sequence[str]) -> dict[str, Operand]:
    """The dense copies of the tensors of these names, of `a`, `b` and `d`.

    Batch modes are slowest, in an order that all share. Then come those of one group, then those of another. Rows begin
    at multiples of 16 bytes, long ones of 32, so that tensor maps move them. Groups are in an order in which they fuse
    with those of the tensors that are not copied.
    """
    assert c.b is not None
    tensors = {"a": c.a, "b": c.b, "d": c.d}
    batch = batch_modes(c)
    free_a = [m for m in c.d.modes if c.a.stride(m) and m not in batch]
    free_b = [m for m in c.d.modes if m not in batch and m not in free_a]
    sides = {"a": _Group(c, free_a, _leader(tensors, names, "d", "a"))}
    sides["b"] = _Group(c, free_b, _leader(tensors, names, "d", "b"))
    summed = {name: _Group(c, c.summed, _leader(tensors, names, other, name)) for name, other in ("ab", "ba")}
    if "a" in names and "b" in names:
        summed["a"] = summed["b"] = _Group(c, c.summed, max(c.a, c.b, key=lambda x: _count(c, x)), fuses=True)
    pairs = {"a": (sides["a"], summed["a"]), "b": (sides["b"], summed["b"]), "d": (sides["a"], sides["b"])}
    by_k = c.precision == "tf32"  # wgmma takes words in rows along K
    return {name: _dense(c, tensors[name], pairs[name], batch, by_k and name != "d") for name in names}


def _leader(tensors: Mapping[str, Operand], names: Sequence[str], first: str, second: str) -> Operand:
    """The tensor whose order of modes two share: the one that is not copied, the first where both or none are."""
    return tensors[second if first in names and second not in names else first]


def _count(c: Contraction, operand: Operand) -> int:
    return math.prod(c.extents[m] for m in operand.modes)


class _Group:
    """Modes of one group in a tensor's order, the fastest first, and whether they fuse there."""

    def __init__(self, c: Contraction, modes: Sequence[int], leader: Operand, fuses: bool = False) -> None:
        self.modes = sorted(modes, key=lambda m: abs(leader.stride(m)) or math.inf)
        varying = [m for m in self.modes if c.extents[m] > 1]
        self.fuses = fuses or all(
            leader.stride(n) == leader.stride(m) * c.extents[m] for m, n in itertools.pairwise(varying)
        )

    def row(self, c: Contraction, x: Operand) -> int:
        """Bytes of the group's elements of a tensor."""
        return itemsize(x.dtype) * math.prod(c.extents[m] for m in self.modes if m in x.modes)


def _dense(c: Contraction, x: Operand, pair: tuple[_Group, _Group], batch: Sequence[int], second: bool) -> Operand:
    """A tensor with the batch modes slowest, and in its rows the second group of a pair or that of the nearest mode.

    The other one where that is too short, or where its modes do not fuse and the other's do.
    """
    inner, outer = pair
    varying = [m for group in pair for m in group.modes if m in x.modes and c.extents[m] > 1]
    if second or (varying and min(varying, key=lambda m: abs(x.stride(m))) in outer.modes):
        inner, outer = outer, inner
    if (inner.fuses, inner.row(c, x) >= PADDED_ROW) < (outer.fuses, outer.row(c, x) >= PADDED_ROW):
        inner, outer = outer, inner
    strides, step = {}, itemsize(x.dtype)
    for m in inner.modes:
        strides[m] = step
        step *= c.extents[m] if m in x.modes else 1
    if step > ALIGNMENT_LIMIT:
        whole = SECTOR if step >= LONG_ROW else ALIGNMENT_LIMIT
        step = -(-step // whole) * whole
    for m in (*outer.modes, *reversed(batch)):
        strides[m] = step
        step *= c.extents[m] if m in x.modes else 1
    # What is left has an extent of 1, in a piece of a batch mode.
    return replace(x, strides=tuple(strides.get(m, step) for m in x.modes), alignment=ALIGNMENT_LIMIT)


def packed_bytes(c: Contraction, packed: Operand) -> int:
    """Bytes of a copy, padding included."""
    last = sum(s * (c.extents[m] - 1) for m, s in zip(packed.modes, packed.strides, strict=True))
    return last + itemsize(packed.dtype)


def copy_of(c: Contraction, source: Operand, target: Operand) -> Contraction:
    """What copies a tensor of a contraction from one layout to another, bit by bit.

    Elements of two words have one more mode, that of their words.
    """
    size = itemsize(source.dtype)
    bits, words = BITS[min(size, WORD)], size // WORD if size > WORD else 1
    inner = (WORD,) if words > 1 else ()
    modes = tuple(range(len(source.modes) + len(inner)))

    def place(x: Operand) -> Operand:
        return Operand(modes, (*(x.stride(m) for m in source.modes), *inner), bits, x.alignment)

    names = (*(c.names[m] for m in source.modes), *("words" for _ in inner))
    extents = (*(c.extents[m] for m in source.modes), *(words for _ in inner))
    return Contraction(names, extents, place(source), None, place(target), None, bits)


def packed_contraction(c: Contraction, packed: Sequence[Operand | None]) -> Contraction:
    """The contraction with copies in the places of A, B and D, where there are any."""
    a, b, d = packed
    return replace(c, a=a or c.a, b=b or c.b, d=d or c.d)
