"""Operands that `cp.async` brings to the tiles of a Hopper kernel where no tensor map can: needs, and rules."""

from __future__ import annotations

from collections.abc import Iterator

from gett.schedule.rules.gather import offsets
from gett.schedule.rules.rule import Lowered, rule
from gett.schedule.spec.hopper_needs import planes, up
from gett.schedule.spec.loader import CpAsyncTile, HopperLoader
from gett.schedule.spec.vectors import whole_vectors

DEEPEST_COPY = 32
"""Most k of a tile whose rows run along M or N: a bit each says which are part of K."""

COPYING = 128
"""Threads that copy the vectors of a tile by `cp.async`."""


def row_table_bytes(loader: HopperLoader, size: int, deep: int) -> int:
    """Shared memory for offsets in a tile that `cp.async` brings, `size` of its free group by `deep` k.

    It has one for each row, and one for each vector of a row.
    """
    if not loader.width:
        return 0
    rows, row = (up(size, 8), deep) if loader.major == "k" else (deep, up(size, 8))
    lanes = max(8, 1 << (row // loader.width - 1).bit_length())
    at_once = COPYING // lanes
    return 4 * (at_once * up(-(-rows // at_once), 4) + up(lanes, 4))


@rule
def vectors(x: Lowered) -> Iterator[str]:
    """A copy has 4, 8 or 16 bytes that are neighbours in memory and in a row, aligned wherever a tile starts."""
    for o, loader in x.brought_by(CpAsyncTile):
        size, vector = loader.vector * x.size, loader.vector
        if size not in (4, 8, 16):
            yield f"{vector} elements of operand {o.name} are {size} bytes"
        group, inner = (o.k, o.box_k) if loader.major == "k" else (o.free, o.box)
        if vector > 1 and not whole_vectors(o.operand, o.tensor, o.modes, group, inner, o.unit, vector):
            yield f"rows of operand {o.name} do not start and end at multiples of {size} bytes"


@rule
def rows(x: Lowered) -> Iterator[str]:
    """A thread has one vector of a row, whole chunks of which are swizzled."""
    deep = x.s.tiling.shape[2]
    for o, loader in x.brought_by(CpAsyncTile):
        row = deep if loader.major == "k" else up(o.box.size, 8)
        if row // loader.vector > COPYING:
            yield f"rows of {row} elements of operand {o.name}, {COPYING} threads copy {loader.vector} each"
        if row * x.size % loader.swizzle_bytes:
            yield f"{loader.swizzle_bytes} bytes do not divide rows of {row * x.size} bytes of operand {o.name}"
        if loader.major == "mn" and deep > DEEPEST_COPY:
            yield f"{deep} rows of operand {o.name}, the most are {DEEPEST_COPY}"


@rule
def copying(x: Lowered) -> Iterator[str]:
    """Planes are those of numbers as they are: warps that split scaled ones take registers of those that copy."""
    made = planes(x.plan)
    if x.s.hopper.by_warps and made is not None and made.scaled:
        yield f"planes of scaled {made.tensor.name}, {len(x.brought_by(CpAsyncTile))} operands by cp.async"


COPY_RULES = (vectors, rows, copying, offsets)
"""How operands travel by `cp.async`."""
