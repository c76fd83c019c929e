"""Which boxes are worth trying for a group of modes: long runs in every tensor that holds it, little padding.

Knows strides and extents of one group at a time; what both groups of a tensor make together is the cost model's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from layouts.access import LONG_RUN, contiguous_run, run_alignment, run_cost
from layouts.box import Box, TileDim
from layouts.modes import Strided

CUT_MODES = 4  # modes that get a box of their own; the rest of a group is walked tile by tile
PIECE = 16  # most that is assumed of a longer mode of the other group
SHORT = 32  # extent up to which a mode of the other group is taken as whole
KEPT = 3  # boxes handed to the cost model
FLAT = 1.02  # of the cost, where all modes make one dimension


@dataclass(frozen=True)
class Weight:
    """One tensor's stake in the boxes of a group.

    Attributes:
        strides: Byte strides along the group's modes.
        itemsize: Bytes of its elements.
        weight: Its share of the time if memory limits the contraction.
        store: Whether it is written.
        beside: (byte stride, extent) of the modes that it has in its other group. Their boxes are not known yet; short
            ones are taken as whole and a piece of long ones, so that both groups may choose what makes one long run
            together.
    """

    strides: tuple[int, ...]
    itemsize: int
    weight: float
    store: bool = False
    beside: tuple[tuple[int, int], ...] = ()

    @cached_property
    def all_strides(self) -> tuple[int, ...]:
        """Byte strides of the group's modes and of those beside it."""
        return (*self.strides, *(s for s, _ in self.beside))

    @cached_property
    def unit(self) -> int | None:
        """Position of the unit-stride mode, None where it lies in another group."""
        return next((i for i, s in enumerate(self.all_strides) if s == self.itemsize), None)

    @cached_property
    def least(self) -> float:
        """What `cost` is at least, whatever the box."""
        return 1.0 if self.unit is None else run_cost(LONG_RUN, store=self.store)

    def cost(self, box: Box) -> float:
        """Relative cost of this tensor's traffic under `box`; 1 where its unit stride lies elsewhere."""
        if self.unit is None:
            return 1.0
        count = len(box.extents)
        whole = tuple(TileDim((count + i,), _piece(e)) for i, (_, e) in enumerate(self.beside))
        both = Box((*box.extents, *(e for _, e in self.beside)), (*box.dims, *whole))
        run = contiguous_run(both, self.all_strides, self.itemsize)
        return run_cost(run, store=self.store, start_alignment=run_alignment(both, self.all_strides, run))


def cut_group(
    extents: Sequence[int], block: int, tensors: Sequence[Weight], first: int | None, compute: float, one_ragged: bool
) -> list[Box]:
    """The best boxes of at most `block` elements, best first.

    Args:
        extents: Of the group's modes.
        block: Elements of the tile.
        tensors: Who is walked along the group.
        first: Mode that must come first in the tile's index (an operand's unit stride), or None.
        compute: Weight of padding: the time that arithmetic takes, relative to the tensors' weights.
        one_ragged: Whether at most one dimension may be ragged (K, unless it is flattened).
    """
    if not extents:
        return [Box((), ())]
    if len(extents) == 1:
        return [Box(tuple(extents), (TileDim((0,), min(block, extents[0])),))]
    order = _order(extents, tensors, first)
    tried: dict[Box, tuple[float, float]] = {}  # with factors of the arithmetic and of the whole
    for cut in _cuts(extents, block, order[:CUT_MODES], tensors):
        box = _box(extents, cut, order)
        if not one_ragged or sum(d.box > 1 and not box.divides(i) for i, d in enumerate(box.dims)) <= 1:
            tried[box] = 1.0, 1.0
    for mode_order in _walks(extents, tensors, first):
        box = _box(extents, _greedy(extents, block, mode_order), order)
        if not one_ragged or all(box.divides(i) for i in range(len(box.dims))):
            tried[box] = 1.0, 1.0
        flat = Box(tuple(extents), (TileDim(tuple(mode_order), min(block, math.prod(extents))),))
        # Decoding every index costs time that the runs do not show.
        tried[flat] = 1.1 if one_ragged else 1.0, FLAT
    return _best(tried, block, tensors, compute)


