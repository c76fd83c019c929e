"""A tile of D in shared memory as a tensor map takes it: order of the rows, swizzle, and how fragments get there.

The tile leaves by copies of rows of `row` elements; where rows lie is free but for the first dimension, and so is the
hardware's swizzle. Fragments are written in vectors of D's order where registers or `stmatrix` hold such vectors. Owns
the choice among these by bank conflicts and instructions; knows boxes and D's strides, no tensor map and no text.

Fragments (PTX ISA, wgmma accumulators): lane 4g + t of warp w holds rows 16w + g and 16w + g + 8 of each block of 64
rows, columns 8j + 2t and 8j + 2t + 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gett.schedule.records import StageSteps
from layouts.swizzle import CHUNK, replays, swizzle_address

SIZE = 2  # bytes of D's elements; wider ones take the general way
MAX_ROW = 256  # elements of a copy's first dimension
MAX_COPIES = 4  # copies of a tile
SETUP_CLOCKS = 200.0  # barriers, fences and the issue of the copy


@dataclass(frozen=True, slots=True)
class Dim:
    """A tiled dimension of D.

    Attributes:
        group: `"m"` or `"n"`.
        at: Position in the group's box.
        box: Elements of the tile along it.
        extent: Elements of the tensor along it.
        step: Elements between neighbours in D.
        prefix: Product of the boxes before it in its group.
    """

    group: str
    at: int
    box: int
    extent: int
    step: int
    prefix: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The accumulators' side: blocks of 64 rows of a warpgroup, warpgroups of a tile, rows and columns of the boxes.

    Attributes:
        blocks: Blocks of a warpgroup.
        groups: Warpgroups that share a tile.
        box_m, box_n: Rows and columns of the tile that are not padding.
        chunk: Rows of one slab of an MN-major A, 0 where A is K-major.
        run: Rows of each slab that hold something, 0 for all.
    """

    blocks: int
    groups: int
    box_m: int
    box_n: int
    chunk: int
    run: int

    @property
    def all(self) -> int:
        """Rows of the tile, padding included."""
        return 64 * self.blocks * self.groups


@lru_cache(maxsize=4096)
def box_stage(dims: tuple[Dim, ...], rows: Rows, counts: tuple[int, int]) -> tuple[StageSteps, float] | None:
    """The cheapest staging for copies by tensor map and its clocks for one tile, or None where D has no such rows.

    Args:
        dims: Tiled dimensions of D by their step.
        rows: The accumulators' side.
        counts: Dimensions of the boxes of M and N.
    """
    if not dims or dims[0].step != 1:
        return None
    put, vector, chunk = _way(dims[0], rows)
    if not vector:
        return None
    best: tuple[StageSteps, float] | None = None
    for row, span, inner in _spans(dims):
        others = dims[inner:]
        if any(d.step * SIZE % CHUNK for d in others):
            continue
        for tried, order in enumerate(itertools.permutations(others)):
            if tried >= 24:
                break
            steps, cut = _steps(dims[:inner], order, row)
            at = _Place(dims, steps, cut, span)
            wave = _served(at, rows, put, vector, chunk)
            clocks = _clocks(wave, rows, put, vector)
            if best is None or clocks < best[1] * 0.999:
                by = dict(zip(((d.group, d.at) for d in dims), steps, strict=True))
                step_m = tuple(by.get(("m", i), 0) for i in range(counts[0]))
                step_n = tuple(by.get(("n", i), 0) for i in range(counts[1]))
                elements = math.prod(d.box for d in dims)
                order_d = tuple((d.group, d.at) for d in (*dims[:inner], *order))
                best = (
                    StageSteps(step_m, step_n, elements, round(wave), put, vector, chunk, row, span, cut, order_d),
                    clocks,
                )
            if wave <= 1.0:
                break
        if best is not None and best[0].conflicts <= 1:
            break
    return best


def _way(unit: Dim, rows: Rows) -> tuple[str, int, int]:
    """(how fragments are written, elements at once, rows of an interleaved chunk or 64) for D's unit-stride dimension.

    The count is 0 where only single elements are neighbours.
    """
    whole_n = rows.box_n % 8 == 0
    if unit.group == "n":
        if unit.prefix == 1 and unit.box % 8 == 0:
            return ("rows", 8, 64) if whole_n else ("", 0, 64)
        v = math.gcd(unit.box, 8)
        return ("columns", v, 64) if unit.prefix % 8 == 0 and v > 1 and whole_n else ("", 0, 64)
    if unit.prefix == 1:
        return ("turned", 8, 64) if unit.box % 8 == 0 else ("", 0, 64)
    v = math.gcd(unit.box, math.gcd(rows.blocks, 8))
    if rows.run and rows.chunk < 64:
        return "", 0, 64
    if v > 1 and unit.prefix == (rows.run or 64):
        return "blocks", v, 64
    # A block takes chunks that are `blocks` apart, so that neighbours along D lie in one thread's registers.
    if v > 1 and 8 <= rows.chunk < 64 and unit.prefix == rows.chunk and rows.box_m == rows.all:
        return "blocks", v, rows.chunk
    return "", 0, 64


