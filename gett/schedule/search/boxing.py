"""Which boxes are worth trying for a group of modes: long runs in every tensor that has the group, little padding.

Knows strides and extents of one group at a time; what two groups of a tensor make together is up to the cost models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from layouts.access import BoxStrides, alignment_of_boxes, run_of_boxes
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.rates import RunRates, run_cost

CUT_MODES = 4  # modes that get a cut of their own; the rest of a group is walked tile by tile
KEPT = 3  # boxes handed to the cost model


@dataclass(frozen=True)
class Weight:
    """What one tensor's traffic counts when the boxes of a group are compared.

    Attributes:
        strides: Byte strides along the group's modes.
        itemsize: Bytes of its elements.
        weight: Its share of the time if memory limits the contraction.
        store: Whether it is written.
        partners: (byte stride, extent) of the modes that it has in its other group. Their boxes are not known yet:
            short modes are assumed whole, of long ones a piece, so that both groups may choose what makes one long run
            together.
    """

    strides: tuple[int, ...]
    itemsize: int
    weight: float
    store: bool = False
    partners: tuple[tuple[int, int], ...] = ()

    @cached_property
    def unit(self) -> int | None:
        """Position of the unit-stride mode, the partners behind the group's, None where it lies in another group."""
        strides = (*self.strides, *(s for s, _ in self.partners))
        return next((i for i, s in enumerate(strides) if s == self.itemsize), None)

    @cached_property
    def partner_box(self) -> BoxStrides:
        """The box that is assumed for the partners."""
        extents = tuple(e for _, e in self.partners)
        box = Box(extents, tuple(TileDim((i,), _assumed(e)) for i, e in enumerate(extents)))
        return box, tuple(s for s, _ in self.partners)

    def least(self, memory: RunRates) -> float:
        """What `cost` is at least, whatever the box."""
        return 1.0 if self.unit is None else run_cost(memory, memory.long_run, store=self.store)

    def cost(self, memory: RunRates, box: Box) -> float:
        """Relative cost of this tensor's traffic under `box`; 1 where its unit stride lies elsewhere."""
        if self.unit is None:
            return 1.0
        boxes = ((box, self.strides), self.partner_box)
        run = run_of_boxes(boxes, self.itemsize)
        return run_cost(memory, run, store=self.store, start_alignment=alignment_of_boxes(boxes, run))


def partner_modes(modes: Sequence[Strided], tensor: int) -> tuple[tuple[int, int], ...]:
    """The modes of a tensor in its other group, for `Weight`."""
    return tuple((s.strides[tensor], s.extent) for s in modes if s.strides[tensor])


def cut_group(
    memory: RunRates,
    extents: Sequence[int],
    block: int,
    tensors: Sequence[Weight],
    first: int | None,
    compute: float,
    one_ragged: bool,
    most_tiled: int = 0,
) -> list[Box]:
    """The best boxes of at most `block` elements, best first.

    Args:
        memory: Rates of device memory.
        extents: Of the group's modes.
        block: Elements of the tile.
        tensors: Those that have the group.
        first: Mode that must come first in the tile's index (an operand's unit stride), or None.
        compute: Weight of padding: the time that arithmetic takes, relative to the tensors' weights.
        one_ragged: Whether at most one dimension may be ragged (K, unless it is flattened).
        most_tiled: Dimensions of which a tile may have more than one element, 0 for any number.
    """
    return list(_cut_group(memory, tuple(extents), block, tuple(tensors), first, compute, one_ragged, most_tiled))


# Searches that exchange the roles of A and B ask for the same boxes again.
@lru_cache(maxsize=512)
def _cut_group(
    memory: RunRates,
    extents: tuple[int, ...],
    block: int,
    tensors: tuple[Weight, ...],
    first: int | None,
    compute: float,
    one_ragged: bool,
    most_tiled: int,
) -> list[Box]:
    if len(extents) <= 1:
        return [Box.of_cuts(extents, {m: min(block, e) for m, e in enumerate(extents)})]
    order = _nearest_first(extents, tensors, first)
    tried: dict[Box, tuple[float, float]] = {}  # with factors of the arithmetic and of the whole
    for cuts in _products(extents, block, order[:CUT_MODES], tensors):
        box = Box.of_cuts(extents, cuts, order)
        if not one_ragged or box.ragged <= 1:
            tried[box] = 1.0, 1.0
    for growth in _growths(extents, tensors, first):
        cuts = _greedy_cuts(extents, block, growth)
        box = Box.of_cuts(extents, {m: cuts[m] for m in order if m in cuts}, order)
        if not one_ragged or not box.ragged:
            tried[box] = 1.0, 1.0
        flat = Box(tuple(extents), (TileDim(tuple(growth), min(block, math.prod(extents))),))
        # Every index is decoded, which costs time that the runs do not show.
        tried[flat] = 1.1 if one_ragged else 1.0, 1.02
    if most_tiled:
        tried = {box: factors for box, factors in tried.items() if len(box.tiled) <= most_tiled}
    return _best(memory, tried, block, tensors, compute)


