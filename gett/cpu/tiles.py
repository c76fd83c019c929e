"""Tiles as arithmetic: how many there are, and which indices each has, without a list of them.

Owns `Tiles` and how many elements one call of a NumPy function may go over. Knows neither modes nor arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Part = tuple[slice, ...]

#: Elements that one call of a NumPy function goes over at most. Ctrl-C is heard between two calls, and the slowest
#: functions take 5 ns an element: a tenth of a second. A call itself costs microseconds.
CALL = 1 << 24
#: Terms of a sum that one call adds at least, where D can be cut instead: each further call goes over D once more.
_TERMS = 256


@dataclass(frozen=True, slots=True)
class Tiles:
    """All indices of given extents, cut into blocks.

    Attributes:
        extents: Of all dimensions.
        blocks: Extent of a tile along each dimension; the last tile may be shorter.
    """

    extents: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of tiles; 0 where an extent is 0."""
        return math.prod(-(-n // b) if n else 0 for n, b in zip(self.extents, self.blocks, strict=True))

    def parts(self, first: int = 0, stop: int | None = None) -> Iterator[Part]:
        """The tiles numbered from `first` to `stop` as slices, the last dimension fastest."""
        count = self.count
        stop = count if stop is None else min(stop, count)
        if first >= stop:
            return
        starts, rest = [0] * len(self.extents), first
        several = [i for i, (n, b) in enumerate(zip(self.extents, self.blocks, strict=True)) if n > b][::-1]
        for i in several:
            rest, place = divmod(rest, -(-self.extents[i] // self.blocks[i]))
            starts[i] = place * self.blocks[i]
        part = [slice(i, min(i + b, n)) for i, b, n in zip(starts, self.blocks, self.extents, strict=True)]
        for _ in range(first + 1, stop):
            yield tuple(part)
            for i in several:  # as an odometer counts
                start, extent, block = part[i].stop, self.extents[i], self.blocks[i]
                if start < extent:
                    part[i] = slice(start, min(start + block, extent))
                    break
                part[i] = slice(0, block)
        yield tuple(part)


def call_blocks(extents: Sequence[int], strides: Sequence[int], kept: int, most: int | None = None) -> tuple[int, ...]:
    """Blocks of a bounded size, cut along the largest strides so that runs in memory stay long.

    Args:
        extents: Of the result's dimensions, then of the summed ones.
        strides: How far apart neighbours along each dimension lie in what is read.
        kept: Number of the result's dimensions.
        most: Elements of a block, by default `CALL`, which is the most in any case.
    """
    most = CALL if most is None else min(most, CALL)
    blocks = list(extents)
    order = sorted(range(len(blocks)), key=lambda i: -abs(strides[i]))
    while math.prod(blocks) > most:
        long = math.prod(blocks[kept:]) >= 2 * _TERMS
        able = [i for i in order if blocks[i] > 1]
        i = next((i for i in able if i < kept or long), able[0])
        blocks[i] = -(-blocks[i] // 2)
    return tuple(blocks)
