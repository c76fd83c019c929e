"""The tables of a grouped launch: which outputs there are, what sums into them, and the launches that make them.

NumPy alone makes them, so 100,000 problems take some 50 ms. Knows addresses, but neither arrays nor a device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gett.codegen.grouped import OUTPUT, PAIR
from gett.groups.layouts import GROUPS, Layout
from gett.groups.tiles import kind_of, schedule_of, tile_of
from gett.ir.gemm import A, B, itemsize
from gett.ir.tensors import ALIGNMENT_LIMIT
from gett.schedule.spec.grouped import GroupedSchedule

MOST_TILES = 2**31 - 1

Integers = NDArray[np.int64]
Addresses = NDArray[np.uint64]


@dataclass(slots=True)
class Outputs:
    """What is written, in the order of its first problem.

    Attributes:
        first: Of each output the place of its first problem in `order`.
        count: Of each output its problems.
        order: Problems by output, in their own order within one.
    """

    first: Integers
    count: Integers
    order: Integers


@dataclass(slots=True)
class ClassTable:
    """One launch: the outputs of a class.

    Attributes:
        schedule: Its kernel.
        blocks: Tiles of all outputs.
        outputs: Records of `OUTPUT`, whose addresses are open.
        pairs: Records of `PAIR`, likewise.
        tiles: For each block the number of its output.
        output_of: For each record of `outputs` the problem that names the array.
        pair_of: For each record of `pairs` the problem.
        swapped: For each record of `pairs` whether the second operand is A.
    """

    schedule: GroupedSchedule
    blocks: int
    outputs: NDArray[np.void]
    pairs: NDArray[np.void]
    tiles: NDArray[np.int32]
    output_of: Integers
    pair_of: Integers
    swapped: NDArray[np.bool_]

    def point(self, a: Addresses, b: Addresses, d: Addresses) -> None:
        """Write the addresses of all problems' arrays."""
        first, second = a[self.pair_of], b[self.pair_of]
        self.pairs["a"] = np.where(self.swapped, second, first)
        self.pairs["b"] = np.where(self.swapped, first, second)
        self.outputs["d"] = d[self.output_of]


def group_outputs(which: Integers, d: Addresses, layouts: Sequence[Layout]) -> Outputs:
    """Problems that write the same array are one output."""
    own = np.array([hash((x.d.shape, x.d.strides)) for x in layouts], np.int64)[which] if len(which) else which
    # Arrays without elements may have no address: each is an output of its own, or of the others like it.
    pairs = np.stack([d.view(np.int64), own], axis=1)
    _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    output = rank[inverse]
    order = np.argsort(output, kind="stable")
    count = np.bincount(output, minlength=len(first))
    return Outputs(np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64), count, order)


def each_apart(count: int) -> Outputs:
    """Each problem an output of its own."""
    return Outputs(np.arange(count), np.ones(count, np.int64), np.arange(count))


_MAJORS: tuple[Literal["k", "mn"], ...] = ("k", "mn")
_NO_KERNEL = -1
_DIGITS = np.array([1 << 12, 1 << 11, 1 << 10, 1 << 5, 1])


@dataclass(slots=True)
class _Columns:
    """Figures of layouts, by number.

    Attributes:
        extents: Of the groups.
        swapped: Whether the second operand is A.
        kinds: Numbers of kernels, but for majors and vectors; `_NO_KERNEL` where there is none.
        places: Numbers of what groups the result's modes are in.
        majors: Of A and B, by position in `_MAJORS`.
        vectors: Most elements of a copy of A and of B along each of `_MAJORS`.
        sizes: Bytes of an element of A, B and D.
    """

    extents: Integers
    swapped: NDArray[np.bool_]
    kinds: Integers
    places: Integers
    majors: Integers
    vectors: Integers
    sizes: Integers

    @classmethod
    def of(cls, layouts: Sequence[Layout]) -> _Columns:
        kinds: dict[Hashable, int] = {}
        places: dict[str, int] = {}
        rows = [
            (
                [x.extent(g) for g in GROUPS],
                x.swapped,
                kinds.setdefault(kind_of(x), len(kinds)) if x.whole else _NO_KERNEL,
                places.setdefault(x.place, len(places)),
                [_MAJORS.index(x.major(t)) for t in (A, B)],
                [[x.vector(t, major) if x.whole else 1 for major in _MAJORS] for t in (A, B)],
                [itemsize(name) for name in (x.a.dtype, x.b.dtype, x.d.dtype.name)],
            )
            for x in layouts
        ]
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))


