"""Which boxes are worth trying for a group of modes: long runs in every tensor that has the group, little padding.

Knows strides and extents of one group at a time; what two groups of a tensor make together is up to the cost models.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop

from layouts.access import Runs
from layouts.box import Box, TileDim
from layouts.modes import Strided
from layouts.rates import SECTOR, RunRates, run_cost

CUT_MODES = 4  # modes that get a cut of their own; the rest of a group is walked tile by tile
KEPT = 3  # boxes handed to the cost model
WHOLE = 160  # longest mode of the other group of which a tile is assumed to take all


Cut = tuple[int, ...] | Box
"""What a tile takes of each mode of a group, or a box with a flattened dimension."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What one tensor's traffic counts when the boxes of a group are compared."""

    strides: tuple[int, ...]  # byte strides along the group's modes
    itemsize: int  # bytes of its elements
    weight: float  # its share of the time if memory limits the contraction
    store: bool = False  # whether it is written
    # (byte stride, extent) of the modes that it has in its other group. Their boxes are not known yet: short modes are
    # assumed whole, of long ones a piece, so that both groups may choose what makes one long run together.
    partners: tuple[tuple[int, int], ...] = ()

    @property
    def unit(self) -> int | None:
        """Position of the unit-stride mode, the partners behind the group's, None where it lies in another group."""
        strides = (*self.strides, *(s for s, _ in self.partners))
        return next((i for i, s in enumerate(strides) if s == self.itemsize), None)


