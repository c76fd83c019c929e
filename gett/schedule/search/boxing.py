"""Which boxes are worth trying for a group of modes: long runs in every tensor that has the group, little padding.

Knows strides and extents of one group at a time; what two groups of a tensor make together is up to the cost models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter

from layouts.access import Taken, alignment_of_boxes, run_of_boxes, run_of_cuts
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.rates import RunRates, run_cost

CUT_MODES = 4  # modes that get a cut of their own; the rest of a group is walked tile by tile
KEPT = 3  # boxes handed to the cost model


Cut = tuple[int, ...] | Box
"""What a tile takes of each mode of a group, or a box with a flattened dimension."""


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
    def assumed(self) -> tuple[Taken, ...]:
        """What a tile is assumed to take of the partners."""
        return tuple((s, _assumed(e), e) for s, e in self.partners)

    def least(self, memory: RunRates) -> float:
        """What `cost` is at least, whatever the box."""
        return 1.0 if self.unit is None else run_cost(memory, memory.long_run, store=self.store)

    def cost(self, memory: RunRates, extents: tuple[int, ...], cut: Cut, order: Sequence[int]) -> float:
        """Relative cost of this tensor's traffic under a box; 1 where its unit stride lies elsewhere."""
        if self.unit is None:
            return 1.0
        if isinstance(cut, Box):
            partners = Box(
                tuple(e for _, _, e in self.assumed),
                tuple(TileDim((i,), x) for i, (_, x, _) in enumerate(self.assumed)),
            )
            boxes = ((cut, self.strides), (partners, tuple(s for s, _, _ in self.assumed)))
            run = run_of_boxes(boxes, self.itemsize)
            start = alignment_of_boxes(boxes, run)
        else:
            taken = [(self.strides[m], cut[m], extents[m]) for m in order if self.strides[m]]
            run, start = run_of_cuts((*taken, *self.assumed), self.itemsize)
        return run_cost(memory, run, store=self.store, start_alignment=start)


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
    order, volume = _nearest_first(extents, tensors, first), math.prod(extents)
    tried: dict[Cut, tuple[float, float, int]] = {}  # with factors of the arithmetic and of the whole, and the tiles
    for cut, tiles in _products(extents, block, order[:CUT_MODES], tensors):
        if not one_ragged or _ragged(extents, cut) <= 1:
            tried[cut] = 1.0, 1.0, tiles
    for growth in _growths(extents, tensors, first):
        cut = _greedy_cuts(extents, block, growth)
        if not one_ragged or not _ragged(extents, cut):
            tried[cut] = 1.0, 1.0, math.prod([-(-e // c) for e, c in zip(extents, cut, strict=True)])
        flat = Box(extents, (TileDim(tuple(growth), min(block, volume)),))
        # Every index is decoded, which costs time that the runs do not show.
        factors = 1.1 if one_ragged else 1.0, 1.02, flat.tiles
        tried[flat if flat.tiled or growth != order else (1,) * len(extents)] = factors
    if most_tiled:
        tried = {cut: x for cut, x in tried.items() if isinstance(cut, Box) or len(cut) - cut.count(1) <= most_tiled}
    best = _best(memory, tried, extents, order, block, tensors, compute)
    return [x if isinstance(x, Box) else Box.of_cuts(extents, {m: x[m] for m in order}, order) for x in best]


def _ragged(extents: Sequence[int], cut: Sequence[int]) -> int:
    """Modes that a box does not divide."""
    return sum(e % c > 0 for e, c in zip(extents, cut, strict=True))


def _best(
    memory: RunRates,
    tried: dict[Cut, tuple[float, float, int]],
    extents: tuple[int, ...],
    order: Sequence[int],
    block: int,
    tensors: tuple[Weight, ...],
    compute: float,
) -> list[Cut]:
    """The cheapest boxes; what runs cost is worked out only where padding alone does not rule a box out."""
    volume, least = math.prod(extents), [t.weight * t.least(memory) for t in tensors]
    known = _known_costs(memory, extents, tensors, tuple(order))
    queue, least_sum = [], sum(least)
    for i, (cut, (arithmetic, whole, tiles)) in enumerate(tried.items()):
        padded = compute * arithmetic / (volume / (tiles * block))
        queue.append(((padded + least_sum) * whole, i, padded, whole, cut))
    queue.sort(key=itemgetter(0, 1))
    best: list[tuple[float, int, Cut]] = []  # of equal scores the box that was tried first wins
    for bound, i, padded, whole, cut in queue:
        if len(best) == KEPT and bound > best[-1][0]:
            break
        costs, total = [*least], bound
        for at, tensor in enumerate(tensors):  # the others cost their least at least
            if cut not in known[at]:
                known[at][cut] = tensor.weight * tensor.cost(memory, extents, cut, order)
            costs[at] = known[at][cut]
            total = (padded + sum(costs)) * whole
            if len(best) == KEPT and total > best[-1][0]:
                break
        else:
            best = sorted([*best, (total, i, cut)], key=itemgetter(0, 1))[:KEPT]
    return [cut for _, _, cut in best]


@lru_cache(maxsize=64)
def _known_costs(
    memory: RunRates, extents: tuple[int, ...], tensors: tuple[Weight, ...], order: tuple[int, ...]
) -> tuple[dict[Cut, float], ...]:
    """What boxes cost each tensor, filled in as it is asked: blocks of one group have many boxes in common."""
    return tuple({} for _ in tensors)


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


def _greedy_cuts(extents: Sequence[int], block: int, growth: Sequence[int]) -> tuple[int, ...]:
    """Whole modes as long as they fit, then the longest divisor of the next."""
    cuts, left = [1] * len(extents), block
    for m in growth:
        cuts[m] = extents[m] if extents[m] <= left else _divisor(extents[m], left)
        left //= cuts[m]
        if left < 2:
            break
    return tuple(cuts)


def _products(
    extents: Sequence[int], block: int, modes: Sequence[int], tensors: Sequence[Weight]
) -> list[tuple[tuple[int, ...], int]]:
    """Products of cuts of some modes, with their tiles; only those that fill more than half of what they could."""
    units = {t.unit for t in tensors}
    vector = 16 // min(t.itemsize for t in tensors)
    reachable = min(block, math.prod([extents[m] for m in modes]))
    rest = math.prod([e for m, e in enumerate(extents) if m not in modes])
    found: list[tuple[int, tuple[int, ...], int]] = [(1, (1,) * len(extents), rest)]
    for i, m in enumerate(modes):
        multiple, extent, made = vector if m in units else 1, extents[m], []
        behind_m = math.prod([extents[x] for x in modes[i:]])  # that n can still grow by
        for n, cuts, tiles in found:
            if 2 * n * min(block // n, behind_m) <= reachable:
                continue
            before, behind = cuts[:m], cuts[m + 1 :]
            for cut in _cuts(extent, block // n, multiple):
                made.append((n * cut, (*before, cut, *behind), tiles * -(-extent // cut)))
        found = made
    return [(cuts, tiles) for n, cuts, tiles in found if 2 * n > reachable]


@lru_cache(maxsize=4096)
def _cuts(extent: int, most: int, multiple: int) -> tuple[int, ...]:
    """Cuts of one mode: whole, powers of two, the even cuts that fit, all rounded to vectors for unit strides."""
    cuts = {1, min(extent, most)} | {1 << i for i in range(3 if multiple > 1 else 1, most.bit_length())}
    for parts in range(1, 9):
        even = -(-extent // parts)
        cuts.add(-(-even // multiple) * multiple)
    return tuple(sorted(c for c in cuts if c <= min(extent, most)))