def make_tables(
    layouts: Sequence[Layout],
    which: Integers,
    outputs: Outputs,
    a: Addresses,
    b: Addresses,
    d: Addresses,
    arch: str,
) -> tuple[list[ClassTable], Integers]:
    """The launches, and the outputs that they do not make: their pairs have no kernel in common.

    Args:
        layouts: The distinct ones.
        which: For each problem its layout.
        outputs: What sums into what.
        a: Addresses of the first operands, whose alignment bounds vectors.
        b: Of the second ones.
        d: Of what is written.
        arch: What kernels are for.
    """
    if not len(which):
        return [], which
    of = _Columns.of(layouts)
    problems = outputs.order
    own = which[problems]
    lead = problems[outputs.first]
    owner = np.repeat(np.arange(len(lead)), outputs.count)
    majors = of.majors[which[lead]]
    vectors, whole = _vectors(of, which, np.stack([a, b, d], axis=1).astype(np.int64))
    choice = np.take_along_axis(of.vectors[own], majors[owner][:, :, None], axis=2)[:, :, 0]
    least = np.minimum.reduceat(np.minimum(choice, vectors[problems]), outputs.first, axis=0)
    alike = np.minimum.reduceat(whole[problems], outputs.first)
    for column in (of.kinds[own], of.places[own]):
        alike &= np.minimum.reduceat(column, outputs.first) == np.maximum.reduceat(column, outputs.first)
    kinds = np.where(alike, of.kinds[which[lead]], _NO_KERNEL)
    # One number for each combination: vectors are powers of two of at most 16 elements.
    classes, member = np.unique(np.column_stack([kinds, majors, least]) @ _DIGITS, return_inverse=True)
    tables = []
    for number in range(len(classes)):
        chosen = np.flatnonzero(member == number)
        one = int(chosen[0])
        if kinds[one] == _NO_KERNEL:
            continue
        layout = layouts[int(which[lead[one]])]
        major_a, major_b = majors[one].tolist()
        sides = (_MAJORS[major_a], _MAJORS[major_b])
        schedule = schedule_of(layout, arch, tile_of(layout), sides, least[one].tolist())
        for part in _parts(schedule, of, which, lead[chosen]):
            taken = np.zeros(len(lead), np.bool_)
            taken[chosen[part]] = True
            table = _class_table(schedule, of, which, lead[taken], problems[taken[owner]], outputs.count[taken])
            tables.append(table)
    return [t for t in tables if t.blocks], np.flatnonzero(kinds == _NO_KERNEL)


def _vectors(of: _Columns, which: Integers, addresses: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Elements of A and B that addresses let one copy have, for each problem; and whether they are whole elements'."""
    swapped = of.swapped[which]
    addresses[swapped, :2] = addresses[swapped, 1::-1]
    alignment = np.where(addresses % ALIGNMENT_LIMIT == 0, ALIGNMENT_LIMIT, addresses & -addresses)
    elements = alignment // of.sizes[which]
    return elements[:, :2], np.all(elements > 0, axis=1, keepdims=True)[:, 0]


def _tiles(schedule: GroupedSchedule, of: _Columns, layout: Integers) -> tuple[Integers, Integers, Integers]:
    """Tiles along M and N, and in all, of outputs by the layout of their first pair."""
    rows, columns, _ = schedule.tile.shape
    extents = of.extents[layout]
    m, n = -(-extents[:, 1] // rows), -(-extents[:, 2] // columns)
    return m, n, m * n * extents[:, 0]


def _parts(schedule: GroupedSchedule, of: _Columns, which: Integers, lead: Integers) -> list[Integers]:
    """The outputs of a class in parts whose tiles one grid has."""
    ends = np.cumsum(_tiles(schedule, of, which[lead])[2])
    number = (ends - 1) // MOST_TILES if len(ends) else ends
    return [np.flatnonzero(number == x) for x in np.unique(number)]


def _class_table(
    schedule: GroupedSchedule, of: _Columns, which: Integers, lead: Integers, problems: Integers, count: Integers
) -> ClassTable:
    m, n, tiles = _tiles(schedule, of, which[lead])
    steps = -(-of.extents[which[problems], 3] // schedule.tile.shape[2])
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    # A pair without products is left out, but for one of an output that has no other: it says where D lies.
    kept = steps > 0
    kept[first] |= np.add.reduceat(steps, first) == 0
    kept_count = np.add.reduceat(kept.astype(np.int64), first)
    pairs = np.zeros(int(kept.sum()), PAIR)
    pairs["layout"], pairs["k_tiles"] = which[problems][kept], steps[kept]
    outputs = np.zeros(len(lead), OUTPUT)
    outputs["first_pair"] = np.concatenate([[0], np.cumsum(kept_count)[:-1]])
    outputs["first_tile"] = np.concatenate([[0], np.cumsum(tiles)[:-1]])
    outputs["tiles_m"], outputs["tiles_n"] = m, n
    outputs["k_tiles"] = np.add.reduceat(steps, first)
    blocks = np.repeat(np.arange(len(lead), dtype=np.int32), tiles)
    return ClassTable(
        schedule, int(tiles.sum()), outputs, pairs, blocks, lead, problems[kept], of.swapped[which[problems][kept]]
    )
