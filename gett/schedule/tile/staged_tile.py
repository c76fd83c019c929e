"""A tile of D in shared memory between wgmma's fragments and D's own order: places of the rows, swizzle, copies.

Where D leaves by tensor map, rows lie in any order but for the first dimension, and the hardware's swizzle is free
to choose; fragments are written in vectors of D's order where registers or `stmatrix` hold such vectors. Where it
leaves as vectors, its dimensions follow each other, with gaps between runs that would fall into one bank. Owns the
choice by bank conflicts and instructions; knows boxes and D's strides, no tensor map and no text.

Fragments (PTX ISA, wgmma accumulators): lane 4g + t of warp w holds rows 16w + g and 16w + g + 8 of each atom of 64
rows, columns 8j + 2t and 8j + 2t + 1.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gett.hw.dtypes import WORD
from gett.schedule.spec.epilogue import R2SCopy, StagedTile
from layouts.box import place_of
from layouts.swizzle import CHUNK, SWIZZLES, replays, swizzle_address
from layouts.tma import MAX_BOX, halves

MAX_COPIES = 4  # copies of a tile; of chunks, whose tiles are large, more
MAX_CHUNK_COPIES = 16
GAPS = (0, 8, 16, 24)  # elements between runs that leave as vectors
MAX_ORDERS = 24  # of D's slower dimensions that are tried
MATRIX_SLOTS = 1.1  # issue slots of 32 elements that `stmatrix` writes; vectors take more

TURN, TURN_SLOTS = 64, 1.5  # bytes by which lanes of odd rows write apart from even ones; selections for 32 elements

Cut = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class DimD:
    """A tiled dimension of D."""

    group: str  # `"m"` or `"n"`
    at: int  # position in the group's box
    box: int  # elements of the tile along it
    extent: int  # elements of the tensor along it
    step: int  # elements between neighbours in D
    prefix: int  # product of the boxes before it in its group

    @property
    def key(self) -> tuple[str, int]:
        """Group and position."""
        return self.group, self.at


@dataclass(frozen=True, slots=True)
class Accumulators:
    """What holds a tile: MMA atoms of 64 rows of a warpgroup, warpgroups of a tile, rows and columns of the boxes."""

    mma_m: int  # MMA atoms of a warpgroup along M
    warpgroups: int  # warpgroups that share a tile
    box_m: int  # rows and columns of the tile that are not padding
    box_n: int
    atom: int  # rows of one swizzle atom of an MN-major A, 0 where A is K-major
    run: int  # rows of each atom that hold something, 0 for all
    size: int  # bytes of an element of D

    @property
    def rows(self) -> int:
        """Rows of the tile, padding included."""
        return 64 * self.mma_m * self.warpgroups

    def row(self, x: int, copy: R2SCopy) -> int:
        """Row of M's box that lies in row `x` of the first MMA atom."""
        if self.run:
            return min(x, self.run - 1)
        return x if copy.rows == 64 else x // copy.rows * self.mma_m * copy.rows + x % copy.rows