class _Cost:
    """Weighted costs of one tensor's traffic under the boxes of a group, `weight` where its unit stride lies elsewhere.

    They are kept: blocks of one group have many boxes in common.
    """

    def __init__(self, memory: RunRates, extents: tuple[int, ...], tensor: Weight) -> None:
        self.memory, self.tensor, self.elsewhere = memory, tensor, tensor.unit is None
        self.known: dict[Cut, float] = {}  # by box
        # What they are at least, whatever the box.
        self.least = tensor.weight if self.elsewhere else self._of_run(memory.long_run, SECTOR)
        strides, extents_p = zip(*tensor.partners, strict=True) if tensor.partners else ((), ())
        self.assumed = tuple([_assumed(extent) for extent in extents_p])
        self.partners = Box(extents_p, tuple(TileDim((i,), x) for i, x in enumerate(self.assumed)))
        self.runs = Runs((tensor.strides, strides), (*extents, *extents_p), tensor.itemsize)

    def __call__(self, cut: Cut) -> float:
        """That of a box."""
        if self.elsewhere:
            return self.least
        if cut not in self.known:
            if isinstance(cut, Box):
                run = self.runs.of_boxes(cut, self.partners)
            else:
                run = self.runs.of_cut((*cut, *self.assumed))
            self.known[cut] = self._of_run(*run)
        return self.known[cut]

    def _of_run(self, run: int, alignment: int) -> float:
        return self.tensor.weight * run_cost(self.memory, run, store=self.tensor.store, start_alignment=alignment)


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
    runs: frozenset[int] | None = None,
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
        runs: What a tile may take of mode `first` where it has other dimensions as well; None for anything.
    """
    group = _group(memory, tuple(extents), tuple(tensors), first)
    return list(group.boxes(block, compute, one_ragged, most_tiled, runs))


class _Group:
    """The modes of a group, in the order in which a tile has them, and what boxes cost each tensor that has it."""

    def __init__(
        self, memory: RunRates, extents: tuple[int, ...], tensors: tuple[Weight, ...], first: int | None
    ) -> None:
        modes = range(len(extents))

        def nearest(m: int) -> tuple[bool, float]:
            steps = (abs(t.strides[m]) / t.itemsize / (1 + t.weight) for t in tensors if t.strides[m])
            return m != first, min(steps, default=math.inf)

        # By how near they are to a unit stride, the heavier tensor deciding ties; `first` in front.
        self.extents, self.order, self.first = extents, sorted(modes, key=nearest), first
        self.costs = [_Cost(memory, extents, tensor) for tensor in tensors]
        along = [sorted(modes, key=lambda m: (m != first, abs(t.strides[m]) or math.inf)) for t in tensors]
        by_turns = dict.fromkeys(m for step in zip(*along, strict=True) for m in step)
        # Orders in which a greedy box grows: along each tensor's memory, and along all of them by turns.
        self.growths = list(dict.fromkeys(map(tuple, (*along, by_turns))))
        vector, units = 16 // min(t.itemsize for t in tensors), {t.unit for t in tensors}
        self.multiples = [vector if m in units else 1 for m in modes]
        self.known: dict[tuple[int, float, bool, int, frozenset[int] | None], list[Box]] = {}

    def boxes(
        self, block: int, compute: float, one_ragged: bool, most_tiled: int, runs: frozenset[int] | None
    ) -> list[Box]:
        """The best boxes, as `cut_group` says; searches that exchange the roles of A and B ask for the same again."""
        key = block, compute, one_ragged, most_tiled, runs
        if key not in self.known:
            self.known[key] = self._best(*key)
        return self.known[key]

    def _takes(self, cut: Cut, most_tiled: int, runs: frozenset[int] | None) -> bool:
        """Whether a tile may have a box, by its dimensions and by what it takes of the first mode beside others."""
        if isinstance(cut, Box):
            return True
        tiled = len(cut) - cut.count(1)
        if most_tiled and tiled > most_tiled:
            return False
        return runs is None or self.first is None or tiled < 2 or cut[self.first] in runs

    def _best(
        self, block: int, compute: float, one_ragged: bool, most_tiled: int, runs: frozenset[int] | None
    ) -> list[Box]:
        extents, order = self.extents, self.order
        if len(extents) <= 1:
            return [Box.of_cuts(extents, {m: min(block, e) for m, e in enumerate(extents)})]
        volume, least = math.prod(extents), sum(cost.least for cost in self.costs)
        # By the least that they cost; of equal scores the box that was tried first wins.
        queue = []
        for i, (cut, (arithmetic, whole, tiles)) in enumerate(self._tried(block, one_ragged).items()):
            if self._takes(cut, most_tiled, runs):
                padded = compute * arithmetic / (volume / (tiles * block))
                queue.append(((padded + least) * whole, i, padded, whole, cut))
        heapify(queue)
        best: list[tuple[float, int, Cut]] = []
        while queue and (len(best) < KEPT or queue[0][0] <= best[-1][0]):
            _, i, padded, whole, cut = heappop(queue)
            insort(best, ((padded + sum([cost(cut) for cost in self.costs])) * whole, i, cut))
            del best[KEPT:]
        cuts = (cut for _, _, cut in best)
        return [x if isinstance(x, Box) else Box.of_cuts(extents, {m: x[m] for m in order}, order) for x in cuts]

    def _tried(self, block: int, one_ragged: bool) -> dict[Cut, tuple[float, float, int]]:
        """Boxes with factors of the arithmetic and of the whole, and their tiles."""
        extents, volume, ones = self.extents, math.prod(self.extents), (1,) * len(self.extents)
        tried: dict[Cut, tuple[float, float, int]] = {}
        for cut, tiles in self._products(block):
            if not one_ragged or _ragged(extents, cut) <= 1:
                tried[cut] = 1.0, 1.0, tiles
        flat = min(block, volume)
        # Every index is decoded, which costs time that the runs do not show.
        factors = 1.1 if one_ragged else 1.0, 1.02, -(-volume // flat)
        for growth in self.growths:
            cut = _greedy_cuts(extents, block, growth)
            if not one_ragged or not _ragged(extents, cut):
                tried[cut] = 1.0, 1.0, math.prod([-(-e // c) for e, c in zip(extents, cut, strict=True)])
            whole = flat > 1 or growth != tuple(self.order)
            tried[Box(extents, (TileDim(growth, flat),)) if whole else ones] = factors
        return tried

    def _products(self, block: int) -> list[tuple[tuple[int, ...], int]]:
        """Products of cuts of some modes, with their tiles; only those that fill more than half of what they could."""
        extents, modes = self.extents, self.order[:CUT_MODES]
        reachable = min(block, math.prod([extents[m] for m in modes]))
        rest = math.prod([e for m, e in enumerate(extents) if m not in modes])
        found: list[tuple[int, tuple[int, ...], int]] = [(1, (), rest)]
        for i, m in enumerate(modes):
            multiple, extent = self.multiples[m], extents[m]
            behind = math.prod([extents[x] for x in modes[i + 1 :]])  # that n can still grow by
            found = [
                (n * cut, (*cuts, cut), tiles * -(-extent // cut))
                for n, cuts, tiles in found
                for cut in _cuts(extent, block // n, multiple)
                if 2 * n * cut * behind > reachable
            ]
        places = [modes.index(m) if m in modes else -1 for m in range(len(extents))]
        return [(tuple([cuts[i] if i >= 0 else 1 for i in places]), tiles) for _, cuts, tiles in found]


_group = lru_cache(maxsize=64)(_Group)


def _ragged(extents: Sequence[int], cut: Sequence[int]) -> int:
    """Modes that a box does not divide."""
    return sum([e % c > 0 for e, c in zip(extents, cut, strict=True)])


def _assumed(extent: int) -> int:
    """What a tile is assumed to take of a partner mode: all of a short one, else a divisor from 8 to 16, or 16."""
    even = _divisor(extent, 16)
    return extent if extent <= WHOLE else even if even >= 8 else 16


def _divisor(extent: int, most: int) -> int:
    return max(d for d in range(1, most + 1) if extent % d == 0)


def _greedy_cuts(extents: Sequence[int], block: int, growth: Sequence[int]) -> tuple[int, ...]:
    """Whole modes as long as they fit, then the longest divisor of the next."""
    cuts, left = [1] * len(extents), block
    for m in growth:
        cuts[m] = extents[m] if extents[m] <= left else _divisor(extents[m], left)
        left //= cuts[m]
        if left < 2:
            break
    return tuple(cuts)


@lru_cache(maxsize=4096)
def _cuts(extent: int, most: int, multiple: int) -> tuple[int, ...]:
    """Cuts of one mode: whole, powers of two, the even cuts that fit, all rounded to vectors for unit strides."""
    cuts = {1, min(extent, most)} | {1 << i for i in range(3 if multiple > 1 else 1, most.bit_length())}
    for parts in range(1, 9):
        even = -(-extent // parts)
        cuts.add(-(-even // multiple) * multiple)
    return tuple(sorted(c for c in cuts if c <= min(extent, most)))