def _joined(dims: Sequence[Dim]) -> int:
    """How many dimensions make one run: each whole, and the next one continues it."""
    i, run = 1, dims[0].box
    while i < len(dims) and dims[i - 1].box == dims[i - 1].extent and dims[i].step == run:
        run *= dims[i].box
        i += 1
    return i


def _spans(dims: Sequence[Dim]) -> Iterator[tuple[int, int, int]]:
    """(elements of a copy's row, bytes of the swizzle, dimensions that make the run): the longest row first."""
    tile = math.prod(d.box for d in dims)
    joined = _joined(dims)

    def fit(row: int, align: int) -> int:
        """How many dimensions make the run that rows of `row` elements part, 0 where they part none well.

        A row ends between dimensions or inside one that it divides, copies are few and start where they may.
        """
        before = 1
        for i, d in enumerate(dims[:joined]):
            run = before * d.box
            if row <= run:
                good = row % before == 0 and run % row == 0 and run // row <= MAX_COPIES
                return i + 1 if good and (run == row or row * (tile // run) * SIZE % align == 0) else 0
            before = run
        return 0

    longest = min(math.prod(d.box for d in dims[:joined]), MAX_ROW)
    for row in range(longest - longest % (CHUNK // SIZE), 0, -(CHUNK // SIZE)):
        if inner := fit(row, 128):
            yield row, CHUNK, inner
            break
    for span in (128, 64, 32):
        if inner := fit(span // SIZE, 8 * span):
            yield span // SIZE, span, inner


def _steps(
    inner: Sequence[Dim], others: Sequence[Dim], row: int
) -> tuple[tuple[int, ...], tuple[str, int, int, int] | None]:
    """Elements between neighbours of each dimension (in D's order) and the dimension that a row's end cuts."""
    at: dict[Dim, int] = {}
    step = row
    for d in others:
        at[d] = step
        step *= d.box
    slab, before = step, 1
    cut: tuple[str, int, int, int] | None = None
    for d in inner:
        if before >= row:
            at[d] = slab * (before // row)
        else:
            at[d] = before
            if before * d.box > row:
                cut = (d.group, d.at, row // before, slab)
        before *= d.box
    return tuple(at[d] for d in sorted(at, key=lambda d: d.step)), cut


class _Place:
    """Byte of an element in the staged tile."""

    def __init__(
        self, dims: Sequence[Dim], steps: Sequence[int], cut: tuple[str, int, int, int] | None, span: int
    ) -> None:
        self.span = span
        self.parts: dict[str, list[tuple[int, int, int, int, int]]] = {"m": [], "n": []}
        for d, s in zip(dims, steps, strict=True):
            whole = cut is None or (d.group, d.at) != cut[:2]
            piece, far = (d.box, 0) if cut is None or whole else cut[2:]
            self.parts[d.group].append((d.prefix, d.box, piece, s, far))

    def part(self, group: str, x: int) -> int:
        """What index `x` of a group adds, in elements, before the swizzle."""
        total = 0
        for prefix, box, piece, step, far in self.parts[group]:
            c = x // prefix % box
            total += c % piece * step + c // piece * far
        return total

    def all(self, m: Sequence[int], n: Sequence[int]) -> list[int]:
        """Bytes of all pairs, `n` fastest."""
        columns = [self.part("n", x) for x in n]
        return [swizzle_address(self.span, (row + c) * SIZE) for row in (self.part("m", x) for x in m) for c in columns]


def _served(at: _Place, rows: Rows, put: str, vector: int, chunk: int) -> float:
    """Times that a phase of 128 bytes is served, on average over the writes of the first fragments."""
    width = vector * SIZE
    served: list[int] = []

    def row(x: int) -> int:
        if rows.run:
            return min(x, rows.run - 1)
        if chunk == 64:
            return x
        return (x // chunk * rows.blocks) * chunk + x % chunk

    eight = [row(g) for g in range(8)]
    for j in range(0, min(16, rows.box_n), 8):
        if put == "rows":
            served += replays(at.all(eight, [j]), 16)
        elif put == "turned":
            served += replays(at.all([0], range(j, j + 8)), 16)
        else:
            served += replays(at.all(eight, range(j, j + 8, 2)), width)
    return sum(served) / len(served)


def _clocks(wave: float, rows: Rows, put: str, vector: int) -> float:
    """Clocks of a tile: what shared memory and the issue slots take."""
    # Rows of padding leave lanes idle while their neighbours write.
    elements = rows.all * (-(-rows.box_n // 8) * 8)
    stores = elements * SIZE / 128 * wave
    slots = elements / 32 * (1.1 if put in ("rows", "turned") else 0.7 + 5.0 / vector) / 4
    return SETUP_CLOCKS + max(stores, slots) + 0.3 * min(stores, slots)