@lru_cache(maxsize=4096)
def boxed_tile(
    dims: tuple[DimD, ...], held: Accumulators, counts: tuple[int, int], setup_clocks: float
) -> tuple[StagedTile, float] | None:
    """The cheapest staging for copies by tensor map and its clocks for one tile, or None where D has no such rows.

    `dims` come by their step; the boxes of M and N have `counts` dimensions.
    """
    if not dims or dims[0].step != 1:
        return None
    copy = _copy(dims[0], held)
    if copy is None:
        return None
    best: tuple[StagedTile, float] | None = None
    for row, swizzle_bytes, inner in _rows(dims, held.size):
        others = dims[inner:]
        if any(d.step * held.size % CHUNK for d in others):
            continue
        turned = _turned(swizzle_bytes, held, copy)
        if best is not None and setup_clocks + _clocks(1.0, held, copy, turned) >= best[1] * 0.999:
            continue
        rows, blocks, lanes = _writes(held, copy, turned)
        tried = set[tuple[int, ...]]()
        width = CHUNK if copy.kind in ("stsm", "stsm_t") else copy.vector * held.size
        away = row * math.prod(d.box for d in others)
        held_steps, cut = _inner_steps(dims[:inner], row, away)
        along_m, *along_n = (
            _along(dims, inner, group, of, held_steps, cut, held.size)
            for group, of in (("m", rows), *(("n", columns) for columns in blocks))
        )
        near = sorted({i for along in (along_m, *along_n) for i, _ in along.others})
        boxes, outer = [d.box for d in others], [row] * len(others)
        for order in itertools.islice(itertools.permutations(range(len(others))), MAX_ORDERS):
            step = row
            for i in order:
                outer[i] = step
                step *= boxes[i]
            # Most have the same steps along the dimensions that lanes differ in, but for whole periods, and are served
            # alike: which places are the same is told by coordinates alone.
            asked = tuple([outer[i] * held.size % PERIOD for i in near])
            if asked in tried:
                continue
            tried.add(asked)
            at, served = along_m.places(outer), list[int]()
            for along in along_n:
                served += _served(*_reduced(at, along.places(outer), width), lanes, swizzle_bytes, width)
            mean = sum(served) / len(served)
            clocks = setup_clocks + _clocks(mean, held, copy, turned)
            if best is None or clocks < best[1] * 0.999:
                steps = held_steps | {d.key: step for d, step in zip(others, outer, strict=True)}
                tile = StagedTile(
                    tuple(steps.get(("m", i), 0) for i in range(counts[0])),
                    tuple(steps.get(("n", i), 0) for i in range(counts[1])),
                    math.prod(d.box for d in dims), copy, round(mean), row, swizzle_bytes, cut,
                    tuple(d.key for d in (*dims[:inner], *(others[i] for i in order))),
                )  # fmt: skip
                best = tile, clocks
            if mean <= 1.0:
                break
        if best is not None and best[0].conflicts <= 1:
            break
    return best


def _copy(unit: DimD, held: Accumulators) -> R2SCopy | None:
    """How fragments are written for D's unit-stride dimension; None where only single elements are neighbours."""
    whole_n = held.box_n % 8 == 0
    if held.size >= WORD:
        return _copy_of_words(unit, whole_n, held.size)
    if unit.group == "n":
        if unit.prefix == 1 and unit.box % 8 == 0:
            return R2SCopy("stsm", 8) if whole_n else None
        vector = math.gcd(unit.box, 8)
        return R2SCopy("vec_n", vector) if unit.prefix % 8 == 0 and vector > 1 and whole_n else None
    if unit.prefix == 1:
        return R2SCopy("stsm_t", 8) if unit.box % 8 == 0 else None
    vector = math.gcd(unit.box, math.gcd(held.mma_m, 8))
    if held.run and held.atom < 64:
        return None
    if vector > 1 and unit.prefix == (held.run or 64):
        return R2SCopy("vec_m", vector)
    # A block takes atoms that are `mma_m` apart, so that neighbours along D lie in one thread's registers.
    if vector > 1 and 8 <= held.atom < 64 and unit.prefix == held.atom and held.box_m == held.rows:
        return R2SCopy("vec_m", vector, held.atom)
    return None