def _best(
    memory: RunRates, tried: dict[Box, tuple[float, float]], block: int, tensors: Sequence[Weight], compute: float
) -> list[Box]:
    """The cheapest boxes; what runs cost is worked out only where padding alone does not rule a box out."""

    def score(box: Box, costs: Iterable[float]) -> float:
        arithmetic, whole = tried[box]
        return (compute * arithmetic / box.efficiency(block) + sum(costs)) * whole

    least = [t.weight * t.least(memory) for t in tensors]
    best: list[tuple[float, int, Box]] = []  # of equal scores the box that was tried first wins
    for bound, i, box in sorted((score(box, least), i, box) for i, box in enumerate(tried)):
        if len(best) == KEPT and bound > best[-1][0]:
            break
        costs, total = [*least], bound
        for at, tensor in enumerate(tensors):  # the others cost their least at least
            costs[at] = tensor.weight * tensor.cost(memory, box)
            total = score(box, costs)
            if len(best) == KEPT and total > best[-1][0]:
                break
        else:
            best = sorted([*best, (total, i, box)])[:KEPT]
    return [box for _, _, box in best]


def _assumed(extent: int) -> int:
    """What a tile is assumed to take of a partner mode: all of up to 32, else the longest divisor up to 16."""
    return extent if extent <= 32 else _divisor(extent, 16)


def _divisor(extent: int, most: int) -> int:
    return max(d for d in range(1, most + 1) if extent % d == 0)


def _nearest_first(extents: Sequence[int], tensors: Sequence[Weight], first: int | None) -> list[int]:
    """Modes by how near they are to a unit stride, the heavier tensor deciding ties; `first` in front."""

    def key(m: int) -> tuple[bool, float]:
        steps = (abs(t.strides[m]) / t.itemsize / (1 + t.weight) for t in tensors if t.strides[m])
        return m != first, min(steps, default=math.inf)

    return sorted(range(len(extents)), key=key)


def _growths(extents: Sequence[int], tensors: Sequence[Weight], first: int | None) -> list[list[int]]:
    """Orders of modes in which a greedy box grows: along each tensor's memory, and along all of them by turns."""
    along = [sorted(range(len(extents)), key=lambda m: (m != first, abs(t.strides[m]) or math.inf)) for t in tensors]
    return [*along, list(dict.fromkeys(m for step in zip(*along, strict=True) for m in step))]


def _greedy_cuts(extents: Sequence[int], block: int, growth: Sequence[int]) -> dict[int, int]:
    """Whole modes as long as they fit, then the longest divisor of the next."""
    cuts, left = {}, block
    for m in growth:
        cuts[m] = extents[m] if extents[m] <= left else _divisor(extents[m], left)
        left //= cuts[m]
        if left < 2:
            break
    return cuts


def _products(
    extents: Sequence[int], block: int, modes: Sequence[int], tensors: Sequence[Weight]
) -> list[dict[int, int]]:
    """Products of cuts of some modes; only those that fill more than half of what they could."""
    units = {t.unit for t in tensors}
    vector = 16 // min(t.itemsize for t in tensors)
    reachable = min(block, math.prod(extents[m] for m in modes))
    found: list[tuple[int, dict[int, int]]] = [(1, {})]
    for m in modes:
        multiple = vector if m in units else 1
        found = [(n * cut, {**cuts, m: cut}) for n, cuts in found for cut in _cuts(extents[m], block // n, multiple)]
    return [cuts for n, cuts in found if 2 * n > reachable]


@lru_cache(maxsize=4096)
def _cuts(extent: int, most: int, multiple: int) -> tuple[int, ...]:
    """Cuts of one mode: whole, powers of two, the even cuts that fit, all rounded to vectors for unit strides."""
    cuts = {1, min(extent, most)} | {1 << i for i in range(3 if multiple > 1 else 1, most.bit_length())}
    for parts in range(1, 9):
        even = -(-extent // parts)
        cuts.add(-(-even // multiple) * multiple)
    return tuple(sorted(c for c in cuts if c <= min(extent, most)))