def _best(tried: dict[Box, tuple[float, float]], block: int, tensors: Sequence[Weight], compute: float) -> list[Box]:
    """The cheapest boxes; what runs cost is worked out only where padding alone does not rule a box out."""

    def score(box: Box, costs: Sequence[float]) -> float:
        arithmetic, whole = tried[box]
        return (compute * arithmetic / box.efficiency(block) + sum(costs)) * whole

    least = [t.weight * t.least for t in tensors]
    best: list[tuple[float, int, Box]] = []  # the number decides ties: who was tried first
    for bound, i, box in sorted((score(box, least), i, box) for i, box in enumerate(tried)):
        if len(best) == KEPT and bound > best[-1][0]:
            break
        best = sorted([*best, (score(box, [t.weight * t.cost(box) for t in tensors]), i, box)])[:KEPT]
    return [box for _, _, box in best]


def beside(modes: Sequence[Strided], tensor: int) -> tuple[tuple[int, int], ...]:
    """The modes of a tensor in its other group, for `Weight`."""
    return tuple((s.strides[tensor], s.extent) for s in modes if s.strides[tensor])


def _piece(extent: int) -> int:
    return extent if extent <= SHORT else max(d for d in range(1, PIECE + 1) if extent % d == 0)


def _order(extents: Sequence[int], tensors: Sequence[Weight], first: int | None) -> list[int]:
    """Modes by how near they are to a unit stride, the heavier tensor deciding ties; `first` in front."""

    def key(m: int) -> tuple[bool, float]:
        return m != first, min(
            (abs(t.strides[m]) / t.itemsize / (1 + t.weight) for t in tensors if t.strides[m]), default=math.inf
        )

    return sorted(range(len(extents)), key=key)


def _walks(extents: Sequence[int], tensors: Sequence[Weight], first: int | None) -> list[list[int]]:
    """Orders in which a greedy box grows: along each tensor's memory, and all tensors in turn."""
    walks = []
    for t in tensors:
        walks.append(sorted(range(len(extents)), key=lambda m: (m != first, abs(t.strides[m]) or math.inf)))
    merged: list[int] = []
    for step in zip(*walks, strict=True):
        for m in step:
            if m not in merged:
                merged.append(m)
    return [*walks, merged]


def _greedy(extents: Sequence[int], block: int, order: Sequence[int]) -> dict[int, int]:
    cut, room = {}, block
    for m in order:
        if extents[m] <= room:
            cut[m] = extents[m]
        else:
            cut[m] = max(d for d in range(1, room + 1) if extents[m] % d == 0)
        room //= cut[m]
        if room < 2:
            break
    return cut


def _box(extents: Sequence[int], cut: dict[int, int], order: Sequence[int]) -> Box:
    dims = [TileDim((m,), cut[m]) for m in order if cut.get(m, 1) > 1]
    rest = tuple(m for m in order if cut.get(m, 1) == 1)
    return Box(tuple(extents), (*dims, *((TileDim(rest, 1),) if rest else ())))


def _cuts(extents: Sequence[int], block: int, order: Sequence[int], tensors: Sequence[Weight]) -> list[dict[int, int]]:
    """Products of cuts of the first modes; only those that fill at least half of what they could."""
    units = {t.unit for t in tensors}
    grain = min(t.itemsize for t in tensors)
    reachable = min(block, math.prod(extents[m] for m in order))
    out: list[dict[int, int]] = []

    def walk(i: int, size: int, cut: dict[int, int]) -> None:
        if i == len(order):
            if 2 * size > reachable:
                out.append(dict(cut))
            return
        m = order[i]
        for t in _values(extents[m], block // size, 16 // grain if m in units else 1):
            cut[m] = t
            walk(i + 1, size * t, cut)
        cut.pop(m, None)

    walk(0, 1, {})
    return out


def _values(extent: int, room: int, multiple: int) -> list[int]:
    """Cuts of one mode: whole, powers of two, the even cuts that fit, all rounded to vectors for unit strides."""
    values = {1, min(extent, room)} | {1 << i for i in range(3 if multiple > 1 else 1, room.bit_length())}
    for parts in range(1, 9):
        even = -(-extent // parts)
        values.add(-(-even // multiple) * multiple)
    return sorted(v for v in values if v <= min(extent, room))