def _copy_of_words(unit: DimD, whole_n: bool, size: int) -> R2SCopy:
    """The same for elements that a register holds alone, or two or four, which are written anywhere."""
    if unit.group == "n" and whole_n and unit.box % 8 == 0 and unit.prefix == 1 and 2 * size <= CHUNK:
        return R2SCopy("pair_n", 2)
    vector = math.gcd(unit.box, CHUNK // WORD)
    if size == WORD and unit.group == "n" and whole_n and unit.prefix % 8 == 0 and vector > 1:
        return R2SCopy("vec_n", vector)
    return R2SCopy("one", 1)


def _rows(dims: Sequence[DimD], size: int) -> Iterator[tuple[int, int, int]]:
    """(elements of a copy's row, bytes of the swizzle, dimensions that make the run): the longest row first."""
    tile, most = math.prod(d.box for d in dims), MAX_COPIES if size < CHUNK else MAX_CHUNK_COPIES
    runs = [dims[0].box]  # of the first dimensions, as long as each is whole and the next one continues it
    for before, d in itertools.pairwise(dims):
        if before.box != before.extent or d.step != runs[-1]:
            break
        runs.append(runs[-1] * d.box)

    def fit(row: int, align: int) -> int:
        """How many dimensions make the run that rows of `row` elements divide, 0 where they divide none well.

        A row ends between dimensions or inside one that it divides, copies are few and start where they may.
        """
        for i, (before, run) in enumerate(itertools.pairwise([1, *runs])):
            if row <= run:
                good = row % before == 0 and run % row == 0 and run // row <= most
                return i + 1 if good and (run == row or row * (tile // run) * size % align == 0) else 0
        return 0

    longest = min(runs[-1], MAX_BOX // halves(size))
    for row in range(longest - longest % (CHUNK // size), 0, -(CHUNK // size)):
        if inner := fit(row, 128):
            yield row, CHUNK, inner
            break
    for swizzle in reversed(SWIZZLES):
        if inner := fit(swizzle // size, 8 * swizzle):
            yield swizzle // size, swizzle, inner


def _inner_steps(inner: Sequence[DimD], row: int, away: int) -> tuple[dict[tuple[str, int], int], Cut | None]:
    """Elements between neighbours of each dimension of a run, and the dimension that a row's end cuts.

    Copies of the run's rows are `away` elements apart.
    """
    at: dict[tuple[str, int], int] = {}
    before = 1
    cut: Cut | None = None
    for d in inner:
        if before >= row:
            at[d.key] = away * (before // row)
        else:
            at[d.key] = before
            if before * d.box > row:
                cut = (d.group, d.at, row // before, away)
        before *= d.box
    return at, cut


Lanes = tuple[tuple[int, int], ...]  # positions of lanes' elements among the rows and the columns of a write

ROWS: Lanes = tuple((g, 0) for g in range(8))
COLUMNS: Lanes = tuple((0, i) for i in range(8))
PAIRS: Lanes = tuple((g, i) for g in range(8) for i in range(4))
TURNED: Lanes = tuple((g, g % 2 * 4 + i) for g, i in PAIRS)

PERIOD = 1024  # bytes after which the swizzle and the banks repeat


def _writes(held: Accumulators, copy: R2SCopy, turned: bool) -> tuple[list[int], list[list[int]], Lanes]:
    """The writes of the first fragments: rows, columns of each, and lanes; `turned` as `_turned` has it."""
    starts = range(0, min(16, held.box_n), 8)
    if copy.kind == "stsm_t":
        return [0], [[*range(j, j + 8)] for j in starts], COLUMNS
    rows = [held.row(g, copy) for g in range(8)]
    if copy.kind == "stsm":
        return rows, [[j] for j in starts], ROWS
    firsts = [(j, j ^ TURN // held.size) if turned else (j,) for j in starts]
    return rows, [[x for j in first for x in range(j, j + 8, 2)] for first in firsts], TURNED if turned else PAIRS


class _Along(NamedTuple):
    """Where some rows or columns lie in the staged tile, in bytes before the swizzle."""

    run: list[int]  # what the dimensions of D's run add
    # Positions of the other dimensions that tell them apart, and what an element of their steps adds.
    others: list[tuple[int, list[int]]]

    def places(self, steps: Sequence[int]) -> list[int]:
        """All of it for steps of the other dimensions."""
        at = self.run
        for i, bytes_of_step in self.others:
            step = steps[i]
            at = [x + step * more for x, more in zip(at, bytes_of_step, strict=True)]
        return at


def _along(
    dims: Sequence[DimD],
    inner: int,
    group: str,
    of: Sequence[int],
    steps: dict[tuple[str, int], int],
    cut: Cut | None,
    size: int,
) -> _Along:
    """Where indices `of` of a group lie; the first `inner` dimensions have `steps`."""
    run, others = [0] * len(of), list[tuple[int, list[int]]]()
    for i, d in enumerate(dims):
        at = [x // d.prefix % d.box for x in of] if d.group == group else []
        if any(at) and i >= inner:
            others.append((i - inner, [c * size for c in at]))
        elif any(at):
            step, (piece, far) = steps[d.key], (d.box, 0) if cut is None or d.key != cut[:2] else cut[2:]
            run = [x + (c % piece * step + c // piece * far) * size for x, c in zip(run, at, strict=True)]
    return _Along(run, others)


def _reduced(rows: list[int], columns: list[int], width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Places within one period, apart where they are others: banks tell no more, and more tiles have the same ones."""
    if math.gcd(width, *rows, *columns) != width:
        return tuple(rows), tuple(columns)
    apart = 2 * PERIOD  # of sums, too
    first = [x % PERIOD + apart * len(columns) * rows.index(x) for x in rows]
    return tuple(first), tuple([x % PERIOD + apart * columns.index(x) for x in columns])


@lru_cache(maxsize=16384)
def _served(rows: tuple[int, ...], columns: tuple[int, ...], lanes: Lanes, swizzle: int, width: int) -> list[int]:
    """Times that each phase of 128 bytes of a write is served."""
    return replays([swizzle_address(swizzle, rows[g] + columns[i]) for g, i in lanes], width)


def _turned(swizzle_bytes: int, held: Accumulators, copy: R2SCopy) -> bool:
    """Whether lanes of odd rows write other columns first than those of even rows (`R2STiledCopy::turn`)."""
    return copy.kind == "pair_n" and swizzle_bytes == max(SWIZZLES) and held.box_n * held.size % (2 * TURN) == 0


def _clocks(served: float, held: Accumulators, copy: R2SCopy, turned: bool) -> float:
    """Clocks of a tile: what shared memory and the issue slots take."""
    # Rows of padding leave lanes idle while their neighbours write.
    elements = held.rows * (-(-held.box_n // 8) * 8)
    stores = elements * held.size / 128 * served
    slot = MATRIX_SLOTS if copy.kind in ("stsm", "stsm_t") else 0.7 + 5.0 / copy.vector + TURN_SLOTS * turned
    slots = elements / 32 * slot / 4
    return max(stores, slots) + 0.3 * min(stores, slots)


@lru_cache(maxsize=4096)
def gapped_tile(
    m: tuple[int, ...], n: tuple[int, ...], order: tuple[tuple[str, int], ...], itemsize: int, vector: int, padded: bool
) -> StagedTile:
    """A staged tile whose dimensions follow each other in D's order.

    `order` has the dimensions (group, position) with a box above 1. Gaps keep vectors of D aligned; a tensor map needs
    the box dense.
    """
    boxes = [(m if g == "m" else n)[i] for g, i in order]
    best: StagedTile | None = None
    # A gap must keep vectors aligned, so it can only follow a run of whole vectors.
    runs, whole = itertools.accumulate(boxes[:-1], operator.mul), max(vector, CHUNK // itemsize)
    allowed = [i for i, run in enumerate(runs) if padded and run % whole == 0][:2]
    for gaps in itertools.product(GAPS, repeat=len(allowed)):
        steps, step, behind = {}, 1, dict(zip(allowed, gaps, strict=True))
        for i, (dim, b) in enumerate(zip(order, boxes, strict=True)):
            steps[dim] = step
            step = step * b + behind.get(i, 0)
        steps_m = tuple([steps.get(("m", i), 0) for i in range(len(m))])
        steps_n = tuple([steps.get(("n", i), 0) for i in range(len(n))])
        # Neighbouring columns are written in pairs, up to 16 bytes.
        width = itemsize * (2 if pairs(n, steps_n) and 2 * itemsize <= CHUNK else 1)
        rows = tuple([place_of(g, m, steps_m) * itemsize for g in range(8)])
        columns = tuple([place_of(2 * t, n, steps_n) * itemsize for t in range(4)])
        conflicts = max(_served(rows, columns, PAIRS, CHUNK, width))
        elements = step if padded else math.prod(boxes)
        if best is None or (conflicts, elements) < (best.conflicts, best.elements):
            best = StagedTile(steps_m, steps_n, elements, conflicts=conflicts)
        if conflicts == 1:
            break
    assert best is not None
    return best


def pairs(n: tuple[int, ...], steps_n: tuple[int, ...]) -> bool:
    """Whether two neighbouring columns are neighbours in the staged tile, so that they are written at once."""
    lead = next((i for i, b in enumerate(n) if b > 1), None)
    return lead is not None and steps_n[lead] == 1 and n[lead] % 8 == 0 and math.prod(n) % 8 == 0
